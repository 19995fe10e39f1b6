//! A program at one shape: its specification, its chunk counts, its scratch buffers.
//!
//! The chunk unit of an instance is fine enough for every sub-algorithm and every part of a split:
//! chunks of chunks nest exactly, so refining changes no byte boundary.

use std::collections::BTreeMap;
use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, Diagnostics, codes};
use roundelay_dsl::span::Span;

use crate::chunks::ChunkSet;
use crate::collective::{CustomSpec, Kind, Spec};
use crate::eval::eval;
use crate::program::{Binder, Buffer, Custom, Expr, Index, Program, Region, Split, Stmt, Style, Use};

/// The ranks given: one number, or one an axis.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Extents, slowest axis first.
    pub axes: Vec<u32>,
}

impl Shape {
    /// `n` ranks on one axis.
    pub fn flat(n: u32) -> Self {
        Shape { axes: vec![n] }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        self.axes.iter().map(|&a| a as u64).product()
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.axes.iter().map(u32::to_string).collect();
        f.write_str(&parts.join("x"))
    }
}

impl std::str::FromStr for Shape {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let axes: Result<Vec<u32>, _> = s.split('x').map(|p| p.trim().parse::<u32>()).collect();
        let shape = Shape { axes: axes.map_err(|_| format!("`{s}` is not a rank count such as 8 or 2x4"))? };
        match shape.ranks() {
            0 => Err("at least one rank is needed".into()),
            n if n > MAX_RANKS => Err(format!("{n} ranks are more than the {MAX_RANKS} supported")),
            _ => Ok(shape),
        }
    }
}

/// More ranks than this are refused.
pub const MAX_RANKS: u64 = 1 << 24;
/// More chunks than this in one buffer are refused.
const MAX_CHUNKS: i64 = 1 << 28;

/// What else a compilation depends on.
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
        Options { root: 0, paths: 1, limit: 200_000_000 }
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
    /// What must hold, in the instance's chunks.
    pub spec: Spec,
    /// Chunks of the program's own `chunks` clause.
    pub units: u32,
    /// Scratch buffers: name and chunks.
    pub scratch: Vec<(String, u32)>,
    /// First scratch buffer of each program entered, by its path of uses and parts.
    pub(crate) scratch_of: BTreeMap<Vec<u32>, u16>,
    /// Parallel copies of the whole program.
    pub(crate) channels: u32,
    /// Least passes, from the schedule.
    pub pipeline: u32,
    /// Slots asked for by the schedule.
    pub slots: Option<u32>,
}

/// Environment of a program: its sizes and its root are set.
pub(crate) fn environment(program: &Program, axes: &[u32], root: u32) -> Vec<i64> {
    let mut env = vec![0i64; program.slots.len()];
    env[0] = axes.iter().map(|&a| a as i64).product();
    for (&slot, &size) in program.axes.sizes.iter().zip(axes) {
        env[slot as usize] = size as i64;
    }
    env[program.root as usize] = root as i64;
    env
}

/// `n = 3`, or `node.size = 2, gpu.size = 4`.
pub(crate) fn shape_note(program: &Program, env: &[i64]) -> String {
    let parts: Vec<String> = program
        .axes
        .sizes
        .iter()
        .map(|&s| format!("{} = {}", program.slots[s as usize], env[s as usize]))
        .collect();
    format!("with {}", parts.join(", "))
}

type Fail = Box<Diagnostic>;

fn value(e: &Expr, env: &mut [i64]) -> Result<i64, Fail> {
    eval(e, env).map_err(|e| Box::new(e.diagnostic()))
}

impl Instance {
    /// Checks shape and `requires`, and lays out chunks and scratch.
    pub fn new(program: &Arc<Program>, shape: &Shape, options: &Options) -> Result<Self, Diagnostics> {
        Self::build(program, shape, options).map_err(|d| vec![*d])
    }

