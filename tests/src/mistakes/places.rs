//! Lists the single mistakes that a syntax tree allows.

use std::ops::Range;

use roundelay_dsl::ast::{
    AlgorithmDecl, AxesClause, BinOp, Expr, ExprKind, FileDeclaration, RankRef, RegionIndex,
    RegionRef, SourceFile, Stmt, TransferOp, TransferStmt, UnOp,
};
use roundelay_dsl::span::Span;

/// One change of the text.
#[derive(Debug, Clone)]
pub(super) struct TextChange {
    pub(super) kind: &'static str,
    pub(super) range: Range<usize>,
    pub(super) new: String,
    /// First bytes of the headers of blocks that are left without anything that moves.
    pub(super) empty: Vec<usize>,
}

/// Returns all changes, in the order of the syntax tree.
pub(super) fn all(text: &str, file: &SourceFile) -> Vec<TextChange> {
    let mut found = MistakePlaces {
        text,
        changes: Vec::new(),
        scope: Vec::new(),
        pool: TextPool::default(),
        alone: Vec::new(),
    };
    for item in &file.items {
        match item {
            FileDeclaration::Algorithm(a) => found.algorithm(a),
            FileDeclaration::Fn(f) => {
                found.scope = f.params.iter().map(|p| p.text.clone()).collect();
                for (name, e) in &f.lets {
                    found.expr(e, 0);
                    found.scope.push(name.text.clone());
                }
                found.expr(&f.value, 0);
            }
            FileDeclaration::Constant(_)
            | FileDeclaration::Import(_)
            | FileDeclaration::Collective(_) => {}
        }
    }
    found.changes
}

/// Texts of an algorithm that are written for each other.
#[derive(Default)]
struct TextPool {
    /// Indices, with their brackets.
    indices: Vec<String>,
    ranks: Vec<String>,
    bounds: Vec<String>,
}

struct MistakePlaces<'t> {
    text: &'t str,
    changes: Vec<TextChange>,
    /// Names of the variables that can be seen.
    scope: Vec<String>,
    pool: TextPool,
    /// First bytes of the headers around the statement at hand in whose blocks nothing else moves.
    alone: Vec<usize>,
}

fn range(span: Span) -> Range<usize> {
    span.start as usize..span.end as usize
}

/// Returns the operators that a person confuses with one, with the kind of mistake.
fn confused(op: BinOp) -> &'static [(&'static str, &'static str)] {
    match op {
        BinOp::Add => &[("sign", "-"), ("operator", "^")],
        BinOp::Sub => &[("sign", "+")],
        BinOp::Mul => &[("operator", "+"), ("operator", "/")],
        BinOp::Div => &[("operator", "%"), ("operator", "*")],
        BinOp::Mod => &[("operator", "/")],
        BinOp::Shl => &[("operator", ">>"), ("operator", "*")],
        BinOp::Shr => &[("operator", "<<"), ("operator", "/")],
        BinOp::BitXor => &[("operator", "+"), ("operator", "|")],
        BinOp::BitAnd => &[("operator", "|")],
        BinOp::BitOr => &[("operator", "&"), ("operator", "+")],
        BinOp::Eq => &[("condition", "!=")],
        BinOp::Ne => &[("condition", "==")],
        BinOp::Lt => &[("condition", "<="), ("condition", ">")],
        BinOp::Le => &[("condition", "<"), ("condition", ">=")],
        BinOp::Gt => &[("condition", ">="), ("condition", "<")],
        BinOp::Ge => &[("condition", ">"), ("condition", "<=")],
        BinOp::And => &[("condition", "||")],
        BinOp::Or => &[("condition", "&&")],
    }
}

/// Functions that are confused with each other.
const FUNCTIONS: &[(&str, &str)] = &[
    ("min", "max"),
    ("max", "min"),
    ("log2", "ceil_log2"),
    ("ceil_log2", "log2"),
    ("log", "ceil_log"),
    ("ceil_log", "log"),
    ("even", "odd"),
    ("odd", "even"),
];

