//! Prints syntax trees as text: statements and clauses a line each, expressions with their operator first, so
//! that it is seen how they were read.

use roundelay_dsl::ast::{
    AlgorithmDecl, AxesClause, CollectiveDecl, Expr, ExprKind, FileDeclaration, FnDef, RankRef,
    RegionIndex, RegionRef, SourceFile, Stmt, TransferOp, TransferStmt, UseStmt,
};
use roundelay_dsl::span::{SourceMap, Span};

use super::tree::{TreeText, applied, binary, unary};

/// Returns the tree of a file.
pub(super) fn text(file: &SourceFile, sources: &SourceMap) -> String {
    let mut writer = TreeWriter { tree: TreeText::default(), sources };
    writer.tree.node("file", "");
    writer.inside(|w| {
        w.docs(&file.docs);
        file.items.iter().for_each(|item| w.item(item));
    });
    writer.tree.text()
}

struct TreeWriter<'a> {
    tree: TreeText,
    sources: &'a SourceMap,
}

impl TreeWriter<'_> {
    fn inside(&mut self, fill: impl FnOnce(&mut Self)) {
        self.tree.enter();
        fill(self);
        self.tree.leave();
    }

    fn node(&mut self, what: &str, span: Span) {
        let (line, column) = self.sources.line_column(span);
        self.tree.node(what, &format!("{line}:{column}"));
    }

    fn docs(&mut self, docs: &[String]) {
        if let Some(first) = docs.first() {
            self.tree.node(&format!("docs, {} lines: {first}", docs.len()), "");
        }
    }

    fn item(&mut self, item: &FileDeclaration) {
        match item {
            FileDeclaration::Import(i) => self.node(&format!("import {:?}", i.path), i.span),
            FileDeclaration::Fn(f) => self.function(f),
            FileDeclaration::Collective(c) => self.collective(c),
            FileDeclaration::Algorithm(a) => self.algorithm(a),
            FileDeclaration::Constant(c) => {
                self.node(&format!("let {} = {}", c.name.text, expr(&c.value)), c.span);
                self.inside(|w| w.docs(&c.docs));
            }
        }
    }

    fn function(&mut self, f: &FnDef) {
        let params: Vec<&str> = f.params.iter().map(|p| p.text.as_str()).collect();
        self.node(&format!("fn {}({})", f.name.text, params.join(", ")), f.span);
        self.inside(|w| {
            w.docs(&f.docs);
            for (name, value) in &f.lets {
                w.node(&format!("let {} = {}", name.text, expr(value)), name.span);
            }
            w.node(&format!("value {}", expr(&f.value)), f.value.span);
        });
    }

    fn collective(&mut self, c: &CollectiveDecl) {
        self.node(&format!("collective {} on {}", c.name.text, axes(&c.axes)), c.span);
        self.inside(|w| {
            w.docs(&c.docs);
            for (what, size) in [("input", &c.input), ("output", &c.output)] {
                w.clause(what, size.iter());
            }
            w.statements(&c.body);
        });
    }

    fn algorithm(&mut self, a: &AlgorithmDecl) {
        let (name, collective) = (&a.name.text, &a.collective.text);
        self.node(
            &format!("algorithm {name} implements {collective} on {}", axes(&a.axes)),
            a.span,
        );
        self.inside(|w| {
            w.docs(&a.docs);
            for p in &a.parameters {
                let bounds =
                    |(least, most): &(Expr, Expr)| format!(" in {}..={}", expr(least), expr(most));
                let bounds = p.bounds.as_ref().map_or(String::new(), bounds);
                w.node(
                    &format!("parameter {} = {}{bounds}", p.name.text, expr(&p.default)),
                    p.span,
                );
            }
            for (name, value) in &a.lets {
                w.node(&format!("let {} = {}", name.text, expr(value)), name.span);
            }
            w.clause("requires", a.requires.iter());
            w.clause("tolerates", a.tolerates.iter());
            w.clause("chunks", a.chunks.iter());
            for scratch in &a.scratch {
                let (name, size) = (&scratch.name, expr(&scratch.chunks));
                w.node(&format!("scratch {}[{size}]", name.text), name.span);
            }
            w.statements(&a.body);
            if let Some(schedule) = &a.schedule {
                w.node("schedule", schedule.span);
                w.inside(|w| {
                    for (key, value) in &schedule.entries {
                        w.node(&format!("{} {}", key.text, expr(value)), key.span);
                    }
                });
            }
        });
    }

    fn clause<'a>(&mut self, what: &str, values: impl Iterator<Item = &'a Expr>) {
        for value in values {
            self.node(&format!("{what} {}", expr(value)), value.span);
        }
    }

    fn statements(&mut self, body: &[Stmt]) {
        body.iter().for_each(|statement| self.statement(statement));
    }

    fn block(&mut self, what: &str, span: Span, body: &[Stmt]) {
        self.node(what, span);
        self.inside(|w| w.statements(body));
    }

    fn statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Let(name, value) => {
                self.node(&format!("let {} = {}", name.text, expr(value)), name.span);
            }
            Stmt::For(f) => {
                let (from, to) = (expr(&f.from), expr(&f.to));
                let what = format!("for {} in {from}..{to}{}", f.var.text, filter(&f.filter));
                self.block(&what, f.span, &f.body);
            }
            Stmt::If(i) => {
                self.block(&format!("if {}", expr(&i.cond)), i.span, &i.then);
                if !i.otherwise.is_empty() {
                    self.block("else", i.span, &i.otherwise);
                }
            }
            Stmt::Each(e) => {
                let vars: Vec<&str> = e.vars.iter().map(|v| v.text.as_str()).collect();
                let what = format!("each {}{}", vars.join(", "), filter(&e.filter));
                self.block(&what, e.span, &e.body);
            }
            Stmt::Transfer(t) => self.node(&transfer(t), t.span),
            Stmt::Use(u) => self.node(&used(u), u.span),
            Stmt::Split(s) => {
                let range = match &s.range {
                    Some((from, to)) => format!("{}..{}", expr(from), expr(to)),
                    None => "paths".into(),
                };
                let by = option(" by ", &s.by);
                let (buffer, var) = (&s.buffer.text, &s.var.text);
                let what = format!("split {buffer} over {var} in {range}{by}");
                self.block(&what, s.span, &s.body);
            }
            Stmt::Ensure(e) => {
                let reduce = e.reduce.as_ref().map_or(String::new(), |r| {
                    let (var, from, to) = (&r.var.text, expr(&r.from), expr(&r.to));
                    format!("reduce {var} in {from}..{to}{} : ", filter(&r.filter))
                });
                let (target, source) = (region(&e.target), region(&e.source));
                self.node(
                    &format!("ensure {target} = {reduce}{source} at {}", rank(&e.at)),
                    e.span,
                );
            }
        }
    }
}

