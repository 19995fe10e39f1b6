//! The reasons for which a GPU cannot run a call.

use roundelay_compiler::device::{DeviceProtocol, LoweringRefusal};
use roundelay_emit::cuda::UnsupportedKernel;
use roundelay_emit::cuda::batch::{ENDS, MESSAGES};
use thiserror::Error;

use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::{ByteCount, Error};

/// A call that a GPU cannot run, for a reason that all ranks find alike.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum UnsupportedCall {
    #[error("there are no plans")]
    NoPlans,
    #[error("there is no rank {0}")]
    NoRank(u32),
    /// The plans cannot be lowered.
    #[error("{}", .0.0)]
    Program(LoweringRefusal),
    /// There is no kernel for the program.
    #[error(transparent)]
    Kernel(#[from] UnsupportedKernel),
    #[error("kernels do not know {op} of {dtype}")]
    Arithmetic { dtype: DType, op: RedOp },
    #[error(
        "{name} as `{}` needs {} of staging memory for {elements} elements of {dtype} a chunk, and half of it has {}: \
         choose another protocol (`--protocol`, the hint `protocol`), or make smaller calls",
        .protocol.name(), ByteCount(*.wanted), ByteCount(*.has)
    )]
    Staging {
        name: String,
        protocol: DeviceProtocol,
        wanted: u64,
        elements: u64,
        dtype: DType,
        has: u64,
    },
    #[error("{passes} passes of {messages} messages are too many")]
    Passes { passes: u64, messages: u32 },
    #[error(
        "{blocks} blocks with {chunks} chunks of far memory each: kernels with links between hosts have {most} blocks \
         at most, and all blocks share the memory of slots"
    )]
    Far { blocks: u32, most: u32, chunks: u32 },
    #[error("that many elements exceed the address space")]
    TooLong,
    #[error("{0} directions of peers, and {ENDS} are the most on GPUs")]
    Ends(usize),
    #[error("{0} messages, and {MESSAGES} are the most on GPUs")]
    Messages(usize),
    #[error("messages with {ends} peers take {blocks} blocks, and a GPU has {sms} multiprocessors")]
    Blocks { ends: usize, blocks: u32, sms: u32 },
    /// Peers would address memory that they cannot.
    #[error("as `{}`: peers would address the buffers", .0.name())]
    Private(DeviceProtocol),
    /// The reason that a protocol cannot be used.
    #[error("as `{}`: {why}", .protocol.name())]
    As { protocol: DeviceProtocol, why: Box<UnsupportedCall> },
}

impl From<LoweringRefusal> for UnsupportedCall {
    fn from(why: LoweringRefusal) -> Self {
        UnsupportedCall::Program(why)
    }
}

impl From<UnsupportedCall> for Error {
    fn from(why: UnsupportedCall) -> Self {
        Error::Unsupported(why.to_string())
    }
}
