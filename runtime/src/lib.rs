//! Collective operations between the ranks of a job, executed by proved plans.
//!
//! The compiler makes a [`Plan`](roundelay_compiler::plan::Plan) for each rank; a [`Communicator`]
//! executes it together with the other ranks. Ranks are processes that a [`RankLauncher`](launch::RankLauncher) starts,
//! or threads of one process; they share memory, and nothing is copied more often than it must be.
//!
//! ```
//! # fn main() -> Result<(), roundelay::Error> {
//! // Two ranks, as threads of this process.
//! let ranks = roundelay::Communicator::local(2)?;
//! std::thread::scope(|scope| {
//!     for mut comm in ranks {
//!         scope.spawn(move || {
//!             let mut buffer = comm.alloc::<f32>(1000)?;
//!             buffer.fill(comm.rank() as f32 + 1.0);
//!             comm.all_reduce(&mut buffer, roundelay::RedOp::Sum)?;
//!             assert!(buffer.iter().all(|&x| x == 3.0));
//!             Ok::<(), roundelay::Error>(())
//!         });
//!     }
//! });
//! # Ok(())
//! # }
//! ```
//!
//! * [`Communicator`]: calls, buffers, deadlines. [`Work`]: calls in the background.
//! * [`Algorithm`]: an algorithm of one's own. [`Prototype`]: one that was written as a Rust function.
//! * [`message`]: messages between single ranks, at once or with tags.
//! * [`window`]: memory that the other ranks put to and get from, and signals.
//! * [`endpoint`]: the same between two processes, without a communicator.
//! * [`Buffer`]: memory that the other ranks read in place. [`memory`]: all memory that calls take.
//! * [`launch`]: ranks as processes, and how they find each other.
//! * [`DType`], [`RedOp`]: types and operators.
//! * [`operation`], [`plan`]: calls as data, and plans.
//! * [`cuda`]: the same on GPUs.
//! * [`Error`]: what can go wrong, with stable codes.

mod collectives;
mod comm;
#[doc(hidden)]
pub mod internal;
pub mod lang;
pub mod launch;
mod prototype;
mod remote;
mod tunables;

pub use comm::{
    AbortHandle, CallOptions, Communicator, HeldResources, MemoryStats, WithOptions, Work,
    WorkStatus,
};
pub use prototype::{Prototype, RunnableAlgorithm};
pub use roundelay_engine::custom::Algorithm;
pub use roundelay_engine::hints::{HintError, Hints};
pub use roundelay_engine::{Reduction, SuspendDepth};
// No item may have the name of one of these: without the feature, it would hide rustc's note that names it.
#[cfg(feature = "macros")]
pub use roundelay_macros::{algo_file, algorithm, algorithm_fn};
#[doc(hidden)]
pub use roundelay_net::limits;
pub use roundelay_net::memory::Buffer;
pub use roundelay_support::dtype::{DType, Element, RedOp, UnknownName};
pub use roundelay_support::error::Error;
pub use roundelay_support::error_kind::ErrorKind;
#[doc(hidden)]
pub use roundelay_support::variables;

/// Algorithms that Rust code builds at run time, for one number of ranks: searched, measured, computed.
pub mod build {
    pub use roundelay_engine::build::{
        AlgorithmBuilder, BuilderBuffer, BuilderRegion, BuilderRound, RoundHop, RoundTransfer,
        data, input, output,
    };
}

/// The choice of the algorithm where a collective was called by its name.
pub mod choose {
    pub use roundelay_engine::choose::{
        AlgorithmChoice, CallDivision, ChoiceRequest, ChoiceResolver, DecidedBy, HowError,
        MachineDescription, NVLINK, PathPart, ProtocolChoice, RejectedCandidate, RejectionReason,
        TableFault, Times, TunedError, TunedSetting, TunedTable, VARIABLE, like_this_host, setting,
    };
}

