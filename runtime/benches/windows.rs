//! The time of puts and gets of one rank at another that waits in a barrier: `tests/windows.sh` compares it with MPI.
//!
//! Prints `LABEL OPERATION BYTES MICROSECONDS` for each size; the time is the median of blocks of operations, each put
//! with its flush.

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

mod timing;

use std::time::Duration;

use roundelay::{Communicator, Error};
use timing::{SIZES, median, run_pair};

/// The time that is spent on each size and operation.
const TIME: Duration = Duration::from_millis(200);

fn main() -> Result<(), Error> {
    if Communicator::is_launched()? {
        return run();
    }
    run_pair(std::env::var("TRANSPORT").ok().as_deref())
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
