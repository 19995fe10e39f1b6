//! What every transport must do, in the same words for each: order, integrity, no bytes, many bytes,
//! back-pressure, an end in the middle, a peer that is killed, a peer that is stopped.
//!
//! To add a transport: a line `conformance!(...)` below.

#[path = "../support/mod.rs"]
mod support;

mod book;
mod deaths;
mod moves;

use roundelay::{Communicator, Setup, Transports};

/// What the ranks are joined by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// Memory that all of them map.
    Shm,
    /// Sockets between all of them.
    Tcp,
    /// Devices between all of them.
    Rdma,
    /// Sockets, each of which could go on over another path.
    Paths,
    /// Memory between ranks r and r + 2, sockets between the others.
    Mixed,
    /// The same with devices between the others.
    MixedRdma,
}

/// Two paths of every machine that has both protocols.
const PATHS: [&str; 2] = ["127.0.0.1", "::1"];

impl Over {
    /// How a rank is to join.
    pub(crate) fn setup(self, rank: u32) -> Setup {
        match self {
            Over::Shm => Setup::new(),
            Over::Tcp => Setup::new().transports(Transports::TCP),
            Over::Rdma => Setup::new().transports(Transports::RDMA),
            Over::Paths => Setup::new().transports(Transports::TCP).paths(PATHS),
            Over::Mixed | Over::MixedRdma => {
                let rdma = self == Over::MixedRdma;
                let transports = Transports { shm: true, tcp: !rdma, rdma };
                Setup::new().transports(transports).host_label(format!("machine {}", rank % 2))
            }
        }
    }
}

/// Runs `body` for every rank of a job, each in a thread.
pub(crate) fn threads<T: Send>(
    over: Over,
    ranks: u32,
    slot_bytes: u64,
    body: impl Fn(&mut Communicator, usize) -> T + Sync,
) -> Vec<T> {
    let setup = |rank| over.setup(rank).slot_bytes(slot_bytes);
    let comms = Communicator::local_over(ranks, setup).expect("the ranks join");
    std::thread::scope(|scope| {
        let body = &body;
        let start = |(r, mut comm): (usize, Communicator)| scope.spawn(move || body(&mut comm, r));
        let threads: Vec<_> = comms.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|t| t.join().expect("a rank")).collect()
    })
}

fn skip(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "skipped: {why}");
}

/// Runs a test over this, or says why it cannot be done here.
fn over(over: Over, test: impl Fn(Over)) {
    match roundelay::transport::rdma() {
        Err(why) if matches!(over, Over::Rdma | Over::MixedRdma) => {
            skip(&format!("no RDMA: {why}"));
        }
        _ if over == Over::Paths && std::net::TcpListener::bind("[::1]:0").is_err() => {
            skip("this machine has no IPv6 and so only one path to itself");
        }
        _ => test(over),
    }
}

macro_rules! conformance {
    ($name:ident, $over:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn messages_keep_their_order() {
                over($over, moves::order);
            }
            #[test]
            fn data_arrives_as_it_left() {
                over($over, moves::integrity);
            }
            #[test]
            fn every_protocol_gives_the_same() {
                over($over, moves::protocols);
            }
            #[test]
            fn the_whole_book_leaves_the_same_bits() {
                over($over, book::book);
            }
            #[test]
            fn nothing_can_be_moved_too() {
                over($over, moves::nothing);
            }
            #[test]
            fn a_gigabyte_arrives() {
                over($over, moves::gigabyte);
            }
            #[test]
            fn a_sender_that_is_ahead_is_held_back() {
                over($over, moves::back_pressure);
            }
            #[test]
            fn memory_that_devices_know_is_counted() {
                over($over, moves::pinned);
            }
            #[test]
            fn different_calls_are_told_apart() {
                over($over, moves::mismatch);
            }
            #[test]
            fn an_end_in_the_middle_of_a_transfer_reaches_all() {
                over($over, deaths::abort);
            }
            #[test]
            fn a_killed_peer_is_named_at_once() {
                over($over, deaths::killed);
            }
            #[test]
            fn a_stopped_peer_is_named_at_the_deadline() {
                over($over, deaths::stopped);
            }
        }
    };
}

conformance!(shm, Over::Shm);
conformance!(tcp, Over::Tcp);
conformance!(paths, Over::Paths);
conformance!(mixed, Over::Mixed);
conformance!(rdma, Over::Rdma);
conformance!(mixed_rdma, Over::MixedRdma);
