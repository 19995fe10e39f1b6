//! Walks the rounds of an instance, in order.

use std::ops::ControlFlow;

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use super::frame::{FrameRoute, FrameViews, ProgramFrame};
use super::round::WalkRound;
use super::transfer::MAX_LANES;
use crate::budget::{BoxedDiagnostic, ENTERED, WalkBudget};
use crate::collective::CollectiveSpec;
use crate::eval::eval;
use crate::instance::{InstanceSetting, ProgramInstance, ScratchBuffer, ScratchBuffers};
use crate::num::{count, index, short, wide};
use crate::plan::{MAX_CHUNKS, MAX_PLACES};
use crate::program::{Program, ProgramStmt, Slot};
use crate::scope::{composed, enter, environment, length_varies, split_range, used};

/// The callback of the walk for every round; `Break` ends the walk.
pub type OnRound<'v> =
    &'v mut dyn FnMut(&WalkRound<'_>) -> Result<ControlFlow<()>, BoxedDiagnostic>;

/// The state of one walk.
struct WalkState<'w, 'v> {
    setting: InstanceSetting<'w>,
    round: u32,
    path: Vec<u32>,
    on_round: OnRound<'v>,
    scratch: ScratchLayout<'w>,
    stop: bool,
    budget: WalkBudget,
    /// Path and part of each lane that something moved on.
    lanes: Vec<Option<(u16, Option<u16>)>>,
    /// The split that shares cut.
    weighted: Option<u32>,
}

/// Scratch memories of a program and of what it uses are numbered in 16 bits, with room for those of lowering.
const MOST_SCRATCH: usize = 1 << 15;

