//! Names the cause of a fault: the one place of a refuted program that, changed a little, makes it right.
//!
//! A fault shows far from where it was made: a loop that is one turn short is seen in the last place
//! that lacks something. So small changes to the program are tried at a few small shapes, one at a time:
//! a number one more or less, another operator, a condition turned round, a statement left out or
//! swapped with the next. The first that is proved at all of these shapes names the expression or the
//! statement, and becomes the primary place of the finding; what was the primary place becomes the
//! second. A verdict never changes, the work is bounded by counts, and no clock is read.
//!
//! `edits` lists the changes and makes them.

mod edits;

use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostics, Label, codes};

use crate::graph;
use crate::instance::{Instance, Options};
use crate::num::wide;
use crate::program::Program;
use crate::shape::Shape;
use edits::Edit;

/// No trial may move more chunks than this.
const MOST_MOVES: u64 = 20_000;

/// The most work of all trials together: steps, chunk moves, ranks and places of the text.
const MOST_WORK: u64 = 1_500_000;

/// Returns the finding with the guilty place first, if it can be told.
pub fn sharpen(
    program: &Arc<Program>,
    shape: &Shape,
    options: &Options,
    mut found: Diagnostics,
) -> Diagnostics {
    let Some(first) = found.first_mut() else { return found };
    if !first.code.0.starts_with("RL04") && !first.code.0.starts_with("RL05") {
        return found;
    }
    if let Some(edit) = repair(program, shape, options) {
        let label = Label { span: edit.span, text: edit.text };
        first.labels.retain(|l| l.span != edit.span);
        if let Some(seen) = first.labels.first_mut()
            && seen.text.is_empty()
        {
            seen.text = "seen here".into();
        }
        first.labels.insert(0, label);
    }
    found
}

/// Returns the changed program that is right, if there is one.
fn repair(program: &Arc<Program>, shape: &Shape, options: &Options) -> Option<Edit> {
    let trials = trials(program, shape, options);
    let edits = edits::all(program);
    let mut work = Work { left: MOST_WORK, text: TEXT * wide(edits.len()) };
    let faulty = trials.iter().position(|t| work.proves(program, t) == Some(false))?;
    for edit in edits {
        if work.left == 0 {
            break;
        }
        let changed = Arc::new(edit.made(program));
        // The shape that shows the fault comes first: it refuses nearly all.
        if work.proves(&changed, &trials[faulty]) == Some(true) && work.holds(&changed, &trials) {
            return Some(edit);
        }
    }
    None
}

/// A shape and what else a trial depends on.
type Trial = (Shape, Options);

/// Returns small shapes, and the one at hand if it is small, too.
fn trials(program: &Program, shape: &Shape, options: &Options) -> Vec<Trial> {
    let mut shapes = match program.axes.names.len() {
        1 => [2, 3, 4, 5, 8].map(Shape::flat).to_vec(),
        2 => [[2, 2], [2, 3], [3, 2]].map(|axes| Shape { axes: axes.to_vec() }).to_vec(),
        _ => Vec::new(),
    };
    if shape.ranks() <= 16 && !shapes.contains(shape) {
        shapes.insert(0, shape.clone());
    }
    let mut trials = Vec::new();
    for shape in shapes {
        let last = u32::try_from(shape.ranks().saturating_sub(1)).unwrap_or(0);
        for root in if program.kind.rooted() { vec![0, last] } else { vec![0] } {
            let options = Options { root, paths: options.paths, limit: MOST_MOVES };
            trials.push((shape.clone(), options));
        }
    }
    trials
}

/// The cost of a place of the text in a trial, in steps.
const TEXT: u64 = 16;

/// The remaining work of all trials.
struct Work {
    left: u64,
    /// The cost of copying the text and laying it out once.
    text: u64,
}

impl Work {
    /// Returns true if the program is right at a shape; `None` if the shape is not allowed.
    fn proves(&mut self, program: &Arc<Program>, (shape, options): &Trial) -> Option<bool> {
        let mut cost = self.text + shape.ranks();
        let verdict = match Instance::new(program, shape, options) {
            Err(found) if found.iter().any(|d| d.code == codes::REQUIRES) => None,
            Err(_) => Some(false),
            Ok(instance) => match graph::unroll(&Arc::new(instance)) {
                Err(found) => {
                    let large = found.iter().any(|d| d.code == codes::TOO_BIG);
                    cost += if large { MOST_MOVES } else { 0 };
                    Some(false)
                }
                Ok(graph) => {
                    let moves = graph.graph.node_weights().map(|t| u64::from(t.from.chunks()));
                    cost += moves.map(|m| m + 1).sum::<u64>();
                    Some(super::verify(graph).is_ok())
                }
            },
        };
        self.left = self.left.saturating_sub(cost);
        verdict
    }

    /// Returns true if the program is right at every shape that it allows, and allows one.
    fn holds(&mut self, program: &Arc<Program>, trials: &[Trial]) -> bool {
        let mut kept = false;
        trials.iter().all(|t| {
            let verdict = self.proves(program, t);
            kept |= verdict == Some(true);
            verdict != Some(false)
        }) && kept
    }
}
