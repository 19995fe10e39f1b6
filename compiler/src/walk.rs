//! Executes a program at one shape, round by round.
//!
//! A *round* is one execution of an `each`, over all groups of the frame that it stands in. The
//! walk itself depends on no rank; the transfers of a round are asked for, either all of them
//! ([`Round::all`]), or those of one rank ([`Round::of`]). The latter solves for the ranks that send
//! to it and does not visit the others, so that one rank's part of 131,072 costs what that rank does.

use std::ops::ControlFlow;

use roundelay_dsl::ast::Op;
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use crate::chunks::ChunkSet;
use crate::collective::Spec;
use crate::eval::{Bounds, eval};
use crate::instance::{
    Instance, enter, environment, index_set, parent_buffer, split_range, sub_regions,
};
use crate::plan::{Buf, Piece, Region, Wire};
use crate::program::{Binder, Buffer, Each, Expr, Index, Program, Rule, Slot, Stmt, Style};

type Fail = Box<Diagnostic>;

/// Lanes that the parts of splits are dealt to; lane 0 is everything else.
pub const MAX_LANES: u16 = 16;

/// One thing that moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// The round, counted from 0.
    pub round: u32,
    /// Order inside the round, the same whoever asks.
    pub key: Key,
    /// The lane that plays it.
    pub lane: u16,
    /// Reads here.
    pub src: u32,
    /// Writes there.
    pub dst: u32,
    /// Copy or reduce.
    pub op: Op,
    /// What is read.
    pub from: Region,
    /// What is written.
    pub to: Region,
    /// Narrower type on the wire.
    pub wire: Option<Wire>,
    /// Its statement.
    pub span: Span,
}

/// Rule, group and rank of the `each`, and the values of its inner loops as one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    rule: u16,
    inner: u64,
    rank: u32,
}

/// One execution of an `each`.
pub struct Round<'a> {
    frame: &'a Frame<'a>,
    each: &'a Each,
    /// Counted from 0.
    pub index: u32,
    /// The lane that plays it.
    pub lane: u16,
}

/// A program being executed, on groups of ranks.
struct Frame<'a> {
    program: &'a Program,
    axes: Vec<u32>,
    env: Vec<i64>,
    /// Slots that are set and that users know.
    live: Vec<Slot>,
    /// Ranks a group.
    size: u32,
    /// Distance between the ranks of a group.
    stride: u32,
    /// All ranks.
    ranks: u32,
    lane: u16,
    spec: Spec,
    views: Views<'a>,
}

