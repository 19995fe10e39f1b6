//! The verdicts of `check`.

use roundelay_dsl::diag::{Diagnostic, DiagnosticSeverity, ErrorCode, codes};
use serde::Serialize;

/// The verdict on an algorithm at one shape.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckVerdict {
    /// It does what its collective asks for.
    Proved,
    /// It breaks a rule there, or ends with another result: there is a counter-example.
    Refuted,
    /// The ranks or the root are none that it is meant for.
    NotAllowed,
    /// The text, the algorithm, its messages in flight or its proof are too large: it may be right or wrong.
    Undecided,
    /// The input is no algorithm: a file that cannot be read, a text that breaks the grammar, an unknown name.
    #[default]
    Invalid,
    /// A plan of one rank, which is whole and agrees with itself.
    Consistent,
}

impl CheckVerdict {
    /// Returns the verdict on what some findings are about. One that is certain counts more than one that is not.
    pub(crate) fn of(found: &[Diagnostic]) -> Self {
        let errors = found.iter().filter(|d| d.severity == DiagnosticSeverity::Error);
        let each = errors.map(|d| match d.code {
            _ if d.beyond_limit => Self::Undecided,
            codes::TOO_LARGE | codes::TOO_BIG | codes::SLOTS | codes::FAILURES => Self::Undecided,
            codes::REQUIRES | codes::SHAPE | codes::ROOT => Self::NotAllowed,
            codes::CHUNKS | codes::PATH => Self::Refuted,
            ErrorCode(code) => match code.get(..4) {
                Some("RL03" | "RL04" | "RL05") => Self::Refuted,
                _ => Self::Invalid,
            },
        });
        let order = [Self::Invalid, Self::Refuted, Self::Undecided, Self::NotAllowed];
        let place = |verdict: &Self| order.iter().position(|of| of == verdict);
        each.min_by_key(place).unwrap_or_default()
    }

    /// Returns its name for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Proved => "proved",
            Self::Refuted => "refuted",
            Self::NotAllowed => "not allowed",
            Self::Undecided => "undecided",
            Self::Invalid => "invalid",
            Self::Consistent => "consistent",
        }
    }
}
