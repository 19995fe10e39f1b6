//! The time of puts and gets of one rank at another that waits in a barrier: `tests/windows.sh` compares it with MPI.
//!
//! Prints `LABEL OPERATION BYTES MICROSECONDS` for each size; the time is the median of blocks of operations, each put
//! with its flush.

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::time::{Duration, Instant};

use roundelay::{Communicator, Error, Launcher};

const SIZES: [usize; 8] = [8, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20];
/// The time that is spent on each size and operation.
const TIME: Duration = Duration::from_millis(200);

fn main() -> Result<(), Error> {
    if Communicator::is_launched()? {
        return play();
    }
    let program = std::env::current_exe().map_err(|e| Error::Start(e.to_string()))?;
    let mut launcher = Launcher::new(2).program(program);
    if let Ok(transport) = std::env::var("TRANSPORT") {
        launcher = launcher.hints(format!("transport={transport}"));
    }
    let outcome = launcher.run(|_rank, line| println!("{line}"))?;
    assert!(outcome.cause.is_none(), "{:?}", outcome.cause);
    Ok(())
}

fn play() -> Result<(), Error> {
    let mut comm = Communicator::from_env()?;
    let label = std::env::var("LABEL").unwrap_or_else(|_| "roundelay".into());
    let most = SIZES[SIZES.len() - 1];
    let window = comm.window(comm.alloc::<u8>(most)?)?;
    comm.barrier()?;
    if comm.rank() == 0 {
        let mut data = vec![1u8; most];
        for bytes in SIZES {
            let us = median(|| window.put(&data[..bytes], 1, 0).and_then(|()| window.flush(1)))?;
            println!("{label} put {bytes} {us:.3}");
            let us = median(|| window.get(&mut data[..bytes], 1, 0))?;
            println!("{label} get {bytes} {us:.3}");
        }
    }
    comm.barrier()?;
    window.free(&mut comm).map(drop)
}

/// Returns the median of the times of blocks of calls, in microseconds a call.
fn median(mut call: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let began = Instant::now();
    (0..3).try_for_each(|_| call())?;
    // A block takes a twentieth of the time, or one call.
    let block = (TIME.as_secs_f64() / 20.0 / (began.elapsed().as_secs_f64() / 3.0)).max(1.0) as u32;
    let mut times = Vec::new();
    let until = Instant::now() + TIME;
    while times.len() < 5 || Instant::now() < until {
        let began = Instant::now();
        (0..block).try_for_each(|_| call())?;
        times.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(block));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
