//! Tests links over memory that ranks share already, alone and beside connections.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::transport::shm::{RankPresence, SegmentLayout, ShmSegment};

/// Ranks with listeners, some of which share memory.
struct Ranks {
    listeners: Vec<Arc<RankListener>>,
    memory: Arc<ShmSegment>,
    /// The number of each rank in the memory, if it is there.
    numbers: Vec<Option<u32>>,
}

impl Ranks {
    /// Makes ranks of which these share memory, where they are numbered backwards.
    fn new(shares: &[bool]) -> Ranks {
        let all = shares.iter().filter(|shares| **shares).count() as u32;
        let layout =
            SegmentLayout { arena_bytes: 4096, slot_bytes: 64, ..SegmentLayout::new(all.max(1)) };
        let memory = ShmSegment::create(layout).expect("a small segment");
        (0..all.max(1)).for_each(|rank| memory.set_state(rank, RankPresence::Present));
        let mut left = all;
        let mut number = |shares: &bool| {
            left -= u32::from(*shares);
            shares.then_some(left)
        };
        let numbers = shares.iter().map(&mut number).collect();
        let listen = |_| {
            Arc::new(RankListener::open(options(), Ipv4Addr::LOCALHOST.into()).expect("opened"))
        };
        Ranks { listeners: shares.iter().map(listen).collect(), memory, numbers }
    }

    fn meet(&self, rank: usize, job: u128, timeout: Duration) -> Result<RankNetwork, Error> {
        let addresses: Vec<_> = self.listeners.iter().map(|l| l.addresses().to_vec()).collect();
        let others = self.numbers.iter().enumerate();
        let near = self.numbers[rank].map(|own| MemoryPeers {
            memory: self.memory.clone(),
            own,
            numbers: others.map(|(at, number)| number.filter(|_| at != rank)).collect(),
        });
        let generation = GenerationMembers {
            rank: rank as u32,
            size: self.listeners.len() as u32,
            names: (job, 7),
            what: "meet",
            addresses: &addresses,
            near,
        };
        let note = format!("note {rank}").into_bytes();
        let deadline = WaitPolicy { timeout, watch: &mut |_| None, members: &[] };
        RankNetwork::regroup(generation, &self.listeners[rank], note, deadline)
    }

    /// Joins these ranks, and runs a function on each.
    fn each<T: Send>(
        &self,
        who: impl Iterator<Item = usize>,
        body: impl Fn(usize) -> T + Sync,
    ) -> Vec<T> {
        std::thread::scope(|scope| {
            let body = &body;
            let threads: Vec<_> = who.map(|rank| scope.spawn(move || body(rank))).collect();
            threads.into_iter().map(|t| t.join().expect("a rank panicked")).collect()
        })
    }
}

#[test]
fn words_go_through_memory_where_there_is_some() {
    for shares in [
        vec![true; 2],
        vec![true; 13],
        vec![true, true, false, true, true, false, true],
        vec![false, true, true],
        vec![true, false, false],
    ] {
        let ranks = Ranks::new(&shares);
        // One after the other in the same memory.
        for job in [1 << 100, 1 << 99, 5] {
            ranks.each(0..shares.len(), |rank| {
                let mut net = ranks.meet(rank, job, PATIENCE).expect("met");
                let notes = net.endpoints().iter().map(|e| String::from_utf8_lossy(&e.note));
                let expected: Vec<String> =
                    (0..shares.len()).map(|rank| format!("note {rank}")).collect();
                assert_eq!(notes.collect::<Vec<_>>(), expected);
                for round in 1..20 {
                    check_words(&mut net, round);
                }
                let deadline = WaitPolicy { timeout: PATIENCE, watch: &mut |_| None, members: &[] };
                let all = net.all_words((rank as u64, 3), "meet", deadline).expect("words");
                assert_eq!(all, (0..shares.len() as u64).collect::<Vec<_>>());
                let counts = net.counts();
                let peers = overlay::neighbours(rank as u32, shares.len() as u32);
                let apart = peers.iter().filter(|&&p| !(shares[rank] && shares[p as usize]));
                assert_eq!(counts.links, apart.count() as u64);
                assert_eq!(counts.made + counts.accepted, counts.links);
                assert!(counts.bytes_in > 0);
                net.leave();
            });
        }
    }
}

