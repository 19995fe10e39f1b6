//! The state between two rounds: for a generic place, whether something is known of it, and what it contains.
//!
//! A state is a list of rounds over known views. What it says of a place is made anew for every place that an
//! obligation is about, from the rules themselves: they stand nowhere else.

use std::rc::Rc;

use roundelay_dsl::ast::TransferOp;

use crate::all_n::fragment::context::{TermContext, literal};
use crate::all_n::fragment::refusal::{FragmentRefusal, FragmentResult};
use crate::all_n::fragment::region::RegionChunks;
use crate::all_n::fragment::value::SymbolicValue;
use crate::all_n::{LinearFormula, LinearTerm};
use crate::program::{CollectiveKind, Slot, SlotExpr};

use super::asked::KnownPlaces;
use super::plain::{PlainProgram, PlainRule};
use super::words::{is_same, is_same_index};

/// A state.
#[derive(Debug, Clone)]
pub(super) enum ProgramState {
    /// Views of buffers, with the values of counters that they depend on; buffers without a view are as in the state
    /// before.
    Views(Rc<Vec<Option<KnownPlaces>>>, Vec<(Slot, LinearTerm)>, Option<Rc<ProgramState>>),
    /// The state that a round makes of the one before it.
    Round(Rc<ProgramState>, Rc<Vec<WitnessedRule>>),
    /// One of two states.
    Choice(SlotExpr, Rc<ProgramState>, Rc<ProgramState>),
}

/// A rule, and its variables as expressions of the place that it writes.
#[derive(Debug, Clone)]
pub(super) struct WitnessedRule {
    pub(super) rule: PlainRule,
    /// One expression a variable of the rule.
    pub(super) witness: Vec<SlotExpr>,
    /// True if the witness depends on the contribution: many ranks add to one place.
    pub(super) by_content: bool,
}

/// A place of a buffer.
#[derive(Debug, Clone)]
pub(super) struct SymbolicPlace {
    pub(super) buffer: usize,
    pub(super) rank: LinearTerm,
    pub(super) chunk: LinearTerm,
}

/// A contribution.
#[derive(Debug, Clone)]
pub(super) struct SymbolicContribution {
    pub(super) of: LinearTerm,
    pub(super) began: LinearTerm,
}

/// A transfer into a place: the condition, and the place that is read.
#[derive(Debug, Clone)]
pub(super) struct SymbolicReceipt {
    pub(super) happens: LinearFormula,
    pub(super) source: SymbolicPlace,
}

/// A program with a context in which formulas are made.
pub(super) struct StateReader<'a> {
    pub(super) program: &'a PlainProgram,
    pub(super) context: &'a mut TermContext,
}

