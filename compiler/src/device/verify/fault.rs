//! The fault of device programs that are not those of their plans.

/// A fault of device programs, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProgramFault(pub String);
