//! Computes the refinement of chunks that every sub-algorithm and part needs.

use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use crate::advice::IndexedBuffer;
use crate::budget::{BoxedDiagnostic, ENTERED, WalkBudget};
use crate::collective::{CollectiveSpec, CustomSpec};
use crate::num::{count, index, wide};
use crate::plan;
use crate::program::{AlgorithmUse, CollectiveKind, Program, ProgramBuffer, ProgramStmt, Slot};
use crate::scope::{
    MAX_CHUNKS, composed, custom_sizes, enter, index_set, length_varies, parent_buffer,
    split_range, sub_regions, used, value,
};

/// Finds how fine the chunks must be, without walking any `each`.
pub(super) struct ChunkLayout {
    paths: u32,
    /// The remaining budget for turns of loops, parts and sub-algorithms.
    budget: WalkBudget,
}

impl ChunkLayout {
    pub(super) fn new(paths: u32, budget: WalkBudget) -> Self {
        ChunkLayout { paths, budget }
    }

    /// Counts one more thing that is entered.
    fn enters(&self, span: Span) -> Result<(), BoxedDiagnostic> {
        self.budget.turns(ENTERED, span)
    }

    /// Returns the chunks that the whole vector of this program must have at least (a multiple of `units`).
    pub(super) fn program(
        &self,
        p: &Program,
        axes: &[u32],
        env: &mut Vec<i64>,
        units: u32,
        channels: u32,
    ) -> Result<u32, BoxedDiagnostic> {
        let fine = if p.composed {
            lcm(units, self.block(p, axes, env, &p.body, units)?, p.header)?
        } else {
            units
        };
        checked(u64::from(fine) * u64::from(channels), p.header)
    }

    /// Returns the chunks that the vector must have for a block of statements, if it has `units` as written.
    fn block(
        &self,
        p: &Program,
        axes: &[u32],
        env: &mut Vec<i64>,
        stmts: &[ProgramStmt],
        units: u32,
    ) -> Result<u32, BoxedDiagnostic> {
        let mut fine = units;
        for s in stmts {
            match s {
                ProgramStmt::Let(slot, e) => env[index(*slot)] = value(e, env)?,
                ProgramStmt::For { body, .. } if !composed(body) => {}
                ProgramStmt::For { slot, from, to, body } => {
                    for v in value(from, env)?..value(to, env)? {
                        self.enters(from.span)?;
                        env[index(*slot)] = v;
                        fine = lcm(fine, self.block(p, axes, env, body, units)?, p.header)?;
                    }
                }
                ProgramStmt::If { cond, then, otherwise } => {
                    let body = if value(cond, env)? != 0 { then } else { otherwise };
                    fine = lcm(fine, self.block(p, axes, env, body, units)?, p.header)?;
                }
                ProgramStmt::Each(_) => {}
                ProgramStmt::Use(u) => {
                    fine = lcm(fine, self.use_(p, axes, env, u, units)?, u.span)?;
                }
                ProgramStmt::Split(s) => {
                    let (from, to) = split_range(s, env, self.paths)?;
                    for t in from..to {
                        self.enters(s.span)?;
                        env[index(s.slot)] = t;
                        let inner = self.block(p, axes, env, &s.body, units)?;
                        fine = lcm(
                            fine,
                            checked(u64::from(inner) * wide(to - from), s.span)?,
                            s.span,
                        )?;
                    }
                }
            }
        }
        Ok(fine)
    }

    /// Returns the chunks that the vector must have for the sub-algorithm's chunks to fit the region.
    fn use_(
        &self,
        p: &Program,
        axes: &[u32],
        env: &mut [i64],
        u: &AlgorithmUse,
        units: u32,
    ) -> Result<u32, BoxedDiagnostic> {
        self.enters(u.span)?;
        let (sub_axes, mut sub_env, sub_units) = enter(p, axes, env, u)?;
        let inner = self.program(&u.program, &sub_axes, &mut sub_env, sub_units, 1);
        let inner = inner.map_err(|d| Box::new(used(u, *d)))?;
        let part = |p: &Program, axes: &[u32], chunks, custom| CollectiveSpec {
            kind: p.kind.clone(),
            ranks: axes.iter().product(),
            chunks,
            root: 0,
            custom,
        };
        let custom = match &p.kind {
            CollectiveKind::Custom(custom) => {
                let (input, output) = custom_sizes(custom, env)?;
                Some(Arc::new(CustomSpec { input, output, ..CustomSpec::default() }))
            }
            _ => None,
        };
        let spec = part(p, axes, units, custom);
        let sub = part(&u.program, &sub_axes, sub_units, None);
        let mut fine = units;
        let axis = if length_varies(p, axes, env, u) { u.over } else { None };
        for (region, buffer) in sub_regions(u) {
            let mut need = |have: u32| -> Result<(), BoxedDiagnostic> {
                if have == 0 {
                    return Ok(());
                }
                let need = u64::from(sub.size(buffer)) * u64::from(inner / sub_units);
                let factor = need / gcd(need, u64::from(have)).max(1);
                fine = lcm(fine, checked(u64::from(units) * factor.max(1), u.span)?, u.span)?;
                Ok(())
            };
            let Some(r) = region else {
                need(spec.size(parent_buffer(p, buffer)))?;
                continue;
            };
            let size = match r.buf {
                ProgramBuffer::Scratch(i) => {
                    count(value(&p.scratch[index(i)].1, env)?.clamp(0, plan::MAX_CHUNKS.into()))
                }
                b => spec.size(b),
            };
            for &c in &p.coordinates {
                env[index(c)] = 0;
            }
            loop {
                let set =
                    index_set(&r.index, env, &IndexedBuffer::new(p, r.buf, size, &[]), r.span);
                need(
                    set.map_err(|d| match axis {
                        Some(_) => Box::new(d.note(group_note(p, env))),
                        None => d,
                    })?
                    .total,
                )?;
                if !next_group(p, axes, env, axis) {
                    break;
                }
            }
        }
        Ok(fine)
    }
}

/// Goes on to the coordinates of the next group along an axis; `false` after the last one, or if all
/// groups are alike.
fn next_group(p: &Program, axes: &[u32], env: &mut [i64], over: Option<usize>) -> bool {
    let Some(over) = over else { return false };
    for (axis, (&slot, &size)) in p.coordinates.iter().zip(axes).enumerate().rev() {
        let at = &mut env[index(slot)];
        if axis != over && *at + 1 < i64::from(size) {
            *at += 1;
            return true;
        }
        *at = 0;
    }
    false
}

/// Returns a note such as `in the group with i = 3, j = 0`.
fn group_note(p: &Program, env: &[i64]) -> String {
    let at = |&slot: &Slot| format!("{} = {}", p.slots[index(slot)], env[index(slot)]);
    let parts: Vec<String> = p.coordinates.iter().map(at).collect();
    format!("in the group with {}", parts.join(", "))
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn lcm(a: u32, b: u32, span: Span) -> Result<u32, BoxedDiagnostic> {
    checked(
        u64::from(a) / gcd(u64::from(a), u64::from(b.max(1))).max(1) * u64::from(b.max(1)),
        span,
    )
}

fn checked(v: u64, span: Span) -> Result<u32, BoxedDiagnostic> {
    if v <= wide(MAX_CHUNKS) {
        return Ok(count(v));
    }
    Err(Box::new(
        Diagnostic::error(
            codes::CHUNKS,
            format!("{v} chunks are needed to nest the parts; the limit is {MAX_CHUNKS}"),
        )
        .beyond_limit(true)
        .label(span, "for this")
        .help("use fewer parts, or part counts that divide each other"),
    ))
}
