//! The source lines of a plan.

use std::collections::BTreeMap;

use roundelay_dsl::span::{SourceMap, Span};

use crate::num::count;
use crate::plan::SourceLine;

/// Source lines by span; every rank numbers them alike.
pub(crate) struct SourceSites<'a> {
    sources: &'a SourceMap,
    by_span: BTreeMap<Span, u32>,
    list: Vec<SourceLine>,
}

impl<'a> SourceSites<'a> {
    pub(crate) fn new(sources: &'a SourceMap) -> Self {
        SourceSites { sources, by_span: BTreeMap::new(), list: Vec::new() }
    }

    pub(crate) fn into_list(self) -> Vec<SourceLine> {
        self.list
    }

    pub(crate) fn of(&mut self, span: Span) -> u32 {
        if let Some(&i) = self.by_span.get(&span) {
            return i;
        }
        let (line, column) = self.sources.line_column(span);
        self.list.push(SourceLine {
            file: self.sources.get(span.source).name.clone(),
            line,
            column,
            text: self.sources.snippet(span).split_whitespace().collect::<Vec<_>>().join(" "),
        });
        let i = count(self.list.len()) - 1;
        self.by_span.insert(span, i);
        i
    }
}
