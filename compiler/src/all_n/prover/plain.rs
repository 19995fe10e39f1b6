//! A flat program without `let`: every expression is one over counters, parameters, the root and the number of ranks.

use std::rc::Rc;

use roundelay_dsl::ast::{BinOp, TransferOp};
use roundelay_dsl::span::Span;

use crate::all_n::fragment::flatten::{FlatProgram, FlatStatement, flatten};
use crate::all_n::fragment::refusal::{FragmentRefusal, FragmentResult};
use crate::program::{
    BufferStyle, BuiltinFunction, CollectiveKind, EachRules, ExprNode, Program, ProgramBuffer,
    RegionExpr, RuleBinder, Slot, SlotExpr, TransferRule,
};

use super::words::{
    ExpressionWriter, Substitution, is_shallow, map_region, replace_nodes, substitute,
};

/// Nodes of all expressions of a program, with what variables stand for in their places.
const NODES: u32 = 50_000;

/// Expressions nest so deep at most.
const DEPTH: u32 = 100;

/// Rules of a program, at most: what one obligation says may double with each.
const MOST_RULES: usize = 24;

/// A statement.
#[derive(Debug, Clone)]
pub(super) enum PlainStatement {
    /// An expression whose value is not used, or used elsewhere: it must have one.
    Check(SlotExpr),
    /// The number of a part, within bounds if it has some.
    Part(Slot, Option<(SlotExpr, SlotExpr)>, Span),
    /// A condition that must hold.
    Require(SlotExpr),
    /// A loop.
    Loop(PlainLoop),
    /// A choice.
    Choice(SlotExpr, Vec<PlainStatement>, Vec<PlainStatement>),
    /// A round.
    Round(Rc<PlainRound>),
}

/// A loop over rounds.
#[derive(Debug, Clone)]
pub(super) struct PlainLoop {
    /// The number of the loop.
    pub(super) site: usize,
    pub(super) slot: Slot,
    pub(super) from: SlotExpr,
    pub(super) to: SlotExpr,
    pub(super) body: Vec<PlainStatement>,
}

/// A round.
#[derive(Debug, Clone)]
pub(super) struct PlainRound {
    pub(super) rules: Vec<PlainRule>,
    pub(super) span: Span,
}

/// A transfer, once for all values of its variables that satisfy its conditions.
#[derive(Debug, Clone)]
pub(super) struct PlainRule {
    /// The number of the rule.
    pub(super) site: usize,
    /// Variables, each from a number on and below another, which depend on those before.
    pub(super) variables: Vec<(Slot, SlotExpr, SlotExpr)>,
    pub(super) conditions: Vec<SlotExpr>,
    /// Expressions that must have a value.
    pub(super) checks: Vec<SlotExpr>,
    pub(super) src: SlotExpr,
    pub(super) dst: SlotExpr,
    pub(super) op: TransferOp,
    pub(super) from: RegionExpr,
    pub(super) to: RegionExpr,
    pub(super) span: Span,
}

impl PlainRule {
    /// Returns the variable whose lowest bit the conditions know, and that bit.
    pub(super) fn known_bit(&self) -> Option<(Slot, &SlotExpr)> {
        self.conditions.iter().find_map(|condition| {
            let ExprNode::Binary(BinOp::Eq, a, bit) = &condition.node else { return None };
            lowest_bit_of(a).map(|slot| (slot, &**bit))
        })
    }

    /// Returns an expression behind the conditions, with what they know in place of a lowest bit.
    fn with_known_bits(&self, e: &SlotExpr) -> SlotExpr {
        match self.known_bit() {
            Some((slot, bit)) => replace_nodes(e, &|own| {
                (lowest_bit_of(own) == Some(slot)).then(|| bit.node.clone())
            }),
            None => e.clone(),
        }
    }
}

