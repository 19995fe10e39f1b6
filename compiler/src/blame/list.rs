//! Lists the small changes of a program.

use std::collections::BTreeSet;

use roundelay_dsl::ast::{BinOp, TransferOp};
use roundelay_dsl::span::Span;

use super::edits::{
    EditKind, ProgramEdit, confused, grouped, mistaken, place, rebound, rebound_index, truth,
};
use super::places::{ExprRole, ProgramPlace, VariablePick, VisibleNames, inner, visit};
use crate::num::wide;
use crate::program::{
    BUILTINS, BufferStyle, BuiltinFunction, ChunkIndex, ExprNode, Program, ProgramBuffer,
    ProgramStmt, RankExpr, RegionExpr, RuleBinder, Slot, SlotExpr, TransferRule,
};

/// Costs: how seldom a person errs so, or how often a change helps that undoes no error.
mod cost {
    pub(super) const STATEMENT: u32 = 10;
    pub(super) const OPERATION: u32 = 10;
    /// A negation that is too many.
    pub(super) const NEGATION: u32 = 18;
    pub(super) const OPERATOR: u32 = 20;
    pub(super) const VARIABLE: u32 = 22;
    /// One more or less, of what is written with a number.
    pub(super) const LITERAL: u32 = 22;
    pub(super) const ONE: u32 = 24;
    /// The number of ranks as a modulus.
    pub(super) const MODULUS: u32 = 24;
    pub(super) const OTHER: u32 = 25;
    pub(super) const ORDER: u32 = 26;
    pub(super) const SELDOM: u32 = 27;
    pub(super) const CONDITION: u32 = 28;
    pub(super) const NUMBER: u32 = 30;
    pub(super) const TERM: u32 = 34;
    pub(super) const ADDED: u32 = 40;
    /// Other sizes change all that is moved, wherever the fault is.
    pub(super) const SIZE: u32 = 40;
    pub(super) const WHOLE: u32 = 60;
    /// More, in another file.
    pub(super) const ELSEWHERE: u32 = 20;
}

/// The most changes of a program. Those of a longer text are of its beginning.
const MOST_EDITS: usize = 20_000;

/// The most parts of one kind that may be written for each other.
const MOST_PARTS: usize = 32;

/// Returns all changes, the likeliest first, and in the order of the text within each kind.
pub(super) fn all(program: &Program) -> Vec<ProgramEdit> {
    let mut copy = program.clone();
    let mut pool = PartPool::default();
    visit(&mut copy, &mut |place, _| pool.add(place));
    let mut found = EditList { program, pool, edits: Vec::new(), seen: BTreeSet::new() };
    visit(&mut copy, &mut |place, seen| found.place(place, seen));
    found.edits.sort_by_key(|edit| edit.cost);
    found.edits
}

/// Returns the size of a program in places of its text, of which each has about eight changes.
pub(super) fn size(program: &Program, edits: &[ProgramEdit]) -> u64 {
    if edits.len() < MOST_EDITS {
        return wide(edits.len()) / 8;
    }
    let mut places = 0;
    visit(&mut program.clone(), &mut |_, _| places += 1);
    places
}

/// Returns the change that leaves a statement out.
pub(super) fn without(span: Span) -> ProgramEdit {
    let (text, cost) = ("without this".into(), cost::STATEMENT);
    ProgramEdit { span, named: None, other: None, text, cost, change: EditKind::Drop }
}

/// The parts of a program that may be written for each other.
#[derive(Default)]
struct PartPool {
    ranks: Vec<RankExpr>,
    indices: Vec<ChunkIndex>,
    conditions: Vec<SlotExpr>,
    buffers: BTreeSet<ProgramBuffer>,
}

impl PartPool {
    fn add(&mut self, place: ProgramPlace<'_>) {
        match place {
            ProgramPlace::Rank(_) if self.ranks.len() == MOST_PARTS => {}
            ProgramPlace::Expr(_, ExprRole::Condition) if self.conditions.len() == MOST_PARTS => {}
            ProgramPlace::Rank(rank)
                if self.ranks.iter().all(|r| r.linear.node != rank.linear.node) =>
            {
                self.ranks.push(rank.clone());
            }
            ProgramPlace::Region(region) => {
                if self.buffers.len() < MOST_PARTS {
                    self.buffers.insert(region.buf);
                }
                if self.indices.len() < MOST_PARTS
                    && region.index != ChunkIndex::All
                    && !self.indices.contains(&region.index)
                {
                    self.indices.push(region.index.clone());
                }
            }
            ProgramPlace::Expr(e, ExprRole::Condition)
                if self.conditions.iter().all(|c| c.node != e.node) =>
            {
                self.conditions.push(e.clone());
            }
            _ => {}
        }
    }
}

