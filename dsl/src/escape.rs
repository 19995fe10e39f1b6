//! Makes words of others fit for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns a text in which no character acts on a terminal: control characters other than line ends and tabs, and those
/// that turn the direction of writing, stand as their escapes in Rust (`\u{1b}`). Everything that another program, a
/// file or a command line says passes here before a person sees it.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match acts(c) {
            true => drop(write!(plain, "{}", c.escape_default())),
            false => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

/// Returns true if a character acts on a terminal instead of being shown.
fn acts(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let ends = matches!(c, '\u{2028}' | '\u{2029}');
    turns || ends || c.is_control() && c != '\n' && c != '\t'
}

/// Returns a text of the same bytes in number in which no character of 128 to 159, which some terminals take for
/// commands, is left: a renderer of source lines replaces the others itself, and counts bytes.
pub(crate) fn without_c1(text: &str) -> Cow<'_, str> {
    match text.contains(is_c1) {
        true => Cow::Owned(text.replace(is_c1, "\u{b7}")),
        false => Cow::Borrowed(text),
    }
}

fn is_c1(c: char) -> bool {
    ('\u{80}'..='\u{9f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_acts_on_a_terminal() {
        let bad = "\u{1b}]0;owned\u{7}\u{1b}[2J\r\nfake\0\u{8}\u{9b}31m\u{202e}x\u{2066}\u{85}\u{2028}\u{7f}";
        let plain = escaped(bad);
        assert!(plain.chars().all(|c| c == '\n' || !c.is_control() && !acts(c)), "{plain:?}");
        assert!(plain.starts_with("\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\r\nfake"), "{plain}");
        let good = "rank 1 \u{2014} \u{e9}\u{5d0}\u{4e2d}\u{1f600}\n\tat a.algo:1";
        assert!(matches!(escaped(good), Cow::Borrowed(same) if same == good));
        let same = without_c1("a\u{9b}b\u{e9}");
        assert_eq!((&*same, same.len()), ("a\u{b7}b\u{e9}", "a\u{9b}b\u{e9}".len()));
    }
}
