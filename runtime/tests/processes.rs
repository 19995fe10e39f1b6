//! Tests ranks as processes: real launches, and ends of all kinds; `conformance` has deaths within a call,
//! over every transport. Each test starts this same binary again, with [`rank_process`] as the only test and
//! a scene for it to run.

use std::time::Duration;

use crate::support::scene::{self, Job, say};
use crate::support::{contribution, header, patiently, ring, total, until_ended, until_stopped};
use roundelay::launch::{ProcessEnding, RankLauncher};
use roundelay::trace::{CauseClass, FlightDump, deadlock};
use roundelay::transport::SegmentLayout;
use roundelay::{Communicator, Error, RedOp};
use roundelay_compiler::plan::{CopyPolicy, PlanHeader};
use roundelay_dsl::diag::codes;
use rustix::process::{DumpableBehavior, Signal, getpid, kill_process, set_dumpable_behavior};
use rustix::thread::{CpuSet, sched_getaffinity};

const RANKS: u32 = 3;
/// No test comes near it unless something hangs.
const FOREVER: Duration = Duration::from_secs(60);

/// The variable with a file that is there once the launcher sees nothing.
const BLIND: &str = "TEST_BLIND";

/// Runs a rank of a launched job; not a test by itself.
#[test]
fn rank_process() {
    scene::rank(run);
}

fn run(scene: &str) -> Result<(), Error> {
    if scene == "file limit" {
        let limit = rustix::process::Rlimit { current: Some(1 << 20), maximum: None };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).expect("a limit");
        return Communicator::local(2).map(|_| ());
    }
    if scene == "bound" {
        say(&format!("{:?}", cores()));
    }
    let mut comm = Communicator::from_env()?;
    say(&format!("pid {}", getpid().as_raw_nonzero()));
    let (rank, n) = (comm.rank() as usize, comm.size());
    assert!(Communicator::from_env().is_err());
    if let Some(ill) = scene.strip_prefix("message ") {
        return messages(&mut comm, ill);
    }
    if scene == "crossed" {
        return crossed(comm);
    }
    if scene == "both end" {
        return both_end(&mut comm);
    }
    if scene == "unreadable" {
        return unreadable(&mut comm);
    }
    let plan = &ring(&header("all_reduce", "ring", n, n))[rank];
    let mut vector = comm.alloc::<f32>(100_000)?;
    for round in 0..20 {
        for (i, x) in vector.iter_mut().enumerate() {
            *x = contribution(rank, i, round);
        }
        let ill = rank == 1 && round == 10;
        match scene {
            "leaves" if ill => return Ok(()),
            "fails" if ill => std::process::exit(7),
            _ => {}
        }
        comm.run_in_place(plan, RedOp::Sum, &mut vector)?;
        assert!((0..vector.len()).all(|i| vector[i] == total(n as usize, i, round)));
    }
    Ok(())
}

/// Rank 1 makes a call of another communicator first, and all say what they have recorded.
fn crossed(mut comm: Communicator) -> Result<(), Error> {
    let ranks: &[u32] = if comm.rank() < 2 { &[0, 1] } else { &[] };
    let mut part = comm.split(ranks)?;
    let result = match part.as_mut().filter(|part| part.rank() == 1) {
        Some(part) => part.barrier(),
        None => comm.barrier(),
    };
    result.expect_err("the others are elsewhere");
    for comm in std::iter::once(&mut comm).chain(part.as_mut()) {
        let flight = comm.flight()?;
        say(&serde_json::to_string(&flight).expect("JSON"));
    }
    Ok(())
}

/// Rank 1 falls ill between two messages of a batch; rank 2 only waits for rank 0.
fn messages(comm: &mut Communicator, ill: &str) -> Result<(), Error> {
    let (mut a, mut b) = (vec![0u8; 100_000], [0u8; 9]);
    let pids = comm.all_gather_u64(getpid().as_raw_nonzero().get() as u64)?;
    if comm.rank() == 2 {
        // Whose wait would otherwise end first.
        if ill == "stopped" {
            until_stopped(pids[1]);
        }
        return comm.recv(&mut b, 0);
    }
    if comm.rank() == 0 {
        let mut batch = comm.batch();
        batch.recv(&mut a, 1).recv(&mut b, 1);
        return batch.run(comm).map(drop);
    }
    comm.send(&a, 0)?;
    let signal = if ill == "killed" { Signal::KILL } else { Signal::STOP };
    kill_process(getpid(), signal).expect("a signal");
    // It may come a little later.
    loop {
        std::thread::park();
    }
}

/// The number of a user without rights.
const UNPRIVILEGED: u32 = 65_534;

