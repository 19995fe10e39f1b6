//! The chunks of a region, as conditions on one chunk.

use crate::all_n::{LinearFormula, LinearTerm};
use crate::program::{BuiltinFunction, ChunkIndex, ExprNode, RegionExpr, SlotExpr};

use super::context::TermContext;
use super::refusal::{FragmentRefusal, FragmentResult};

/// The chunks of a region of a buffer.
#[derive(Debug, Clone)]
pub(in crate::all_n) struct RegionChunks {
    first: LinearTerm,
    /// The number of chunks, without a stride.
    count: LinearTerm,
    /// The stride, the length of its blocks, and the first offset that is not of the region.
    stride: Option<(LinearTerm, LinearTerm, LinearTerm)>,
    /// Chunks of the buffer.
    size: LinearTerm,
    /// Holds where the region is empty or lies in its buffer without a chunk twice.
    valid: LinearFormula,
    /// True if it is the whole buffer, from chunk 0 on.
    whole: bool,
}

impl RegionChunks {
    /// Evaluates a region of a buffer of `size` chunks.
    ///
    /// # Errors
    ///
    /// Refuses strides whose region is no condition that is linear.
    pub(in crate::all_n) fn new(
        context: &mut TermContext,
        region: &RegionExpr,
        size: &LinearTerm,
    ) -> FragmentResult<Self> {
        Self::evaluate(context, region, size).map_err(|refusal| match refusal.span {
            None => FragmentRefusal::at(region.span, refusal.reason),
            Some(_) => refusal,
        })
    }

    fn evaluate(
        context: &mut TermContext,
        region: &RegionExpr,
        size: &LinearTerm,
    ) -> FragmentResult<Self> {
        let (zero, one) = (LinearTerm::from(0), LinearTerm::from(1));
        let plain = |first, count, valid, whole| RegionChunks {
            first,
            count,
            stride: None,
            size: size.clone(),
            valid,
            whole,
        };
        Ok(match &region.index {
            ChunkIndex::All => plain(zero, size.clone(), LinearFormula::True, true),
            ChunkIndex::At(e) => {
                let at = context.number(e)?;
                let valid = within(&at, size)?;
                plain(at, one, valid, false)
            }
            ChunkIndex::Range { from, to, by, take } => {
                let (from, to) = (context.number(from)?, context.number(to)?);
                let empty = LinearFormula::le(&to, &from)?;
                let inside = LinearFormula::And(vec![
                    LinearFormula::le(&zero, &from)?,
                    LinearFormula::le(&to, size)?,
                ]);
                let count = context.choose(empty.clone(), &zero, &to.sub(&from)?)?;
                let mut chunks =
                    plain(from, count.clone(), LinearFormula::Or(vec![empty, inside]), false);
                chunks.set_stride(context, by.as_ref(), take.as_ref(), count)?;
                chunks
            }
            ChunkIndex::Cyclic { from, count, by, take } => {
                let first = context.number(from)?;
                let end = match by {
                    Some(by) if take.is_none() => Some(strided_end(context, count, by)?),
                    Some(_) => return Err(FragmentRefusal::new("`by` with `take`, cyclic")),
                    None => None,
                };
                let count = match &end {
                    Some(end) => end.clone(),
                    None => context.number(count)?,
                };
                let empty = LinearFormula::le(&count, &zero)?;
                let inside = LinearFormula::And(vec![
                    within(&first, size)?,
                    LinearFormula::le(&count, size)?,
                ]);
                let mut chunks =
                    plain(first, count.clone(), LinearFormula::Or(vec![empty, inside]), false);
                chunks.set_stride(context, by.as_ref(), take.as_ref(), count)?;
                chunks
            }
        })
    }

    fn set_stride(
        &mut self,
        context: &mut TermContext,
        by: Option<&SlotExpr>,
        take: Option<&SlotExpr>,
        end: LinearTerm,
    ) -> FragmentResult<()> {
        let Some(by) = by else { return Ok(()) };
        let stride = context.number(by)?;
        let block = take.map_or(Ok(LinearTerm::from(1)), |take| context.number(take))?;
        // The stride and the block are judged where the region is not empty; here, everywhere.
        let valid = vec![
            self.valid.clone(),
            LinearFormula::le(&LinearTerm::from(1), &block)?,
            LinearFormula::le(&block, &stride)?,
            LinearFormula::le(&stride, &LinearTerm::from(i128::from(u32::MAX / 2)))?,
        ];
        let empty = LinearFormula::le(&end, &LinearTerm::from(0))?;
        self.valid = LinearFormula::Or(vec![empty, LinearFormula::And(valid)]);
        self.stride = Some((stride, block, end));
        Ok(())
    }

