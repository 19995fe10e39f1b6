//! The outcome of an attempt to prove by symmetry, and the reasons for which it fails.

use roundelay_dsl::diag::Diagnostics;

use crate::plan::{BufferPlacement, UnprovedPlan};
use crate::verify::ProofFacts;
use crate::walk::RankProjection;

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SymmetryAttempt {
    /// It is proved.
    Proved {
        /// The findings of the proof.
        facts: ProofFacts,
        /// `shift`, `shifts` or `xor`, or what is shifted.
        group: &'static str,
        /// Number of ranks that stand for all.
        orbits: u32,
    },
    /// No symmetry was found; why not.
    Unknown(String),
}

/// The reason for which a program does not map onto itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AsymmetryReason {
    #[error("its axes move the chunks in ways that depend on their order")]
    Axes,
    #[error("the chunks cannot be dealt to the ranks")]
    Undealt,
    #[error("asks different things of different ranks")]
    Asked,
    #[error("it cannot be evaluated")]
    Unevaluated,
    #[error("round {0} {1}")]
    Round(u32, UnlikeReason),
}

/// The reason for which a round is not known to map onto itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnlikeReason {
    #[error("does not map onto itself by {0}")]
    Differs(&'static str),
    #[error("has too many transfers to compare one by one")]
    TooMany,
    #[error("has regions of too many pieces to compare")]
    Pieces,
    #[error("cannot be evaluated")]
    Unevaluated,
    #[error("has transfers of one rank that are not found among those of all")]
    Incomplete,
}

/// Lowers one rank for a placement.
pub(crate) type RankLowering<'l> =
    &'l (dyn Fn(&RankProjection, BufferPlacement) -> Result<UnprovedPlan, Diagnostics> + Sync);
