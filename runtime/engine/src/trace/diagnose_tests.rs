//! Seeded scenarios: jobs that hang for a known reason.

use super::super::AwaitedEvent;
use super::*;

/// A small generator: the same scenarios every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 33) as u32 % n
    }
}

const CALL: u64 = 17;

fn wait(peer: u32, others: Vec<u32>) -> WaitDescription {
    WaitDescription {
        peer,
        others,
        channel: 0,
        what: AwaitedEvent::Message,
        call: CALL,
        digest: 170,
        step: 3,
        pass: 0,
        site: "ring.algo:6".into(),
        since: 1,
    }
}

fn standing(rank: u32, waiting: Option<WaitDescription>) -> RankStanding {
    let recent = (CALL - 3..=CALL)
        .map(|c| SeenCall { call: c, digest: 10 * c as u32, what: None })
        .collect();
    let pid = Some(1000 + rank as i32);
    RankStanding { rank, pid, condition: RankCondition::Running, calls: CALL, recent, waiting }
}

/// Makes all ranks wait, in a random tree whose root is one of them, and some for others beside.
fn waiting_for(random: &mut Random, root: u32, n: u32) -> Vec<RankStanding> {
    let mut order: Vec<u32> = (0..n).filter(|&r| r != root).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u32 + 1) as usize);
    }
    order.insert(0, root);
    let mut all: Vec<RankStanding> = vec![standing(root, None)];
    for (i, &rank) in order.iter().enumerate().skip(1) {
        let peer = order[random.below(i as u32) as usize];
        let others = (0..random.below(3)).map(|_| order[random.below(i as u32) as usize]);
        all.push(standing(rank, Some(wait(peer, others.collect()))));
    }
    all.sort_by_key(|s| s.rank);
    all
}

#[test]
fn the_culprit_is_named_in_500_scenarios() {
    for seed in 0..500 {
        let mut random = Random(seed);
        let n = 2 + random.below(15);
        let root = random.below(n);
        let mut all = waiting_for(&mut random, root, n);
        let culprit = &mut all[root as usize];
        let class = match random.below(8) {
            0 => {
                culprit.condition =
                    RankCondition::Died("signal 9 (SIGKILL) ended its process".into());
                CauseClass::Died
            }
            1 => {
                culprit.condition = RankCondition::Stopped;
                // It was stopped in a wait of its own.
                culprit.waiting = Some(wait((root + 1) % n, vec![]));
                CauseClass::Stopped
            }
            2 => {
                (culprit.condition, culprit.calls) = (RankCondition::Absent, 0);
                culprit.recent.clear();
                CauseClass::Absent
            }
            3 => {
                culprit.condition = RankCondition::Left;
                CauseClass::Left
            }
            4 => {
                culprit.calls = CALL - 1 - u64::from(random.below(3));
                culprit.recent.truncate((culprit.calls + 4 - CALL) as usize);
                CauseClass::Late
            }
            5 => CauseClass::Slow,
            6 => {
                culprit.recent[3].digest = 1;
                culprit.waiting = Some(wait((root + 1) % n, vec![]));
                CauseClass::Mismatch
            }
            _ => {
                // Close the cycle: the root waits for a rank that waits for it.
                let peers = (0..n).filter(|&r| r != root);
                let peer = peers.cycle().nth(random.below(n) as usize).expect("a peer");
                all[root as usize].waiting = Some(wait(peer, vec![]));
                CauseClass::Cycle
            }
        };
        let asking = (root + 1 + random.below(n - 1)) % n;
        for asking in [None, Some(asking)] {
            let verdict = diagnose(&all, asking).expect("a verdict");
            assert_eq!(verdict.class, class, "seed {seed}: {verdict}");
            match class {
                CauseClass::Mismatch if n == 2 => assert_eq!(verdict.ranks, [0, 1]),
                // Every circle there is goes through the root.
                CauseClass::Cycle => {
                    assert!(verdict.ranks.contains(&root), "seed {seed}: {verdict}");
                }
                _ => assert_eq!(verdict.ranks, [root], "seed {seed}: {verdict}"),
            }
            let others = n as usize - verdict.ranks.len();
            assert_eq!(verdict.waiters.len(), others, "seed {seed}: {verdict}");
            assert!(!verdict.cause.is_empty());
        }
    }
}

