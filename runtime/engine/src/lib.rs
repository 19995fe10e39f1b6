//! Makes calls of plans on host memory: chooses the algorithm, binds its plan, executes it. Engines of other memory
//! (`roundelay-cuda`) share its table of collectives, its choice and its state of a rank.
//!
//! A part of `roundelay`, which re-exports what its users need. There is no promise of stability.
//!
//! | to read | for |
//! |---|---|
//! | [`Operation`], [`CallOperand`], [`Collective`] | calls as data: the record, its operands, the table of collectives |
//! | [`EngineCore`] | the state of a rank, which binds calls and executes them |
//! | [`hints`], [`choose`] | the wishes of a caller, and the one resolver |
//! | [`custom`], [`build`] | algorithms that callers bring: as texts, or made at run time |
//! | [`bind`] | plan, count, type and buffers to addresses: checked once, and kept |
//! | [`executor`] | lanes and folds: the data path, and its watchdog |
//! | [`progress`] | the progress engine: waits, headers of packets, the blame for what is late or lost |
//! | [`messages`] | messages between single ranks, and the progress thread |
//! | [`window`] | words, memory and rights of windows |
//! | [`trace`] | the flight recorder, spans, and the diagnosis of waits |

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is for those who change it, who read it with private items"
)]

pub mod bind;
pub mod build;
pub mod choose;
pub mod custom;
mod engine;
pub mod executor;
pub mod hints;
pub mod messages;
mod operation;
pub mod progress;
pub mod trace;
pub mod tunables;
pub mod window;

pub use engine::{EngineCore, RecentList, StopHandle, SuspendDepth, tolerant_wires, writes_output};
pub use operation::{
    ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BARRIER, BROADCAST, CallArgs, CallBlocks, CallBuffer,
    CallForm, CallMessage, CallOperand, CallerRank, Collective, EXSCAN, GATHER, InputBuffer,
    MemoryKind, MessageEnd, NamedCall, Operation, OperationShape, OutputBuffer, PlanCall, REDUCE,
    REDUCE_SCATTER, Reduction, SCAN, SCATTER, SERVED, check_peers, check_reduction, common_memory,
    served,
};
