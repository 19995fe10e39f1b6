//! Messages with tags between single ranks, in any order, beside the collectives; and operations on windows that are
//! served through the same connections.
//!
//! A message goes to the receive with its tag and its sender, or with any sender, whichever of the two came first.
//! Messages have a channel of their own, independent of calls and plans.
//!
//! | file | holds |
//! |---|---|
//! | `messenger.rs` | [`RankMessenger`]: starts operations, from any thread |
//! | `waiting.rs` | waits for operations, which drive progress; the end of a rank |
//! | `progress_thread.rs` | the thread that drives progress while no other one does |
//! | `operation.rs`, `transfer.rs` | an operation as its waiters see it, and its memory in flight |
//! | `matching.rs` | messages and receives by tag and sender |
//! | `packet.rs` | the protocol |
//! | `engine.rs` | the state of a rank: connections, queues, pending operations |
//! | `progress.rs` | one round over all connections |
//! | `link.rs` | the state of one connection, and its flow control |
//! | `link_send.rs`, `outgoing.rs` | the send path: queues, packets and their payloads |
//! | `link_receive.rs`, `payload.rs` | the receive path |
//! | `device.rs` | puts and gets by devices |
//! | `window_server.rs` | operations of peers on this rank's parts of windows |
//! | `failure_detection.rs` | lost peers and timeouts |
//! | `suspend.rs` | connections that go while the ranks are suspended |
//! | `wire.rs`, `forge.rs` | samples of packets, and forged ones, for tests |
//!
//! Imports go one way. `packet`, `operation`, `transfer`, `matching`, `payload` and `outgoing` are leaves; `device` and
//! `link` hold the state of a connection, `engine` that of a rank. What works on a state stands above it: `link_send`
//! and `link_receive`, then `progress`, `window_server` and `failure_detection`, then `messenger`, `waiting` and
//! `progress_thread`.
//!
//! # Progress
//!
//! The thread that waits for an operation drives progress of all of them, one thread at a time; it notifies the others.
//! If operations are pending and no thread waits, the progress thread drives them: it starts when it is first needed,
//! and ends after a second without work. Most operations are waited for at once, and waking a thread for each costs two
//! context switches, more than a short message. So the progress thread delays its takeover, and polls while messages
//! are exchanged.
//!
//! While windows of this rank are served, the progress thread stays. It *rests*: it sleeps until a connection is ready,
//! serves the requests of peers, and sleeps again. Asleep it holds neither the lock nor the turn, so a thread that
//! waits drives progress at once; just after such a wait it sleeps for a time, not on connections, whose traffic would
//! wake it as well. A thread that polls in another wait, such as a call of all ranks, serves the requests meanwhile
//! ([`Server`](roundelay_net::group::WindowServer)).
//!
//! A short put or accumulate that is sent through a socket is coalesced with the flush or signal that follows: the
//! system takes both in one call. The next progress of the link sends it, within `SERVE_BLIND_SLEEP_MAX`.
//!
//! # Conventions
//!
//! **Invariant:** the thread that drives progress yields to others at once. They wake it if it sleeps on memory, its
//! lock is fair, and it does not hold it while it sleeps on sockets.
//!
//! **Invariant:** a rank always receives. A short message without a receive is copied, and credit bounds their number;
//! of a long one only the offer has come. So no order of sends and receives blocks other messages.

mod device;
mod engine;
mod failure_detection;
mod forge;
mod link;
mod link_receive;
mod link_send;
mod matching;
mod messenger;
mod operation;
mod outgoing;
mod packet;
mod payload;
mod progress;
mod progress_thread;
mod suspend;
mod transfer;
mod waiting;
mod window_server;
mod wire;

pub use matching::ReceiveSource;
pub use messenger::{MessageBuffer, RankMessenger};
pub use operation::{DeliveredMessage, MessageOperation};
pub use packet::MessageShape;
pub use suspend::MessageMemory;
pub(crate) use suspend::suspended_error;
pub use transfer::TransferKind;
pub(crate) use waiting::MessengerGuard;
pub use wire::wires;
