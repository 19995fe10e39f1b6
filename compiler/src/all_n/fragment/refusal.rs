//! The reasons for which a program is outside of the fragment.

use roundelay_dsl::span::Span;

use crate::all_n::TermOverflow;

/// A part of a program that proofs for every rank count do not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FragmentRefusal {
    /// The part of the text, where one is to blame.
    pub(crate) span: Option<Span>,
    /// The reason, without a full stop.
    pub(crate) reason: String,
}

impl FragmentRefusal {
    /// Creates the refusal of a part of the text.
    pub(in crate::all_n) fn at(span: Span, reason: impl Into<String>) -> Self {
        FragmentRefusal { span: Some(span), reason: reason.into() }
    }

    /// Creates a refusal without a place.
    pub(in crate::all_n) fn new(reason: impl Into<String>) -> Self {
        FragmentRefusal { span: None, reason: reason.into() }
    }
}

impl From<TermOverflow> for FragmentRefusal {
    fn from(overflow: TermOverflow) -> Self {
        FragmentRefusal::new(overflow.to_string())
    }
}

/// A result, or why there is none.
pub(in crate::all_n) type FragmentResult<T> = Result<T, FragmentRefusal>;
