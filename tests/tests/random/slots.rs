//! The least number of slots, on random programs: what `check` says is what schedules may ask for, and what
//! the proofs say of plans is what happens when they are played.

use std::sync::Arc;

use roundelay_compiler::program::{Expr, Node, Schedule};
use roundelay_compiler::{Method, Options, Placement, Program, Proved, Shape, check, compile};
use roundelay_dsl::diag::{Diagnostics, codes};
use roundelay_dsl::span::SourceMap;
use roundelay_tests::queues::play;
use roundelay_tests::{Dice, read, roots, say};

use crate::judge::PLACEMENTS;
use crate::{Count, dice, guarded, make, number, ranks};

/// A program whose schedule may ask for other slots.
struct Asking<'a> {
    program: &'a Arc<Program>,
    sources: &'a SourceMap,
    shape: Shape,
    options: Options,
}

/// A number that a fault tells behind some words.
fn told(faults: &Diagnostics, words: &str) -> Option<u32> {
    let message = &faults.first()?.message;
    let (before, _) = message.split_once(words)?;
    before.rsplit(' ').next()?.parse().ok()
}

impl Asking<'_> {
    fn with(&self, slots: Option<u32>) -> Arc<Program> {
        let slots = slots.map(|k| Expr { node: Node::Int(k.into()), span: self.program.header });
        let schedule = Schedule { slots, ..self.program.schedule.clone() };
        Arc::new(Program { schedule, ..(**self.program).clone() })
    }

    fn compile(&self, slots: Option<u32>, p: Placement) -> Result<Proved, Diagnostics> {
        compile(&self.with(slots), self.sources, &self.shape, &self.options, p)
    }

    /// The least number that a check tells, if the program is proved.
    fn least(&self, slots: Option<u32>) -> Option<u32> {
        let checked = check(&self.with(slots), self.sources, &self.shape, &self.options).ok()?;
        assert_eq!(checked.method, Method::Unrolled);
        checked.least_slots
    }

    /// Schedules may ask for the least number and for more, not for one less.
    fn asked(&self) -> Result<Option<u32>, String> {
        let Some(least) = self.least(None) else { return Ok(None) };
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
                let enough = told(&faults, " are enough");
                if enough.is_none_or(|more| more <= k || self.compile(Some(more), p).is_err()) {
                    return Err(format!("asked for {k}: {enough:?} are not enough"));
                }
            }
        }
        Ok(Some(least))
    }

    /// Plans end with the slots that they are proved to need, and deadlock with one less.
    fn played(&self, slots: Option<u32>, dice: &mut Dice) -> Result<(), String> {
        for p in PLACEMENTS {
            let Ok(proved) = self.compile(slots, p) else { continue };
            let least = proved.least_slots();
            for k in [least, proved.plans()[0].header.slots] {
                for _ in 0..3 {
                    play(proved.plans(), k, dice).map_err(|why| {
                        format!("asked for {slots:?}, {p:?}: with {k} of {least} slots: {why}")
                    })?;
                }
            }
            let sends = proved.plans().iter().any(|plan| !plan.part.conns.is_empty());
            if sends && play(proved.plans(), least - 1, dice).is_ok() {
                return Err(format!("asked for {slots:?}, {p:?}: {least} slots, one less plays"));
            }
        }
        Ok(())
    }
}

/// Compares at all shapes, and counts.
fn all(count: &mut Count, i: u64, text: &str, dice: &mut Dice) {
    let Ok(source) = read("random.algo", text) else { return };
    let Some(program) = source.programs.iter().find(|p| p.name == "main") else { return };
    for n in 2..=6 {
        let roots = roots(program, n);
        let options = Options { root: roots[dice.below(roots.len())], ..Options::default() };
        let shape = Shape::flat(n);
        let asking = Asking { program, sources: &source.sources, shape, options };
        if asking.compile(None, PLACEMENTS[0]).is_err() {
            continue;
        }
        match guarded(|| asking.asked()) {
            Err(why) => count.differs(i, text, &format!("on {n}: {why}")),
            Ok(least) => {
                count.add("programs", 1);
                count.add("need more than one", u64::from(least > Some(1)));
                count.add("need more than two", u64::from(least > Some(2)));
                let known = asking.compile(None, PLACEMENTS[0]).map_or(1, |p| p.least_slots());
                count.add("other plans need less", u64::from(least < Some(known)));
            }
        }
        for slots in [None, Some(1), Some(2), Some(3)] {
            match guarded(|| asking.played(slots, dice)) {
                Err(why) => count.differs(i, text, &format!("on {n}: {why}")),
                Ok(()) => count.add("played", 1),
            }
        }
    }
}

#[test]
fn the_least_number_of_slots_is_the_least() {
    let mut count = Count::default();
    for i in 0..300 * number("ROUNDS", 1) {
        let mut dice = dice(i);
        let text = match dice.below(2) {
            0 => make::program(&mut dice).text,
            _ => ranks::program(&mut dice).text,
        };
        all(&mut count, i, &text, &mut dice);
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
    let (program, options) = (&source.programs[0], Options::default());
    let asking = Asking { program, sources: &source.sources, shape: Shape::flat(2), options };
    let of_plans = |slots| asking.compile(slots, Placement::InPlace).map(|p| p.least_slots()).ok();
    assert_eq!((of_plans(None), of_plans(Some(2))), (Some(3), Some(2)));
    assert_eq!(asking.asked(), Ok(Some(2)));
}
