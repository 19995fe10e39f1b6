//! A program with the programs that it uses in place, as one list of statements over one set of variables.

use roundelay_dsl::ast::BinOp;
use roundelay_dsl::span::Span;

use crate::num::index;
use crate::program::{
    AlgorithmUse, BufferStyle, ChunkIndex, CollectiveKind, EachRules, ExprNode, PartSplit, Program,
    ProgramStmt, RankExpr, RegionExpr, RuleBinder, Slot, SlotExpr, TransferRule,
};

use super::refusal::{FragmentRefusal, FragmentResult};

/// A statement of a flat program.
#[derive(Debug, Clone)]
pub(in crate::all_n) enum FlatStatement {
    /// A variable.
    Let(Slot, SlotExpr),
    /// The number of a part of a `split`, or of a path: a variable within bounds.
    Part(Slot, Option<(SlotExpr, SlotExpr)>, Span),
    /// A condition of a used program, which must hold here.
    Require(SlotExpr),
    /// A loop.
    For { slot: Slot, from: SlotExpr, to: SlotExpr, body: Vec<FlatStatement> },
    /// A choice.
    If { cond: SlotExpr, then: Vec<FlatStatement>, otherwise: Vec<FlatStatement> },
    /// A round.
    Each(EachRules),
}

/// A program on `n ranks`, flat. Slot 0 holds the number of ranks.
#[derive(Debug, Clone)]
pub(in crate::all_n) struct FlatProgram {
    /// The collective.
    pub(in crate::all_n) kind: CollectiveKind,
    /// The buffers that it names.
    pub(in crate::all_n) style: BufferStyle,
    /// Conditions on the ranks.
    pub(in crate::all_n) requires: Vec<SlotExpr>,
    /// Values of variables that hold everywhere: parameters.
    pub(in crate::all_n) constants: Vec<(Slot, i64)>,
    /// Chunks of the whole vector.
    pub(in crate::all_n) chunks: SlotExpr,
    /// Chunks of the scratch buffers.
    pub(in crate::all_n) scratch: Vec<SlotExpr>,
    /// The statements.
    pub(in crate::all_n) statements: Vec<FlatStatement>,
    /// The slot of the root.
    pub(in crate::all_n) root: Slot,
    /// The number of slots.
    pub(in crate::all_n) slots: usize,
}

/// Returns the flat form of a program.
///
/// # Errors
///
/// Refuses programs on grids, on groups of ranks or on regions, and those with a `slots` schedule.
pub(in crate::all_n) fn flatten(program: &Program) -> FragmentResult<FlatProgram> {
    check_header(program)?;
    let mut next = program.slots.len();
    let mut chunks = Vec::new();
    let own = own_chunks(program, 0)?;
    let mut statements = Vec::new();
    let mut flattener = ProgramFlattener { next: &mut next, path: None, chunks: &mut chunks };
    flattener.list(&program.body, 0, program, 0, &mut statements)?;
    let own_rounds = has_round(&program.body);
    let chunks = match chunks.as_slice() {
        [] => own,
        [first, rest @ ..] => {
            let same = |a: &SlotExpr, b: &SlotExpr| a.node == b.node;
            let alike = rest.iter().all(|c| same(c, first)) && (!own_rounds || same(&own, first));
            if !alike || own.node != first.node && own.node != ExprNode::Int(1) {
                let reason = "used programs cut the vector into other numbers of chunks";
                return Err(FragmentRefusal::at(program.header, reason));
            }
            first.clone()
        }
    };
    Ok(FlatProgram {
        kind: program.kind.clone(),
        style: program.style,
        requires: program.requires.clone(),
        constants: program.parameters.iter().map(|p| (p.slot, p.value.number())).collect(),
        chunks,
        scratch: program.scratch.iter().map(|(_, size)| size.clone()).collect(),
        statements,
        root: program.root,
        slots: next,
    })
}

fn check_header(program: &Program) -> FragmentResult<()> {
    if program.axes.sizes.len() != 1 {
        return Err(FragmentRefusal::at(program.header, "a grid of ranks"));
    }
    if program.schedule.slots.is_some() {
        let span = program.schedule.span.unwrap_or(program.header);
        return Err(FragmentRefusal::at(span, "a schedule with `slots`"));
    }
    Ok(())
}

/// Returns the chunks of the whole vector, with slots from `offset` on.
fn own_chunks(program: &Program, offset: usize) -> FragmentResult<SlotExpr> {
    let of = |node| SlotExpr { node, span: program.header };
    let ranks = of(ExprNode::Var(program.axes.sizes[0]));
    let default = if program.kind.blocked() { ranks.clone() } else { of(ExprNode::Int(1)) };
    let chunks = program.chunks.clone().unwrap_or(default);
    if program.kind.blocked() && chunks.node != ranks.node {
        return Err(FragmentRefusal::at(chunks.span, "blocks of several chunks"));
    }
    match chunks.node {
        // The number of ranks is the same in every program.
        ExprNode::Var(slot) if slot == program.axes.sizes[0] => Ok(of(ExprNode::Var(0))),
        _ => Ok(shift_expression(&chunks, offset)),
    }
}