/// Rank 1 has the system hide its memory in the third round, as programs do that change their user or guard secrets.
fn unreadable(comm: &mut Communicator) -> Result<(), Error> {
    // The superuser could read it all the same. All threads change, of which the first is the one that peers ask.
    if rustix::process::getuid().is_root() {
        // SAFETY: it changes credentials, and no memory.
        assert_eq!(unsafe { libc::setuid(UNPRIVILEGED) }, 0);
        set_dumpable_behavior(DumpableBehavior::Dumpable).expect("a memory that may be read");
    }
    let (rank, n) = (comm.rank() as usize, comm.size());
    let direct = PlanHeader { protocol: CopyPolicy::Direct, ..header("all_reduce", "ring", n, n) };
    let plan = &ring(&direct)[rank];
    let messages = comm.messages()?;
    for round in 0..4 {
        let long = vec![round as u8; 1 << 20];
        let offered = match rank {
            1 => Some(messages.send_async(long.clone(), 0, 1)?),
            _ => None,
        };
        if rank == 1 && round == 2 {
            set_dumpable_behavior(DumpableBehavior::NotDumpable).expect("a hidden memory");
        }
        comm.barrier()?;
        if rank == 0 {
            let mut came = vec![255u8; long.len()];
            messages.recv(&mut came, 1, 1)?;
            assert!(came == long);
        }
        if let Some(offered) = offered {
            offered.wait()?;
        }
        let mut vector: Vec<f32> = (0..400_000).map(|i| contribution(rank, i, round)).collect();
        let stats = comm.run_in_place(plan, RedOp::Sum, &mut vector)?;
        assert!((0..vector.len()).all(|i| vector[i] == total(n as usize, i, round)));
        say(&format!("{}", stats.pulled));
    }
    Ok(())
}

/// Ends two ranks while the launcher sees nothing: one is killed, then the one before it ends with a status.
fn both_end(comm: &mut Communicator) -> Result<(), Error> {
    let pids = comm.all_gather_u64(getpid().as_raw_nonzero().get() as u64)?;
    let blind = std::env::var(BLIND).expect("a file");
    match comm.rank() {
        0 => until_ended(pids[1]),
        _ => {
            while !std::fs::exists(&blind).expect("a folder") {
                std::thread::yield_now();
            }
            kill_process(getpid(), Signal::KILL).expect("a signal");
        }
    }
    std::process::exit(3);
}