#[test]
fn of_several_dead_the_first_says_how() {
    let mut all = vec![standing(0, None), standing(1, None), standing(2, None)];
    for rank in [1, 2] {
        all[rank].condition = RankCondition::Died(format!("process {rank} no longer exists"));
    }
    let verdict = diagnose(&all, None).expect("a verdict");
    assert_eq!(verdict.class, CauseClass::Died);
    assert!(
        verdict.cause == "ranks 1 and 2 have died; of rank 1: process 1 no longer exists",
        "{verdict}"
    );
}

#[test]
fn a_ring_is_told_link_by_link() {
    let mut all: Vec<RankStanding> =
        (0..4).map(|r| standing(r, Some(wait((r + 3) % 4, vec![])))).collect();
    all[1].condition = RankCondition::Stopped;
    let verdict = diagnose(&all, Some(0)).expect("a verdict");
    assert_eq!(
        verdict.to_string(),
        "rank 1 is stopped: let its process go on with `kill -CONT 1001`; ranks 0, 2 and 3 wait for \
         it: rank 0 waits for rank 3 (call 17, step 3, ring.algo:6), which waits for rank 2 (call 17, \
         step 3, ring.algo:6), which waits for rank 1 (call 17, step 3, ring.algo:6)"
    );
    all[1].condition = RankCondition::Running;
    let verdict = diagnose(&all, Some(2)).expect("a verdict");
    assert_eq!((verdict.class, &verdict.ranks[..]), (CauseClass::Cycle, &[0, 3, 2, 1][..]));
    assert!(verdict.cause.starts_with("a cycle: rank 0 waits for rank 3 (call 17"), "{verdict}");
    assert!(verdict.cause.contains("waits for rank 0 (call 17"), "{verdict}");
}

#[test]
fn long_chains_are_told_in_part() {
    let all: Vec<RankStanding> =
        (0..100).map(|r| standing(r, (r > 0).then(|| wait(r - 1, vec![])))).collect();
    let verdict = diagnose(&all, Some(99)).expect("a verdict");
    assert_eq!((verdict.class, &verdict.ranks[..]), (CauseClass::Slow, &[0][..]));
    let text = verdict.to_string();
    assert!(text.contains("and so on over 91 more ranks to rank 4, which"), "{text}");
    assert!(text.contains("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 91 others wait for it"), "{text}");
    assert!(text.len() < 1200, "{text}");
}

#[test]
fn a_call_that_differs_is_told_from_both_sides() {
    let mut all: Vec<RankStanding> = (0..4).map(|r| standing(r, None)).collect();
    for (rank, s) in all.iter_mut().enumerate() {
        s.recent[3].what = Some(if rank == 2 { "barrier" } else { "all_reduce.ring" }.into());
    }
    assert_eq!(diagnose(&all, None), None);
    all[2].recent[3].digest = 1;
    let verdict = diagnose(&all, None).expect("a verdict");
    assert_eq!(
        verdict.to_string(),
        "call 17 is not the same on all ranks: rank 2 makes barrier, ranks 0, 1 and 3 make \
         all_reduce.ring"
    );
}

#[test]
fn a_lane_that_waits_elsewhere_is_no_cycle() {
    // 0 and 1 wait for each other, but 0 also for 2, which computes.
    let all = [
        standing(0, Some(wait(1, vec![2]))),
        standing(1, Some(wait(0, vec![]))),
        standing(2, None),
    ];
    let verdict = diagnose(&all, Some(1)).expect("a verdict");
    assert_eq!((verdict.class, &verdict.ranks[..]), (CauseClass::Slow, &[2][..]));
    // A rank that waits for itself alone.
    let verdict = diagnose(&[standing(0, Some(wait(0, vec![])))], Some(0)).expect("a verdict");
    assert_eq!((verdict.class, &verdict.ranks[..]), (CauseClass::Cycle, &[0][..]));
}

/// Rank 0 waits for rank 1, which has not reported which rank it waits for; rank 2 is known to be stopped.
#[test]
fn a_wait_that_leads_to_nothing_known_is_not_the_end() {
    let unknown = RankStanding { condition: RankCondition::Unknown, ..standing(1, None) };
    let stopped = RankStanding { condition: RankCondition::Stopped, ..standing(2, None) };
    let all = [standing(0, Some(wait(1, vec![]))), unknown, stopped];
    let verdict = diagnose(&all, Some(0)).expect("a verdict");
    assert_eq!((verdict.class, &verdict.ranks[..]), (CauseClass::Stopped, &[2][..]), "{verdict}");
    let verdict = diagnose(&all[..2], Some(0)).expect("a verdict");
    assert_eq!((verdict.class, &verdict.ranks[..]), (CauseClass::Unknown, &[1][..]), "{verdict}");
}
