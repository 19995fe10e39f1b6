//! Computes the refinement of chunks that every sub-algorithm and part needs, and how programs enter others.

use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, Label, codes};
use roundelay_dsl::span::Span;

use super::{Fail, MAX_CHUNKS, chunks, custom_sizes, environment, index_set, requires, value};
use crate::advice::Indexed;
use crate::bounds::Bounds;
use crate::budget::{Budget, ENTERED};
use crate::collective::{CustomSpec, Kind, Spec};
use crate::num::{count, index, wide};
use crate::program::{Buffer, Expr, Index, Program, Region, Slot, Split, Stmt, Style, Use};

/// Finds how fine the chunks must be, without walking any `each`.
pub(super) struct Layout {
    paths: u32,
    /// The remaining budget for turns of loops, parts and sub-algorithms.
    budget: Budget,
}

impl Layout {
    pub(super) fn new(paths: u32, budget: Budget) -> Self {
        Layout { paths, budget }
    }

    /// Counts one more thing that is entered.
    fn enters(&self, span: Span) -> Result<(), Fail> {
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
    ) -> Result<u32, Fail> {
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
        stmts: &[Stmt],
        units: u32,
    ) -> Result<u32, Fail> {
        let mut fine = units;
        for s in stmts {
            match s {
                Stmt::Let(slot, e) => env[index(*slot)] = value(e, env)?,
                Stmt::For { body, .. } if !crate::walk::composed(body) => {}
                Stmt::For { slot, from, to, body } => {
                    for v in value(from, env)?..value(to, env)? {
                        self.enters(from.span)?;
                        env[index(*slot)] = v;
                        fine = lcm(fine, self.block(p, axes, env, body, units)?, p.header)?;
                    }
                }
                Stmt::If { cond, then, otherwise } => {
                    let body = if value(cond, env)? != 0 { then } else { otherwise };
                    fine = lcm(fine, self.block(p, axes, env, body, units)?, p.header)?;
                }
                Stmt::Each(_) => {}
                Stmt::Use(u) => fine = lcm(fine, self.use_(p, axes, env, u, units)?, u.span)?,
                Stmt::Split(s) => {
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
        u: &Use,
        units: u32,
    ) -> Result<u32, Fail> {
        self.enters(u.span)?;
        let (sub_axes, mut sub_env, sub_units) = enter(p, axes, env, u)?;
        let inner = self.program(&u.program, &sub_axes, &mut sub_env, sub_units, 1);
        let inner = inner.map_err(|d| Box::new(used(u, *d)))?;
        let part = |p: &Program, axes: &[u32], chunks, custom| Spec {
            kind: p.kind.clone(),
            ranks: axes.iter().product(),
            chunks,
            root: 0,
            custom,
        };
        let custom = match &p.kind {
            Kind::Custom(custom) => {
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
            let mut need = |have: u32| -> Result<(), Fail> {
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
                Buffer::Scratch(i) => {
                    count(value(&p.scratch[index(i)].1, env)?.clamp(0, MAX_CHUNKS))
                }
                b => spec.size(b),
            };
            for &c in &p.coordinates {
                env[index(c)] = 0;
            }
            loop {
                let set = index_set(&r.index, env, &Indexed::new(p, r.buf, size, &[]), r.span);
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

/// Returns true if regions of a `use` may differ in length from group to group, by their form.
pub(crate) fn length_varies(p: &Program, axes: &[u32], env: &[i64], u: &Use) -> bool {
    if u.over.is_none() {
        return false;
    }
    let coordinates = p.coordinates.iter().zip(axes);
    let vary: Vec<_> = coordinates.map(|(&slot, &size)| (slot, (0, i64::from(size) - 1))).collect();
    let bounds = Bounds { env, vary: &vary, defs: &[] };
    let any = |e: &Option<Expr>| e.as_ref().is_some_and(|e| bounds.varies(e));
    sub_regions(u).into_iter().any(|(region, _)| match region.map(|r| &r.index) {
        None | Some(Index::All | Index::At(_)) => false,
        Some(Index::Cyclic { count, .. }) => bounds.varies(count),
        Some(Index::Range { from, to, by, take }) => {
            let moves = bounds.varies(from) || bounds.varies(to);
            any(by) || any(take) || moves && bounds.slope(to, from).is_none()
        }
    })
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

/// Returns the regions that a `use` hands down, with the buffer that each becomes.
pub(crate) fn sub_regions(u: &Use) -> Vec<(Option<&Region>, Buffer)> {
    match u.program.style {
        Style::Data => vec![(u.on.as_ref(), Buffer::Data)],
        Style::InputOutput => {
            vec![(u.on.as_ref(), Buffer::Input), (u.to.as_ref().or(u.on.as_ref()), Buffer::Output)]
        }
    }
}

/// Adds to a finding in a used program the line that uses it: the user's own line comes first.
pub(crate) fn used(u: &Use, mut d: Diagnostic) -> Diagnostic {
    let own = |l: &Label| {
        let (line, place) = (u.span, l.span);
        line.source == place.source && line.start <= place.start && place.end <= line.end
    };
    if let Some(at) = d.labels.iter().position(own) {
        // The place is in the line itself; what stands before it are lines of what is used.
        d.labels.drain(..at);
        return d;
    }
    let name = format!("in `{}.{}`, used here", u.program.kind.name(), u.program.name);
    d.labels.insert(0, Label { span: u.span, text: name });
    d
}

/// Returns the buffer of the using program that stands for a buffer of the used one by default.
pub(crate) fn parent_buffer(p: &Program, buffer: Buffer) -> Buffer {
    match (p.style, buffer) {
        (Style::Data, _) => Buffer::Data,
        (Style::InputOutput, Buffer::Data) => Buffer::Output,
        (Style::InputOutput, b) => b,
    }
}

/// Returns axes, environment and chunks of a used program.
pub(crate) fn enter(
    p: &Program,
    axes: &[u32],
    env: &mut [i64],
    u: &Use,
) -> Result<(Vec<u32>, Vec<i64>, u32), Fail> {
    let total: u32 = axes.iter().product();
    let m = u.over.map_or(total, |axis| axes[axis]);
    let sub = &u.program;
    let sub_axes = match (sub.axes.names.len(), u.over) {
        (1, _) => vec![m],
        (k, None) if k == axes.len() => axes.to_vec(),
        (k, _) => {
            return Err(Box::new(
                Diagnostic::error(
                    codes::SHAPE,
                    format!("`{}` runs on a grid of {k} axes", sub.name),
                )
                .label(u.span, "used here")
                .help("use it on all ranks of a grid with as many axes"),
            ));
        }
    };
    let root = match &u.root {
        Some(e) => value(e, env)?,
        None if u.over.is_none() && sub.kind.rooted() && p.kind.rooted() => env[index(p.root)],
        None => 0,
    };
    if !(0..i64::from(m)).contains(&root) {
        return Err(Box::new(
            Diagnostic::error(codes::ROOT, format!("root {root} is not one of {m} ranks"))
                .label(u.span, "used here"),
        ));
    }
    let mut sub_env = environment(sub, &sub_axes, count(root));
    let located = |d: Fail| Box::new(used(u, *d));
    requires(sub, &mut sub_env).map_err(located)?;
    let units = chunks(sub, &mut sub_env, m).map_err(located)?;
    Ok((sub_axes, sub_env, units))
}

/// Returns the bounds of a split.
pub(crate) fn split_range(s: &Split, env: &mut [i64], paths: u32) -> Result<(i64, i64), Fail> {
    let (from, to) = match &s.range {
        Some((a, b)) => (value(a, env)?, value(b, env)?),
        None => (0, i64::from(paths)),
    };
    let parts = to.saturating_sub(from);
    if !(1..=4096).contains(&parts) {
        return Err(Box::new(
            Diagnostic::error(codes::CHUNKS, format!("a split into {parts} parts"))
                .label(s.span, "here")
                .help("between 1 and 4096 parts are possible"),
        ));
    }
    Ok((from, to))
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn lcm(a: u32, b: u32, span: Span) -> Result<u32, Fail> {
    checked(
        u64::from(a) / gcd(u64::from(a), u64::from(b.max(1))).max(1) * u64::from(b.max(1)),
        span,
    )
}

fn checked(v: u64, span: Span) -> Result<u32, Fail> {
    if v <= wide(MAX_CHUNKS) {
        return Ok(count(v));
    }
    Err(Box::new(
        Diagnostic::error(
            codes::CHUNKS,
            format!("{v} chunks are needed to nest the parts; the limit is {MAX_CHUNKS}"),
        )
        .label(span, "for this")
        .help("use fewer parts, or part counts that divide each other"),
    ))
}
