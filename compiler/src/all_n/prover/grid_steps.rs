//! The steps of a program on a grid: the programs that it uses over its axes.

use std::sync::Arc;

use roundelay_dsl::ast::{BinOp, TransferOp};
use roundelay_dsl::span::Span;

use crate::all_n::fragment::refusal::{FragmentRefusal, FragmentResult};
use crate::program::{
    AlgorithmUse, BufferStyle, ChunkIndex, CollectiveKind, ExprNode, Program, ProgramBuffer,
    ProgramStmt, RegionExpr, Slot, SlotExpr,
};

use super::words::{ExpressionWriter, Substitution, map_region, replace_nodes, substitute};

/// Nodes of the expressions of a step, at most.
const NODES: u32 = 4_000;

/// A used program, in every group along an axis at once.
#[derive(Debug)]
pub(super) struct GridStep<'a> {
    pub(super) used: &'a Program,
    pub(super) axis: usize,
    pub(super) on: Option<RegionExpr>,
    /// The root within the group; 0 without.
    pub(super) root: Option<SlotExpr>,
    pub(super) span: Span,
}

/// A program on a grid of two axes.
#[derive(Debug)]
pub(super) struct GridProgram<'a> {
    pub(super) steps: Vec<GridStep<'a>>,
    /// Expressions that must have a value.
    pub(super) checks: Vec<SlotExpr>,
    /// Chunks of the buffer: 1, or the size of an axis.
    pub(super) chunks: SlotExpr,
    /// The slots of the sizes.
    pub(super) sizes: [Slot; 2],
    /// The slots of the root's coordinates.
    pub(super) root: [Slot; 2],
    pub(super) slots: usize,
    writer: ExpressionWriter,
}

impl GridProgram<'_> {
    /// Returns the size of an axis.
    pub(super) fn size_of(&self, axis: usize) -> SlotExpr {
        self.writer.var(self.sizes[axis])
    }
}

/// Reads the steps of a program.
///
/// # Errors
///
/// Refuses programs with rounds of their own, and uses whose contracts are not known.
pub(super) fn read_grid(program: &Program) -> FragmentResult<GridProgram<'_>> {
    let refused = |reason: &str| FragmentRefusal::at(program.header, reason);
    let [first, second] = program.axes.sizes.as_slice() else {
        return Err(refused("a grid of more than two axes"));
    };
    let is_known = matches!(program.kind, CollectiveKind::AllReduce | CollectiveKind::Broadcast);
    if !is_known || program.style != BufferStyle::Data {
        return Err(refused("a grid of ranks, for this collective"));
    }
    if program.tolerates.is_some() || !program.scratch.is_empty() || !program.parameters.is_empty()
    {
        return Err(refused("a grid of ranks, with scratch, parameters or `tolerates`"));
    }
    if program.schedule.slots.is_some() {
        return Err(refused("a schedule with `slots`"));
    }
    let slot = |more: usize| {
        Slot::try_from(program.slots.len() + more).map_err(|_| refused("too many variables"))
    };
    let writer = ExpressionWriter { span: program.header };
    let mut grid = GridProgram {
        steps: Vec::new(),
        checks: Vec::new(),
        chunks: program.chunks.clone().unwrap_or_else(|| writer.int(1)),
        sizes: [*first, *second],
        root: [slot(0)?, slot(1)?],
        slots: program.slots.len() + 2,
        writer,
    };
    let is_size = grid.sizes.map(ExprNode::Var).contains(&grid.chunks.node);
    if !is_size && grid.chunks.node != ExprNode::Int(1) {
        return Err(FragmentRefusal::at(grid.chunks.span, "chunks that are no axis of the grid"));
    }
    let mut values = Substitution::new();
    for statement in &program.body {
        match statement {
            ProgramStmt::Let(slot, e) => {
                let value = grid.expression(program, e, &values)?;
                grid.checks.push(value.clone());
                values.insert(*slot, value);
            }
            ProgramStmt::Use(used) => {
                let step = grid.step(program, used, &values)?;
                grid.steps.push(step);
            }
            ProgramStmt::Each(each) => {
                return Err(FragmentRefusal::at(each.span, "a round on a grid of ranks"));
            }
            _ => return Err(refused("a grid of ranks, with loops, choices or parts")),
        }
    }
    Ok(grid)
}

/// Returns the program that a program on a grid uses as a whole, on each path between hosts.
pub(super) fn whole_use(program: &Program) -> Option<&Arc<Program>> {
    let [ProgramStmt::Split(split)] = program.body.as_slice() else { return None };
    let [ProgramStmt::Use(used)] = split.body.as_slice() else { return None };
    let is_path = used.via.as_ref().is_none_or(|via| via.node == ExprNode::Var(split.slot));
    let is_whole = used.over.is_none() && used.on.is_none() && used.to.is_none();
    let is_plain = used.root.is_none() && used.arguments.is_empty() && split.range.is_none();
    let own = &used.program;
    let is_alike = own.kind == program.kind
        && own.style == program.style
        && own.axes.sizes.len() == program.axes.sizes.len()
        && own.requires.is_empty()
        && own.tolerates.is_none()
        && program.tolerates.is_none()
        && program.chunks.is_none()
        && program.scratch.is_empty();
    let schedule = &program.schedule;
    let has_schedule =
        schedule.slots.is_some() || schedule.channels.is_some() || schedule.pipeline.is_some();
    let has_values = program.requires.iter().all(compares);
    (is_path && is_whole && is_plain && is_alike && !has_schedule && has_values).then_some(own)
}

