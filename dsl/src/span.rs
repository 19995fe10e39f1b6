//! Defines places in source texts: sources, and byte ranges of them.

use serde::{Deserialize, Serialize};

use crate::lex::trim_line;

/// The mark at the beginning of some files. It has no width, so no column.
const BYTE_ORDER_MARK: char = '\u{FEFF}';

/// Index of a [`SourceText`] in its [`SourceMap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceId(pub u32);

/// A byte range `start..end` of one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The text that the range is of.
    pub source: SourceId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// Makes the range `start..end` of `source`.
    pub fn new(source: SourceId, start: usize, end: usize) -> Self {
        Span { source, start: start as u32, end: end as u32 }
    }

    /// Returns the smallest range that holds both (of one source).
    pub fn to(self, other: Span) -> Span {
        Span {
            source: self.source,
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }
}

/// One text: a file, or a piece of a Rust source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceText {
    /// Path or name, as messages show it.
    pub name: String,
    /// The text.
    pub text: String,
    /// Number of its first line, 1 for a whole file.
    pub line: u32,
}

/// All texts of one compilation; spans point into it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceMap {
    sources: Vec<SourceText>,
}

impl SourceMap {
    /// Makes an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text and returns its id.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> SourceId {
        self.add_piece(name, text, 1)
    }

    /// Adds a piece of a file that begins at column 1 of this line, and returns its id.
    pub fn add_piece(
        &mut self,
        name: impl Into<String>,
        text: impl Into<String>,
        line: u32,
    ) -> SourceId {
        self.sources.push(SourceText { name: name.into(), text: text.into(), line });
        SourceId(self.sources.len() as u32 - 1)
    }

    /// Returns true if no text was added.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns the texts, by their ids.
    pub fn iter(&self) -> impl Iterator<Item = &SourceText> {
        self.sources.iter()
    }

    /// Returns the text with this id.
    pub fn get(&self, id: SourceId) -> &SourceText {
        &self.sources[id.0 as usize]
    }

    /// Returns the id of the text of this name, if it was added.
    pub fn find(&self, name: &str) -> Option<SourceId> {
        self.sources.iter().position(|s| s.name == name).map(|i| SourceId(i as u32))
    }

    /// Returns the one-based line and column (in characters that have a width) of a span's start.
    pub fn line_column(&self, span: Span) -> (u32, u32) {
        let SourceText { text, line, .. } = self.get(span.source);
        let at = (span.start as usize).min(text.len());
        let before = &text.as_bytes()[..at];
        let line = line + before.iter().filter(|&&b| b == b'\n').count() as u32;
        let from = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        let line_start = String::from_utf8_lossy(&before[from..]);
        let column = line_start.chars().filter(|&c| c != BYTE_ORDER_MARK).count() as u32 + 1;
        (line, column)
    }

    /// Returns the span from a line and column, as [`SourceMap::line_column`] counts them, to the end of the line.
    pub fn rest_of_line(&self, name: &str, line: u32, column: u32) -> Option<Span> {
        for (i, source) in self.sources.iter().enumerate().filter(|(_, s)| s.name == name) {
            let Some(below) = line.checked_sub(source.line) else { continue };
            let Some(text) = source.text.split_inclusive('\n').nth(below as usize) else {
                continue;
            };
            let before = source.text.split_inclusive('\n').take(below as usize);
            let at: usize = before.map(str::len).sum();
            let skip = column.saturating_sub(1) as usize;
            let mut columns = text.char_indices().filter(|&(_, c)| c != BYTE_ORDER_MARK);
            let from = columns.nth(skip).map_or(text.len(), |(i, _)| i);
            let to = trim_line(text).len().max(from);
            return Some(Span::new(SourceId(i as u32), at + from, at + to));
        }
        None
    }

    /// Returns the whole line on which a span starts, without its ending.
    pub fn line_text(&self, span: Span) -> &str {
        let text = &self.get(span.source).text;
        let at = (span.start as usize).min(text.len());
        let from = text.as_bytes()[..at].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        let to =
            text.as_bytes()[at..].iter().position(|&b| b == b'\n').map_or(text.len(), |i| at + i);
        trim_line(text.get(from..to).unwrap_or(""))
    }

    /// Returns the text of a span.
    pub fn snippet(&self, span: Span) -> &str {
        self.get(span.source).text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_has_the_lines_of_its_file() {
        let mut sources = SourceMap::new();
        let first = sources.add_piece("a.rs", "  let é = 1;\n  two\n", 10);
        let second = sources.add_piece("a.rs", "three", 40);
        let at = Span::new(first, 16, 19);
        assert_eq!(sources.snippet(at), "two");
        assert_eq!(sources.line_column(at), (11, 3));
        assert_eq!(sources.line_text(at), "  two");
        assert_eq!(sources.rest_of_line("a.rs", 11, 3), Some(at));
        assert_eq!(sources.rest_of_line("a.rs", 40, 1), Some(Span::new(second, 0, 5)));
        for (name, line, column) in [("a.rs", 9, 1), ("a.rs", 13, 1), ("b.rs", 10, 1)] {
            assert_eq!(sources.rest_of_line(name, line, column), None);
        }
        assert_eq!(sources.rest_of_line("a.rs", 40, 99).map(|s| s.start), Some(5));
    }

    /// Only a line feed ends a line, as in the grammar; blanks at its end are none of it.
    #[test]
    fn lines_end_where_the_grammar_ends_them() {
        let mut sources = SourceMap::new();
        let text = "// a\u{85}\rb\u{2028}\u{b}\r\n\tx \t\r\n";
        let id = sources.add("a", text);
        let x = text.find('x').unwrap();
        let at = Span::new(id, x, x + 1);
        assert_eq!((sources.line_column(at), sources.line_text(at)), ((2, 2), "\tx"));
        assert_eq!(sources.rest_of_line("a", 2, 2), Some(at));
        let marked = sources.add("marked", "\u{feff}fn f");
        let name = Span::new(marked, 6, 7);
        assert_eq!((sources.line_column(name), sources.snippet(name)), ((1, 4), "f"));
        assert_eq!(sources.rest_of_line("marked", 1, 4), Some(name));
        let first = Span::new(id, 0, 1);
        assert_eq!(sources.line_text(first), "// a\u{85}\rb\u{2028}\u{b}");
        assert_eq!(sources.rest_of_line("a", 1, 1).map(|s| s.end as usize), text.find("\r\n"));
    }
}
