//! Makes wrong programs from right ones: small changes at places that the syntax tree names.
//!
//! The change itself is made in the text, so that a mutant has spans and can be read in a message.

use std::ops::Range;

use roundelay_dsl::ast::{
    AlgorithmDecl, Expr, ExprKind, FileDeclaration, RankRef, RegionIndex, RegionRef, SourceFile,
    Stmt, TransferStmt, UseStmt,
};
use roundelay_dsl::span::{SourceMap, Span};

/// One changed text.
#[derive(Debug, Clone)]
pub struct TextMutant {
    /// The kind of change.
    pub kind: &'static str,
    /// The whole text.
    pub text: String,
    /// The change, for messages.
    pub change: String,
    /// The range of the new text in the whole.
    pub at: Range<usize>,
}

/// Returns all mutants of a text, in the order of the syntax tree. None if it does not parse.
pub fn mutants(text: &str) -> Vec<TextMutant> {
    let mut sources = SourceMap::new();
    let id = sources.add("mutant.algo", text);
    let Ok(file) = roundelay_dsl::parse(&sources, id) else { return Vec::new() };
    let mut maker = MutantMaker { text, out: Vec::new() };
    maker.file(&file);
    maker.out
}

struct MutantMaker<'t> {
    text: &'t str,
    out: Vec<TextMutant>,
}

