//! Ranks as threads of one process: collectives by name, and an algorithm of one's own.
//!
//! `cargo run -p roundelay-examples --example 04_threads`

use roundelay::plan::plan_of;
use roundelay::{Communicator, Error, RedOp};
use roundelay_compiler::{BufferPlacement, CompileOptions, Shape};

const RING: &str = include_str!("01_ring.algo");

fn main() -> Result<(), Error> {
    let ranks = Communicator::local(4)?;
    let sums = std::thread::scope(|scope| {
        let ranks: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(|| rank(comm))).collect();
        ranks.into_iter().map(|r| r.join().expect("a rank panicked")).collect::<Result<Vec<_>, _>>()
    })?;
    assert_eq!(sums, [20.0; 4]);
    Ok(())
}

fn rank(mut comm: Communicator) -> Result<f32, Error> {
    // Memory of the communicator is read by the other ranks in place.
    let mut data = comm.alloc::<f32>(1 << 16)?;
    data.fill(comm.rank() as f32 + 1.0);

    // An algorithm of the library, chosen by size: 1 + 2 + 3 + 4 everywhere.
    comm.all_reduce(&mut data, RedOp::Sum)?;

    // One's own: proved here, at this number of ranks, before anything moves.
    let shape = Shape::flat(comm.size());
    let options = CompileOptions::default();
    let plan =
        plan_of("01_ring.algo", RING, &shape, &options, BufferPlacement::InPlace, comm.rank())?;
    comm.run_in_place(&plan, RedOp::Max, &mut data)?;
    comm.run_in_place(&plan, RedOp::Avg, &mut data)?;
    Ok(data[0] * 2.0)
}
