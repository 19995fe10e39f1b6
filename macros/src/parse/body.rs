//! Reads statements.

use quote::ToTokens;
use roundelay_dsl::ast::{self, ExprKind, SpannedName};
use roundelay_dsl::diag::codes;
use roundelay_dsl::span::Span;
use syn::{Block, Expr, ExprClosure, Local, Pat, RangeLimits, Stmt};

use super::PieceParser;
use super::chain::head;
use super::expr::operator;
use super::function::{called, named};

impl PieceParser<'_> {
    /// Reads a block that Rust wants to have no value.
    fn plain_block(&mut self, block: &Block) -> Vec<ast::Stmt> {
        self.ended(&block.stmts);
        self.block(block)
    }

    /// Demands that the last statement of a block without value ends with a semicolon.
    pub(super) fn ended(&mut self, stmts: &[Stmt]) {
        if let Some(Stmt::Expr(e @ (Expr::MethodCall(_) | Expr::Call(_)), None)) = stmts.last() {
            let help = "end the statement with `;`";
            self.fault::<()>(codes::SYNTAX, e, "a semicolon is missing", "after this", help);
        }
    }

    fn block(&mut self, block: &Block) -> Vec<ast::Stmt> {
        let mut out = Vec::new();
        self.deeper(block, |this| {
            block.stmts.iter().for_each(|s| this.statement(s, &mut out));
            Some(())
        });
        out
    }

    /// Adds what a statement says; nothing if it is at fault.
    pub(super) fn statement(&mut self, stmt: &Stmt, out: &mut Vec<ast::Stmt>) {
        let read = match stmt {
            Stmt::Local(local) => {
                let binding = self.binding(local);
                binding.map(|(name, value)| ast::Stmt::Let(name, value))
            }
            Stmt::Expr(e, _) => self.doing(e),
            Stmt::Item(item) => {
                let help = "write constants at the top of the algorithm, and helper functions there or outside";
                self.foreign(item, "a declaration here", help)
            }
            Stmt::Macro(m) => self.foreign(m, "a macro", "write out what it stands for"),
        };
        out.extend(read);
    }

    /// Reads `let x = e;`.
    pub(super) fn binding(&mut self, local: &Local) -> Option<(SpannedName, ast::Expr)> {
        let ident = self.variable(&local.pat)?;
        let Some(init) = &local.init else {
            let help = "write `let x = …;`";
            return self.fault(codes::SYNTAX, local, "a `let` gives a value", "which?", help);
        };
        if called(&init.expr, "scratch") {
            let help = "declare buffers at the top of the function";
            let message = "clauses come before what moves";
            return self.fault(codes::MISPLACED, &init.expr, message, "not at the top", help);
        }
        if let Some((_, diverge)) = &init.diverge {
            return self.foreign(diverge.as_ref(), "`let … else`", "write an `if`");
        }
        let value = self.expr(&init.expr);
        // Declared even if its value is at fault, so that its uses are not reported too.
        let span = self.span(ident);
        Some((self.name(ident), value.unwrap_or(ast::Expr { kind: ExprKind::Int(0), span })))
    }

    /// Reads an expression that stands as a statement.
    fn doing(&mut self, e: &Expr) -> Option<ast::Stmt> {
        match e {
            Expr::ForLoop(f) => {
                let var = self.variable(&f.pat).map(|v| self.name(v));
                let range = self.range(&f.expr);
                let span = self.span(&f.for_token).to(self.span(f.expr.as_ref()));
                let body = self.plain_block(&f.body);
                let ((from, to), var) = (range?, var?);
                Some(ast::Stmt::For(ast::ForStmt { var, from, to, filter: None, body, span }))
            }
            Expr::If(i) => {
                let cond = self.expr(&i.cond);
                let span = self.span(&i.if_token).to(self.span(i.cond.as_ref()));
                let then = self.plain_block(&i.then_branch);
                let otherwise = match &i.else_branch {
                    None => Vec::new(),
                    Some((_, e)) => {
                        if let Expr::Block(b) = &**e {
                            self.ended(&b.block.stmts);
                        }
                        self.inside(e)
                    }
                };
                Some(ast::Stmt::If(ast::IfStmt { cond: cond?, then, otherwise, span }))
            }
            Expr::Paren(p) => self.doing(&p.expr),
            Expr::Group(g) => self.doing(&g.expr),
            Expr::Call(call) if named(&call.func, "each") => self.each(e, call),
            Expr::Call(call) if named(&call.func, "split") => self.split(e, call),
            // `play` is the former name.
            e if ["run", "play"].iter().any(|w| called(head(e), w)) => {
                self.used_part(e).map(ast::Stmt::Use)
            }
            Expr::Call(call)
                if ["chunks", "requires", "tolerates", "scratch"]
                    .iter()
                    .any(|w| named(&call.func, w)) =>
            {
                let help = "move it to the top of the function";
                let message = "clauses come before what moves";
                self.fault(codes::MISPLACED, e, message, "not at the top", help)
            }
            e if called(head(e), "schedule") => {
                let help = "move it to the end of the function";
                self.fault(codes::MISPLACED, e, "a schedule comes last", "inside a block", help)
            }
            Expr::MethodCall(_) => self.transfer(e).map(ast::Stmt::Transfer),
            Expr::While(_) | Expr::Loop(_) => {
                let help = "write `for k in 0..count`: how often is known from the number of ranks";
                self.foreign(e, "a loop without bounds", help)
            }
            e if assigns(e) => {
                let help = "a variable keeps its value: name the next one with another `let`";
                self.foreign(e, "an assignment", help)
            }
            e => {
                let help =
                    "write `r.to(p).copy(data[i])`, `each(|r| …)`, `for`, `if`, `run(…)` or `let`";
                self.fault(codes::SYNTAX, e, "this moves nothing", "not a statement", help)
            }
        }
    }

    /// Reads a block's statements, or the one that an expression is.
    fn inside(&mut self, e: &Expr) -> Vec<ast::Stmt> {
        match e {
            Expr::Block(b) if b.label.is_none() => self.block(&b.block),
            e => self.deeper(e, |this| this.doing(e)).into_iter().collect(),
        }
    }

    /// Reads `each(|r| …)` or `each(|(i, g)| …)`.
    fn each(&mut self, e: &Expr, call: &syn::ExprCall) -> Option<ast::Stmt> {
        let form = "each(|r| r.to(…).copy(…))";
        let closure = self.only(call, form).and_then(|c| self.closure(c, form))?;
        let pat = closure.inputs.first()?;
        let vars = self.variables(pat)?;
        // From `each` to the names: the head.
        let span = Span { end: self.span(pat).end, ..self.span(e) };
        let body = self.inside(&closure.body);
        Some(ast::Stmt::Each(ast::EachStmt { vars, filter: None, body, span }))
    }

    /// Reads `split(data, 0..2, |part| …)`, `split(data, paths, |p| …)` or `split(data, paths.by(bandwidth), |p| …)`.
    fn split(&mut self, e: &Expr, call: &syn::ExprCall) -> Option<ast::Stmt> {
        let form = "split(data, 0..2, |part| { … })";
        let [buffer, range, closure] = call.args.iter().collect::<Vec<_>>()[..] else {
            let message = format!("three arguments belong here, not {}", call.args.len());
            return self.fault(codes::ARITY, e, message, "called here", format!("write `{form}`"));
        };
        let Expr::Path(path) = buffer else {
            return self.foreign(buffer, "this", &format!("write `{form}`"));
        };
        let buffer = path.path.get_ident().map(|i| self.name(i))?;
        let end = self.span(range).end;
        let (range, weight) = match range {
            Expr::MethodCall(by) if by.method == "by" && by.args.len() == 1 => {
                (&*by.receiver, by.args.first())
            }
            range => (range, None),
        };
        let range = match named(range, "paths") {
            true => None,
            false => Some(self.range(range)?),
        };
        let closure = self.closure(closure, form)?;
        let ident = self.variable(closure.inputs.first()?)?;
        let span = Span { end, ..self.span(e) };
        let var = self.name(ident);
        let by = match weight {
            Some(weight) => Some(self.weight(weight, &var)?),
            None => None,
        };
        let body = self.inside(&closure.body);
        Some(ast::Stmt::Split(ast::SplitStmt { buffer, var, range, by, body, span }))
    }

    /// Reads `bandwidth`, of the part's own path.
    fn weight(&mut self, weight: &Expr, var: &ast::SpannedName) -> Option<ast::Expr> {
        let Expr::Path(path) = weight else {
            return self.foreign(weight, "this", "write `paths.by(bandwidth)`");
        };
        let name = path.path.get_ident().map(|i| self.name(i))?;
        let span = self.span(weight);
        let own = ast::Expr { kind: ast::ExprKind::Name(var.text.clone()), span };
        Some(ast::Expr { kind: ast::ExprKind::Call(name, vec![own]), span })
    }

    /// Reads a closure with one parameter.
    fn closure<'t>(&mut self, e: &'t Expr, form: &str) -> Option<&'t ExprClosure> {
        match e {
            Expr::Closure(c) if c.inputs.len() == 1 => Some(c),
            e => {
                let message = "a closure with one parameter belongs here";
                self.fault(codes::SYNTAX, e, message, "not one", format!("write `{form}`"))
            }
        }
    }

    /// Reads a name, or several in parentheses.
    fn variables(&mut self, pat: &Pat) -> Option<Vec<SpannedName>> {
        let pats: Vec<&Pat> = match pat {
            Pat::Tuple(t) => t.elems.iter().collect(),
            pat => vec![pat],
        };
        let idents: Option<Vec<_>> = pats.into_iter().map(|p| self.variable(p)).collect();
        Some(idents?.into_iter().map(|i| self.name(i)).collect())
    }

    /// Reads `a..b` or `a..=b`.
    pub(super) fn range(&mut self, e: &Expr) -> Option<(ast::Expr, ast::Expr)> {
        match e {
            Expr::Paren(p) => self.range(&p.expr),
            Expr::Group(g) => self.range(&g.expr),
            Expr::Range(r) => {
                let (Some(from), Some(to)) = (&r.start, &r.end) else {
                    let help = "write both ends: `0..n`";
                    return self.fault(codes::SYNTAX, e, "the range is open", "where?", help);
                };
                let (from, to) = (self.expr(from), self.expr(to));
                let to = match r.limits {
                    RangeLimits::HalfOpen(_) => to?,
                    RangeLimits::Closed(_) => after(to?),
                };
                Some((from?, to))
            }
            Expr::MethodCall(m) => {
                let help = "write a range, `a..b`, and an `if` for what is to be left out";
                self.foreign(&m.method, "an iterator", help)
            }
            e => self.fault(codes::SYNTAX, e, "a range belongs here", "no range", "write `a..b`"),
        }
    }

    /// Reports an unknown word among several, with the nearest known one in the help.
    pub(super) fn unknown_part<T>(
        &mut self,
        word: &impl ToTokens,
        of: &str,
        known: &[&str],
    ) -> Option<T> {
        let text = word.to_token_stream().to_string();
        let near = roundelay_dsl::diag::similar(&text, known.iter().copied());
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("what may follow is {}", known.join(", ")),
        };
        self.fault(codes::SYNTAX, word, format!("{of} has no `{text}`"), "not known", help)
    }
}

/// Returns true for `x = e` and `x += e`.
fn assigns(e: &Expr) -> bool {
    match e {
        Expr::Assign(_) => true,
        Expr::Binary(b) => operator(&b.op).is_none(),
        _ => false,
    }
}

/// Returns the number after this one.
pub(super) fn after(e: ast::Expr) -> ast::Expr {
    let span = e.span;
    let one = ast::Expr { kind: ExprKind::Int(1), span };
    ast::Expr { kind: ExprKind::Binary(ast::BinOp::Add, Box::new(e), Box::new(one)), span }
}
