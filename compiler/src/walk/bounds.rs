//! Bounds that hold of a round, found without listing its transfers.

use super::round::WalkRound;
use crate::bounds::SlotBounds;
use crate::budget::BoxedDiagnostic;
use crate::num::count;
use crate::program::{ChunkIndex, RuleBinder, SlotExpr};

impl WalkRound<'_> {
    /// Returns the largest number of chunks that a message of the round can have.
    pub fn message_bound(&self) -> Result<u32, BoxedDiagnostic> {
        let (mut most, finest) = (0, self.frame.finest()?);
        for rule in &self.each.rules {
            let view = self.frame.view(rule.from.buf, 0)?;
            let w = match self.frame.varied {
                true => finest,
                false => view.total() / view.units.max(1),
            };
            let mut vary = vec![(self.each.var, (0, i64::from(self.frame.size) - 1))];
            for b in &rule.binders {
                let bounds =
                    SlotBounds { env: &self.frame.env, vary: &vary, defs: &self.each.defs };
                let own = |slot| self.each.defs.iter().any(|(s, _)| *s == slot);
                let found = match b {
                    RuleBinder::For(slot, from, to) => {
                        let (lo, hi) = (bounds.range(from).0, bounds.range(to).1.saturating_sub(1));
                        (*slot, (lo, hi.max(lo)))
                    }
                    // What does not depend on the rank has no value yet either.
                    RuleBinder::Let(slot, e) if !own(*slot) => (*slot, bounds.range(e)),
                    RuleBinder::Let(..) | RuleBinder::Where(_) => continue,
                };
                vary.push(found);
            }
            let bounds = SlotBounds { env: &self.frame.env, vary: &vary, defs: &self.each.defs };
            let chunks = match &rule.from.index {
                ChunkIndex::All => i64::from(view.units),
                ChunkIndex::At(_) => 1,
                ChunkIndex::Cyclic { count, .. } => bounds.range(count).1,
                ChunkIndex::Range { from, to, .. } => span_bound(&bounds, from, to),
            };
            most = most.max(count(chunks.clamp(0, i64::from(view.units))) * w);
        }
        Ok(most)
    }
}

/// Returns a bound of `to - from`: exact where both are the same but for constants.
fn span_bound(bounds: &SlotBounds<'_>, from: &SlotExpr, to: &SlotExpr) -> i64 {
    let widest = || bounds.range(to).1.saturating_sub(bounds.range(from).0);
    if !bounds.varies(from) && !bounds.varies(to) {
        return widest();
    }
    bounds.slope(to, from).unwrap_or_else(widest)
}
