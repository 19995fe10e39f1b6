//! Guesses what is known at the head of a loop, from runs at small rank counts. A wrong guess proves nothing.
//!
//! Candidates are expressions of a generic place; those that fit every sample are tried in order. The places of which
//! something is known come first, then the contributions in them: one form for all, or two and a condition.

use std::cell::Cell;

use roundelay_dsl::ast::BinOp;

use crate::eval::eval;
use crate::num::{index, signed, wide};
use crate::program::SlotExpr;

use super::asked::KnownPlaces;
use super::plain::PlainProgram;
use super::runs::HeadSample;
use super::vocabulary::GuessVocabulary;

/// Pairs of forms that are tried, at most.
const MOST_PAIRS: u32 = 60;

/// A place at the head of a loop, in a run.
struct PlaceSample<'a> {
    env: Vec<i64>,
    sample: &'a HeadSample,
    buffer: usize,
    rank: usize,
    chunk: usize,
    budget: &'a Cell<u64>,
}

impl PlaceSample<'_> {
    /// Returns false if the evaluations that are left are too few.
    fn draw(&self, evaluations: usize) -> bool {
        let left = self.budget.get().checked_sub(wide(evaluations));
        self.budget.set(left.unwrap_or(0));
        left.is_some()
    }

    fn holds(&mut self, e: &SlotExpr) -> Option<bool> {
        if !self.draw(1) {
            return None;
        }
        eval(e, &mut self.env).ok().map(|value| value != 0)
    }

    fn is_live(&self) -> bool {
        let size = self.sample.places.sizes[self.buffer];
        self.sample.live[self.buffer][self.rank * size + self.chunk]
    }

    /// Returns true if an expression of contributions says what the place contains.
    fn matches(&mut self, program: &PlainProgram, content: &SlotExpr) -> bool {
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
}

/// Returns views of a buffer at the head of a loop that fit all samples, the most promising first. Evaluations are drawn
/// from the budget.
///
/// The contents of places that are written before they are read do not matter. So the contents are those of the
/// places that matter; of which places more is known follows.
pub(super) fn guess_views(
    program: &PlainProgram,
    vocabulary: &GuessVocabulary,
    samples: &[HeadSample],
    buffer: usize,
    budget: &Cell<u64>,
) -> Vec<KnownPlaces> {
    let w = program.writer;
    let mut places = place_samples(program, samples, buffer, budget);
    let is_live: Vec<bool> = places.iter().map(PlaceSample::is_live).collect();
    let mut views = Vec::new();
    for content in guess_contents(program, vocabulary, &mut places, &is_live) {
        let matched: Vec<bool> = places.iter_mut().map(|p| p.matches(program, &content)).collect();
        let mut found = 0;
        for e in std::iter::once(w.truth(true)).chain(vocabulary.conditions.iter().cloned()) {
            let fits = places.iter_mut().enumerate().all(|(at, p)| {
                p.holds(&e).is_some_and(|holds| if holds { matched[at] } else { !is_live[at] })
            });
            if fits {
                views.push(KnownPlaces { stored: e, content: content.clone() });
                found += 1;
                if found == 3 {
                    break;
                }
            }
        }
    }
    views
}

fn place_samples<'a>(
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

/// Returns what all places that matter contain.
fn guess_contents(
    program: &PlainProgram,
    vocabulary: &GuessVocabulary,
    places: &mut [PlaceSample<'_>],
    is_live: &[bool],
) -> Vec<SlotExpr> {
    let w = program.writer;
    let mut contents = Vec::new();
    let Some(began) = guess_began(program, vocabulary, places, is_live) else { return contents };
    for of in vocabulary.contributors.iter().chain(&vocabulary.bounded_contributors) {
        let content = w.and(of, &began);
        if places.iter_mut().zip(is_live).all(|(p, live)| !live || p.matches(program, &content)) {
            contents.push(content);
            if contents.len() == 3 {
                return contents;
            }
        }
    }
    if contents.is_empty() {
        contents = guess_two(program, vocabulary, places, is_live, &began);
    }
    contents
}

/// Returns two forms of contents and the condition under which the first one is right.
fn guess_two(
    program: &PlainProgram,
    vocabulary: &GuessVocabulary,
    places: &mut [PlaceSample<'_>],
    is_live: &[bool],
    began: &SlotExpr,
) -> Vec<SlotExpr> {
    let w = program.writer;
    let few: Vec<usize> = (0..places.len())
        .filter(|&at| is_live[at] && (4..=6).contains(&places[at].sample.places.ranks))
        .collect();
    let mut forms: Vec<(&SlotExpr, Vec<bool>)> = Vec::new();
    for of in vocabulary.contributors.iter().chain(&vocabulary.bounded_contributors) {
        let content = w.and(of, began);
        let matched: Vec<bool> =
            few.iter().map(|&at| places[at].matches(program, &content)).collect();
        let is_new = forms.iter().all(|(_, other)| *other != matched);
        if is_new && matched.iter().any(|m| *m) {
            forms.push((of, matched));
        }
    }
    let (mut pairs, mut contents) = (0, Vec::new());
    for (second, at_second) in &forms {
        for (first, at_first) in &forms {
            let covers = at_first.iter().zip(at_second).all(|(a, b)| *a || *b);
            if !covers || first == second {
                continue;
            }
            pairs += 1;
            if pairs > MOST_PAIRS {
                return contents;
            }
            for condition in &vocabulary.conditions {
                let fits = few.iter().enumerate().all(|(i, &at)| {
                    let holds = places[at].holds(condition);
                    holds.is_some_and(|holds| if holds { at_first[i] } else { at_second[i] })
                });
                if !fits {
                    continue;
                }
                let content = w.and(&w.choose(condition, first, second), began);
                let mut both = places.iter_mut().zip(is_live);
                if both.all(|(p, live)| !live || p.matches(program, &content)) {
                    contents.push(content);
                    if contents.len() == 3 {
                        return contents;
                    }
                    break;
                }
            }
        }
    }
    contents
}

/// Returns the condition on the chunk as which contributions began.
fn guess_began(
    program: &PlainProgram,
    vocabulary: &GuessVocabulary,
    places: &mut [PlaceSample<'_>],
    is_live: &[bool],
) -> Option<SlotExpr> {
    let w = program.writer;
    let began = w.var(program.place.began);
    let found = vocabulary.chunks.iter().find(|e| {
        places.iter_mut().zip(is_live).filter(|(_, live)| **live).all(|(p, _)| {
            let Ok(wanted) = eval(e, &mut p.env) else { return false };
            let own = &p.sample.places;
            let Some(set) = own.at(p.buffer, p.rank, p.chunk) else { return false };
            (0..own.ranks * own.began())
                .filter(|&at| set.contains(at))
                .all(|at| signed(at % own.began()) == wanted)
        })
    })?;
    Some(w.op(BinOp::Eq, &began, found))
}
