//! The time of a call, as the benchmarks of one-sided operations take it.

use std::time::{Duration, Instant};

use roundelay::Error;
use roundelay::launch::RankLauncher;

/// The lengths that are measured, in bytes.
pub(crate) const SIZES: [usize; 8] =
    [8, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20];

/// Returns the median of the times of blocks of calls, in microseconds a call, over so much time.
pub(crate) fn median(
    time: Duration,
    mut call: impl FnMut() -> Result<(), Error>,
) -> Result<f64, Error> {
    let began = Instant::now();
    (0..3).try_for_each(|_| call())?;
    // A block takes a twentieth of the time, or one call.
    let block = (time.as_secs_f64() / 20.0 / (began.elapsed().as_secs_f64() / 3.0)).max(1.0) as u32;
    let mut times = Vec::new();
    let until = Instant::now() + time;
    while times.len() < 5 || Instant::now() < until {
        let began = Instant::now();
        (0..block).try_for_each(|_| call())?;
        times.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(block));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Runs this program as two ranks, over a transport if one is named, and prints what they print.
pub(crate) fn run_pair(transport: Option<&str>) -> Result<(), Error> {
    let program = std::env::current_exe().map_err(|e| Error::Start(e.to_string()))?;
    let mut launcher = RankLauncher::new(2).program(program);
    if let Some(transport) = transport {
        launcher = launcher.hints(format!("transport={transport}"));
    }
    let outcome = launcher.run(|_rank, line| println!("{line}"))?;
    assert!(outcome.cause.is_none(), "{:?}", outcome.cause);
    Ok(())
}
