//! Represents diagnostics as data: a stable code, a severity, one terse message, labelled spans, notes and helps.
//!
//! `codes.rs` is the table of all codes, `render.rs` the picture for people, `similar.rs` finds the name
//! that was meant. Everything that finds
//! fault with a user's input, in any package, makes a [`Diagnostic`].

pub mod codes;
pub mod render;
mod similar;

pub use codes::ErrorCode;
pub use similar::{keyword, similar};

use crate::span::Span;

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiagnosticSeverity {
    /// Something worth knowing; does not stop anything.
    Warning,
    /// The input cannot be used.
    Error,
}

/// A span with a remark. The first label of a diagnostic is its primary place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiagnosticLabel {
    /// The place.
    pub span: Span,
    /// The remark about it; may be empty.
    pub text: String,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable code; `docs/errors/<code>.md` explains it.
    pub code: ErrorCode,
    /// Its severity.
    pub severity: DiagnosticSeverity,
    /// One line, without code or place.
    pub message: String,
    /// Places, the primary one first. Empty for findings about no text.
    pub labels: Vec<DiagnosticLabel>,
    /// Facts: the values of the variables, the trace.
    pub notes: Vec<String>,
    /// Suggestions of what to do.
    pub helps: Vec<String>,
    /// True if a size is beyond what can be looked at: a smaller input of the same kind may be right.
    pub beyond_limit: bool,
}

impl Diagnostic {
    /// Makes an error without a place yet.
    pub fn error(code: ErrorCode, message: impl Into<String>) -> Self {
        Diagnostic {
            code,
            severity: DiagnosticSeverity::Error,
            message: message.into(),
            labels: Vec::new(),
            notes: Vec::new(),
            helps: Vec::new(),
            beyond_limit: false,
        }
    }

    /// Makes a warning without a place yet.
    pub fn warning(code: ErrorCode, message: impl Into<String>) -> Self {
        Diagnostic { severity: DiagnosticSeverity::Warning, ..Self::error(code, message) }
    }

    /// Adds a place; the first one added is the primary one.
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(DiagnosticLabel { span, text: text.into() });
        self
    }

    /// Adds a fact.
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Adds a remedy.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.helps.push(text.into());
        self
    }

    /// Marks a finding that is about nothing but a size beyond a limit.
    pub fn beyond_limit(self, beyond: bool) -> Self {
        Diagnostic { beyond_limit: beyond, ..self }
    }

    /// Returns the primary place.
    pub fn span(&self) -> Option<Span> {
        self.labels.first().map(|l| l.span)
    }
}

/// Several findings; an `Err` holds at least one error.
pub type Diagnostics = Vec<Diagnostic>;
