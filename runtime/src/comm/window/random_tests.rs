//! A peer that sends packets at random: this rank refuses them or ends the job, in time, and writes nothing that it
//! must not.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::element_window::Window;
use super::parts::PartReach;
use crate::comm::Communicator;
use crate::internal::wires;
use crate::launch::JobSetup;
use roundelay_engine::window::WindowRights;
use roundelay_net::memory::Buffer;
use roundelay_net::transport::TransportSet;
use roundelay_tests::SeededRandom;

const LEN: usize = 512;
/// A rank waits no longer for content that was announced and does not come.
const TIMEOUT: Duration = Duration::from_millis(300);
/// No trial comes near it unless something hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the key of the peer's part.
fn key_of(window: &Window<u64>, peer: usize) -> u64 {
    match &window.parts.peers[peer] {
        PartReach::Served(remote) => remote.key(),
        PartReach::Mapped(_) => 0,
    }
}

/// Returns a packet: one that is sent, with words that are right, near to it, or anything.
fn packet(samples: &[Vec<u8>], keys: [u64; 2], dice: &mut SeededRandom) -> Vec<u8> {
    let mut bytes = samples[dice.below(samples.len())].clone();
    for at in 0..1 + dice.below(3) {
        let any = u64::from_le_bytes(std::array::from_fn(|_| dice.below(256) as u8));
        let word = match dice.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << dice.below(64),
            3 => 8 * LEN as u64,
            4 => (8 * LEN as u64).wrapping_sub(8 * dice.below(4) as u64),
            5 => dice.below(8) as u64,
            _ => any,
        };
        // The first word is the header: the client, then the kind.
        let place = 8 * (1 + dice.below(5));
        if at > 0 || dice.below(2) == 0 {
            bytes[place..place + 8].copy_from_slice(&word.to_le_bytes());
        }
    }
    // Most packets for a window name one.
    if dice.below(4) > 0 && (6..=18).contains(&bytes[1]) && bytes[1] != 13 {
        bytes[8..16].copy_from_slice(&keys[dice.below(2)].to_le_bytes());
    }
    bytes
}

/// Runs the rank that others lie to: it waits, and then looks at what it has.
fn victim(comm: &mut Communicator, both: &Barrier) {
    let open = comm.window(Buffer::from(vec![5u64; LEN])).expect("a window");
    let shut =
        comm.window_with(Buffer::from(vec![7u64; LEN]), WindowRights::READ).expect("a window");
    both.wait();
    open.set_timeout(TIMEOUT);
    // It ends by a signal, or by an error.
    let _ = open.wait_signal(0);
    let _ = open.fetch_add(1, 0, 0);
    let mut mine = vec![0; LEN];
    shut.read(0, &mut mine).expect("its own part");
    assert!(mine.iter().all(|&x| x == 7), "something was written without a right to");
}

fn rogue(comm: &mut Communicator, both: &Barrier, seed: u64) {
    let open = comm.window(Buffer::from(vec![5u64; LEN])).expect("a window");
    let shut =
        comm.window_with(Buffer::from(vec![7u64; LEN]), WindowRights::READ).expect("a window");
    both.wait();
    open.set_timeout(TIMEOUT);
    let (mut dice, keys) = (SeededRandom(seed), [key_of(&open, 1), key_of(&shut, 1)]);
    let wire = wires().into_iter().find(|wire| wire.name == "messages: packet").expect("packets");
    let mut packets = Vec::new();
    for _ in 0..1 + dice.below(12) {
        packets.push(packet(&wire.samples, keys, &mut dice));
    }
    let messenger = &open.parts.service.as_ref().expect("it is served").messenger;
    messenger.forge(1, packets.iter().map(Vec::as_slice));
    let _ = open.signal(1);
    let _ = open.flush(1);
}

/// `ROUNDS=100` tries a hundred times as many, `SEED=7` others.
#[test]
fn packets_at_random_end_in_time_and_write_nothing_forbidden() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    let setup = |_| JobSetup::new().transports(TransportSet::TCP).timeout(LIMIT);
    for trial in 0..40 * number("ROUNDS", 1) {
        let seed = number("SEED", 1) << 32 ^ trial;
        let ranks = Communicator::local_over(2, setup).expect("two ranks");
        let (began, both) = (Instant::now(), Barrier::new(2));
        std::thread::scope(|scope| {
            let both = &both;
            for mut comm in ranks {
                scope.spawn(move || match comm.rank() {
                    0 => rogue(&mut comm, both, seed),
                    _ => victim(&mut comm, both),
                });
            }
        });
        assert!(began.elapsed() < LIMIT, "trial {trial}: {:?}", began.elapsed());
    }
}
