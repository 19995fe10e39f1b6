//! The candidates that were not chosen, and why.

use std::fmt;

use super::order::OrderRefusal;
use roundelay_dsl::diag::ErrorCode;

/// The factor within which measured times are alike, and those that are predicted for crowded cores.
pub(super) const ALIKE: f64 = 1.03;

/// A candidate that was not chosen.
#[derive(Debug, Clone)]
pub struct RejectedCandidate {
    /// The algorithm.
    pub name: &'static str,
    /// Microseconds by the cost model, if it could run.
    pub predicted_us: Option<f64>,
    /// Microseconds by the tuned table.
    pub measured_us: Option<f64>,
    /// The reason for which it lost.
    pub why: RejectionReason,
}

/// The reason for which a candidate lost.
#[derive(Debug, Clone, PartialEq)]
pub enum RejectionReason {
    /// It cannot run here: a code, and the clause that is violated.
    Refused(ErrorCode, String),
    /// It rounds what it sends, and that is not allowed.
    Lossy(String),
    /// The hint `deterministic` does not allow the order in which it combines the ranks.
    Unordered(OrderRefusal),
    /// It takes this many times as long, by the cost model.
    Predicted(f64),
    /// It takes this many times as long, as measured.
    Measured(f64),
    /// It was not measured at this size, and others were.
    Unmeasured,
    /// The rule of this size names another.
    Rule,
    /// A hint names another.
    Overruled,
}

impl fmt::Display for RejectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slower = |f: &mut fmt::Formatter<'_>, how: &str, times: f64| match times {
            times if times < 1.005 => write!(f, "{how} no faster"),
            times if times < 2.0 => write!(f, "{how} {:.0}% slower", (times - 1.0) * 100.0),
            times => write!(f, "{how} {times:.1} times as long"),
        };
        match self {
            RejectionReason::Refused(_, text) | RejectionReason::Lossy(text) => f.write_str(text),
            RejectionReason::Unordered(refusal) => refusal.fmt(f),
            RejectionReason::Predicted(times) if *times < 1.0 => f.write_str("predicted alike"),
            RejectionReason::Predicted(times) => slower(f, "predicted", *times),
            RejectionReason::Measured(times) if *times <= ALIKE => f.write_str("measured alike"),
            RejectionReason::Measured(times) => slower(f, "measured", *times),
            RejectionReason::Unmeasured => f.write_str("not measured at this size"),
            RejectionReason::Rule => f.write_str("the rule of this size names another"),
            RejectionReason::Overruled => f.write_str("a hint names another"),
        }
    }
}
