//! Ranks as processes: real launches, and real deaths. Each test starts this same binary again, with
//! [`rank_process`] as the only test and a scene for it to play.

mod support;

use std::io::Write;
use std::time::{Duration, Instant};

use roundelay::{Communicator, Ending, Error, Launcher, Layout, Outcome, RedOp};
use roundelay_dsl::diag::codes;
use rustix::process::{Pid, Signal, getpid, kill_process};
use support::{contribution, header, ring, total};

const SCENE: &str = "TEST_SCENE";
const RANKS: u32 = 3;
/// No test comes near it unless something hangs.
const FOREVER: Duration = Duration::from_secs(60);

/// Not a test by itself: what each rank of a launched job does.
#[test]
fn rank_process() {
    let Ok(scene) = std::env::var(SCENE) else { return };
    let status = match play(&scene) {
        Ok(()) => 0,
        Err(error) => {
            say(&format!("{} {error}", error.code()));
            3
        }
    };
    std::process::exit(status);
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n> {text}").and_then(|()| out.flush()).expect("standard output");
}

fn play(scene: &str) -> Result<(), Error> {
    if scene == "file limit" {
        let limit = rustix::process::Rlimit { current: Some(1 << 20), maximum: None };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).expect("a limit");
        return Communicator::local(2).map(|_| ());
    }
    let mut comm = Communicator::from_env()?;
    say(&format!("pid {}", getpid().as_raw_nonzero()));
    let (rank, n) = (comm.rank() as usize, comm.size());
    assert!(Communicator::from_env().is_err());
    if let Some(ill) = scene.strip_prefix("message ") {
        return messages(&mut comm, ill);
    }
    let plan = &ring(&header("all_reduce", "ring", n, n))[rank];
    let mut vector = comm.alloc::<f32>(100_000)?;
    for round in 0..20 {
        for (i, x) in vector.iter_mut().enumerate() {
            *x = contribution(rank, i, round);
        }
        let ill = rank == 1 && round == 10;
        match scene {
            "killed" if ill => kill_process(getpid(), Signal::KILL).expect("the end"),
            "stopped" if ill => kill_process(getpid(), Signal::STOP).expect("a pause"),
            "leaves" if ill => return Ok(()),
            "fails" if ill => std::process::exit(7),
            _ => {}
        }
        let began = Instant::now();
        comm.run_in_place(plan, RedOp::Sum, &mut vector).inspect_err(|_| {
            say(&format!("waited {}", began.elapsed().as_millis()));
        })?;
        assert!((0..vector.len()).all(|i| vector[i] == total(n as usize, i, round)));
    }
    Ok(())
}