fn axes(axes: &AxesClause) -> String {
    match axes {
        AxesClause::Flat(name) => name.text.clone(),
        AxesClause::Grid(names, _) => {
            let names: Vec<&str> = names.iter().map(|n| n.text.as_str()).collect();
            format!("({})", names.join(", "))
        }
    }
}

fn filter(filter: &Option<Expr>) -> String {
    option(" where ", filter)
}

fn option(before: &str, value: &Option<Expr>) -> String {
    value.as_ref().map_or(String::new(), |e| format!("{before}{}", expr(e)))
}

fn rank(rank: &RankRef) -> String {
    match rank {
        RankRef::One(e) => expr(e),
        RankRef::Tuple(all, _) => {
            format!("<{}>", all.iter().map(expr).collect::<Vec<_>>().join(", "))
        }
    }
}

fn region(region: &RegionRef) -> String {
    let index = match &region.index {
        None => String::new(),
        Some(RegionIndex::At(at)) => format!("[{}]", expr(at)),
        Some(RegionIndex::Range { from, to, by, take }) => {
            let (by, take) = (option(" by ", by), option(" take ", take));
            format!("[{}..{}{by}{take}]", expr(from), expr(to))
        }
        Some(RegionIndex::Cyclic { from, count, by, take }) => {
            let (by, take) = (option(" by ", by), option(" take ", take));
            format!("[{} ..+ {}{by}{take}]", expr(from), expr(count))
        }
    };
    format!("{}{index}", region.buffer.text)
}

fn transfer(t: &TransferStmt) -> String {
    let op = match t.op {
        TransferOp::Copy => "copy",
        TransferOp::Reduce => "reduce",
    };
    let to = t.to.as_ref().map_or(String::new(), |to| format!(" -> {}", region(to)));
    let wire = t.wire.as_ref().map_or(String::new(), |wire| format!(" as {}", wire.text));
    format!("transfer {} -> {} : {op} {}{to}{wire}", rank(&t.src), rank(&t.dst), region(&t.from))
}

fn used(u: &UseStmt) -> String {
    let collective = u.collective.as_ref().map_or(String::new(), |c| format!("{}.", c.text));
    let over = u.over.as_ref().map_or(String::new(), |axis| format!(" over {}", axis.text));
    let on = u.on.as_ref().map_or(String::new(), |on| format!(" on {}", region(on)));
    let to = u.to.as_ref().map_or(String::new(), |to| format!(" -> {}", region(to)));
    let (root, via) = (option(" root ", &u.root), option(" via ", &u.via));
    let given = u.arguments.iter().map(|(name, e)| format!("{} = {}", name.text, expr(e)));
    let given = given.collect::<Vec<_>>().join(", ");
    let given = if given.is_empty() { given } else { format!("({given})") };
    format!("use {collective}{}{given}{over}{on}{to}{root}{via}", u.name.text)
}

/// Prints an expression as `(% (+ r 1) n)`.
fn expr(e: &Expr) -> String {
    let all = |of: &[&Expr]| of.iter().map(|e| expr(e)).collect::<Vec<_>>();
    match &e.kind {
        ExprKind::Int(value) => value.to_string(),
        ExprKind::Truth(value) => value.to_string(),
        ExprKind::Name(name) => name.clone(),
        ExprKind::Field(of, field) => format!("{}.{}", of.text, field.text),
        ExprKind::Unary(op, a) => applied(unary(*op), &all(&[a])),
        ExprKind::Binary(op, a, b) => applied(binary(*op), &all(&[a, b])),
        ExprKind::Call(name, given) => {
            applied(&name.text, &given.iter().map(expr).collect::<Vec<_>>())
        }
        ExprKind::If(c, a, b) => applied("if", &all(&[c, a, b])),
    }
}
