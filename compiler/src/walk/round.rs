//! The transfers of one round: all of them, or those of one rank.

use roundelay_dsl::ast::TransferOp;
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use super::frame::{FrameRoute, ProgramFrame};
use super::transfer::{ChunkTransfer, LoopTurns, TransferKey};
use super::view::BufferView;
use crate::advice::{ExprNames, IndexedBuffer, no_rank};
use crate::bounds::SlotBounds;
use crate::budget::{BoxedDiagnostic, WalkBudget};
use crate::chunks::ChunkSet;
use crate::eval::eval;
use crate::num::{count, index, signed};
use crate::program::{EachRules, RegionExpr, RuleBinder, Slot, SlotExpr, TransferRule};
use crate::scope::index_set;

/// One execution of an `each`.
pub struct WalkRound<'a> {
    pub(super) frame: &'a ProgramFrame<'a>,
    pub(super) each: &'a EachRules,
    /// Counted from 0.
    pub index: u32,
    /// The route of its messages.
    pub ride: FrameRoute,
    pub(super) budget: &'a WalkBudget,
}

/// The callback for each combination of the inner loops.
type TurnCallback<'f> = &'f mut dyn FnMut(&mut Vec<i64>, &LoopTurns) -> Result<(), BoxedDiagnostic>;

/// The callback for each transfer.
type TransferSink<'f> = &'f mut dyn FnMut(ChunkTransfer) -> Result<(), BoxedDiagnostic>;

/// The environment of one rule while its transfers are found.
struct RuleScene<'r> {
    rule: &'r TransferRule,
    number: u32,
    base: u32,
    /// Views of the rule's buffers for this group.
    from: BufferView,
    to: BufferView,
}