/// Returns the variable of which an expression is the lowest bit.
fn lowest_bit_of(e: &SlotExpr) -> Option<Slot> {
    match &e.node {
        ExprNode::Call(BuiltinFunction::Lowbit, args) => match args.first()?.node {
            ExprNode::Var(slot) => Some(slot),
            _ => None,
        },
        _ => None,
    }
}

/// A buffer: its name, its chunks, and whether contributions begin in it.
#[derive(Debug, Clone)]
pub(super) struct PlainBuffer {
    pub(super) name: ProgramBuffer,
    pub(super) size: SlotExpr,
}

/// A program.
#[derive(Debug, Clone)]
pub(super) struct PlainProgram {
    pub(super) kind: CollectiveKind,
    pub(super) requires: Vec<SlotExpr>,
    pub(super) constants: Vec<(Slot, i64)>,
    /// Numbers of the schedule, each at least 1, with the greatest that is allowed.
    pub(super) schedule: Vec<(SlotExpr, i64)>,
    /// The first is the one in which contributions begin.
    pub(super) buffers: Vec<PlainBuffer>,
    /// The buffer that holds the result.
    pub(super) result: usize,
    pub(super) statements: Vec<PlainStatement>,
    pub(super) root: Slot,
    /// The number of slots, those of [`GenericPlace`] included.
    pub(super) slots: usize,
    pub(super) loops: usize,
    pub(super) rules: usize,
    pub(super) place: GenericPlace,
    pub(super) writer: ExpressionWriter,
    /// True if every two chunks have the same length.
    pub(super) equal_chunks: bool,
    pub(super) header: Span,
}

/// The variables of what invariants and witnesses are about: a place, and a contribution that may be in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct GenericPlace {
    /// The rank of the place.
    pub(super) rank: Slot,
    /// The chunk of the place.
    pub(super) chunk: Slot,
    /// The rank where the contribution began.
    pub(super) of: Slot,
    /// The chunk as which the contribution began.
    pub(super) began: Slot,
    /// The rank of the one known place that contains the contribution, where there is one.
    pub(super) token: Slot,
}

impl PlainProgram {
    /// Returns true if the parts are paths between hosts.
    pub(super) fn has_paths(&self) -> bool {
        self.statements.iter().any(|s| matches!(s, PlainStatement::Part(_, None, _)))
    }

    /// Returns the number of the part, in a program that is cut into some.
    pub(super) fn part(&self) -> Option<Slot> {
        self.statements.iter().find_map(|statement| match statement {
            PlainStatement::Part(slot, ..) => Some(*slot),
            _ => None,
        })
    }

    /// Returns the index of a buffer.
    pub(super) fn buffer(&self, name: ProgramBuffer) -> usize {
        self.buffers.iter().position(|b| b.name == name).unwrap_or(usize::MAX)
    }
}