/// The scratch buffers of a walk.
enum ScratchLayout<'w> {
    /// All are known.
    Done(&'w ScratchBuffers),
    /// They are being found: no round is visited.
    Out(&'w mut ScratchBuffers),
}

/// Calls `on_round` for every round of the instance, in order.
pub fn walk(instance: &ProgramInstance, on_round: OnRound<'_>) -> Result<(), BoxedDiagnostic> {
    run(instance.setting(), on_round, ScratchLayout::Done(&instance.scratch))
}

/// Numbers the scratch buffers of all frames and finds their sizes.
pub(crate) fn scratch(setting: InstanceSetting<'_>) -> Result<ScratchBuffers, BoxedDiagnostic> {
    let none: OnRound<'_> = &mut |_| Ok(ControlFlow::Continue(()));
    let mut scratch = ScratchBuffers::default();
    run(setting, none, ScratchLayout::Out(&mut scratch))?;
    Ok(scratch)
}

fn run(
    setting: InstanceSetting<'_>,
    on_round: OnRound<'_>,
    scratch: ScratchLayout<'_>,
) -> Result<(), BoxedDiagnostic> {
    let InstanceSetting { program, options, units, .. } = setting;
    let axes = setting.axes.to_vec();
    let env = environment(program, &axes, options.root);
    let mut live = vec![];
    live.extend(&program.axes.sizes);
    if program.kind.rooted() {
        live.push(program.root);
    }
    let ranks = setting.spec.ranks;
    let spec = CollectiveSpec { chunks: units, ..setting.spec.clone() };
    let mut walk = WalkState {
        setting,
        round: 0,
        path: Vec::new(),
        on_round,
        scratch,
        stop: false,
        budget: WalkBudget::new(ranks, options.limit),
        lanes: vec![None; MAX_LANES.into()],
        weighted: setting.weighted_site(),
    };
    let scratch = walk.scratch(program, &env, setting.spec.chunks / units.max(1))?;
    let views = FrameViews::Whole { spec: setting.spec, scratch };
    let (size, ride) = (ranks, FrameRoute::default());
    let varied = false;
    let frame = ProgramFrame {
        program,
        axes,
        env,
        live,
        size,
        stride: 1,
        ranks,
        ride,
        spec,
        views,
        varied,
    };
    if setting.channels > 1 {
        for t in 0..setting.channels {
            walk.part(&frame, &program.body, None, (t, setting.channels), None)?;
        }
    } else {
        let mut frame = frame;
        walk.block(&mut frame, &program.body)?;
    }
    Ok(())
}

/// Returns the refusal of scratch memories that have too many chunks together.
fn too_many_places(chunks: u64, span: Span) -> Diagnostic {
    Diagnostic::error(codes::TOO_BIG, format!("scratch memories of {chunks} chunks on each rank"))
        .label(span, "with this one they are too large")
        .help(format!(
            "declare smaller ones: all memories of a rank have at most {MAX_PLACES} chunks together, and chunks are \
             as large as the call makes them"
        ))
}

impl WalkState<'_, '_> {
    /// Finds or makes the scratch buffers of a frame whose chunks are `w` of the instance's.
    fn scratch(&mut self, p: &Program, env: &[i64], w: u32) -> Result<u16, BoxedDiagnostic> {
        let part = match (self.weighted, self.path.as_slice()) {
            (Some(site), [at, part, ..]) if site == *at => Some(short(*part)),
            _ => None,
        };
        let spec = self.setting.spec;
        let ScratchBuffers { first, buffers, chunks: all } = match &mut self.scratch {
            ScratchLayout::Out(scratch) => scratch,
            ScratchLayout::Done(scratch) => {
                return Ok(scratch.first.get(&self.path).copied().unwrap_or(0));
            }
        };
        let full =
            !first.contains_key(&self.path) && buffers.len() + p.scratch.len() > MOST_SCRATCH;
        if let (true, Some((_, last))) = (full, p.scratch.last()) {
            let d = Diagnostic::error(codes::TOO_LARGE, format!("more than {MOST_SCRATCH} scratch memories"))
                .label(last.span, "the last one is declared here")
                .help("declare one memory of more chunks in place of many, or use fewer algorithms side by side");
            return Err(Box::new(d));
        }
        let first = *first.entry(self.path.clone()).or_insert_with(|| {
            let first = buffers.len();
            let own = p.scratch.iter();
            buffers.extend(own.map(|(name, _)| ScratchBuffer {
                name: name.clone(),
                chunks: 0,
                part,
            }));
            short(first)
        });
        for (i, (_, e)) in p.scratch.iter().enumerate() {
            let v = eval(e, &mut env.to_vec()).map_err(|e| Box::new(e.diagnostic()))?;
            let size = v
                .checked_mul(i64::from(w))
                .filter(|v| (0..MAX_CHUNKS.into()).contains(v))
                .ok_or_else(|| {
                Box::new(
                    Diagnostic::error(
                        codes::CHUNKS,
                        format!("{v} chunks of scratch are out of range"),
                    )
                    .beyond_limit(v > 0)
                    .label(e.span, "here"),
                )
            })?;
            let chunks = &mut buffers[index(first) + i].chunks;
            let size = count(size).max(*chunks);
            *all += u64::from(size - *chunks);
            *chunks = size;
            if *all > MAX_PLACES - spec.most_places() {
                return Err(Box::new(too_many_places(*all, e.span)));
            }
        }
        Ok(first)
    }

    fn block<'f>(
        &mut self,
        frame: &mut ProgramFrame<'f>,
        stmts: &'f [ProgramStmt],
    ) -> Result<(), BoxedDiagnostic> {
        let depth = frame.live.len();
        for s in stmts {
            if self.stop {
                break;
            }
            match s {
                ProgramStmt::Let(slot, e) => {
                    frame.env[index(*slot)] = frame.value(e)?;
                    frame.live.push(*slot);
                }
                ProgramStmt::For { slot, from, to, body } => {
                    let from_span = from.span;
                    let (from, to) = (frame.value(from)?, frame.value(to)?);
                    if matches!(self.scratch, ScratchLayout::Out(_)) && !composed(body) {
                        continue;
                    }
                    // A bound that is out of reach is refused before the first turn.
                    self.budget.turns(wide(to.saturating_sub(from).max(0)), from_span)?;
                    frame.live.push(*slot);
                    for v in from..to {
                        frame.env[index(*slot)] = v;
                        self.block(frame, body)?;
                        if self.stop {
                            break;
                        }
                    }
                    frame.live.pop();
                }
                ProgramStmt::If { cond, then, otherwise } => {
                    let body = if frame.value(cond)? != 0 { then } else { otherwise };
                    self.block(frame, body)?;
                }
                ProgramStmt::Each(each) => {
                    if let ScratchLayout::Done(_) = self.scratch {
                        let ride = self.lane(frame.ride, each.span)?;
                        let round = WalkRound {
                            frame,
                            each,
                            index: self.round,
                            ride,
                            budget: &self.budget,
                        };
                        if (self.on_round)(&round)?.is_break() {
                            self.stop = true;
                        }
                        self.round += 1;
                    }
                }
                ProgramStmt::Use(u) => self.use_(frame, u)?,
                ProgramStmt::Split(s) => {
                    let (from, to) =
                        split_range(s, &mut frame.env.clone(), self.setting.options.paths)?;
                    for t in from..to {
                        let frame: &ProgramFrame<'_> = frame;
                        self.path.push(s.site);
                        let done = self.part(
                            frame,
                            &s.body,
                            Some((s.slot, t)),
                            (count(t - from), count(to - from)),
                            Some(s.site),
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
        outer: &ProgramFrame<'_>,
        body: &[ProgramStmt],
        var: Option<(Slot, i64)>,
        (part, parts): (u32, u32),
        site: Option<u32>,
    ) -> Result<(), BoxedDiagnostic> {
        self.path.push(part);
        self.budget.turns(ENTERED, outer.program.header)?;
        let w = outer.finest()? / parts;
        let scratch = self.scratch(outer.program, &outer.env, w.max(1));
        let mut env = outer.env.clone();
        let mut live = outer.live.clone();
        if let Some((slot, t)) = var {
            env[index(slot)] = t;
            live.push(slot);
        }
        let lane =
            1 + short((u32::from(outer.ride.lane) * parts + part) % (u32::from(MAX_LANES) - 1));
        let mut ride = FrameRoute { lane, ..outer.ride };
        if site.is_some() && site == self.weighted {
            ride.part = Some(short(part));
        }
        let views = FrameViews::Part { outer, part, parts, scratch: scratch? };
        let mut frame = ProgramFrame {
            program: outer.program,
            axes: outer.axes.clone(),
            env,
            live,
            ride,
            spec: outer.spec.clone(),
            views,
            ..*outer
        };
        let done = self.block(&mut frame, body);
        self.path.pop();
        done
    }

    /// Returns the lane of a round: that of its frame, unless that is already another path's or part's.
    fn lane(&mut self, ride: FrameRoute, span: Span) -> Result<FrameRoute, BoxedDiagnostic> {
        let (own, last) = ((ride.path, ride.part), MAX_LANES);
        let order = (ride.lane..last).chain(1..ride.lane);
        let fits = |lane: &u16| self.lanes[index(*lane)].is_none_or(|of| of == own);
        let Some(lane) = order.into_iter().find(fits) else {
            return Err(Box::new(
                Diagnostic::error(
                    codes::PATH,
                    format!(
                        "no lane is left for path {}: the other paths have all {last}",
                        ride.path
                    ),
                )
                .beyond_limit(true)
                .label(span, "run here")
                .help("split into fewer parts"),
            ));
        };
        self.lanes[index(lane)] = Some(own);
        Ok(FrameRoute { lane, ..ride })
    }

    /// Returns the route of the messages of a used program.
    fn via(
        &self,
        outer: &ProgramFrame<'_>,
        u: &crate::program::AlgorithmUse,
    ) -> Result<FrameRoute, BoxedDiagnostic> {
        let Some(e) = &u.via else { return Ok(outer.ride) };
        let (path, paths) = (eval(e, &mut outer.env.clone()), self.setting.options.paths);
        match path.map_err(|e| outer.note(e.diagnostic(), &outer.env, &[]))? {
            path if (0..i64::from(paths)).contains(&path) => {
                Ok(FrameRoute { path: short(path), ..outer.ride })
            }
            path => {
                let d = Diagnostic::error(
                    codes::PATH,
                    format!("path {path} is not one of {paths}"),
                )
                .label(e.span, "there is no such path")
                .help("write `split data over p in paths … { use … via p }`, or say how many paths there are (`--paths`)");
                Err(outer.note(d, &outer.env, &[]))
            }
        }
    }

    fn use_(
        &mut self,
        outer: &ProgramFrame<'_>,
        u: &crate::program::AlgorithmUse,
    ) -> Result<(), BoxedDiagnostic> {
        let (axes, env, units) = enter(outer.program, &outer.axes, &mut outer.env.clone(), u)?;
        let size: u32 = axes.iter().product();
        let inner: u32 = u.over.map_or(1, |axis| outer.axes[axis + 1..].iter().product());
        let program = &*u.program;
        let spec = CollectiveSpec {
            kind: program.kind.clone(),
            ranks: size,
            chunks: units,
            root: count(env[index(program.root)]),
            custom: None,
        };
        let spec = match &program.kind {
            crate::program::CollectiveKind::Custom(_) => {
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
        self.path.push(u.site);
        let mut frame = ProgramFrame {
            program,
            axes,
            env,
            live,
            size,
            stride: outer.stride * inner,
            ranks: outer.ranks,
            ride: self.via(outer, u)?,
            spec,
            views: FrameViews::Used { outer, stmt: u, scratch: 0 },
            varied: outer.varied || length_varies(outer.program, &outer.axes, &outer.env, u),
        };
        let w = frame.finest()?;
        let scratch = self.scratch(program, &frame.env, w);
        let done = match scratch {
            Ok(scratch) => {
                frame.views = FrameViews::Used { outer, stmt: u, scratch };
                self.block(&mut frame, &program.body)
            }
            Err(e) => Err(e),
        };
        self.path.pop();
        done.map_err(|d| Box::new(used(u, *d)))
    }
}
