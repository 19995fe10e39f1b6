//! Values of expressions, chunks of regions and messages of statements.

use serde_json::{Value, json};

use crate::session::{EditorSession, RING};

fn hover(editor: &EditorSession, name: &str, before: &str, ahead: usize) -> String {
    let byte = editor.text(name).find(before).expect("it is there") + ahead;
    let shown = editor.at("textDocument/hover", name, byte);
    shown["contents"]["value"].as_str().unwrap_or("").to_owned()
}

fn hints(editor: &EditorSession, name: &str) -> Vec<(u64, String)> {
    let params = json!({
        "textDocument": { "uri": editor.uri(name) },
        "range": { "start": { "line": 0, "character": 0 }, "end": { "line": 99, "character": 0 } },
    });
    let found = editor.request("textDocument/inlayHint", params);
    let hint = |hint: &Value| {
        let line = hint["position"]["line"].as_u64().expect("a line");
        (line, hint["label"].as_str().expect("a label").to_owned())
    };
    found.as_array().expect("a list").iter().map(hint).collect()
}

#[test]
fn an_expression_shows_its_values_by_what_decides_them() {
    let mut editor = EditorSession::new();
    editor.open("ring.algo", RING);
    let sum = hover(&editor, "ring.algo", "(r + 1) % n", 4);
    assert_eq!(
        sum,
        "`(r + 1)` with 4 ranks\n\n| r | value |\n| --- | --- |\n| 0 | 1 |\n| 1 | 2 |\n| 2 | 3 |\n| 3 | 4 |\n"
    );
    let wrapped = hover(&editor, "ring.algo", "(r + 1) % n", 8);
    assert!(wrapped.contains("| 3 | 0 |"), "{wrapped}");
    let turns = hover(&editor, "ring.algo", "n-1 {", 2);
    assert_eq!(turns, "`n-1` with 4 ranks: 3");
    // A loop variable is shown with the expression around it.
    let variable = hover(&editor, "ring.algo", "(r - s) % n]", 5);
    assert!(
        variable.contains("// variable") && variable.contains("`(r - s)` with 4 ranks"),
        "{variable}"
    );
}

#[test]
fn a_region_shows_its_chunks() {
    let mut editor = EditorSession::new();
    editor.open("ring.algo", RING);
    let region = hover(&editor, "ring.algo", "data[(r - s) % n]", 1);
    assert!(region.starts_with("`data`: the buffer of each rank"), "{region}");
    assert!(region.contains("| s | r | value |"), "{region}");
    assert!(region.contains("| 1 | 0 | 3 |") && region.contains("| 2 | 3 | 1 |"), "{region}");
}

#[test]
fn values_are_those_of_the_branch_that_is_taken() {
    let mut editor = EditorSession::new();
    let text = "fn twice(x) = 2 * x
algorithm two(k = 3) implements barrier on (node, gpu) ranks {
    let width = twice(k) + node.size
    each (i, j) where i < 1 { (i, j) -> (i, (j + 1) % gpu.size) : copy data }
}
";
    editor.open_unproved("two.algo", text);
    assert_eq!(editor.findings("two.algo"), json!([]));
    assert!(hover(&editor, "two.algo", "twice(k) +", 2).ends_with("`twice(k)` with 2x2 ranks: 6"));
    assert!(hover(&editor, "two.algo", "twice(k) +", 9).ends_with(": 8"));
    let column = hover(&editor, "two.algo", "(j + 1)", 3);
    // Two ranks have i = 0: the others do not come to the transfer.
    assert!(
        column.ends_with("| rank | value |\n| --- | --- |\n| 0 | 1 |\n| 1 | 2 |\n"),
        "{column}"
    );
}

#[test]
fn each_transfer_has_its_rounds_and_its_share() {
    let mut editor = EditorSession::new();
    editor.open("ring.algo", RING);
    let share = "3 rounds, 0.75".to_owned();
    assert_eq!(hints(&editor, "ring.algo"), [(3, share.clone()), (4, share)]);
    editor.open(
        "ring.algo",
        &RING.replace(
            "0..n-1 { each r { r -> (r + 1) % n : reduce",
            "0..1 { each r { r -> (r + 1) % n : reduce",
        ),
    );
    assert_eq!(hints(&editor, "ring.algo")[0], (3, "1 round, 0.25".into()));
    editor.open("ring.algo", &RING.replace("reduce data", "reduce dat"));
    assert_eq!(hints(&editor, "ring.algo"), [], "a text that is wrong has none");
}
