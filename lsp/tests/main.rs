//! Tests of the language server, message by message.

mod edits;
mod library;
mod session;
mod values;

use serde_json::{Value, json};
use session::{EditorSession, RING};

#[test]
fn a_right_text_has_a_line_with_its_proof_and_no_findings() {
    let mut editor = EditorSession::new();
    editor.open("ring.algo", RING);
    assert_eq!(editor.findings("ring.algo"), json!([]));
    let lens = editor.lenses("ring.algo");
    assert_eq!(lens, ["proved for all n \u{b7} 16 rounds, 1.78 of the vector a rank at 9"]);
}

#[test]
fn a_wrong_transfer_is_shown_at_its_place_with_the_ranks() {
    let mut editor = EditorSession::new();
    editor.open("ring.algo", &RING.replace("data[(r + 1 - s) % n]", "data[(r - s) % n]"));
    let findings = editor.findings("ring.algo");
    let first = &findings[0];
    assert_eq!((&first["severity"], &first["source"]), (&json!(1), &json!("roundelay")));
    let code = first["code"].as_str().expect("a code");
    assert!(code.starts_with("RL05") || code.starts_with("RL04"), "{first:#}");
    assert!(
        first["message"]
            .as_str()
            .is_some_and(|m| m.contains("(on 2 ranks)") || m.contains("(on 3 ranks)")),
        "{first:#}"
    );
    assert!(
        first["codeDescription"]["href"]
            .as_str()
            .is_some_and(|h| h.ends_with(&format!("{code}.md")))
    );
    assert!(editor.lenses("ring.algo")[0].starts_with("wrong at "));
    // It is mended, and the findings are gone.
    editor.open("ring.algo", RING);
    assert_eq!(editor.findings("ring.algo"), json!([]));
}

#[test]
fn a_fault_of_grammar_takes_the_proof_away() {
    let mut editor = EditorSession::new();
    editor.open("ring.algo", &RING.replace("copy data", "cppy data"));
    let findings = editor.findings("ring.algo");
    assert_eq!(findings[0]["code"], "RL0101");
    assert!(editor.lenses("ring.algo").is_empty());
    // What can be completed is that of the last text that had a tree.
    editor.open("ring.algo", RING);
    editor.open("ring.algo", &RING.replace("copy data", "cppy data"));
    let words = editor.completions("ring.algo", "(r - s)");
    assert!(["s", "r", "n"].iter().all(|name| words.contains(&(*name).into())), "{words:?}");
}

#[test]
fn a_name_that_was_meant_is_an_action() {
    let mut editor = EditorSession::new();
    let text = RING.replace("chunks n", "chunks ceil_div2(n, 1)");
    editor.open("ring.algo", &text);
    let findings = editor.findings("ring.algo");
    let actions = editor.request(
        "textDocument/codeAction",
        json!({
            "textDocument": { "uri": editor.uri("ring.algo") },
            "range": findings[0]["range"],
            "context": { "diagnostics": findings },
        }),
    );
    assert_eq!(actions[0]["title"], "write `ceil_div`");
    let edit = &actions[0]["edit"]["changes"][editor.uri("ring.algo")][0];
    editor.change("ring.algo", &edit["range"], edit["newText"].as_str().expect("a text"));
    assert_eq!(editor.text("ring.algo"), text.replace("ceil_div2", "ceil_div"));
    assert_eq!(editor.findings("ring.algo"), json!([]));
}

#[test]
fn changes_with_which_a_text_is_right_are_actions() {
    let mut editor = EditorSession::new();
    for (right, wrong) in [
        ("r -> (r + 1) % n : reduce", "r -> r + 1 : reduce"),
        ("r -> (r + 1) % n : reduce", "r -> r + 1 % n : reduce"),
        ("data[(r + 1 - s) % n]", "data[(r + 1 - r) % n]"),
        (": reduce data", ": copy data"),
        (
            "for s in 0..n-1 { each r { r -> (r + 1) % n : copy",
            "for s in 0..n-2 { each r { r -> (r + 1) % n : copy",
        ),
    ] {
        editor.open("ring.algo", &RING.replace(right, wrong));
        let findings = editor.findings("ring.algo");
        assert_ne!(findings, json!([]), "{wrong}");
        let params = json!({
            "textDocument": { "uri": editor.uri("ring.algo") },
            "range": findings[0]["range"],
            "context": { "diagnostics": findings },
        });
        let actions = editor.request("textDocument/codeAction", params);
        assert_ne!(actions, json!([]), "{wrong}: {findings:#}");
        let edit = &actions[0]["edit"]["changes"][editor.uri("ring.algo")][0];
        editor.change("ring.algo", &edit["range"], edit["newText"].as_str().expect("a text"));
        assert_eq!(editor.findings("ring.algo"), json!([]), "{wrong}: {actions:#}");
    }
}

