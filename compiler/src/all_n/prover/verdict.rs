//! The outcome of an attempt to prove a program for every rank count.

use roundelay_dsl::span::Span;

use crate::all_n::LinearFormula;
use crate::all_n::fragment::context::TermContext;
use crate::all_n::fragment::refusal::FragmentRefusal;
use crate::all_n::{
    ProofObligation, RefutationTree, RefuteOutcome, StepBudget, TermOverflow, refute,
};
use crate::program::ProgramBuffer;

use super::certificate_step::CertificateStep;
use super::effort::ProofEffort;

/// Steps of one obligation, at most.
const STEPS_EACH: u64 = 150_000;

/// A proof that a program does what its collective asks for, with every number of ranks that it is meant for.
#[derive(Debug, Clone)]
pub struct AllRanksProof {
    /// The obligations, each with its refutation.
    pub obligations: Vec<(ProofObligation, RefutationTree)>,
    /// The invariants at the heads of loops, in the order in which the loops end.
    pub invariants: Vec<LoopInvariant>,
    /// The certificate: a text that proves it to those who trust neither the prover nor its obligations. None where the
    /// checker of certificates does not know all of the program.
    pub certificate: Option<String>,
}

/// The proof of a program on `n ranks`.
#[derive(Debug)]
pub(super) struct FlatProof {
    pub(super) record: ProofRecord,
    pub(super) invariants: Vec<LoopInvariant>,
    pub(super) certificate: Option<String>,
}

/// The invariant at the head of a loop for a generic place of a buffer: rank q, chunk c; in turn s.
#[derive(Debug, Clone)]
pub struct LoopInvariant {
    /// The bounds of the loop.
    pub span: Span,
    /// The buffer.
    pub buffer: ProgramBuffer,
    /// The places of which something is known: they hold a value.
    pub stored: String,
    /// The condition under which such a place contains what began as chunk e of rank j.
    pub content: String,
}

/// Why a program is not proved for every rank count. It may be right all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotProved {
    /// The statement or expression to blame.
    pub span: Option<Span>,
    /// The reason, without a full stop.
    pub reason: String,
    /// A rank count at which the program is perhaps wrong.
    pub ranks: Option<u64>,
}

impl From<FragmentRefusal> for NotProved {
    fn from(refusal: FragmentRefusal) -> Self {
        NotProved { span: refusal.span, reason: refusal.reason, ranks: None }
    }
}

/// The obligations that are proved so far, and the steps that are left.
#[derive(Debug)]
pub(super) struct ProofRecord {
    pub(super) obligations: Vec<(ProofObligation, RefutationTree)>,
    /// The lines of the certificate.
    pub(super) steps: Vec<CertificateStep>,
    left: u64,
    /// Evaluations that the guesses of a program may take.
    pub(super) evaluations: u64,
}

impl ProofRecord {
    /// Creates a record of nothing, with the work that an attempt may take.
    pub(super) fn new(effort: ProofEffort) -> Self {
        let ProofEffort { evaluations, steps } = effort;
        ProofRecord { obligations: Vec::new(), steps: Vec::new(), left: steps, evaluations }
    }

    /// Proves that a goal follows from the assumptions of a context.
    pub(super) fn require(
        &mut self,
        context: &TermContext,
        name: &str,
        goal: LinearFormula,
        span: Span,
    ) -> Result<(), NotProved> {
        if goal == LinearFormula::True {
            return Ok(());
        }
        let obligation = context.clone().prove(name.to_owned(), goal);
        let granted = STEPS_EACH.min(self.left);
        let mut budget = StepBudget::new(granted);
        let outcome = refute(&obligation, &mut budget);
        self.left -= granted - budget.left();
        match outcome {
            RefuteOutcome::Proved(tree) => {
                self.steps.push(CertificateStep::Obligation(self.obligations.len()));
                self.obligations.push((obligation, tree));
                Ok(())
            }
            RefuteOutcome::Unproved { model, reason } => {
                // The number of ranks is the first variable.
                let ranks = model.and_then(|values| u64::try_from(*values.first()?).ok());
                let reason = format!("not proved that {name}: {reason}");
                Err(NotProved { span: Some(span), reason, ranks })
            }
        }
    }

    /// Returns true if a goal follows, which the certificate says too.
    pub(super) fn is_implied(&mut self, context: &TermContext, goal: LinearFormula) -> bool {
        let obligation = context.clone().prove(String::new(), goal);
        let granted = 5_000.min(self.left);
        let mut budget = StepBudget::new(granted);
        let outcome = refute(&obligation, &mut budget);
        self.left -= granted - budget.left();
        let tree = match outcome {
            RefuteOutcome::Proved(tree) => Some(tree),
            RefuteOutcome::Unproved { .. } => None,
        };
        let is_implied = tree.is_some();
        self.steps.push(CertificateStep::Fact(tree));
        is_implied
    }
}

/// Converts the overflow of a term.
pub(super) fn of<T>(made: Result<T, TermOverflow>) -> Result<T, NotProved> {
    made.map_err(|overflow| FragmentRefusal::from(overflow).into())
}