impl MistakePlaces<'_> {
    fn at(&self, range: Range<usize>) -> &str {
        &self.text[range]
    }

    fn put(&mut self, kind: &'static str, range: Range<usize>, new: impl Into<String>) {
        let new = new.into();
        if self.text[range.clone()] != new {
            self.changes.push(TextChange { kind, range, new, empty: Vec::new() });
        }
    }

    fn algorithm(&mut self, a: &AlgorithmDecl) {
        self.scope = match &a.axes {
            AxesClause::Flat(name) => vec![name.text.clone()],
            AxesClause::Grid(list, _) => list.iter().map(|a| format!("{}.size", a.text)).collect(),
        };
        self.pool = TextPool::default();
        self.gather(&a.body);
        if let Some(e) = &a.chunks {
            self.expr(e, 0);
        }
        a.scratch.iter().for_each(|s| self.expr(&s.chunks, 0));
        self.block(&a.body, a.header.start as usize);
    }

    /// Fills the pool.
    fn gather(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::For(f) => {
                    self.pool.bounds.push(self.at(range(f.to.span)).to_string());
                    self.gather(&f.body);
                }
                Stmt::If(i) => {
                    self.gather(&i.then);
                    self.gather(&i.otherwise);
                }
                Stmt::Each(e) => self.gather(&e.body),
                Stmt::Split(p) => self.gather(&p.body),
                Stmt::Transfer(t) => {
                    for rank in [&t.src, &t.dst] {
                        self.pool.ranks.push(self.at(range(rank.span())).to_string());
                    }
                    for region in [Some(&t.from), t.to.as_ref()].into_iter().flatten() {
                        let whole = range(region.span);
                        let index = &self.text[whole.start + region.buffer.text.len()..whole.end];
                        self.pool.indices.push(index.to_string());
                    }
                }
                Stmt::Let(..) | Stmt::Use(_) | Stmt::Ensure(_) => {}
            }
        }
        for list in [&mut self.pool.bounds, &mut self.pool.ranks, &mut self.pool.indices] {
            list.sort();
            list.dedup();
        }
    }

    /// Changes the statements of a block, whose header begins at a byte.
    fn block(&mut self, stmts: &[Stmt], header: usize) {
        let depth = self.scope.len();
        let ranges: Vec<Range<usize>> = stmts.iter().map(|s| self.extent(s)).collect();
        for pair in ranges.windows(2) {
            let [a, b] = pair else { continue };
            let (first, second) = (&self.text[a.clone()], &self.text[b.clone()]);
            let between = &self.text[a.end..b.start];
            self.put("swapped", a.start..b.end, format!("{second}{between}{first}"));
        }
        let moving = stmts.iter().filter(|s| !matches!(s, Stmt::Let(..))).count();
        let outer = self.alone.clone();
        match moving {
            1 => self.alone.push(header),
            _ => self.alone.clear(),
        }
        for (s, at) in stmts.iter().zip(&ranges) {
            if !matches!(s, Stmt::Let(..) | Stmt::Ensure(_)) {
                self.changes.push(TextChange {
                    kind: "missing",
                    range: at.clone(),
                    new: String::new(),
                    empty: self.alone.clone(),
                });
                let own = &self.text[at.clone()];
                self.put("doubled", at.clone(), format!("{own}\n{own}"));
            }
            self.stmt(s);
        }
        self.alone = outer;
        self.scope.truncate(depth);
    }

    fn stmt(&mut self, s: &Stmt) {
        let depth = self.scope.len();
        match s {
            Stmt::Let(name, e) => {
                self.expr(e, 0);
                self.scope.push(name.text.clone());
                return;
            }
            Stmt::For(f) => {
                self.bound(&f.from);
                self.bound(&f.to);
                self.scope.push(f.var.text.clone());
                f.filter.iter().for_each(|c| self.condition(c));
                self.block(&f.body, f.span.start as usize);
            }
            Stmt::If(i) => {
                self.condition(&i.cond);
                self.block(&i.then, i.span.start as usize);
                self.block(&i.otherwise, i.span.start as usize);
            }
            Stmt::Each(e) => {
                self.scope.extend(e.vars.iter().map(|v| v.text.clone()));
                e.filter.iter().for_each(|c| self.condition(c));
                self.block(&e.body, e.span.start as usize);
            }
            Stmt::Transfer(t) => self.transfer(t),
            Stmt::Use(u) => {
                u.root.iter().for_each(|e| self.expr(e, 0));
                u.on.iter().chain(&u.to).for_each(|r| self.region(r));
            }
            Stmt::Split(p) => {
                if let Some((a, b)) = &p.range {
                    self.bound(a);
                    self.bound(b);
                }
                self.scope.push(p.var.text.clone());
                self.block(&p.body, p.span.start as usize);
            }
            Stmt::Ensure(_) => {}
        }
        self.scope.truncate(depth);
    }

    /// Changes a bound of a loop: one more or less, another variable, the bound of another loop.
    fn bound(&mut self, e: &Expr) {
        let before = self.changes.len();
        self.expr(e, 0);
        for other in self.pool.bounds.clone() {
            self.put("bound", range(e.span), other);
        }
        // A bound may be wrong in any way that an expression is.
        let same: Vec<TextChange> = self.changes[before..].to_vec();
        let own = |c: &TextChange| c.kind == "off by one" || c.kind == "variable";
        self.changes
            .extend(same.into_iter().filter(own).map(|c| TextChange { kind: "bound", ..c }));
    }

    fn condition(&mut self, e: &Expr) {
        let whole = range(e.span);
        let start = self.text[..whole.start].trim_end();
        if start.ends_with("where") {
            self.put("condition", start.len() - "where".len()..whole.end, "");
        }
        let own = self.at(whole.clone()).to_string();
        self.put("condition", whole.clone(), format!("!({own})"));
        if let ExprKind::Binary(BinOp::And | BinOp::Or, a, b) = &e.kind {
            for part in [a, b] {
                let part = self.at(range(part.span)).to_string();
                self.put("condition", whole.clone(), part);
            }
        }
        self.expr(e, 0);
    }

    /// Changes an expression that stands in an operation that binds so tightly.
    fn expr(&mut self, e: &Expr, tight: u8) {
        let whole = range(e.span);
        let own = self.at(whole.clone()).to_string();
        if !matches!(e.kind, ExprKind::Binary(op, ..) if op.compares() || op.tightness() < 2)
            && !matches!(e.kind, ExprKind::Int(_) | ExprKind::Truth(_) | ExprKind::If(..))
        {
            for by in ["+ 1", "- 1"] {
                let loose = matches!(&e.kind, ExprKind::Binary(op, ..) if op.tightness() < 7);
                let inner = if loose { format!("({own}) {by}") } else { format!("{own} {by}") };
                let new = if tight >= 7 { format!("({inner})") } else { inner };
                self.put("off by one", whole.clone(), new);
            }
        }
        match &e.kind {
            ExprKind::Int(v) => {
                self.put("off by one", whole.clone(), (v + 1).to_string());
                if *v > 0 {
                    self.put("off by one", whole, (v - 1).to_string());
                }
            }
            ExprKind::Truth(v) => self.put("condition", whole, (!v).to_string()),
            ExprKind::Name(_) | ExprKind::Field(..) => {
                for other in self.scope.clone() {
                    self.put("variable", whole.clone(), other);
                }
            }
            ExprKind::Unary(op, a) => {
                if *op == UnOp::Neg {
                    let inner = self.at(range(a.span)).to_string();
                    self.put("sign", whole, inner);
                }
                self.expr(a, 9);
            }
            ExprKind::Binary(op, a, b) => self.binary(e, *op, a, b),
            ExprKind::Call(f, args) => {
                for (_, other) in FUNCTIONS.iter().filter(|(name, _)| *name == f.text) {
                    self.put("operator", range(f.span), *other);
                }
                if let [a, b, ..] = args.as_slice() {
                    let (x, y) = (range(a.span), range(b.span));
                    let between = &self.text[x.end..y.start];
                    let new =
                        format!("{}{between}{}", &self.text[y.clone()], &self.text[x.clone()]);
                    self.put("variable", x.start..y.end, new);
                }
                args.iter().for_each(|a| self.expr(a, 0));
            }
            ExprKind::If(c, a, b) => {
                self.condition(c);
                self.expr(a, 0);
                self.expr(b, 0);
            }
        }
    }

    fn binary(&mut self, e: &Expr, op: BinOp, a: &Expr, b: &Expr) {
        let (whole, left, right) = (range(e.span), range(a.span), range(b.span));
        let between = left.end..right.start;
        if let Some(at) = self.text[between.clone()].find(op.symbol()) {
            let at = between.start + at..between.start + at + op.symbol().len();
            for (kind, other) in confused(op) {
                self.put(kind, at.clone(), *other);
            }
        }
        if matches!(op, BinOp::Sub | BinOp::Shl | BinOp::Shr | BinOp::Mod | BinOp::Div) {
            let kind = if op == BinOp::Sub { "sign" } else { "operator" };
            let (x, y) = (self.at(left.clone()), self.at(right.clone()));
            let new = format!("{y}{}{x}", self.at(between.clone()));
            self.put(kind, left.start..right.end, new);
        }
        if !op.compares() && op.tightness() > 1 {
            // A term that is missing, such as `% n`. What is left stands as it did.
            let inner = self.at(left.clone()).to_string();
            self.put("term", whole, inner);
        }
        // `a + b % c` for `(a + b) % c`, and the other way round.
        for (part, outer) in [(a, 0), (b, 1)] {
            let ExprKind::Binary(inner, x, y) = &part.kind else { continue };
            if inner.compares() || op.compares() || op.tightness() < 2 {
                continue;
            }
            let at = range(part.span);
            let open = self.text[..at.start].ends_with('(') && self.text[at.end..].starts_with(')');
            if open && inner.tightness() < op.tightness() {
                let text = self.at(at.clone()).to_string();
                self.put("parentheses", at.start - 1..at.end + 1, text);
            } else if inner.tightness() > op.tightness() && outer == 1 {
                let (x, y) = (range(x.span), range(y.span));
                let text = format!("({})", &self.text[left.start..x.end]);
                let text = format!("{text}{}", &self.text[x.end..y.end]);
                self.put("parentheses", left.start..y.end, text);
            }
        }
        self.expr(a, op.tightness());
        self.expr(b, op.tightness() + 1);
    }

    fn transfer(&mut self, t: &TransferStmt) {
        let (src, dst) = (range(t.src.span()), range(t.dst.span()));
        let turned = format!(
            "{}{}{}",
            &self.text[dst.clone()],
            &self.text[src.end..dst.start],
            &self.text[src.clone()]
        );
        self.put("turned", src.start..dst.end, turned);
        for (rank, at) in [(&t.src, src), (&t.dst, dst.clone())] {
            for other in self.pool.ranks.clone() {
                self.put("rank", at.clone(), other);
            }
            match rank {
                RankRef::One(e) => self.expr(e, 0),
                RankRef::Tuple(list, _) => {
                    for pair in list.windows(2) {
                        let (x, y) = (range(pair[0].span), range(pair[1].span));
                        let between = &self.text[x.end..y.start];
                        let new =
                            format!("{}{between}{}", &self.text[y.clone()], &self.text[x.clone()]);
                        self.put("rank", x.start..y.end, new);
                    }
                    list.iter().for_each(|e| self.expr(e, 0));
                }
            }
        }
        let after = dst.end..t.from.span.start as usize;
        let (word, other) = match t.op {
            TransferOp::Copy => ("copy", "reduce"),
            TransferOp::Reduce => ("reduce", "copy"),
        };
        if let Some(at) = self.text[after.clone()].find(word) {
            let start = after.start + at;
            self.put("operation", start..start + word.len(), other);
        }
        self.region(&t.from);
        if let Some(to) = &t.to {
            self.region(to);
            let (x, y) = (range(t.from.span), range(to.span));
            let between = &self.text[x.end..y.start];
            let new = format!("{}{between}{}", &self.text[y.clone()], &self.text[x.clone()]);
            self.put("turned", x.start..y.end, new);
        }
    }

    fn region(&mut self, r: &RegionRef) {
        let at = range(r.span);
        let index = at.start + r.buffer.text.len()..at.end;
        for other in self.pool.indices.clone() {
            self.put("index", index.clone(), other);
        }
        match &r.index {
            None => self.put("index", index, "[0]"),
            Some(RegionIndex::At(e)) => {
                self.put("index", index, "");
                self.expr(e, 0);
            }
            Some(
                RegionIndex::Range { from, to: end, by, take }
                | RegionIndex::Cyclic { from, count: end, by, take },
            ) => {
                let between = from.span.end as usize..end.span.start as usize;
                let cyclic = matches!(r.index, Some(RegionIndex::Cyclic { .. }));
                let (word, other) = if cyclic { ("..+", "..") } else { ("..", "..+") };
                if let Some(found) = self.text[between.clone()].find(word) {
                    let start = between.start + found;
                    self.put("range", start..start + word.len(), other);
                }
                [from, end].into_iter().chain(by).chain(take).for_each(|e| self.expr(e, 0));
            }
        }
    }

    /// Returns the range from the first to one past the last byte of a statement.
    fn extent(&self, s: &Stmt) -> Range<usize> {
        crate::mutate::extent(self.text, s)
    }
}
