//! Tests that all data comes, as it was, once, in order.

use roundelay::RedOp;
use roundelay_compiler::plan::{CopyPolicy, Plan, PlanHeader};
use roundelay_dsl::diag::codes;

use crate::conformance::{Over, threads};
use crate::support::{contribution, header, one_shot, ring, send_recv, total, two_shot};

/// Returns a word for many bytes: any that are lost, doubled or exchanged change it.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |sum: u64, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
    })
}

/// Fills bytes with noise that repeats nowhere nearby.
fn noise(bytes: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    for chunk in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

pub(crate) fn order(over: Over) {
    let plans = send_recv(&header("send_recv", "plain", 2, 1));
    let turns = [0, 1].map(|turn| over.spread(&plans, turn));
    threads(over, 2, 4096, |comm, rank| {
        for round in 0..3000u64 {
            let plans = &turns[(round / 5 % 2) as usize];
            // Small ones, staged ones and direct ones follow each other on one connection.
            let len = [1, 100, 2000, 7][(round % 4) as usize];
            let mut vector = vec![if rank == 0 { round } else { u64::MAX }; len];
            comm.run_in_place(&plans[rank], RedOp::Sum, &mut vector).expect("a run");
            assert!(vector.iter().all(|&x| x == round), "round {round}");
        }
    });
}

pub(crate) fn integrity(over: Over) {
    let plans = send_recv(&header("send_recv", "plain", 2, 3));
    let turns = [0, 1].map(|turn| over.spread(&plans, turn));
    let sums = threads(over, 2, 64 << 10, |comm, rank| {
        let mut sums = Vec::new();
        for (seed, len) in
            [1, 47, 48, 49, 4095, 4097, 65_536, 300_001, 5_000_003].iter().enumerate()
        {
            let mut shared = comm.alloc::<u8>(*len).expect("room");
            let mut own = vec![0u8; *len];
            for (at, bytes) in [&mut own[..], &mut shared[..]].into_iter().enumerate() {
                let plans = &turns[(seed + at) % 2];
                if rank == 0 {
                    noise(bytes, seed as u64);
                }
                comm.run_in_place(&plans[rank], RedOp::Sum, bytes).expect("a run");
                sums.push(checksum(bytes));
            }
        }
        sums
    });
    assert_eq!(sums[0], sums[1]);
    let mut distinct = sums[0].clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 9, "the noise of every length is another");
}

/// Executes several sets of plans of as many ranks, one after the other on the same connections.
fn check_all_reduce(over: Over, sets: &[Vec<Plan>], slot_bytes: u64) {
    // Slots of a few words make many messages.
    let most = if slot_bytes < 1024 { 3001 } else { 40_001 };
    let ranks = sets[0].len();
    let sets: Vec<Vec<Plan>> = sets.iter().map(|plans| over.spread(plans, 0)).collect();
    threads(over, ranks as u32, slot_bytes, |comm, rank| {
        for plans in &sets {
            let plan = &plans[rank];
            for (salt, &count) in [1, 7, 100, 1023, most].iter().enumerate() {
                let mut own = vec![f32::NAN; count];
                let mut shared = comm.alloc::<f32>(count).expect("memory");
                for vector in [&mut own[..], &mut shared[..]] {
                    for (i, x) in vector.iter_mut().enumerate() {
                        *x = contribution(rank, i, salt);
                    }
                    comm.run_in_place(plan, RedOp::Sum, vector).expect("a run");
                    let wrong = (0..count).find(|&i| vector[i] != total(ranks, i, salt));
                    let name = &plan.header.algorithm;
                    assert_eq!(wrong, None, "{over:?}, {name}, {count} elements");
                }
            }
        }
    });
}

pub(crate) fn protocols(over: Over) {
    const ALL: [CopyPolicy; 3] = [CopyPolicy::Auto, CopyPolicy::Staged, CopyPolicy::Direct];
    for slot_bytes in [256, 64 << 10] {
        let with = |name: &'static str, n, chunks| {
            ALL.map(|protocol| {
                let header = header("all_reduce", &format!("{name} {protocol:?}"), n, chunks);
                PlanHeader { protocol, ..header }
            })
        };
        let rings = with("ring", 3, 3).map(|header| ring(&header));
        let pairs = with("one_shot", 2, 1).map(|header| one_shot(&header, false));
        let fours = with("one_shot", 4, 1).map(|header| one_shot(&header, true));
        let twice = with("two_shot", 4, 4).map(|header| two_shot(&header));
        check_all_reduce(over, &rings, slot_bytes);
        check_all_reduce(over, &pairs, slot_bytes);
        check_all_reduce(over, &[fours, twice].concat(), slot_bytes);
    }
}

