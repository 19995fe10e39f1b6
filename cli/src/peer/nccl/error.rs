//! Why NCCL is not measured.

use super::find::VARIABLE;

/// The reason for which NCCL is not measured.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum NcclError {
    /// None of the libraries can be opened, for these reasons.
    #[error("{}; `pip install nvidia-nccl-cu13`, or set {VARIABLE} to the path of libnccl.so.2", .0.join("; "))]
    NotFound(Vec<String>),
    /// It refused a call, in its words.
    #[error("{call}: {text}")]
    Call { call: &'static str, text: String },
    #[error("it has no windows, which came with NCCL 2.27")]
    NoWindows,
    #[error("ncclCommWindowRegister gave no window: it is not possible here")]
    Impossible,
    /// Another rank cannot go on.
    #[error("rank {rank} {what}")]
    Elsewhere { rank: usize, what: &'static str },
    #[error("it has not joined")]
    NotJoined,
    #[error("it has left")]
    Left,
}