struct EditList<'p> {
    program: &'p Program,
    pool: PartPool,
    edits: Vec<ProgramEdit>,
    seen: BTreeSet<(Span, String)>,
}

impl EditList<'_> {
    fn push(&mut self, span: Span, cost: u32, change: EditKind, text: impl Into<String>) {
        self.push_at(span, None, cost, change, text);
    }

    fn push_at(
        &mut self,
        span: Span,
        named: Option<Span>,
        cost: u32,
        change: EditKind,
        text: impl Into<String>,
    ) {
        let text = text.into();
        // What other files declare is used elsewhere, too, and seldom at fault.
        let own = span.source == self.program.header.source;
        let cost = if own { cost } else { cost + cost::ELSEWHERE };
        if !self.is_full() && self.seen.insert((span, text.clone())) {
            self.edits.push(ProgramEdit { span, named, other: None, text, cost, change });
        }
    }

    fn is_full(&self) -> bool {
        self.edits.len() == MOST_EDITS
    }

    fn place(&mut self, at: ProgramPlace<'_>, seen: &mut VisibleNames) {
        if self.is_full() {
            return;
        }
        match at {
            ProgramPlace::Block(block) => self.block(block),
            ProgramPlace::Rules(rules) => {
                for rule in rules.iter() {
                    self.push(rule.span, cost::STATEMENT, EditKind::Drop, "without this");
                }
            }
            ProgramPlace::Rule(rule, each) => self.rule(rule, each, seen),
            ProgramPlace::Rank(rank) => {
                for mut other in self.pool.ranks.clone() {
                    if rebound(&mut other, seen) && other.linear.node != rank.linear.node {
                        let text = match self.expr_text(&other.linear, seen) {
                            Some(text) => format!("with rank `{text}`"),
                            None => "with the rank of another transfer".into(),
                        };
                        self.push(rank.span, cost::OTHER, EditKind::Rank(Box::new(other)), text);
                    }
                }
            }
            ProgramPlace::Region(region) => self.region(region, seen),
            ProgramPlace::Expr(e, role) => self.whole(e, role, seen),
        }
    }

    fn block(&mut self, block: &[ProgramStmt]) {
        let places: Vec<Span> = block.iter().filter_map(place).collect();
        for (i, &span) in places.iter().enumerate() {
            self.push(span, cost::STATEMENT, EditKind::Drop, "without this");
            if let Some(&next) = places.get(i + 1) {
                let text = "if this came after the next statement";
                self.push(span, cost::STATEMENT + 1, EditKind::Swap, text);
                if let Some(edit) =
                    self.edits.last_mut().filter(|e| e.change == EditKind::Swap && e.span == span)
                {
                    edit.other = Some(next);
                }
            }
        }
    }

    fn rule(&mut self, rule: &TransferRule, each: Span, seen: &VisibleNames) {
        let span = rule.span;
        let other = if rule.op == TransferOp::Copy { "reduce" } else { "copy" };
        self.push(span, cost::OPERATION, EditKind::Operation, format!("with `{other}`"));
        let text = "with source and target exchanged";
        self.push(span, cost::OPERATION, EditKind::Turned, text);
        if rule.from != rule.to {
            let text = "with the regions exchanged";
            self.push(span, cost::OPERATION, EditKind::TurnedRegions, text);
        }
        let at = |e: SlotExpr, span| SlotExpr { span, ..e };
        let of = |op, a: SlotExpr, b: SlotExpr| SlotExpr {
            node: ExprNode::Binary(op, Box::new(a), Box::new(b)),
            span,
        };
        let (src, dst) = (at(rule.src.linear.clone(), span), at(rule.dst.linear.clone(), span));
        let mut conditions = self.pool.conditions.clone();
        conditions.push(of(BinOp::Ne, src.clone(), dst.clone()));
        if let Some(ranks) = self.program.axes.sizes.first().filter(|_| !self.program.axes.grid) {
            for rank in [src, dst] {
                let zero = SlotExpr { node: ExprNode::Int(0), span };
                let all = SlotExpr { node: ExprNode::Var(*ranks), span };
                let from = of(BinOp::Ge, rank.clone(), zero);
                conditions.push(of(BinOp::And, from, of(BinOp::Lt, rank, all)));
            }
        }
        let slots: Vec<Slot> = seen.picks().into_iter().map(|(_, slot)| slot).collect();
        for (i, &a) in slots.iter().enumerate() {
            for &b in &slots[i + 1..] {
                let var = |slot| SlotExpr { node: ExprNode::Var(slot), span };
                let ops = [BinOp::Ne, BinOp::Lt, BinOp::Gt];
                conditions.extend(ops.map(|op| of(op, var(a), var(b))));
            }
        }
        for mut e in conditions {
            if !seen.rebind(&mut e) {
                continue;
            }
            let text = self.expr_text(&e, seen);
            let text = text.map_or("under a condition".into(), |t| format!("with `where {t}`"));
            let named = header(rule, each, &e);
            self.push_at(span, Some(named), cost::ADDED, EditKind::Where(e), text);
        }
    }

    fn region(&mut self, region: &RegionExpr, seen: &VisibleNames) {
        let span = region.span;
        if region.index != ChunkIndex::All {
            let change = EditKind::Index(Box::new(ChunkIndex::All));
            self.push(span, cost::WHOLE, change, "with the whole buffer");
        }
        match &region.index {
            ChunkIndex::Range { .. } => {
                self.push(span, cost::OPERATOR, EditKind::Range, "with `..+` instead of `..`");
            }
            ChunkIndex::Cyclic { .. } => {
                self.push(span, cost::OPERATOR, EditKind::Range, "with `..` instead of `..+`");
            }
            _ => {}
        }
        for mut other in self.pool.indices.clone() {
            if rebound_index(&mut other, seen) && other != region.index {
                let text = match self.index_text(&other, seen) {
                    Some(text) => format!("with `[{text}]`"),
                    None => "with the chunks of another region".into(),
                };
                self.push(span, cost::OTHER, EditKind::Index(Box::new(other)), text);
            }
        }
        if self.program.style == BufferStyle::InputOutput || !self.program.scratch.is_empty() {
            for &buf in &self.pool.buffers.clone() {
                if buf != region.buf {
                    let text = format!("with `{}`", self.buffer(buf));
                    self.push(span, cost::OTHER, EditKind::Buffer(buf), text);
                }
            }
        }
    }

    fn buffer(&self, buf: ProgramBuffer) -> String {
        match buf {
            ProgramBuffer::Data => "data".into(),
            ProgramBuffer::Input => "input".into(),
            ProgramBuffer::Output => "output".into(),
            ProgramBuffer::Scratch(i) => {
                self.program.scratch.get(usize::from(i)).map_or(String::new(), |s| s.0.clone())
            }
        }
    }

    fn whole(&mut self, e: &mut SlotExpr, role: ExprRole, seen: &mut VisibleNames) {
        if role == ExprRole::Condition {
            self.push(e.span, cost::CONDITION, EditKind::Always, "without this condition");
        }
        if matches!(role, ExprRole::Rank | ExprRole::Index | ExprRole::Value) && !truth(e) {
            self.terms(e, role, seen);
        }
        inner(e, seen, &mut |e, seen| {
            self.expr(e, role, seen);
            true
        });
    }

    /// Adds the terms that a rank, a chunk or a variable may lack: at its end, and before a modulus.
    fn terms(&mut self, e: &SlotExpr, role: ExprRole, seen: &VisibleNames) {
        let mut ends = vec![e];
        match &e.node {
            ExprNode::Binary(BinOp::Mod, a, _) => ends.push(a),
            // The distance to a multiple: `a - a % d`.
            ExprNode::Binary(BinOp::Sub, _, b) => {
                for (pick, slot) in seen.picks() {
                    let text = format!("with `% {}`", self.slot_text(slot, seen));
                    self.push(b.span, cost::ADDED, EditKind::Term(BinOp::Mod, pick), text);
                }
            }
            _ => {}
        }
        for e in ends {
            for (pick, slot) in seen.picks() {
                for op in [BinOp::Add, BinOp::Sub, BinOp::Mod, BinOp::BitXor] {
                    let cost = match op {
                        BinOp::Mod if slot == 0 => cost::MODULUS,
                        BinOp::BitXor if role != ExprRole::Rank => continue,
                        _ => cost::ADDED,
                    };
                    let text = format!("with `{} {}`", op.symbol(), self.slot_text(slot, seen));
                    self.push(e.span, cost, EditKind::Term(op, pick.clone()), text);
                }
            }
            let half = EditKind::Term(BinOp::Div, VariablePick::Number(2));
            self.push(e.span, cost::ADDED, half, "with `/ 2`");
        }
    }

    /// Adds the factors that a number or a variable may lack.
    fn factors(&mut self, e: &SlotExpr, more: u32, seen: &VisibleNames) {
        for (pick, slot) in seen.picks() {
            let shifted = if e.node == ExprNode::Int(1) { Some(BinOp::Shl) } else { None };
            for op in shifted.into_iter().chain([BinOp::Mul]) {
                let text = format!("with `{} {}`", op.symbol(), self.slot_text(slot, seen));
                self.push(e.span, cost::ADDED + more / 2, EditKind::Term(op, pick.clone()), text);
            }
        }
    }

    fn expr(&mut self, e: &SlotExpr, role: ExprRole, seen: &VisibleNames) {
        let span = e.span;
        let more = if role == ExprRole::Size { cost::SIZE } else { 0 };
        if truth(e) {
            let negated = matches!(e.node, ExprNode::Unary(..));
            let cost = if negated { cost::NEGATION } else { cost::CONDITION };
            self.push(span, cost, EditKind::Not, "turned round");
        } else {
            let number = |e: &SlotExpr| matches!(e.node, ExprNode::Int(_));
            let literal = number(e)
                || matches!(&e.node, ExprNode::Binary(BinOp::Add | BinOp::Sub, a, b) if number(a) || number(b));
            let one = if literal { cost::LITERAL } else { cost::ONE };
            self.push(span, one + more, EditKind::Add(-1), "one less here");
            self.push(span, one + more, EditKind::Add(1), "one more here");
            if matches!(e.node, ExprNode::Int(_) | ExprNode::Var(_)) && role != ExprRole::Condition
            {
                self.factors(e, more, seen);
            }
        }
        match &e.node {
            ExprNode::Var(slot) => {
                let own = self.slot_text(*slot, seen);
                self.variables(span, more, Some(*slot), &own, seen);
                for n in [0, 1, 2] {
                    let text = format!("with `{n}` instead of `{own}`");
                    self.push(
                        span,
                        cost::NUMBER + more,
                        EditKind::Variable(VariablePick::Number(n)),
                        text,
                    );
                }
            }
            ExprNode::Int(n) => {
                self.variables(span, more + 4, None, &n.to_string(), seen);
                for other in [n.checked_neg(), n.checked_mul(2)].into_iter().flatten() {
                    if other != *n {
                        let text = format!("with `{other}` instead of `{n}`");
                        let change = EditKind::Variable(VariablePick::Number(other));
                        self.push(span, cost::NUMBER + more, change, text);
                    }
                }
            }
            ExprNode::Binary(op, a, b) => self.binary(span, more, *op, [a, b], seen),
            ExprNode::Call(f, args) => {
                if let Some(other) = mistaken(*f) {
                    let text = format!("with `{}` instead of `{}`", named(other), named(*f));
                    self.push(span, cost::OPERATOR, EditKind::Function(other), text);
                }
                if args.len() == 2
                    && !matches!(
                        f,
                        BuiltinFunction::Min | BuiltinFunction::Max | BuiltinFunction::Gcd
                    )
                {
                    self.push(span, cost::ORDER, EditKind::Exchange, "with both sides exchanged");
                }
            }
            ExprNode::Unary(..) | ExprNode::If(..) | ExprNode::Let(..) => {}
        }
    }

    /// Adds the variables that may have been meant instead of one, or of a number.
    fn variables(
        &mut self,
        span: Span,
        more: u32,
        own: Option<Slot>,
        text: &str,
        seen: &VisibleNames,
    ) {
        for (pick, slot) in seen.picks() {
            if Some(slot) != own {
                let other = self.slot_text(slot, seen);
                let text = match other.is_empty() {
                    false => format!("with `{other}` instead of `{text}`"),
                    true => {
                        format!("with another variable of the function{}", self.nth(&pick, seen))
                    }
                };
                self.push(span, cost::VARIABLE + more, EditKind::Variable(pick), text);
            }
        }
    }

    /// Numbers the variables of a function, which have no names here.
    fn nth(&self, pick: &VariablePick, seen: &VisibleNames) -> String {
        let all = seen.picks().len();
        match pick {
            VariablePick::Local(i) => format!(" (number {})", all.saturating_sub(*i)),
            _ => String::new(),
        }
    }

    fn binary(
        &mut self,
        span: Span,
        more: u32,
        op: BinOp,
        sides: [&SlotExpr; 2],
        seen: &VisibleNames,
    ) {
        for (i, &other) in confused(op).iter().enumerate() {
            let text = format!("with `{}` instead of `{}`", other.symbol(), op.symbol());
            let seldom = i > 0 && !op.compares() || matches!(op, BinOp::BitAnd | BinOp::BitOr);
            let cost = if seldom { cost::SELDOM } else { cost::OPERATOR };
            self.push(span, cost + more, EditKind::Operator(other), text);
        }
        let [a, b] = sides;
        if !matches!(
            op,
            BinOp::Add
                | BinOp::Mul
                | BinOp::BitAnd
                | BinOp::BitOr
                | BinOp::BitXor
                | BinOp::And
                | BinOp::Or
        ) && !op.compares()
        {
            self.push(span, cost::ORDER + more, EditKind::Exchange, "with both sides exchanged");
        }
        if grouped(op, a, b).is_some() {
            // Either the operator at hand takes its sides first, or the one inside no longer does.
            let text = match &a.node {
                ExprNode::Binary(inner, ..) if inner.tightness() < op.tightness() => {
                    format!("without parentheses round `{}`", inner.symbol())
                }
                _ => format!("with the `{}` in parentheses", op.symbol()),
            };
            self.push(span, cost::ORDER + more, EditKind::Group, text);
        }
        if !op.compares() {
            for (right, side) in [(true, b), (false, a)] {
                let left = match self.expr_text(side, seen) {
                    Some(text) if right => format!("without `{} {text}`", op.symbol()),
                    Some(text) => format!("without `{text} {}`", op.symbol()),
                    None if right => format!("without what follows `{}`", op.symbol()),
                    None => format!("without what comes before `{}`", op.symbol()),
                };
                self.push(span, cost::TERM + more, EditKind::Side(right), left);
            }
        }
    }

    fn slot_text(&self, slot: Slot, seen: &VisibleNames) -> String {
        seen.name(slot).to_string()
    }

    /// Returns a short expression as text; `None` if it is long, or has variables without names.
    fn expr_text(&self, e: &SlotExpr, seen: &VisibleNames) -> Option<String> {
        let text = text(e, seen, 0)?;
        (text.len() <= MOST_TEXT).then_some(text)
    }

    fn index_text(&self, index: &ChunkIndex, seen: &VisibleNames) -> Option<String> {
        let of = |e: &SlotExpr| self.expr_text(e, seen);
        let (mut whole, by, take) = match index {
            ChunkIndex::All => return None,
            ChunkIndex::At(e) => return of(e),
            ChunkIndex::Range { from, to, by, take } => {
                (format!("{}..{}", of(from)?, of(to)?), by, take)
            }
            ChunkIndex::Cyclic { from, count, by, take } => {
                (format!("{} ..+ {}", of(from)?, of(count)?), by, take)
            }
        };
        for (word, e) in [("by", by), ("take", take)] {
            if let Some(e) = e {
                whole = format!("{whole} {word} {}", of(e)?);
            }
        }
        Some(whole)
    }
}

