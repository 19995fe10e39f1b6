//! The way through a program: from the state before it to the result.

use std::cell::Cell;
use std::rc::Rc;

use roundelay_dsl::ast::BinOp;
use roundelay_dsl::span::Span;

use crate::all_n::fragment::context::{TermContext, literal};
use crate::all_n::fragment::flatten::flatten;
use crate::all_n::fragment::value::SymbolicValue;
use crate::all_n::{LinearFormula, LinearTerm};
use crate::num::count;
use crate::program::{BuiltinFunction, CollectiveKind, ExprNode, Program, Slot, SlotExpr};
use crate::shape::MAX_RANKS;

use super::asked::{KnownPlaces, asked_view, initial_views};
use super::certificate_text::write_certificate;
use super::plain::{PlainProgram, PlainStatement, to_plain};
use super::program_text::write_program;
use super::runs::{RunSamples, run_all};
use super::state::{ProgramState, StateReader, WitnessedRule, all};
use super::token_step::TokenStep;
use super::verdict::{FlatProof, LoopInvariant, NotProved, ProofRecord, of};
use super::witness::find_witness;

/// Guesses that are made from runs with this many ranks, at most.
const MOST_RANKS: i64 = 9;

/// Chunks of a buffer, at most.
const MOST_CHUNKS: i64 = (1 << 31) - 1;

/// The options of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProofOptions {
    /// True if a run that fails at a small rank count ends the attempt. No proof depends on it: without, the
    /// obligations must refuse what is wrong.
    pub stops_at_failed_run: bool,
}

impl Default for ProofOptions {
    fn default() -> Self {
        ProofOptions { stops_at_failed_run: true }
    }
}

/// Proves a program on `n ranks`; `keeps_chunks` also that no transfer changes the number of a chunk.
///
/// # Errors
///
/// Why it is not proved.
pub(super) fn prove_flat(
    program: &Program,
    options: ProofOptions,
    keeps_chunks: bool,
    record: ProofRecord,
) -> Result<FlatProof, NotProved> {
    let mut plain = to_plain(program)?;
    plain.equal_chunks &= !keeps_chunks;
    let initial = initial_views(&plain)?;
    let asked = asked_view(&plain)?;
    let samples = match run_all(&plain, &initial, &asked, MOST_RANKS) {
        (_, Some((ranks, why))) if options.stops_at_failed_run => {
            return Err(NotProved {
                span: Some(program.header),
                reason: format!("with {ranks} ranks, {why}"),
                ranks: u64::try_from(ranks).ok(),
            });
        }
        (samples, _) => samples,
    };
    let mut witnesses = vec![None; plain.rules];
    find_witnesses(&plain, &plain.statements, &samples, &mut witnesses);
    let mut prover = ProgramProver {
        program: &plain,
        samples,
        witnesses,
        guesses: Cell::new(record.evaluations),
        record,
        invariants: Vec::new(),
        is_unguessed: false,
        tokens: 0,
    };
    let (noted, lines) = (prover.record.obligations.len(), prover.record.steps.len());
    let mut least = 1;
    let mut proved = prover.prove_from(least, &initial, &asked);
    // With few ranks, powers and moduli may be none: those counts are unrolled. Unrolling does not say that chunks keep
    // their numbers, but with one rank, where there is no other.
    let most = if keeps_chunks { 2 } else { 3 };
    while least < most && proved.is_err() && !prover.is_unguessed {
        if !prover.is_right_with(least, program) {
            break;
        }
        least += 1;
        prover.record.obligations.truncate(noted);
        prover.record.steps.truncate(lines);
        prover.invariants.clear();
        for heads in &mut prover.samples.heads {
            heads.retain(|head| count(head.places.ranks) >= least);
        }
        proved = prover.prove_from(least, &initial, &asked);
    }
    prover.prove_failures(&proved?, program)?;
    // Failures are tried at each rank count, which no certificate has.
    let is_covered = !keeps_chunks && program.tolerates.is_none();
    let certificate = match is_covered {
        true => {
            let name = format!("{}.{}", program.kind.name(), program.name);
            let written = write_program(&flatten(program)?, &plain);
            Some(write_certificate(&name, written, least, &prover.record))
        }
        false => None,
    };
    Ok(FlatProof { record: prover.record, invariants: prover.invariants, certificate })
}

/// Returns the canonical text of a program, as its certificate has it: the resolved program with the programs that it
/// uses in place, without the names and the layout of the source.
///
/// # Errors
///
/// Refuses what proofs for every rank count do not cover.
pub fn canonical_text(program: &Program) -> Result<String, NotProved> {
    let plain = to_plain(program)?;
    Ok(write_program(&flatten(program)?, &plain).text)
}

