//! The places of a frame's buffers in those of the instance.

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use crate::budget::BoxedDiagnostic;
use crate::chunks::ChunkSet;
use crate::num::count;
use crate::plan::{PlanRegion, RegionPiece};

/// A buffer of a frame: chunks of the instance, seen as `units` equal ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BufferView {
    pub(super) pieces: Vec<RegionPiece>,
    pub(super) units: u32,
}

impl BufferView {
    pub(super) fn total(&self) -> u32 {
        self.pieces.iter().map(|p| p.set.total).sum()
    }

    /// Returns the chunks of the instance for chunks of the view.
    pub(super) fn map(&self, set: &ChunkSet, span: Span) -> Result<PlanRegion, BoxedDiagnostic> {
        let (total, units) = (self.total(), self.units.max(1));
        if total % units != 0 {
            return Err(Box::new(
                Diagnostic::error(
                    codes::CHUNKS,
                    format!("{total} chunks cannot be seen as {units}"),
                )
                .label(span, "here")
                .help("let the region's size be a multiple of the sub-algorithm's chunks"),
            ));
        }
        let w = total / units;
        if let [RegionPiece { buf, set: base }] = self.pieces.as_slice()
            && base.is_interval()
        {
            let extent = if set.is_interval() {
                u64::from(set.total)
            } else {
                u64::from(set.blocks()).saturating_sub(1) * u64::from(set.stride)
                    + u64::from(set.block)
            };
            let wraps = u64::from(set.start) + extent > u64::from(units);
            if base.total == base.modulus || !wraps {
                let start = (u64::from(base.start) + u64::from(set.start) * u64::from(w))
                    % u64::from(base.modulus);
                let Some(fine) = set.refined(w) else {
                    return Err(Box::new(
                        Diagnostic::error(
                            codes::CHUNKS,
                            format!(
                                "chunks {set}, cut into {w} each, are more than can be numbered"
                            ),
                        )
                        .beyond_limit(true)
                        .label(span, "here")
                        .help("choose a smaller stride, or fewer chunks"),
                    ));
                };
                let set = ChunkSet { start: count(start), modulus: base.modulus, ..fine };
                return Ok(PlanRegion::of(*buf, set));
            }
        }
        let mut pieces = Vec::new();
        for (first, len) in set.runs() {
            self.slice(first * w, (first + len) * w, &mut pieces);
        }
        Ok(PlanRegion { pieces: merge(pieces) })
    }

    /// Appends the chunks at positions `from..to` of the view, as pieces.
    pub(super) fn slice(&self, from: u32, to: u32, out: &mut Vec<RegionPiece>) {
        let mut at = 0;
        for p in &self.pieces {
            let (a, b) = (from.max(at), to.min(at + p.set.total));
            if a < b {
                let mut k = a - at;
                let end = b - at;
                if p.set.is_interval() {
                    out.push(RegionPiece {
                        buf: p.buf,
                        set: ChunkSet::interval(p.set.nth(k), end - k, p.set.modulus),
                    });
                } else {
                    let block = p.set.block;
                    let head = if k % block == 0 { 0 } else { (block - k % block).min(end - k) };
                    let body = (end - k - head) / block * block;
                    for (len, periodic) in
                        [(head, false), (body, true), (end - k - head - body, false)]
                    {
                        if len > 0 {
                            let start = p.set.nth(k);
                            let set = if periodic {
                                ChunkSet::periodic(start, block, p.set.stride, len, p.set.modulus)
                            } else {
                                ChunkSet::interval(start, len, p.set.modulus)
                            };
                            out.push(RegionPiece { buf: p.buf, set });
                            k += len;
                        }
                    }
                }
            }
            at += p.set.total;
        }
    }
}

/// Joins neighbouring intervals.
pub(crate) fn merge(pieces: Vec<RegionPiece>) -> Vec<RegionPiece> {
    let mut out: Vec<RegionPiece> = Vec::with_capacity(pieces.len());
    for p in pieces {
        if p.set.total == 0 {
            continue;
        }
        if let Some(last) = out.last_mut()
            && last.buf == p.buf
            && last.set.is_interval()
            && p.set.is_interval()
            && last.set.modulus == p.set.modulus
            && last.set.start + last.set.total == p.set.start
        {
            last.set =
                ChunkSet::interval(last.set.start, last.set.total + p.set.total, p.set.modulus);
            continue;
        }
        out.push(p);
    }
    out
}
