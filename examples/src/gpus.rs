//! Holds what the examples for several GPUs have in common: their ranks, and the times of two ways of doing the same.

use roundelay::cuda::{CudaGraph, CudaOptions, CudaStream, probe};
use roundelay::launch::RankLauncher;
use roundelay::{Communicator, Error, RedOp};

/// Graphs of each way that are launched before any is timed.
const WARMUP: usize = 3;

/// Runs `rank` in a process for each of 8, 4 or 2 GPUs, as many as there are; says why it skips where there is one, or
/// none.
///
/// # Errors
///
/// The errors of `rank`, and those of starting the processes.
#[expect(clippy::print_stdout, reason = "what its ranks print is the result of an example")]
pub fn run(rank: impl FnOnce(&mut Communicator) -> Result<(), Error>) -> Result<(), Error> {
    if Communicator::is_launched()? {
        let mut hosts = Communicator::from_env()?;
        return rank(&mut hosts.cuda(CudaOptions::default())?);
    }
    let gpus = match probe() {
        Ok(machine) => machine.devices.len() as u32,
        Err(why) => {
            println!("skipped, for there is no GPU to be used: {why}");
            return Ok(());
        }
    };
    let Some(ranks) = [8, 4, 2].into_iter().find(|&n| n <= gpus) else {
        println!("skipped, for there is one GPU: ranks that share it wait for each other in turns");
        return Ok(());
    };
    let program = std::env::current_exe().map_err(|e| Error::Start(e.to_string()))?;
    let outcome = RankLauncher::new(ranks).program(program).run(|_, line| println!("{line}"))?;
    match outcome.success() {
        true => Ok(()),
        false => Err(Error::Start(format!("a rank failed: {:?}", outcome.cause))),
    }
}

/// Launches a graph of each of two ways, one by one in turn, `turns` times. Returns the microseconds of a graph of
/// each: the median, of the slowest rank.
///
/// # Errors
///
/// The errors of the communicator.
pub fn times(
    comm: &mut Communicator,
    stream: &CudaStream,
    ways: &[CudaGraph; 2],
    turns: usize,
) -> Result<[f64; 2], Error> {
    let mut times = [Vec::new(), Vec::new()];
    for turn in 0..WARMUP + turns {
        for (way, times) in ways.iter().zip(&mut times) {
            comm.stream_barrier()?;
            let began = comm.work(stream)?;
            way.launch(stream)?;
            let ended = comm.work(stream)?;
            comm.wait(&ended)?;
            let mut time = [ended.since_us(&began)?];
            comm.all_reduce(&mut time, RedOp::Max)?;
            if turn >= WARMUP {
                times.push(time[0]);
            }
        }
    }
    Ok(times.map(median))
}

/// Returns the median of times, of which there is one at least.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Fails, as this rank, if something is not as it must be.
///
/// # Errors
///
/// [`Error::Usage`] that says `otherwise`.
pub fn must(comm: &Communicator, is_so: bool, otherwise: &str) -> Result<(), Error> {
    match is_so {
        true => Ok(()),
        false => Err(Error::Usage(format!("rank {}: {otherwise}", comm.rank()))),
    }
}
