//! Tests ends that come in the middle: of a thread's call, and of whole processes.

use std::time::{Duration, Instant};

use roundelay::launch::{ProcessEnding, RankLauncher};
use roundelay::transport::Transport;
use roundelay::{Communicator, Error, RedOp};
use roundelay_dsl::diag::codes;
use rustix::process::{Signal, getpid, kill_process};

use crate::conformance::{Over, threads};
use crate::support::scene::{self, Job, say};
use crate::support::{barrier, contribution, header, ring, total, until_stopped};

/// The timeout of ranks that need not wait for the deadline: no test comes near it, however busy the machine
/// is, unless something hangs.
const FOREVER: Duration = Duration::from_secs(600);
/// The timeout of ranks that wait for one that is stopped: all of them begin to wait within it.
const SHORT: Duration = Duration::from_secs(2);
/// The time that the others have to end after the first has.
const GRACE: Duration = Duration::from_secs(60);
const RANKS: u32 = 4;

/// Three ranks move a lot, the fourth calls something else in between: all hear of it at once.
pub(crate) fn abort(over: Over) {
    let plans = over.spread(&ring(&header("all_reduce", "ring", RANKS, RANKS)), 0);
    let other = barrier(RANKS);
    let began = Instant::now();
    let errors = threads(over, RANKS, 64 << 10, |comm, rank| {
        comm.set_timeout(FOREVER);
        let mut vector = vec![1.0f32; 4 << 20];
        comm.run_in_place(&plans[rank], RedOp::Sum, &mut vector).expect("a run");
        // A rank that has all it needs for the barrier may hear of the end before it looks again.
        let met = comm.run_in_place(&other[rank], RedOp::Sum, &mut [0u8; 1]);
        met.and_then(|_| match rank {
            3 => comm.run_in_place(&other[3], RedOp::Sum, &mut [0u8; 1]),
            _ => comm.run_in_place(&plans[rank], RedOp::Sum, &mut vector),
        })
        .expect_err("one differs")
    });
    assert!(began.elapsed() < FOREVER, "it took the deadline");
    for error in errors {
        assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}");
    }
}

/// Runs a rank of a launched job; not a test by itself.
#[test]
fn rank_process() {
    scene::rank(run);
}

/// Runs a scene: an ending, and what the job goes over.
fn run(scene: &str) -> Result<(), Error> {
    let (scene, over) = scene.split_once(' ').expect("two words");
    let paths = [Over::Paths, Over::EncryptedPaths, Over::RdmaTcp, Over::TwoRdma];
    // Others have no paths, and plans as they are.
    let over = paths
        .into_iter()
        .find(|known| format!("{known:?}") == over)
        .unwrap_or(Over::One(Transport::Shm));
    let mut comm = Communicator::from_env()?;
    say(&format!("pid {}", getpid().as_raw_nonzero()));
    let rank = comm.rank() as usize;
    let pids = comm.all_gather_u64(getpid().as_raw_nonzero().get() as u64)?;
    let plan = &over.spread(&ring(&header("all_reduce", "ring", RANKS, RANKS)), 0)[rank];
    let mut vector = vec![0f32; 250_000];
    for round in 0..20 {
        for (i, x) in vector.iter_mut().enumerate() {
            *x = contribution(rank, i, round);
        }
        if rank == 1 && round == 10 {
            let signal = if scene == "killed" { Signal::KILL } else { Signal::STOP };
            kill_process(getpid(), signal).expect("an end");
        } else if scene == "stopped" && round == 10 {
            until_stopped(pids[1]);
            comm.set_timeout(SHORT);
        }
        comm.run_in_place(plan, RedOp::Sum, &mut vector)?;
        assert!((0..vector.len()).all(|i| vector[i] == total(RANKS as usize, i, round)));
    }
    Ok(())
}

fn launch(over: Over, name: &str, grace: Duration) -> Job {
    let launcher = RankLauncher::new(RANKS).hosts(over.hosts()).hints(over.hints());
    let launcher = launcher.timeout(FOREVER).grace(grace);
    Job::run(scene::scene(launcher, module_path!(), &format!("{name} {over:?}")))
}

pub(crate) fn killed(over: Over) {
    let Job { outcome, said, took } = launch(over, "killed", GRACE);
    assert!(took < FOREVER, "it took the deadline: {said:?}");
    assert_eq!(outcome.endings[1], ProcessEnding::Signalled(9), "{said:?}");
    // Over sockets the others may notice before the launcher does.
    let cause = Some("rank 1: signal 9 (SIGKILL) ended its process");
    assert!(over != Over::One(Transport::Shm) || outcome.cause.as_deref() == cause, "{outcome:?}");
    for rank in [0, 2, 3] {
        assert_eq!(outcome.endings[rank], ProcessEnding::Exited(3), "{said:?}");
        let text = &said[rank][1];
        assert!(text.starts_with("RL0704 rank 1 is gone: "), "{over:?}: {text}");
        assert!(text.contains("all_reduce.ring") && text.contains("hand.algo:"), "{text}");
    }
}

pub(crate) fn stopped(over: Over) {
    // The one that is stopped does not end by itself.
    let Job { outcome, said, .. } = launch(over, "stopped", 2 * SHORT);
    assert_eq!(outcome.endings[1], ProcessEnding::Killed, "{said:?}");
    for rank in [0, 2, 3] {
        let text = &said[rank][1];
        assert!(text.starts_with("RL0703 "), "{over:?}: {text}");
        assert!(text.contains("all_reduce.ring, step ") && text.contains("hand.algo:"), "{text}");
        assert!(text.contains("waited 2s for "), "not the deadline that was set: {text}");
        // No rank of another machine can see that.
        let words = "rank 1 is stopped: let its process go on";
        assert!(matches!(over, Over::Mixed(_)) || text.contains(words), "{over:?}: {text}");
    }
    let all_wait = |text: &String| text.contains("ranks 0, 2 and 3 wait for it");
    assert!(
        over != Over::One(Transport::Shm) || said.iter().flatten().any(all_wait),
        "{over:?}: {said:?}"
    );
    // The first rank whose deadline is over reports for all: it waits for rank 1, or for another that does.
    let names = |text: &String| {
        ["from rank 1", "for rank 1", "rank 1 is stopped"].iter().any(|words| text.contains(words))
    };
    let named = said.iter().any(|s| s.iter().any(names));
    assert!(named, "{over:?}: {said:?}");
}