/// One step has more bytes than fit: many ranks with long notes.
#[test]
fn long_messages_go_through_in_parts() {
    let ranks = Ranks::new(&[true; 9]);
    let heard_by = AtomicU32::new(0);
    let all = ranks.each(0..9, |rank| {
        let mut net = ranks.meet(rank, 77, PATIENCE).expect("met");
        let text = "long ".repeat(400);
        let record =
            AbortRecord { code: roundelay_dsl::diag::codes::TIMEOUT, rank: 4, text: text.clone() };
        if rank == 4 {
            (0..40)
                .for_each(|_| net.broadcast(&link_frame::LinkFrame::Gone(5, text.clone()), None));
            net.alarm(&record);
        }
        let alarm = until(&mut net, |net| net.alarmed().cloned());
        // A rank that leaves waits only a moment for what others have not read yet.
        heard_by.fetch_add(1, Ordering::Relaxed);
        until(&mut net, |_| (heard_by.load(Ordering::Relaxed) == 9).then_some(()));
        net.leave();
        alarm.text == text
    });
    assert_eq!(all, [true; 9]);
}

#[test]
fn names_that_differ_never_meet() {
    let ranks = Ranks::new(&[true; 3]);
    let short = Duration::from_millis(300);
    let met = std::sync::Barrier::new(3);
    let errors = ranks.each(0..3, |rank| {
        // The boards of an older attempt are still there.
        drop(ranks.meet(rank, 9, PATIENCE).expect("met"));
        met.wait();
        ranks
            .meet(rank, 10 + rank as u128 / 2, short)
            .err()
            .expect("no other rank comes")
            .to_string()
    });
    assert!(errors.iter().all(|error| error.contains("meet")), "{errors:?}");
    assert!(errors[2].contains("to go on"), "{errors:?}");
    // None of this is in the way of the next attempt.
    ranks.each(0..3, |rank| check_words(&mut ranks.meet(rank, 12, PATIENCE).expect("met"), 1));
}

#[test]
fn who_gives_up_says_why() {
    for shares in [[true; 4], [true, true, true, false]] {
        let ranks = Ranks::new(&shares);
        let errors = ranks.each(0..4, |rank| {
            let mut net = ranks.meet(rank, 20, PATIENCE).expect("met");
            check_words(&mut net, 1);
            if rank == 2 {
                net.give_up(&AbortRecord {
                    code: roundelay_dsl::diag::codes::START,
                    rank: 2,
                    text: "it has no memory".into(),
                });
                return String::new();
            }
            let deadline = WaitPolicy { timeout: PATIENCE, watch: &mut |_| None, members: &[] };
            let error = net.all_words((1, 1), "meet", deadline).expect_err("rank 2 gave up");
            net.leave();
            error.to_string()
        });
        let named = errors.iter().filter(|error| error.contains("it has no memory"));
        assert_eq!(named.count(), 3, "{errors:?}");
    }
}

/// A rank that cannot come is missed long before the deadline.
#[test]
fn who_has_left_is_not_waited_for() {
    let ranks = Ranks::new(&[true; 3]);
    ranks.memory.set_state(ranks.numbers[1].expect("shares"), RankPresence::Left);
    let start = Instant::now();
    let errors = ranks.each([0, 2].into_iter(), |rank| {
        ranks.meet(rank, 30, PATIENCE).err().expect("rank 1 has left").to_string()
    });
    assert!(start.elapsed() < PATIENCE / 2);
    assert!(errors.iter().any(|error| error.contains("it left the job")), "{errors:?}");
}