#[test]
fn names_are_found_and_renamed_in_their_scope() {
    let text = "fn next(r, n) = (r + 1) % n
algorithm one implements barrier on n ranks {
    for s in 0..n { each r { r -> next(r, n) : copy data } }
}
";
    let mut editor = EditorSession::new();
    editor.open("a.algo", text);
    let at = |of: &str, skip: usize| text.find(of).expect("it is there") + skip;
    let use_of_next = at("-> next", 3);
    let found = editor.at("textDocument/definition", "a.algo", use_of_next);
    assert_eq!(
        found["range"],
        json!({"start": {"line": 0, "character": 3}, "end": {"line": 0, "character": 7}})
    );
    // The parameter `n` of the function is another name than the axis `n`.
    let rename = |editor: &EditorSession, byte: usize, name: &str| {
        let mut params = editor.place("a.algo", byte);
        params["newName"] = json!(name);
        editor.try_request("textDocument/rename", params)
    };
    let edits = rename(&editor, at("% n", 2), "size").expect("a rename");
    let edits = edits["changes"][editor.uri("a.algo")].as_array().expect("edits").clone();
    assert_eq!(edits.len(), 2, "{edits:#?}");
    assert!(edits.iter().all(|e| e["range"]["start"]["line"] == 0));
    let taken = rename(&editor, at("% n", 2), "r").expect_err("taken");
    assert!(taken.contains("something else"), "{taken}");
    for word in ["each", "1a", "a b", ""] {
        assert!(rename(&editor, at("% n", 2), word).expect_err("no name").contains("is no name"));
    }
    let mut params = editor.place("a.algo", use_of_next);
    params["context"] = json!({ "includeDeclaration": true });
    assert_eq!(editor.request("textDocument/references", params).as_array().map(Vec::len), Some(2));
    let hover = editor.at("textDocument/hover", "a.algo", at("r -> next", 0));
    assert!(hover["contents"]["value"].as_str().is_some_and(|v| v.contains("// rank")), "{hover}");
    let symbols = editor.document("textDocument/documentSymbol", "a.algo");
    let names: Vec<&Value> =
        symbols.as_array().expect("symbols").iter().map(|s| &s["name"]).collect();
    assert_eq!(names, ["next", "one"]);
}

#[test]
fn the_library_and_other_files_are_a_step_away() {
    let mut editor = EditorSession::new();
    editor.open("tools.algo", "/// The neighbour.\nfn next(r, n) = (r + 1) % n\n");
    let text = "import \"tools.algo\"
algorithm main implements all_reduce on n ranks {
    chunks n
    use reduce_scatter.ring
    for s in 0..n-1 { each r { r -> next(r, n) : copy data[(r - s) % n] } }
}
";
    editor.open("main.algo", text);
    assert_eq!(editor.findings("main.algo"), json!([]));
    let at = |of: &str| text.find(of).expect("it is there") + 1;
    let import = editor.at("textDocument/definition", "main.algo", at("\"tools"));
    assert_eq!(import["uri"], editor.uri("tools.algo"));
    let far = editor.at("textDocument/definition", "main.algo", at("next"));
    assert_eq!(
        (&far["uri"], &far["range"]["start"]),
        (&json!(editor.uri("tools.algo")), &json!({"line": 1, "character": 3}))
    );
    let hover = editor.at("textDocument/hover", "main.algo", at("next"));
    assert!(hover["contents"]["value"].as_str().is_some_and(|v| v.contains("The neighbour.")));
    let library = editor.at("textDocument/definition", "main.algo", at("ring"));
    assert_eq!(library["uri"], "library:reduce_scatter/ring.algo");
    let hover = editor.at("textDocument/hover", "main.algo", at("ring"));
    assert!(hover["contents"]["value"].as_str().is_some_and(|v| v.contains("Source: ")), "{hover}");
    // The imported text changes: the other one is looked at anew.
    editor.open("tools.algo", "fn next(r, n) = (r + 2) % n\n");
    let findings = editor.findings("main.algo");
    assert!(findings[0]["code"].as_str().is_some_and(|c| c.starts_with("RL0")), "{findings}");
    editor.open("tools.algo", "fn nxt(r, n) = (r + 1) % n\n");
    let findings = editor.findings("main.algo");
    assert!(
        findings[0]["message"].as_str().is_some_and(|m| m.contains("did you mean `nxt`")),
        "{findings}"
    );
}

#[test]
fn words_are_completed_by_what_stands_before_them() {
    let mut editor = EditorSession::new();
    let text = RING.replace("copy data[(r + 1 - s) % n]", "copy data[(r + 1 - s) % n]\n    use ");
    editor
        .open("ring.algo", &RING.replace("    chunks n\n", "    chunks n\n    use all_gather.\n"));
    let names = editor.completions("ring.algo", "\n    for");
    assert!(names.contains(&"bruck".into()) && !names.contains(&"binomial".into()), "{names:?}");
    editor.open("ring.algo", &RING.replace("all_reduce", ""));
    let collectives = editor.completions("ring.algo", " on n ranks");
    assert!(collectives.contains(&"all_to_all".into()) && !collectives.contains(&"bruck".into()));
    editor.open("ring.algo", &text);
    assert!(editor.completions("ring.algo", "chunks n").contains(&"requires".into()));
}

