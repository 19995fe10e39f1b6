//! Calls as data. An [`Operation`] is the one record of a collective call: every face of the library makes one (the
//! typed methods of `Communicator`, the C functions, Python, NCCL's interface), [`Operation::check`] compares its
//! arguments, and every engine takes it as it is.
//!
//! | file | holds |
//! |---|---|
//! | `buffer` | [`CallBuffer`]: elements at an address, read or written |
//! | `operand` | [`Operand`]: one side of a call: nothing, one buffer, a list, or one buffer of unequal blocks |
//! | `collective` | [`Collective`]: the table of collectives, and which blocks each operand holds |
//! | `reduction` | [`Reduction`]: an operator with its factor |
//! | `record` | [`Operation`], and the [`OperationShape`] that its check finds |
//! | `call` | [`Call`]: a plan's call, after its form is known |
//! | `message` | [`Message`]: one end of a message between two ranks |

mod buffer;
mod call;
mod collective;
mod message;
mod operand;
mod record;
mod reduction;

pub use buffer::{CallBuffer, InputBuffer, MemoryKind, OutputBuffer};
pub use call::{Args, Blocks, Call};
pub use collective::{
    ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BARRIER, BROADCAST, CallerRank, Collective, GATHER, Named,
    REDUCE, REDUCE_SCATTER, SCATTER, SERVED, served,
};
pub use message::{Message, MessageEnd, check_peers};
pub use operand::Operand;
pub use record::{CallForm, Operation, OperationShape, common_memory};
pub use reduction::{Reduction, check_factor};
