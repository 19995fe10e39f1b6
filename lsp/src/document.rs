//! An open document.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gen_lsp_types::Uri;

use crate::analysis::TextAnalysis;
use crate::position::LineTable;
use crate::proof::ProvedAlgorithm;

/// A text in the editor, with what is known of it.
#[derive(Debug)]
pub(crate) struct OpenDocument {
    pub(crate) uri: Uri,
    pub(crate) name: String,
    pub(crate) version: i32,
    pub(crate) lines: LineTable,
    pub(crate) analysis: Arc<TextAnalysis>,
    /// The analysis of the last text that had a tree: what is completed while a text has none.
    pub(crate) last_tree: Arc<TextAnalysis>,
    /// The findings of proofs, in the order of the algorithms; empty until then.
    pub(crate) proved: Vec<ProvedAlgorithm>,
    /// True once the text is another one: proofs of it need not go on.
    pub(crate) is_stale: Arc<AtomicBool>,
}

impl OpenDocument {
    pub(crate) fn new(uri: Uri, name: String, version: i32, lines: LineTable) -> Self {
        OpenDocument {
            uri,
            name,
            version,
            lines,
            analysis: Arc::default(),
            last_tree: Arc::default(),
            proved: Vec::new(),
            is_stale: Arc::default(),
        }
    }

    /// Takes over an analysis of its text, and forgets all proofs.
    pub(crate) fn analysed(&mut self, analysis: TextAnalysis) {
        self.is_stale.store(true, Ordering::Relaxed);
        self.is_stale = Arc::default();
        self.analysis = Arc::new(analysis);
        if self.analysis.file.is_some() {
            self.last_tree = self.analysis.clone();
        }
        self.proved.clear();
    }
}
