//! Extensions of editors: the words that they colour are those of the grammar.

use std::collections::BTreeSet;
use std::path::Path;

use roundelay_dsl::KEYWORDS;
use roundelay_dsl::span::SourceMap;
use serde_json::Value;

fn read(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../editors/vscode").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Adds the words of every `\b(a|b)\b` whose scope is one of a reserved word.
fn words(value: &Value, found: &mut BTreeSet<String>) {
    let reserved = |scope: &str| {
        ["storage.type.", "keyword.control.", "keyword.other.", "constant.language."]
            .iter()
            .any(|start| scope.starts_with(start))
    };
    match value {
        Value::Object(fields) => {
            let named = |key: &str| fields.get(key).and_then(Value::as_str);
            if let (Some(scope), Some(text)) = (named("name"), named("match"))
                && reserved(scope)
            {
                let inner = text.trim_start_matches("\\b(").trim_end_matches(")\\b");
                found.extend(inner.split('|').map(Into::into));
            }
            fields.values().for_each(|value| words(value, found));
        }
        Value::Array(all) => all.iter().for_each(|value| words(value, found)),
        _ => {}
    }
}

#[test]
fn the_extension_colours_all_reserved_words_and_no_others() {
    let mut found = BTreeSet::new();
    words(&read("syntaxes/algo.tmLanguage.json"), &mut found);
    let reserved: BTreeSet<String> = KEYWORDS.iter().map(|word| (*word).into()).collect();
    assert_eq!(found, reserved);
}

#[test]
fn the_extension_has_the_version_and_the_files_that_it_names() {
    let package = read("package.json");
    assert_eq!(package["version"], env!("CARGO_PKG_VERSION"));
    for of in ["grammars", "snippets"] {
        let file = package["contributes"][of][0]["path"].as_str().expect("a path");
        read(file.trim_start_matches("./"));
    }
    assert!(read("package-lock.json").get("packages").is_some());
}

/// The texts that snippets write, with the first choice for each gap.
#[test]
fn what_the_snippets_write_is_of_the_language() {
    let snippets = read("snippets.json");
    let body = |name: &str| {
        let lines = snippets[name]["body"].as_array().expect("lines");
        let lines: Vec<&str> = lines.iter().filter_map(Value::as_str).collect();
        filled(&lines.join("\n"))
    };
    let head = body("algorithm");
    for inner in [body("round"), body("rounds").replace("data[]", "data[0]")] {
        let text = head.replacen("\n    \n", &format!("\n{inner}\n"), 1);
        assert_ne!(text, head);
        assert!(parses(&text), "{text}");
    }
    let function = format!("{}r + 1", body("function"));
    assert!(parses(&function), "{function}");
    assert!(!parses(&head.replace("chunks n", "chunks in")));
}

fn parses(text: &str) -> bool {
    let mut sources = SourceMap::new();
    let id = sources.add("snippet.algo", text);
    roundelay_dsl::parse(&sources, id).is_ok()
}

/// Fills the gaps of a snippet: `${1:name}`, `${2|first,second|}`, `$0`.
fn filled(snippet: &str) -> String {
    let mut text = String::new();
    let mut rest = snippet;
    while let Some((before, gap)) = rest.split_once('$') {
        text.push_str(before);
        rest = match gap.strip_prefix('{') {
            Some(inner) => {
                let (inner, after) = inner.split_once('}').expect("an end");
                let default = inner.trim_start_matches(|c: char| c.is_ascii_digit());
                let default = default.trim_matches(['|', ':']);
                text.push_str(default.split(',').next().unwrap_or(""));
                after
            }
            None => gap.trim_start_matches(|c: char| c.is_ascii_digit()),
        };
    }
    text + rest
}
