//! Which chunks an index names.

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use super::{Fail, value};
use crate::chunks::ChunkSet;
use crate::program::{Expr, Index};

/// The chunks that an index names in a buffer of `size` chunks.
pub(crate) fn index_set(
    index: &Index,
    env: &mut [i64],
    size: u32,
    span: Span,
) -> Result<ChunkSet, Fail> {
    let bound = |ok: bool, message: String, at: Span| {
        if ok {
            return Ok(());
        }
        Err(Box::new(Diagnostic::error(codes::INDEX, message).label(at, "out of bounds").help(
            format!(
                "the buffer has {size} chunk{}; write `%` to wrap around",
                if size == 1 { "" } else { "s" }
            ),
        )))
    };
    let step = |by: &Option<Expr>,
                take: &Option<Expr>,
                env: &mut [i64]|
     -> Result<Option<(i64, i64)>, Fail> {
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
        Ok(Some((stride, block)))
    };
    match index {
        Index::All => Ok(ChunkSet::all(size)),
        Index::At(e) => {
            let v = value(e, env)?;
            bound((0..size as i64).contains(&v), format!("chunk {v} of {size}"), e.span)?;
            Ok(ChunkSet::interval(v as u32, 1, size))
        }
        Index::Range { from, to, by, take } => {
            let (a, b) = (value(from, env)?, value(to, env)?);
            let empty = a >= b;
            bound(empty || a >= 0, format!("chunks {a}..{b} of {size}"), from.span)?;
            bound(empty || b <= size as i64, format!("chunks {a}..{b} of {size}"), to.span)?;
            if empty {
                return Ok(ChunkSet::interval(0, 0, size.max(1)));
            }
            Ok(match step(by, take, env)? {
                None => ChunkSet::interval(a as u32, (b - a) as u32, size),
                Some((stride, block)) => {
                    let full = (b - a) / stride;
                    let total = full * block + ((b - a) % stride).min(block);
                    ChunkSet::periodic(a as u32, block as u32, stride as u32, total as u32, size)
                }
            })
        }
        Index::Cyclic { from, count, by, take } => {
            let (a, k) = (value(from, env)?, value(count, env)?);
            if k <= 0 {
                return Ok(ChunkSet::interval(0, 0, size.max(1)));
            }
            bound((0..size as i64).contains(&a), format!("chunk {a} of {size}"), from.span)?;
            bound(k <= size as i64, format!("{k} chunks of {size}"), count.span)?;
            let set = match step(by, take, env)? {
                None => ChunkSet::interval(a as u32, k as u32, size),
                Some((stride, block)) => {
                    bound(stride <= u32::MAX as i64 / 2, format!("stride {stride}"), span)?;
                    ChunkSet::periodic(a as u32, block as u32, stride as u32, k as u32, size)
                }
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
