//! The latency of calls of 8 bytes between two ranks that are threads of this process.
//!
//!     cargo bench -p roundelay --bench eight_bytes

use divan::{Bencher, Divan};
use roundelay::{Communicator, Error, RedOp};

/// The value with which rank 0 calls, and the one with which it ends the calls of rank 1.
const GO_ON: u64 = 0;
const LAST: u64 = 1;

/// Calls of a sample: one call alone is as short as what a busy machine puts between two.
const CALLS: u32 = 1000;

fn main() {
    Divan::from_args().main();
}

/// Measures calls of rank 0 while rank 1 makes as many; `call` passes a value of rank 0 to both ranks.
fn measure(bencher: Bencher<'_, '_>, call: fn(&mut Communicator, u64) -> Result<u64, Error>) {
    let mut ranks = Communicator::local(2).expect("shared memory");
    let (mut second, mut first) = (ranks.remove(1), ranks.remove(0));
    std::thread::scope(|scope| {
        scope.spawn(move || while call(&mut second, 0).expect("a call of rank 1") == GO_ON {});
        bencher.bench_local(|| call(&mut first, GO_ON).expect("a call of rank 0"));
        call(&mut first, LAST).expect("the last call");
    });
}

#[divan::bench(sample_size = CALLS)]
fn all_reduce(bencher: Bencher<'_, '_>) {
    measure(bencher, |comm, value| {
        let mut data = [value];
        comm.all_reduce(&mut data[..], RedOp::Sum)?;
        Ok(data[0])
    });
}

#[divan::bench(sample_size = CALLS)]
fn all_gather(bencher: Bencher<'_, '_>) {
    measure(bencher, |comm, value| {
        let mut data = [0; 2];
        comm.all_gather(&mut data[..], &[value][..])?;
        Ok(data[0])
    });
}