/// Returns true if a condition compares variables and numbers, and so has a value.
fn compares(e: &SlotExpr) -> bool {
    let is_plain = |e: &SlotExpr| matches!(e.node, ExprNode::Int(_) | ExprNode::Var(_));
    match &e.node {
        ExprNode::Binary(BinOp::And | BinOp::Or, a, b) => compares(a) && compares(b),
        ExprNode::Binary(op, a, b) => {
            let is_comparison =
                matches!(op, BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge);
            is_comparison && is_plain(a) && is_plain(b)
        }
        _ => false,
    }
}

impl GridProgram<'_> {
    /// Returns an expression in which the coordinates of the root stand for its rest and quotient.
    fn expression(
        &self,
        program: &Program,
        e: &SlotExpr,
        values: &Substitution,
    ) -> FragmentResult<SlotExpr> {
        let large = || FragmentRefusal::at(e.span, "expressions are too large");
        let e = substitute(e, values, &mut NODES.clone()).ok_or_else(large)?;
        let inner = ExprNode::Var(self.sizes[1]);
        Ok(replace_nodes(&e, &|e| match &e.node {
            ExprNode::Binary(op @ (BinOp::Div | BinOp::Mod), root, by)
                if root.node == ExprNode::Var(program.root) && by.node == inner =>
            {
                Some(ExprNode::Var(self.root[usize::from(*op == BinOp::Mod)]))
            }
            _ => None,
        }))
    }

    fn step<'a>(
        &self,
        program: &'a Program,
        used: &'a AlgorithmUse,
        values: &Substitution,
    ) -> FragmentResult<GridStep<'a>> {
        let refused = |reason: &str| Err(FragmentRefusal::at(used.span, reason));
        let own = &*used.program;
        let Some(axis) = used.over else { return refused("`use` without `over` on a grid") };
        if used.via.is_some() || used.to.is_some() || !used.arguments.is_empty() {
            return refused("`use` with `via`, two regions or arguments on a grid");
        }
        if own.style != BufferStyle::Data || !own.scratch.is_empty() || own.tolerates.is_some() {
            return refused("`use` of a program with other buffers on a grid");
        }
        if own.axes.sizes.len() != 1 || !own.requires.is_empty() {
            return refused("`use` of a program that requires something, or on a grid itself");
        }
        let size = ExprNode::Var(self.sizes[axis]);
        let one_chunk = matches!(used.on.as_ref().map(|on| &on.index), Some(ChunkIndex::At(_)));
        match own.kind {
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather => {
                if used.on.is_some() || self.chunks.node != size {
                    return refused("`use` of blocks that are not the chunks of the buffer");
                }
            }
            CollectiveKind::AllReduce | CollectiveKind::Reduce | CollectiveKind::Broadcast => {
                // All chunks together are as many as the ranks at most.
                let is = |node: &ExprNode| own.chunks.as_ref().is_some_and(|e| e.node == *node);
                let is_one = is(&ExprNode::Int(1)) || own.chunks.is_none();
                let is_size = is(&ExprNode::Var(own.axes.sizes[0]));
                let fits =
                    self.chunks.node == ExprNode::Int(1) || one_chunk && self.chunks.node != size;
                let is_known = if own.composed { is_size } else { is_one || is_size };
                if !is_known || !is_one && !fits {
                    return refused("`use` of a program that cuts chunks into too many");
                }
            }
            _ => return refused("`use` of a program for this collective on a grid"),
        }
        let copies = matches!(own.kind, CollectiveKind::AllGather | CollectiveKind::Broadcast);
        if copies && !only_copies(&own.body) {
            return refused("`use` of a program that sums, for a collective that copies");
        }
        let on = match &used.on {
            Some(on) if on.buf != ProgramBuffer::Data => return refused("`use` on another buffer"),
            Some(on) => Some(map_region(on, &mut |e| self.expression(program, e, values))?),
            None => None,
        };
        let root = match &used.root {
            Some(e) => Some(self.expression(program, e, values)?),
            None => None,
        };
        Ok(GridStep { used: own, axis, on, root, span: used.span })
    }
}

/// Returns true if no transfer of a program sums.
fn only_copies(body: &[ProgramStmt]) -> bool {
    body.iter().all(|statement| match statement {
        ProgramStmt::Let(..) => true,
        ProgramStmt::For { body, .. } => only_copies(body),
        ProgramStmt::If { then, otherwise, .. } => only_copies(then) && only_copies(otherwise),
        ProgramStmt::Each(each) => each.rules.iter().all(|rule| rule.op == TransferOp::Copy),
        ProgramStmt::Use(used) => only_copies(&used.program.body),
        ProgramStmt::Split(split) => only_copies(&split.body),
    })
}
