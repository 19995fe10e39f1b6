//! The algorithm that is chosen.

use std::fmt;

use roundelay_algorithms::CatalogueEntry;
use roundelay_compiler::Shape;

use super::division::CallDivision;
use super::how::ProtocolChoice;
use super::lost::RejectedCandidate;
use crate::hints::HintLevel;

/// The algorithm to run, and the reasons for it.
#[derive(Debug, Clone)]
pub struct AlgorithmChoice {
    /// The algorithm of the library.
    pub entry: &'static CatalogueEntry,
    /// The name of the algorithm that is installed for the collective, and runs in place of the library's. All
    /// other fields are about the library's.
    pub installed: Option<String>,
    /// The shape on which it runs.
    pub shape: Shape,
    /// The source that decided.
    pub source: DecidedBy,
    /// Microseconds by the cost model.
    pub predicted_us: f64,
    /// Microseconds by the tuned table.
    pub measured_us: Option<f64>,
    /// The setting with which GPUs took that time.
    pub how: Option<ProtocolChoice>,
    /// The division over the paths, if the call is split by bandwidth.
    pub division: Option<CallDivision>,
    /// The other candidates: those that could run first, fastest first.
    pub lost: Vec<RejectedCandidate>,
    /// Other remarks: a table that does not apply.
    pub remarks: Vec<String>,
}

impl AlgorithmChoice {
    /// Returns the name of the algorithm that runs.
    pub fn name(&self) -> &str {
        self.installed.as_deref().unwrap_or(self.entry.name)
    }

    /// Makes it the choice of an algorithm that is installed.
    pub(crate) fn install(&mut self, name: &str) {
        self.installed = Some(name.to_owned());
        self.source = DecidedBy::Installation;
    }
}

/// The source that decided a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecidedBy {
    /// The hint `key` of a level.
    Hint(HintLevel, &'static str),
    /// An algorithm was installed for all calls of the collective.
    Installation,
    /// Measurements.
    Tuned,
    /// A prediction.
    CostModel,
    /// The rule of its size for GPUs.
    Rule,
    /// Nothing decided: all are alike.
    Default,
}

impl fmt::Display for DecidedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecidedBy::Hint(level, key) => write!(f, "{level} ({key})"),
            DecidedBy::Installation => f.write_str("its installation"),
            DecidedBy::Tuned => f.write_str("tuned table"),
            DecidedBy::CostModel => f.write_str("cost model"),
            DecidedBy::Rule => f.write_str("rule of this size for GPUs"),
            DecidedBy::Default => f.write_str("default"),
        }
    }
}
