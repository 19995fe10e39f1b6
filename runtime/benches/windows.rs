//! The time of puts and gets of one rank at another that waits in a barrier: `tests/windows.sh` compares it with MPI.
//!
//! Prints `LABEL OPERATION BYTES MICROSECONDS` for each size; the time is the median of blocks of operations, each put
//! with its flush.

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

mod timing;

use std::time::Duration;

use roundelay::launch::RankLauncher;
use roundelay::{Communicator, Error};
use timing::{SIZES, median};

/// The time that is spent on each size and operation.
const TIME: Duration = Duration::from_millis(200);

fn main() -> Result<(), Error> {
    if Communicator::is_launched()? {
        return run();
    }
    let program = std::env::current_exe().map_err(|e| Error::Start(e.to_string()))?;
    let mut launcher = RankLauncher::new(2).program(program);
    if let Ok(transport) = std::env::var("TRANSPORT") {
        launcher = launcher.hints(format!("transport={transport}"));
    }
    let outcome = launcher.run(|_rank, line| println!("{line}"))?;
    assert!(outcome.cause.is_none(), "{:?}", outcome.cause);
    Ok(())
}

fn run() -> Result<(), Error> {
    let mut comm = Communicator::from_env()?;
    let label = std::env::var("LABEL").unwrap_or_else(|_| "roundelay".into());
    let most = SIZES[SIZES.len() - 1];
    let window = comm.window(comm.alloc::<u8>(most)?)?;
    comm.barrier()?;
    if comm.rank() == 0 {
        let mut data = vec![1u8; most];
        for bytes in SIZES {
            let us =
                median(TIME, || window.put(&data[..bytes], 1, 0).and_then(|()| window.flush(1)))?;
            println!("{label} put {bytes} {us:.3}");
            let us = median(TIME, || window.get(&mut data[..bytes], 1, 0))?;
            println!("{label} get {bytes} {us:.3}");
        }
    }
    comm.barrier()?;
    window.free(&mut comm).map(drop)
}
