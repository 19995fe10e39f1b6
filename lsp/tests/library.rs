//! Every text of the library in the editor: what is shown is what the command line finds, at once.

use std::collections::BTreeSet;

use roundelay_algorithms::CATALOGUE;
use serde_json::{Value, json};

use super::session::EditorSession;

#[test]
fn the_library_is_proved_and_every_name_has_a_meaning() {
    let mut editor = EditorSession::new();
    let mut for_all = 0;
    for entry in CATALOGUE {
        let name = entry.path;
        editor.open(name, entry.text);
        assert_eq!(editor.findings(name), json!([]), "{name}");
        let lens = editor.lenses(name);
        assert!(lens.len() == 1 && lens[0].starts_with("proved "), "{name}: {lens:?}");
        for_all += usize::from(lens[0].starts_with("proved for all n"));
        // Every word that is a name can be asked for its definition, and those of the text have one.
        let symbols = editor.document("textDocument/documentSymbol", name);
        let declared = symbols.as_array().expect("a list");
        let is_own = |s: &&Value| s["name"] == entry.name && s["detail"] == entry.collective;
        assert!(declared.iter().any(|s| is_own(&s)), "{name}: {declared:#?}");
        for (byte, _) in entry.text.match_indices("data[") {
            if !entry.text[..byte].rsplit('\n').next().is_some_and(|line| line.contains("//")) {
                let hover = editor.at("textDocument/hover", name, byte);
                assert!(hover["contents"]["value"].is_string(), "{name}: byte {byte}: {hover}");
            }
        }
        assert_eq!(editor.document("textDocument/formatting", name), json!([]), "{name}");
    }
    assert!(for_all >= 41, "{for_all} of the library");
}

/// Tokens lie in order, on names, and do not overlap.
#[test]
fn colours_of_the_library_are_in_order() {
    let mut editor = EditorSession::new();
    let mut kinds = BTreeSet::new();
    for entry in CATALOGUE {
        editor.open_unproved(entry.path, entry.text);
        let tokens = editor.document("textDocument/semanticTokens/full", entry.path);
        let numbers: Vec<u64> =
            tokens["data"].as_array().expect("numbers").iter().filter_map(Value::as_u64).collect();
        let (mut line, mut column, mut end) = (0, 0, 0);
        for token in numbers.chunks(5) {
            column = if token[0] == 0 { column + token[1] } else { token[1] };
            end = if token[0] == 0 { end } else { 0 };
            line += token[0];
            assert!(column >= end, "{}: line {line}: two tokens overlap", entry.path);
            let text = entry.text.lines().nth(line as usize).expect("a line");
            let word: String = text.chars().skip(column as usize).take(token[2] as usize).collect();
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(!word.is_empty() && word.chars().all(is_name), "{}: `{word}`", entry.path);
            end = column + token[2];
            kinds.insert(token[3]);
        }
    }
    assert!(kinds.len() >= 6, "{kinds:?}");
}
