//! Guesses what is known at the head of a loop, from runs at small rank counts. A wrong guess proves nothing.
//!
//! Candidates are expressions of a generic place; those that fit every sample are tried in order. The places of which
//! something is known come first, then the contributions in them: one form for all, or two and a condition.

use std::cell::Cell;

use roundelay_dsl::ast::BinOp;

use crate::eval::eval;
use crate::num::signed;
use crate::program::SlotExpr;

use super::asked::KnownPlaces;
use super::place_sample::{PlaceSample, place_samples};
use super::plain::PlainProgram;
use super::runs::HeadSample;
use super::two_sided::{guess_both_sides, guess_two_conditions};
use super::vocabulary::GuessVocabulary;

/// Pairs of forms that are tried, at most.
const MOST_PAIRS: u32 = 60;

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
                views.push(KnownPlaces { stored: e, content: content.clone(), token: None });
                found += 1;
                if found == 3 {
                    break;
                }
            }
        }
        if found == 0 {
            let fits = (is_live.as_slice(), matched.as_slice());
            let two = guess_two_conditions(program, vocabulary, &mut places, fits);
            let view = |stored| KnownPlaces { stored, content: content.clone(), token: None };
            views.extend(two.into_iter().map(view));
        }
    }
    views
}

/// Returns views of the first buffer in which each contribution is in one known place. The places are guessed; a token
/// says which contributions they contain.
pub(super) fn guess_tokens(
    program: &PlainProgram,
    vocabulary: &GuessVocabulary,
    samples: &[HeadSample],
    budget: &Cell<u64>,
) -> Vec<KnownPlaces> {
    let (w, place) = (program.writer, program.place);
    let mut places = place_samples(program, samples, 0, budget);
    let is_live: Vec<bool> = places.iter().map(PlaceSample::is_live).collect();
    let mut views = Vec::new();
    for e in &vocabulary.conditions {
        // Most conditions hold of too many places.
        if !has_tokens(&mut places, e) {
            continue;
        }
        let mut all = places.iter_mut().zip(&is_live);
        if all.all(|(p, live)| !live || p.holds(e) == Some(true)) {
            let is_there = w.eq(&w.var(place.token), &w.var(place.rank));
            let content = w.and(&is_there, &w.eq(&w.var(place.began), &w.var(place.chunk)));
            views.push(KnownPlaces { stored: e.clone(), content, token: Some(0) });
            if views.len() == 3 {
                break;
            }
        }
    }
    views
}

/// Returns true if each contribution is in one of the places in which a condition holds, in each run.
fn has_tokens(places: &mut [PlaceSample<'_>], e: &SlotExpr) -> bool {
    let mut rest = places;
    while let Some(first) = rest.first() {
        let sample = first.sample;
        let began = sample.places.began();
        let (own, others) = rest.split_at_mut(sample.places.ranks * began);
        let mut found = vec![0u32; sample.places.ranks * began];
        for p in own {
            if p.holds(e) != Some(true) {
                continue;
            }
            let Some(set) = sample.places.at(0, p.rank, p.chunk) else { return false };
            for (at, count) in found.iter_mut().enumerate().filter(|(at, _)| set.contains(*at)) {
                *count += if at % began == p.chunk { 1 } else { 2 };
            }
        }
        if found.iter().any(|count| *count != 1) {
            return false;
        }
        rest = others;
    }
    true
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
    if contents.is_empty() {
        contents = guess_both_sides(program, vocabulary, places, is_live, &began);
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
