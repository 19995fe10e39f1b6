//! Tests messages between single ranks: content, order, blocking, and everything that can be wrong.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::{everywhere, header, layout, threads, two_shot};
use roundelay::memory::{Host, MemoryBool};
use roundelay::transport::SegmentLayout;
use roundelay::{Buffer, Communicator, Error, RedOp};
use roundelay_dsl::diag::codes;
use roundelay_tests::SeededRandom;

#[derive(Debug, Clone, Copy)]
struct Note {
    from: u32,
    to: u32,
    len: usize,
    kind: usize,
    salt: usize,
}

/// Memory of several types, some of which peers can read.
enum Memory {
    Bytes(Vec<u8>),
    Floats(Vec<f64>),
    Flags(Vec<MemoryBool>),
    Shared(Buffer<i32>),
}

fn value(salt: usize, i: usize) -> usize {
    (salt * 31 + i * 7) % 251
}

impl Memory {
    fn new(comm: &Communicator, note: &Note) -> Self {
        match note.kind {
            0 => Memory::Bytes(vec![255; note.len]),
            1 => Memory::Floats(vec![-1.0; note.len]),
            2 => Memory::Flags(vec![MemoryBool::TRUE; note.len]),
            _ => Memory::Shared(comm.alloc(note.len).expect("memory")),
        }
    }

    fn fill(&mut self, salt: usize) {
        match self {
            Memory::Bytes(m) => (0..).zip(m).for_each(|(i, x)| *x = value(salt, i) as u8),
            Memory::Floats(m) => (0..).zip(m).for_each(|(i, x)| *x = value(salt, i) as f64),
            Memory::Flags(m) => {
                (0..).zip(m).for_each(|(i, x)| *x = (value(salt, i) % 2 == 1).into());
            }
            Memory::Shared(m) => {
                (0..).zip(&mut m[..]).for_each(|(i, x)| *x = value(salt, i) as i32);
            }
        }
    }

    fn check(&self, note: &Note) {
        let salt = note.salt;
        let right = match self {
            Memory::Bytes(m) => (0..).zip(m).all(|(i, &x)| x == value(salt, i) as u8),
            Memory::Floats(m) => (0..).zip(m).all(|(i, &x)| x == value(salt, i) as f64),
            Memory::Flags(m) => (0..).zip(m).all(|(i, &x)| x == (value(salt, i) % 2 == 1)),
            Memory::Shared(m) => (0..).zip(&m[..]).all(|(i, &x)| x == value(salt, i) as i32),
        };
        assert!(right, "{note:?}");
    }
}

/// Returns the ends of a rank's messages, in an order of its own that keeps the order between two ranks.
fn shuffled(notes: &[Note], rank: u32, dice: &mut SeededRandom) -> Vec<(usize, bool)> {
    let mut queues: Vec<((u32, bool), Vec<usize>)> = Vec::new();
    for (i, note) in notes.iter().enumerate() {
        for (own, peer, sends) in [(note.from, note.to, true), (note.to, note.from, false)] {
            if own == rank {
                match queues.iter_mut().find(|(key, _)| *key == (peer, sends)) {
                    Some((_, queue)) => queue.push(i),
                    None => queues.push(((peer, sends), vec![i])),
                }
            }
        }
    }
    queues.iter_mut().for_each(|(_, queue)| queue.reverse());
    let mut order = Vec::new();
    while !queues.is_empty() {
        let at = dice.below(queues.len());
        match queues[at].1.pop() {
            Some(i) => order.push((i, queues[at].0.1)),
            None => drop(queues.swap_remove(at)),
        }
    }
    order
}

