//! Declared collectives at one rank count: their postconditions as a table, which the proofs use.
//!
//! The expected results of runs are computed elsewhere, by [`crate::postcondition`], so that a fault of this
//! table shows.

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use crate::advice::{ExprNames, IndexedBuffer, no_rank};
use crate::budget::BoxedDiagnostic;
use crate::chunks::ChunkSet;
use crate::collective::{ChunkRun, CustomSpec};
use crate::program::{
    ChunkIndex, CustomCollective, EnsureClause, ExprNode, RankExpr, RuleBinder, Slot, SlotExpr,
};
use crate::scope::{custom_environment, custom_sizes, index_set, value};

/// Places of all ranks' outputs that a table may have.
const MOST_CELLS: u64 = 1 << 21;

/// Runs of contributions that a table may hold.
const MOST_RUNS: usize = 1 << 22;

/// Turns of loops, and contributions, that are evaluated for a table.
const MOST_WORK: u64 = 1 << 22;

/// Evaluates the postconditions of a declared collective.
pub(super) fn custom_spec(
    custom: &CustomCollective,
    n: u32,
    env: &[i64],
) -> Result<CustomSpec, BoxedDiagnostic> {
    let (input, output) = custom_sizes(custom, env)?;
    let cells = u64::from(n) * u64::from(output);
    let cells = match usize::try_from(cells) {
        Ok(size) if cells <= MOST_CELLS => size,
        _ => return Err(too_large(custom.span)),
    };
    let spec = CustomSpec { input, output, cells: vec![0; cells], ..CustomSpec::default() };
    let mut table = ContentTable { custom, n, spec, by: Vec::new(), work: 0 };
    let mut own = custom_environment(custom, env);
    for number in 0..custom.ensures.len() {
        for rank in 0..n {
            table.ensure(number, rank, &mut own)?;
        }
    }
    Ok(table.spec)
}

fn too_large(span: Span) -> BoxedDiagnostic {
    Box::new(
        Diagnostic::error(
            codes::TOO_BIG,
            "a declared collective is tabulated, and this one is too large",
        )
        .label(span, "here")
        .help("use fewer ranks, fewer chunks, or shorter loops"),
    )
}

/// The table being made.
struct ContentTable<'c> {
    custom: &'c CustomCollective,
    n: u32,
    spec: CustomSpec,
    /// The postcondition that made each entry.
    by: Vec<usize>,
    work: u64,
}

/// Contributions of one turn of a postcondition: ranks `from..to`, and the chunks of each.
type TurnOperand = (u32, u32, ChunkSet);

