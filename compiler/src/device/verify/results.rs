//! Checks what places end with: what the collective asks for, computed as the proved plans do.

use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, codes};

use super::expression::PlanExpressions;
use super::fault::ProgramFault;
use super::memory::{MemoryPlace, SymbolicMemory};
use super::shape::chunks;
use crate::instance::ProgramInstance;
use crate::num::{count, index};
use crate::plan::{BufferPlacement, PlanBuffer, PlanHeader, WireType};
use crate::program::ProgramBuffer;
use crate::verify::value::{PlaceValue, SpoiltSum, SumClash};

/// Checks the results of all ranks, in each pass.
pub(super) fn check_results(
    instance: &ProgramInstance,
    header: &PlanHeader,
    memory: &mut SymbolicMemory,
    asked: &PlanExpressions,
    passes: u32,
) -> Result<(), ProgramFault> {
    let (buf, buffer) = match header.placement {
        BufferPlacement::InPlace => (PlanBuffer::Data, ProgramBuffer::Data),
        BufferPlacement::OutOfPlace => (PlanBuffer::Output, ProgramBuffer::Output),
    };
    for (rank, planned) in asked.results.iter().enumerate() {
        for chunk in 0..chunks(header, buf) {
            let Some(expected) = instance.spec.expected(buffer, count(rank), chunk) else {
                continue;
            };
            let planned = planned.get(index(chunk)).copied().flatten();
            for pass in 0..passes {
                let is =
                    memory.content(MemoryPlace::Buffer { rank: count(rank), pass, buf, chunk });
                let right = is.value.as_ref().is_some_and(|v| v.is(&expected, header.ranks));
                if !right {
                    let ends = is.value.as_ref().map_or("nothing".into(), PlaceValue::to_string);
                    return Err(ProgramFault(format!(
                        "rank {rank}'s chunk {chunk} ends as {ends}"
                    )));
                }
                if let (Some(is), Some(planned)) = (is.expression, planned)
                    && is == planned
                {
                    continue;
                }
                let [is, planned] = [is.expression, planned].map(Option::into_iter);
                let how = is.zip(planned).map(|(is, planned)| asked.table.explain(is, planned));
                return Err(ProgramFault(format!(
                    "rank {rank}'s chunk {chunk} is folded in another order than the plan's, or rounded \
                     otherwise: it computes {}",
                    how.collect::<String>()
                )));
            }
        }
    }
    Ok(())
}

/// Adds the next operand to a sum.
pub(super) fn add(
    rank: usize,
    sum: Option<PlaceValue>,
    operand: Option<PlaceValue>,
    wire: Option<WireType>,
) -> Result<PlaceValue, ProgramFault> {
    let Some(operand) = operand else {
        return Err(ProgramFault(format!("rank {rank} reads what was never stored")));
    };
    let operand = operand.rounded(wire);
    let Some(sum) = sum else { return Ok(operand) };
    match sum.sum(&operand) {
        Err(c @ (SumClash::Twice(..) | SumClash::Chunks(..) | SumClash::Order(..))) => {
            // The graph has such sums where no result holds them; if one does here, that is found below.
            let reason = Diagnostic::error(codes::PLAN_DAMAGED, format!("{c:?}"));
            Ok(sum.spoilt_by(&operand, Arc::new(SpoiltSum { reason, step: None })))
        }
        Err(SumClash::Sizes) => {
            Err(ProgramFault(format!("rank {rank} adds chunks of different lengths")))
        }
        Ok(sum) => Ok(sum),
    }
}