/// Runs one batch: every rank lists its ends in an order of its own.
fn run_batch(comm: &mut Communicator, notes: &[Note], dice: &mut SeededRandom) {
    let rank = comm.rank();
    let order = shuffled(notes, rank, dice);
    let mut memory: Vec<Memory> =
        order.iter().map(|&(i, _)| Memory::new(comm, &notes[i])).collect();
    for (memory, &(i, sends)) in memory.iter_mut().zip(&order) {
        if sends {
            memory.fill(notes[i].salt);
        }
    }
    let mut batch = comm.batch();
    for (memory, &(i, sends)) in memory.iter_mut().zip(&order) {
        let Note { from, to, .. } = notes[i];
        match (memory, sends) {
            (Memory::Bytes(m), true) => batch.send(m, to),
            (Memory::Floats(m), true) => batch.send(m, to),
            (Memory::Flags(m), true) => batch.send(m, to),
            (Memory::Shared(m), true) => batch.send(m, to),
            (Memory::Bytes(m), false) => batch.recv(m, from),
            (Memory::Floats(m), false) => batch.recv(m, from),
            (Memory::Flags(m), false) => batch.recv(m, from),
            (Memory::Shared(m), false) => batch.recv(m, from),
        };
    }
    batch.run(comm).expect("a batch");
    for (memory, &(i, sends)) in memory.iter().zip(&order) {
        if !sends {
            memory.check(&notes[i]);
        }
    }
}

#[test]
fn matching_batches_end_in_whatever_order_they_are_listed() {
    for n in 1..=6u32 {
        for slot_bytes in [64, 4096] {
            everywhere(n, slot_bytes, |comm, rank| {
                let mut shared = SeededRandom(u64::from(n) * 1000 + slot_bytes);
                let mut own = SeededRandom(rank as u64 + 77);
                for _ in 0..30 {
                    let note = |salt| Note {
                        from: shared.below(n as usize) as u32,
                        to: shared.below(n as usize) as u32,
                        len: [0, 1, 6, 13, 200, 3000][shared.below(6)],
                        kind: shared.below(4),
                        salt,
                    };
                    let notes: Vec<Note> = (0..24).map(note).collect();
                    let notes = &notes[..shared.below(25)];
                    run_batch(comm, notes, &mut own);
                }
            });
        }
    }
}

#[test]
fn a_ring_of_long_messages() {
    for n in [2u32, 3, 5] {
        everywhere(n, 4096, |comm, rank| {
            let rank = rank as u32;
            for len in [0, 1, 100, 100_000] {
                let (given, mut got) = (vec![rank; len], vec![n; len]);
                let mut batch = comm.batch();
                batch.send(&given, (rank + 1) % n).recv(&mut got, (rank + n - 1) % n);
                let stats = batch.run(comm).expect("a batch");
                assert_eq!(stats.bytes, 4 * len as u64);
                assert_eq!(got, vec![(rank + n - 1) % n; len]);
            }
        });
    }
}

#[test]
fn ten_thousand_small_sends_keep_their_order() {
    everywhere(2, 4096, |comm, rank| {
        for i in 0..10_000u64 {
            // Some do not fit the header of a message.
            let len = if i % 100 == 99 { 70 } else { 1 };
            match rank {
                0 => comm.send(&vec![i; len], 1).expect("a send"),
                _ => {
                    let mut got = vec![0; len];
                    comm.recv(&mut got, 0).expect("a receive");
                    assert_eq!(got, vec![i; len]);
                }
            }
        }
    });
}

#[test]
fn short_messages_pass_before_anybody_receives() {
    threads(layout(2, 4096), |comm, rank| {
        let peer = 1 - rank as u32;
        for round in 0..100 {
            comm.send(&[round; 500], peer).expect("a send");
            let mut got = [0; 500];
            comm.recv(&mut got, peer).expect("a receive");
            assert_eq!(got, [round; 500]);
        }
    });
}

#[test]
fn long_messages_travel_in_pieces() {
    const LEN: usize = 16 << 20;
    everywhere(2, 64 << 10, |comm, rank| {
        let mut own = vec![0u8; LEN];
        let mut shared = comm.alloc::<u8>(LEN).expect("memory");
        for (memory, is_shared) in [(&mut own[..], false), (&mut shared[..], true)] {
            memory.fill(0);
            let mut batch = comm.batch();
            if rank == 0 {
                memory.iter_mut().enumerate().for_each(|(i, x)| *x = (i * i % 253) as u8);
                batch.send(memory, 1);
                let stats = batch.run(comm).expect("a batch");
                assert_eq!(stats.messages, 256);
                assert!(!is_shared || stats.pulled == 256, "{stats:?}");
            } else {
                batch.recv(memory, 0);
                batch.run(comm).expect("a batch");
                assert!(memory.iter().enumerate().all(|(i, &x)| x == (i * i % 253) as u8));
            }
        }
    });
}