impl StateReader<'_> {
    /// Returns the formula that something is known of a place, and so stored.
    pub(super) fn stored(
        &mut self,
        state: &ProgramState,
        place: &SymbolicPlace,
    ) -> FragmentResult<LinearFormula> {
        match state {
            ProgramState::Views(views, counters, before) => match (&views[place.buffer], before) {
                (Some(view), _) => {
                    self.in_place(place, None);
                    self.with_counters(counters, |reader| reader.context.truth(&view.stored))
                }
                (None, Some(before)) => self.stored(before, place),
                (None, None) => Ok(LinearFormula::False),
            },
            ProgramState::Round(before, rules) => {
                let mut cases = vec![self.stored(before, place)?];
                for rule in rules.iter() {
                    // A sum is stored where something was stored before.
                    if rule.rule.op == TransferOp::Copy && self.writes(rule, place) {
                        cases.push(self.receipt(rule, place, None)?.happens);
                    }
                }
                Ok(any(cases))
            }
            ProgramState::Choice(cond, yes, no) => {
                let cond = self.context.truth(cond)?;
                let (yes, no) = (self.stored(yes, place)?, self.stored(no, place)?);
                Ok(choose(cond, yes, no))
            }
        }
    }

    /// Returns the formula that a place contains a contribution.
    pub(super) fn contains(
        &mut self,
        state: &ProgramState,
        place: &SymbolicPlace,
        of: &SymbolicContribution,
    ) -> FragmentResult<LinearFormula> {
        match state {
            ProgramState::Views(views, counters, before) => match (&views[place.buffer], before) {
                (Some(view), _) => {
                    if let Some(guess) = view.token {
                        let token = self.token(guess, view, counters, of)?;
                        self.context.bind(self.program.place.token, SymbolicValue::Number(token));
                    }
                    self.in_place(place, Some(of));
                    self.with_counters(counters, |reader| reader.context.truth(&view.content))
                }
                (None, Some(before)) => self.contains(before, place, of),
                (None, None) => Err(FragmentRefusal::new("nothing is known of a buffer")),
            },
            ProgramState::Round(before, rules) => {
                let mut found = self.contains(before, place, of)?;
                for rule in rules.iter() {
                    if !self.writes(rule, place) {
                        continue;
                    }
                    let receipt = self.receipt(rule, place, Some(of))?;
                    if receipt.happens == LinearFormula::False {
                        continue;
                    }
                    let brought = self.contains(before, &receipt.source, of)?;
                    let adds = rule.rule.op == TransferOp::Reduce || self.is_union();
                    found = match adds {
                        true => any(vec![found, all(vec![receipt.happens, brought])]),
                        false => choose(receipt.happens, brought, found),
                    };
                }
                Ok(found)
            }
            ProgramState::Choice(cond, yes, no) => {
                let cond = self.context.truth(cond)?;
                let (yes, no) = (self.contains(yes, place, of)?, self.contains(no, place, of)?);
                Ok(choose(cond, yes, no))
            }
        }
    }

    /// Returns true if what arrives is united with what is there: knowledge of a barrier.
    pub(super) fn is_union(&self) -> bool {
        self.program.kind == CollectiveKind::Barrier
    }

    fn writes(&self, rule: &WitnessedRule, place: &SymbolicPlace) -> bool {
        self.program.buffer(rule.rule.to.buf) == place.buffer
    }

    /// Returns when and from where a rule writes a place.
    pub(super) fn receipt(
        &mut self,
        rule: &WitnessedRule,
        place: &SymbolicPlace,
        of: Option<&SymbolicContribution>,
    ) -> FragmentResult<SymbolicReceipt> {
        self.in_place(place, of);
        let mut conditions = Vec::new();
        for ((slot, from, to), witness) in rule.rule.variables.iter().zip(&rule.witness) {
            let value = self.context.number(witness)?;
            self.context.bind(*slot, SymbolicValue::Number(value.clone()));
            let (from, to) = (self.context.number(from)?, self.context.number(to)?);
            conditions.push(literal(LinearFormula::le(&from, &value)?));
            conditions.push(literal(LinearFormula::lt(&value, &to)?));
        }
        for condition in &rule.rule.conditions {
            conditions.push(self.context.truth(condition)?);
        }
        let dst = self.context.number(&rule.rule.dst)?;
        conditions.push(literal(LinearFormula::eq(&dst, &place.rank)?));
        let to = self.region(&rule.rule, true)?;
        conditions.push(to.contains(self.context, &place.chunk)?);
        let chunk = self.source_chunk(&rule.rule, &to, &place.chunk)?;
        let rank = self.context.number(&rule.rule.src)?;
        let buffer = self.program.buffer(rule.rule.from.buf);
        Ok(SymbolicReceipt {
            happens: all(conditions),
            source: SymbolicPlace { buffer, rank, chunk },
        })
    }

    /// Returns the region that a rule reads or writes.
    pub(super) fn region(
        &mut self,
        rule: &PlainRule,
        is_target: bool,
    ) -> FragmentResult<RegionChunks> {
        let region = if is_target { &rule.to } else { &rule.from };
        let size = self.program.buffers[self.program.buffer(region.buf)].size.clone();
        let size = self.context.number(&size)?;
        RegionChunks::new(self.context, region, &size)
    }

    /// Returns the chunk that goes to a chunk of the target.
    pub(super) fn source_chunk(
        &mut self,
        rule: &PlainRule,
        to: &RegionChunks,
        chunk: &LinearTerm,
    ) -> FragmentResult<LinearTerm> {
        let size = |name| &self.program.buffers[self.program.buffer(name)].size;
        if is_same_index(&rule.from.index, &rule.to.index)
            && is_same(size(rule.from.buf), size(rule.to.buf))
        {
            return Ok(chunk.clone());
        }
        let from = self.region(rule, false)?;
        if !from.is_contiguous() || !to.is_contiguous() {
            return Err(FragmentRefusal::at(rule.span, "regions with `by` that differ"));
        }
        let position = to.position(self.context, chunk)?;
        from.chunk_at(self.context, &position)
    }

    /// Sets the variables of a generic place.
    pub(super) fn in_place(&mut self, place: &SymbolicPlace, of: Option<&SymbolicContribution>) {
        let generic = self.program.place;
        let mut set = |slot, term: &LinearTerm| {
            self.context.bind(slot, SymbolicValue::Number(term.clone()));
        };
        set(generic.rank, &place.rank);
        set(generic.chunk, &place.chunk);
        if let Some(of) = of {
            set(generic.of, &of.of);
            set(generic.began, &of.began);
        } else {
            self.context.unbind(generic.of);
            self.context.unbind(generic.began);
        }
    }

    pub(super) fn with_counters<T>(
        &mut self,
        counters: &[(Slot, LinearTerm)],
        make: impl FnOnce(&mut Self) -> FragmentResult<T>,
    ) -> FragmentResult<T> {
        let before: Vec<_> =
            counters.iter().map(|(slot, _)| self.context.value_of(*slot)).collect();
        for (slot, term) in counters {
            self.context.bind(*slot, SymbolicValue::Number(term.clone()));
        }
        let made = make(self);
        for ((slot, _), value) in counters.iter().zip(before) {
            match value {
                Some(value) => self.context.bind(*slot, value),
                None => self.context.unbind(*slot),
            }
        }
        made
    }
}

/// Returns the conjunction.
pub(super) fn all(parts: Vec<LinearFormula>) -> LinearFormula {
    let mut list = Vec::new();
    for part in parts {
        match part {
            LinearFormula::True => {}
            LinearFormula::False => return LinearFormula::False,
            LinearFormula::And(inner) => list.extend(inner),
            other => list.push(other),
        }
    }
    match list.len() {
        0 => LinearFormula::True,
        1 => list.remove(0),
        _ => LinearFormula::And(list),
    }
}

/// Returns the disjunction.
pub(super) fn any(parts: Vec<LinearFormula>) -> LinearFormula {
    let mut list = Vec::new();
    for part in parts {
        match part {
            LinearFormula::False => {}
            LinearFormula::True => return LinearFormula::True,
            LinearFormula::Or(inner) => list.extend(inner),
            other => list.push(other),
        }
    }
    match list.len() {
        0 => LinearFormula::False,
        1 => list.remove(0),
        _ => LinearFormula::Or(list),
    }
}

pub(super) fn choose(
    condition: LinearFormula,
    yes: LinearFormula,
    no: LinearFormula,
) -> LinearFormula {
    match condition {
        LinearFormula::True => yes,
        LinearFormula::False => no,
        _ if yes == no => yes,
        condition => any(vec![
            all(vec![condition.clone(), yes]),
            all(vec![LinearFormula::negate(condition), no]),
        ]),
    }
}
