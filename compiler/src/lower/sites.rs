//! The source lines of a plan.

use std::collections::BTreeMap;

use roundelay_dsl::span::{SourceMap, Span};

use crate::num::count;
use crate::plan::SourceLine;

/// Source lines by span; every rank numbers them alike.
pub(crate) struct SourceSites<'a> {
    sources: Option<&'a SourceMap>,
    by_span: BTreeMap<Span, u32>,
    list: Vec<SourceLine>,
}

impl<'a> SourceSites<'a> {
    pub(crate) fn new(sources: &'a SourceMap) -> Self {
        SourceSites { sources: Some(sources), by_span: BTreeMap::new(), list: Vec::new() }
    }

    /// Creates sites that number lines and keep no text of them.
    pub(crate) fn without_texts() -> Self {
        SourceSites { sources: None, by_span: BTreeMap::new(), list: Vec::new() }
    }

    pub(crate) fn into_list(self) -> Vec<SourceLine> {
        self.list
    }

    pub(crate) fn of(&mut self, span: Span) -> u32 {
        if let Some(&i) = self.by_span.get(&span) {
            return i;
        }
        self.list.push(match self.sources {
            Some(sources) => {
                let (line, column) = sources.line_column(span);
                let words: Vec<&str> = sources.snippet(span).split_whitespace().collect();
                let file = sources.get(span.source).name.clone();
                SourceLine { file, line, column, text: words.join(" ") }
            }
            None => SourceLine { file: String::new(), line: 0, column: 0, text: String::new() },
        });
        let i = count(self.list.len()) - 1;
        self.by_span.insert(span, i);
        i
    }
}