pub(crate) fn nothing(over: Over) {
    let plans = over.spread(&ring(&header("all_reduce", "ring", 4, 4)), 1);
    threads(over, 4, 4096, |comm, rank| {
        // Fewer elements than chunks: some messages have none.
        for count in [0, 1, 2, 0, 3] {
            let mut vector = vec![1.0f32; count];
            comm.run_in_place(&plans[rank], RedOp::Sum, &mut vector).expect("a run");
            assert!(vector.iter().all(|&x| x == 4.0));
        }
        comm.barrier().expect("a barrier");
    });
}

/// Moves a GiB, each MiB of which is the same noise from another place on, so that none can stand for
/// another, and both making and comparing it take no time to speak of.
pub(crate) fn gigabyte(over: Over) {
    const PART: usize = 1 << 20;
    let plans = send_recv(&header("send_recv", "plain", 2, 1));
    let mut words = vec![0u8; PART + 1024];
    noise(&mut words, 42);
    let part = |i: usize| &words[i..][..PART];
    threads(over, 2, 1 << 20, |comm, rank| {
        let mut bytes = vec![0u8; 1 << 30];
        if rank == 0 {
            bytes.chunks_mut(PART).enumerate().for_each(|(i, to)| to.copy_from_slice(part(i)));
        }
        comm.run_in_place(&plans[rank], RedOp::Sum, &mut bytes).expect("a run");
        let wrong = bytes.chunks(PART).enumerate().find(|&(i, got)| got != part(i));
        assert_eq!(wrong.map(|(i, _)| i), None, "{over:?}");
    });
}

/// Rank 0 sends far more than fits in between, to a rank that comes late: it is held back, loses
/// nothing, and is done only when the other has begun.
pub(crate) fn back_pressure(over: Over) {
    let plans = over.spread(&send_recv(&header("send_recv", "plain", 2, 1)), 1);
    let begun = std::sync::atomic::AtomicBool::new(false);
    const LEN: usize = 64 << 20;
    threads(over, 2, 64 << 10, |comm, rank| {
        let mut bytes = vec![rank as u8 + 7; LEN];
        let mut first = [0u8; 1];
        comm.run_in_place(&plans[rank], RedOp::Sum, &mut first).expect("a run");
        if rank == 1 {
            // Long enough for the sender to fill whatever lies between.
            let now = std::time::Instant::now();
            while now.elapsed() < std::time::Duration::from_millis(200) {
                std::thread::yield_now();
            }
            begun.store(true, std::sync::atomic::Ordering::SeqCst);
        }
        comm.run_in_place(&plans[rank], RedOp::Sum, &mut bytes).expect("a run");
        assert!(begun.load(std::sync::atomic::Ordering::SeqCst), "nothing held the sender back");
        assert!(bytes.iter().all(|&x| x == 7));
    });
}

/// Buffers in the symmetric heap are sent from there, and land there, if devices do it: they know it then.
pub(crate) fn pinned(over: Over) {
    let plans = send_recv(&header("send_recv", "plain", 2, 1));
    threads(over, 2, 64 << 10, |comm, rank| {
        let pinned = |comm: &mut roundelay::Communicator| {
            comm.resources().expect("figures").memory.pinned_bytes
        };
        let mut small = [rank as u8; 1];
        comm.run_in_place(&plans[rank], RedOp::Sum, &mut small).expect("a run");
        let before = pinned(comm);
        let mut own = vec![7u8; 4 << 20];
        comm.run_in_place(&plans[rank], RedOp::Sum, &mut own).expect("a run");
        assert_eq!(pinned(comm), before, "private memory is never registered");
        let mut shared = comm.alloc::<u8>(4 << 20).expect("room");
        for salt in 0..3 {
            noise(&mut shared, 7 * rank as u64 + salt);
            comm.run_in_place(&plans[rank], RedOp::Sum, &mut shared).expect("a run");
            own[..].copy_from_slice(&shared);
            noise(&mut shared, salt);
            assert!(own[..] == shared[..], "{over:?}");
        }
        // Over a path nothing is sent from where it lies: it may have to be sent again over another one.
        let in_place = over.has_devices() && over.paths().is_empty();
        assert_eq!(pinned(comm) > before, in_place, "{before} bytes before");
        assert_eq!(before > 0, over.has_devices());
    });
}

/// Calls plans that were agreed on before in another order: the messages themselves must tell.
pub(crate) fn mismatch(over: Over) {
    let plans = [
        ring(&header("all_reduce", "ring", 2, 2)),
        one_shot(&header("all_reduce", "one_shot", 2, 1), false),
    ];
    let errors = threads(over, 2, 4096, |comm, rank| {
        comm.set_timeout(std::time::Duration::from_secs(20));
        let mut vector = vec![1.0f32; 1000];
        for plan in &plans {
            comm.run_in_place(&plan[rank], RedOp::Sum, &mut vector).expect("a run");
        }
        comm.run_in_place(&plans[rank][rank], RedOp::Sum, &mut vector).expect_err("mixed up")
    });
    for error in errors {
        assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}");
    }
}
