//! Training that goes on without a worker, and takes in another: local SGD over processes of which one is killed.
//!
//! Each worker makes some steps of its own and then averages its model with the others. When one is killed the others
//! make a new generation and go on; its successor joins later, and is sent the model. The parent process only starts
//! and kills workers and says who is to be there; a folder is the store.
//!
//! `cargo run -p roundelay-examples --example 11_elastic`

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use roundelay::launch::{JobSetup, RankHandles};
use roundelay::{Communicator, Error, RedOp};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Rounds of a generation before the parent changes something.
const ROUNDS: u64 = 20;
const WEIGHTS: [f32; 4] = [1.5, -2.0, 0.25, 3.0];

fn main() {
    match std::env::var("WORKER") {
        Ok(name) => worker(&name).expect("a worker that was not killed"),
        Err(_) => supervise(),
    }
}

/// Starts three workers, kills one, and starts another.
fn supervise() {
    let folder = std::env::temp_dir().join(format!("roundelay-elastic-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let notes = Notes(folder.clone());
    let mut workers: Vec<(String, Child)> = Vec::new();
    let start = |workers: &mut Vec<(String, Child)>, name: &str, generation: u64| {
        let child = Command::new(std::env::current_exe().expect("this program"))
            .env("WORKER", name)
            .env("NOTES", &folder)
            .env("GENERATION", generation.to_string())
            .spawn()
            .expect("a process");
        workers.push((name.into(), child));
    };
    for name in ["ada", "ben", "cleo"] {
        start(&mut workers, name, 1);
    }
    generation(&notes, 1, &workers);
    // No notification is sent: the others detect it in their next call.
    let (name, mut killed) = workers.remove(1);
    killed.kill().and_then(|()| killed.wait()).expect("its end");
    println!("killed {name}");
    notes.get("failed 2");
    generation(&notes, 2, &workers);
    // Workers that are well are asked to make room for one more.
    start(&mut workers, "dan", 3);
    generation(&notes, 3, &workers);
    notes.set("end", "");
    for (name, mut worker) in workers {
        assert!(worker.wait().expect("its end").success(), "{name} failed");
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// Names the workers of a generation, and waits until it has trained for a while.
fn generation(notes: &Notes, number: u64, workers: &[(String, Child)]) {
    let names: Vec<&str> = workers.iter().map(|(name, _)| &**name).collect();
    notes.set(&format!("members {number}"), &names.join(" "));
    println!(
        "generation {number}: {}; loss {}",
        names.join(", "),
        notes.get(&format!("loss {number}"))
    );
}

fn worker(name: &str) -> Result<(), Error> {
    let notes = Notes(std::env::var_os("NOTES").expect("the parent's folder").into());
    let mut number: u64 = std::env::var("GENERATION").expect("a number").parse().expect("a number");
    let mut comm = Communicator::alone(&JobSetup::from_env()?)?;
    let (mut model, mut round) = ([0.0f32; 4], 0u64);
    loop {
        let members = notes.get(&format!("members {number}"));
        notes.set(&format!("handle {number} {name}"), &comm.handle()?);
        let handle = |member| notes.get(&format!("handle {number} {member}"));
        let handles: Vec<String> = members.split(' ').map(handle).collect();
        comm.reconfigure(&number.to_string(), RankHandles::List(&handles), TIMEOUT)?;
        // Rank 0 has been there before, and gives the others its model and its round.
        let mut rounds = [round];
        comm.broadcast(&mut rounds, 0)?;
        comm.broadcast(&mut model, 0)?;
        round = rounds[0];
        number += 1;
        match train(&mut comm, &notes, number, &mut model, &mut round) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => {
                println!("{name}: {error}");
                notes.set(&format!("failed {number}"), "");
            }
        }
    }
}

/// Trains until a call fails, the members of the next generation are named, or all is done: then it returns true.
fn train(
    comm: &mut Communicator,
    notes: &Notes,
    next: u64,
    model: &mut [f32; 4],
    round: &mut u64,
) -> Result<bool, Error> {
    let first = *round;
    loop {
        let mut mine = *model;
        let mut loss = 0.0;
        for step in 0..50 {
            loss = descend(&mut mine, 1000 * *round + 50 * u64::from(comm.rank()) + step);
        }
        comm.all_reduce(&mut mine, RedOp::Avg)?;
        *model = mine;
        *round += 1;
        if comm.rank() == 0 && *round == first + ROUNDS {
            notes.set(&format!("loss {}", next - 1), &format!("{loss:.1e}"));
        }
        // All ranks decide alike whether to go on: as rank 0 sees it.
        let mut wish = [0u8];
        if comm.rank() == 0 {
            let changes = notes.find(&format!("members {next}")).is_some();
            wish[0] = u8::from(changes) + 2 * u8::from(notes.find("end").is_some());
        }
        comm.broadcast(&mut wish, 0)?;
        match wish[0] {
            0 => {}
            1 => return Ok(false),
            _ => return Ok(true),
        }
    }
}

/// Makes a step towards the weights that explain a sample; returns the loss before it.
fn descend(model: &mut [f32; 4], seed: u64) -> f32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let x: [f32; 4] = std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    });
    let dot = |w: &[f32; 4]| w.iter().zip(&x).map(|(w, x)| w * x).sum::<f32>();
    let error = dot(model) - dot(&WEIGHTS);
    model.iter_mut().zip(&x).for_each(|(w, x)| *w -= 0.05 * error * x);
    error * error
}

/// A store: notes in a folder.
struct Notes(PathBuf);

impl Notes {
    fn at(&self, key: &str) -> PathBuf {
        Path::new(&self.0).join(key)
    }

    fn set(&self, key: &str, text: &str) {
        let draft = self.at(&format!("{key} {}", std::process::id()));
        std::fs::write(&draft, text).expect("a note");
        std::fs::rename(draft, self.at(key)).expect("a note");
    }

    fn find(&self, key: &str) -> Option<String> {
        std::fs::read_to_string(self.at(key)).ok()
    }

    fn get(&self, key: &str) -> String {
        let until = Instant::now() + 2 * TIMEOUT;
        loop {
            if let Some(text) = self.find(key) {
                return text;
            }
            assert!(Instant::now() < until, "there is no note `{key}`");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