impl WalkRound<'_> {
    /// Returns the span of the `each`.
    pub fn span(&self) -> Span {
        self.each.span
    }

    /// Appends all transfers of the round in order.
    pub fn all(&self, out: &mut Vec<ChunkTransfer>) -> Result<(), BoxedDiagnostic> {
        let start = out.len();
        self.visit(&mut |t| self.keep(out, start, t))?;
        out[start..].sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(())
    }

    /// Keeps a transfer in a list in which those of the round begin at `start`.
    fn keep(
        &self,
        out: &mut Vec<ChunkTransfer>,
        start: usize,
        t: ChunkTransfer,
    ) -> Result<(), BoxedDiagnostic> {
        self.budget.list(out.len() - start, t.span)?;
        out.push(t);
        Ok(())
    }

    /// Passes all transfers of the round to the sink, in no order that means anything.
    pub(crate) fn visit(&self, sink: TransferSink<'_>) -> Result<(), BoxedDiagnostic> {
        let mut env = self.frame.env.clone();
        for base in self.frame.bases() {
            for (number, rule) in self.each.rules.iter().enumerate() {
                let scene = self.scene(rule, count(number), base)?;
                let last = if self.each.once { 1 } else { self.frame.size };
                self.listed(&scene, &mut env, 0..last, None, sink)?;
            }
        }
        Ok(())
    }

    /// Appends the transfers of the round in which `rank` takes part, in order.
    pub fn of(&self, rank: u32, out: &mut Vec<ChunkTransfer>) -> Result<(), BoxedDiagnostic> {
        let start = out.len();
        let (base, place) = self.frame.locate(rank);
        let mut env = self.frame.env.clone();
        for (number, rule) in self.each.rules.iter().enumerate() {
            let scene = self.scene(rule, count(number), base)?;
            let last = if self.each.once { 1 } else { self.frame.size };
            let before = out.len();
            if !self.each.once && rule.uniform {
                let mut turns = LoopTurns::new();
                let keep = &mut |t| self.keep(out, start, t);
                if self.solve(&scene, &mut env, &mut turns, place, rank, keep).is_ok() {
                    continue;
                }
                // What no rank comes to may have no value: then all ranks are asked.
                out.truncate(before);
            }
            let keep = &mut |t| self.keep(out, start, t);
            self.listed(&scene, &mut env, 0..last, Some(rank), keep)?;
        }
        out[start..].sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(())
    }

    /// Passes the transfers of a rule, for these ranks of the `each`, to the sink.
    fn listed(
        &self,
        scene: &RuleScene<'_>,
        env: &mut Vec<i64>,
        ranks: std::ops::Range<u32>,
        only: Option<u32>,
        sink: TransferSink<'_>,
    ) -> Result<(), BoxedDiagnostic> {
        for r in ranks {
            env[index(self.each.var)] = i64::from(r);
            let mut turns = LoopTurns::new();
            self.budget.idle(1, scene.rule.span)?;
            self.leaves(scene.rule, env, &mut turns, &mut |env, turns| {
                self.transfer(scene, env, turns, r, only, sink)
            })?;
        }
        Ok(())
    }

    /// Returns true if the round may round what it sends. The result does not depend on the rank that asks.
    pub fn lossy(&self) -> bool {
        self.each.rules.iter().any(|rule| rule.wire.is_some())
    }

    /// Returns true if one scratch buffer may be written from scratch and from the vector. The result does
    /// not depend on the rank that asks.
    pub fn mixes(&self) -> bool {
        let rules = &self.each.rules;
        let scratch = |buf| self.frame.in_scratch(buf);
        let within = |r: &&TransferRule| scratch(r.to.buf) && scratch(r.from.buf);
        let meets =
            |r: &TransferRule, o: &TransferRule| o.to.buf == r.to.buf && !scratch(o.from.buf);
        rules.iter().filter(within).any(|r| rules.iter().any(|o| meets(r, o)))
    }

    /// Returns true if other transfers may add to what a rule writes.
    fn sums(&self, rule: &TransferRule) -> bool {
        self.each.rules.iter().any(|r| r.op == TransferOp::Reduce && r.to.buf == rule.to.buf)
    }

    /// Returns the values of the variables of one transfer of the round, as messages show them.
    pub fn values(&self, key: &TransferKey) -> Option<String> {
        let rule = self.each.rules.get(index(key.rule))?;
        let mut text = None;
        let mut env = self.frame.env.clone();
        let place = self.frame.locate(key.rank).1;
        env[index(self.each.var)] = i64::from(place);
        let found = self.leaves(rule, &mut env, &mut LoopTurns::new(), &mut |env, turns| {
            if *turns == key.inner && text.is_none() {
                text = Some(self.frame.note(blank(), env, &self.slots(rule)).notes.join(""));
            }
            Ok(())
        });
        found.ok()?;
        text.filter(|t| !t.is_empty())
    }

    /// Returns the slots of a rule that users know.
    fn slots(&self, rule: &TransferRule) -> Vec<Slot> {
        let mut slots = if self.each.once { Vec::new() } else { vec![self.each.var] };
        slots.extend(rule.binders.iter().filter_map(|b| match b {
            RuleBinder::Let(slot, _) | RuleBinder::For(slot, _, _) => Some(*slot),
            RuleBinder::Where(_) => None,
        }));
        slots
    }

    fn scene<'r>(
        &self,
        rule: &'r TransferRule,
        number: u32,
        base: u32,
    ) -> Result<RuleScene<'r>, BoxedDiagnostic> {
        Ok(RuleScene {
            rule,
            number,
            base,
            from: self.frame.view(rule.from.buf, base)?,
            to: self.frame.view(rule.to.buf, base)?,
        })
    }

    /// Follows the binders of a rule for the rank that `env` holds; calls `leaf` for every
    /// combination of the inner loops that passes, with the turns of each.
    fn leaves(
        &self,
        rule: &TransferRule,
        env: &mut Vec<i64>,
        turns: &mut LoopTurns,
        leaf: TurnCallback<'_>,
    ) -> Result<(), BoxedDiagnostic> {
        self.descend(rule, &rule.binders, env, turns, leaf)
    }

    fn descend(
        &self,
        rule: &TransferRule,
        binders: &[RuleBinder],
        env: &mut Vec<i64>,
        turns: &mut LoopTurns,
        leaf: TurnCallback<'_>,
    ) -> Result<(), BoxedDiagnostic> {
        let Some((first, rest)) = binders.split_first() else {
            return leaf(env, turns);
        };
        match first {
            RuleBinder::Let(slot, e) => {
                env[index(*slot)] = self.value(rule, e, env)?;
                self.descend(rule, rest, env, turns, leaf)
            }
            RuleBinder::Where(e) => match self.value(rule, e, env)? {
                0 => Ok(()),
                _ => self.descend(rule, rest, env, turns, leaf),
            },
            RuleBinder::For(slot, from, to) => {
                let (a, b) = (self.value(rule, from, env)?, self.value(rule, to, env)?);
                for turn in 0..self.width(rule, a, b)? {
                    env[index(*slot)] = a + i64::from(turn);
                    self.budget.idle(1, rule.span)?;
                    turns.push(turn);
                    let done = self.descend(rule, rest, env, turns, leaf);
                    turns.pop();
                    done?;
                }
                Ok(())
            }
        }
    }

    /// Enumerates the loops of a uniform rule, and at each leaf solves for the rank of the `each`.
    fn solve(
        &self,
        scene: &RuleScene<'_>,
        env: &mut Vec<i64>,
        turns: &mut LoopTurns,
        place: u32,
        rank: u32,
        sink: TransferSink<'_>,
    ) -> Result<(), BoxedDiagnostic> {
        self.solve_from(scene, 0, env, turns, place, rank, sink)
    }

    #[allow(clippy::too_many_arguments, reason = "the state of one recursive descent")]
    fn solve_from(
        &self,
        scene: &RuleScene<'_>,
        at: usize,
        env: &mut Vec<i64>,
        turns: &mut LoopTurns,
        place: u32,
        rank: u32,
        sink: TransferSink<'_>,
    ) -> Result<(), BoxedDiagnostic> {
        let whole = (0, i64::from(self.frame.size) - 1);
        let vary = [(self.each.var, whole)];
        match scene.rule.binders.get(at) {
            Some(RuleBinder::For(slot, from, to)) => {
                let (a, b) = (self.value(scene.rule, from, env)?, self.value(scene.rule, to, env)?);
                for turn in 0..self.width(scene.rule, a, b)? {
                    env[index(*slot)] = a + i64::from(turn);
                    self.budget.idle(1, scene.rule.span)?;
                    turns.push(turn);
                    let done = self.solve_from(scene, at + 1, env, turns, place, rank, sink);
                    turns.pop();
                    done?;
                }
                return Ok(());
            }
            Some(RuleBinder::Let(slot, e)) => {
                if !self.each.defs.iter().any(|(s, _)| s == slot) {
                    env[index(*slot)] = self.value(scene.rule, e, env)?;
                }
                return self.solve_from(scene, at + 1, env, turns, place, rank, sink);
            }
            Some(RuleBinder::Where(e)) => {
                let varies = SlotBounds { env, vary: &vary, defs: &self.each.defs }.varies(e);
                if varies || self.value(scene.rule, e, env)? != 0 {
                    self.solve_from(scene, at + 1, env, turns, place, rank, sink)?;
                }
                return Ok(());
            }
            None => {}
        }
        let mut candidates: Vec<i64> = Vec::new();
        for target in [&scene.rule.src.linear, &scene.rule.dst.linear] {
            let bounds = SlotBounds { env, vary: &vary, defs: &self.each.defs };
            match bounds.invert(target, self.each.var, &[(i64::from(place), i64::from(place))]) {
                Some(ranges) => {
                    for (lo, hi) in ranges {
                        candidates.extend(lo.max(0)..=hi.min(whole.1));
                    }
                }
                None => {
                    let conditions = scene.rule.binders.iter().filter_map(|b| match b {
                        RuleBinder::Where(e) => Some(e),
                        RuleBinder::Let(..) | RuleBinder::For(..) => None,
                    });
                    bounds.search(target, self.each.var, place.into(), conditions, &mut candidates);
                }
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
        'next: for r in candidates {
            env[index(self.each.var)] = r;
            for b in &scene.rule.binders {
                match b {
                    RuleBinder::Let(slot, e) => {
                        env[index(*slot)] = self.value(scene.rule, e, env)?;
                    }
                    RuleBinder::Where(e) => {
                        if self.value(scene.rule, e, env)? == 0 {
                            continue 'next;
                        }
                    }
                    RuleBinder::For(..) => {}
                }
            }
            self.transfer(scene, env, turns, count(r), Some(rank), sink)?;
        }
        Ok(())
    }

    /// Returns the number of turns of a loop, at most `u32::MAX`; more are an error.
    fn width(&self, rule: &TransferRule, from: i64, to: i64) -> Result<u32, BoxedDiagnostic> {
        match to.saturating_sub(from) {
            w if w <= 0 => Ok(0),
            w if w < signed(u32::MAX) => Ok(count(w)),
            _ => Err(self.budget.endless(rule.span)),
        }
    }

    fn value(
        &self,
        rule: &TransferRule,
        e: &SlotExpr,
        env: &mut [i64],
    ) -> Result<i64, BoxedDiagnostic> {
        eval(e, env).map_err(|e| self.frame.note(e.diagnostic(), env, &self.slots(rule)))
    }

    fn rank(
        &self,
        scene: &RuleScene<'_>,
        rank: &crate::program::RankExpr,
        env: &mut [i64],
    ) -> Result<u32, BoxedDiagnostic> {
        let words = ExprNames { slots: &self.frame.program.slots, binders: &scene.rule.binders };
        let axes = &self.frame.program.axes;
        let out_of =
            |of: (i64, i64), axis: Option<(&str, Slot)>, at: (&SlotExpr, Span), env: &[i64]| {
                let size = match (axis, &axes.sizes[..]) {
                    (Some((_, size)), _) | (None, &[size]) => Some(size),
                    _ => None,
                };
                let d = no_rank(of, axis.map(|(name, _)| name), at, size, words, env);
                self.frame.note(d, env, &self.slots(scene.rule))
            };
        for ((e, size), axis) in rank.coordinates.iter().zip(&axes.names) {
            let v = self.value(scene.rule, e, env)?;
            let n = env[index(*size)];
            if !(0..n).contains(&v) {
                return Err(out_of((v, n), Some((axis, *size)), (e, e.span), env));
            }
        }
        let (v, n) = (self.value(scene.rule, &rank.linear, env)?, i64::from(self.frame.size));
        if !(0..n).contains(&v) {
            return Err(out_of((v, n), None, (&rank.linear, rank.span), env));
        }
        Ok(count(v))
    }

    fn transfer(
        &self,
        scene: &RuleScene<'_>,
        env: &mut [i64],
        turns: &LoopTurns,
        r: u32,
        only: Option<u32>,
        sink: TransferSink<'_>,
    ) -> Result<(), BoxedDiagnostic> {
        let rule = scene.rule;
        let global = |place: u32| scene.base + place * self.frame.stride;
        let src = global(self.rank(scene, &rule.src, env)?);
        let dst = global(self.rank(scene, &rule.dst, env)?);
        if only.is_some_and(|x| x != src && x != dst) {
            return Ok(());
        }
        let located = |d: BoxedDiagnostic, env: &[i64]| self.frame.note(*d, env, &self.slots(rule));
        let set = |region: &RegionExpr, size: u32, env: &mut [i64]| {
            let of = IndexedBuffer::new(self.frame.program, region.buf, size, &rule.binders);
            index_set(&region.index, env, &of, region.span).map_err(|d| located(d, env))
        };
        let from = set(&rule.from, scene.from.units, env)?;
        let to = set(&rule.to, scene.to.units, env)?;
        let (a, b) = (
            u64::from(from.total) * u64::from(scene.from.total() / scene.from.units.max(1)),
            u64::from(to.total) * u64::from(scene.to.total() / scene.to.units.max(1)),
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
        let (from, to) = if self.sums(rule) { from_start(from, to) } else { (from, to) };
        self.budget.useful(turns.len() + 1);
        sink(ChunkTransfer {
            round: self.index,
            key: TransferKey {
                rule: scene.number,
                inner: turns.clone(),
                rank: global(r.min(self.frame.size - 1)),
            },
            lane: self.ride.lane,
            path: self.ride.path,
            part: self.ride.part,
            src,
            dst,
            op: rule.op,
            from: scene.from.map(&from, rule.from.span)?,
            to: scene.to.map(&to, rule.to.span)?,
            wire: rule.wire.filter(|_| src != dst),
            span: rule.span,
        })
    }
}

/// Reorders a transfer of one whole buffer into another by the target's chunks: it is the same one wherever
/// in the buffer it was written to begin, and sums of such transfers are of one region.
fn from_start(from: ChunkSet, to: ChunkSet) -> (ChunkSet, ChunkSet) {
    let whole = |set: &ChunkSet| set.is_interval() && set.total == set.modulus;
    if to.start == 0 || !whole(&to) || !whole(&from) || from.total != to.total {
        return (from, to);
    }
    let back = u64::from(from.start) + u64::from(to.total - to.start);
    let start = count(back % u64::from(from.total));
    (ChunkSet { start, ..from }, ChunkSet::all(to.total))
}

fn blank() -> Diagnostic {
    Diagnostic::error(codes::SYNTAX, "")
}