/// The most bytes of an expression in a message.
const MOST_TEXT: usize = 40;

/// Returns an expression as text; `None` if a variable of it has no name.
fn text(e: &SlotExpr, seen: &VisibleNames, tight: u8) -> Option<String> {
    let (text, own) = match &e.node {
        ExprNode::Int(n) => (n.to_string(), u8::MAX),
        ExprNode::Var(slot) => {
            let name = seen.name(*slot);
            (Some(name.to_string()).filter(|n| !n.is_empty())?, u8::MAX)
        }
        ExprNode::Unary(op, a) => {
            let sign = if *op == roundelay_dsl::ast::UnOp::Neg { "-" } else { "!" };
            (format!("{sign}{}", text(a, seen, u8::MAX)?), u8::MAX)
        }
        ExprNode::Binary(op, a, b) => {
            let own = op.tightness();
            let (a, b) = (text(a, seen, own)?, text(b, seen, own + 1)?);
            (format!("{a} {} {b}", op.symbol()), own)
        }
        ExprNode::Call(f, args) => {
            let args: Option<Vec<String>> = args.iter().map(|a| text(a, seen, 0)).collect();
            (format!("{}({})", named(*f), args?.join(", ")), u8::MAX)
        }
        ExprNode::If(..) | ExprNode::Let(..) => return None,
    };
    Some(if own < tight { format!("({text})") } else { text })
}

fn named(f: BuiltinFunction) -> &'static str {
    BUILTINS.iter().find(|b| b.1 == f).map_or("", |b| b.0)
}

/// Returns the place of the loop, or else of the `each`, whose condition a condition of a transfer would be.
fn header(rule: &TransferRule, each: Span, condition: &SlotExpr) -> Span {
    let of = |b: &RuleBinder| match b {
        RuleBinder::For(slot, from, _) if condition.depends_on(&[*slot]) => Some(from.span),
        _ => None,
    };
    rule.binders.iter().rev().find_map(of).unwrap_or(each)
}
