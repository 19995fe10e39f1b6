//! The communicator: a rank's handle on the others, and the calls it makes together with them.
//!
//! [`Communicator`] is what callers hold. The state behind it, [`Core`](roundelay_engine::EngineCore), is in one of two
//! places: at home in the communicator, and a call is then made on the caller's thread, without a
//! lock; or with the progress thread, which performs asynchronous work in the order in which
//! it was started. A call on the caller's thread while work is pending waits until the core is home
//! again, so that calls happen in issue order whichever way they are made.
//!
//! | file | holds |
//! |---|---|
//! | `communicator` | [`Communicator`], its state, and calls of plans |
//! | `memory`, `typed` | the memory that calls take, and the engine it belongs to |
//! | `perform`, `block_count` | calls as data; `crate::collectives` has the methods by name |
//! | `p2p`, `messages` | messages between single ranks, without and with tags |
//! | `start`, `work`, `worker` | work in the background: its start, the handle on it, the progress thread |
//! | `settings`, `with` | what a caller may ask of single calls |
//! | `install` | what decides the algorithm |
//! | `split`, `generation` | communicators of a part of the ranks; what stays when the ranks change |
//! | `window` | memory that other ranks put to and get from |
//! | `device…`, `mixed` | calls on memory of GPUs, by kernels or by the host |
//! | `abort`, `resources`, `record` | the end of all calls from another thread, what a communicator takes, what it did |
//! | `suspend` | memory that goes back to the system until it is used again |

mod abort;
mod block_count;
mod communicator;
#[cfg(feature = "cuda")]
mod counted;
#[cfg(feature = "cuda")]
mod device;
#[cfg(feature = "cuda")]
mod device_calls;
#[cfg(feature = "cuda")]
mod device_open;
#[cfg(feature = "cuda")]
mod device_suspend;
#[cfg(feature = "cuda")]
mod device_window;
mod generation;
mod install;
#[cfg(test)]
mod interrupt_tests;
mod memory;
mod messages;
#[cfg(feature = "cuda")]
mod mixed;
mod p2p;
mod perform;
mod record;
mod resources;
mod settings;
mod split;
mod start;
mod suspend;
mod typed;
mod window;
mod with;
mod work;
mod worker;

pub use abort::AbortHandle;
pub use communicator::Communicator;
#[cfg(feature = "cuda")]
pub use device_window::DeviceWindow;
pub use memory::{ElementMemory, Host, MemoryEngine, MemoryMut};
pub use messages::{PendingMessage, TaggedMessages};
pub use p2p::MessageBatch;
pub use resources::{HeldResources, MemoryStats};
pub use settings::CallOptions;
pub use typed::{AnyElement, TypedMemory};
pub use window::{AnyMapped, AnyWindow, RemoteMapping, Window};
pub(crate) use window::{KeptOwner, ended, gather, pieces, typed};
pub use with::WithOptions;
pub(crate) use work::promised;
pub use work::{Work, WorkStatus};
