//! Prints resolved programs as text: statements a line each, variables by their names, expressions with their
//! operator first.

use roundelay_compiler::Program;
use roundelay_compiler::program::{
    BUILTINS, ChunkIndex, EachRules, ExprNode, ProgramBuffer, ProgramStmt, RankExpr, RegionExpr,
    RuleBinder, Slot, SlotExpr, TransferRule,
};
use roundelay_dsl::ast::TransferOp;

use super::tree::{TreeText, applied, binary, unary};

/// Returns the tree of a program, and of those that it uses.
pub(super) fn text(program: &Program) -> String {
    let mut tree = TreeText::default();
    ProgramWriter { program, tree: &mut tree }.program();
    tree.text()
}

struct ProgramWriter<'a> {
    program: &'a Program,
    tree: &'a mut TreeText,
}

impl ProgramWriter<'_> {
    fn node(&mut self, what: &str) {
        self.tree.node(what, "");
    }

    fn inside(&mut self, fill: impl FnOnce(&mut Self)) {
        self.tree.enter();
        fill(self);
        self.tree.leave();
    }

    fn program(&mut self) {
        let p = self.program;
        let axes = p.axes.names.join(", ");
        self.node(&format!("program {}.{} on ({axes})", p.kind.name(), p.name));
        self.inside(|w| {
            for own in &p.parameters {
                let bounds = own.bounds.map_or(String::new(), |(a, b)| format!(" in {a}..={b}"));
                w.node(&format!("parameter {} = {}{bounds}", own.name, own.value));
            }
            for e in &p.requires {
                w.node(&format!("requires {}", w.expr(e)));
            }
            if p.commutative {
                w.node("requires a commutative operator");
            }
            if let Some(failures) = &p.tolerates {
                w.node(&format!("tolerates {}", w.expr(failures)));
            }
            if let Some(chunks) = &p.chunks {
                w.node(&format!("chunks {}", w.expr(chunks)));
            }
            for (name, size) in &p.scratch {
                w.node(&format!("scratch {name}[{}]", w.expr(size)));
            }
            let s = &p.schedule;
            for (key, value) in
                [("pipeline", &s.pipeline), ("channels", &s.channels), ("slots", &s.slots)]
            {
                if let Some(value) = value {
                    w.node(&format!("{key} {}", w.expr(value)));
                }
            }
            w.statements(&p.body);
        });
    }

    fn statements(&mut self, body: &[ProgramStmt]) {
        body.iter().for_each(|statement| self.statement(statement));
    }

    fn statement(&mut self, statement: &ProgramStmt) {
        match statement {
            ProgramStmt::Let(slot, value) => {
                self.node(&format!("let {} = {}", self.name(*slot), self.expr(value)));
            }
            ProgramStmt::For { slot, from, to, body } => {
                let (name, from, to) = (self.name(*slot), self.expr(from), self.expr(to));
                self.node(&format!("for {name} in {from}..{to}"));
                self.inside(|w| w.statements(body));
            }
            ProgramStmt::If { cond, then, otherwise } => {
                self.node(&format!("if {}", self.expr(cond)));
                self.inside(|w| w.statements(then));
                if !otherwise.is_empty() {
                    self.node("else");
                    self.inside(|w| w.statements(otherwise));
                }
            }
            ProgramStmt::Each(each) => self.each(each),
            ProgramStmt::Use(u) => {
                let axis = u.over.and_then(|over| self.program.axes.names.get(over));
                let over = axis.map_or(String::new(), |axis| format!(" over {axis}"));
                let on =
                    u.on.as_ref().map_or(String::new(), |on| format!(" on {}", self.region(on)));
                let to =
                    u.to.as_ref().map_or(String::new(), |to| format!(" -> {}", self.region(to)));
                let (root, via) = (self.option(" root ", &u.root), self.option(" via ", &u.via));
                let given = u.arguments.iter().map(|(i, e)| {
                    format!(" with {} = {}", u.program.parameters[*i].name, self.expr(e))
                });
                let given: String = given.collect();
                self.node(&format!("use{given}{over}{on}{to}{root}{via}"));
                self.tree.enter();
                ProgramWriter { program: &u.program, tree: self.tree }.program();
                self.tree.leave();
            }
            ProgramStmt::Split(s) => {
                let range = match &s.range {
                    Some((from, to)) => format!("{}..{}", self.expr(from), self.expr(to)),
                    None => "paths".into(),
                };
                let by = if s.weighted { " by bandwidth" } else { "" };
                self.node(&format!("split over {} in {range}{by}", self.name(s.slot)));
                self.inside(|w| w.statements(&s.body));
            }
        }
    }

    fn each(&mut self, each: &EachRules) {
        self.node(&match each.once {
            true => "once".to_string(),
            false => format!("each {}", self.name(each.var)),
        });
        self.inside(|w| {
            for (slot, value) in &each.defs {
                w.node(&format!("where {} = {}", w.name(*slot), w.expr(value)));
            }
            each.rules.iter().for_each(|rule| w.rule(rule));
        });
    }

    fn rule(&mut self, rule: &TransferRule) {
        let before = rule.binders.iter().map(|binder| match binder {
            RuleBinder::Let(slot, value) => {
                format!("let {} = {}", self.name(*slot), self.expr(value))
            }
            RuleBinder::Where(cond) => format!("where {}", self.expr(cond)),
            RuleBinder::For(slot, from, to) => {
                format!("for {} in {}..{}", self.name(*slot), self.expr(from), self.expr(to))
            }
        });
        let before: Vec<String> = before.collect();
        let op = match rule.op {
            TransferOp::Copy => "copy",
            TransferOp::Reduce => "reduce",
        };
        let (src, dst) = (self.rank(&rule.src), self.rank(&rule.dst));
        let (from, to) = (self.region(&rule.from), self.region(&rule.to));
        let to = if from == to { String::new() } else { format!(" -> {to}") };
        let wire = rule.wire.map_or(String::new(), |wire| format!(" as {}", wire.name()));
        let before = if before.is_empty() { before.join("") } else { before.join(", ") + ": " };
        self.node(&format!("{before}{src} -> {dst} : {op} {from}{to}{wire}"));
    }

    fn rank(&self, rank: &RankExpr) -> String {
        self.expr(&rank.linear)
    }

    fn region(&self, region: &RegionExpr) -> String {
        let buffer = match region.buf {
            ProgramBuffer::Data => "data",
            ProgramBuffer::Input => "input",
            ProgramBuffer::Output => "output",
            ProgramBuffer::Scratch(i) => {
                self.program.scratch.get(i as usize).map_or("scratch", |(name, _)| name)
            }
        };
        let index = match &region.index {
            ChunkIndex::All => String::new(),
            ChunkIndex::At(at) => format!("[{}]", self.expr(at)),
            ChunkIndex::Range { from, to, by, take } => {
                let (by, take) = (self.option(" by ", by), self.option(" take ", take));
                format!("[{}..{}{by}{take}]", self.expr(from), self.expr(to))
            }
            ChunkIndex::Cyclic { from, count, by, take } => {
                let (by, take) = (self.option(" by ", by), self.option(" take ", take));
                format!("[{} ..+ {}{by}{take}]", self.expr(from), self.expr(count))
            }
        };
        format!("{buffer}{index}")
    }

    fn option(&self, before: &str, value: &Option<SlotExpr>) -> String {
        value.as_ref().map_or(String::new(), |e| format!("{before}{}", self.expr(e)))
    }

    /// Returns a variable; of those that the user cannot see, its number.
    fn name(&self, slot: Slot) -> String {
        match self.program.slots.get(slot as usize).map(String::as_str) {
            None | Some("") => format!("#{slot}"),
            Some(name) => name.to_owned(),
        }
    }

    fn expr(&self, e: &SlotExpr) -> String {
        let all = |of: &[&SlotExpr]| of.iter().map(|e| self.expr(e)).collect::<Vec<_>>();
        match &e.node {
            ExprNode::Int(value) => value.to_string(),
            ExprNode::Var(slot) => self.name(*slot),
            ExprNode::Unary(op, a) => applied(unary(*op), &all(&[a])),
            ExprNode::Binary(op, a, b) => applied(binary(*op), &all(&[a, b])),
            ExprNode::Call(function, given) => {
                let known = BUILTINS.iter().find(|(_, f, ..)| f == function);
                let given: Vec<String> = given.iter().map(|e| self.expr(e)).collect();
                applied(known.map_or("?", |(name, ..)| name), &given)
            }
            ExprNode::If(c, a, b) => applied("if", &all(&[c, a, b])),
            ExprNode::Let(slot, value, body) => {
                applied("let", &[self.name(*slot), self.expr(value), self.expr(body)])
            }
        }
    }
}
