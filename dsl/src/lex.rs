//! Splits a text into words and signs, comments included.
//!
//! The grammar decides what is valid; this only serves what a grammar does badly: limits before any
//! recursion, cutting a file into its declarations, tight spans, and printing with comments.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A name, a keyword, or a number.
    Word,
    /// `"…"`, or up to the line end if not closed.
    Text,
    /// An operator, a bracket, or a character that the language does not know.
    Sign,
    /// `// …`
    LineComment,
    /// `/* … */`
    BlockComment,
    /// `/// …` or `//! …`
    Doc,
    /// `/* …` without its end.
    OpenComment,
}

/// A token: bytes `start..end` of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourceToken {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl SourceToken {
    /// Returns the token as written.
    pub(crate) fn text<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.start..self.end).unwrap_or("")
    }

    /// Returns true if the grammar skips the token.
    pub(crate) fn is_comment(&self) -> bool {
        matches!(self.kind, TokenKind::LineComment | TokenKind::BlockComment)
    }
}

/// Signs of more than one character, longest first.
const LONG_SIGNS: &[&str] =
    &["..+", "..=", "..", "->", "||", "&&", "==", "!=", "<=", ">=", "<<", ">>"];

/// Returns true for the characters that the grammar skips between words (`WHITESPACE` of `algo.pest`). Others that
/// Unicode calls white space, or an end of a line, have no meaning: within a comment they are text, elsewhere a fault.
pub(crate) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{FEFF}')
}

/// Returns a line without the blanks at its end: what an editor may strip from a comment and keep its text.
pub(crate) fn trim_line(line: &str) -> &str {
    line.trim_end_matches([' ', '\t', '\r', '\n'])
}

/// Returns all tokens of a text, in order. Never fails: unknown characters are signs.
pub(crate) fn lex(text: &str) -> Vec<SourceToken> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        if is_blank(c) {
            at += c.len_utf8();
            continue;
        }
        let (kind, len) = token(&text[at..], c);
        tokens.push(SourceToken { kind, start: at, end: at + len });
        at += len;
    }
    tokens
}

/// Returns kind and length of the token at the start of `rest`, whose first character is `c`.
fn token(rest: &str, c: char) -> (TokenKind, usize) {
    let until = |stop: fn(char) -> bool| rest.find(stop).unwrap_or(rest.len());
    let line = || trim_line(&rest[..until(|c| c == '\n')]).len();
    if rest.starts_with("//!") || rest.starts_with("///") && !rest.starts_with("////") {
        (TokenKind::Doc, line())
    } else if rest.starts_with("//") {
        (TokenKind::LineComment, line())
    } else if let Some(inside) = rest.strip_prefix("/*") {
        match inside.find("*/") {
            Some(len) => (TokenKind::BlockComment, len + 4),
            None => (TokenKind::OpenComment, rest.len()),
        }
    } else if c.is_ascii_alphanumeric() || c == '_' {
        (TokenKind::Word, until(|c| !c.is_ascii_alphanumeric() && c != '_'))
    } else if let Some(inside) = rest.strip_prefix('"') {
        match inside.find(['"', '\n']) {
            Some(len) if inside[len..].starts_with('"') => (TokenKind::Text, len + 2),
            Some(len) => (TokenKind::Text, trim_line(&rest[..len + 1]).len()),
            None => (TokenKind::Text, trim_line(rest).len()),
        }
    } else {
        let long = LONG_SIGNS.iter().find(|s| rest.starts_with(**s));
        (TokenKind::Sign, long.map_or(c.len_utf8(), |s| s.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        lex(text).iter().map(|t| t.text(text)).collect()
    }

    #[test]
    fn signs_are_as_long_as_they_can_be() {
        assert_eq!(
            words("a..+b..c->d<<=e"),
            ["a", "..+", "b", "..", "c", "->", "d", "<<", "=", "e"]
        );
        assert_eq!(words("é§"), ["é", "§"]);
    }

    #[test]
    fn comments_and_texts_end_where_the_grammar_ends_them() {
        assert_eq!(words("a // b \r\n/* c\n */ d"), ["a", "// b", "/* c\n */", "d"]);
        assert_eq!(words("\"a b\" \"c\nd"), ["\"a b\"", "\"c", "d"]);
        assert_eq!(lex("/* a").first().map(|t| t.kind), Some(TokenKind::OpenComment));
        for kept in [
            "// a\u{b}",
            "// \u{c}",
            "// a\u{85} \u{85}",
            "// a\rb",
            "/// \u{2028}",
            "//\u{a0}\u{feff}",
        ] {
            assert_eq!(words(&format!("{kept} \t\r\nb")), [kept, "b"]);
        }
        assert_eq!(words("\"a\u{85} \nb"), ["\"a\u{85}", "b"]);
        assert_eq!(lex("//// a").first().map(|t| t.kind), Some(TokenKind::LineComment));
        assert_eq!(lex("/// a").first().map(|t| t.kind), Some(TokenKind::Doc));
    }
}
