//! Reads signatures, clauses, and the bodies of helper functions.

use roundelay_dsl::ast::{self, AxesClause, ConstantDecl, FileDeclaration, FnDef};
use roundelay_dsl::diag::{Diagnostic, codes};
use syn::{
    Expr, FnArg, Ident, ItemConst, ItemFn, Local, Pat, PatType, ReturnType, Signature, Stmt, Type,
};

use super::PieceParser;
use crate::prototype::{AttributeWords, MacroRole};

/// The clauses before the first statement of an algorithm, and its schedule.
#[derive(Default)]
struct AlgorithmClauses {
    requires: Vec<ast::Expr>,
    tolerates: Option<ast::Expr>,
    chunks: Option<ast::Expr>,
    scratch: Vec<ast::ScratchDecl>,
    /// The `let`s before the last of them.
    lets: Vec<(ast::SpannedName, ast::Expr)>,
    schedule: Option<ast::ScheduleClause>,
}

impl PieceParser<'_> {
    /// Adds what a marked function declares, the function itself first.
    pub(super) fn function(
        &mut self,
        role: MacroRole,
        attribute: &AttributeWords,
        function: &ItemFn,
        items: &mut Vec<FileDeclaration>,
    ) {
        let at = items.len();
        let own = match role {
            MacroRole::Function => self.helper(function).map(FileDeclaration::Fn),
            MacroRole::Algorithm => {
                self.algorithm(attribute, function, items).map(FileDeclaration::Algorithm)
            }
        };
        if let Some(own) = own {
            items.insert(at, own);
        }
    }

    fn algorithm(
        &mut self,
        attribute: &AttributeWords,
        function: &ItemFn,
        items: &mut Vec<FileDeclaration>,
    ) -> Option<ast::AlgorithmDecl> {
        let sig = &function.sig;
        self.plain(sig);
        if let ReturnType::Type(_, ty) = &sig.output {
            let help = "leave the return type out: an algorithm moves data";
            self.foreign::<()>(ty, "a return type", help);
        }
        let axes = self.axes(sig);
        let parameters = self.parameters(attribute, sig);
        self.ended(&function.block.stmts);
        let (clauses, body) = self.clauses(&function.block.stmts, items);
        Some(ast::AlgorithmDecl {
            docs: docs(&function.attrs),
            name: self.name(&sig.ident),
            parameters,
            collective: self.name(attribute.collective.as_ref()?),
            axes: axes?,
            requires: clauses.requires,
            tolerates: clauses.tolerates,
            chunks: clauses.chunks,
            scratch: clauses.scratch,
            lets: clauses.lets,
            body,
            schedule: clauses.schedule,
            header: self.span(sig),
            span: self.span(function).to(self.span(sig)),
        })
    }

    /// Refuses what no function of ours has: `const`, `async`, an ABI, generic parameters.
    fn plain(&mut self, sig: &Signature) {
        let help = "write `fn name(…) { … }`";
        if let Some(word) = &sig.constness {
            self.foreign::<()>(word, "`const`", help);
        }
        if let Some(word) = &sig.asyncness {
            self.foreign::<()>(word, "`async`", help);
        }
        if let Some(word) = &sig.abi {
            self.foreign::<()>(word, "an ABI", help);
        }
        if !sig.generics.params.is_empty() {
            let help =
                "element type and operator belong to the call: there is nothing to be generic over";
            self.foreign::<()>(&sig.generics, "a generic parameter", help);
        }
    }

    /// Reads `n: Ranks`, or one `Axis` an axis.
    fn axes(&mut self, sig: &Signature) -> Option<AxesClause> {
        let mut names = Vec::new();
        let mut flat = false;
        for input in &sig.inputs {
            let (ident, ty) = self.parameter(input)?;
            match last_segment(ty).as_deref() {
                Some("Ranks") => flat = true,
                Some("Axis") => {}
                // A parameter.
                Some("i64" | "bool") => continue,
                _ => {
                    let help = "write `n: Ranks`, or one `name: Axis` for each axis of a grid; parameters are `i64` or \
                                `bool`";
                    return self.fault(
                        codes::SYNTAX,
                        ty,
                        "an algorithm runs on `Ranks`, or on axes",
                        "neither `Ranks` nor `Axis`",
                        help,
                    );
                }
            }
            names.push(self.name(ident));
        }
        if names.is_empty() || (flat && names.len() > 1) {
            let help = "write `(n: Ranks)`, or `(node: Axis, gpu: Axis)`, the slowest first";
            let message = "the parameters do not say what the ranks are";
            return self.fault(codes::SYNTAX, &sig.ident, message, "on which ranks?", help);
        }
        let span = self.span(sig);
        match flat {
            true => names.pop().map(AxesClause::Flat),
            false => Some(AxesClause::Grid(names, span)),
        }
    }

    /// Reads the parameters: what is neither ranks nor an axis, with the defaults that the attribute gives.
    fn parameters(
        &mut self,
        attribute: &AttributeWords,
        sig: &Signature,
    ) -> Vec<ast::ParameterDecl> {
        let mut parameters = Vec::new();
        for input in &sig.inputs {
            let Some((ident, ty)) = self.parameter(input) else { continue };
            let truth = match last_segment(ty).as_deref() {
                Some("i64") => false,
                Some("bool") => true,
                _ => continue,
            };
            let Some(given) = attribute.parameters.iter().find(|p| p.name == *ident) else {
                let default = if truth { "false" } else { "2" };
                let help = format!(
                    "write `parameters({ident} = {default})` behind the collective, in the attribute"
                );
                let message = format!("parameter `{ident}` has no default");
                self.fault::<()>(
                    codes::SYNTAX,
                    ident,
                    message,
                    "which value, where none is given?",
                    help,
                );
                continue;
            };
            let bounds = given.bounds.as_ref();
            let bounds = bounds.and_then(|(a, b)| Some((self.expr(a)?, self.expr(b)?)));
            let name = self.name(&given.name);
            let span = self.span(&given.tokens);
            if let Some(default) = self.expr(&given.default) {
                parameters.push(ast::ParameterDecl { name, default, bounds, span });
            }
        }
        for given in &attribute.parameters {
            let is_own = |input: &FnArg| {
                matches!(input, FnArg::Typed(PatType { pat, .. })
                if matches!(&**pat, Pat::Ident(p) if p.ident == given.name))
            };
            if !sig.inputs.iter().any(is_own) {
                let help = format!(
                    "write `{}: i64`, or `: bool`, among those of the function",
                    given.name
                );
                let message = format!("`{}` is no parameter of the function", given.name);
                self.fault::<()>(codes::UNKNOWN_NAME, &given.name, message, "not known", help);
            }
        }
        parameters
    }

    fn parameter<'t>(&mut self, input: &'t FnArg) -> Option<(&'t Ident, &'t Type)> {
        match input {
            FnArg::Typed(PatType { pat, ty, .. }) => Some((self.variable(pat)?, ty)),
            FnArg::Receiver(this) => self.foreign(this, "`self`", "write a free function"),
        }
    }

    /// Reads a name without `mut`, `ref` or parts.
    pub(super) fn variable<'t>(&mut self, pat: &'t Pat) -> Option<&'t Ident> {
        match pat {
            Pat::Ident(p) if p.by_ref.is_none() && p.subpat.is_none() => {
                if let Some(word) = &p.mutability {
                    let help = "a variable keeps its value: name the next one with another `let`";
                    return self.foreign(word, "`mut`", help);
                }
                Some(&p.ident)
            }
            Pat::Type(t) => self.variable(&t.pat),
            Pat::Paren(p) => self.variable(&p.pat),
            pat => self.foreign(pat, "this pattern", "write a name"),
        }
    }

    /// Clauses, then statements, then a schedule.
    fn clauses(
        &mut self,
        stmts: &[Stmt],
        items: &mut Vec<FileDeclaration>,
    ) -> (AlgorithmClauses, Vec<ast::Stmt>) {
        let (mut clauses, mut body) = (AlgorithmClauses::default(), Vec::new());
        for stmt in stmts {
            if let Stmt::Item(syn::Item::Fn(inner)) = stmt {
                items.extend(self.helper(inner).map(FileDeclaration::Fn));
                continue;
            }
            if let Stmt::Item(syn::Item::Const(inner)) = stmt {
                items.extend(self.constant(inner).map(FileDeclaration::Constant));
                continue;
            }
            let before = body.iter().all(|s| matches!(s, ast::Stmt::Let(..)));
            if self.clause(stmt, &mut clauses, before).is_some() {
                if before && clauses.schedule.is_none() {
                    let lets = body.drain(..).filter_map(|s| match s {
                        ast::Stmt::Let(name, value) => Some((name, value)),
                        _ => None,
                    });
                    clauses.lets.extend(lets);
                }
            } else {
                if let Some(schedule) = &clauses.schedule {
                    let d = Diagnostic::error(codes::MISPLACED, "a schedule comes last")
                        .label(schedule.span, "statements follow")
                        .help("move it to the end of the function");
                    if self.faults.iter().all(|f| f.span() != d.span()) {
                        self.faults.push(d);
                    }
                }
                self.statement(stmt, &mut body);
            }
        }
        (clauses, body)
    }

    /// Reads a clause; `None` if it is none.
    fn clause(&mut self, stmt: &Stmt, clauses: &mut AlgorithmClauses, first: bool) -> Option<()> {
        let (word, argument) = match stmt {
            Stmt::Local(local) => {
                let (name, size) = scratch(local)?;
                let name = self.variable(name).map(|n| self.name(n));
                let chunks = self.only(size, "scratch(n)").and_then(|e| self.expr(e));
                if let (Some(name), Some(chunks)) = (name, chunks) {
                    clauses.scratch.push(ast::ScratchDecl { name, chunks });
                }
                (&*size.func, None)
            }
            Stmt::Expr(e, _) => {
                let call = super::chain::head(e);
                if called(call, "schedule") {
                    let schedule = self.schedule(e);
                    if let (Some(before), Some(_)) = (&clauses.schedule, &schedule) {
                        self.twice("schedule", self.span(e), before.span);
                    }
                    clauses.schedule = schedule.or(clauses.schedule.take());
                    return Some(());
                }
                let Expr::Call(call) = e else { return None };
                match call.func.as_ref() {
                    f if ["chunks", "requires", "tolerates"].iter().any(|w| named(f, w)) => {
                        (f, Some(call))
                    }
                    _ => return None,
                }
            }
            _ => return None,
        };
        if !first {
            let message = "clauses come before what moves";
            let help = "move it to the top of the function";
            self.fault::<()>(codes::MISPLACED, word, message, "after a statement", help);
        }
        let Some(call) = argument else { return Some(()) };
        let (form, name, once) = match word {
            f if named(f, "chunks") => ("chunks(n)", "chunks", Some(&mut clauses.chunks)),
            f if named(f, "tolerates") => {
                ("tolerates(1)", "tolerates", Some(&mut clauses.tolerates))
            }
            _ => ("requires(c)", "requires", None),
        };
        let value = self.only(call, form);
        let Some(value) = value.and_then(|e| self.expr(e)) else { return Some(()) };
        match once {
            Some(Some(before)) => self.twice(name, value.span, before.span),
            Some(slot) => *slot = Some(value),
            None => clauses.requires.push(value),
        }
        Some(())
    }

    fn twice(
        &mut self,
        word: &str,
        again: roundelay_dsl::span::Span,
        first: roundelay_dsl::span::Span,
    ) {
        self.faults.push(
            Diagnostic::error(codes::MISPLACED, format!("`{word}` is given twice"))
                .label(again, "again")
                .label(first, "the first"),
        );
    }

    /// Returns the one argument of a call.
    pub(super) fn only<'t>(&mut self, call: &'t syn::ExprCall, form: &str) -> Option<&'t Expr> {
        if call.args.len() == 1 {
            return call.args.first();
        }
        let message = format!("one argument belongs here, not {}", call.args.len());
        self.fault(codes::ARITY, call, message, "called here", format!("write `{form}`"))
    }

    /// Reads `const MOST: i64 = 7;`.
    fn constant(&mut self, constant: &ItemConst) -> Option<ConstantDecl> {
        let (docs, name) = (docs(&constant.attrs), self.name(&constant.ident));
        let value = self.expr(&constant.expr)?;
        Some(ConstantDecl { docs, name, value, span: self.span(constant) })
    }

    /// Reads `fn f(a: i64, b: i64) -> i64 { let x = …; value }`.
    fn helper(&mut self, function: &ItemFn) -> Option<FnDef> {
        let sig = &function.sig;
        self.plain(sig);
        let mut params = Vec::new();
        for input in &sig.inputs {
            let (ident, _) = self.parameter(input)?;
            params.push(self.name(ident));
        }
        let mut lets = Vec::new();
        let mut value = None;
        for stmt in &function.block.stmts {
            match stmt {
                Stmt::Local(local) => lets.extend(self.binding(local)),
                Stmt::Expr(e, None) => value = self.expr(e),
                other => {
                    let help = "a helper is a row of `let`s and a value";
                    return self.foreign(other, "this statement of a helper", help);
                }
            }
        }
        if value.is_none() && self.faults.is_empty() {
            let help = "end it with an expression, without a semicolon";
            let message = format!("`{}` has no value", sig.ident);
            return self.fault(codes::SYNTAX, &sig.ident, message, "what does it give?", help);
        }
        let (docs, name) = (docs(&function.attrs), self.name(&sig.ident));
        Some(FnDef { docs, name, params, lets, value: value?, span: self.span(function) })
    }
}

/// Reads `let t = scratch(n);`.
fn scratch(local: &Local) -> Option<(&Pat, &syn::ExprCall)> {
    match local.init.as_ref().map(|i| i.expr.as_ref()) {
        Some(Expr::Call(call)) if named(&call.func, "scratch") => Some((&local.pat, call)),
        _ => None,
    }
}

/// Returns true if a path ends in this word.
pub(super) fn named(e: &Expr, word: &str) -> bool {
    matches!(e, Expr::Path(p) if p.path.segments.last().is_some_and(|s| s.ident == word))
}

/// Returns true if it is a call of this word.
pub(super) fn called(e: &Expr, word: &str) -> bool {
    matches!(e, Expr::Call(call) if named(&call.func, word))
}

/// Returns the last word of a type's path.
fn last_segment(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(p) => p.path.segments.last().map(|s| s.ident.to_string()),
        _ => None,
    }
}

/// Lines of documentation.
pub(super) fn docs(attributes: &[syn::Attribute]) -> Vec<String> {
    let line = |a: &syn::Attribute| match &a.meta {
        syn::Meta::NameValue(m) if a.path().is_ident("doc") => match &m.value {
            Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(s), .. }) => {
                Some(s.value().trim().to_string())
            }
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(line).collect()
}
