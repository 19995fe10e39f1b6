//! Collective operations between the ranks of a job, played from proved plans.
//!
//! The compiler makes a [`Plan`](roundelay_compiler::plan::Plan) for each rank; a [`Communicator`]
//! plays it together with the other ranks. Ranks are processes that a [`RankLauncher`] starts, or
//! threads of one process; they share memory, and nothing is copied more often than it must be.
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
//! * [`MessageBatch`]: messages between single ranks, at once. [`TaggedMessages`]: with tags, in any order.
//! * [`Window`]: memory that the other ranks put to and get from, and signals; [`AnyWindow`] where the type of its
//!   elements is not known before.
//! * [`Endpoint`]: memory that single peers write and read, without a communicator ([`EndpointLink`], [`RegisteredRegion`],
//!   [`RemoteRegion`]).
//! * [`BuilderBuffer`]: memory that the other ranks read in place. [`ElementMemory`]: all memory that calls take.
//! * [`RankLauncher`]: ranks as processes.
//! * [`DType`], [`RedOp`]: types and operators.
//! * [`cuda`]: the same on GPUs.
//! * [`Error`]: what can go wrong, with stable codes.

pub mod bootstrap;
mod collectives;
mod comm;
#[doc(hidden)]
pub mod internal;
pub mod lang;
mod prototype;
mod remote;
mod tunables;

pub use bootstrap::{JobOutcome, JobSetup, ProcessEnding, RankHandles, RankLauncher};
pub use comm::{
    AbortHandle, AnyElement, AnyMapped, AnyWindow, CallOptions, Communicator, ElementMemory,
    HeldResources, Host, MemoryEngine, MemoryMut, MessageBatch, PendingMessage, RemoteMapping,
    TaggedMessages, TypedMemory, Window, WithOptions, Work, WorkStatus,
};
pub use prototype::{Prototype, RunnableAlgorithm};
pub use remote::{Endpoint, EndpointLink, RegisteredRegion, RemoteRegion};
pub use roundelay_engine::bind::CallStats;
pub use roundelay_engine::choose::{
    AlgorithmChoice, ChoiceRequest, ChoiceResolver, DecidedBy, MachineDescription,
};
pub use roundelay_engine::custom::{Algorithm, plan_of};
pub use roundelay_engine::hints::{HintError, Hints};
pub use roundelay_engine::messages::{DeliveredMessage, ReceiveSource};
pub use roundelay_engine::window::{PartAttributes, WindowAccess, WindowRights};
pub use roundelay_engine::{CallArgs, PlanCall, Reduction};
// No item may have the name of one of these: without the feature, it would hide rustc's note that names it.
#[cfg(feature = "macros")]
pub use roundelay_macros::{algo_file, algorithm, algorithm_fn};
pub use roundelay_net::dtype::{DType, Element, MemoryBool, RedOp, UnknownName};
pub use roundelay_net::error::{
    AccessRefusal, CompileDiagnostics, Error, ErrorLocation, ErrorSource,
};
pub use roundelay_net::error_kind::{ErrorKind, ErrorParts};
pub use roundelay_net::memory::Buffer;
pub use roundelay_net::ports::PortRange;
pub use roundelay_net::route::RankRoute;
pub use roundelay_net::transport::shm::SegmentLayout;
pub use roundelay_net::transport::{Transport, TransportSet, TransportUnavailable};
#[doc(hidden)]
pub use roundelay_net::{limits, variables};

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
    pub use roundelay_cuda::{
        BlockLayout, CountedShape, Cuda, CudaBuffer, CudaDevice, CudaGraph, CudaKernel, CudaLaunch,
        CudaMachine, CudaOptions, CudaSlice, CudaStream, CudaWindow, CudaWork, DeviceFunction,
        DeviceProtocol, DevicePtr, DriverError, GpuDirect, KernelArg, KernelGrid, NvrtcCompiler,
        NvrtcError, probe,
    };
}

/// Topology files: the paths between hosts, what they are on each host, and what they can do.
pub mod fabric {
    pub use roundelay_net::fabric::{
        FabricDevice, FabricError, FabricHost, FabricTopology, HostPair, LinkClass, NetworkPath,
        RDMA, TCP, VERSION,
    };
}

/// Hints: what users wish of collectives, as pairs of strings, checked at once. `docs/hints.md` has all of them.
pub mod hints {
    pub use roundelay_engine::hints::{
        ChoiceObjective, HintError, HintKey, HintLevel, Hints, LossyType, MergedHints, OnFailure,
        TABLE, VARIABLE,
    };
}

/// Calls as data: what bindings, and programs that choose at run time, give to
/// [`Communicator::perform`]. [`Operation::check`](operation::Operation::check) compares the arguments of a call as the
/// typed methods do.
pub mod operation {
    pub use roundelay_engine::{
        ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BARRIER, BROADCAST, CallBuffer, CallForm, CallMessage,
        CallOperand, Collective, GATHER, InputBuffer, MemoryKind, MessageEnd, Operation,
        OperationShape, OutputBuffer, REDUCE, REDUCE_SCATTER, SCATTER, SERVED, served,
    };
}

/// Records of what ranks did, and what they wait for.
pub mod trace {
    pub use roundelay_engine::trace::{
        AwaitedEvent, CauseClass, DumpEntry, EVENTS, FlightDump, LiveRanks, MessageFlow,
        ProcessEnding, RankCondition, RankStanding, RankTrace, SPANS, SeenCall, SpanKind,
        TraceSpan, TraceVerdict, WaitDescription, deadlock, delays, diagnose, live, merge, write,
    };
}

/// Names to which the macros expand; not for use elsewhere.
#[doc(hidden)]
pub mod __private {
    pub use crate::prototype::ResolvedOnce;
    #[cfg(feature = "macros")]
    pub use roundelay_macros::with;
}