    fn build(program: &Arc<Program>, shape: &Shape, options: &Options) -> Result<Self, Fail> {
        let axes = fit(program, shape)?;
        let n = shape.ranks();
        if n == 0 || n > MAX_RANKS {
            return Err(Box::new(
                Diagnostic::error(codes::SHAPE, format!("{n} ranks: from 1 to {MAX_RANKS} are possible"))
                    .label(program.header, "for this algorithm")
                    .help("give a rank count such as `-n 8`"),
            ));
        }
        if options.root as u64 >= n {
            return Err(Box::new(
                Diagnostic::error(codes::ROOT, format!("root {} is not one of {n} ranks", options.root))
                    .label(program.header, "for this algorithm")
                    .help(format!("roots go from 0 to {}", n - 1)),
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
        let units = chunks(program, &mut env, n as u32)?;
        let clause = |e: &Option<Expr>, env: &mut Vec<i64>, name: &str, max: i64| match e {
            None => Ok(None),
            Some(e) => {
                let v = value(e, env)?;
                if (1..=max).contains(&v) {
                    Ok(Some(v as u32))
                } else {
                    Err(Box::new(
                        Diagnostic::error(codes::BAD_SCHEDULE, format!("{name} {v} is out of range"))
                            .label(e.span, "here")
                            .help(format!("{name} goes from 1 to {max}")),
                    ))
                }
            }
        };
        let channels = clause(&program.schedule.channels, &mut env, "channels", 64)?.unwrap_or(1);
        let pipeline = clause(&program.schedule.pipeline, &mut env, "pipeline", 4096)?.unwrap_or(1);
        let slots = clause(&program.schedule.slots, &mut env, "slots", 64)?;
        let fine = Layout { paths: options.paths }.program(program, &axes, &mut env, units, channels)?;
        let spec = spec(program, n as u32, &mut env, fine, options.root)?;
        let mut instance = Instance {
            program: program.clone(),
            shape: Shape { axes },
            options: options.clone(),
            spec,
            units,
            scratch: Vec::new(),
            scratch_of: BTreeMap::new(),
            channels,
            pipeline,
            slots,
        };
        crate::walk::lay_out_scratch(&mut instance)?;
        Ok(instance)
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.spec.ranks
    }
}

/// The extents for the program's axes: a flat count also serves a program of one axis only.
fn fit(program: &Program, shape: &Shape) -> Result<Vec<u32>, Fail> {
    let want = program.axes.names.len();
    if shape.axes.len() == want {
        return Ok(shape.axes.clone());
    }
    if want == 1 {
        return u32::try_from(shape.ranks()).map(|n| vec![n]).map_err(|_| {
            Box::new(Diagnostic::error(codes::SHAPE, "too many ranks").label(program.header, "here"))
        });
    }
    let names = program.axes.names.join(", ");
    Err(Box::new(
        Diagnostic::error(codes::SHAPE, format!("`{}` runs on a grid ({names}), not on {shape} ranks", program.name))
            .label(program.header, format!("has {want} axes"))
            .help(format!("give one extent an axis, as in `-n {}`", vec!["2"; want].join("x"))),
    ))
}

fn requires(program: &Program, env: &mut Vec<i64>) -> Result<(), Fail> {
    for e in &program.requires {
        if value(e, env)? == 0 {
            return Err(Box::new(
                Diagnostic::error(
                    codes::REQUIRES,
                    format!("`{}.{}` does not allow this rank count", program.kind.name(), program.name),
                )
                .label(e.span, "this does not hold")
                .note(shape_note(program, env))
                .help("choose a rank count for which it holds, or another algorithm"),
            ));
        }
    }
    Ok(())
}

/// The `chunks` clause, or its default.
fn chunks(program: &Program, env: &mut Vec<i64>, n: u32) -> Result<u32, Fail> {
    if let Kind::Custom(custom) = &program.kind {
        let spec = custom_sizes(custom, env)?;
        return Ok(spec.0.max(spec.1).max(1));
    }
    let blocked = program.kind.blocked();
    let Some(e) = &program.chunks else { return Ok(if blocked { n } else { 1 }) };
    let v = value(e, env)?;
    let fault = if !(1..=MAX_CHUNKS).contains(&v) {
        Some(format!("{v} chunks are out of range"))
    } else if blocked && v % n as i64 != 0 {
        Some(format!("{v} chunks are not a multiple of {n} ranks"))
    } else {
        None
    };
    match fault {
        None => Ok(v as u32),
        Some(message) => Err(Box::new(
            Diagnostic::error(codes::CHUNKS, message)
                .label(e.span, "here")
                .note(shape_note(program, env))
                .help(if blocked {
                    "the vector of this collective has one block a rank: write `chunks n` or `chunks n * k`"
                } else {
                    "give a positive number of chunks"
                }),
        )),
    }
}

/// Chunks of input and output of a declared collective.
fn custom_sizes(custom: &Custom, env: &[i64]) -> Result<(u32, u32), Fail> {
    let mut own = vec![0i64; custom.slots.len()];
    own[0] = env[0];
    for (i, &slot) in custom.axes.sizes.iter().enumerate() {
        own[slot as usize] = if custom.axes.grid { env[1 + i] } else { env[0] };
    }
    let mut size = |e: &Expr| {
        let v = value(e, &mut own)?;
        if (0..=MAX_CHUNKS).contains(&v) {
            Ok(v as u32)
        } else {
            Err(Box::new(
                Diagnostic::error(codes::CHUNKS, format!("{v} chunks are out of range")).label(e.span, "here"),
            ))
        }
    };
    Ok((size(&custom.input)?, size(&custom.output)?))
}

fn spec(program: &Program, n: u32, env: &mut [i64], fine: u32, root: u32) -> Result<Spec, Fail> {
    let custom = match &program.kind {
        Kind::Custom(c) => Some(Arc::new(custom_spec(c, n, env)?)),
        _ => None,
    };
    Ok(Spec { kind: program.kind.clone(), ranks: n, chunks: fine, root, custom })
}

/// Evaluates the postconditions of a declared collective.
fn custom_spec(custom: &Custom, n: u32, env: &[i64]) -> Result<CustomSpec, Fail> {
    let (input, output) = custom_sizes(custom, env)?;
    let mut own = vec![0i64; custom.slots.len()];
    own[0] = env[0];
    for (i, &slot) in custom.axes.sizes.iter().enumerate() {
        own[slot as usize] = if custom.axes.grid { env[1 + i] } else { env[0] };
    }
    let cells = n as u64 * output as u64;
    if cells > 1 << 26 {
        return Err(Box::new(
            Diagnostic::error(codes::TOO_BIG, "a declared collective is tabulated, and this one is too large")
                .label(custom.span, "here"),
        ));
    }
    let mut expected = vec![None; cells as usize];
    for ensure in &custom.ensures {
        for rank in 0..n {
            if let Some(var) = ensure.var {
                own[var as usize] = rank as i64;
            }
            let mut found: Vec<(Vec<u32>, Vec<u32>, Vec<u32>)> = Vec::new();
            bind(&ensure.binders, &mut own, &mut |own| {
                let target = index_set(&ensure.target, own, output, ensure.span)?;
                let (mut ranks, mut source) = (Vec::new(), None);
                let mut one = |own: &mut [i64]| {
                    let at = value(&ensure.at.linear, own)?;
                    if !(0..n as i64).contains(&at) {
                        return Err(Box::new(
                            Diagnostic::error(codes::RANK, format!("rank {at} is not one of {n}"))
                                .label(ensure.at.span, "here"),
                        ));
                    }
                    ranks.push(at as u32);
                    source = Some(index_set(&ensure.source, own, input, ensure.span)?);
                    Ok(())
                };
                match &ensure.reduce {
                    None => one(own)?,
                    Some((slot, from, to, filter)) => {
                        for v in value(from, own)?..value(to, own)? {
                            own[*slot as usize] = v;
                            if filter.as_ref().map_or(Ok(1), |f| value(f, own))? != 0 {
                                one(own)?;
                            }
                        }
                    }
                }
                ranks.sort_unstable();
                let source = source.map_or(Vec::new(), |s| s.iter().collect());
                found.push((target.iter().collect(), source, ranks));
                Ok(())
            })?;
            for (target, source, ranks) in found {
                if ranks.is_empty() {
                    continue;
                }
                if target.len() != source.len() {
                    return Err(Box::new(
                        Diagnostic::error(
                            codes::LENGTHS,
                            format!("{} output chunks, but {} input chunks", target.len(), source.len()),
                        )
                        .label(ensure.span, "here"),
                    ));
                }
                for (t, s) in target.into_iter().zip(source) {
                    expected[(rank * output + t) as usize] = Some((s, ranks.clone()));
                }
            }
        }
    }
    Ok(CustomSpec { input, output, expected })
}

/// Runs the binders of a rule; calls `leaf` for every combination that passes.
fn bind(
    binders: &[Binder],
    env: &mut Vec<i64>,
    leaf: &mut dyn FnMut(&mut Vec<i64>) -> Result<(), Fail>,
) -> Result<(), Fail> {
    let Some((first, rest)) = binders.split_first() else { return leaf(env) };
    match first {
        Binder::Let(slot, e) => {
            env[*slot as usize] = value(e, env)?;
            bind(rest, env, leaf)
        }
        Binder::Where(e) => {
            if value(e, env)? != 0 {
                bind(rest, env, leaf)?;
            }
            Ok(())
        }
        Binder::For(slot, from, to) => {
            for v in value(from, env)?..value(to, env)? {
                env[*slot as usize] = v;
                bind(rest, env, leaf)?;
            }
            Ok(())
        }
    }
}

/// The chunks that an index names in a buffer of `size` chunks.
pub(crate) fn index_set(index: &Index, env: &mut [i64], size: u32, span: Span) -> Result<ChunkSet, Fail> {
    let bound = |ok: bool, message: String, at: Span| {
        if ok {
            return Ok(());
        }
        Err(Box::new(
            Diagnostic::error(codes::INDEX, message)
                .label(at, "out of bounds")
                .help(format!("the buffer has {size} chunk{}; write `%` to wrap around", if size == 1 { "" } else { "s" })),
        ))
    };
    let step = |by: &Option<Expr>, take: &Option<Expr>, env: &mut [i64]| -> Result<Option<(i64, i64)>, Fail> {
        let Some(by) = by else { return Ok(None) };
        let stride = value(by, env)?;
        let block = take.as_ref().map_or(Ok(1), |t| value(t, env))?;
        if stride < 1 || block < 1 || block > stride {
            return Err(Box::new(
                Diagnostic::error(codes::OVERLAP, format!("blocks of {block} chunks at stride {stride} overlap"))
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
                    Diagnostic::error(codes::OVERLAP, format!("chunks {set} of {size}: one occurs twice"))
                        .label(span, "wraps onto itself"),
                ));
            }
            Ok(set)
        }
    }
}

/// Finds how fine the chunks must be, without walking any `each`.
struct Layout {
    paths: u32,
}

impl Layout {
    /// Chunks that the whole vector of this program must have at least (a multiple of `units`).
    fn program(
        &self,
        p: &Program,
        axes: &[u32],
        env: &mut Vec<i64>,
        units: u32,
        channels: u32,
    ) -> Result<u32, Fail> {
        let fine = if p.composed { lcm(units, self.block(p, axes, env, &p.body, units)?, p.header)? } else { units };
        checked(fine as u64 * channels as u64, p.header)
    }

    /// Chunks that the vector must have for a block of statements, if it has `units` as written.
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
                Stmt::Let(slot, e) => env[*slot as usize] = value(e, env)?,
                Stmt::For { slot, from, to, filter, body } => {
                    for v in value(from, env)?..value(to, env)? {
                        env[*slot as usize] = v;
                        if filter.as_ref().map_or(Ok(1), |f| value(f, env))? != 0 {
                            fine = lcm(fine, self.block(p, axes, env, body, units)?, p.header)?;
                        }
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
                        env[s.slot as usize] = t;
                        let inner = self.block(p, axes, env, &s.body, units)?;
                        fine = lcm(fine, checked(inner as u64 * (to - from) as u64, s.span)?, s.span)?;
                    }
                }
            }
        }
        Ok(fine)
    }

    /// Chunks that the vector must have for the sub-algorithm's chunks to fit the region.
    fn use_(&self, p: &Program, axes: &[u32], env: &mut Vec<i64>, u: &Use, units: u32) -> Result<u32, Fail> {
        let (sub_axes, mut sub_env, sub_units) = enter(p, axes, env, u)?;
        let inner = self.program(&u.program, &sub_axes, &mut sub_env, sub_units, 1)?;
        let part = |p: &Program, axes: &[u32], chunks| Spec {
            kind: p.kind.clone(),
            ranks: axes.iter().product(),
            chunks,
            root: 0,
            custom: None,
        };
        let (spec, sub) = (part(p, axes, units), part(&u.program, &sub_axes, sub_units));
        let mut fine = units;
        for (region, buffer) in sub_regions(u) {
            // The coordinates of a group do not change how many chunks a region has.
            for &c in &p.coordinates {
                env[c as usize] = 0;
            }
            let have = match region {
                None => spec.size(parent_buffer(p, buffer)),
                Some(r) => {
                    let size = match r.buf {
                        Buffer::Scratch(i) => value(&p.scratch[i as usize].1, env)?.clamp(0, MAX_CHUNKS) as u32,
                        b => spec.size(b),
                    };
                    index_set(&r.index, env, size, r.span)?.total
                }
            };
            if have == 0 {
                continue;
            }
            let need = sub.size(buffer) as u64 * (inner / sub_units) as u64;
            let factor = need / gcd(need, have as u64).max(1);
            fine = lcm(fine, checked(units as u64 * factor.max(1), u.span)?, u.span)?;
        }
        Ok(fine)
    }
}

