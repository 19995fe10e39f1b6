//! Tests calls that go on when a rank fails: processes are killed at random moments of a call, and the survivors must
//! have one result, of the same ranks. A stopped process must not be taken for an ended one.
//!
//! The moments are random, the jobs are not: `SEED` repeats one. `ROUNDS` sets how many are run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::support::scene::{self, say};
use roundelay::launch::{JobSetup, ProcessEnding, RankLauncher};
use roundelay::transport::TransportSet;
use roundelay::{Communicator, Error, RedOp};
use roundelay_dsl::diag::codes;
use rustix::process::{Pid, Signal, getpid, kill_process};

/// No wait comes near it unless something hangs.
const FOREVER: Duration = Duration::from_secs(60);
/// The longest wait for a rank that is stopped.
const SHORT: Duration = Duration::from_secs(3);
/// Calls after the ranks have shrunk.
const AFTER: u64 = 3;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns a number that looks random.
fn random(seed: u64) -> u64 {
    let x = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A job with one rank that is hit.
#[derive(Debug, Clone, Copy)]
struct Job {
    seed: u64,
    ranks: u32,
    victim: u32,
    /// The call after whose beginning the victim is hit, and the time from there.
    call: u64,
    later: Duration,
    /// Elements of the vector.
    count: usize,
    /// True if the victim ends where that call would begin.
    before: bool,
}

impl Job {
    fn of(seed: u64) -> Job {
        let below = |salt: u64, end: u64| random(seed.wrapping_mul(31).wrapping_add(salt)) % end;
        let ranks = 3 + below(1, 4) as u32;
        Job {
            seed,
            ranks,
            victim: below(2, ranks.into()) as u32,
            call: 5 + below(3, 40),
            later: Duration::from_nanos(below(4, 4_000_000) >> below(7, 10)),
            count: [1, 700, 40_000, 200_000][below(5, 4) as usize],
            before: below(6, 4) == 0,
        }
    }
}

/// Returns the contribution of a rank to a call; sums are exact.
fn contribution(rank: u32, call: u64, i: usize) -> f64 {
    f64::from(1u32 << rank) * (1 + call % 5) as f64 + (i % 3) as f64
}

#[test]
fn rank_process() {
    scene::rank(run);
}

fn run(scene: &str) -> Result<(), Error> {
    let job = Job::of(scene.split(' ').next_back().and_then(|s| s.parse().ok()).expect("a seed"));
    let signal = if scene.starts_with("stop") { Signal::STOP } else { Signal::KILL };
    let goes_on = scene.starts_with("kill");
    let mut comm = Communicator::from_env()?;
    let (own, all) = (comm.rank(), comm.size());
    say(&format!("pid {}", getpid().as_raw_nonzero()));
    comm.set_timeout(FOREVER);
    comm.barrier()?;
    if scene.starts_with("stop") {
        comm.set_timeout(SHORT);
    }
    // Calls that this rank has begun.
    let began = Arc::new(AtomicU64::new(0));
    if own == job.victim && !job.before {
        let began = began.clone();
        std::thread::spawn(move || {
            while began.load(Ordering::Acquire) <= job.call {
                std::hint::spin_loop();
            }
            let at = Instant::now();
            while at.elapsed() < job.later {
                std::hint::spin_loop();
            }
            kill_process(getpid(), signal).expect("this process");
        });
    }
    let (mut ids, mut call, mut left): (Vec<u32>, _, _) = ((0..all).collect(), 0, AFTER);
    while left > 0 {
        let mut data: Vec<f64> = (0..job.count).map(|i| contribution(own, call, i)).collect();
        if own == job.victim && job.before && call == job.call {
            kill_process(getpid(), signal).expect("this process");
        }
        began.store(call + 1, Ordering::Release);
        match comm.tolerant_all_reduce(&mut data, RedOp::Sum) {
            Ok(counted) => {
                let ranks: Vec<u32> = counted.iter().map(|&rank| ids[rank as usize]).collect();
                for (i, sum) in data.iter().enumerate() {
                    let wanted: f64 = ranks.iter().map(|&r| contribution(r, call, i)).sum();
                    assert_eq!(*sum, wanted, "call {call}, element {i}, of {ranks:?}");
                }
                say(&format!("call {call} counts {ranks:?}"));
                call += 1;
                left -= u64::from(comm.size() < all);
                if counted.len() == ids.len() {
                    continue;
                }
            }
            Err(error) if !goes_on => return Err(error),
            Err(error) => assert_eq!(error.code(), codes::LOST_RANK, "{error}"),
        }
        // Those that were not counted are gone; one that was may be, too.
        comm.shrink(FOREVER)?;
        let mut numbers = vec![0u32; comm.size() as usize];
        numbers[comm.rank() as usize] = own;
        comm.all_reduce(&mut numbers, RedOp::Sum)?;
        ids = numbers;
    }
    Ok(())
}

fn launcher(job: &Job, over: &str, scene: &str) -> RankLauncher {
    let launcher = match over {
        "tcp" => RankLauncher::new(job.ranks).hints("transport=tcp"),
        "hosts" => RankLauncher::new(job.ranks).hosts(2),
        "a host each" => RankLauncher::new(job.ranks).hosts(job.ranks),
        _ => RankLauncher::new(job.ranks),
    };
    let launcher = launcher.timeout(FOREVER).grace(FOREVER);
    scene::scene(launcher, module_path!(), &format!("{scene} {}", job.seed))
}

/// Has all survivors say the same of each call; returns the ranks that each call counted.
fn agreed(job: &Job, said: &[Vec<String>]) -> BTreeMap<String, String> {
    let mut calls: BTreeMap<String, String> = BTreeMap::new();
    for (rank, lines) in said.iter().enumerate() {
        for (call, ranks) in lines.iter().filter_map(|line| line.split_once(" counts ")) {
            let first = calls.entry(call.to_owned()).or_insert_with(|| ranks.to_owned());
            assert_eq!(first, ranks, "{job:?}: {call} of rank {rank}: {said:#?}");
        }
    }
    calls
}

/// Checks that the victim was killed, and that all others ended with that status.
fn assert_endings(job: &Job, over: &str, ended: &scene::Job, status: i32) {
    for (rank, ending) in (0..).zip(&ended.outcome.endings) {
        let wanted = match rank == job.victim {
            true => ProcessEnding::Signalled(Signal::KILL.as_raw()),
            false => ProcessEnding::Exited(status),
        };
        assert_eq!(*ending, wanted, "{job:?} over {over}: {:#?}", ended.said);
    }
}

#[test]
fn survivors_of_a_kill_have_one_result() {
    let first = number("SEED").unwrap_or(1);
    let (mut counted, mut left_out) = (0, 0);
    for round in 0..number("ROUNDS").unwrap_or(18) {
        let mut job = Job::of(first + round);
        let over = ["shm", "tcp", "hosts"][(round % 3) as usize];
        // Whichever rank ends, another one of its host sees it.
        job.ranks = if over == "hosts" { job.ranks.max(4) } else { job.ranks };
        let ended = scene::Job::run(launcher(&job, over, "kill"));
        assert_endings(&job, over, &ended, 0);
        // The victim's own lines are compared, too: it may have returned before it was hit.
        let calls = agreed(&job, &ended.said);
        let all = format!("{:?}", (0..job.ranks).collect::<Vec<u32>>());
        let others: Vec<u32> = (0..job.ranks).filter(|&rank| rank != job.victim).collect();
        let others = format!("{others:?}");
        assert!(
            calls.values().all(|ranks| *ranks == all || *ranks == others),
            "{job:?}: {calls:?}"
        );
        assert!(calls.len() as u64 >= job.call + AFTER, "{job:?}: {calls:?}");
        // The call that it had begun, or was about to.
        let returned = ended.said[job.victim as usize].iter().filter(|l| l.contains(" counts "));
        let hit = calls.get(&format!("call {}", returned.count()));
        assert!(!job.before || hit == Some(&others), "{job:?} over {over}: {:#?}", ended.said);
        match hit {
            Some(ranks) if *ranks == all => counted += 1,
            _ => left_out += 1,
        }
    }
    // Of the jobs that are run by default some end in the one way, and some in the other.
    let is_default = number("SEED").is_none() && number("ROUNDS").is_none();
    assert!(!is_default || counted > 0 && left_out > 0, "{counted} counted, {left_out} left out");
}

/// A silent rank may go on: the call fails, and no rank has a result without it.
#[test]
fn a_stopped_rank_is_not_left_out() {
    for over in ["shm", "tcp", "hosts"] {
        let job = Job::of(number("SEED").unwrap_or(7));
        let launcher = launcher(&job, over, "stop");
        let (mut pid, mut failed) = (None, 0);
        let mut said = vec![Vec::new(); job.ranks as usize];
        let outcome = launcher.run(|rank, line| {
            let Some(line) = line.strip_prefix("> ") else { return };
            match line.strip_prefix("pid ") {
                Some(text) if rank == job.victim => pid = text.parse().ok().and_then(Pid::from_raw),
                Some(_) => {}
                None => said[rank as usize].push(line.to_owned()),
            }
            failed += u32::from(rank != job.victim && line.starts_with("RL"));
            if failed == job.ranks - 1 {
                kill_process(pid.expect("its number"), Signal::CONT).expect("the stopped rank");
                failed = 0;
            }
        });
        let outcome = outcome.expect("a launch");
        assert!(
            outcome.endings.iter().all(|&ending| ending == ProcessEnding::Exited(3)),
            "{said:#?}"
        );
        let calls = agreed(&job, &said);
        let all = format!("{:?}", (0..job.ranks).collect::<Vec<u32>>());
        assert!(calls.values().all(|ranks| *ranks == all), "{over}: {calls:?}");
        let timed_out = |lines: &Vec<String>| lines.iter().any(|line| line.starts_with("RL0703"));
        assert!(said.iter().any(timed_out), "{over}: {said:#?}");
    }
}

/// No rank knows of one alone on its host that it has ended, though all connections to it have: the call fails.
#[test]
fn a_rank_whose_end_nobody_saw_is_not_left_out() {
    let job = Job::of(number("SEED").unwrap_or(7));
    let over = "a host each";
    let ended = scene::Job::run(launcher(&job, over, "lose"));
    assert_endings(&job, over, &ended, 3);
    let calls = agreed(&job, &ended.said);
    let all = format!("{:?}", (0..job.ranks).collect::<Vec<u32>>());
    assert!(calls.values().all(|ranks| *ranks == all), "{calls:?}");
    // It may have ended after its part of a call was done: then the next one fails, for that reason.
    let gone = format!("rank {} is gone", job.victim);
    let is_lost = |lines: &Vec<String>| lines.iter().any(|line| line.contains(&gone));
    assert!(ended.said.iter().any(is_lost), "{:#?}", ended.said);
}

/// Has every rank do something at the same time.
fn each<T: Send>(
    ranks: &mut [Communicator],
    body: impl Fn(&mut Communicator) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> =
            ranks.iter_mut().map(|comm| scope.spawn(move || body(comm))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn without_a_failure_it_is_an_all_reduce() {
    for n in [1u32, 2, 5, 8] {
        let tcp = |_| JobSetup::new().transports(TransportSet::TCP);
        for ranks in [Communicator::local(n), Communicator::local_over(n, tcp)] {
            let mut ranks = ranks.expect("ranks");
            for call in 0..3 {
                for count in [0usize, 1, 5, 30_000] {
                    let sums = each(&mut ranks, |comm| {
                        let mut data = vec![comm.rank() as f32 + 0.1; count];
                        let mut plain = data.clone();
                        let counted = comm.tolerant_all_reduce(&mut data, RedOp::Avg)?;
                        comm.with(
                            roundelay::CallOptions::new()
                                .hints("algorithm=tolerant".parse::<roundelay::Hints>()?),
                        )
                        .all_reduce(&mut plain, RedOp::Avg)?;
                        assert_eq!(data, plain, "the same order of additions");
                        Ok::<_, Error>((counted, data))
                    });
                    for sum in sums {
                        let (counted, data) = sum.unwrap_or_else(|e| panic!("{n}, {call}: {e}"));
                        assert_eq!(counted, (0..n).collect::<Vec<u32>>());
                        assert_eq!(data.len(), count);
                    }
                }
            }
        }
    }
}

#[test]
fn what_cannot_be_run_is_refused_and_harms_nothing() {
    let mut ranks = Communicator::local(9).expect("ranks");
    let refused = each(&mut ranks, |comm| comm.tolerant_all_reduce(&mut [1u32], RedOp::Sum));
    for refused in refused {
        assert_eq!(refused.expect_err("nine").code(), codes::REQUIRES);
    }
    each(&mut ranks, |comm| comm.barrier().expect("nothing was harmed"));
    let mut ranks = Communicator::local(3).expect("ranks");
    let hasty = include_str!("../../tests/suite/RL0507_one_round.algo");
    each(&mut ranks, |comm| {
        let hasty = comm.load_text("hasty.algo", hasty).expect("a text");
        let refused = comm.run_tolerant(&hasty, &mut [1u32], RedOp::Sum).expect_err("refuted");
        assert_eq!(refused.code(), codes::DISAGREE, "{refused}");
        let plain = comm.algorithm("all_reduce", "ring").expect("the library's");
        let refused = comm.run_tolerant(&plain, &mut [1u32], RedOp::Sum).expect_err("no clause");
        assert_eq!(refused.code(), codes::FAILURES, "{refused}");
        let refused = comm.tolerant_all_reduce(&mut [1u32], RedOp::PremulSum);
        assert_eq!(refused.expect_err("a factor").code(), codes::UNSUPPORTED);
        let refused = comm.run_algorithm(&hasty, &mut [1u32], RedOp::Sum).expect_err("refuted");
        assert_eq!(refused.code(), codes::DISAGREE, "{refused}");
        comm.barrier().expect("nothing was harmed");
    });
}

/// Ranks in different calls fail, as in any call.
#[test]
fn ranks_that_make_another_call_are_told() {
    let mut ranks = Communicator::local(3).expect("ranks");
    let together = Barrier::new(3);
    let errors = each(&mut ranks, |comm| {
        comm.set_timeout(FOREVER);
        together.wait();
        match comm.rank() {
            1 => comm.tolerant_all_reduce(&mut [1u32, 2], RedOp::Sum),
            _ => comm.tolerant_all_reduce(&mut [1u32], RedOp::Sum),
        }
    });
    for error in errors {
        assert_eq!(error.expect_err("another length").code(), codes::PLAN_MISMATCH);
    }
}