fn has_round(body: &[ProgramStmt]) -> bool {
    body.iter().any(|s| match s {
        ProgramStmt::Each(_) => true,
        ProgramStmt::For { body, .. } => has_round(body),
        ProgramStmt::If { then, otherwise, .. } => has_round(then) || has_round(otherwise),
        ProgramStmt::Split(split) => has_round(&split.body),
        ProgramStmt::Let(..) | ProgramStmt::Use(_) => false,
    })
}

struct ProgramFlattener<'a> {
    next: &'a mut usize,
    /// The variable that is the path of the part, in a split over paths.
    path: Option<Slot>,
    chunks: &'a mut Vec<SlotExpr>,
}

impl ProgramFlattener<'_> {
    fn list(
        &mut self,
        body: &[ProgramStmt],
        offset: usize,
        program: &Program,
        depth: usize,
        out: &mut Vec<FlatStatement>,
    ) -> FragmentResult<()> {
        for (at, statement) in body.iter().enumerate() {
            match statement {
                ProgramStmt::Let(slot, e) => {
                    out.push(FlatStatement::Let(
                        shift_slot(*slot, offset),
                        shift_expression(e, offset),
                    ));
                }
                ProgramStmt::For { slot, from, to, body } => {
                    let mut inner = Vec::new();
                    self.list(body, offset, program, depth + 1, &mut inner)?;
                    out.push(FlatStatement::For {
                        slot: shift_slot(*slot, offset),
                        from: shift_expression(from, offset),
                        to: shift_expression(to, offset),
                        body: inner,
                    });
                }
                ProgramStmt::If { cond, then, otherwise } => {
                    let (mut yes, mut no) = (Vec::new(), Vec::new());
                    self.list(then, offset, program, depth + 1, &mut yes)?;
                    self.list(otherwise, offset, program, depth + 1, &mut no)?;
                    let cond = shift_expression(cond, offset);
                    out.push(FlatStatement::If { cond, then: yes, otherwise: no });
                }
                ProgramStmt::Each(each) => {
                    out.push(FlatStatement::Each(shift_round(each, offset)));
                }
                ProgramStmt::Use(used) => self.inline(used, offset, program, out)?,
                ProgramStmt::Split(split) => {
                    let moves_after =
                        body[at + 1..].iter().any(|s| !matches!(s, ProgramStmt::Let(..)));
                    let moves_before =
                        body[..at].iter().any(|s| !matches!(s, ProgramStmt::Let(..)));
                    if depth > 0 || moves_after || moves_before {
                        let reason = "a `split` beside other statements";
                        return Err(FragmentRefusal::at(split.span, reason));
                    }
                    self.part(split, offset, program, out)?;
                }
            }
        }
        Ok(())
    }

    fn part(
        &mut self,
        split: &PartSplit,
        offset: usize,
        program: &Program,
        out: &mut Vec<FlatStatement>,
    ) -> FragmentResult<()> {
        let range = split.range.as_ref();
        let range = range.map(|(a, b)| (shift_expression(a, offset), shift_expression(b, offset)));
        let slot = shift_slot(split.slot, offset);
        if range.is_none() {
            self.path = Some(slot);
        }
        out.push(FlatStatement::Part(slot, range, split.span));
        self.list(&split.body, offset, program, 1, out)
    }

    fn inline(
        &mut self,
        used: &AlgorithmUse,
        offset: usize,
        program: &Program,
        out: &mut Vec<FlatStatement>,
    ) -> FragmentResult<()> {
        let own = &used.program;
        check_header(own)?;
        if used.over.is_some() || used.on.is_some() || used.to.is_some() {
            return Err(FragmentRefusal::at(used.span, "`use` of a group of ranks or a region"));
        }
        if let Some(via) = &used.via {
            let path = shift_expression(via, offset).node;
            if self.path.map(ExprNode::Var) != Some(path) {
                return Err(FragmentRefusal::at(
                    via.span,
                    "`via` another path than that of the part",
                ));
            }
        }
        if !own.scratch.is_empty() || own.style != program.style {
            return Err(FragmentRefusal::at(used.span, "`use` of a program with other buffers"));
        }
        if own.kind == CollectiveKind::Barrier || own.tolerates.is_some() {
            return Err(FragmentRefusal::at(used.span, "`use` of a program of this kind"));
        }
        let base = *self.next;
        *self.next += own.slots.len();
        let at = |node| SlotExpr { node, span: used.span };
        let size = shift_slot(own.axes.sizes[0], base);
        out.push(FlatStatement::Let(size, at(ExprNode::Var(0))));
        let root = match &used.root {
            Some(e) => shift_expression(e, offset),
            None if program.kind.rooted() => at(ExprNode::Var(shift_slot(program.root, offset))),
            None => at(ExprNode::Int(0)),
        };
        if used.root.is_some() {
            let boxed = |node| Box::new(at(node));
            let from_zero =
                ExprNode::Binary(BinOp::Le, boxed(ExprNode::Int(0)), Box::new(root.clone()));
            let in_range =
                ExprNode::Binary(BinOp::Lt, Box::new(root.clone()), boxed(ExprNode::Var(0)));
            let both = ExprNode::Binary(BinOp::And, boxed(from_zero), boxed(in_range));
            out.push(FlatStatement::Require(at(both)));
        }
        out.push(FlatStatement::Let(shift_slot(own.root, base), root));
        if !used.arguments.is_empty() {
            return Err(FragmentRefusal::at(used.span, "`use` with arguments"));
        }
        for parameter in &own.parameters {
            let value = at(ExprNode::Int(parameter.value.number()));
            out.push(FlatStatement::Let(shift_slot(parameter.slot, base), value));
        }
        for condition in &own.requires {
            out.push(FlatStatement::Require(shift_expression(condition, base)));
        }
        if !own.composed || has_round(&own.body) {
            self.chunks.push(own_chunks(own, base)?);
        }
        self.list(&own.body, base, own, 1, out)
    }
}

