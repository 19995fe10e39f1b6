//! The progress engine: what all movers of bytes beside the calls of all ranks have in common.
//!
//! | client | its requests | who moves them |
//! |---|---|---|
//! | tagged messages | [`messages`](crate::messages): operations of a rank | the thread that waits, else the progress thread |
//! | served windows | the same connections | the same, and calls that wait |
//! | messages of kernels | `roundelay-cuda`, `proxy`: words and slots that kernels write | proxy threads |
//! | windows of kernels | orders of streams, which become operations of the first two | the window proxy |
//! | tolerant calls | the call itself | the thread that calls |
//!
//! The calls of all ranks are no client: their plans move by the executor, which waits and blames by the same means.
//!
//! # The life of a request
//!
//! A request is *posted* (it is counted, and moves as far as it can at once), *progressed* (by any thread that drives
//! its client: requests of one peer in order), and then *completed*, or *aborted* with the error of the client: once,
//! whichever comes first, and no memory of its caller is accessed afterwards. An abort ends all requests of a client.
//!
//! # Threads
//!
//! Beside the threads of the program a communicator has at most two on a host: the worker of asynchronous calls, once
//! there was one, and the progress thread of messages and windows, while there are requests without a waiter or windows
//! that are served. A thread that waits lends itself: it moves what all clients of its communicator have. A thread
//! that moves for others sleeps while nothing is pending. Between hosts a communicator on a GPU has proxy threads and
//! the window proxy beside them.
//!
//! # Parts
//!
//! | file | holds |
//! |---|---|
//! | [`wait`] | [`wait::WaitLoop`], the wait of every client: poll, yield, sleep, abort, deadline |
//! | [`packet_header`] | [`PacketHeader`], the first word of every packet: its client and its kind |
//! | [`peer_failure`] | how a peer can fail, and how that is seen |
//! | [`failed_wait`] | [`FailedWait`], the text of blame: rank, step, peer, source line |
//! | [`wait_report`] | long waits as other ranks see them, and their diagnosis |
//!
//! **Invariant:** nothing here names a client: clients stand above.

pub mod failed_wait;
pub mod packet_header;
pub mod peer_failure;
pub mod wait;
pub mod wait_report;

pub use failed_wait::{AwaitedAct, FailedWait, PeerName};
pub use packet_header::{PacketClient, PacketHeader};
pub use peer_failure::{PeerFailure, PeerLoss};