/// Returns the cores that this process may use.
fn cores() -> Vec<usize> {
    let set = sched_getaffinity(None).expect("what it may use");
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

fn launch(name: &str, timeout: Duration) -> Job {
    // One that is stopped does not end by itself.
    let grace = if name.ends_with("stopped") { Duration::from_secs(4) } else { FOREVER };
    let launcher = RankLauncher::new(RANKS).timeout(timeout).grace(grace);
    Job::run(scene::scene(launcher, module_path!(), name))
}

#[test]
fn processes_share_memory() {
    let job = launch("well", FOREVER);
    assert!(job.outcome.success(), "{:?} {:?}", job.outcome, job.said);
    assert_eq!(job.outcome.cause, None);
}

#[test]
fn the_killed_rank_is_the_cause_though_others_are_seen_to_end_with_it() {
    let folder = std::env::temp_dir().join(format!("roundelay-blind-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    let blind = folder.join("blind");
    let launcher = RankLauncher::new(2).timeout(FOREVER).grace(FOREVER);
    let launcher = scene::scene(launcher, module_path!(), "both end");
    let outcome = launcher.env(BLIND, blind.display().to_string()).run(|rank, line| {
        if let (0, Some(pid)) = (rank, line.strip_prefix("> pid ")) {
            std::fs::write(&blind, "").expect("a file");
            until_ended(pid.parse().expect("a number"));
        }
    });
    std::fs::remove_dir_all(&folder).expect("the folder");
    let outcome = outcome.expect("a launch");
    assert_eq!(outcome.endings, [ProcessEnding::Exited(3), ProcessEnding::Signalled(9)]);
    assert_eq!(outcome.cause.as_deref(), Some("rank 1: signal 9 (SIGKILL) ended its process"));
}

#[test]
fn ranks_are_bound_to_cores_in_turn_if_that_is_wished() {
    let cores = cores();
    // More than there are cores; and a ring has two.
    let ranks = (2 * cores.len().min(8) as u32 - 1).max(2);
    for pin in [true, false] {
        let launcher = RankLauncher::new(ranks).timeout(FOREVER).pin(pin);
        let job = Job::run(scene::scene(launcher, module_path!(), "bound"));
        assert!(job.outcome.success(), "{:?} {:?}", job.outcome, job.said);
        for (rank, said) in job.said.iter().enumerate() {
            let one = [cores[rank % cores.len()]];
            let allowed = if pin { &one } else { &cores[..] };
            assert_eq!(said[0], format!("{allowed:?}"), "rank {rank}");
        }
    }
}

#[test]
fn a_rank_that_leaves_or_fails_is_named() {
    let job = launch("leaves", FOREVER);
    assert_eq!(job.outcome.endings[1], ProcessEnding::Exited(0));
    for rank in [0, 2] {
        assert!(job.said[rank][1].starts_with("RL0704 rank 1 is gone: "), "{:?}", job.said);
    }
    let job = launch("fails", FOREVER);
    assert_eq!(job.outcome.endings[1], ProcessEnding::Exited(7));
    for rank in [0, 2] {
        assert!(job.said[rank][1].starts_with("RL0704 rank 1 is gone: "), "{:?}", job.said);
    }
}

#[test]
fn a_rank_that_ends_or_stops_between_messages_is_named() {
    let place = "rank 0, batch, step 1 (`receive 9 bytes (9 x u8) from rank 1`)";
    // Rank 0 may hear of the end before it comes to wait.
    let found = (0..8).any(|_| {
        let job = launch("message killed", FOREVER);
        assert!(job.took < FOREVER / 2, "{:?}", job.took);
        assert_eq!(job.outcome.endings[1], ProcessEnding::Signalled(9));
        for rank in [0, 2] {
            let text = &job.said[rank][1];
            assert!(text.starts_with("RL0704 rank 1 is gone: "), "{text}");
        }
        job.said[0][1].ends_with(place)
    });
    assert!(found, "in eight runs rank 0 never says where it waited");

    let job = launch("message stopped", Duration::from_secs(2));
    assert_eq!(job.outcome.endings[1], ProcessEnding::Killed);
    let first = job.said[0][1].starts_with(&format!("RL0703 {place}: waited 2s for a message"));
    // Rank 2 waits for rank 0, began to do so earlier, and may say so first.
    let second = job.said[2][1].starts_with("RL0703 rank 2, recv, step 0 (`receive 9 bytes");
    assert!(first || second, "{:?}", job.said);
    let named = [0, 2].iter().all(|&r: &usize| job.said[r][1].contains("rank 1 is stopped: let"));
    assert!(named, "{:?}", job.said);
}

#[test]
fn calls_of_two_communicators_in_different_orders_are_a_deadlock() {
    patiently(|timeout| {
        let job = launch("crossed", timeout);
        let said = job.said.iter().flatten().filter(|line| line.starts_with('{'));
        let flights: Vec<FlightDump> =
            said.map(|line| serde_json::from_str(line).expect("a flight recorder")).collect();
        let verdict = deadlock(&flights).ok_or_else(|| format!("no verdict: {:?}", job.said))?;
        assert_eq!(verdict.class, CauseClass::Deadlock);
        // Either communicator by itself would blame the rank that is elsewhere.
        let whole: Vec<FlightDump> =
            flights.into_iter().filter(|flight| flight.ranks == RANKS).collect();
        assert_eq!(deadlock(&whole), None);
        let cause = &verdict.cause;
        match cause.contains("waits in call")
            && cause.matches("rank 1 of communicator").count() == 1
        {
            true => Ok(()),
            false => Err(verdict.to_string()),
        }
    });
}

#[test]
fn a_limit_on_file_sizes_is_an_error_not_a_signal() {
    let job = launch("file limit", FOREVER);
    for rank in 0..RANKS as usize {
        assert_eq!(job.outcome.endings[rank], ProcessEnding::Exited(3));
        assert!(job.said[rank][0].starts_with("RL0705 no room for the shared file"));
        assert!(job.said[rank][0].contains("ulimit -f"));
    }
}

#[test]
fn a_rank_whose_memory_is_hidden_sends_what_was_read() {
    let job = launch("unreadable", FOREVER);
    assert!(job.outcome.success(), "{:?}", job.said);
    // The first line has the process, and in the first round no rank knows yet that others would read.
    let pulled: u64 = job.said[1][2].parse().expect("a number");
    assert!(pulled > 0, "nothing was read before it was hidden: {:?}", job.said);
}

#[test]
fn a_program_that_does_not_exist_is_an_error() {
    let error = RankLauncher::new(2).program("/nonexistent/program").run(|_, _| {});
    assert_eq!(error.expect_err("no program").code(), codes::START);
    let layout = SegmentLayout { slot_bytes: 1, ..SegmentLayout::new(2) };
    assert!(RankLauncher::new(2).layout(layout).run(|_, _| {}).is_err());
}

#[test]
fn a_process_that_was_not_launched_is_told() {
    let error = Communicator::from_env().expect_err("no job").to_string();
    assert!(error.contains("ROUNDELAY_SHM_FD is not set"), "{error}");
}