/// Returns the plain form of a program.
///
/// # Errors
///
/// Refuses what is outside of the fragment.
pub(super) fn to_plain(program: &Program) -> FragmentResult<PlainProgram> {
    if matches!(program.kind, CollectiveKind::Custom(_)) {
        let reason = format!("a program for `{}`", program.kind.name());
        return Err(FragmentRefusal::at(program.header, reason));
    }
    let flat = flatten(program)?;
    let slots = flat.slots;
    let slot = |more: usize| {
        Slot::try_from(slots + more)
            .map_err(|_| FragmentRefusal::at(program.header, "too many variables"))
    };
    let place = GenericPlace {
        rank: slot(0)?,
        chunk: slot(1)?,
        of: slot(2)?,
        began: slot(3)?,
        token: slot(4)?,
    };
    let writer = ExpressionWriter { span: program.header };
    let mut plainer =
        PlainBuilder { budget: NODES, loops: 0, rules: 0, writer, header: program.header };
    let mut values = Substitution::new();
    let (mut statements, mut sizes) = (Vec::new(), Vec::new());
    plainer.list(&flat.statements, &mut values, &mut statements)?;
    if plainer.rules > MOST_RULES {
        return Err(FragmentRefusal::at(program.header, "too many transfers"));
    }
    let chunks = plainer.expression(&flat.chunks, &values)?;
    let mut requires = Vec::new();
    for condition in &flat.requires {
        requires.push(plainer.expression(condition, &values)?);
    }
    let has_parts = statements.iter().any(|s| matches!(s, PlainStatement::Part(..)));
    if has_parts && !flat.scratch.is_empty() {
        return Err(FragmentRefusal::at(program.header, "scratch beside a `split`"));
    }
    for size in &flat.scratch {
        sizes.push(plainer.expression(size, &values)?);
    }
    let mut schedule = Vec::new();
    for (entry, most) in [(&program.schedule.channels, 64), (&program.schedule.pipeline, 4096)] {
        if let Some(e) = entry {
            schedule.push((plainer.expression(e, &values)?, most));
        }
    }
    let is_one = matches!(chunks.node, ExprNode::Int(1));
    let equal_chunks = flat.kind.blocked() || is_one;
    if !equal_chunks && !sizes.is_empty() {
        return Err(FragmentRefusal::at(program.header, "scratch beside chunks of many lengths"));
    }
    let (buffers, result) = buffers(&flat, &chunks, sizes, writer);
    Ok(PlainProgram {
        kind: flat.kind,
        requires,
        constants: flat.constants,
        schedule,
        buffers,
        result,
        statements,
        root: flat.root,
        slots: slots + 5,
        loops: plainer.loops,
        rules: plainer.rules,
        place,
        writer,
        equal_chunks,
        header: program.header,
    })
}

fn buffers(
    flat: &FlatProgram,
    chunks: &SlotExpr,
    scratch: Vec<SlotExpr>,
    writer: ExpressionWriter,
) -> (Vec<PlainBuffer>, usize) {
    let of = |name, size: &SlotExpr| PlainBuffer { name, size: size.clone() };
    let one = writer.int(1);
    let (mut buffers, result) = match flat.style {
        BufferStyle::Data => (vec![of(ProgramBuffer::Data, chunks)], 0),
        BufferStyle::InputOutput => {
            let is_block = |kinds: &[CollectiveKind]| kinds.contains(&flat.kind);
            let input = is_block(&[CollectiveKind::AllGather, CollectiveKind::Gather]);
            let output = is_block(&[CollectiveKind::ReduceScatter, CollectiveKind::Scatter]);
            let size = |block: bool| if block { &one } else { chunks };
            (
                vec![
                    of(ProgramBuffer::Input, size(input)),
                    of(ProgramBuffer::Output, size(output)),
                ],
                1,
            )
        }
    };
    for (at, size) in scratch.into_iter().enumerate() {
        let name = ProgramBuffer::Scratch(u16::try_from(at).unwrap_or(u16::MAX));
        buffers.push(PlainBuffer { name, size });
    }
    (buffers, result)
}

struct PlainBuilder {
    budget: u32,
    loops: usize,
    rules: usize,
    writer: ExpressionWriter,
    header: Span,
}

impl PlainBuilder {
    fn expression(&mut self, e: &SlotExpr, values: &Substitution) -> FragmentResult<SlotExpr> {
        let found = substitute(e, values, &mut self.budget);
        found
            .filter(|e| is_shallow(e, DEPTH))
            .ok_or_else(|| FragmentRefusal::at(e.span, "expressions are too large"))
    }

