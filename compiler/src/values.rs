//! The values that an expression of a text takes at given sizes, as a table for people.

use roundelay_dsl::span::{SourceId, Span};

use crate::advice::IndexedBuffer;
use crate::eval::eval;
use crate::instance::ProgramInstance;
use crate::num::{index, narrow};
use crate::program::{
    ChunkIndex, EachRules, ExprNode, Program, ProgramBuffer, ProgramStmt, RankExpr, RegionExpr,
    RuleBinder, Slot, SlotExpr, TransferRule,
};
use crate::scope::{environment, index_set, split_range};

/// Evaluations after which a table ends.
const MOST_EVALUATIONS: usize = 1 << 15;

/// Rows after which a table ends.
const MOST_ROWS: usize = 1 << 8;

/// The values of an expression, or the chunks of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueTable {
    /// The expression.
    pub span: Span,
    /// The variables that decide its value, outermost first.
    pub variables: Vec<String>,
    /// Their values and that of the expression, each combination once, in the order of the program.
    pub rows: Vec<(Vec<i64>, String)>,
    /// False if combinations are left out, since there are too many.
    pub is_whole: bool,
}

impl ValueTable {
    /// Returns the values of the smallest expression at a byte of a text, in a program at the size of an instance of
    /// it. What is not executed there has none; for a loop variable or a number it is the expression around it.
    pub fn at(instance: &ProgramInstance, source: SourceId, byte: u32) -> Option<ValueTable> {
        let program = &*instance.program;
        let mut walk = TableWalk {
            instance,
            program,
            place: (source, byte),
            env: environment(program, &instance.shape.axes, instance.options.root),
            bound: Vec::new(),
            found: None,
            evaluations: 0,
        };
        walk.block(&program.body);
        let is_whole = walk.evaluations < MOST_EVALUATIONS;
        walk.found.filter(|table| !table.rows.is_empty()).map(|table| table.narrowed(is_whole))
    }

    /// Leaves out the variables on which no value depends.
    fn narrowed(mut self, is_whole: bool) -> ValueTable {
        self.is_whole = is_whole;
        let mut at = self.variables.len();
        while at > 0 {
            at -= 1;
            let without: Vec<(Vec<i64>, String)> = self
                .rows
                .iter()
                .map(|(values, value)| {
                    let others = values.iter().enumerate().filter(|(i, _)| *i != at);
                    (others.map(|(_, v)| *v).collect(), value.clone())
                })
                .collect();
            let mut sorted = without.clone();
            sorted.sort();
            sorted.dedup();
            if sorted.windows(2).all(|pair| pair[0].0 != pair[1].0) {
                self.variables.remove(at);
                self.rows.clear();
                for row in without {
                    if sorted.binary_search(&row).is_ok_and(|i| {
                        sorted.remove(i);
                        true
                    }) {
                        self.rows.push(row);
                    }
                }
            }
        }
        self
    }
}

/// The state of a walk over a program with all its loops.
struct TableWalk<'p> {
    instance: &'p ProgramInstance,
    program: &'p Program,
    place: (SourceId, u32),
    env: Vec<i64>,
    /// Loop variables and ranks that are set, outermost first.
    bound: Vec<Slot>,
    found: Option<ValueTable>,
    evaluations: usize,
}

impl<'p> TableWalk<'p> {
    fn value(&mut self, e: &SlotExpr) -> Option<i64> {
        self.evaluations += 1;
        eval(e, &mut self.env).ok().filter(|_| self.evaluations < MOST_EVALUATIONS)
    }

    fn holds(&self, span: Span) -> bool {
        let (source, byte) = self.place;
        span.source == source && (span.start..=span.end).contains(&byte)
    }

    /// Adds a row to the table of the expression there, and drops that of a longer one.
    fn note(&mut self, span: Span, value: String) {
        let length = |span: Span| span.end - span.start;
        if self.found.as_ref().is_some_and(|table| length(table.span) < length(span)) {
            return;
        }
        let row = (self.bound.iter().map(|slot| self.env[index(*slot)]).collect(), value);
        match &mut self.found {
            Some(table) if table.span == span => {
                if !table.rows.contains(&row) {
                    table.rows.push(row);
                }
                if table.rows.len() >= MOST_ROWS {
                    self.evaluations = MOST_EVALUATIONS;
                }
            }
            found => {
                // The rank of an `each` with coordinates has no name.
                let name = |slot: &Slot| match self.program.slots[index(*slot)].as_str() {
                    "" => "rank".into(),
                    name => name.into(),
                };
                let variables = self.bound.iter().map(name).collect();
                *found = Some(ValueTable { span, variables, rows: vec![row], is_whole: true });
            }
        }
    }

    fn expression(&mut self, e: &SlotExpr) {
        if !self.holds(e.span) {
            return;
        }
        match &e.node {
            ExprNode::Int(_) => return,
            ExprNode::Var(slot) if self.bound.contains(slot) => return,
            ExprNode::Var(_) => {}
            ExprNode::Unary(_, a) => self.expression(a),
            ExprNode::Binary(_, a, b) => {
                self.expression(a);
                self.expression(b);
            }
            ExprNode::Call(_, arguments) => arguments.iter().for_each(|a| self.expression(a)),
            ExprNode::If(a, b, c) => [a, b, c].into_iter().for_each(|e| self.expression(e)),
            // The body is that of a function, elsewhere.
            ExprNode::Let(_, a, _) => self.expression(a),
        }
        if let Some(value) = self.value(e) {
            self.note(e.span, value.to_string());
        }
    }