fn shift_slot(slot: Slot, by: usize) -> Slot {
    // A program has fewer slots than this, and what it uses is bounded in depth.
    Slot::try_from(index(slot) + by).unwrap_or(Slot::MAX)
}

fn shift_expression(e: &SlotExpr, by: usize) -> SlotExpr {
    let boxed = |e: &SlotExpr| Box::new(shift_expression(e, by));
    let node = match &e.node {
        ExprNode::Int(v) => ExprNode::Int(*v),
        ExprNode::Var(slot) => ExprNode::Var(shift_slot(*slot, by)),
        ExprNode::Unary(op, a) => ExprNode::Unary(*op, boxed(a)),
        ExprNode::Binary(op, a, b) => ExprNode::Binary(*op, boxed(a), boxed(b)),
        ExprNode::Call(f, args) => {
            ExprNode::Call(*f, args.iter().map(|a| shift_expression(a, by)).collect())
        }
        ExprNode::If(a, b, c) => ExprNode::If(boxed(a), boxed(b), boxed(c)),
        ExprNode::Let(slot, a, b) => ExprNode::Let(shift_slot(*slot, by), boxed(a), boxed(b)),
    };
    SlotExpr { node, span: e.span }
}

fn shift_round(each: &EachRules, by: usize) -> EachRules {
    EachRules {
        var: shift_slot(each.var, by),
        rules: each.rules.iter().map(|rule| shift_rule(rule, by)).collect(),
        defs: Vec::new(),
        once: each.once,
        span: each.span,
    }
}

fn shift_rule(rule: &TransferRule, by: usize) -> TransferRule {
    let rank = |rank: &RankExpr| RankExpr {
        linear: shift_expression(&rank.linear, by),
        coordinates: rank
            .coordinates
            .iter()
            .map(|(e, size)| (shift_expression(e, by), shift_slot(*size, by)))
            .collect(),
        span: rank.span,
    };
    let binder = |binder: &RuleBinder| match binder {
        RuleBinder::Let(slot, e) => RuleBinder::Let(shift_slot(*slot, by), shift_expression(e, by)),
        RuleBinder::Where(e) => RuleBinder::Where(shift_expression(e, by)),
        RuleBinder::For(slot, a, b) => {
            RuleBinder::For(shift_slot(*slot, by), shift_expression(a, by), shift_expression(b, by))
        }
    };
    TransferRule {
        binders: rule.binders.iter().map(binder).collect(),
        src: rank(&rule.src),
        dst: rank(&rule.dst),
        from: shift_region(&rule.from, by),
        to: shift_region(&rule.to, by),
        ..rule.clone()
    }
}

fn shift_region(region: &RegionExpr, by: usize) -> RegionExpr {
    let some = |e: &Option<SlotExpr>| e.as_ref().map(|e| shift_expression(e, by));
    let of = |e: &SlotExpr| shift_expression(e, by);
    let index = match &region.index {
        ChunkIndex::All => ChunkIndex::All,
        ChunkIndex::At(e) => ChunkIndex::At(of(e)),
        ChunkIndex::Range { from, to, by, take } => {
            ChunkIndex::Range { from: of(from), to: of(to), by: some(by), take: some(take) }
        }
        ChunkIndex::Cyclic { from, count, by, take } => {
            ChunkIndex::Cyclic { from: of(from), count: of(count), by: some(by), take: some(take) }
        }
    };
    RegionExpr { buf: region.buf, index, span: region.span }
}
