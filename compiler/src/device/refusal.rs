//! The refusal of plans that a device cannot execute.

/// The reason for which a device cannot execute a plan, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoweringRefusal(pub String);
