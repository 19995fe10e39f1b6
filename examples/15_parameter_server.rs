//! A parameter server on windows: workers pull the model, push gradients and count steps at the server, whose program
//! sleeps meanwhile. No worker waits for another one.
//!
//! Ranks are processes, each on a host of its own as far as they know, so what is put and got goes through sockets.
//!
//! `cargo run -p roundelay-examples --example 15_parameter_server`

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use roundelay::launch::RankLauncher;
use roundelay::window::Window;
use roundelay::{Communicator, Error, RedOp};

const WORKERS: u32 = 3;
const STEPS: u64 = 200;
const RATE: f32 = 0.02;
/// The weights that all workers' data was made by.
const TRUE: [f32; 4] = [1.5, -2.0, 0.25, 3.0];
const SERVER: u32 = 0;

fn main() -> Result<(), Error> {
    if Communicator::is_launched()? {
        return run_rank();
    }
    let program = std::env::current_exe().map_err(|e| Error::Start(e.to_string()))?;
    let launcher = RankLauncher::new(1 + WORKERS).hosts(1 + WORKERS).program(program);
    let outcome = launcher.run(|_rank, line| println!("{line}"))?;
    assert!(outcome.cause.is_none(), "{:?}", outcome.cause);
    Ok(())
}

fn run_rank() -> Result<(), Error> {
    let mut comm = Communicator::from_env()?;
    let weights = comm.window(comm.alloc::<f32>(TRUE.len())?)?;
    let steps = comm.window(comm.alloc::<u64>(1)?)?;
    if comm.rank() == SERVER {
        // Each worker signals when it is done; nothing else is asked of this program.
        (1..=WORKERS).try_for_each(|worker| weights.wait_signal(worker))?;
    } else {
        work(&weights, &steps, u64::from(comm.rank()))?;
    }
    let (weights, steps) = (weights.free(&mut comm)?, steps.free(&mut comm)?);
    if comm.rank() == SERVER {
        println!("after {} steps of {WORKERS} workers: {:.2?}", steps[0], &weights[..]);
        assert_eq!(steps[0], u64::from(WORKERS) * STEPS);
        assert!(weights.iter().zip(TRUE).all(|(a, b)| (a - b).abs() < 0.05), "{weights:?}");
    }
    Ok(())
}

fn work(weights: &Window<f32>, steps: &Window<u64>, seed: u64) -> Result<(), Error> {
    let mut dice = seed;
    let mut random = || {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let mut model = [0.0; TRUE.len()];
    for _ in 0..STEPS {
        weights.get(&mut model, SERVER, 0)?;
        let mut change = [0.0; TRUE.len()];
        for _ in 0..32 {
            let x = [random(), random(), random(), 1.0];
            let dot = |w: &[f32; 4]| -> f32 { w.iter().zip(x).map(|(w, x)| w * x).sum() };
            let error = dot(&model) - dot(&TRUE);
            change.iter_mut().zip(x).for_each(|(c, x)| *c -= RATE * error * x);
        }
        // Pushes of several workers are all added, whatever their order.
        weights.accumulate(&change, RedOp::Sum, SERVER, 0)?;
        steps.fetch_add(1, SERVER, 0)?;
    }
    weights.flush(SERVER)?;
    weights.signal(SERVER)
}