#[test]
fn messages_to_oneself_are_received_in_the_same_batch() {
    threads(layout(1, 64), |comm, _| {
        let (a, b) = ([1.5f32; 100], [MemoryBool::TRUE, MemoryBool::FALSE]);
        let (mut c, mut d, mut e) = ([0.0f32; 100], [MemoryBool::FALSE; 2], [0u8; 0]);
        let mut batch = comm.batch();
        batch.recv(&mut c, 0).send(&a, 0).send(&b, 0).recv(&mut d, 0).send(&[0u8; 0], 0);
        batch.recv(&mut e, 0);
        assert_eq!(batch.run(comm).expect("a batch").messages, 0);
        assert_eq!((c, d), (a, b));
        let refused = |result: Result<_, Error>, text: &str| {
            let error = result.expect_err(text);
            assert_eq!(error.code(), codes::USAGE, "{error}");
            assert!(error.to_string().contains(text), "{error}");
        };
        refused(comm.send(&a, 0), "sends 1 messages to itself and receives 0");
        refused(comm.recv(&mut c, 0), "sends 0 messages to itself and receives 1");
        let mut batch = comm.batch();
        batch.send(&a, 0).recv(&mut c[1..], 0);
        let text = "sends 400 bytes (100 x f32) to itself, and receives 396 bytes (99 x f32)";
        refused(batch.run(comm).map(drop), text);
        let mut batch = comm.batch();
        batch.send(&[0i32; 2], 0).recv(&mut c[..2], 0);
        refused(batch.run(comm).map(drop), "(2 x i32) to itself, and receives 8 bytes (2 x f32)");
        refused(comm.send(&a, 1), "there is no rank 1 to send with: the ranks are 0 to 0");
        comm.batch::<Host>().run(comm).expect("nothing to do");
        comm.barrier().expect("still usable");
    });
}

type OneEnd = dyn Fn(&mut Communicator) -> Result<(), Error> + Sync;

/// Runs one end on each rank; returns the receiver's error, which the sender must have received too.
fn mismatch(slot_bytes: u64, sends: &OneEnd, receives: &OneEnd) -> String {
    let texts = everywhere(2, slot_bytes, |comm, rank| {
        comm.set_timeout(Duration::from_secs(20));
        let result = match rank {
            0 => sends(comm).and_then(|()| comm.barrier()),
            _ => receives(comm),
        };
        let error = result.expect_err("a mismatch");
        assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}");
        error.to_string()
    });
    // The words are the same over every link; the rank that sent names its own call behind them.
    let is_same = |t: &Vec<String>| {
        let said = t[0].split("; rank 0, ").next().and_then(|t| t.split("; call ").next());
        t[1] == texts[0][1]
            && said == Some(&format!("rank 0 stopped because rank 1 failed: {}", t[1]))
    };
    assert!(texts.iter().all(is_same), "{texts:?}");
    texts[0][1].clone()
}

#[test]
fn a_message_of_another_length_or_type_is_told_not_taken() {
    let remedy = "both ends of a message must name the same length and element type, and messages \
                  between two ranks are received in the order in which they are sent";
    let text = mismatch(4096, &|comm| comm.send(&[1.0f32; 12], 1), &|comm| {
        comm.recv(&mut [1.0f32; 10], 0)
    });
    assert_eq!(
        text,
        format!(
            "rank 1, recv, step 0 (`receive 40 bytes (10 x f32) from rank 0`): rank 0 sends 48 \
             bytes (12 x f32) instead; {remedy}"
        )
    );
    let ends: [(&OneEnd, &OneEnd, &str); 6] = [
        (&|c| c.send(&[1u8; 10], 1), &|c| c.recv(&mut [0u8; 12], 0), "sends 10 bytes (10 x u8)"),
        (&|c| c.send(&[1u8; 0], 1), &|c| c.recv(&mut [0u8; 1], 0), "sends 0 bytes (0 x u8)"),
        (&|c| c.send(&[1u8; 1], 1), &|c| c.recv(&mut [0u8; 0], 0), "sends 1 bytes (1 x u8)"),
        (
            &|c| c.send(&[1u8; 4], 1),
            &|c| c.recv(&mut [MemoryBool::TRUE; 4], 0),
            "sends 4 bytes (4 x u8)",
        ),
        // Alike up to the last piece.
        (
            &|c| c.send(&[1i64; 2000], 1),
            &|c| c.recv(&mut [0i64; 1536], 0),
            "sends 16000 bytes (2000 x i64)",
        ),
        (
            &|c| c.send(&[1i64; 1536], 1),
            &|c| c.recv(&mut [0i64; 2000], 0),
            "sends 12288 bytes (1536 x i64)",
        ),
    ];
    for (sends, receives, wanted) in ends {
        let text = mismatch(4096, sends, receives);
        assert!(text.contains(wanted) && text.starts_with("rank 1, recv, step 0"), "{text}");
    }
}