#[test]
fn a_text_is_formatted_as_the_command_does_it() {
    let mut editor = EditorSession::new();
    editor.open("ring.algo", &RING.replace("    chunks n", " chunks   n"));
    let edits = editor.document("textDocument/formatting", "ring.algo");
    assert_eq!(edits[0]["newText"], RING);
    editor.change("ring.algo", &edits[0]["range"], RING);
    assert_eq!(editor.text("ring.algo"), RING);
    assert_eq!(editor.document("textDocument/formatting", "ring.algo"), json!([]));
}

#[test]
fn colours_follow_the_names() {
    let mut editor = EditorSession::new();
    editor.open("ring.algo", RING);
    let tokens = editor.document("textDocument/semanticTokens/full", "ring.algo");
    let numbers: Vec<u64> =
        tokens["data"].as_array().expect("numbers").iter().filter_map(Value::as_u64).collect();
    // The first is the name of the algorithm: line 1, after `algorithm `, four letters, declared.
    assert_eq!(numbers[..5], [1, 10, 4, 7, 1]);
    assert_eq!(numbers.len() % 5, 0);
}

#[test]
fn what_cannot_be_answered_is_refused_with_a_number() {
    let editor = EditorSession::new();
    let refusals = [
        ("textDocument/nothing", json!({}), -32601),
        ("textDocument/hover", json!({"textDocument": 7}), -32602),
        ("textDocument/hover", editor.place("closed.algo", 0), -32803),
    ];
    for (method, params, code) in refusals {
        let refused = editor.server.request(method, params).expect_err(method);
        assert_eq!(refused.code, code, "{}", refused.message);
    }
}

#[test]
fn only_the_algorithm_that_changed_is_proved_again() {
    let mut editor = EditorSession::new();
    let other = RING.replace("algorithm ring", "algorithm other").replace("//! ", "// ");
    editor.open("two.algo", &format!("{RING}\n{other}"));
    assert_eq!(editor.server.proved_algorithms(), 2);
    let changed = other.replace("chunks n", "chunks n + 0");
    editor.open("two.algo", &format!("{RING}\n{changed}"));
    assert_eq!(editor.server.proved_algorithms(), 3);
    editor.open("two.algo", &format!("// a remark\n{RING}\n{changed}"));
    editor.open("two.algo", &format!("{RING}\n{other}"));
    assert_eq!(editor.server.proved_algorithms(), 3, "both were proved before");
    assert!(editor.lenses("two.algo").iter().all(|title| title.starts_with("proved for all n")));
}

#[test]
fn a_proof_of_a_text_that_changed_says_nothing() {
    let mut editor = EditorSession::new();
    editor.open_unproved("ring.algo", RING);
    let old = editor.server.take_proofs();
    assert_eq!(old.iter().map(roundelay_lsp::ProofTask::algorithms).sum::<usize>(), 1);
    editor.open_unproved("ring.algo", &RING.replace("chunks n", "chunks n + 0"));
    assert!(old.iter().all(|task| task.run().is_none()), "it ends at once");
    editor.prove();
    assert!(editor.lenses("ring.algo")[0].starts_with("proved"));
}

/// An algorithm that is right with few ranks and wrong with 777 has no badge.
#[test]
fn a_text_that_is_wrong_at_one_rank_count_is_not_proved_for_all() {
    let mut editor = EditorSession::new();
    editor.open(
        "ring.algo",
        &RING.replace(
            "each r { r -> (r + 1) % n : copy",
            "each r where n != 777 || r != 5 { r -> (r + 1) % n : copy",
        ),
    );
    assert_eq!(editor.findings("ring.algo"), json!([]));
    assert!(editor.lenses("ring.algo")[0].starts_with("proved at 2..9 ranks"));
}

/// The proof ends, an imported file changes, and only then the server takes the outcome: it is of a text that is no more.
#[test]
fn a_proof_of_what_was_imported_before_says_nothing() {
    let mut editor = EditorSession::new();
    editor.open("tools.algo", "fn next(r, n) = (r + 1) % n\n");
    let text = format!("import \"tools.algo\"\n{RING}").replace("(r + 1) % n :", "next(r, n) :");
    editor.open_unproved("main.algo", &text.replace("//! ", "// "));
    let tasks = editor.server.take_proofs();
    let outcomes: Vec<_> = tasks.iter().filter_map(roundelay_lsp::ProofTask::run).collect();
    assert_eq!(outcomes.len(), 1);
    editor.open_unproved("tools.algo", "fn next(r, n) = (r + 2) % n\n");
    outcomes.into_iter().for_each(|outcome| editor.server.take_outcome(outcome));
    assert!(editor.lenses("main.algo")[0].starts_with("not proved"));
    editor.prove();
    assert!(editor.lenses("main.algo")[0].starts_with("wrong at "));
}
