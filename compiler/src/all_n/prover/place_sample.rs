//! A place at the head of a loop in a run at a small rank count, of which guesses are tried.

use std::cell::Cell;

use crate::eval::eval;
use crate::num::{index, signed, wide};
use crate::program::SlotExpr;

use super::plain::PlainProgram;
use super::runs::HeadSample;

/// A place at the head of a loop, in a run.
pub(super) struct PlaceSample<'a> {
    pub(super) env: Vec<i64>,
    pub(super) sample: &'a HeadSample,
    pub(super) buffer: usize,
    pub(super) rank: usize,
    pub(super) chunk: usize,
    budget: &'a Cell<u64>,
}

impl PlaceSample<'_> {
    /// Returns false if the evaluations that are left are too few.
    pub(super) fn draw(&self, evaluations: usize) -> bool {
        let left = self.budget.get().checked_sub(wide(evaluations));
        self.budget.set(left.unwrap_or(0));
        left.is_some()
    }

    pub(super) fn holds(&mut self, e: &SlotExpr) -> Option<bool> {
        if !self.draw(1) {
            return None;
        }
        eval(e, &mut self.env).ok().map(|value| value != 0)
    }

    /// Returns the number of ranks in the run.
    pub(super) fn ranks(&self) -> usize {
        self.sample.places.ranks
    }

    pub(super) fn is_live(&self) -> bool {
        let size = self.sample.places.sizes[self.buffer];
        self.sample.live[self.buffer][self.rank * size + self.chunk]
    }

    /// Returns true if an expression of contributions says what the place contains.
    pub(super) fn matches(&mut self, program: &PlainProgram, content: &SlotExpr) -> bool {
        let places = &self.sample.places;
        let Some(set) = places.at(self.buffer, self.rank, self.chunk) else { return false };
        if !self.draw(places.ranks * places.began()) {
            return false;
        }
        for of in 0..places.ranks {
            for began in 0..places.began() {
                self.env[index(program.place.of)] = signed(of);
                self.env[index(program.place.began)] = signed(began);
                match eval(content, &mut self.env) {
                    Ok(value) if (value != 0) == set.contains(of * places.began() + began) => {}
                    _ => return false,
                }
            }
        }
        true
    }

    /// Returns the value of an expression in the place.
    pub(super) fn number(&mut self, e: &SlotExpr) -> Option<i64> {
        if !self.draw(1) {
            return None;
        }
        eval(e, &mut self.env).ok()
    }

    /// Returns the ranks that contribute.
    fn contributors(&self) -> Vec<bool> {
        let places = &self.sample.places;
        let Some(set) = places.at(self.buffer, self.rank, self.chunk) else { return Vec::new() };
        let began = places.began();
        (0..places.ranks).map(|of| (0..began).any(|e| set.contains(of * began + e))).collect()
    }

    /// Returns true if all ranks contribute.
    pub(super) fn is_full(&self) -> bool {
        self.contributors().iter().all(|is_in| *is_in)
    }

    /// Returns the contributors right below the rank and right above it, if there are no others but itself.
    pub(super) fn neighbours(&self) -> Option<(usize, usize)> {
        let set = self.contributors();
        let ranks = set.len();
        let is_in = |distance: usize| set[(self.rank + distance) % ranks];
        if ranks == 0 || !is_in(0) {
            return None;
        }
        let above = (1..ranks).take_while(|&more| is_in(more)).count();
        let below = (1..ranks).take_while(|&less| is_in(ranks - less)).count();
        let all = set.iter().filter(|is_in| **is_in).count();
        (all == 1 + above + below).then_some((below, above))
    }
}

/// Returns the places of a buffer in all runs.
pub(super) fn place_samples<'a>(
    program: &PlainProgram,
    samples: &'a [HeadSample],
    buffer: usize,
    budget: &'a Cell<u64>,
) -> Vec<PlaceSample<'a>> {
    let mut list = Vec::new();
    let mut ordered: Vec<&HeadSample> = samples.iter().collect();
    // The largest first: fewest candidates fit them.
    ordered.sort_by_key(|s| std::cmp::Reverse(if s.places.ranks > 8 { 0 } else { s.places.ranks }));
    for sample in ordered {
        for rank in 0..sample.places.ranks {
            for chunk in 0..sample.places.sizes[buffer] {
                let mut env = sample.env.clone();
                env[index(program.place.rank)] = signed(rank);
                env[index(program.place.chunk)] = signed(chunk);
                list.push(PlaceSample { env, sample, buffer, rank, chunk, budget });
            }
        }
    }
    list
}
