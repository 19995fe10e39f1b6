//! An algorithm of one's own: loaded from a file, run, installed, and replaced while the job runs.
//!
//! `cargo run -p roundelay-examples --example 08_own_algorithm`

use std::path::Path;

use roundelay::{Communicator, Error, RedOp};

/// Everyone sends all to everyone, who adds in the order of the ranks.
const FLAT: &str = "
algorithm flat implements all_reduce on n ranks {
    each r { for p in 0..n where p != r { r -> p : reduce data } }
}
";

fn main() -> Result<(), Error> {
    let ranks = Communicator::local(3)?;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(|| rank(comm))).collect();
        ranks.into_iter().try_for_each(|r| r.join().expect("a rank panicked"))
    })
}

fn rank(mut comm: Communicator) -> Result<(), Error> {
    let mut data = comm.alloc::<f32>(1000)?;

    // Read now, proved at this number of ranks when it first runs. A wrong text is an error
    // here or there, on every rank, with the line that is wrong.
    let ring = comm.load(Path::new(env!("CARGO_MANIFEST_DIR")).join("01_ring.algo"))?;
    data.fill(1.0);
    comm.run_algorithm(&ring, &mut data, RedOp::Sum)?;
    assert!(data.iter().all(|&x| x == 3.0));

    // Installed, it serves every all_reduce of this communicator. All ranks agree on that first: if
    // their texts differ, all get an error and nothing has changed.
    comm.install(&ring)?;
    comm.all_reduce(&mut data, RedOp::Sum)?;
    assert!(data.iter().all(|&x| x == 9.0));

    // Another takes its place between two calls.
    let flat = comm.load_text("flat.algo", FLAT)?;
    comm.install(&flat)?;
    comm.all_reduce(&mut data, RedOp::Max)?;
    assert!(data.iter().all(|&x| x == 9.0));

    // And the algorithm library's are chosen again.
    assert!(comm.uninstall("all_reduce")?);
    comm.all_reduce(&mut data, RedOp::Avg)?;
    assert!(data.iter().all(|&x| x == 9.0));

    // A wrong algorithm moves nothing, and the communicator stays usable.
    let wrong = comm.load_text("wrong.algo", &FLAT.replace("p != r", "p > r"))?;
    let refused = comm.run_algorithm(&wrong, &mut data, RedOp::Sum).expect_err("ranks are missing");
    assert!(refused.to_string().contains("RL0501"), "{refused}");
    comm.barrier()
}
