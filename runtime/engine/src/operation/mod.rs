//! Calls as data. An [`Operation`] is the one record of a collective call: every face of the library makes one (the
//! typed methods of `Communicator`, the C functions, Python, NCCL's interface), [`Operation::check`] compares its
//! arguments, and every engine takes it as it is.
//!
//! | file | holds |
//! |---|---|
//! | `buffer` | [`CallBuffer`]: elements at an address, read or written |
//! | `operand` | [`CallOperand`]: one side of a call: nothing, one buffer, a list, or one buffer of unequal blocks |
//! | `collective` | [`Collective`]: the table of collectives, and which blocks each operand holds |
//! | `reduction` | [`Reduction`]: an operator with its factor |
//! | `record` | [`Operation`], and the [`OperationShape`] that its check finds |
//! | `call` | [`PlanCall`]: a plan's call, after its form is known |
//! | `message` | [`CallMessage`]: one end of a message between two ranks |

mod buffer;
mod call;
mod collective;
mod message;
mod operand;
mod record;
mod reduction;

pub use buffer::{CallBuffer, InputBuffer, MemoryKind, OutputBuffer};
pub use call::{CallArgs, CallBlocks, PlanCall};
pub use collective::{
    ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BARRIER, BROADCAST, CallerRank, Collective, EXSCAN, GATHER,
    NamedCall, REDUCE, REDUCE_SCATTER, SCAN, SCATTER, SERVED, served,
};
pub use message::{CallMessage, MessageEnd, check_peers};
pub use operand::CallOperand;
pub use record::{CallForm, Operation, OperationShape, common_memory};
pub use reduction::{Reduction, check_reduction};
