//! Plans: what one rank executes. A plan is data, serialisable; of a [`Plan`] everything was proved or checked.
//!
//! A rank runs its lanes side by side, the operations of a lane in order. An operation folds its
//! inputs, element by element and in the order listed, and hands the result to a store in local
//! memory, to outgoing messages, or both. One form serves send (a local input, an out), receive (a
//! message input, a store), receive-reduce (two inputs), receive-reduce-send, local copies, and the
//! reduction of many messages at once.
//!
//! **Messages** travel on connections: ordered pairs of ranks, one for each channel, first in first
//! out, with `slots` messages in flight. The i-th message sent on a connection is the i-th received
//! on it. A message's content is its chunks' elements in set order, without gaps. Where both sides
//! name a `pull` region, the sender may offer its own memory in place of a copy, for each message as
//! it sees fit at run time; the message then carries the address, and the sender must not overwrite
//! the region before the message was consumed: operations that would say so in `drained`.
//!
//! **Sizes.** The whole vector has N elements (`blocks * count`); chunk c of C is the elements
//! `[c*N/C, (c+1)*N/C)`, rounded down. `Data`, `OperationInput` and `Output` are addressed so. In a scratch
//! buffer chunk c begins at `c * ceil(N/C)`. `PlanOperation::sizes` says how many elements each chunk of an
//! operation has, the same for all its inputs, its store and its outs.
//!
//! **Passes.** Where a message would not fit a slot, or to pipeline, a plan is executed T times, each
//! pass t on its own part of every chunk: elements `[L*t/T, L*(t+1)/T)` with `L = ceil(N/C)`, as far as
//! the chunk has them. So a pass begins at the same element of a short chunk and of the scratch chunk
//! that it is kept in. Lanes run through their passes without waiting for each other beyond `after`.
//! `drained` and `after` refer to operations and messages of the same pass.
//!
//! **Shares.** Where a program splits the vector by bandwidth, [`PlanHeader::split`] says how: each of `units`
//! equal ranges of the vector has `parts` parts, whose lengths are not part of the plan. [`PathShares`] give
//! them when the plan is bound: part p of a range of L elements is `[L*B(p), L*B(p+1))` of it, rounded
//! down, and the chunks of a part divide that evenly. L, and with it N/C, is then a matter of the part:
//! a pass cuts each part's chunks by the longest of that part, and lanes of different parts may have
//! different numbers of passes. Lanes of a part without elements are not run at all.

mod check;
mod contract;
mod encode;
mod print;
mod shares;
mod travel;

pub use check::InconsistentPlan;
pub use contract::{
    BufferPlacement, ChunkSizes, ConnectionEnd, CopyPolicy, MAX_CHUNKS, MAX_PATHS, MAX_PLACES,
    MAX_SLOTS, MessageDirection, MessageRef, OpRef, OperationInput, OperationOutput,
    OperationStore, Plan, PlanBuffer, PlanHeader, PlanLane, PlanOperation, PlanRegion, RankPlan,
    RegionPiece, SourceLine, UnprovedPlan, WireType,
};
pub use encode::{DecodeError, VERSION};
pub use shares::{PartLoad, PathShares, WHOLE, WeightedSplit};
pub use travel::{CACHED_VECTOR, INPUT_BYTES, KEPT_BYTES, KEPT_VECTOR, LEAST_PIECE};