impl ContentTable<'_> {
    fn ensure(&mut self, number: usize, rank: u32, env: &mut [i64]) -> Result<(), BoxedDiagnostic> {
        let ensure = &self.custom.ensures[number];
        if let Some(var) = ensure.var {
            env[usize::from(var)] = rank.into();
        }
        self.bind(&ensure.binders, env, number, rank)
    }

    fn count(&mut self, span: Span) -> Result<(), BoxedDiagnostic> {
        self.work += 1;
        if self.work > MOST_WORK { Err(too_large(span)) } else { Ok(()) }
    }

    /// Runs the binders of a rule, and adds what every combination that passes asks for.
    fn bind(
        &mut self,
        binders: &[RuleBinder],
        env: &mut [i64],
        number: usize,
        rank: u32,
    ) -> Result<(), BoxedDiagnostic> {
        let ensure = &self.custom.ensures[number];
        self.count(ensure.span)?;
        let Some((first, rest)) = binders.split_first() else {
            return self.leaf(number, rank, env);
        };
        match first {
            RuleBinder::Let(slot, e) => {
                env[usize::from(*slot)] = self.value(ensure, e, env)?;
                self.bind(rest, env, number, rank)
            }
            RuleBinder::Where(e) => match self.value(ensure, e, env)? {
                0 => Ok(()),
                _ => self.bind(rest, env, number, rank),
            },
            RuleBinder::For(slot, from, to) => {
                for v in self.value(ensure, from, env)?..self.value(ensure, to, env)? {
                    env[usize::from(*slot)] = v;
                    self.bind(rest, env, number, rank)?;
                }
                Ok(())
            }
        }
    }

    fn leaf(&mut self, number: usize, rank: u32, env: &mut [i64]) -> Result<(), BoxedDiagnostic> {
        let ensure = &self.custom.ensures[number];
        let target = index_set(
            &ensure.target,
            env,
            &buffer(self.custom, ensure, self.spec.output),
            ensure.span,
        )
        .map_err(|d| self.note(d, ensure, env))?;
        let operands = self.operands(ensure, env)?;
        if operands.is_empty() {
            return Ok(());
        }
        if let Some((_, _, source)) = operands.iter().find(|o| o.2.total != target.total) {
            let text = format!("{} output chunks, but {} input chunks", target.total, source.total);
            let d = Diagnostic::error(codes::LENGTHS, text).label(ensure.span, "here");
            return Err(self.note(Box::new(d), ensure, env));
        }
        let mut runs: Vec<ChunkRun> = Vec::with_capacity(operands.len());
        for k in 0..target.total {
            runs.clear();
            runs.extend(operands.iter().map(|&(from, to, source)| (source.nth(k), from, to)));
            runs.sort_unstable();
            if let Some(w) = runs.windows(2).find(|w| w[0].0 == w[1].0 && w[1].1 < w[0].2) {
                let text = format!("rank {}'s chunk {} is counted twice in a sum", w[1].1, w[1].0);
                let d = Diagnostic::error(codes::DUPLICATE, text)
                    .label(ensure.span, format!("asked of rank {rank}'s output[{}]", target.nth(k)))
                    .help("a sum takes every contribution once; let the rank or the chunk depend on the variable of `reduce`");
                return Err(self.note(Box::new(d), ensure, env));
            }
            runs.dedup_by(|b, a| {
                let joins = a.0 == b.0 && a.2 == b.1;
                if joins {
                    a.2 = b.2;
                }
                joins
            });
            self.ask(number, rank, target.nth(k), &runs, env)?;
        }
        Ok(())
    }

    /// Enters what a place must hold.
    fn ask(
        &mut self,
        number: usize,
        rank: u32,
        chunk: u32,
        runs: &[ChunkRun],
        env: &[i64],
    ) -> Result<(), BoxedDiagnostic> {
        let ensure = &self.custom.ensures[number];
        let cell = self.spec.cell(rank, chunk);
        if self.spec.runs.len() + runs.len() > MOST_RUNS {
            return Err(too_large(ensure.span));
        }
        let place = self.spec.cells.get_mut(cell).ok_or_else(|| too_large(ensure.span))?;
        if let Some(before) = usize::try_from(*place).ok().and_then(|p| p.checked_sub(1)) {
            let name = format!("rank {rank}'s output[{chunk}]");
            let first = self.by.get(before).map_or(number, |&b| b);
            let d = Diagnostic::error(codes::ASKED_TWICE, format!("{name} is asked for twice"));
            let d = if first == number {
                d.label(ensure.span, "this names it more than once")
            } else {
                d.label(ensure.span, "asked for again")
                    .label(self.custom.ensures[first].span, "asked for here")
            };
            let d =
                d.help("a place has one postcondition: exclude it from the others with `where`");
            return Err(self.note(Box::new(d), ensure, env));
        }
        self.by.push(number);
        *place = u32::try_from(self.by.len()).map_err(|_| too_large(ensure.span))?;
        self.spec.mixed |= runs.iter().any(|r| r.0 != runs[0].0);
        self.spec.runs.extend(runs);
        let end = u32::try_from(self.spec.runs.len()).map_err(|_| too_large(ensure.span))?;
        self.spec.ends.push(end);
        Ok(())
    }

    /// Returns the operands of one turn of a postcondition: ranks and the chunks of each, summed or copied.
    fn operands(
        &mut self,
        ensure: &EnsureClause,
        env: &mut [i64],
    ) -> Result<Vec<TurnOperand>, BoxedDiagnostic> {
        let input = buffer(self.custom, ensure, self.spec.input);
        let source = |env: &mut [i64]| index_set(&ensure.source, env, &input, ensure.span);
        let Some((slot, from, to, filter)) = &ensure.reduce else {
            let at = self.rank(ensure, env)?;
            let set = source(env).map_err(|d| self.note(d, ensure, env))?;
            return Ok(vec![(at, at + 1, set)]);
        };
        let (from, to) = (self.value(ensure, from, env)?, self.value(ensure, to, env)?);
        let plain = filter.is_none()
            && ensure.at.coordinates.is_empty()
            && ensure.at.linear.node == ExprNode::Var(*slot)
            && !index_reads(&ensure.source, *slot);
        if plain && from < to {
            // All ranks of a range, and one chunk of all: not listed one by one.
            env[usize::from(*slot)] =
                if (0..i64::from(self.n)).contains(&from) { to - 1 } else { from };
            let last = self.rank(ensure, env)?;
            let set = source(env).map_err(|d| self.note(d, ensure, env))?;
            return Ok(vec![(u32::try_from(from).unwrap_or(last), last + 1, set)]);
        }
        let mut operands = Vec::new();
        for v in from..to {
            self.count(ensure.span)?;
            env[usize::from(*slot)] = v;
            if let Some(filter) = filter
                && self.value(ensure, filter, env)? == 0
            {
                continue;
            }
            let at = self.rank(ensure, env)?;
            let set = source(env).map_err(|d| self.note(d, ensure, env))?;
            operands.push((at, at + 1, set));
        }
        Ok(operands)
    }

    /// Returns the rank whose input is read; every coordinate must be one of its axis.
    fn rank(&self, ensure: &EnsureClause, env: &mut [i64]) -> Result<u32, BoxedDiagnostic> {
        let RankExpr { linear, coordinates, span } = &ensure.at;
        let out_of = |of: (i64, i64), axis: Option<&str>, e: &SlotExpr, span: Span, env: &[i64]| {
            let d = no_rank(of, axis, (e, span), None, words(self.custom, ensure), env);
            self.note(Box::new(d), ensure, env)
        };
        for ((e, size), axis) in coordinates.iter().zip(&self.custom.axes.names) {
            let (v, n) = (self.value(ensure, e, env)?, env[usize::from(*size)]);
            if !(0..n).contains(&v) {
                return Err(out_of((v, n), Some(axis), e, e.span, env));
            }
        }
        let v = self.value(ensure, linear, env)?;
        match u32::try_from(v) {
            Ok(rank) if rank < self.n => Ok(rank),
            _ => Err(out_of((v, self.n.into()), None, linear, *span, env)),
        }
    }

    fn value(
        &self,
        ensure: &EnsureClause,
        e: &SlotExpr,
        env: &mut [i64],
    ) -> Result<i64, BoxedDiagnostic> {
        value(e, env).map_err(|d| self.note(d, ensure, env))
    }

    /// Adds the values of the variables.
    fn note(&self, d: BoxedDiagnostic, ensure: &EnsureClause, env: &[i64]) -> BoxedDiagnostic {
        let binders = ensure.binders.iter().filter_map(|b| match b {
            RuleBinder::Let(slot, _) | RuleBinder::For(slot, _, _) => Some(*slot),
            RuleBinder::Where(_) => None,
        });
        let slots = self.custom.axes.sizes.iter().copied().chain(ensure.var).chain(binders);
        let mut parts: Vec<String> = Vec::new();
        for slot in slots.chain(ensure.reduce.as_ref().map(|r| r.0)) {
            let slot = usize::from(slot);
            let name = self.custom.slots.get(slot).filter(|name| !name.is_empty());
            let value = name.map(|name| format!("{name} = {}", env[slot]));
            parts.extend(value.filter(|v| !parts.contains(v)));
        }
        if parts.is_empty() { d } else { Box::new(d.note(format!("with {}", parts.join(", ")))) }
    }
}