/// Rank 1 falls ill between two messages of a batch; rank 2 only waits for rank 0.
fn messages(comm: &mut Communicator, ill: &str) -> Result<(), Error> {
    let (mut a, mut b) = (vec![0u8; 100_000], [0u8; 9]);
    if comm.rank() == 2 {
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

struct Job {
    outcome: Outcome,
    said: Vec<Vec<String>>,
    took: Duration,
}

fn launch(scene: &str, timeout: Duration) -> Job {
    let began = Instant::now();
    let mut said = vec![Vec::new(); RANKS as usize];
    let outcome = Launcher::new(RANKS)
        .args(["--exact", "rank_process", "--nocapture", "--test-threads=1"])
        .env(SCENE, scene)
        .timeout(timeout)
        .grace(Duration::from_secs(1))
        .run(|rank, line| {
            if let Some(text) = line.strip_prefix("> ") {
                said[rank as usize].push(text.to_owned());
            }
        })
        .expect("a launch");
    for pid in said.iter().filter_map(|s| s.first()?.strip_prefix("pid ")?.parse().ok()) {
        let pid = Pid::from_raw(pid).expect("a process");
        assert!(rustix::process::test_kill_process(pid).is_err(), "{pid:?} is left behind");
    }
    Job { outcome, said, took: began.elapsed() }
}

#[test]
fn processes_share_memory() {
    let job = launch("well", FOREVER);
    assert!(job.outcome.success(), "{:?} {:?}", job.outcome, job.said);
    assert_eq!(job.outcome.cause, None);
}

#[test]
fn a_killed_rank_is_named_long_before_the_deadline() {
    let job = launch("killed", FOREVER);
    assert!(job.took < FOREVER / 2, "{:?}", job.took);
    assert_eq!(job.outcome.endings[1], Ending::Signalled(9));
    assert_eq!(job.outcome.cause.as_deref(), Some("rank 1: signal 9 (SIGKILL) ended its process"));
    for rank in [0, 2] {
        assert_eq!(job.outcome.endings[rank], Ending::Exited(3));
        let text = &job.said[rank][2];
        assert!(text.starts_with("RL0704 rank 1 is gone: "), "{text}");
        assert!(text.contains("all_reduce.ring") && text.contains("hand.algo:"), "{text}");
    }
}

#[test]
fn a_stopped_rank_is_named_at_the_deadline_and_ended() {
    let job = launch("stopped", Duration::from_millis(400));
    assert!(job.took < FOREVER / 2, "{:?}", job.took);
    assert_eq!(job.outcome.endings[1], Ending::Killed);
    let texts = [&job.said[0][2], &job.said[2][2]];
    for text in texts {
        assert!(text.starts_with("RL0703 "), "{text}");
        assert!(text.contains("all_reduce.ring, step ") && text.contains("hand.algo:"), "{text}");
    }
    for said in [&job.said[0][1], &job.said[2][1]] {
        let waited: u64 = said.strip_prefix("waited ").expect("a time").parse().expect("a number");
        assert!(waited <= 1400, "{waited} ms");
    }
    assert!(texts.iter().all(|t| t.contains("ranks 0 and 2 wait for it")), "{texts:?}");
    let named = texts.iter().all(|t| t.contains("rank 1 is stopped: let its process go on"));
    assert!(named, "{texts:?}");
}

#[test]
fn a_rank_that_leaves_or_fails_is_named() {
    let job = launch("leaves", FOREVER);
    assert_eq!(job.outcome.endings[1], Ending::Exited(0));
    for rank in [0, 2] {
        assert!(job.said[rank][2].starts_with("RL0704 rank 1 is gone: "), "{:?}", job.said);
    }
    let job = launch("fails", FOREVER);
    assert_eq!(job.outcome.endings[1], Ending::Exited(7));
    for rank in [0, 2] {
        assert!(job.said[rank][2].starts_with("RL0704 rank 1 is gone: "), "{:?}", job.said);
    }
}

#[test]
fn a_rank_that_ends_or_stops_between_messages_is_named() {
    let place = "rank 0, batch, step 1 (`receive 9 bytes (9 x u8) from rank 1`)";
    let job = launch("message killed", FOREVER);
    assert!(job.took < FOREVER / 2, "{:?}", job.took);
    assert_eq!(job.outcome.endings[1], Ending::Signalled(9));
    let text = &job.said[0][1];
    assert!(text.starts_with("RL0704 rank 1 is gone: ") && text.ends_with(place), "{text}");
    let text = &job.said[2][1];
    assert!(text.starts_with("RL0704 rank 1 is gone: "), "{text}");

    let job = launch("message stopped", Duration::from_millis(400));
    assert_eq!(job.outcome.endings[1], Ending::Killed);
    let first = job.said[0][1].starts_with(&format!("RL0703 {place}: waited 400ms for a message"));
    // Rank 2 waits for rank 0, began to do so earlier, and may say so first.
    let second = job.said[2][1].starts_with("RL0703 rank 2, recv, step 0 (`receive 9 bytes");
    assert!(first || second, "{:?}", job.said);
    let named = [0, 2].iter().all(|&r: &usize| job.said[r][1].contains("rank 1 is stopped: let"));
    assert!(named, "{:?}", job.said);
}

#[test]
fn a_limit_on_file_sizes_is_an_error_not_a_signal() {
    let job = launch("file limit", FOREVER);
    for rank in 0..RANKS as usize {
        assert_eq!(job.outcome.endings[rank], Ending::Exited(3));
        assert!(job.said[rank][0].starts_with("RL0705 no room for the shared file"));
        assert!(job.said[rank][0].contains("ulimit -f"));
    }
}

#[test]
fn a_program_that_does_not_exist_is_an_error() {
    let error = Launcher::new(2).program("/nonexistent/program").run(|_, _| {});
    assert_eq!(error.expect_err("no program").code(), codes::START);
    let layout = Layout { slot_bytes: 1, ..Layout::new(2) };
    assert!(Launcher::new(2).layout(layout).run(|_, _| {}).is_err());
}

#[test]
fn a_process_that_was_not_launched_is_told() {
    let error = Communicator::from_env().expect_err("no job").to_string();
    assert!(error.contains("ROUNDELAY_SHM_FD is not set"), "{error}");
}
