//! A job on GPUs of which a rank is killed and replaced, again and again, while the other one goes on.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use roundelay::cuda::{CudaBuffer, CudaOptions};
use roundelay::launch::{JobSetup, RankHandles};
use roundelay::{Communicator, Error, RedOp};
use roundelay_dsl::diag::codes;
use roundelay_tests::{SeededRandom, test_arguments};
use rustix::process::{Signal, getpid, kill_process};

use crate::support::scene::{SCENE, say};

/// The longest that a call waits, and that a generation takes to be made.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Cycles before the resources are counted: what is made once has been made.
const FIRST: u64 = 3;
/// Bytes of a GPU's memory that may be missing in the end, as drivers keep some.
const KEPT: u64 = 64 << 20;
const COUNT: usize = 1 << 20;

/// The resources of this process: descriptors, threads, free bytes of the GPU.
fn held() -> ([usize; 2], u64) {
    let count = |what: &str| std::fs::read_dir(what).expect("a folder").count();
    // The context of a communicator goes with it.
    let context = cudarc::driver::CudaContext::new(0).expect("the GPU of the first rank");
    let (free, _) = context.mem_get_info().expect("it is current");
    drop(context);
    ([count("/proc/self/fd"), count("/proc/self/task")], free as u64)
}

/// Goes on through all cycles.
pub(crate) fn survivor() -> Result<(), Error> {
    let cycles = std::env::var("TEST_CYCLES").ok().and_then(|cycles| cycles.parse().ok());
    let last = FIRST + cycles.unwrap_or(3);
    let mut comm = Communicator::alone(&JobSetup::new())?;
    let (mut before, mut longest, mut made) = (None, Duration::ZERO, Duration::ZERO);
    for cycle in 0..last {
        let own = comm.handle()?;
        let (mut child, theirs) = start(&own, cycle);
        let began = Instant::now();
        comm.reconfigure(&format!("cycle {cycle}"), RankHandles::List(&[own, theirs]), TIMEOUT)?;
        made += began.elapsed();
        let error = calls(&mut comm, u64::MAX)?.expect("the other one is killed");
        let failed = Instant::now();
        assert_eq!(error.code(), codes::LOST_RANK, "{error}");
        assert!(error.to_string().contains("rank 1"), "{error}");
        assert!(!child.wait().expect("it ends").success());
        longest = longest.max(failed - began);
        if cycle + 1 == FIRST {
            before = Some(held());
        }
    }
    let (before, after) = (before.expect("some cycles"), held());
    say(&format!(
        "{} cycles: {before:?} became {after:?}; reconfigured in {:?} on average, a cycle took {longest:?} at most",
        last - FIRST,
        made / last as u32
    ));
    assert_eq!(before.0, after.0, "descriptors and threads");
    assert!(after.1 + KEPT >= before.1, "bytes of the GPU: {} became {}", before.1, after.1);
    Ok(())
}

/// Starts a newcomer; returns it with its handle.
fn start(own: &str, cycle: u64) -> (Child, String) {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(test_arguments(crate::cuda::MODULE, "rank_process"))
        .env(SCENE, "newcomer")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut to = child.stdin.take().expect("a pipe");
    writeln!(to, "{cycle} {own}").expect("it reads");
    let from = BufReader::new(child.stdout.take().expect("a pipe"));
    let lines = from.lines().map(|line| line.expect("text"));
    let handle = lines.filter_map(|line| line.strip_prefix("> handle ").map(str::to_owned)).next();
    (child, handle.expect("its handle"))
}

/// Joins, makes some calls and is killed: between two calls, or when its kernel has begun.
pub(crate) fn newcomer() -> Result<(), Error> {
    let mut comm = Communicator::alone(&JobSetup::new())?;
    let own = comm.handle()?;
    say(&format!("handle {own}"));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    let (cycle, theirs) = line.trim().split_once(' ').expect("a cycle and a handle");
    comm.reconfigure(&format!("cycle {cycle}"), RankHandles::List(&[theirs.into(), own]), TIMEOUT)?;
    let mut dice = SeededRandom(cycle.parse().expect("a number"));
    calls(&mut comm, 1 + dice.below(20) as u64)?;
    Ok(())
}

/// Opens the GPUs and makes at most `most` calls, of which the last is not waited for: then the process is killed.
/// Returns the error that ended them.
fn calls(comm: &mut Communicator, most: u64) -> Result<Option<Error>, Error> {
    comm.set_timeout(TIMEOUT);
    let mut gpu = comm.cuda(CudaOptions::default())?;
    let stream = gpu.stream()?;
    let mut buffer: CudaBuffer<f32> = gpu.alloc_device(COUNT)?;
    let (rank, n) = (gpu.rank(), gpu.size());
    for call in 0.. {
        if call == most && most.is_multiple_of(2) {
            kill_process(getpid(), Signal::KILL).expect("the end");
        }
        let value = |rank: u32| (rank + 1) as f32 + (call % 100) as f32;
        // Not by `?`: the survivor goes on.
        let outcome = (|| {
            buffer.copy_from(&vec![value(rank); COUNT])?;
            gpu.all_reduce(&mut buffer, RedOp::Sum)?;
            if call == most {
                kill_process(getpid(), Signal::KILL).expect("the end");
            }
            gpu.synchronize(&stream)
        })();
        if let Err(error) = outcome {
            return Ok(Some(error));
        }
        let mut content = vec![f32::NAN; COUNT];
        buffer.copy_to(&mut content)?;
        let wanted: f32 = (0..n).map(value).sum();
        assert!(content.iter().all(|&x| x == wanted), "call {call}: a wrong result");
    }
    Ok(None)
}
