//! A program at one shape: its specification, its chunk counts, its scratch buffers.
//!
//! The chunk unit of an instance is fine enough for every sub-algorithm and every part of a split:
//! chunks of chunks nest exactly, so refining changes no byte boundary.

mod custom;
mod index;
mod layout;
mod shape;

use std::collections::BTreeMap;
use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};

use crate::budget::{self, Budget};
use crate::collective::{Kind, Spec};
use crate::eval::eval;
use crate::num::{count, index};
use crate::plan::{MAX_PATHS, MAX_SLOTS, Weighted};
use crate::program::{Expr, Program};
use custom::{custom_sizes, custom_spec};
pub(crate) use index::index_set;
use layout::Layout;
pub(crate) use layout::{enter, length_varies, parent_buffer, split_range, sub_regions, used};
pub use shape::{MAX_RANKS, Shape};

/// More chunks than this in one buffer are refused.
const MAX_CHUNKS: i64 = 1 << 22;

/// Options of a compilation beside the program and its shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The root of a rooted collective.
    pub root: u32,
    /// Paths that `split … in paths` finds.
    pub paths: u32,
    /// More chunk moves than this are not unrolled.
    pub limit: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { root: 0, paths: 1, limit: budget::MOVES }
    }
}

/// A program at one shape.
#[derive(Debug, Clone)]
pub struct Instance {
    /// The program.
    pub program: Arc<Program>,
    /// The ranks.
    pub shape: Shape,
    /// Root, paths, limits.
    pub options: Options,
    /// The specification to be met, in the instance's chunks.
    pub spec: Spec,
    /// Chunks of the program's own `chunks` clause.
    pub units: u32,
    /// Scratch buffers: name and chunks.
    pub scratch: Vec<(String, u32)>,
    /// First scratch buffer of each program entered, by its path of uses and parts.
    pub(crate) scratch_of: BTreeMap<Vec<u32>, u16>,
    /// The ranges that shares cut, if the program is a split by bandwidth and there are several paths.
    pub split: Option<Weighted>,
    /// Parallel copies of the whole program.
    pub(crate) channels: u32,
    /// Least passes, from the schedule.
    pub pipeline: u32,
    /// Slots asked for by the schedule.
    pub slots: Option<u32>,
}

/// Returns the environment of a program: its sizes and its root are set.
pub(crate) fn environment(program: &Program, axes: &[u32], root: u32) -> Vec<i64> {
    let mut env = vec![0i64; program.slots.len()];
    env[0] = axes.iter().map(|&a| i64::from(a)).product();
    for (&slot, &size) in program.axes.sizes.iter().zip(axes) {
        env[index(slot)] = i64::from(size);
    }
    env[index(program.root)] = i64::from(root);
    env
}

/// Returns the sizes as `n = 3`, or `node.size = 2, gpu.size = 4`.
pub(crate) fn shape_note(program: &Program, env: &[i64]) -> String {
    let parts: Vec<String> = program
        .axes
        .sizes
        .iter()
        .map(|&s| format!("{} = {}", program.slots[index(s)], env[index(s)]))
        .collect();
    format!("with {}", parts.join(", "))
}

type Fail = Box<Diagnostic>;

fn value(e: &Expr, env: &mut [i64]) -> Result<i64, Fail> {
    eval(e, env).map_err(|e| Box::new(e.diagnostic()))
}

impl Instance {
    /// Checks shape and `requires`, and lays out chunks and scratch.
    pub fn new(
        program: &Arc<Program>,
        shape: &Shape,
        options: &Options,
    ) -> Result<Self, Diagnostics> {
        Self::build(program, shape, options).map_err(|d| vec![*d])
    }

