//! Where something stands in a source text.

use serde::{Deserialize, Serialize};

/// Index of a [`Source`] in its [`SourceMap`].
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
    /// The range `start..end` of `source`.
    pub fn new(source: SourceId, start: usize, end: usize) -> Self {
        Span { source, start: start as u32, end: end as u32 }
    }

    /// The smallest range that holds both (of one source).
    pub fn to(self, other: Span) -> Span {
        Span {
            source: self.source,
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }
}

/// One text: a file, or a piece of a Rust source.
#[derive(Debug, Clone)]
pub struct Source {
    /// Path or name, as messages show it.
    pub name: String,
    /// The text.
    pub text: String,
}

/// All texts of one compilation; spans point into it.
#[derive(Debug, Clone, Default)]
pub struct SourceMap {
    sources: Vec<Source>,
}

impl SourceMap {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a text and returns its id.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> SourceId {
        self.sources.push(Source { name: name.into(), text: text.into() });
        SourceId(self.sources.len() as u32 - 1)
    }

    /// The text with this id.
    pub fn get(&self, id: SourceId) -> &Source {
        &self.sources[id.0 as usize]
    }

    /// The id of the text of this name, if it was added.
    pub fn find(&self, name: &str) -> Option<SourceId> {
        self.sources.iter().position(|s| s.name == name).map(|i| SourceId(i as u32))
    }

    /// One-based line and column (in characters) of a span's start.
    pub fn line_column(&self, span: Span) -> (u32, u32) {
        let text = &self.get(span.source).text;
        let at = (span.start as usize).min(text.len());
        let before = &text.as_bytes()[..at];
        let line = before.iter().filter(|&&b| b == b'\n').count() as u32 + 1;
        let from = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        let column = String::from_utf8_lossy(&before[from..]).chars().count() as u32 + 1;
        (line, column)
    }

    /// The whole line on which a span starts, without its ending.
    pub fn line_text(&self, span: Span) -> &str {
        let text = &self.get(span.source).text;
        let at = (span.start as usize).min(text.len());
        let from = text.as_bytes()[..at].iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        let to =
            text.as_bytes()[at..].iter().position(|&b| b == b'\n').map_or(text.len(), |i| at + i);
        text.get(from..to).unwrap_or("").trim_end()
    }

    /// The text of a span.
    pub fn snippet(&self, span: Span) -> &str {
        self.get(span.source).text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
}