fn find_witnesses(
    program: &PlainProgram,
    statements: &[PlainStatement],
    samples: &RunSamples,
    out: &mut [Option<WitnessedRule>],
) {
    for statement in statements {
        match statement {
            PlainStatement::Loop(l) => find_witnesses(program, &l.body, samples, out),
            PlainStatement::Choice(_, yes, no) => {
                find_witnesses(program, yes, samples, out);
                find_witnesses(program, no, samples, out);
            }
            PlainStatement::Round(round) => {
                for rule in &round.rules {
                    out[rule.site] = find_witness(program, rule, &samples.rules[rule.site]);
                }
            }
            _ => {}
        }
    }
}

/// The subject of an obligation, and its place in the text.
pub(super) struct ViewGoal<'a> {
    pub(super) what: &'static str,
    pub(super) span: Span,
    pub(super) tokens: TokenStep<'a>,
}

/// A proof that is being made.
pub(super) struct ProgramProver<'a> {
    pub(super) program: &'a PlainProgram,
    pub(super) samples: RunSamples,
    /// By rule.
    pub(super) witnesses: Vec<Option<WitnessedRule>>,
    pub(super) record: ProofRecord,
    pub(super) invariants: Vec<LoopInvariant>,
    /// Evaluations that guesses may still take.
    pub(super) guesses: Cell<u64>,
    /// True if there is a loop of which nothing could be guessed.
    pub(super) is_unguessed: bool,
    /// The guesses with tokens that were made, which number them.
    pub(super) tokens: u32,
}

