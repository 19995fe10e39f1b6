//! Runs signals of windows of device memory: the protocol of `emit/cuda/window.cuh`, with the copies of a stream before
//! and behind it, on the weak memory. Then the same with one thing left out, which must show as an old value.

use std::rc::Rc;

use roundelay_tests::SeededRandom;

use super::memory::{At, Eye, Memory, View};
use super::setting;

/// Elements of a put, and parts of a window that take turns.
const LEN: usize = 3;
const TURNS: u64 = 2;
const ROUNDS: u64 = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    Release,
    Acquire,
    /// The second signal, which acknowledges to the origin that the turn before was read.
    Answer,
}

/// The steps of a rank's stream in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Put,
    Signal,
    Await,
    Read,
    Answer,
    AwaitAnswer,
}

const STEPS: [Step; 6] =
    [Step::Put, Step::Signal, Step::Await, Step::Read, Step::Answer, Step::AwaitAnswer];

/// A rank: a stream, in whose order everything that it does happens.
struct Rank {
    view: View,
    round: u64,
    step: usize,
}

/// Runs all rounds of n ranks in a ring; returns what is wrong.
fn run(n: usize, without: Without, seed: u64) -> Result<(), String> {
    let cells = 2 + TURNS as usize * LEN;
    let mut memory = Memory::new(n * cells);
    let mut dice = SeededRandom(seed);
    let mut ranks: Vec<Rank> =
        (0..n).map(|_| Rank { view: memory.view(), round: 1, step: 0 }).collect();
    let at = |rank: usize, cell: usize| (rank * cells + cell) as At;
    let data = |rank: usize, round: u64, k: usize| at(rank, 2 + (round % TURNS) as usize * LEN + k);
    let (mut idle, mut eye) = (0, Eye::Any);
    while let Some(first) = ranks.iter().position(|rank| rank.round <= ROUNDS) {
        let mut r = dice.below(n);
        if ranks[r].round > ROUNDS {
            r = first;
        }
        let (next, before) = ((r + 1) % n, (r + n - 1) % n);
        let Rank { view, round, step } = &mut ranks[r];
        let moved = match STEPS[*step] {
            Step::Put => {
                for k in 0..LEN {
                    memory.store(data(next, *round, k), *round * 10 + k as u64, view, &mut dice);
                }
                true
            }
            Step::Signal => {
                let released = (without != Without::Release).then(|| Rc::new(view.clone()));
                memory.tell(at(next, 0), *round, view, released);
                true
            }
            Step::Await => match without {
                Without::Acquire => memory.load(at(r, 0), view, &mut dice, eye) >= *round,
                _ => memory.acquire(at(r, 0), *round, view, &mut dice, eye) >= *round,
            },
            Step::Read => {
                for k in 0..LEN {
                    let seen = memory.load(data(r, *round, k), view, &mut dice, eye);
                    if seen != *round * 10 + k as u64 {
                        return Err(format!("rank {r}, round {round}: element {k} is {seen}"));
                    }
                }
                true
            }
            Step::Answer => {
                memory.tell(at(before, 1), *round, view, Some(Rc::new(view.clone())));
                true
            }
            Step::AwaitAnswer => {
                without == Without::Answer
                    || memory.acquire(at(r, 1), *round, view, &mut dice, eye) >= *round
            }
        };
        if !moved {
            idle += 1;
            // Everything is seen at last.
            eye = if idle > 300 { Eye::Newest } else { eye };
            if idle > 6000 {
                return Err("no rank can go on".into());
            }
            continue;
        }
        (idle, eye) = (0, Eye::Any);
        *step += 1;
        if *step == STEPS.len() {
            (*step, *round) = (0, *round + 1);
        }
    }
    Ok(())
}

#[test]
fn a_signal_is_seen_after_what_was_put() {
    let seed = setting("SEED", 1) * 100_000;
    for k in 0..200 * setting("RUNS", 1) {
        let n = 2 + (k % 3) as usize;
        assert_eq!(run(n, Without::Nothing, seed + k), Ok(()), "{n} ranks, seed {}", seed + k);
    }
}

#[test]
fn what_is_left_out_of_a_signal_shows() {
    // Of two ranks the other one's signal is an answer.
    for (n, without) in [(2, Without::Release), (2, Without::Acquire), (4, Without::Answer)] {
        let shows = (0..200).filter(|&seed| run(n, without, seed).is_err()).count();
        assert!(shows > 20, "without {without:?} only {shows} of 200 runs differ");
    }
}