    /// Returns the formula that the region is empty, or lies in its buffer without a chunk twice.
    pub(in crate::all_n) fn valid(&self) -> LinearFormula {
        self.valid.clone()
    }

    /// Returns true if the region is one chunk, or the whole buffer.
    pub(in crate::all_n) fn is_simple(&self) -> bool {
        self.whole || self.stride.is_none() && self.count == LinearTerm::from(1)
    }

    /// Returns true if positions in the region are terms: it has no stride.
    pub(in crate::all_n) fn is_contiguous(&self) -> bool {
        self.stride.is_none()
    }

    /// Returns the formula that a chunk of the buffer is of the region.
    pub(in crate::all_n) fn contains(
        &self,
        context: &mut TermContext,
        chunk: &LinearTerm,
    ) -> FragmentResult<LinearFormula> {
        if self.whole {
            return Ok(LinearFormula::True);
        }
        if self.stride.is_none() && self.count == LinearTerm::from(1) {
            return Ok(LinearFormula::eq(chunk, &self.first)?);
        }
        let offset = self.position(context, chunk)?;
        match &self.stride {
            None => Ok(LinearFormula::lt(&offset, &self.count)?),
            Some((stride, block, end)) => {
                let rest = context.rest(&offset, stride)?;
                Ok(LinearFormula::And(vec![
                    LinearFormula::lt(&rest, block)?,
                    LinearFormula::lt(&offset, end)?,
                ]))
            }
        }
    }

    /// Returns the distance of a chunk from the first one of the region.
    pub(in crate::all_n) fn position(
        &self,
        context: &mut TermContext,
        chunk: &LinearTerm,
    ) -> FragmentResult<LinearTerm> {
        if self.whole {
            return Ok(chunk.clone());
        }
        context.rest(&chunk.sub(&self.first)?, &self.size)
    }

    /// Returns the chunk at a distance from the first one of the region.
    pub(in crate::all_n) fn chunk_at(
        &self,
        context: &mut TermContext,
        position: &LinearTerm,
    ) -> FragmentResult<LinearTerm> {
        if self.whole {
            return Ok(position.clone());
        }
        if self.count == LinearTerm::from(1) && self.stride.is_none() {
            return Ok(self.first.clone());
        }
        context.rest(&self.first.add(position)?, &self.size)
    }

    /// Returns the formula that two regions have as many chunks.
    pub(in crate::all_n) fn same_count(
        &self,
        other: &RegionChunks,
    ) -> FragmentResult<LinearFormula> {
        let zero = LinearTerm::from(0);
        let empty = |r: &RegionChunks| LinearFormula::le(&r.count, &zero);
        Ok(LinearFormula::Or(vec![
            LinearFormula::eq(&self.count, &other.count)?,
            LinearFormula::And(vec![empty(self)?, empty(other)?]),
        ]))
    }
}

fn within(chunk: &LinearTerm, size: &LinearTerm) -> FragmentResult<LinearFormula> {
    Ok(LinearFormula::And(vec![
        LinearFormula::le(&LinearTerm::from(0), chunk)?,
        LinearFormula::lt(chunk, size)?,
    ]))
}

/// Returns x of `count = ceil_div(x, by)`: the offsets of such a region are the multiples of `by` below x.
fn strided_end(
    context: &mut TermContext,
    count: &SlotExpr,
    by: &SlotExpr,
) -> FragmentResult<LinearTerm> {
    if let ExprNode::Call(BuiltinFunction::CeilDiv, args) = &count.node {
        let (stride, divisor) = (context.number(by)?, context.number(&args[1])?);
        if stride == divisor {
            return context.number(&args[0]);
        }
    }
    Err(FragmentRefusal::new("`by` with a count that is not `ceil_div(x, by)`"))
}
