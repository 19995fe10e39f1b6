//! Evaluates the chunks that an index names.

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use super::value::value;
use crate::advice::IndexedBuffer;
use crate::budget::BoxedDiagnostic;
use crate::chunks::ChunkSet;
use crate::num::narrow;
use crate::program::{ChunkIndex, SlotExpr};

/// Longer strides are refused.
const MOST_STRIDE: u32 = u32::MAX / 2;

/// Returns the chunks that an index names in a buffer.
pub(crate) fn index_set(
    index: &ChunkIndex,
    env: &mut [i64],
    of: &IndexedBuffer<'_>,
    span: Span,
) -> Result<ChunkSet, BoxedDiagnostic> {
    let size = of.size;
    // Said only where it is wrong: this is asked for every transfer.
    let bound = |ok: bool, message: &dyn Fn() -> String, e: &SlotExpr, env: &[i64]| {
        if ok { Ok(()) } else { Err(Box::new(of.no_chunk(message(), e, env))) }
    };
    let step = |by: &Option<SlotExpr>,
                take: &Option<SlotExpr>,
                env: &mut [i64]|
     -> Result<Option<(u32, u32)>, BoxedDiagnostic> {
        let Some(by) = by else { return Ok(None) };
        let stride = value(by, env)?;
        let block = take.as_ref().map_or(Ok(1), |t| value(t, env))?;
        if stride < 1 || block < 1 || block > stride {
            return Err(Box::new(
                Diagnostic::error(
                    codes::OVERLAP,
                    format!("blocks of {block} chunks at stride {stride} overlap"),
                )
                .label(by.span, "stride")
                .help("the stride must be at least the block, and both positive"),
            ));
        }
        // A block is not longer than the stride.
        match (narrow(stride).filter(|s| *s <= MOST_STRIDE), narrow(block)) {
            (Some(stride), Some(block)) => Ok(Some((stride, block))),
            _ => Err(Box::new(
                Diagnostic::error(codes::INDEX, format!("stride {stride} of {size} chunks"))
                    .label(by.span, "out of bounds")
                    .help(format!("strides go up to {MOST_STRIDE}")),
            )),
        }
    };
    match index {
        ChunkIndex::All => Ok(ChunkSet::all(size)),
        ChunkIndex::At(e) => {
            let v = value(e, env)?;
            bound((0..i64::from(size)).contains(&v), &|| format!("chunk {v} of {size}"), e, env)?;
            Ok(ChunkSet::interval(narrow(v).unwrap_or(0), 1, size))
        }
        ChunkIndex::Range { from, to, by, take } => {
            let (a, b) = (value(from, env)?, value(to, env)?);
            let empty = a >= b;
            bound(empty || a >= 0, &|| format!("chunks {a}..{b} of {size}"), from, env)?;
            bound(
                empty || b <= i64::from(size),
                &|| format!("chunks {a}..{b} of {size}"),
                to,
                env,
            )?;
            if empty {
                return Ok(ChunkSet::interval(0, 0, size.max(1)));
            }
            // Both lie in the buffer.
            let (first, len) = (narrow(a).unwrap_or(0), narrow(b - a).unwrap_or(0));
            Ok(match step(by, take, env)? {
                None => ChunkSet::interval(first, len, size),
                Some((stride, block)) => {
                    let total = len / stride * block + (len % stride).min(block);
                    ChunkSet::periodic(first, block, stride, total, size)
                }
            })
        }
        ChunkIndex::Cyclic { from, count, by, take } => {
            let (a, k) = (value(from, env)?, value(count, env)?);
            if k <= 0 {
                return Ok(ChunkSet::interval(0, 0, size.max(1)));
            }
            bound(
                (0..i64::from(size)).contains(&a),
                &|| format!("chunk {a} of {size}"),
                from,
                env,
            )?;
            bound(k <= i64::from(size), &|| format!("{k} chunks of {size}"), count, env)?;
            let (first, count) = (narrow(a).unwrap_or(0), narrow(k).unwrap_or(0));
            let set = match step(by, take, env)? {
                None => ChunkSet::interval(first, count, size),
                Some((stride, block)) => ChunkSet::periodic(first, block, stride, count, size),
            };
            if !set.is_simple() {
                return Err(Box::new(
                    Diagnostic::error(
                        codes::OVERLAP,
                        format!("chunks {set} of {size}: one occurs twice"),
                    )
                    .label(span, "wraps onto itself"),
                ));
            }
            Ok(set)
        }
    }
}
