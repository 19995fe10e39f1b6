//! Invariants in which each contribution is in one known place: it has a *token*, the rank of that place.
//!
//! The contributions in a partial sum are no interval where skips are halved and rounded up. But each contribution
//! is in one place of those that are still summed, and a transfer moves it on. So nothing is said of the set: the
//! invariant is that for each contribution there is a rank t whose place is known, and that a known place of rank q
//! contains it if t = q. In the next turn that rank is the receiver, if the transfer of rank t takes the chunk, and
//! else t.

use roundelay_dsl::ast::TransferOp;

use crate::all_n::fragment::context::TermContext;
use crate::all_n::fragment::refusal::{FragmentRefusal, FragmentResult};
use crate::all_n::fragment::value::SymbolicValue;
use crate::all_n::{LinearFormula, LinearTerm};
use crate::program::{ExprNode, Slot, SlotExpr};

use super::asked::KnownPlaces;
use super::driver::{ProgramProver, ViewGoal};
use super::state::{ProgramState, StateReader, SymbolicContribution, SymbolicPlace, all};
use super::token_step::TokenStep;
use super::verdict::{NotProved, of};

impl StateReader<'_> {
    /// Returns the rank whose place contains a contribution, at the head of a loop whose counters have these values.
    pub(super) fn token(
        &mut self,
        guess: u32,
        view: &KnownPlaces,
        counters: &[(Slot, LinearTerm)],
        contribution: &SymbolicContribution,
    ) -> FragmentResult<LinearTerm> {
        let mut key: Vec<LinearTerm> = counters.iter().map(|(_, term)| term.clone()).collect();
        key.extend([contribution.of.clone(), contribution.began.clone()]);
        let ranks = self.context.number(&self.program.writer.var(0))?;
        let (token, is_new) = self.context.token(guess, key, &ranks)?;
        if is_new {
            // The invariant says so of every contribution.
            let is_known = self.is_known(view, counters, &token, contribution)?;
            self.context.assume(is_known);
        }
        Ok(token)
    }

    /// Returns the formula that the place of a contribution's chunk at a rank is known.
    fn is_known(
        &mut self,
        view: &KnownPlaces,
        counters: &[(Slot, LinearTerm)],
        rank: &LinearTerm,
        contribution: &SymbolicContribution,
    ) -> FragmentResult<LinearFormula> {
        let chunk = contribution.began.clone();
        self.in_place(&SymbolicPlace { buffer: 0, rank: rank.clone(), chunk }, None);
        self.with_counters(counters, |reader| reader.context.truth(&view.stored))
    }

    /// Returns the rank of a token after a step.
    fn token_after(
        &mut self,
        step: TokenStep<'_>,
        guess: u32,
        view: &KnownPlaces,
        contribution: &SymbolicContribution,
    ) -> FragmentResult<LinearTerm> {
        let (round, counters) = match step {
            TokenStep::Begin => return Ok(contribution.of.clone()),
            TokenStep::Moved(round, counters) => (round, counters),
        };
        let token = self.token(guess, view, counters, contribution)?;
        let mut next = token.clone();
        for rule in &round.rules {
            let from_each = |e: &SlotExpr| match rule.variables.as_slice() {
                [(slot, from, to)] => {
                    e.node == ExprNode::Var(*slot)
                        && from.node == ExprNode::Int(0)
                        && to.node == ExprNode::Var(0)
                }
                _ => false,
            };
            if rule.op != TransferOp::Reduce || !from_each(&rule.src) {
                return Err(FragmentRefusal::at(rule.span, "a transfer that moves no token"));
            }
            if let [(slot, ..)] = rule.variables.as_slice() {
                self.context.bind(*slot, SymbolicValue::Number(token.clone()));
            }
            let mut conditions = Vec::new();
            for condition in &rule.conditions {
                conditions.push(self.context.truth(condition)?);
            }
            let from = self.region(rule, false)?;
            conditions.push(from.contains(self.context, &contribution.began)?);
            let dst = self.context.number(&rule.dst)?;
            next = self.context.choose(all(conditions), &dst, &next)?;
        }
        Ok(next)
    }
}

impl ProgramProver<'_> {
    /// Proves that each contribution is in one known place of a buffer, and in which.
    pub(super) fn prove_tokens(
        &mut self,
        context: &TermContext,
        state: &ProgramState,
        (view, guess): (&KnownPlaces, u32),
        (place, counters): (&SymbolicPlace, &[(Slot, LinearTerm)]),
        goals: &ViewGoal<'_>,
    ) -> Result<(), NotProved> {
        let mut inner = context.clone();
        let contribution = self.contribution(&mut inner)?;
        let mut reader = StateReader { program: self.program, context: &mut inner };
        let token = reader.token_after(goals.tokens, guess, view, &contribution)?;
        let known = reader.is_known(view, counters, &token, &contribution)?;
        let name = format!("{}: each contribution is in a known place", goals.what);
        self.record.require(&inner, &name, known, goals.span)?;

        let mut inner = context.clone();
        let contribution = self.contribution(&mut inner)?;
        let mut reader = StateReader { program: self.program, context: &mut inner };
        let token = reader.token_after(goals.tokens, guess, view, &contribution)?;
        let wanted = all(vec![
            of(LinearFormula::eq(&token, &place.rank))?,
            of(LinearFormula::eq(&contribution.began, &place.chunk))?,
        ]);
        let found = reader.contains(state, place, &contribution)?;
        let name = format!("{}: its places contain what they should", goals.what);
        self.record.require(&inner, &name, LinearFormula::iff(wanted, found), goals.span)
    }
}
