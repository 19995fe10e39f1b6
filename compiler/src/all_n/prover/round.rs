//! The obligations of one round.

use std::rc::Rc;

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::span::Span;

use crate::all_n::fragment::context::TermContext;
use crate::all_n::fragment::value::SymbolicValue;
use crate::all_n::{LinearFormula, LinearTerm};
use crate::program::ChunkIndex;

use super::certificate_step::CertificateStep;
use super::driver::ProgramProver;
use super::plain::PlainRound;
use super::state::{
    ProgramState, StateReader, SymbolicContribution, SymbolicPlace, WitnessedRule, all,
};
use super::verdict::{NotProved, of};

impl ProgramProver<'_> {
    /// Proves a round, and returns the state after it.
    pub(super) fn prove_round(
        &mut self,
        context: &TermContext,
        before: ProgramState,
        round: &PlainRound,
    ) -> Result<ProgramState, NotProved> {
        let mut rules = Vec::new();
        for rule in &round.rules {
            match self.witnesses[rule.site].clone() {
                Some(found) => {
                    let (witness, by_content) = (found.witness.clone(), found.by_content);
                    self.record.steps.push(CertificateStep::Witness(witness, by_content));
                    rules.push(found);
                }
                None => {
                    let reason = "no expression was found for the rank that writes a place";
                    return Err(NotProved {
                        span: Some(rule.span),
                        reason: reason.into(),
                        ranks: None,
                    });
                }
            }
        }
        // A copied value takes part in the sum of its round.
        rules.sort_by_key(|found| found.rule.op == TransferOp::Reduce);
        let copies = rules.iter().filter(|found| found.rule.op == TransferOp::Copy);
        let copies: Vec<WitnessedRule> = copies.cloned().collect();
        let copied = match copies.is_empty() || copies.len() == rules.len() {
            true => before.clone(),
            false => ProgramState::Round(Rc::new(before.clone()), Rc::new(copies)),
        };
        for rule in &rules {
            self.prove_rule(context, (&before, &copied), rule)?;
        }
        for (at, a) in rules.iter().enumerate() {
            for b in &rules[at + 1..] {
                let copies = [a, b].iter().all(|found| found.rule.op == TransferOp::Copy);
                if copies || !self.is_union() {
                    self.prove_apart(context, &before, (a, b), round.span)?;
                }
            }
        }
        Ok(ProgramState::Round(Rc::new(before), Rc::new(rules)))
    }

    /// Proves what one rule needs, for all values of its variables.
    fn prove_rule(
        &mut self,
        context: &TermContext,
        (before, copied): (&ProgramState, &ProgramState),
        witnessed: &WitnessedRule,
    ) -> Result<(), NotProved> {
        let (rule, program) = (&witnessed.rule, self.program);
        let mut context = context.clone();
        let mut values = Vec::new();
        for (slot, from, to) in &rule.variables {
            let (from, to) = (context.number(from)?, context.number(to)?);
            let value = self.counter(&mut context, "v", &from, &to)?;
            context.bind(*slot, SymbolicValue::Number(value.clone()));
            values.push(value);
        }
        for condition in &rule.conditions {
            let holds = context.truth(condition)?;
            context.assume(holds);
        }
        for check in &rule.checks {
            context.evaluate(check)?;
        }
        let (src, dst) = (context.number(&rule.src)?, context.number(&rule.dst)?);
        let ranks = context.number(&program.writer.var(0))?;
        let in_range = |rank: &LinearTerm, end: &LinearTerm| -> Result<LinearFormula, NotProved> {
            Ok(all(vec![
                of(LinearFormula::le(&LinearTerm::from(0), rank))?,
                of(LinearFormula::lt(rank, end))?,
            ]))
        };
        let goal = all(vec![in_range(&src, &ranks)?, in_range(&dst, &ranks)?]);
        self.record.require(&context, "ranks are in range", goal, rule.span)?;
        // What is proved may be assumed.
        self.note_in_range(&mut context, &src, &ranks)?;
        self.note_in_range(&mut context, &dst, &ranks)?;

        let mut reader = StateReader { program, context: &mut context };
        let (from, to) = (reader.region(rule, false)?, reader.region(rule, true)?);
        let goal = all(vec![from.valid(), to.valid(), from.same_count(&to)?]);
        self.record.require(
            &context,
            "chunks are in range, as many read as written",
            goal,
            rule.span,
        )?;

        let buffer = program.buffer(rule.to.buf);
        let size = context.number(&program.buffers[buffer].size)?;
        let chunk = context.variable_below("c", &size)?;
        let inside = to.contains(&mut context, &chunk)?;
        context.assume(inside);
        let mut reader = StateReader { program, context: &mut context };
        let source_chunk = reader.source_chunk(rule, &to, &chunk)?;
        let source = SymbolicPlace {
            buffer: program.buffer(rule.from.buf),
            rank: src.clone(),
            chunk: source_chunk.clone(),
        };
        let target = SymbolicPlace { buffer, rank: dst, chunk: chunk.clone() };
        let mut stored = vec![reader.stored(before, &source)?];
        if rule.op == TransferOp::Reduce || self.is_union() {
            stored.push(reader.stored(copied, &target)?);
        }
        self.record.require(&context, "what is read is stored", all(stored), rule.span)?;
        if !program.equal_chunks {
            let goal = of(LinearFormula::eq(&source_chunk, &chunk))?;
            self.record.require(&context, "chunks have the same length", goal, rule.span)?;
        }
        self.prove_untouched(&context, &target, witnessed)?;
        self.prove_witness(&context, before, witnessed, &values, (&source, &target))?;
        if rule.op == TransferOp::Reduce && !self.is_union() {
            let mut context = context.clone();
            let of = self.contribution(&mut context)?;
            let mut reader = StateReader { program, context: &mut context };
            let both = vec![
                reader.contains(copied, &target, &of)?,
                reader.contains(before, &source, &of)?,
            ];
            let goal = LinearFormula::negate(all(both));
            self.record.require(&context, "each contribution is added once", goal, rule.span)?;
            self.prove_order(&context, (before, copied), witnessed, (&source, &target))?;
            if witnessed.by_content && !to.is_simple() {
                return Err(NotProved {
                    span: Some(rule.span),
                    reason:
                        "many ranks add to a region that is neither one chunk nor a whole buffer"
                            .into(),
                    ranks: None,
                });
            }
        }
        Ok(())
    }

    /// Proves that the variables of a rule are what the witness says of the place that is written.
    fn prove_witness(
        &mut self,
        context: &TermContext,
        before: &ProgramState,
        witnessed: &WitnessedRule,
        values: &[LinearTerm],
        (source, target): (&SymbolicPlace, &SymbolicPlace),
    ) -> Result<(), NotProved> {
        let mut context = context.clone();
        let of_place = match witnessed.by_content {
            true => Some(self.contribution(&mut context)?),
            false => None,
        };
        let mut reader = StateReader { program: self.program, context: &mut context };
        if let Some(contribution) = &of_place {
            let brought = reader.contains(before, source, contribution)?;
            reader.context.assume(brought);
        }
        reader.in_place(target, of_place.as_ref());
        let mut goals = Vec::new();
        for (witness, ((slot, ..), value)) in
            witnessed.witness.iter().zip(witnessed.rule.variables.iter().zip(values))
        {
            let found = context.number(witness)?;
            goals.push(of(LinearFormula::eq(&found, value))?);
            context.bind(*slot, SymbolicValue::Number(value.clone()));
        }
        let name = match witnessed.by_content {
            true => "each contribution comes from one rank",
            false => "one rank writes a place",
        };
        self.record.require(&context, name, all(goals), witnessed.rule.span)
    }

    /// Proves that two rules of a round do not write one place, or add different contributions to it.
    fn prove_apart(
        &mut self,
        context: &TermContext,
        before: &ProgramState,
        (a, b): (&WitnessedRule, &WitnessedRule),
        span: Span,
    ) -> Result<(), NotProved> {
        let program = self.program;
        if a.rule.to.buf != b.rule.to.buf {
            return Ok(());
        }
        let mut context = context.clone();
        let place = self.generic_place(&mut context, program.buffer(a.rule.to.buf))?;
        let sums = a.rule.op == TransferOp::Reduce && b.rule.op == TransferOp::Reduce;
        let by_content = a.by_content || b.by_content;
        let copies = a.rule.op == TransferOp::Copy && b.rule.op == TransferOp::Copy;
        // Regions of sums may meet where they are the same: one chunk both, or the whole buffer both.
        let may_meet = !copies && have_same_shape(a, b) && !program.kind.is_ordered();
        if may_meet && !sums {
            return Ok(());
        }
        if by_content && !may_meet {
            return Err(NotProved {
                span: Some(span),
                reason: "sums of many ranks in regions that differ".into(),
                ranks: None,
            });
        }
        let of_place = match may_meet {
            true => Some(self.contribution(&mut context)?),
            false => None,
        };
        let mut reader = StateReader { program, context: &mut context };
        let mut both = Vec::new();
        for rule in [a, b] {
            let receipt = reader.receipt(rule, &place, of_place.as_ref())?;
            both.push(receipt.happens);
            if let Some(contribution) = &of_place {
                both.push(reader.contains(before, &receipt.source, contribution)?);
            }
        }
        let goal = LinearFormula::negate(all(both));
        self.record.require(&context, "two transfers of a round do not write one place", goal, span)
    }

    /// Assumes that a rank is in range, which was proved.
    pub(super) fn note_in_range(
        &self,
        context: &mut TermContext,
        rank: &LinearTerm,
        ranks: &LinearTerm,
    ) -> Result<(), NotProved> {
        context.assume(of(LinearFormula::le(&LinearTerm::from(0), rank))?);
        context.assume(of(LinearFormula::lt(rank, ranks))?);
        context.note_below(rank, ranks);
        Ok(())
    }

    /// Adds a variable from a number on and below another.
    pub(super) fn counter(
        &mut self,
        context: &mut TermContext,
        name: &str,
        from: &LinearTerm,
        to: &LinearTerm,
    ) -> Result<LinearTerm, NotProved> {
        let zero = LinearTerm::from(0);
        if of(to.sub(from))? == LinearTerm::from(1) {
            return Ok(from.clone());
        }
        let ranks = context.number(&self.program.writer.var(0))?;
        let value = if *from == zero {
            context.variable_below(name, to)?
        } else {
            let magnitude = context.magnitude(from)?.max(context.magnitude(to)?);
            let value = context.variable(name, magnitude)?;
            context.assume(of(LinearFormula::le(from, &value))?);
            context.assume(of(LinearFormula::lt(&value, to))?);
            value
        };
        if *from == zero && *to == ranks {
            return Ok(value);
        }
        let nonnegative = of(LinearFormula::le(&zero, &value))?;
        if self.record.is_implied(context, nonnegative) {
            context.note_nonnegative(&value);
            if self.record.is_implied(context, of(LinearFormula::lt(&value, &ranks))?) {
                context.note_below(&value, &ranks);
            }
        }
        Ok(value)
    }

    /// Adds the variables of a generic place of a buffer.
    pub(super) fn generic_place(
        &self,
        context: &mut TermContext,
        buffer: usize,
    ) -> Result<SymbolicPlace, NotProved> {
        let ranks = context.number(&self.program.writer.var(0))?;
        let size = context.number(&self.program.buffers[buffer].size)?;
        let rank = context.variable_below("q", &ranks)?;
        let chunk = context.variable_below("c", &size)?;
        Ok(SymbolicPlace { buffer, rank, chunk })
    }

    /// Adds the variables of a generic contribution.
    pub(super) fn contribution(
        &self,
        context: &mut TermContext,
    ) -> Result<SymbolicContribution, NotProved> {
        let ranks = context.number(&self.program.writer.var(0))?;
        let size = context.number(&self.program.buffers[0].size)?;
        let of = context.variable_below("j", &ranks)?;
        let began = context.variable_below("e", &size)?;
        Ok(SymbolicContribution { of, began })
    }
}

/// Returns true if both rules write one chunk, or both a whole buffer.
fn have_same_shape(a: &WitnessedRule, b: &WitnessedRule) -> bool {
    let shapes = (&a.rule.to.index, &b.rule.to.index);
    matches!(shapes, (ChunkIndex::All, ChunkIndex::All) | (ChunkIndex::At(_), ChunkIndex::At(_)))
}
