//! Reads chains of calls: `r.to(p).copy(input[i]).into(output[j]).wire::<bf16>()`, `run(…).over(node)`,
//! `schedule().pipeline(8)`.

use roundelay_compiler::program::COLLECTIVES;
use roundelay_dsl::ast::{self, TransferOp};
use roundelay_dsl::diag::{Diagnostic, codes};
use syn::{Expr, ExprLit, ExprMethodCall, GenericArgument, Lit, Type};

use super::PieceParser;

/// Returns the expression that a chain of calls begins with.
pub(super) fn head(e: &Expr) -> &Expr {
    let mut e = e;
    while let Expr::MethodCall(call) = e {
        e = &call.receiver;
    }
    e
}

/// Returns the calls of a chain, first to last.
fn links(e: &Expr) -> Vec<&ExprMethodCall> {
    let (mut e, mut links) = (e, Vec::new());
    while let Expr::MethodCall(call) = e {
        links.push(call);
        e = &call.receiver;
    }
    links.reverse();
    links
}

impl PieceParser<'_> {
    /// Reads `src.to(dst).copy(from).into(to).wire::<w>()`.
    pub(super) fn transfer(&mut self, e: &Expr) -> Option<ast::TransferStmt> {
        let links = links(e);
        let (first, rest) = links.split_first()?;
        let form = "write `r.to(p).copy(data[i])`, or `.reduce(data[i])`";
        if first.method != "to" {
            return self.unknown_part(&first.method, "what begins a statement", &["to"]);
        }
        let src = self.rank(&first.receiver);
        let dst = self.argument(first).and_then(|e| self.rank(e));
        let Some((action, rest)) = rest.split_first() else {
            return self.fault(codes::SYNTAX, e, "a transfer without data", "what is moved?", form);
        };
        let op = match action.method.to_string().as_str() {
            "copy" => TransferOp::Copy,
            "reduce" => TransferOp::Reduce,
            _ => return self.unknown_part(&action.method, "a transfer", &["copy", "reduce"]),
        };
        let from = self.argument(action).and_then(|e| self.region(e));
        let (mut to, mut wire) = (None, None);
        for link in rest {
            match link.method.to_string().as_str() {
                "into" if to.is_none() => {
                    to = Some(self.argument(link).and_then(|e| self.region(e))?);
                }
                "wire" if wire.is_none() => wire = Some(self.wire(link)?),
                "into" | "wire" => return self.again(link),
                _ => return self.unknown_part(&link.method, "a transfer", &["into", "wire"]),
            }
        }
        let span = self.span(e);
        Some(ast::TransferStmt { src: src?, dst: dst?, op, from: from?, to, wire, span })
    }

    /// Reads `wire::<bf16>()`.
    fn wire(&mut self, link: &ExprMethodCall) -> Option<ast::SpannedName> {
        let arguments = link.turbofish.as_ref().map(|t| t.args.iter().collect::<Vec<_>>());
        if let Some([GenericArgument::Type(Type::Path(p))]) = arguments.as_deref()
            && let Some(last) = p.path.segments.last()
            && link.args.is_empty()
        {
            return Some(self.name(&last.ident));
        }
        let help = "write `.wire::<bf16>()`, with `f16`, `bf16` or `f32`";
        self.fault(codes::SYNTAX, &link.method, "the wire has a type", "which?", help)
    }

    /// Reads `run(reduce_scatter::ring).over(gpu).on(data[a..b]).into(output).root(r).via(p)`.
    pub(super) fn used_part(&mut self, e: &Expr) -> Option<ast::UseStmt> {
        let form = "run(reduce_scatter::ring)";
        let Expr::Call(call) = head(e) else { return None };
        let Expr::Path(path) = self.only(call, form)? else {
            let help = format!("name an algorithm: `{form}`");
            return self.foreign(&call.args, "this", &help);
        };
        let mut words = path.path.segments.iter().rev().map(|s| &s.ident);
        let name = self.name(words.next()?);
        let mut collective = words.next().map(|w| self.name(w));
        let of_library =
            collective.as_ref().is_some_and(|c| COLLECTIVES.iter().any(|n| n.0 == c.text));
        if !of_library
            && let Some((_, own)) = self.parts.iter().find(|(part, _)| *part == name.text)
        {
            collective = Some(ast::SpannedName { text: own.clone(), span: name.span });
        }
        let mut out = ast::UseStmt {
            collective,
            name,
            arguments: Vec::new(),
            over: None,
            on: None,
            to: None,
            root: None,
            via: None,
            span: self.span(e),
        };
        for link in links(e) {
            if link.method == "with" {
                let argument = self.value_of(link)?;
                out.arguments.push(argument);
                continue;
            }
            let argument = self.argument(link)?;
            match link.method.to_string().as_str() {
                "over" if out.over.is_none() => {
                    let Expr::Path(axis) = argument else {
                        return self.foreign(argument, "this", "name an axis: `.over(gpu)`");
                    };
                    out.over = axis.path.get_ident().map(|i| self.name(i));
                }
                "on" if out.on.is_none() => out.on = Some(self.region(argument)?),
                "into" if out.to.is_none() && out.on.is_some() => {
                    out.to = Some(self.region(argument)?);
                }
                "root" if out.root.is_none() => out.root = Some(self.expr(argument)?),
                "via" if out.via.is_none() => out.via = Some(self.expr(argument)?),
                "over" | "on" | "root" | "via" => return self.again(link),
                "into" if out.to.is_some() => return self.again(link),
                "into" => {
                    let help = "write `.on(input).into(output)`";
                    let message = "a target without what it is read from";
                    return self.fault(codes::SYNTAX, &link.method, message, "from where?", help);
                }
                _ => {
                    let known = ["with", "over", "on", "into", "root", "via"];
                    return self.unknown_part(&link.method, "`run`", &known);
                }
            }
        }
        Some(out)
    }

    /// Reads `.with("k", 4)`.
    fn value_of(&mut self, link: &ExprMethodCall) -> Option<(ast::SpannedName, ast::Expr)> {
        let mut arguments = link.args.iter();
        if let (Some(Expr::Lit(ExprLit { lit: Lit::Str(name), .. })), Some(value), None) =
            (arguments.next(), arguments.next(), arguments.next())
        {
            let name = ast::SpannedName { text: name.value(), span: self.span(name) };
            return Some((name, self.expr(value)?));
        }
        let help = "write `.with(\"k\", 4)`: the parameter's name as a text, and its value";
        self.fault(
            codes::ARITY,
            &link.method,
            "this gives no parameter a value",
            "called here",
            help,
        )
    }

    /// Reads `schedule().pipeline(8).channels(2)`.
    pub(super) fn schedule(&mut self, e: &Expr) -> Option<ast::ScheduleClause> {
        let mut entries = Vec::new();
        for link in links(e) {
            let value = self.argument(link)?;
            entries.push((self.name(&link.method), self.expr(value)?));
        }
        Some(ast::ScheduleClause { entries, span: self.span(e) })
    }

    /// Returns the one argument of a link.
    fn argument<'t>(&mut self, link: &'t ExprMethodCall) -> Option<&'t Expr> {
        if link.args.len() == 1 {
            return link.args.first();
        }
        let name = &link.method;
        let message = format!("`{name}` takes 1 argument, not {}", link.args.len());
        self.fault(codes::ARITY, name, message, "called here", format!("write `.{name}(…)`"))
    }

    fn again<T>(&mut self, link: &ExprMethodCall) -> Option<T> {
        let message = format!("`{}` is given twice", link.method);
        let d = Diagnostic::error(codes::MISPLACED, message)
            .label(self.span(&link.method), "again")
            .help("leave one of them out");
        self.faults.push(d);
        None
    }
}