/// Where the buffers of a frame lie in those of the instance.
enum Views<'a> {
    /// They are those of the instance.
    Whole { spec: &'a Spec, scratch: u16 },
    /// A part of a split of the frame.
    Part { outer: &'a Frame<'a>, part: u32, parts: u32, scratch: u16 },
    /// Regions handed down by a `use`.
    Used { outer: &'a Frame<'a>, stmt: &'a crate::program::Use, scratch: u16 },
}

/// A buffer of a frame: chunks of the instance, seen as `units` equal ones.
#[derive(Debug, Clone, PartialEq, Eq)]
struct View {
    pieces: Vec<Piece>,
    units: u32,
}

impl View {
    fn total(&self) -> u32 {
        self.pieces.iter().map(|p| p.set.total).sum()
    }

    /// Chunks of the instance for chunks of the view.
    fn map(&self, set: &ChunkSet, span: Span) -> Result<Region, Fail> {
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
        if let [Piece { buf, set: base }] = self.pieces.as_slice()
            && base.is_interval()
        {
            let extent = if set.is_interval() {
                set.total as u64
            } else {
                (set.blocks() as u64 - 1) * set.stride as u64 + set.block as u64
            };
            let wraps = set.start as u64 + extent > units as u64;
            if base.total == base.modulus || !wraps {
                let start = (base.start as u64 + set.start as u64 * w as u64) % base.modulus as u64;
                let fine = set.refined(w);
                let set = ChunkSet { start: start as u32, modulus: base.modulus, ..fine };
                return Ok(Region::of(*buf, set));
            }
        }
        let mut pieces = Vec::new();
        for (first, len) in set.runs() {
            self.slice(first * w, (first + len) * w, &mut pieces);
        }
        Ok(Region { pieces: merge(pieces) })
    }

    /// The chunks at positions `from..to` of the view, as pieces.
    fn slice(&self, from: u32, to: u32, out: &mut Vec<Piece>) {
        let mut at = 0;
        for p in &self.pieces {
            let (a, b) = (from.max(at), to.min(at + p.set.total));
            if a < b {
                let mut k = a - at;
                let end = b - at;
                if p.set.is_interval() {
                    out.push(Piece {
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
                            out.push(Piece { buf: p.buf, set });
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
pub(crate) fn merge(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::with_capacity(pieces.len());
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

/// What the walk calls for every round; `Break` ends it.
pub type OnRound<'v> = &'v mut dyn FnMut(&Round<'_>) -> Result<ControlFlow<()>, Fail>;

/// The state of one walk.
struct Walk<'w, 'v> {
    instance: &'w Instance,
    round: u32,
    path: Vec<u32>,
    on_round: OnRound<'v>,
    /// Scratch being laid out: first index by path, and sizes; `None` once that is done.
    layout: Option<Scratch>,
    stop: bool,
    /// Turns of all loops so far.
    turns: u64,
}

/// Loops that turn more often than this in all are refused.
const MOST_TURNS: u64 = 1 << 24;

/// More transfers than this are not listed at once.
const MOST_TRANSFERS: usize = 1 << 23;

fn too_many(turns: u64, span: Span) -> Diagnostic {
    Diagnostic::error(codes::TOO_BIG, format!("this would be unrolled {turns} times and more"))
        .label(span, "here")
        .help("check the bounds of the loops, or use fewer ranks")
}

/// Calls `on_round` for every round of the instance, in order.
pub fn walk(instance: &Instance, on_round: OnRound<'_>) -> Result<(), Fail> {
    run(instance, on_round, false).map(|_| ())
}

/// First scratch buffer by path, and all of them with their sizes.
type Scratch = (std::collections::BTreeMap<Vec<u32>, u16>, Vec<(String, u32)>);

/// Numbers the scratch buffers of all frames and finds their sizes.
pub(crate) fn lay_out_scratch(instance: &mut Instance) -> Result<(), Fail> {
    let layout = run(instance, &mut |_| Ok(ControlFlow::Continue(())), true)?;
    if let Some((of, sizes)) = layout {
        instance.scratch_of = of;
        instance.scratch = sizes;
    }
    Ok(())
}

fn run(instance: &Instance, on_round: OnRound<'_>, layout: bool) -> Result<Option<Scratch>, Fail> {
    let program = &instance.program;
    let axes = instance.shape.axes.clone();
    let env = environment(program, &axes, instance.options.root);
    let mut live = vec![];
    live.extend(&program.axes.sizes);
    if program.kind.rooted() {
        live.push(program.root);
    }
    let ranks = instance.ranks();
    let spec = Spec { chunks: instance.units, ..instance.spec.clone() };
    let mut walk = Walk {
        instance,
        round: 0,
        path: Vec::new(),
        on_round,
        layout: layout.then(Default::default),
        stop: false,
        turns: 0,
    };
    let scratch = walk.scratch(program, &env, instance.spec.chunks / instance.units.max(1))?;
    let views = Views::Whole { spec: &instance.spec, scratch };
    let frame =
        Frame { program, axes, env, live, size: ranks, stride: 1, ranks, lane: 0, spec, views };
    if instance.channels > 1 {
        for t in 0..instance.channels {
            walk.part(&frame, &program.body, None, t, instance.channels, 0)?;
        }
    } else {
        let mut frame = frame;
        walk.block(&mut frame, &program.body)?;
    }
    Ok(walk.layout)
}

impl Walk<'_, '_> {
    /// Finds or makes the scratch buffers of a frame whose chunks are `w` of the instance's.
    fn scratch(&mut self, p: &Program, env: &[i64], w: u32) -> Result<u16, Fail> {
        let Some((of, sizes)) = &mut self.layout else {
            return Ok(self.instance.scratch_of.get(&self.path).copied().unwrap_or(0));
        };
        let first = *of.entry(self.path.clone()).or_insert_with(|| {
            let first = sizes.len();
            sizes.extend(p.scratch.iter().map(|(name, _)| (name.clone(), 0)));
            first as u16
        });
        for (i, (_, e)) in p.scratch.iter().enumerate() {
            let v = eval(e, &mut env.to_vec()).map_err(|e| Box::new(e.diagnostic()))?;
            let size =
                v.checked_mul(w as i64).filter(|v| (0..1 << 28).contains(v)).ok_or_else(|| {
                    Box::new(
                        Diagnostic::error(
                            codes::CHUNKS,
                            format!("{v} chunks of scratch are out of range"),
                        )
                        .label(e.span, "here"),
                    )
                })?;
            let entry = &mut sizes[first as usize + i].1;
            *entry = (*entry).max(size as u32);
        }
        Ok(first)
    }

    fn block<'f>(&mut self, frame: &mut Frame<'f>, stmts: &'f [Stmt]) -> Result<(), Fail> {
        let depth = frame.live.len();
        for s in stmts {
            if self.stop {
                break;
            }
            match s {
                Stmt::Let(slot, e) => {
                    frame.env[*slot as usize] = frame.value(e)?;
                    frame.live.push(*slot);
                }
                Stmt::For { slot, from, to, filter, body } => {
                    let from_span = from.span;
                    let (from, to) = (frame.value(from)?, frame.value(to)?);
                    if self.layout.is_some() && !composed(body) {
                        continue;
                    }
                    frame.live.push(*slot);
                    for v in from..to {
                        frame.env[*slot as usize] = v;
                        self.turns += 1;
                        if self.turns > MOST_TURNS {
                            return Err(Box::new(too_many(self.turns, from_span)));
                        }
                        let pass = match filter {
                            Some(f) => frame.value(f)? != 0,
                            None => true,
                        };
                        if pass {
                            self.block(frame, body)?;
                        }
                        if self.stop {
                            break;
                        }
                    }
                    frame.live.pop();
                }
                Stmt::If { cond, then, otherwise } => {
                    let body = if frame.value(cond)? != 0 { then } else { otherwise };
                    self.block(frame, body)?;
                }
                Stmt::Each(each) => {
                    if self.layout.is_none() {
                        let round = Round { frame, each, index: self.round, lane: frame.lane };
                        if (self.on_round)(&round)?.is_break() {
                            self.stop = true;
                        }
                        self.round += 1;
                    }
                }
                Stmt::Use(u) => self.use_(frame, u)?,
                Stmt::Split(s) => {
                    let (from, to) =
                        split_range(s, &mut frame.env.clone(), self.instance.options.paths)?;
                    for t in from..to {
                        let frame: &Frame<'_> = frame;
                        self.path.push(s.span.start);
                        let done = self.part(
                            frame,
                            &s.body,
                            Some((s.slot, t)),
                            (t - from) as u32,
                            (to - from) as u32,
                            frame.lane,
                        );
                        self.path.pop();
                        done?;
                    }
                }
            }
        }
        frame.live.truncate(depth);
        Ok(())
    }

    fn part(
        &mut self,
        outer: &Frame<'_>,
        body: &[Stmt],
        var: Option<(Slot, i64)>,
        part: u32,
        parts: u32,
        lane: u16,
    ) -> Result<(), Fail> {
        self.path.push(part);
        let w = outer.fine()? / parts;
        let scratch = self.scratch(outer.program, &outer.env, w.max(1));
        let mut env = outer.env.clone();
        let mut live = outer.live.clone();
        if let Some((slot, t)) = var {
            env[slot as usize] = t;
            live.push(slot);
        }
        let lane = 1 + ((lane as u32 * parts + part) % (MAX_LANES as u32 - 1)) as u16;
        let views = Views::Part { outer, part, parts, scratch: scratch? };
        let mut frame = Frame {
            program: outer.program,
            axes: outer.axes.clone(),
            env,
            live,
            lane,
            spec: outer.spec.clone(),
            views,
            ..*outer
        };
        let done = self.block(&mut frame, body);
        self.path.pop();
        done
    }

    fn use_(&mut self, outer: &Frame<'_>, u: &crate::program::Use) -> Result<(), Fail> {
        let (axes, env, units) = enter(outer.program, &outer.axes, &mut outer.env.clone(), u)?;
        let size: u32 = axes.iter().product();
        let inner: u32 = u.over.map_or(1, |axis| outer.axes[axis + 1..].iter().product());
        let program = &*u.program;
        let spec = Spec {
            kind: program.kind.clone(),
            ranks: size,
            chunks: units,
            root: env[program.root as usize] as u32,
            custom: None,
        };
        let spec = match &program.kind {
            crate::collective::Kind::Custom(_) => {
                return Err(Box::new(
                    Diagnostic::error(
                        codes::MISPLACED,
                        "an algorithm of a declared collective cannot be used by another",
                    )
                    .label(u.span, "used here")
                    .help("copy its body"),
                ));
            }
            _ => spec,
        };
        let mut live: Vec<Slot> = program.axes.sizes.clone();
        if program.kind.rooted() {
            live.push(program.root);
        }
        self.path.push(u.span.start);
        let mut frame = Frame {
            program,
            axes,
            env,
            live,
            size,
            stride: outer.stride * inner,
            ranks: outer.ranks,
            lane: outer.lane,
            spec,
            views: Views::Used { outer, stmt: u, scratch: 0 },
        };
        let w = frame.fine()?;
        let scratch = self.scratch(program, &frame.env, w);
        let done = match scratch {
            Ok(scratch) => {
                frame.views = Views::Used { outer, stmt: u, scratch };
                self.block(&mut frame, &program.body)
            }
            Err(e) => Err(e),
        };
        self.path.pop();
        done
    }
}

pub(crate) fn composed(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|s| match s {
        Stmt::Use(_) | Stmt::Split(_) => true,
        Stmt::For { body, .. } => composed(body),
        Stmt::If { then, otherwise, .. } => composed(then) || composed(otherwise),
        Stmt::Let(..) | Stmt::Each(_) => false,
    })
}

impl Frame<'_> {
    fn value(&mut self, e: &Expr) -> Result<i64, Fail> {
        eval(e, &mut self.env).map_err(|e| self.note(e.diagnostic(), &self.env, &[]))
    }

    /// Adds the values of the variables.
    fn note(&self, d: Diagnostic, env: &[i64], more: &[Slot]) -> Fail {
        let mut parts: Vec<String> = Vec::new();
        for &slot in self.live.iter().chain(more) {
            let name = &self.program.slots[slot as usize];
            if !name.is_empty() {
                let value = format!("{name} = {}", env[slot as usize]);
                if !parts.contains(&value) {
                    parts.push(value);
                }
            }
        }
        Box::new(if parts.is_empty() { d } else { d.note(format!("with {}", parts.join(", "))) })
    }

    /// How many chunks of the instance one chunk of the frame is.
    fn fine(&self) -> Result<u32, Fail> {
        let buffer = match self.program.style {
            Style::Data => Buffer::Data,
            Style::InputOutput => Buffer::Output,
        };
        let view = self.view(buffer, 0)?;
        Ok((view.total() / view.units.max(1)).max(1))
    }

    /// Lowest ranks of all groups.
    fn bases(&self) -> impl Iterator<Item = u32> + '_ {
        let span = self.size * self.stride;
        (0..self.ranks)
            .step_by(span.max(1) as usize)
            .flat_map(move |hi| (0..self.stride).map(move |lo| hi + lo))
    }

    /// Group and place in it of a rank.
    fn locate(&self, rank: u32) -> (u32, u32) {
        let place = rank / self.stride % self.size;
        (rank - place * self.stride, place)
    }

    /// Where a buffer of the frame lies, for the group of this base.
    fn view(&self, buffer: Buffer, base: u32) -> Result<View, Fail> {
        let size = self.spec.size(buffer);
        if let Buffer::Scratch(i) = buffer {
            let first = match &self.views {
                Views::Whole { scratch, .. }
                | Views::Part { scratch, .. }
                | Views::Used { scratch, .. } => *scratch,
            };
            let mut env = self.env.clone();
            let e = &self.program.scratch[i as usize].1;
            let units = eval(e, &mut env).map_err(|e| Box::new(e.diagnostic()))?.max(0) as u32;
            let fine = units * self.fine()?;
            let set = ChunkSet::interval(0, fine, fine.max(1));
            return Ok(View { pieces: vec![Piece { buf: Buf::Scratch(first + i), set }], units });
        }
        match &self.views {
            Views::Whole { spec, .. } => {
                let buf = match buffer {
                    Buffer::Input => Buf::Input,
                    Buffer::Output => Buf::Output,
                    _ => Buf::Data,
                };
                let set = ChunkSet::all(spec.size(buffer));
                Ok(View { pieces: vec![Piece { buf, set }], units: size })
            }
            Views::Part { outer, part, parts, .. } => {
                let whole = outer.view(buffer, base)?;
                let blocks = self.spec.blocks_of(buffer).max(1);
                let per_block = whole.total() / blocks;
                let share = per_block / parts;
                let mut pieces = Vec::new();
                if let [Piece { buf, set }] = whole.pieces.as_slice()
                    && set.is_interval()
                {
                    let start = set.nth(part * share);
                    let set =
                        ChunkSet::periodic(start, share, per_block, share * blocks, set.modulus);
                    pieces.push(Piece { buf: *buf, set });
                } else {
                    for b in 0..blocks {
                        let from = b * per_block + part * share;
                        whole.slice(from, from + share, &mut pieces);
                    }
                }
                Ok(View { pieces, units: size })
            }
            Views::Used { outer, stmt, .. } => {
                let region = sub_regions(stmt).into_iter().find(|(_, b)| *b == buffer);
                let (region, buffer) = region.unwrap_or((stmt.on.as_ref(), buffer));
                let outer_base = outer.locate(base).0;
                let pieces = match region {
                    None => outer.view(parent_buffer(outer.program, buffer), outer_base)?.pieces,
                    Some(r) => {
                        let mut env = outer.env.clone();
                        outer.coordinates(base, &mut env);
                        let view = outer.view(r.buf, outer_base)?;
                        let set = index_set(&r.index, &mut env, view.units, r.span)
                            .map_err(|d| outer.note(*d, &env, &outer.program.coordinates))?;
                        view.map(&set, r.span)?.pieces
                    }
                };
                Ok(View { pieces, units: size })
            }
        }
    }

    /// Sets the coordinates of the rank in this frame's axes.
    fn coordinates(&self, rank: u32, env: &mut [i64]) {
        let mut place = self.locate(rank).1;
        for (axis, &slot) in self.program.coordinates.iter().enumerate().rev() {
            env[slot as usize] = (place % self.axes[axis]) as i64;
            place /= self.axes[axis];
        }
    }
}

/// The environment of one rule while its transfers are found.
struct Scene<'r> {
    rule: &'r Rule,
    number: u16,
    base: u32,
    /// Views of the rule's buffers for this group.
    from: View,
    to: View,
}

impl Round<'_> {
    /// Where the `each` was written.
    pub fn span(&self) -> Span {
        self.each.span
    }

    /// All transfers of the round in order.
    pub fn all(&self, out: &mut Vec<Transfer>) -> Result<(), Fail> {
        let start = out.len();
        let mut env = self.frame.env.clone();
        for base in self.frame.bases() {
            for (number, rule) in self.each.rules.iter().enumerate() {
                let scene = self.scene(rule, number as u16, base)?;
                let last = if self.each.once { 1 } else { self.frame.size };
                for r in 0..last {
                    env[self.each.var as usize] = r as i64;
                    self.rule(&scene, &mut env, 0, 0, r, None, out)?;
                }
            }
        }
        out[start..].sort_unstable_by_key(|t| t.key);
        Ok(())
    }

    /// The transfers of the round in which `rank` takes part, in order.
    pub fn of(&self, rank: u32, out: &mut Vec<Transfer>) -> Result<(), Fail> {
        let start = out.len();
        let (base, place) = self.frame.locate(rank);
        let mut env = self.frame.env.clone();
        for (number, rule) in self.each.rules.iter().enumerate() {
            let scene = self.scene(rule, number as u16, base)?;
            if self.each.once {
                env[self.each.var as usize] = 0;
                self.rule(&scene, &mut env, 0, 0, 0, Some(rank), out)?;
            } else if rule.uniform {
                self.solve(&scene, &mut env, 0, 0, place, rank, out)?;
            } else {
                for r in 0..self.frame.size {
                    env[self.each.var as usize] = r as i64;
                    self.rule(&scene, &mut env, 0, 0, r, Some(rank), out)?;
                }
            }
        }
        let mut own = out.split_off(start);
        own.sort_unstable_by_key(|t| t.key);
        own.dedup_by_key(|t| t.key);
        out.append(&mut own);
        Ok(())
    }

    /// Whether the round may round what it sends. The same whichever rank asks.
    pub fn lossy(&self) -> bool {
        self.each.rules.iter().any(|rule| rule.wire.is_some())
    }

    /// The largest number of chunks that a message of the round can have.
    pub fn message_bound(&self) -> Result<u32, Fail> {
        let mut most = 0;
        for rule in &self.each.rules {
            let view = self.frame.view(rule.from.buf, 0)?;
            let w = view.total() / view.units.max(1);
            let mut vary = vec![(self.each.var, (0, self.frame.size as i64 - 1))];
            for b in &rule.binders {
                if let Binder::For(slot, from, to) = b {
                    let bounds =
                        Bounds { env: &self.frame.env, vary: &vary, defs: &self.each.defs };
                    let (lo, hi) = (bounds.range(from).0, bounds.range(to).1 - 1);
                    vary.push((*slot, (lo, hi.max(lo))));
                }
            }
            let bounds = Bounds { env: &self.frame.env, vary: &vary, defs: &self.each.defs };
            let chunks = match &rule.from.index {
                Index::All => view.units as i64,
                Index::At(_) => 1,
                Index::Cyclic { count, .. } => bounds.range(count).1,
                Index::Range { from, to, .. } => span_bound(&bounds, from, to),
            };
            most = most.max(chunks.clamp(0, view.units as i64) as u32 * w);
        }
        Ok(most)
    }

    /// Whether, by its form alone, the round maps onto itself when every rank r becomes r + 1 modulo
    /// n; with `moves` the chunks of the vector move along, else they stay.
    pub(crate) fn shifts(&self, moves: bool) -> bool {
        let n = self.frame.size as i64;
        let form = Form { round: self, n };
        let whole = self.frame.size == self.frame.ranks && !self.each.once;
        whole
            && self.each.rules.iter().all(|rule| {
                let index = |region: &crate::program::Region| {
                    let unit = match region.buf {
                        Buffer::Scratch(_) => 0,
                        b if moves && self.frame.spec.size(b) as i64 == n => 1,
                        // A rank's own block does not move; other cuts of the vector do, in another way.
                        b if moves && self.frame.spec.size(b) == self.frame.spec.chunks => {
                            return matches!(region.index, Index::All);
                        }
                        _ => 0,
                    };
                    let is = |e: &Expr, unit: i64| match form.of(e) {
                        Some((0, _)) => unit == 0,
                        Some((k, wrapped)) => unit == 1 && k.rem_euclid(n) == 1 && wrapped,
                        None => false,
                    };
                    match &region.index {
                        Index::All => true,
                        Index::At(e) => is(e, unit),
                        Index::Cyclic { from, count, by, take } => {
                            is(from, unit)
                                && [Some(count), by.as_ref(), take.as_ref()].into_iter().flatten().all(|e| is(e, 0))
                        }
                        Index::Range { from, to, by, take } => {
                            unit == 0
                                && [Some(from), Some(to), by.as_ref(), take.as_ref()].into_iter().flatten().all(|e| is(e, 0))
                        }
                    }
                };
                let rank = |r: &crate::program::Rank| {
                    matches!(form.of(&r.linear), Some((k, true)) if k.rem_euclid(n) == 1)
                };
                let binder = |b: &Binder| match b {
                    Binder::Let(..) => true,
                    Binder::Where(e) => matches!(form.of(e), Some((0, _))),
                    Binder::For(_, a, b) => [a, b].into_iter().all(|e| matches!(form.of(e), Some((0, _)))),
                };
                rank(&rule.src)
                    && rank(&rule.dst)
                    && index(&rule.from)
                    && index(&rule.to)
                    && rule.binders.iter().all(binder)
            })
    }

    /// The values of the variables of one transfer of the round, as messages show them.
    pub fn values(&self, key: Key) -> Option<String> {
        let rule = self.each.rules.get(key.rule as usize)?;
        let mut text = None;
        let mut env = self.frame.env.clone();
        let place = self.frame.locate(key.rank).1;
        env[self.each.var as usize] = place as i64;
        self.leaves(rule, &mut env, 0, 0, &mut |inner, env| {
            if inner == key.inner && text.is_none() {
                text = Some(self.frame.note(blank(), env, &self.slots(rule)).notes.join(""));
            }
        });
        text.filter(|t| !t.is_empty())
    }

    /// Slots of a rule that users know.
    fn slots(&self, rule: &Rule) -> Vec<Slot> {
        let mut slots = if self.each.once { Vec::new() } else { vec![self.each.var] };
        slots.extend(rule.binders.iter().filter_map(|b| match b {
            Binder::Let(slot, _) | Binder::For(slot, _, _) => Some(*slot),
            Binder::Where(_) => None,
        }));
        slots
    }

    fn scene<'r>(&self, rule: &'r Rule, number: u16, base: u32) -> Result<Scene<'r>, Fail> {
        Ok(Scene {
            rule,
            number,
            base,
            from: self.frame.view(rule.from.buf, base)?,
            to: self.frame.view(rule.to.buf, base)?,
        })
    }

    /// Calls `leaf` for every combination of the inner loops that passes.
    fn leaves(
        &self,
        rule: &Rule,
        env: &mut Vec<i64>,
        at: usize,
        inner: u64,
        leaf: &mut dyn FnMut(u64, &[i64]),
    ) {
        match rule.binders.get(at) {
            None => leaf(inner, env),
            Some(Binder::Let(slot, e)) => {
                if let Ok(v) = eval(e, env) {
                    env[*slot as usize] = v;
                    self.leaves(rule, env, at + 1, inner, leaf);
                }
            }
            Some(Binder::Where(e)) => {
                if eval(e, env).is_ok_and(|v| v != 0) {
                    self.leaves(rule, env, at + 1, inner, leaf);
                }
            }
            Some(Binder::For(slot, from, to)) => {
                if let (Ok(a), Ok(b)) = (eval(from, env), eval(to, env)) {
                    for v in a..b {
                        env[*slot as usize] = v;
                        self.leaves(
                            rule,
                            env,
                            at + 1,
                            inner * (b - a) as u64 + (v - a) as u64,
                            leaf,
                        );
                    }
                }
            }
        }
    }

    /// Follows the binders of a rule for one rank of the `each`. With `only`, keeps what that rank
    /// takes part in.
    #[allow(clippy::too_many_arguments, reason = "the state of one recursive descent")]
    fn rule(
        &self,
        scene: &Scene<'_>,
        env: &mut Vec<i64>,
        at: usize,
        inner: u64,
        r: u32,
        only: Option<u32>,
        out: &mut Vec<Transfer>,
    ) -> Result<(), Fail> {
        match scene.rule.binders.get(at) {
            None => self.transfer(scene, env, inner, r, only, out),
            Some(Binder::Let(slot, e)) => {
                env[*slot as usize] = self.value(scene, e, env)?;
                self.rule(scene, env, at + 1, inner, r, only, out)
            }
            Some(Binder::Where(e)) => {
                if self.value(scene, e, env)? != 0 {
                    self.rule(scene, env, at + 1, inner, r, only, out)?;
                }
                Ok(())
            }
            Some(Binder::For(slot, from, to)) => {
                let (a, b) = (self.value(scene, from, env)?, self.value(scene, to, env)?);
                let width = self.width(scene, a, b)?;
                for v in a..b {
                    env[*slot as usize] = v;
                    let inner = inner.wrapping_mul(width).wrapping_add((v - a) as u64);
                    self.rule(scene, env, at + 1, inner, r, only, out)?;
                }
                Ok(())
            }
        }
    }

    /// Enumerates the loops of a uniform rule, and at each leaf solves for the rank of the `each`.
    #[allow(clippy::too_many_arguments, reason = "the state of one recursive descent")]
    fn solve(
        &self,
        scene: &Scene<'_>,
        env: &mut Vec<i64>,
        at: usize,
        inner: u64,
        place: u32,
        rank: u32,
        out: &mut Vec<Transfer>,
    ) -> Result<(), Fail> {
        let whole = (0, self.frame.size as i64 - 1);
        let vary = [(self.each.var, whole)];
        match scene.rule.binders.get(at) {
            Some(Binder::For(slot, from, to)) => {
                let (a, b) = (self.value(scene, from, env)?, self.value(scene, to, env)?);
                let width = self.width(scene, a, b)?;
                for v in a..b {
                    env[*slot as usize] = v;
                    let inner = inner.wrapping_mul(width).wrapping_add((v - a) as u64);
                    self.solve(scene, env, at + 1, inner, place, rank, out)?;
                }
                return Ok(());
            }
            Some(Binder::Let(slot, e)) => {
                if !self.each.defs.iter().any(|(s, _)| s == slot) {
                    env[*slot as usize] = self.value(scene, e, env)?;
                }
                return self.solve(scene, env, at + 1, inner, place, rank, out);
            }
            Some(Binder::Where(e)) => {
                let varies = Bounds { env, vary: &vary, defs: &self.each.defs }.varies(e);
                if varies || self.value(scene, e, env)? != 0 {
                    self.solve(scene, env, at + 1, inner, place, rank, out)?;
                }
                return Ok(());
            }
            None => {}
        }
        let mut candidates: Vec<i64> = Vec::new();
        for target in [&scene.rule.src.linear, &scene.rule.dst.linear] {
            let bounds = Bounds { env, vary: &vary, defs: &self.each.defs };
            match bounds.invert(target, self.each.var, &[(place as i64, place as i64)]) {
                Some(ranges) => {
                    for (lo, hi) in ranges {
                        candidates.extend(lo.max(0)..=hi.min(whole.1));
                    }
                }
                None => {
                    search(&bounds, target, self.each.var, place as i64, whole, &mut candidates)
                }
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
        'next: for r in candidates {
            env[self.each.var as usize] = r;
            for b in &scene.rule.binders {
                match b {
                    Binder::Let(slot, e) => env[*slot as usize] = self.value(scene, e, env)?,
                    Binder::Where(e) => {
                        if self.value(scene, e, env)? == 0 {
                            continue 'next;
                        }
                    }
                    Binder::For(..) => {}
                }
            }
            self.transfer(scene, env, inner, r as u32, Some(rank), out)?;
        }
        Ok(())
    }

    /// How often a loop runs, if that is within reason.
    fn width(&self, scene: &Scene<'_>, from: i64, to: i64) -> Result<u64, Fail> {
        match to.saturating_sub(from) {
            w if w <= MOST_TURNS as i64 => Ok(w.max(0) as u64),
            w => Err(Box::new(too_many(w as u64, scene.rule.span))),
        }
    }

    fn value(&self, scene: &Scene<'_>, e: &Expr, env: &mut [i64]) -> Result<i64, Fail> {
        eval(e, env).map_err(|e| self.frame.note(e.diagnostic(), env, &self.slots(scene.rule)))
    }

    fn rank(
        &self,
        scene: &Scene<'_>,
        rank: &crate::program::Rank,
        env: &mut [i64],
    ) -> Result<u32, Fail> {
        let out_of = |v: i64, n: i64, span: Span, env: &[i64]| {
            let d = Diagnostic::error(codes::RANK, format!("rank {v} is not one of {n}"))
                .label(span, "out of bounds")
                .help("write `%` to wrap around, or exclude it with `where`");
            self.frame.note(d, env, &self.slots(scene.rule))
        };
        for (e, size) in &rank.coordinates {
            let v = self.value(scene, e, env)?;
            let n = env[*size as usize];
            if !(0..n).contains(&v) {
                return Err(out_of(v, n, e.span, env));
            }
        }
        let v = self.value(scene, &rank.linear, env)?;
        if !(0..self.frame.size as i64).contains(&v) {
            return Err(out_of(v, self.frame.size as i64, rank.span, env));
        }
        Ok(v as u32)
    }

    fn transfer(
        &self,
        scene: &Scene<'_>,
        env: &mut [i64],
        inner: u64,
        r: u32,
        only: Option<u32>,
        out: &mut Vec<Transfer>,
    ) -> Result<(), Fail> {
        let rule = scene.rule;
        let global = |place: u32| scene.base + place * self.frame.stride;
        let src = global(self.rank(scene, &rule.src, env)?);
        let dst = global(self.rank(scene, &rule.dst, env)?);
        if only.is_some_and(|x| x != src && x != dst) {
            return Ok(());
        }
        let located = |d: Fail, env: &[i64]| self.frame.note(*d, env, &self.slots(rule));
        let from = index_set(&rule.from.index, env, scene.from.units, rule.from.span)
            .map_err(|d| located(d, env))?;
        let to = index_set(&rule.to.index, env, scene.to.units, rule.to.span)
            .map_err(|d| located(d, env))?;
        let (a, b) = (
            from.total as u64 * (scene.from.total() / scene.from.units.max(1)) as u64,
            to.total as u64 * (scene.to.total() / scene.to.units.max(1)) as u64,
        );
        if a != b {
            let d = Diagnostic::error(
                codes::LENGTHS,
                format!("{} chunks go to {}", from.total, to.total),
            )
            .label(rule.from.span, format!("chunks {from}"))
            .label(rule.to.span, format!("chunks {to}"))
            .help("both regions must have the same number of chunks");
            return Err(self.frame.note(d, env, &self.slots(rule)));
        }
        if a == 0 {
            return Ok(());
        }
        if out.len() >= MOST_TRANSFERS {
            return Err(Box::new(too_many(out.len() as u64, rule.span)));
        }
        out.push(Transfer {
            round: self.index,
            key: Key { rule: scene.number, inner, rank: global(r.min(self.frame.size - 1)) },
            lane: self.lane,
            src,
            dst,
            op: rule.op,
            from: scene.from.map(&from, rule.from.span)?,
            to: scene.to.map(&to, rule.to.span)?,
            wire: rule.wire,
            span: rule.span,
        });
        Ok(())
    }
}

fn blank() -> Diagnostic {
    Diagnostic::error(codes::SYNTAX, "")
}

/// Ranks for which `e` may be `target`, by halving: branches whose bounds exclude it are cut.
fn search(
    bounds: &Bounds<'_>,
    e: &Expr,
    var: Slot,
    target: i64,
    whole: (i64, i64),
    out: &mut Vec<i64>,
) {
    let mut stack = vec![whole];
    while let Some((lo, hi)) = stack.pop() {
        if lo > hi {
            continue;
        }
        let vary = [(var, (lo, hi))];
        let range = Bounds { env: bounds.env, vary: &vary, defs: bounds.defs }.range(e);
        if target < range.0 || target > range.1 {
            continue;
        }
        if hi - lo < 4 {
            out.extend(lo..=hi);
        } else {
            let half = (hi - lo + 1) as u64;
            let step = (half.next_power_of_two() / 2) as i64;
            stack.push((lo, lo + step - 1));
            stack.push((lo + step, hi));
        }
    }
}

/// A bound of `to - from`: exact where both are the same but for constants.
fn span_bound(bounds: &Bounds<'_>, from: &Expr, to: &Expr) -> i64 {
    if !bounds.varies(from) && !bounds.varies(to) {
        return bounds.range(to).1 - bounds.range(from).0;
    }
    bounds.slope(to, from).unwrap_or_else(|| bounds.range(to).1 - bounds.range(from).0)
}

/// Expressions as `k * r + c` modulo n, for the rank r of an `each`.
struct Form<'a> {
    round: &'a Round<'a>,
    n: i64,
}

impl Form<'_> {
    /// The factor k, and whether the value lies in 0..n. `None` if the form is another.
    fn of(&self, e: &Expr) -> Option<(i64, bool)> {
        use crate::program::Node;
        use roundelay_dsl::ast::{BinOp, UnOp};
        match &e.node {
            Node::Int(_) => Some((0, false)),
            Node::Var(s) if *s == self.round.each.var => Some((1, true)),
            Node::Var(s) => match self.round.each.defs.iter().find(|(d, _)| d == s) {
                Some((_, def)) => self.of(def),
                None => Some((0, false)),
            },
            Node::Unary(UnOp::Neg, a) => self.of(a).map(|(k, _)| (-k, false)),
            Node::Binary(BinOp::Add, a, b) => {
                Some((self.of(a)?.0.checked_add(self.of(b)?.0)?, false))
            }
            Node::Binary(BinOp::Sub, a, b) => {
                Some((self.of(a)?.0.checked_sub(self.of(b)?.0)?, false))
            }
            Node::Binary(BinOp::Mul, a, b) => {
                let (x, y) = (self.of(a)?.0, self.of(b)?.0);
                match (x, y, &a.node, &b.node) {
                    (0, 0, ..) => Some((0, false)),
                    (0, k, Node::Int(c), _) | (k, 0, _, Node::Int(c)) => {
                        Some((k.checked_mul(*c)?, false))
                    }
                    _ => None,
                }
            }
            Node::Binary(BinOp::Mod, a, b) if self.of(b)?.0 == 0 => {
                let k = self.of(a)?.0;
                let modulus = eval(b, &mut self.round.frame.env.clone()).ok()?;
                if k == 0 { Some((0, false)) } else { (modulus == self.n).then_some((k, true)) }
            }
            Node::Binary(_, a, b) => {
                (self.of(a)?.0 == 0 && self.of(b)?.0 == 0).then_some((0, false))
            }
            Node::Unary(_, a) => (self.of(a)?.0 == 0).then_some((0, false)),
            Node::Call(_, args) => {
                args.iter().all(|a| matches!(self.of(a), Some((0, _)))).then_some((0, false))
            }
            Node::If(a, b, c) => [a, b, c]
                .into_iter()
                .all(|e| matches!(self.of(e), Some((0, _))))
                .then_some((0, false)),
            Node::Let(_, a, b) => (self.of(a)?.0 == 0 && self.of(b)?.0 == 0).then_some((0, false)),
        }
    }
}
