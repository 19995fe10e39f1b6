//! Tests the least number of slots, on random programs: what `check` says is what schedules may ask for, and
//! what the proofs say of plans is what happens when they are run.

use std::sync::Arc;

use roundelay_compiler::program::{ExprNode, ProgramSchedule, SlotExpr};
use roundelay_compiler::{
    BufferPlacement, CompileOptions, Program, ProofMethod, ProvedPlans, Shape, check, compile,
};
use roundelay_dsl::diag::{Diagnostics, codes};
use roundelay_dsl::span::SourceMap;
use roundelay_tests::queues::execute;
use roundelay_tests::{SeededRandom, is_grid, read, roots, say};

use crate::random::judge::PLACEMENTS;
use crate::random::make::{self, Made};
use crate::random::{Count, dice, guarded, number};

/// A program whose schedule may ask for other slots.
struct Asking<'a> {
    program: &'a Arc<Program>,
    sources: &'a SourceMap,
    shape: Shape,
    options: CompileOptions,
}

/// Returns the number that a finding names behind some words.
fn named_number(faults: &Diagnostics, words: &str) -> Option<u32> {
    let message = &faults.first()?.message;
    let (before, _) = message.split_once(words)?;
    before.rsplit(' ').next()?.parse().ok()
}

impl Asking<'_> {
    fn with(&self, slots: Option<u32>) -> Arc<Program> {
        let slots =
            slots.map(|k| SlotExpr { node: ExprNode::Int(k.into()), span: self.program.header });
        let schedule = ProgramSchedule { slots, ..self.program.schedule.clone() };
        Arc::new(Program { schedule, ..(**self.program).clone() })
    }

    fn compile(&self, slots: Option<u32>, p: BufferPlacement) -> Result<ProvedPlans, Diagnostics> {
        compile(&self.with(slots), self.sources, &self.shape, &self.options, p)
    }

    /// Returns the least number that a check reports, if the program is proved.
    fn least(&self, slots: Option<u32>) -> Option<u32> {
        let checked = check(&self.with(slots), self.sources, &self.shape, &self.options).ok()?;
        assert_eq!(checked.method, ProofMethod::Unrolled);
        checked.least_slots
    }

    /// Schedules may ask for that number and for more, not for one less.
    fn asked(&self, least: u32) -> Result<(), String> {
        let all = |k| PLACEMENTS.map(|p| self.compile(Some(k), p));
        for k in (1..least.saturating_add(4)).filter(|k| *k <= 32) {
            let found = all(k);
            let right = found.iter().all(Result::is_ok);
            if right != (k >= least) {
                return Err(format!("least is {least}; asked for {k}: proved {right}"));
            }
            if k >= least && self.least(Some(k)) != Some(least) {
                return Err(format!("of slots {k}: {:?}, not {least}", self.least(Some(k))));
            }
            for (found, p) in found.into_iter().zip(PLACEMENTS) {
                let Err(faults) = found else { continue };
                if faults.iter().any(|d| d.code != codes::DEADLOCK) {
                    return Err(format!("asked for {k}: {}", say(self.sources, &faults)));
                }
                let enough = named_number(&faults, " are enough");
                if enough.is_none_or(|more| more <= k || self.compile(Some(more), p).is_err()) {
                    return Err(format!("asked for {k}: {enough:?} are not enough"));
                }
            }
        }
        Ok(())
    }

    /// Checks that plans end with the slots that they are proved to need, and deadlock with one less.
    fn check_slots(&self, slots: Option<u32>, dice: &mut SeededRandom) -> Result<(), String> {
        for p in PLACEMENTS {
            let Ok(proved) = self.compile(slots, p) else { continue };
            needed(&proved, proved.least_slots(), dice)
                .map_err(|why| format!("asked for {slots:?}, {p:?}: {why}"))?;
        }
        Ok(())
    }
}

/// Checks that plans end with `least` slots, and deadlock with one less.
fn needed(proved: &ProvedPlans, least: u32, dice: &mut SeededRandom) -> Result<(), String> {
    for k in [least, proved.plans()[0].header.slots] {
        for _ in 0..3 {
            execute(proved.plans(), k, dice)
                .map_err(|why| format!("with {k} of {least} slots: {why}"))?;
        }
    }
    let sends = proved.plans().iter().any(|plan| !plan.part.conns.is_empty());
    if sends && execute(proved.plans(), least - 1, dice).is_ok() {
        return Err(format!("{least} slots, and one less runs"));
    }
    Ok(())
}