    fn rank(&mut self, rank: &RankExpr) {
        match &rank.coordinates[..] {
            [] => self.expression(&rank.linear),
            all => all.iter().for_each(|(e, _)| self.expression(e)),
        }
    }

    fn region(&mut self, region: &RegionExpr) {
        if !self.holds(region.span) {
            return;
        }
        let units = match region.buf {
            ProgramBuffer::Scratch(i) => self.value(&self.program.scratch[index(i)].1),
            _ => {
                let size = self.instance.spec.size(region.buf);
                Some(i64::from(size * self.instance.units / self.instance.spec.chunks.max(1)))
            }
        };
        let Some(units) = units.and_then(narrow) else { return };
        let of = IndexedBuffer::new(self.program, region.buf, units, &[]);
        self.evaluations += 1;
        if let Ok(set) = index_set(&region.index, &mut self.env, &of, region.span) {
            self.note(region.span, format!("{set}"));
        }
        let mut parts: Vec<&SlotExpr> = Vec::new();
        match &region.index {
            ChunkIndex::All => {}
            ChunkIndex::At(e) => parts.push(e),
            ChunkIndex::Range { from, to: count, by, take }
            | ChunkIndex::Cyclic { from, count, by, take } => {
                parts.extend([from, count]);
                parts.extend(by.iter().chain(take));
            }
        }
        parts.into_iter().for_each(|e| self.expression(e));
    }

    /// Runs the body with a variable that takes each value of a range.
    fn each_value(
        &mut self,
        slot: Slot,
        range: std::ops::Range<i64>,
        body: &mut dyn FnMut(&mut Self),
    ) {
        self.bound.push(slot);
        for value in range {
            if self.evaluations >= MOST_EVALUATIONS {
                break;
            }
            self.evaluations += 1;
            self.env[index(slot)] = value;
            body(self);
        }
        self.bound.pop();
    }

    fn bounds(&mut self, from: &SlotExpr, to: &SlotExpr) -> std::ops::Range<i64> {
        self.expression(from);
        self.expression(to);
        match (self.value(from), self.value(to)) {
            (Some(from), Some(to)) => from..to,
            _ => 0..0,
        }
    }

    fn block(&mut self, stmts: &[ProgramStmt]) {
        for stmt in stmts {
            match stmt {
                ProgramStmt::Let(slot, e) => {
                    self.expression(e);
                    self.env[index(*slot)] = self.value(e).unwrap_or(0);
                }
                ProgramStmt::For { slot, from, to, body } => {
                    let range = self.bounds(from, to);
                    self.each_value(*slot, range, &mut |walk| walk.block(body));
                }
                ProgramStmt::If { cond, then, otherwise } => {
                    self.expression(cond);
                    match self.value(cond) {
                        Some(0) => self.block(otherwise),
                        Some(_) => self.block(then),
                        None => {}
                    }
                }
                ProgramStmt::Each(each) => self.each(each),
                ProgramStmt::Use(used) => {
                    used.on.iter().chain(&used.to).for_each(|region| self.region(region));
                    let single = used.root.iter().chain(&used.via);
                    let arguments = used.arguments.iter().map(|(_, e)| e);
                    single.chain(arguments).for_each(|e| self.expression(e));
                }
                ProgramStmt::Split(split) => {
                    if let Some((from, to)) = &split.range {
                        self.bounds(from, to);
                    }
                    let paths = self.instance.options.paths;
                    if let Ok((from, to)) = split_range(split, &mut self.env, paths) {
                        self.each_value(split.slot, from..to, &mut |walk| walk.block(&split.body));
                    }
                }
            }
        }
    }

    fn each(&mut self, each: &EachRules) {
        let ranks = if each.once { 1 } else { self.env[0] };
        self.each_value(each.var, 0..ranks, &mut |walk| {
            each.rules.iter().for_each(|rule| walk.rule(rule, &rule.binders));
        });
    }

    fn rule(&mut self, rule: &TransferRule, binders: &[RuleBinder]) {
        match binders {
            [] => {
                self.rank(&rule.src);
                self.rank(&rule.dst);
                self.region(&rule.from);
                self.region(&rule.to);
            }
            [RuleBinder::Let(slot, e), rest @ ..] => {
                self.expression(e);
                self.env[index(*slot)] = self.value(e).unwrap_or(0);
                self.rule(rule, rest);
            }
            [RuleBinder::Where(e), rest @ ..] => {
                self.expression(e);
                if self.value(e).is_some_and(|holds| holds != 0) {
                    self.rule(rule, rest);
                }
            }
            [RuleBinder::For(slot, from, to), rest @ ..] => {
                let range = self.bounds(from, to);
                self.each_value(*slot, range, &mut |walk| walk.rule(rule, rest));
            }
        }
    }
}