fn words<'c>(custom: &'c CustomCollective, ensure: &'c EnsureClause) -> ExprNames<'c> {
    ExprNames { slots: &custom.slots, binders: &ensure.binders }
}

/// Returns the input or the output that a postcondition names, of `size` chunks.
fn buffer<'c>(
    custom: &'c CustomCollective,
    ensure: &'c EnsureClause,
    size: u32,
) -> IndexedBuffer<'c> {
    IndexedBuffer { size, words: words(custom, ensure), uncut: None }
}

/// Returns true if an index reads a variable.
fn index_reads(index: &ChunkIndex, slot: Slot) -> bool {
    match index {
        ChunkIndex::All => false,
        ChunkIndex::At(e) => reads(e, slot),
        ChunkIndex::Range { from, to, by, take }
        | ChunkIndex::Cyclic { from, count: to, by, take } => {
            [Some(from), Some(to), by.as_ref(), take.as_ref()]
                .into_iter()
                .flatten()
                .any(|e| reads(e, slot))
        }
    }
}

/// Returns true if an expression reads a variable.
fn reads(e: &SlotExpr, slot: Slot) -> bool {
    match &e.node {
        ExprNode::Int(_) => false,
        ExprNode::Var(s) => *s == slot,
        ExprNode::Unary(_, a) => reads(a, slot),
        ExprNode::Binary(_, a, b) | ExprNode::Let(_, a, b) => reads(a, slot) || reads(b, slot),
        ExprNode::Call(_, args) => args.iter().any(|a| reads(a, slot)),
        ExprNode::If(a, b, c) => [a, b, c].into_iter().any(|e| reads(e, slot)),
    }
}