    fn build(program: &Arc<Program>, shape: &Shape, options: &Options) -> Result<Self, Fail> {
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
        if program.kind == Kind::SendRecv && n != 2 {
            return Err(Box::new(
                Diagnostic::error(codes::REQUIRES, format!("sendrecv is between 2 ranks, not {n}"))
                    .label(program.header, "for this algorithm"),
            ));
        }
        let mut env = environment(program, &axes, options.root);
        requires(program, &mut env)?;
        let units = chunks(program, &mut env, count(n))?;
        let clause = |e: &Option<Expr>, env: &mut Vec<i64>, name: &str, max: i64| match e {
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
        let fine = Layout::new(options.paths, Budget::new(count(n), options.limit))
            .program(program, &axes, &mut env, units, channels)?;
        let spec = spec(program, count(n), &mut env, fine, options.root)?;
        let mut instance = Instance {
            program: program.clone(),
            shape: Shape { axes },
            options: options.clone(),
            spec,
            units,
            scratch: Vec::new(),
            scratch_of: BTreeMap::new(),
            split: None,
            channels,
            pipeline,
            slots,
        };
        crate::walk::lay_out_scratch(&mut instance)?;
        if let Some(parts) = instance.split.as_ref().map(|split| split.parts) {
            let loads = crate::cost::loads(&instance, parts)?;
            instance.split.iter_mut().for_each(|split| split.loads.clone_from(&loads));
        }
        Ok(instance)
    }

    /// Returns the number of the statement that shares cut.
    pub(crate) fn weighted_site(&self) -> Option<u32> {
        let several = self.options.paths > 1;
        self.program.weighted().filter(|_| several).map(|split| split.site)
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> u32 {
        self.spec.ranks
    }
}

/// Returns the extents for the program's axes: a flat count also serves a program of one axis only.
fn fit(program: &Program, shape: &Shape) -> Result<Vec<u32>, Fail> {
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

fn requires(program: &Program, env: &mut [i64]) -> Result<(), Fail> {
    for e in &program.requires {
        if value(e, env)? == 0 {
            return Err(Box::new(
                Diagnostic::error(
                    codes::REQUIRES,
                    format!(
                        "`{}.{}` does not allow this rank count",
                        program.kind.name(),
                        program.name
                    ),
                )
                .label(e.span, "this does not hold")
                .note(shape_note(program, env))
                .help("choose a rank count for which it holds, or another algorithm"),
            ));
        }
    }
    Ok(())
}

/// Returns the `chunks` clause, or its default.
fn chunks(program: &Program, env: &mut [i64], n: u32) -> Result<u32, Fail> {
    if let Kind::Custom(custom) = &program.kind {
        let spec = custom_sizes(custom, env)?;
        return Ok(spec.0.max(spec.1).max(1));
    }
    let blocked = program.kind.blocked();
    let Some(e) = &program.chunks else { return Ok(if blocked { n } else { 1 }) };
    let v = value(e, env)?;
    let range = format!("a vector has from 1 to {MAX_CHUNKS} chunks");
    let fault = if !(1..=MAX_CHUNKS).contains(&v) {
        Some((format!("{v} chunks are out of range"), range))
    } else if blocked && v % i64::from(n) != 0 {
        Some((
            format!("{v} chunks are not a multiple of {n} ranks"),
            "the vector of this collective has one block a rank: write `chunks n` or `chunks n * k`"
                .to_string(),
        ))
    } else {
        None
    };
    match fault {
        None => Ok(count(v)),
        Some((message, help)) => Err(Box::new(
            Diagnostic::error(codes::CHUNKS, message)
                .label(e.span, "here")
                .note(shape_note(program, env))
                .help(help),
        )),
    }
}

fn spec(program: &Program, n: u32, env: &mut [i64], fine: u32, root: u32) -> Result<Spec, Fail> {
    let custom = match &program.kind {
        Kind::Custom(c) => Some(Arc::new(custom_spec(c, n, env)?)),
        _ => None,
    };
    Ok(Spec { kind: program.kind.clone(), ranks: n, chunks: fine, root, custom })
}
