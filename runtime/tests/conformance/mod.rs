//! Tests what every transport must do, in one set of tests for all: order, integrity, no bytes, many bytes,
//! back-pressure, an end in the middle, a peer that is killed, a peer that is stopped.
//!
//! Every transport of the runtime's list needs a line of `conformance!` below, and without it a test fails.

mod deaths;
mod library;
mod moves;
mod windows;

use roundelay::Communicator;
use roundelay::launch::JobSetup;
use roundelay::transport::{Transport, TransportSet};
use roundelay_compiler::plan::{MessageDirection, Plan};
use roundelay_tests::{CheckNeeds, is_full, skip};

/// The transport that joins the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// One transport between all of them.
    One(Transport),
    /// Memory between ranks r and r + 2, another transport between the others.
    Mixed(Transport),
    /// Sockets, each of which could go on over another path.
    Paths,
    /// Encrypted sockets.
    Encrypted,
    /// Encrypted sockets, each of which could go on over another path.
    EncryptedPaths,
    /// Two paths: a device and sockets.
    RdmaTcp,
    /// Two paths: a device each.
    TwoRdma,
}

/// Two paths of every machine that has both protocols.
const PATHS: [&str; 2] = ["127.0.0.1", "::1"];

/// Returns the names of the devices for RDMA.
fn devices() -> Vec<String> {
    let lines = Transport::Rdma.probe().unwrap_or_default();
    lines.iter().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

impl Over {
    /// Returns the paths, if there are several.
    pub(crate) fn paths(self) -> Vec<String> {
        match self {
            Over::Paths | Over::EncryptedPaths => PATHS.map(str::to_owned).into(),
            Over::RdmaTcp => devices().into_iter().take(1).chain([PATHS[0].to_owned()]).collect(),
            Over::TwoRdma => devices().into_iter().take(2).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the transports that carry something.
    pub(crate) fn transports(self) -> TransportSet {
        match self {
            Over::One(transport) => transport.into(),
            Over::Mixed(transport) => TransportSet::SHM.with(transport),
            Over::Paths | Over::Encrypted | Over::EncryptedPaths => TransportSet::TCP,
            Over::RdmaTcp => TransportSet::TCP.or(TransportSet::RDMA),
            Over::TwoRdma => TransportSet::RDMA,
        }
    }

    /// Returns true if devices carry something.
    pub(crate) fn has_devices(self) -> bool {
        self.transports().contains(Transport::Rdma)
    }

    /// Spreads the connections of plans over two paths, if there are two: what one rank sends rides one of
    /// them, what the next one sends the other; in the other turn each rides the other one.
    pub(crate) fn spread(self, plans: &[Plan], turn: u32) -> Vec<Plan> {
        if self.paths().is_empty() {
            return plans.to_vec();
        }
        let spread = |plan: &Plan| {
            let mut plan = plan.clone().into_unproved();
            plan.header.hash[15] ^= 1 + turn as u8;
            for conn in &mut plan.part.conns {
                let sender =
                    if conn.dir == MessageDirection::Send { plan.part.rank } else { conn.peer };
                conn.path = ((sender + turn) % 2) as u16;
                conn.channel = 2 * conn.channel + conn.path;
            }
            plan.check().expect("a consistent plan")
        };
        plans.iter().map(spread).collect()
    }

    /// Returns the hints that ranks are given.
    pub(crate) fn hints(self) -> String {
        let mut hints = format!("transport={}", self.transports());
        if !self.paths().is_empty() {
            hints += &format!(",paths={}", self.paths().join(","));
        }
        if self.is_encrypted() {
            hints += ",encryption=required";
        }
        hints
    }

    /// Returns true if what travels is encrypted.
    fn is_encrypted(self) -> bool {
        matches!(self, Over::Encrypted | Over::EncryptedPaths)
    }

    /// Returns the number of hosts that there seem to be.
    pub(crate) fn hosts(self) -> u32 {
        if matches!(self, Over::Mixed(_)) { 2 } else { 1 }
    }

    /// Returns the setup with which a rank joins.
    fn setup(self, rank: u32) -> JobSetup {
        let setup = JobSetup::new().hints(&self.hints().parse().expect("hints"));
        let setup = if self.is_encrypted() { setup.secret("a secret of tests") } else { setup };
        match self.hosts() {
            1 => setup,
            hosts => setup.host_label(format!("machine {}", rank % hosts)),
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

/// Runs a test of the suite over this, unless a sample of it does without, or says why it cannot be done here.
fn over(over: Over, test: impl Fn(Over)) {
    if over == Over::EncryptedPaths && !is_full() {
        return skip(CheckNeeds::FullRun, "a sample of the suite runs over encrypted paths");
    }
    over_here(over, test);
}

/// Encrypted connections on several paths: what a sample of the suite is.
#[test]
fn encrypted_paths_carry_the_same() {
    over_here(Over::EncryptedPaths, moves::order);
    over_here(Over::EncryptedPaths, moves::integrity);
    over_here(Over::EncryptedPaths, moves::protocols);
    over_here(Over::EncryptedPaths, deaths::killed);
}

/// Runs a test over this whatever the sample, or says why it cannot be done here.
fn over_here(over: Over, test: impl Fn(Over)) {
    let missing = over.transports().iter().find_map(|transport| transport.probe().err());
    match (missing, devices()) {
        (Some(why), _) => skip(CheckNeeds::Rdma, format!("no RDMA: {why}")),
        (_, devices) if over == Over::TwoRdma && devices.len() < 2 => {
            skip(CheckNeeds::Rdma, "one device for RDMA only");
        }
        _ if over.paths().contains(&PATHS[1].to_owned())
            && std::net::TcpListener::bind("[::1]:0").is_err() =>
        {
            skip(CheckNeeds::Ipv6, "this machine has no IPv6 and so only one path to itself");
        }
        _ => test(over),
    }
}

macro_rules! conformance {
    ($($name:ident: $over:expr;)+) => {
        /// All that the suite is run over.
        const EXECUTED: &[Over] = &[$($over),+];

        $(mod $name {
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
            fn the_whole_library_leaves_the_same_bits() {
                over($over, library::library);
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
            fn puts_and_gets_are_those_of_a_model() {
                over($over, windows::model);
            }
            #[test]
            fn a_signal_is_seen_after_the_puts_before_it() {
                over($over, windows::signals);
            }
            #[test]
            fn words_of_windows_are_changed_by_all_ranks_at_once() {
                over($over, windows::atomics);
            }
            #[test]
            fn a_short_put_arrives_though_nothing_follows_it() {
                over($over, windows::arrives);
            }
            #[test]
            fn what_windows_have_started_ends_with_its_memory() {
                over($over, windows::started);
            }
            #[test]
            fn devices_put_and_get_where_they_join_the_ranks() {
                over($over, windows::devices);
            }
            #[test]
            fn what_was_withdrawn_is_not_done_any_more() {
                over($over, windows::withdrawn);
            }
            #[test]
            fn a_killed_peer_ends_operations_on_its_window() {
                over($over, windows::killed);
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
        })+
    };
}

conformance! {
    shm: Over::One(Transport::Shm);
    tcp: Over::One(Transport::Tcp);
    rdma: Over::One(Transport::Rdma);
    mixed: Over::Mixed(Transport::Tcp);
    mixed_rdma: Over::Mixed(Transport::Rdma);
    paths: Over::Paths;
    encrypted: Over::Encrypted;
    encrypted_paths: Over::EncryptedPaths;
    rdma_and_tcp: Over::RdmaTcp;
    two_devices: Over::TwoRdma;
}

#[test]
fn the_suite_is_run_over_every_transport() {
    for &transport in Transport::ALL {
        assert!(
            EXECUTED.contains(&Over::One(transport)),
            "no line of `conformance!` has {transport}"
        );
        let is_mixed = EXECUTED.contains(&Over::Mixed(transport));
        assert!(transport.is_mapped() || is_mixed, "no line has {transport} beside shared memory");
    }
}
