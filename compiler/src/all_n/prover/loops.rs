//! Loops: what holds at their heads is guessed, and proved for the first turn and from turn to turn.

use std::rc::Rc;

use roundelay_dsl::ast::BinOp;

use crate::all_n::fragment::context::{TermContext, literal};
use crate::all_n::fragment::value::SymbolicValue;
use crate::all_n::{LinearFormula, LinearTerm};
use crate::num::index;
use crate::program::{BuiltinFunction, ExprNode, Slot, SlotExpr};

use super::asked::KnownPlaces;
use super::certificate_step::CertificateStep;
use super::driver::{ProgramProver, ViewGoal};
use super::guess::{guess_tokens, guess_views};
use super::plain::{PlainLoop, PlainProgram, PlainStatement};
use super::state::ProgramState;
use super::token_step::{TokenStep, only_round};
use super::verdict::{LoopInvariant, NotProved, of};
use super::vocabulary::{each_expression, make_vocabulary};
use super::words::{parts, show};

/// Guesses that are tried for one loop, at most.
const MOST_GUESSES: usize = 6;

impl ProgramProver<'_> {
    /// Proves a loop, and returns the state after it.
    pub(super) fn prove_loop(
        &mut self,
        context: &mut TermContext,
        before: ProgramState,
        l: &PlainLoop,
        counters: &mut Vec<Slot>,
    ) -> Result<ProgramState, NotProved> {
        let (from, to) = (context.number(&l.from)?, context.number(&l.to)?);
        let end = match self.record.is_implied(context, of(LinearFormula::le(&from, &to))?) {
            true => to.clone(),
            false => context.choose(literal(of(LinearFormula::le(&to, &from))?), &from, &to)?,
        };
        // What is said of the head of the loop after the last turn may be about powers that no turn has.
        for at in [&from, &end] {
            context.bind(l.slot, SymbolicValue::Number(at.clone()));
            self.add_levels(context, l)?;
        }
        context.unbind(l.slot);
        let vocabulary = make_vocabulary(self.program, l, counters, &self.tree_places(l));
        let has_tokens = counters.is_empty() && only_round(&l.body).is_some();
        let written = written_buffers(self.program, &l.body);
        let heads = std::mem::take(&mut self.samples.heads[l.site]);
        let mut choices: Vec<Vec<Option<KnownPlaces>>> = vec![Vec::new()];
        for buffer in 0..self.program.buffers.len() {
            let views: Vec<Option<KnownPlaces>> = match written.contains(&buffer) {
                false => vec![None],
                true => {
                    let (program, budget) = (self.program, &self.guesses);
                    let mut found = guess_views(program, &vocabulary, &heads, buffer, budget);
                    if found.is_empty() && has_tokens && buffer == 0 {
                        found = guess_tokens(program, &vocabulary, &heads, budget);
                    }
                    found.into_iter().map(Some).collect()
                }
            };
            choices = choices
                .iter()
                .flat_map(|list| {
                    views.iter().map(|view| {
                        let mut list = list.clone();
                        list.push(view.clone());
                        list
                    })
                })
                .take(MOST_GUESSES)
                .collect();
        }
        self.samples.heads[l.site] = heads;
        self.is_unguessed |= choices.is_empty();
        let mut failed = NotProved {
            span: Some(l.from.span),
            reason: "no invariant of this loop was found".into(),
            ranks: None,
        };
        let (proved, noted) = (self.record.obligations.len(), self.invariants.len());
        let lines = self.record.steps.len();
        for (at, mut views) in choices.into_iter().enumerate() {
            for view in views.iter_mut().flatten().filter(|view| view.token.is_some()) {
                self.tokens += 1;
                view.token = Some(self.tokens);
            }
            let views = Rc::new(views);
            match self.prove_views(context, &before, l, &views, counters, (&from, &to)) {
                Ok(()) => {
                    self.note_invariants(l, &views);
                    let ended = vec![(l.slot, end)];
                    return Ok(ProgramState::Views(views, ended, Some(Rc::new(before))));
                }
                Err(why) if at == 0 => failed = why,
                Err(_) => {}
            }
            self.record.obligations.truncate(proved);
            self.record.steps.truncate(lines);
            self.invariants.truncate(noted);
        }
        Err(failed)
    }

    /// Returns the places of a rank in trees whose levels a loop goes through.
    fn tree_places(&self, l: &PlainLoop) -> Vec<SlotExpr> {
        let Some(round) = only_round(&l.body) else { return Vec::new() };
        let Some(part) = self.program.part() else { return Vec::new() };
        let w = self.program.writer;
        let mut found = Vec::new();
        for rule in round.rules.iter().filter(|rule| rule.known_bit().is_some()) {
            match (&self.witnesses[rule.site], rule.variables.as_slice()) {
                (Some(known), [_]) if !known.by_content => found.extend(known.witness.clone()),
                _ => found.push(w.wrap(&w.sub(&w.var(self.program.place.rank), &w.var(part)))),
            }
        }
        found
    }

    /// Keeps what was proved of a loop, for those who read the proof.
    fn note_invariants(&mut self, l: &PlainLoop, views: &[Option<KnownPlaces>]) {
        let program = self.program;
        let name = |slot: Slot| match slot {
            0 => "n".to_owned(),
            _ if slot == program.place.rank => "q".into(),
            _ if slot == program.place.chunk => "c".into(),
            _ if slot == program.place.of => "j".into(),
            _ if slot == program.place.began => "e".into(),
            _ if slot == program.place.token => "t".into(),
            _ if slot == program.root => "root".into(),
            _ if slot == l.slot => "s".into(),
            _ => format!("x{slot}"),
        };
        for (buffer, view) in program.buffers.iter().zip(views) {
            if let Some(view) = view {
                let (stored, content) = (show(&view.stored, &name), show(&view.content, &name));
                self.invariants.push(LoopInvariant {
                    span: l.from.span,
                    buffer: buffer.name,
                    stored,
                    content,
                });
            }
        }
    }

    /// Proves that views hold at the head of a loop.
    fn prove_views(
        &mut self,
        context: &TermContext,
        before: &ProgramState,
        l: &PlainLoop,
        views: &Rc<Vec<Option<KnownPlaces>>>,
        counters: &mut Vec<Slot>,
        (from, to): (&LinearTerm, &LinearTerm),
    ) -> Result<(), NotProved> {
        for (buffer, view) in self.program.buffers.iter().zip(views.iter()) {
            if let Some(view) = view {
                let step = CertificateStep::Invariant(buffer.name, view.clone());
                self.record.steps.push(step);
            }
        }
        let span = l.from.span;
        let at = |term: &LinearTerm| vec![(l.slot, term.clone())];
        let goals = ViewGoal { what: "the first turn of a loop", span, tokens: TokenStep::Begin };
        self.prove_all(context, before, views, &at(from), &goals)?;
        let mut inner = context.clone();
        let counter = self.counter(&mut inner, "s", from, to)?;
        inner.bind(l.slot, SymbolicValue::Number(counter.clone()));
        self.add_levels(&mut inner, l)?;
        let head = ProgramState::Views(views.clone(), at(&counter), Some(Rc::new(before.clone())));
        counters.push(l.slot);
        let after = self.run(&mut inner, head, &l.body, counters);
        counters.pop();
        let next = of(counter.add(&LinearTerm::from(1)))?;
        let at_head = at(&counter);
        let tokens = match only_round(&l.body) {
            Some(round) => TokenStep::Moved(round, &at_head),
            None => TokenStep::Begin,
        };
        let goals = ViewGoal { what: "the next turn of a loop", span, tokens };
        self.prove_all(&inner, &after?, views, &at(&next), &goals)
    }

    /// Adds the powers of two that the body of a loop goes through.
    fn add_levels(&mut self, context: &mut TermContext, l: &PlainLoop) -> Result<(), NotProved> {
        let mut exponents: Vec<LinearTerm> = Vec::new();
        let mut found = Vec::new();
        each_expression(&l.body, &mut |e| collect_powers(e, &mut found));
        for e in found {
            let exponent = match &e.node {
                ExprNode::Binary(BinOp::Shl, _, b) => context.number(b).ok(),
                ExprNode::Call(_, args) => context.number(&args[1]).ok(),
                ExprNode::Binary(_, a, b) => {
                    let (Ok(a), Ok(b)) = (context.number(a), context.number(b)) else { continue };
                    let known = context.levels().into_iter().find(|(_, level)| *level == a);
                    known.and_then(|(exponent, _)| exponent.sub(&b).ok())
                }
                _ => None,
            };
            let Some(exponent) = exponent.filter(|e| !e.coefficients().is_empty()) else {
                continue;
            };
            let same = exponents.iter_mut().find(|other| {
                other.sub(&exponent).is_ok_and(|more| more.coefficients().is_empty())
            });
            match same {
                Some(other) if exponent.constant() < other.constant() => *other = exponent,
                Some(_) => {}
                None => exponents.push(exponent),
            }
        }
        for exponent in exponents {
            let next = of(exponent.add(&LinearTerm::from(1)))?;
            // Where a loop ends or begins, the next power may be one and this one none.
            if !self.add_power(context, &exponent)? {
                self.add_power(context, &next)?;
            }
        }
        Ok(())
    }

    /// Adds the power of two with an exponent, unless it may be negative or is not known to be small. Returns true if
    /// the power is known then.
    fn add_power(
        &mut self,
        context: &mut TermContext,
        exponent: &LinearTerm,
    ) -> Result<bool, NotProved> {
        if context.power(exponent).is_ok() {
            return Ok(true);
        }
        let at_least = of(LinearFormula::le(&LinearTerm::from(0), exponent))?;
        if !self.record.is_implied(context, at_least) {
            return Ok(false);
        }
        for (other, level) in context.levels() {
            if self.record.is_implied(context, of(LinearFormula::le(exponent, &other))?) {
                let magnitude = context.magnitude(&level)?;
                context.add_digit_level(exponent, magnitude)?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Adds the powers of two in an expression.
fn collect_powers(e: &SlotExpr, out: &mut Vec<SlotExpr>) {
    if let ExprNode::Binary(BinOp::Shl | BinOp::Shr, ..) | ExprNode::Call(BuiltinFunction::Pow, _) =
        &e.node
    {
        out.push(e.clone());
    }
    parts(e).into_iter().for_each(|part| collect_powers(part, out));
}

fn written_buffers(program: &PlainProgram, statements: &[PlainStatement]) -> Vec<usize> {
    let mut list = Vec::new();
    for statement in statements {
        match statement {
            PlainStatement::Loop(l) => list.extend(written_buffers(program, &l.body)),
            PlainStatement::Choice(_, yes, no) => {
                list.extend(written_buffers(program, yes));
                list.extend(written_buffers(program, no));
            }
            PlainStatement::Round(round) => {
                list.extend(round.rules.iter().map(|rule| program.buffer(rule.to.buf)));
            }
            _ => {}
        }
    }
    list.sort_unstable();
    list.dedup();
    list.retain(|&buffer| buffer != index(u64::MAX));
    list
}
