//! Calls in the background: gradients are summed while the next ones are computed. On the way, an
//! algorithm of one's own takes the place of the algorithm library's.
//!
//! `cargo run -p roundelay-examples --example 06_async`

use std::time::Duration;

use roundelay::{CallOptions, Communicator, Error, RedOp, WorkStatus};

const RING: &str = include_str!("01_ring.algo");

fn main() -> Result<(), Error> {
    let ranks = Communicator::local(2)?;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(|| rank(comm))).collect();
        ranks.into_iter().try_for_each(|r| r.join().expect("a rank panicked"))
    })
}

fn rank(mut comm: Communicator) -> Result<(), Error> {
    // Each layer's gradients go on their way as soon as they are there. The buffer moves into the
    // work, so no other code can touch it meanwhile, and comes back with the result.
    let mut pending = Vec::new();
    for layer in 0..4 {
        let mut gradients = comm.alloc::<f32>(10_000)?;
        gradients.fill(layer as f32 + comm.rank() as f32);
        pending.push(comm.all_reduce_async(gradients, RedOp::Avg));
    }
    for (layer, work) in pending.into_iter().enumerate() {
        let gradients = work.wait()?;
        assert!(gradients.iter().all(|&x| x == layer as f32 + 0.5));
    }

    // From here on the ring serves all_reduce: proved at this number of ranks, agreed by all of them.
    let ring = comm.load_text("01_ring.algo", RING)?;
    comm.install(&ring)?;

    // Any calls can be started together, with options of their own, and tell when they are done.
    let patient = CallOptions::new().timeout(Duration::from_secs(300));
    let work = comm.with(patient).start(|comm| {
        let mut loss = [0.25f64];
        comm.all_reduce(&mut loss, RedOp::Sum)?;
        comm.barrier()?;
        Ok(loss[0])
    });
    work.on_completion(|status| assert_eq!(status, WorkStatus::Completed));
    assert_eq!(work.wait()?, 0.5);
    Ok(())
}
