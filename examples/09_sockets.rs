//! Ranks on several machines, tried out on one: shared memory inside a machine, TCP between them.
//!
//! `cargo run -p roundelay-examples --example 09_sockets`

use std::time::Duration;

use roundelay::launch::JobSetup;
use roundelay::transport::TransportSet;
use roundelay::{Communicator, Error, Hints, RedOp};

fn main() -> Result<(), Error> {
    // Ranks 0 and 1 believe to be on one machine, 2 and 3 on another. On real machines ranks join by
    // `Communicator::from_env`, which asks the launcher's variables and ROUNDELAY_HINTS.
    let hints = Hints::from_pairs([("channels", "2"), ("timeout", "10s")])?;
    let setup = |rank| {
        JobSetup::new()
            .hints(&hints)
            .host_label(format!("machine {}", rank / 2))
            .secret("only ours")
    };
    let ranks = Communicator::local_over(4, setup)?;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(|| rank(comm))).collect();
        ranks.into_iter().try_for_each(|r| r.join().expect("a rank panicked"))
    })
}

fn rank(mut comm: Communicator) -> Result<(), Error> {
    // Checks how each rank is reached, and prints why.
    for route in comm.routes() {
        let expected = match (route.rank == comm.rank(), route.rank / 2 == comm.rank() / 2) {
            (true, _) => TransportSet::NONE,
            (_, true) => TransportSet::SHM,
            (_, false) => TransportSet::TCP,
        };
        assert_eq!(route.transports, expected, "{}", route.why);
    }

    let mut data = comm.alloc::<f32>(100_000)?;
    data.fill(0.25);
    comm.all_reduce(&mut data, RedOp::Sum)?;
    assert!(data.iter().all(|&x| x == 1.0));

    // A wait ends after the timeout of the hint, or of the call.
    let soon = roundelay::CallOptions::new().timeout(Duration::from_secs(5));
    comm.with(soon).barrier()
}
