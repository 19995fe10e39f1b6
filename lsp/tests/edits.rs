//! Edits at random: the server neither dies nor answers otherwise than a fresh one on the same text.

use roundelay_algorithms::CATALOGUE;
use serde_json::json;

use super::session::EditorSession;

/// Numbers that look random, the same each time.
struct EditRandom(u64);

impl EditRandom {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end.max(1)
    }
}

/// Pieces that are typed.
const PIECES: [&str; 14] = [
    "",
    "n",
    " - 1",
    "{",
    "}",
    "(",
    "[",
    "\n",
    "// x",
    "for q in 0..n ",
    "\u{e9}",
    "use ",
    "r",
    "% n",
];

fn edits() -> usize {
    match std::env::var("ROUNDELAY_CI").as_deref() {
        Ok("full") => 100_000,
        _ => 400,
    }
}

#[test]
fn after_random_edits_the_answers_are_those_of_a_fresh_server() {
    let mut random = EditRandom(11);
    let mut editor = EditorSession::new();
    let (all, name) = (edits(), "edited.algo");
    let mut text = String::new();
    for edit in 0..all {
        if edit % 40 == 0 {
            text = CATALOGUE[random.below(CATALOGUE.len())].text.to_owned();
            editor.open(name, &text);
        }
        let (mut from, mut to) = (random.below(text.len() + 1), random.below(4));
        while !text.is_char_boundary(from) {
            from -= 1;
        }
        to = (from + to).min(text.len());
        while !text.is_char_boundary(to) {
            to += 1;
        }
        let place = |byte: usize| {
            let before = &text[..byte];
            let line = before.matches('\n').count();
            let start = before.rfind('\n').map_or(0, |i| i + 1);
            let character = before[start..].chars().map(char::len_utf16).sum::<usize>();
            json!({ "line": line, "character": character })
        };
        let range = json!({ "start": place(from), "end": place(to) });
        let piece = PIECES[random.below(PIECES.len())];
        editor.change(name, &range, piece);
        text.replace_range(from..to, piece);
        assert_eq!(editor.text(name), text, "edit {edit}");
        if edit % 40 == 39 {
            let mut fresh = EditorSession::new();
            fresh.open(name, &text);
            assert_eq!(editor.findings(name), fresh.findings(name), "{text}");
            assert_eq!(editor.lenses(name), fresh.lenses(name), "{text}");
            for method in ["textDocument/documentSymbol", "textDocument/semanticTokens/full"] {
                assert_eq!(editor.document(method, name), fresh.document(method, name), "{text}");
            }
        }
    }
}
