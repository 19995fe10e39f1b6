//! The obligations of `scan` and `exscan`: sums of consecutive ranks, each added behind those before it.
//!
//! Each arrival is added in the order of its source ranks, the place's own value at its rank. So with one sender, the
//! sender's part comes first if its rank is the lower one. Contributions begin as intervals of one rank, and a sum of
//! two intervals, of which one begins where the other ends, is an interval: it is enough that every rank of the first
//! part is below every rank of the second one, and that the rank behind each of the first part is in either.

use crate::all_n::LinearFormula;
use crate::all_n::fragment::context::TermContext;
use crate::program::{CollectiveKind, ProgramBuffer};

use super::driver::ProgramProver;
use super::state::{ProgramState, StateReader, SymbolicPlace, WitnessedRule, all, any};
use super::verdict::{NotProved, of};

impl ProgramProver<'_> {
    /// Proves that a rule leaves alone what the collective leaves untouched: the result of rank 0 in `exscan`.
    pub(super) fn prove_untouched(
        &mut self,
        context: &TermContext,
        target: &SymbolicPlace,
        witnessed: &WitnessedRule,
    ) -> Result<(), NotProved> {
        let is_scratch = matches!(witnessed.rule.to.buf, ProgramBuffer::Scratch(_));
        if self.program.kind != CollectiveKind::ExScan || is_scratch {
            return Ok(());
        }
        let goal = of(LinearFormula::le(&1.into(), &target.rank))?;
        self.record.require(context, "rank 0 is not written", goal, witnessed.rule.span)
    }

    /// Proves that a sum adds consecutive ranks in ascending order, where the collective asks for that.
    pub(super) fn prove_order(
        &mut self,
        context: &TermContext,
        (before, copied): (&ProgramState, &ProgramState),
        witnessed: &WitnessedRule,
        (source, target): (&SymbolicPlace, &SymbolicPlace),
    ) -> Result<(), NotProved> {
        if !self.program.kind.is_ordered() {
            return Ok(());
        }
        let span = witnessed.rule.span;
        if witnessed.by_content {
            let reason = "many ranks add to one place, whose sum has an order";
            return Err(NotProved { span: Some(span), reason: reason.into(), ranks: None });
        }
        for is_upward in [true, false] {
            let mut context = context.clone();
            let upward = of(LinearFormula::lt(&source.rank, &target.rank))?;
            let applies = if is_upward { upward } else { LinearFormula::negate(upward) };
            let first = self.contribution(&mut context)?;
            let (mut second, mut next) = (first.clone(), first.clone());
            second.of = self.contribution(&mut context)?.of;
            next.of = self.contribution(&mut context)?.of;
            let sent = (before, source);
            let own = (copied, target);
            let (low, high) = if is_upward { (sent, own) } else { (own, sent) };
            let mut reader = StateReader { program: self.program, context: &mut context };
            let in_low = all(vec![applies, reader.contains(low.0, low.1, &first)?]);
            let in_high = reader.contains(high.0, high.1, &second)?;
            let below = of(LinearFormula::lt(&first.of, &second.of))?;
            let goal = LinearFormula::implies(all(vec![in_low.clone(), in_high]), below);
            self.record.require(&context, "ranks are added in their order", goal, span)?;
            // The last of all ranks has none behind it; but then it is not in the first part, since the second part
            // is not empty.
            context.assume(of(LinearFormula::eq(&next.of, &of(first.of.add(&1.into()))?))?);
            let mut reader = StateReader { program: self.program, context: &mut context };
            let mut either = Vec::new();
            for (state, place) in [low, high] {
                either.push(reader.contains(state, place, &next)?);
            }
            let goal = LinearFormula::implies(in_low, any(either));
            self.record.require(&context, "sums are of consecutive ranks", goal, span)?;
        }
        Ok(())
    }
}
