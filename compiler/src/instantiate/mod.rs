//! Makes instances: checks the shape and the clauses of a program, lays out its chunks, and walks it once for its
//! scratch buffers.
//!
//! The chunk unit of an instance is fine enough for every sub-algorithm and every part of a split:
//! chunks of chunks nest exactly, so refining changes no byte boundary.

mod custom;
mod layout;

use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};

use crate::budget::{BoxedDiagnostic, WalkBudget};
use crate::collective::CollectiveSpec;
use crate::instance::{CompileOptions, InstanceSetting, ProgramInstance};
use crate::num::count;
use crate::plan::{MAX_PATHS, MAX_SLOTS};
use crate::program::{CollectiveKind, Program, SlotExpr};
use crate::scope::{environment, requires, units, value};
use crate::shape::{MAX_RANKS, Shape};
use crate::walk::scratch;
use custom::custom_spec;
use layout::ChunkLayout;

impl ProgramInstance {
    /// Checks shape and `requires`, and lays out chunks and scratch.
    pub fn new(
        program: &Arc<Program>,
        shape: &Shape,
        options: &CompileOptions,
    ) -> Result<Self, Diagnostics> {
        Self::build(program, shape, options).map_err(|d| vec![*d])
    }

    fn build(
        program: &Arc<Program>,
        shape: &Shape,
        options: &CompileOptions,
    ) -> Result<Self, BoxedDiagnostic> {
        let axes = fit(program, shape)?;
        let n = shape.ranks();
        if n == 0 || n > MAX_RANKS {
            return Err(Box::new(
                Diagnostic::error(
                    codes::SHAPE,
                    format!("{n} ranks: from 1 to {MAX_RANKS} are possible"),
                )
                .label(program.header, "for this algorithm")
                .help("give a rank count such as `-n 8`"),
            ));
        }
        if u64::from(options.root) >= n {
            return Err(Box::new(
                Diagnostic::error(
                    codes::ROOT,
                    format!("root {} is not one of {n} ranks", options.root),
                )
                .label(program.header, "for this algorithm")
                .help(format!("roots go from 0 to {}", n - 1)),
            ));
        }
        if !(1..=MAX_PATHS).contains(&options.paths) {
            return Err(Box::new(
                Diagnostic::error(
                    codes::PATH,
                    format!("{} paths: from 1 to {MAX_PATHS} are possible", options.paths),
                )
                .label(program.header, "for this algorithm"),
            ));
        }
        if program.kind == CollectiveKind::SendRecv && n != 2 {
            return Err(Box::new(
                Diagnostic::error(codes::REQUIRES, format!("sendrecv is between 2 ranks, not {n}"))
                    .label(program.header, "for this algorithm"),
            ));
        }
        let mut env = environment(program, &axes, options.root);
        requires(program, &mut env)?;
        let units = units(program, &mut env, count(n))?;
        let clause = |e: &Option<SlotExpr>, env: &mut Vec<i64>, name: &str, max: i64| match e {
            None => Ok(None),
            Some(e) => {
                let v = value(e, env)?;
                if (1..=max).contains(&v) {
                    Ok(Some(count(v)))
                } else {
                    Err(Box::new(
                        Diagnostic::error(
                            codes::BAD_SCHEDULE,
                            format!("{name} {v} is out of range"),
                        )
                        .label(e.span, "here")
                        .help(format!("{name} goes from 1 to {max}")),
                    ))
                }
            }
        };
        let channels = clause(&program.schedule.channels, &mut env, "channels", 64)?.unwrap_or(1);
        let pipeline = clause(&program.schedule.pipeline, &mut env, "pipeline", 4096)?.unwrap_or(1);
        let slots = clause(&program.schedule.slots, &mut env, "slots", MAX_SLOTS.into())?;
        let fine = ChunkLayout::new(options.paths, WalkBudget::new(count(n), options.limit))
            .program(program, &axes, &mut env, units, channels)?;
        let spec = spec(program, count(n), &mut env, fine, options.root)?;
        let setting =
            InstanceSetting { program, axes: &axes, options, spec: &spec, units, channels };
        let scratch = scratch(setting)?;
        Ok(ProgramInstance {
            program: program.clone(),
            shape: Shape { axes },
            options: options.clone(),
            spec,
            units,
            scratch,
            channels,
            pipeline,
            slots,
        })
    }
}

/// Returns the extents for the program's axes: a flat count also serves a program of one axis only.
fn fit(program: &Program, shape: &Shape) -> Result<Vec<u32>, BoxedDiagnostic> {
    let want = program.axes.names.len();
    if shape.axes.len() == want {
        return Ok(shape.axes.clone());
    }
    if want == 1 {
        return u32::try_from(shape.ranks()).map(|n| vec![n]).map_err(|_| {
            Box::new(
                Diagnostic::error(codes::SHAPE, "too many ranks").label(program.header, "here"),
            )
        });
    }
    let names = program.axes.names.join(", ");
    Err(Box::new(
        Diagnostic::error(
            codes::SHAPE,
            format!("`{}` runs on a grid ({names}), not on {shape} ranks", program.name),
        )
        .label(program.header, format!("has {want} axes"))
        .help(format!("give one extent an axis, as in `-n {}`", grid(shape.ranks(), want))),
    ))
}

/// Returns a shape of `axes` axes for `ranks` ranks, as even as it can be; 2 along each where that leaves an
/// axis of one.
fn grid(mut ranks: u64, axes: usize) -> Shape {
    let mut extents = Vec::new();
    for left in (1..=axes).rev() {
        let power = u32::try_from(left).unwrap_or(u32::MAX);
        let fits = |&d: &u64| {
            ranks.is_multiple_of(d) && d.checked_pow(power).is_some_and(|all| all <= ranks)
        };
        let extent = (1..=ranks.min(1 << 16)).rev().find(fits).unwrap_or(1);
        let extent = if left == 1 { ranks } else { extent };
        ranks /= extent.max(1);
        extents.insert(0, u32::try_from(extent).unwrap_or(2));
    }
    let thin = extents.contains(&1) || extents.contains(&0);
    Shape { axes: if thin { vec![2; axes] } else { extents } }
}

fn spec(
    program: &Program,
    n: u32,
    env: &mut [i64],
    fine: u32,
    root: u32,
) -> Result<CollectiveSpec, BoxedDiagnostic> {
    let custom = match &program.kind {
        CollectiveKind::Custom(c) => Some(Arc::new(custom_spec(c, n, env)?)),
        _ => None,
    };
    Ok(CollectiveSpec { kind: program.kind.clone(), ranks: n, chunks: fine, root, custom })
}