/// Buffers and streams on NVIDIA GPUs. `docs/cuda.md` is the user's view.
///
/// ```no_run
/// # fn main() -> Result<(), roundelay::Error> {
/// # let mut comm = roundelay::Communicator::local(1)?.remove(0);
/// use roundelay::RedOp;
/// use roundelay::cuda::CudaOptions;
///
/// let mut comm = comm.cuda(CudaOptions::default())?;
/// let mut buffer = comm.alloc_device::<f32>(1 << 20)?;
/// buffer.copy_from(&vec![1.0; 1 << 20])?;
/// comm.all_reduce(&mut buffer, RedOp::Sum)?;
/// comm.synchronize(&comm.stream()?)?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "cuda")]
pub mod cuda {
    pub use crate::comm::DeviceWindow;
    pub use roundelay_cuda::{
        BlockLayout, CountedShape, Cuda, CudaBuffer, CudaDevice, CudaGraph, CudaKernel, CudaLaunch,
        CudaMachine, CudaOptions, CudaSlice, CudaStream, CudaWork, DeviceFunction, DeviceProtocol,
        DevicePtr, DriverError, GpuDirect, KernelArg, KernelGrid, NvrtcCompiler, NvrtcError,
        allocate_bytes, free_bytes, probe,
    };
}

/// Memory that single peers put to and get from, without a communicator. `docs/transport.md` is the user's view.
pub mod endpoint {
    pub use crate::remote::{Endpoint, EndpointLink, RegisteredRegion, RemoteRegion};
}

/// The parts of errors.
pub mod error {
    pub use roundelay_support::error::{
        AccessRefusal, CompileDiagnostics, ErrorLocation, ErrorSource,
    };
    pub use roundelay_support::error_kind::ErrorParts;
}

/// Topology files: the paths between hosts, what they are on each host, and what they can do.
pub mod fabric {
    pub use roundelay_support::fabric::{
        FabricDevice, FabricError, FabricHost, FabricTopology, HostPair, LinkClass, NetworkPath,
        RDMA, TCP, VERSION,
    };
}

/// Hints: what users wish of collectives, as pairs of strings, checked at once. `docs/hints.md` has all of them.
pub mod hints {
    pub use roundelay_engine::hints::{
        ChoiceObjective, EXPERIMENTAL, HintError, HintKey, HintLevel, Hints, LossyType,
        MergedHints, OnFailure, TABLE, VARIABLE, check_protocol,
    };
}

/// The memory that calls take: slices and buffers of this host, buffers of GPUs, and what has its type at run time
/// only.
pub mod memory {
    pub use crate::comm::{ElementMemory, Host, MemoryEngine, MemoryMut, TypedMemory};
    pub use roundelay_support::dtype::MemoryBool;
}

/// Messages between single ranks: at once in a batch, or with tags in any order.
pub mod message {
    pub use crate::comm::{MessageBatch, PendingMessage, TaggedMessages};
    pub use roundelay_engine::messages::{DeliveredMessage, ReceiveSource};
}

/// Calls as data: what bindings, and programs that choose at run time, give to
/// [`Communicator::perform`]. [`Operation::check`](operation::Operation::check) compares the arguments of a call as the
/// typed methods do.
pub mod operation {
    pub use roundelay_engine::{
        ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BARRIER, BROADCAST, CallBuffer, CallForm, CallMessage,
        CallOperand, Collective, EXSCAN, GATHER, InputBuffer, MemoryKind, MessageEnd, Operation,
        OperationShape, OutputBuffer, REDUCE, REDUCE_SCATTER, SCAN, SCATTER, SERVED, served,
    };
}

/// Plans, and single calls of them.
pub mod plan {
    pub use roundelay_engine::bind::CallStats;
    pub use roundelay_engine::custom::plan_of;
    pub use roundelay_engine::{CallArgs, PlanCall};
}

/// Records of what ranks did, and what they wait for.
pub mod trace {
    pub use roundelay_engine::trace::{
        AwaitedEvent, CauseClass, DumpEntry, EVENTS, FlightDump, LiveRanks, MessageFlow,
        ProcessEnding, RankCondition, RankStanding, RankTrace, SPANS, SeenCall, SpanKind,
        TraceSpan, TraceVerdict, WaitDescription, deadlock, delays, diagnose, live, merge, write,
    };
}

/// The ways by which ranks reach each other.
pub mod transport {
    pub use roundelay_net::route::RankRoute;
    pub use roundelay_net::transport::shm::SegmentLayout;
    pub use roundelay_net::transport::{Transport, TransportSet, TransportUnavailable};
}

/// Memory of every rank that the others put to and get from. `docs/windows.md` is the user's view.
pub mod window {
    pub use crate::comm::{AnyElement, AnyMapped, AnyWindow, RemoteMapping, Window};
    pub use roundelay_engine::window::{PartAttributes, WindowAccess, WindowRights};
}

/// Names to which the macros expand; not for use elsewhere.
#[doc(hidden)]
pub mod __private {
    pub use crate::prototype::ResolvedOnce;
    #[cfg(feature = "macros")]
    pub use roundelay_macros::with;
}