impl MutantMaker<'_> {
    fn at(&self, span: Span) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    /// Puts `new` in the place of a range.
    fn put(&mut self, kind: &'static str, range: Range<usize>, new: &str) {
        let text = format!("{}{new}{}", &self.text[..range.start], &self.text[range.end..]);
        let change = format!("`{}` becomes `{new}`", &self.text[range.clone()]);
        let at = range.start..range.start + new.len();
        self.out.push(TextMutant { kind, text, change, at });
    }

    fn file(&mut self, file: &SourceFile) {
        for item in &file.items {
            match item {
                FileDeclaration::Algorithm(a) => self.algorithm(a),
                FileDeclaration::Fn(f) => {
                    for (_, e) in &f.lets {
                        self.number("function", e);
                    }
                    self.number("function", &f.value);
                }
                FileDeclaration::Constant(c) => self.number("function", &c.value),
                FileDeclaration::Import(_) | FileDeclaration::Collective(_) => {}
            }
        }
    }

    fn algorithm(&mut self, a: &AlgorithmDecl) {
        for p in &a.parameters {
            self.number("parameter", &p.default);
        }
        for (_, e) in &a.lets {
            self.number("let", e);
        }
        if let Some(e) = &a.chunks {
            self.number("chunks", e);
        }
        for s in &a.scratch {
            self.number("chunks", &s.chunks);
        }
        self.block(&a.body, false);
    }

    /// Makes a number one more and one less, and so each number in it.
    fn number(&mut self, kind: &'static str, e: &Expr) {
        if let ExprKind::If(c, a, b) = &e.kind {
            self.condition(c);
            self.number(kind, a);
            self.number(kind, b);
            return;
        }
        let range = e.span.start as usize..e.span.end as usize;
        for by in ["+ 1", "- 1"] {
            let new = format!("(({}) {by})", self.at(e.span));
            self.put(kind, range.clone(), &new);
        }
        match &e.kind {
            ExprKind::Unary(_, a) => self.number(kind, a),
            ExprKind::Binary(op, a, b) => {
                let between = a.span.end as usize..b.span.start as usize;
                let other = match op.symbol() {
                    "+" => Some("-"),
                    "-" => Some("+"),
                    "<<" => Some(">>"),
                    ">>" => Some("<<"),
                    "^" => Some("+"),
                    _ => None,
                };
                if let (Some(other), true) =
                    (other, self.text[between.clone()].trim() == op.symbol())
                {
                    self.put("operator", between, &format!(" {other} "));
                }
                self.number(kind, a);
                self.number(kind, b);
            }
            ExprKind::Call(_, args) => args.iter().for_each(|a| self.number(kind, a)),
            _ => {}
        }
    }

    /// Turns a condition round, and changes the numbers in it.
    fn condition(&mut self, e: &Expr) {
        let new = format!("(!({}))", self.at(e.span));
        self.put("condition", e.span.start as usize..e.span.end as usize, &new);
        match &e.kind {
            ExprKind::Binary(op, a, b) if matches!(op.symbol(), "&&" | "||") => {
                self.condition(a);
                self.condition(b);
            }
            ExprKind::Binary(_, a, b) => {
                self.number("condition", a);
                self.number("condition", b);
            }
            _ => {}
        }
    }

    fn block(&mut self, stmts: &[Stmt], in_each: bool) {
        let ranges: Vec<Range<usize>> = stmts.iter().map(|s| extent(self.text, s)).collect();
        for pair in ranges.windows(2) {
            let [a, b] = pair else { continue };
            let new = format!("{} {}", &self.text[b.clone()], &self.text[a.clone()]);
            self.put("swap", a.start..b.end, &new);
        }
        for (s, range) in stmts.iter().zip(&ranges) {
            if !matches!(s, Stmt::Let(..)) {
                self.put("drop", range.clone(), "");
                let new = format!("{} {}", &self.text[range.clone()], &self.text[range.clone()]);
                self.put("twice", range.clone(), &new);
            }
            self.stmt(s, in_each);
        }
    }

    fn stmt(&mut self, s: &Stmt, in_each: bool) {
        match s {
            Stmt::Let(_, e) => self.number("let", e),
            Stmt::For(f) => {
                self.number("loop", &f.from);
                self.number("loop", &f.to);
                f.filter.iter().for_each(|c| self.condition(c));
                self.block(&f.body, in_each);
            }
            Stmt::If(i) => {
                self.condition(&i.cond);
                self.block(&i.then, in_each);
                self.block(&i.otherwise, in_each);
            }
            Stmt::Each(e) => {
                e.filter.iter().for_each(|c| self.condition(c));
                self.split(s, &e.body);
                self.block(&e.body, true);
            }
            Stmt::Transfer(t) => self.transfer(t, in_each),
            Stmt::Use(u) => {
                self.used(u);
                u.root.iter().for_each(|e| self.number("root", e));
                u.on.iter().chain(&u.to).for_each(|r| self.region(r));
            }
            Stmt::Split(p) => {
                if let Some((a, b)) = &p.range {
                    self.number("parts", a);
                    self.number("parts", b);
                }
                self.block(&p.body, in_each);
            }
            Stmt::Ensure(_) => {}
        }
    }

    /// Puts other sub-algorithms, other groups and other regions into a `use`.
    fn used(&mut self, u: &UseStmt) {
        let whole = u.span.start as usize..u.span.end as usize;
        let own = self.at(u.span).to_string();
        for name in
            ["ring", "circulant", "direct", "recursive_doubling", "one_shot", "bruck", "linear"]
        {
            if name != u.name.text {
                self.put("used", u.name.span.start as usize..u.name.span.end as usize, name);
            }
        }
        for (collective, other) in [
            ("reduce_scatter", "all_reduce"),
            ("all_reduce", "reduce_scatter"),
            ("all_gather", "all_reduce"),
            ("all_reduce", "all_gather"),
        ] {
            if own.contains(collective) {
                self.put("used", whole.clone(), &own.replace(collective, other));
            }
        }
        for (axis, other) in [("over gpu", "over node"), ("over node", "over gpu")] {
            if own.contains(axis) {
                self.put("axis", whole.clone(), &own.replace(axis, other));
            }
        }
        if u.on.is_none() {
            for region in ["on data[0]", "on data[0..0]", "on data[1..2]"] {
                self.put("region", whole.clone(), &format!("{own} {region}"));
            }
        }
    }

    /// Makes one `each` two rounds.
    fn split(&mut self, each: &Stmt, body: &[Stmt]) {
        let whole = extent(self.text, each);
        let Some(open) = self.text[whole.clone()].find('{') else { return };
        let header = self.text[whole.start..whole.start + open].to_string();
        for at in 1..body.len() {
            let part = |stmts: &mut dyn Iterator<Item = &Stmt>| {
                stmts
                    .map(|s| self.text[extent(self.text, s)].to_string())
                    .collect::<Vec<_>>()
                    .join("\n")
            };
            let first = part(&mut body[..at].iter());
            let lets = body[..at].iter().filter(|s| matches!(s, Stmt::Let(..)));
            let second = part(&mut lets.chain(&body[at..]));
            self.put(
                "split",
                whole.clone(),
                &format!("{header}{{ {first} }} {header}{{ {second} }}"),
            );
        }
    }

    fn transfer(&mut self, t: &TransferStmt, in_each: bool) {
        self.rank(&t.src);
        self.rank(&t.dst);
        let after = t.dst.span().end as usize..t.from.span.start as usize;
        let (word, other) = match t.op {
            roundelay_dsl::ast::TransferOp::Copy => ("copy", "reduce"),
            roundelay_dsl::ast::TransferOp::Reduce => ("reduce", "copy"),
        };
        if let Some(at) = self.text[after.clone()].find(word) {
            let start = after.start + at;
            self.put("operation", start..start + word.len(), other);
        }
        self.region(&t.from);
        t.to.iter().for_each(|r| self.region(r));
        let (src, dst) = (self.at(t.src.span()).to_string(), self.at(t.dst.span()).to_string());
        let rest = self.text[t.dst.span().end as usize..t.span.end as usize].to_string();
        let whole = t.span.start as usize..t.span.end as usize;
        for (from, to) in [(&src, "0"), (&src, "1"), (&dst, "0"), (&dst, "1")] {
            let new = if from == &src {
                format!("{to} -> {dst}{rest}")
            } else {
                format!("{src} -> {to}{rest}")
            };
            self.put("peer", whole.clone(), &new);
        }
        self.put("turned", whole.clone(), &format!("{dst} -> {src}{rest}"));
        let own = self.at(t.span).to_string();
        self.put("extra", whole.clone(), &format!("{own} {dst} -> {src}{rest}"));
        if !in_each {
            let twice = format!("each again {{ {own} }}");
            self.put("extra", whole.clone(), &twice);
            self.put("extra", whole, &format!("{own} {dst} -> {dst}{rest}"));
        }
    }

    fn rank(&mut self, r: &RankRef) {
        match r {
            RankRef::One(e) => self.number("peer", e),
            RankRef::Tuple(list, _) => list.iter().for_each(|e| self.number("peer", e)),
        }
    }

    fn region(&mut self, r: &RegionRef) {
        let name = r.buffer.text.clone();
        let whole = r.span.start as usize..r.span.end as usize;
        match &r.index {
            None => {
                for index in ["[0]", "[0..0]", "[1]"] {
                    self.put("region", whole.clone(), &format!("{name}{index}"));
                }
            }
            Some(RegionIndex::At(e)) => self.number("index", e),
            Some(RegionIndex::Range { from, to, by, take }) => {
                self.number("bound", from);
                self.number("bound", to);
                by.iter().chain(take).for_each(|e| self.number("stride", e));
            }
            Some(RegionIndex::Cyclic { from, count, by, take }) => {
                self.number("index", from);
                self.number("bound", count);
                by.iter().chain(take).for_each(|e| self.number("stride", e));
            }
        }
    }
}