    fn list(
        &mut self,
        statements: &[FlatStatement],
        values: &mut Substitution,
        out: &mut Vec<PlainStatement>,
    ) -> FragmentResult<()> {
        for statement in statements {
            match statement {
                FlatStatement::Let(slot, e) => {
                    let value = self.expression(e, values)?;
                    out.push(PlainStatement::Check(value.clone()));
                    values.insert(*slot, value);
                }
                FlatStatement::Part(slot, range, span) => {
                    let range = match range {
                        Some((a, b)) => {
                            Some((self.expression(a, values)?, self.expression(b, values)?))
                        }
                        None => None,
                    };
                    out.push(PlainStatement::Part(*slot, range, *span));
                }
                FlatStatement::Require(e) => {
                    out.push(PlainStatement::Require(self.expression(e, values)?));
                }
                FlatStatement::For { slot, from, to, body } => {
                    let site = self.loops;
                    self.loops += 1;
                    let (from, to) = (self.expression(from, values)?, self.expression(to, values)?);
                    let mut inner = Vec::new();
                    self.list(body, &mut values.clone(), &mut inner)?;
                    out.push(PlainStatement::Loop(PlainLoop {
                        site,
                        slot: *slot,
                        from,
                        to,
                        body: inner,
                    }));
                }
                FlatStatement::If { cond, then, otherwise } => {
                    let cond = self.expression(cond, values)?;
                    let (mut yes, mut no) = (Vec::new(), Vec::new());
                    self.list(then, &mut values.clone(), &mut yes)?;
                    self.list(otherwise, &mut values.clone(), &mut no)?;
                    out.push(PlainStatement::Choice(cond, yes, no));
                }
                FlatStatement::Each(each) => {
                    out.push(PlainStatement::Round(Rc::new(self.round(each, values)?)));
                }
            }
        }
        Ok(())
    }

    fn round(&mut self, each: &EachRules, values: &Substitution) -> FragmentResult<PlainRound> {
        let mut rules = Vec::new();
        for rule in &each.rules {
            rules.push(self.rule(each, rule, values.clone())?);
        }
        Ok(PlainRound { rules, span: each.span })
    }

    fn rule(
        &mut self,
        each: &EachRules,
        rule: &TransferRule,
        mut values: Substitution,
    ) -> FragmentResult<PlainRule> {
        let writer = self.writer;
        let mut plain = PlainRule {
            site: self.rules,
            variables: Vec::new(),
            conditions: Vec::new(),
            checks: Vec::new(),
            src: writer.int(0),
            dst: writer.int(0),
            op: rule.op,
            from: rule.from.clone(),
            to: rule.to.clone(),
            span: rule.span,
        };
        self.rules += 1;
        if !each.once {
            plain.variables.push((each.var, writer.int(0), writer.var(0)));
        }
        for binder in &rule.binders {
            match binder {
                RuleBinder::Let(slot, e) => {
                    let value = self.expression(e, &values)?;
                    let value = plain.with_known_bits(&value);
                    plain.checks.push(value.clone());
                    values.insert(*slot, value);
                }
                RuleBinder::Where(e) => plain.conditions.push(self.expression(e, &values)?),
                RuleBinder::For(slot, from, to) => {
                    let bounds = (self.expression(from, &values)?, self.expression(to, &values)?);
                    plain.variables.push((*slot, bounds.0, bounds.1));
                }
            }
        }
        let only_one = |list: &[(SlotExpr, Slot)]| list.len() <= 1;
        if !only_one(&rule.src.coordinates) || !only_one(&rule.dst.coordinates) {
            return Err(FragmentRefusal::at(rule.span, "coordinates"));
        }
        plain.src = plain.with_known_bits(&self.expression(&rule.src.linear, &values)?);
        plain.dst = plain.with_known_bits(&self.expression(&rule.dst.linear, &values)?);
        plain.from = self.region(&rule.from, &values)?;
        plain.to = self.region(&rule.to, &values)?;
        Ok(plain)
    }

    fn region(&mut self, region: &RegionExpr, values: &Substitution) -> FragmentResult<RegionExpr> {
        let budget = &mut self.budget;
        let large = || FragmentRefusal::at(self.header, "expressions are too large");
        let mut of = |e: &SlotExpr| {
            substitute(e, values, budget).filter(|e| is_shallow(e, DEPTH)).ok_or_else(large)
        };
        map_region(region, &mut of)
    }
}