#[test]
fn the_message_of_a_batch_that_differs_is_named() {
    let text = mismatch(
        256,
        &|comm| {
            let mut batch = comm.batch();
            batch.send(&[1u8; 9], 1).send(&[2u8; 9000], 1).send(&[3u32; 2], 1);
            batch.run(comm).map(drop)
        },
        &|comm| {
            let (mut a, mut b, mut c) = ([0u8; 9], [0u8; 9000], [0u64; 1]);
            let mut batch = comm.batch();
            batch.recv(&mut a, 0).recv(&mut b, 0).recv(&mut c, 0);
            batch.run(comm).map(drop)
        },
    );
    let wanted = "rank 1, batch, step 2 (`receive 8 bytes (1 x u64) from rank 0`): rank 0 sends 8 \
                  bytes (2 x u32) instead";
    assert!(text.starts_with(wanted), "{text}");
}

/// Runs `body` on rank 0 while rank 1 is there, but does something else.
fn alone(body: impl Fn(&mut Communicator) -> Result<(), Error> + Sync) -> String {
    let (done, wait) = channel::<()>();
    let wait: Mutex<Receiver<()>> = Mutex::new(wait);
    let texts = threads(layout(2, 1024), |comm, rank| {
        comm.set_timeout(Duration::from_millis(100));
        if rank == 1 {
            wait.lock().expect("a lock").recv().expect("rank 0 is done");
            return String::new();
        }
        let error = body(comm).expect_err("no peer answers");
        done.send(()).expect("rank 1 waits");
        assert_eq!(error.code(), codes::TIMEOUT, "{error}");
        error.to_string()
    });
    texts[0].clone()
}

#[test]
fn a_peer_that_never_comes_is_named_at_the_deadline() {
    let slow =
        "is alive and has made the same calls; if it is only slow, allow more time (`--timeout`)";
    let text = alone(|comm| comm.recv(&mut [0f32; 3], 1));
    let wanted = "rank 0, recv, step 0 (`receive 12 bytes (3 x f32) from rank 1`): waited 100ms for \
                  a message from rank 1; does rank 1 send to rank 0? rank 1 (process ";
    assert!(text.starts_with(wanted) && text.contains(slow), "{text}");

    let text = alone(|comm| comm.send(&[0u8; 100_000], 1));
    let wanted = "rank 0, send, step 0 (`send 100000 bytes (100000 x u8) to rank 1`): waited 100ms \
                  for rank 1 to take earlier messages; does rank 1 receive from rank 0? If both \
                  ranks send first, make one batch of what each sends and receives; rank 1 (process ";
    assert!(text.starts_with(wanted) && text.contains(slow), "{text}");

    // The memory of the first message is read by the peer, and so cannot be given back.
    let text = alone(|comm| {
        let shared = comm.alloc::<u8>(50_000)?;
        let mut batch = comm.batch();
        batch.send(&shared, 1).send(&[1u8; 4], 1);
        batch.run(comm).map(drop)
    });
    let wanted = "rank 0, batch, step 0 (`send 50000 bytes (50000 x u8) to rank 1`): waited 100ms \
                  for rank 1 to take earlier messages; does rank 1 receive";
    assert!(text.starts_with(wanted), "{text}");
    let text = alone(|comm| {
        let shared = comm.alloc::<u8>(10_000)?;
        comm.send(&shared, 1)
    });
    assert!(text.contains("for rank 1 to read this rank's buffer; does rank 1 receive"), "{text}");
}