/// Returns the range from the first to one past the last byte of a statement.
pub(crate) fn extent(text: &str, s: &Stmt) -> Range<usize> {
    let span = match s {
        Stmt::Let(name, e) => {
            let start = text[..name.span.start as usize].rfind("let").unwrap_or(0);
            return start..e.span.end as usize;
        }
        Stmt::Transfer(t) => return t.span.start as usize..t.span.end as usize,
        Stmt::Use(u) => return u.span.start as usize..u.span.end as usize,
        Stmt::Ensure(e) => return e.span.start as usize..e.span.end as usize,
        Stmt::For(f) => f.span,
        Stmt::If(i) => i.span,
        Stmt::Each(e) => e.span,
        Stmt::Split(p) => p.span,
    };
    let mut end = close(text, span.end as usize);
    while text[end..].trim_start().starts_with("else") {
        end = close(text, end);
    }
    span.start as usize..end
}

/// Returns the byte past the brace that closes the next block after `from`.
fn close(text: &str, from: usize) -> usize {
    let mut depth = 0;
    let mut comment = false;
    let bytes = text.as_bytes();
    for (i, &b) in bytes.iter().enumerate().skip(from) {
        comment = match b {
            b'\n' => false,
            b'/' if bytes.get(i + 1) == Some(&b'/') => true,
            _ => comment,
        };
        match b {
            b'{' if !comment => depth += 1,
            b'}' if !comment => {
                depth -= 1;
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}
