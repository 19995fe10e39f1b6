//! Guesses with two parts: sums from ranks on both sides of a place, and places that are known in two ways.

use roundelay_dsl::ast::BinOp;

use crate::num::{index, signed};
use crate::program::{BuiltinFunction, ExprNode, SlotExpr};

use super::place_sample::PlaceSample;
use super::plain::PlainProgram;
use super::vocabulary::GuessVocabulary;

/// Expressions that fit some places in different ways, at most.
const MOST_FITS: usize = 150;

/// Guesses of one kind that are handed on, at most.
const MOST_FOUND: usize = 2;

/// Returns contents of the form: the rank's own contribution, those of some ranks below it, and of some above it.
pub(super) fn guess_both_sides(
    program: &PlainProgram,
    vocabulary: &GuessVocabulary,
    places: &mut [PlaceSample<'_>],
    is_live: &[bool],
    began: &SlotExpr,
) -> Vec<SlotExpr> {
    let w = program.writer;
    let (rank, of) = (w.var(program.place.rank), w.var(program.place.of));
    let few: Vec<usize> = (0..places.len())
        .filter(|&at| is_live[at] && (3..=7).contains(&places[at].ranks()))
        .filter(|&at| !places[at].is_full())
        .collect();
    let mut sides: Option<Vec<(usize, usize)>> = Some(Vec::new());
    for &at in &few {
        match (places[at].neighbours(), &mut sides) {
            (Some(found), Some(list)) => list.push(found),
            _ => sides = None,
        }
    }
    let Some(sides) = sides else { return Vec::new() };
    if sides.iter().all(|side| *side == (0, 0)) {
        return Vec::new();
    }
    let below: Vec<i64> = sides.iter().map(|side| signed(side.0)).collect();
    let above: Vec<i64> = sides.iter().map(|side| signed(side.1)).collect();
    let mut parts = Vec::new();
    for (counts, distance) in
        [(below, w.wrap(&w.sub(&rank, &of))), (above, w.wrap(&w.sub(&of, &rank)))]
    {
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        let found = fit_counts(vocabulary, places, &few, &counts);
        let with = |(condition, most): &(SlotExpr, SlotExpr)| {
            w.and(condition, &w.op(BinOp::Le, &distance, most))
        };
        parts.push(found.iter().map(with).collect::<Vec<_>>());
    }
    let own = w.eq(&of, &rank);
    let mut contents = vec![own];
    for part in &parts {
        contents = contents
            .iter()
            .flat_map(|e| part.iter().map(|more| w.op(BinOp::Or, e, more)))
            .collect();
    }
    let mut found = Vec::new();
    for content in contents {
        let content = w.and(&content, began);
        let mut all = places.iter_mut().zip(is_live);
        if all.all(|(p, live)| !live || p.matches(program, &content)) {
            found.push(content);
            if found.len() == MOST_FOUND {
                break;
            }
        }
    }
    found
}

/// Returns conditions and numbers: where the condition holds, the number is the count, and elsewhere that is 0.
fn fit_counts(
    vocabulary: &GuessVocabulary,
    places: &mut [PlaceSample<'_>],
    few: &[usize],
    counts: &[i64],
) -> Vec<(SlotExpr, SlotExpr)> {
    let mut found = Vec::new();
    for amount in &vocabulary.amounts {
        let fits = few.iter().zip(counts).all(|(&at, &count)| {
            count == 0 || places[at].number(amount).is_some_and(|value| value == count)
        });
        if !fits {
            continue;
        }
        let condition = vocabulary.conditions.iter().find(|condition| {
            few.iter().zip(counts).all(|(&at, &count)| match places[at].holds(condition) {
                Some(true) => {
                    count > 0 || places[at].number(amount).is_some_and(|value| value <= 0)
                }
                Some(false) => count == 0,
                None => false,
            })
        });
        if let Some(condition) = condition {
            found.push((condition.clone(), amount.clone()));
            if found.len() == MOST_FOUND {
                break;
            }
        }
    }
    found
}

/// Returns conditions of two parts: one for even ranks and one for odd ones, or of which one holds at least.
pub(super) fn guess_two_conditions(
    program: &PlainProgram,
    vocabulary: &GuessVocabulary,
    places: &mut [PlaceSample<'_>],
    (is_live, matched): (&[bool], &[bool]),
) -> Vec<SlotExpr> {
    let w = program.writer;
    let few: Vec<usize> =
        (0..places.len()).filter(|&at| (4..=6).contains(&places[at].ranks())).collect();
    let mut list = Vec::new();
    if !vocabulary.by_parity.is_empty() {
        let rank = program.place.rank;
        let mut sides = Vec::new();
        for odd in [0, 1] {
            let own: Vec<usize> =
                few.iter().copied().filter(|&at| places[at].env[index(rank)] % 2 == odd).collect();
            let fits = |e: &&SlotExpr| {
                own.iter().all(|&at| {
                    let holds = places[at].holds(e);
                    holds.is_some_and(|holds| if holds { matched[at] } else { !is_live[at] })
                })
            };
            let found = vocabulary.by_parity.iter().filter(fits).take(MOST_FOUND);
            sides.push(found.collect::<Vec<_>>());
        }
        let even = w.of(ExprNode::Call(BuiltinFunction::Even, vec![w.var(rank)]));
        for a in &sides[0] {
            list.extend(sides[1].iter().map(|b| w.choose(&even, a, b)));
        }
    }
    let mut sound: Vec<(&SlotExpr, Vec<bool>)> = Vec::new();
    for e in &vocabulary.conditions {
        let mut held = Vec::with_capacity(few.len());
        for &at in &few {
            match places[at].holds(e) {
                Some(holds) if !holds || matched[at] => held.push(holds),
                _ => break,
            }
        }
        let is_sound = held.len() == few.len();
        if is_sound && held.contains(&true) && sound.iter().all(|(_, other)| *other != held) {
            sound.push((e, held));
            if sound.len() == MOST_FITS {
                break;
            }
        }
    }
    for (i, (a, at_a)) in sound.iter().enumerate() {
        for (b, at_b) in &sound[i + 1..] {
            let mut both = at_a.iter().zip(at_b).zip(&few);
            if both.all(|((x, y), &at)| *x || *y || !is_live[at]) {
                list.push(w.op(BinOp::Or, a, b));
            }
        }
    }
    list.retain(|e| {
        places.iter_mut().enumerate().all(|(at, p)| {
            p.holds(e).is_some_and(|holds| if holds { matched[at] } else { !is_live[at] })
        })
    });
    list.truncate(MOST_FOUND);
    list
}