impl ProgramProver<'_> {
    /// Returns true if what arrives is united with what is there.
    pub(super) fn is_union(&self) -> bool {
        self.program.kind == CollectiveKind::Barrier
    }

    /// Proves the program with `least` ranks and more. Returns the context before it.
    fn prove_from(
        &mut self,
        least: u32,
        initial: &[KnownPlaces],
        asked: &KnownPlaces,
    ) -> Result<TermContext, NotProved> {
        let first = self.first_context(least)?;
        let mut context = first.clone();
        let views = initial.iter().cloned().map(Some).collect();
        let state = ProgramState::Views(Rc::new(views), Vec::new(), None);
        let statements = &self.program.statements;
        let state = self.run(&mut context, state, statements, &mut Vec::new())?;
        let header = self.program.header;
        let goals = ViewGoal { what: "the result", span: header, tokens: TokenStep::Begin };
        self.prove_view(&context, &state, asked, (self.program.result, &[]), &goals)?;
        Ok(first)
    }

    fn first_context(&mut self, least: u32) -> Result<TermContext, NotProved> {
        let program = self.program;
        let mut context = TermContext::new(program.slots);
        context.set_exact_multiples(program.kind.is_ordered());
        let ranks = context.variable("n", u128::from(MAX_RANKS))?;
        context.assume_positive(&ranks)?;
        let most = LinearTerm::from(i128::from(MAX_RANKS));
        context.assume(of(LinearFormula::le(&ranks, &most))?);
        for fewer in 1..least {
            let more = of(ranks.sub(&LinearTerm::from(i128::from(fewer))))?;
            context.assume_positive(&more)?;
        }
        context.bind(0, SymbolicValue::Number(ranks.clone()));
        let root = match program.kind.rooted() {
            true => context.variable_below("root", &ranks)?,
            false => LinearTerm::from(0),
        };
        context.bind(program.root, SymbolicValue::Number(root));
        for &(slot, value) in &program.constants {
            context.bind(slot, SymbolicValue::Number(LinearTerm::from(i128::from(value))));
        }
        if program.kind == CollectiveKind::SendRecv {
            // Other rank counts are refused.
            context.assume(of(LinearFormula::eq(&ranks, &LinearTerm::from(2)))?);
        }
        for condition in &program.requires {
            assume_condition(&mut context, condition)?;
        }
        let limits = program.buffers.iter().map(|buffer| (&buffer.size, MOST_CHUNKS));
        for (number, most) in limits.chain(program.schedule.iter().map(|(e, most)| (e, *most))) {
            let value = context.number(number)?;
            let least = of(LinearFormula::le(&LinearTerm::from(1), &value))?;
            let most = of(LinearFormula::le(&value, &LinearTerm::from(i128::from(most))))?;
            let goal = all(vec![literal(least), literal(most)]);
            self.record.require(&context, "a number is in its range", goal, number.span)?;
            context.assume_positive(&value)?;
        }
        Ok(context)
    }

    /// Proves statements, and returns the state after them.
    pub(super) fn run(
        &mut self,
        context: &mut TermContext,
        mut state: ProgramState,
        statements: &[PlainStatement],
        counters: &mut Vec<Slot>,
    ) -> Result<ProgramState, NotProved> {
        for statement in statements {
            state = match statement {
                PlainStatement::Check(e) => {
                    context.evaluate(e)?;
                    state
                }
                PlainStatement::Require(e) => {
                    let goal = context.truth(e)?;
                    self.record.require(context, "what a used algorithm requires", goal, e.span)?;
                    state
                }
                PlainStatement::Part(slot, range, span) => {
                    self.bind_part(context, *slot, range.as_ref(), *span)?;
                    state
                }
                PlainStatement::Round(round) => self.prove_round(context, state, round)?,
                PlainStatement::Choice(cond, yes, no) => {
                    let holds = context.truth(cond)?;
                    let mut branch = |prover: &mut Self, list, holds| {
                        let mut inner = context.clone();
                        inner.assume(holds);
                        prover.run(&mut inner, state.clone(), list, counters)
                    };
                    let then = branch(self, yes, holds.clone())?;
                    let otherwise = branch(self, no, LinearFormula::negate(holds))?;
                    ProgramState::Choice(cond.clone(), Rc::new(then), Rc::new(otherwise))
                }
                PlainStatement::Loop(l) => self.prove_loop(context, state, l, counters)?,
            };
        }
        Ok(state)
    }

    fn bind_part(
        &mut self,
        context: &mut TermContext,
        slot: Slot,
        range: Option<&(SlotExpr, SlotExpr)>,
        span: Span,
    ) -> Result<(), NotProved> {
        let part = match range {
            Some((from, to)) => {
                let (from, to) = (context.number(from)?, context.number(to)?);
                let goal = of(LinearFormula::lt(&from, &to))?;
                self.record.require(context, "there are parts", goal, span)?;
                self.counter(context, "part", &from, &to)?
            }
            None => context.variable_below("path", &LinearTerm::from(1 << 32))?,
        };
        context.bind(slot, SymbolicValue::Number(part));
        Ok(())
    }

    pub(super) fn prove_all(
        &mut self,
        context: &TermContext,
        state: &ProgramState,
        views: &[Option<KnownPlaces>],
        counters: &[(Slot, LinearTerm)],
        goals: &ViewGoal<'_>,
    ) -> Result<(), NotProved> {
        for (buffer, view) in views.iter().enumerate() {
            if let Some(view) = view {
                self.prove_view(context, state, view, (buffer, counters), goals)?;
            }
        }
        Ok(())
    }

    /// Proves that a state has what a view says of a buffer.
    fn prove_view(
        &mut self,
        context: &TermContext,
        state: &ProgramState,
        view: &KnownPlaces,
        (buffer, counters): (usize, &[(Slot, LinearTerm)]),
        goals: &ViewGoal<'_>,
    ) -> Result<(), NotProved> {
        let mut context = context.clone();
        let place = self.generic_place(&mut context, buffer)?;
        let mut views = vec![None; self.program.buffers.len()];
        views[buffer] = Some(view.clone());
        let wanted = ProgramState::Views(Rc::new(views), counters.to_vec(), None);
        let mut reader = StateReader { program: self.program, context: &mut context };
        let is_known = reader.stored(&wanted, &place)?;
        reader.context.assume(is_known);
        let stored = reader.stored(state, &place)?;
        let name = format!("{}: its places are stored", goals.what);
        self.record.require(&context, &name, stored, goals.span)?;
        if let Some(guess) = view.token {
            // What is wanted has tokens of its own.
            return self.prove_tokens(&context, state, (view, guess), (&place, counters), goals);
        }
        let contribution = self.contribution(&mut context)?;
        let mut reader = StateReader { program: self.program, context: &mut context };
        let wanted = reader.contains(&wanted, &place, &contribution)?;
        let found = reader.contains(state, &place, &contribution)?;
        let name = format!("{}: its places contain what they should", goals.what);
        self.record.require(&context, &name, iff(wanted, found), goals.span)
    }
}

fn iff(a: LinearFormula, b: LinearFormula) -> LinearFormula {
    match (a, b) {
        (LinearFormula::True, other) | (other, LinearFormula::True) => other,
        (LinearFormula::False, other) | (other, LinearFormula::False) => {
            LinearFormula::negate(other)
        }
        (a, b) if a == b => LinearFormula::True,
        (a, b) => LinearFormula::iff(a, b),
    }
}

fn assume_condition(context: &mut TermContext, e: &SlotExpr) -> Result<(), NotProved> {
    match &e.node {
        ExprNode::Binary(BinOp::And, a, b) => {
            assume_condition(context, a)?;
            assume_condition(context, b)
        }
        ExprNode::Call(BuiltinFunction::Pow2, args) if args[0].node == ExprNode::Var(0) => {
            let number = context.number(&args[0])?;
            Ok(context.note_power(&number)?)
        }
        _ => {
            let holds = context.truth(e)?;
            context.assume(holds);
            Ok(())
        }
    }
}