#[test]
fn two_ranks_that_both_send_first_are_told_of_batches() {
    let texts = threads(layout(2, 1024), |comm, rank| {
        comm.set_timeout(Duration::from_millis(100));
        let mut long = vec![0u64; 50_000];
        let peer = 1 - rank as u32;
        let error = comm.send(&long, peer).and_then(|()| comm.recv(&mut long, peer));
        error.expect_err("both wait").to_string()
    });
    for text in texts {
        assert!(text.contains("make one batch of what each sends and receives"), "{text}");
    }
}

#[test]
fn a_peer_that_left_is_missed_at_once() {
    let errors = threads(layout(2, 1024), |comm, rank| match rank {
        1 => None,
        _ => comm.recv(&mut [0u8; 3], 1).err(),
    });
    let error = errors[0].as_ref().expect("an error");
    assert_eq!(error.code(), codes::LOST_RANK, "{error}");
    let text = error.to_string();
    assert!(text.starts_with("rank 1 is gone: it left the job while rank 0 waited for"), "{text}");
    assert!(text.ends_with("(`receive 3 bytes (3 x u8) from rank 1`)"), "{text}");
}

#[test]
fn messages_and_collectives_keep_out_of_each_others_way() {
    everywhere(4, 1024, |comm, rank| {
        let (n, rank) = (4u32, rank as u32);
        let mut data = comm.alloc::<f32>(3000).expect("memory");
        for round in 0..16u32 {
            data.fill(1.0);
            comm.all_reduce(&mut data, RedOp::Sum).expect("a sum");
            assert!(data.iter().all(|&x| x == 4.0));
            // Two ranks speak, others go on at once.
            let (a, b) = (round % n, (round / 2 + 1 + round % n) % n);
            if a != b && rank == a {
                comm.send(&[round; 300], b).expect("a send");
            } else if a != b && rank == b {
                let mut got = [0; 300];
                comm.recv(&mut got, a).expect("a receive");
                assert_eq!(got, [round; 300]);
            }
            if round % 3 == 0 {
                comm.barrier().expect("a barrier");
            }
            let mut word = [rank + round, 0];
            comm.broadcast(&mut word, round % n).expect("a broadcast");
            assert_eq!(word[0], round % n + round);
        }
    });
}

/// The others make no call at all, and still agree on the next collective.
#[test]
fn ranks_that_are_not_spoken_to_do_nothing() {
    threads(layout(3, 1024), |comm, rank| {
        for round in 0..500u32 {
            match rank {
                0 => comm.send(&[round], 2).expect("a send"),
                2 => {
                    let mut got = [0];
                    comm.recv(&mut got, 0).expect("a receive");
                    assert_eq!(got, [round]);
                }
                _ => {}
            }
        }
        let mut sum = [rank as u64];
        comm.all_reduce(&mut sum, RedOp::Sum).expect("a sum");
        assert_eq!(sum, [3]);
    });
}

#[test]
fn shapes_that_were_forgotten_are_made_again() {
    threads(layout(2, 1024), |comm, rank| {
        for round in 0..3 {
            for len in 0..100usize {
                match rank {
                    0 => comm.send(&vec![round; len], 1).expect("a send"),
                    _ => {
                        let mut got = vec![0; len];
                        comm.recv(&mut got, 0).expect("a receive");
                        assert_eq!(got, vec![round; len]);
                    }
                }
            }
        }
    });
}

#[test]
fn plans_leave_the_last_two_channels_alone() {
    let plans = two_shot(&header("all_reduce", "two_shot", 2, 2));
    threads(SegmentLayout { channels: 3, ..layout(2, 1024) }, |comm, rank| {
        let error = comm.run_in_place(&plans[rank], RedOp::Sum, &mut [1.0f32; 8]);
        assert_eq!(
            error.expect_err("too many channels").to_string(),
            "all_reduce.two_shot uses channel 1, and plans may use those below 1: schedule fewer \
             `channels`"
        );
        match rank {
            0 => comm.send(&[1u8], 1).expect("a send"),
            _ => comm.recv(&mut [0u8], 0).expect("a receive"),
        }
    });
}
