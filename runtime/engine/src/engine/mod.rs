//! The engine of the host, and the state of a rank that all engines share.
//!
//! An engine binds the calls on one kind of memory and executes them; this one has the memory of this host,
//! `roundelay-cuda` that of GPUs. Both take a call as an [`MessageOperation`](crate::operation::MessageOperation).
//! Common to them are plans by name (`plans`, `lookup`), words from rank to rank (`control`), and what is kept for the
//! next calls (`recent`).
//!
//! The state of a rank is a [`EngineCore`]: group, connections, bound plans, recorder. Its owner makes the calls, so
//! there is nothing to lock. In reading order:
//!
//! | file | holds |
//! |---|---|
//! | `core` | [`EngineCore`], and calls of plans |
//! | `operations` | an operation to the plan of its form: in place, out of place, listed, cut |
//! | `plans`, `lookup` | the settings that choose plans, and the plan of a call by name |
//! | `call` | a plan, count, type and buffers, prepared for the executor |
//! | `empty` | calls without elements, which ranks compare all the same |
//! | `batch` | messages between single ranks |
//! | `tolerant` | algorithms that go on without a failed rank |
//! | `share` | division of a call over the paths |
//! | `suspension`, `suspend` | whether the ranks are suspended; memory that goes back to the system until the next call |
//! | `stop` | the end of all of it from another thread |

mod batch;
mod call;
mod control;
mod core;
mod empty;
mod liveness;
mod lookup;
mod operations;
mod plans;
mod recent;
mod record;
mod share;
mod stop;
mod suspend;
mod suspension;
mod tolerant;

pub use self::core::EngineCore;
pub use operations::writes_output;
pub use recent::RecentList;
pub use stop::StopHandle;
pub use suspend::SuspendDepth;
pub use tolerant::wires as tolerant_wires;