/// The regions that a `use` hands down, with the buffer that each becomes.
pub(crate) fn sub_regions(u: &Use) -> Vec<(Option<&Region>, Buffer)> {
    match u.program.style {
        Style::Data => vec![(u.on.as_ref(), Buffer::Data)],
        Style::InputOutput => {
            vec![(u.on.as_ref(), Buffer::Input), (u.to.as_ref().or(u.on.as_ref()), Buffer::Output)]
        }
    }
}

/// The buffer of the using program that stands for a buffer of the used one by default.
pub(crate) fn parent_buffer(p: &Program, buffer: Buffer) -> Buffer {
    match (p.style, buffer) {
        (Style::Data, _) => Buffer::Data,
        (Style::InputOutput, Buffer::Data) => Buffer::Output,
        (Style::InputOutput, b) => b,
    }
}

/// Axes, environment and chunks of a used program.
pub(crate) fn enter(p: &Program, axes: &[u32], env: &mut Vec<i64>, u: &Use) -> Result<(Vec<u32>, Vec<i64>, u32), Fail> {
    let total: u32 = axes.iter().product();
    let m = u.over.map_or(total, |axis| axes[axis]);
    let sub = &u.program;
    let sub_axes = match (sub.axes.names.len(), u.over) {
        (1, _) => vec![m],
        (k, None) if k == axes.len() => axes.to_vec(),
        (k, _) => {
            return Err(Box::new(
                Diagnostic::error(codes::SHAPE, format!("`{}` runs on a grid of {k} axes", sub.name))
                    .label(u.span, "used here")
                    .help("use it on all ranks of a grid with as many axes"),
            ));
        }
    };
    let root = match &u.root {
        Some(e) => value(e, env)?,
        None if u.over.is_none() && sub.kind.rooted() && p.kind.rooted() => env[p.root as usize],
        None => 0,
    };
    if !(0..m as i64).contains(&root) {
        return Err(Box::new(
            Diagnostic::error(codes::ROOT, format!("root {root} is not one of {m} ranks")).label(u.span, "used here"),
        ));
    }
    let mut sub_env = environment(sub, &sub_axes, root as u32);
    let located = |d: Fail| Box::new(d.label(u.span, "used here"));
    requires(sub, &mut sub_env).map_err(located)?;
    let units = chunks(sub, &mut sub_env, m).map_err(located)?;
    Ok((sub_axes, sub_env, units))
}

/// Bounds of a split.
pub(crate) fn split_range(s: &Split, env: &mut [i64], paths: u32) -> Result<(i64, i64), Fail> {
    let (from, to) = match &s.range {
        Some((a, b)) => (value(a, env)?, value(b, env)?),
        None => (0, paths as i64),
    };
    if to <= from || to - from > 4096 {
        return Err(Box::new(
            Diagnostic::error(codes::CHUNKS, format!("a split into {} parts", to - from))
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
    checked(a as u64 / gcd(a as u64, b.max(1) as u64).max(1) * b.max(1) as u64, span)
}

fn checked(v: u64, span: Span) -> Result<u32, Fail> {
    if v <= MAX_CHUNKS as u64 {
        return Ok(v as u32);
    }
    Err(Box::new(
        Diagnostic::error(codes::CHUNKS, format!("{v} chunks are needed to nest the parts; the limit is {MAX_CHUNKS}"))
            .label(span, "for this")
            .help("use fewer parts, or part counts that divide each other"),
    ))
}