/// Compares at all shapes, and counts.
fn all(count: &mut Count, i: u64, made: &Made, dice: &mut SeededRandom) {
    let Ok(source) = made.read() else { return };
    let Some(program) = source.programs.iter().find(|p| p.name != "helper") else { return };
    let shapes: Vec<Shape> = match is_grid(program) {
        true => [[2, 2], [2, 3], [3, 2]].map(|axes| Shape { axes: axes.to_vec() }).to_vec(),
        false => (2..=6).map(Shape::flat).collect(),
    };
    for shape in shapes {
        let roots = roots(program, u32::try_from(shape.ranks()).unwrap_or(0));
        let root = roots[dice.below(roots.len())];
        let paths = if made.text.contains("paths") { 1 + dice.below(3) as u32 } else { 1 };
        let options = CompileOptions { root, paths, ..CompileOptions::default() };
        let at = format!("on {shape}, {paths} paths");
        let asking = Asking { program, sources: &source.sources, shape, options };
        if asking.compile(None, PLACEMENTS[0]).is_err() {
            continue;
        }
        let found = guarded(|| match asking.least(None) {
            Some(least) => asking.asked(least).map(|()| Some(least)),
            None => Ok(None),
        });
        match found {
            Err(why) => count.differs(i, &made.text, &format!("{at}: {why}")),
            Ok(least) => {
                count.add("programs", 1);
                count.add("need more than one", u64::from(least > Some(1)));
                count.add("need more than two", u64::from(least > Some(2)));
                let known = asking.compile(None, PLACEMENTS[0]).map_or(1, |p| p.least_slots());
                count.add("other plans need less", u64::from(least < Some(known)));
            }
        }
        for slots in [None, Some(1), Some(2), Some(3)] {
            match guarded(|| asking.check_slots(slots, dice)) {
                Err(why) => count.differs(i, &made.text, &format!("{at}: {why}")),
                Ok(()) => count.add("executed", 1),
            }
        }
    }
}

#[test]
fn the_least_number_of_slots_is_the_least() {
    let mut count = Count::default();
    for i in 0..360 * number("ROUNDS", 1) {
        let mut dice = dice(i);
        let (name, made) = make::any(i, &mut dice);
        count.add(name, 1);
        all(&mut count, i, &made, &mut dice);
    }
    count.finish("slots", &[("programs", 300), ("need more than one", 30)]);
}

/// With four slots chunk 4 leaves rank 0 as it comes, and so needs a third: the first one is free only when
/// rank 1 has sent all of its own. A schedule that asks for two has it leave later, and needs no more.
#[test]
fn plans_of_fewer_slots_may_need_fewer() {
    let text = "algorithm main implements all_gather on n ranks {
        requires n == 2
        chunks n * 4
        each r { if r == 0 { for q in 0..2 { 0 -> 1 : copy data[q] } }
                 else { for q in 4..7 { 1 -> 0 : copy data[q] } } }
        each r where r == 0 { 0 -> 1 : copy data[4] }
        each r { if r == 0 { 0 -> 1 : copy data[2..4] } else { 1 -> 0 : copy data[7] } } }";
    let source = read("kept.algo", text).unwrap_or_else(|(s, d)| panic!("{}", say(&s, &d)));
    let (program, options) = (&source.programs[0], CompileOptions::default());
    let asking = Asking { program, sources: &source.sources, shape: Shape::flat(2), options };
    let of_plans =
        |slots| asking.compile(slots, BufferPlacement::InPlace).map(|p| p.least_slots()).ok();
    assert_eq!((of_plans(None), of_plans(Some(2))), (Some(3), Some(2)));
    assert_eq!((asking.least(None), asking.asked(2)), (Some(2), Ok(())));
    // Another number than the least is noticed, of what schedules may ask for and of what plans need.
    assert!(asking.asked(1).is_err() && asking.asked(3).is_err());
    let proved = asking.compile(None, BufferPlacement::InPlace).unwrap_or_else(|d| panic!("{d:?}"));
    let dice = &mut SeededRandom(1);
    assert_eq!(needed(&proved, 3, dice), Ok(()));
    assert!(needed(&proved, 2, dice).is_err() && needed(&proved, 4, dice).is_err());
}
