//! Expressions: names, arity, types; calls of `fn` become bindings in place.

use roundelay_dsl::MAX_DEPTH;
use roundelay_dsl::ast::{self, BinOp, ExprKind, UnOp};
use roundelay_dsl::diag::{Diagnostic, codes, similar};
use roundelay_dsl::span::SourceId;

use super::names::VariableNames;
use super::resolver::ProgramResolver;
use crate::program::{BUILTINS, ExprNode, SlotExpr};

/// The type that an expression is expected to have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExprType {
    Number,
    Truth,
    Any,
}

/// Functions being expanded, to find recursion; and how large and how deep the expansion grew.
#[derive(Default)]
pub(super) struct FunctionExpansion {
    stack: Vec<String>,
    nodes: usize,
    depth: usize,
}

/// More nodes than this in one expression are refused: nested calls multiply.
const MAX_NODES: usize = 20_000;

/// Deeper expressions are refused: functions that call functions nest what a text does not. What walks over expressions
/// calls itself for each level.
const MAX_NESTED: usize = 2 * MAX_DEPTH;

/// Returns the diagnostic for a condition on the operator that is written otherwise than `requires
/// commutative(op)`.
fn commutative(name: &ast::SpannedName, args: &[ast::Expr], e: &ast::Expr) -> Diagnostic {
    let whole = matches!(args, [ast::Expr { kind: ExprKind::Name(op), .. }] if op == "op");
    let d = if whole {
        let message = "`commutative(op)` is a clause of its own, and no value";
        Diagnostic::error(codes::MISPLACED, message).label(e.span, "misplaced")
    } else {
        let given = args.first().map_or(name.span, |arg| arg.span);
        let message = "`commutative` asks for the operator of the call, which is named `op`";
        Diagnostic::error(codes::UNKNOWN_NAME, message).label(given, "not `op`")
    };
    d.note("an algorithm names no operator: `sum`, `max` and the others belong to the call")
        .help("write `requires commutative(op)`; any other `requires` is a condition on the ranks, such as `pow2(n)`")
}

impl ProgramResolver<'_> {
    /// Resolves an expression that is a number.
    pub(super) fn number(
        &mut self,
        id: SourceId,
        names: &mut VariableNames,
        e: &ast::Expr,
    ) -> Option<SlotExpr> {
        self.expr(id, names, e, ExprType::Number, &mut FunctionExpansion::default()).map(|(e, _)| e)
    }

    /// Resolves an expression that is a truth value.
    pub(super) fn truth(
        &mut self,
        id: SourceId,
        names: &mut VariableNames,
        e: &ast::Expr,
    ) -> Option<SlotExpr> {
        self.expr(id, names, e, ExprType::Truth, &mut FunctionExpansion::default()).map(|(e, _)| e)
    }

    /// Resolves an expression; also returns true if it is a truth value.
    pub(super) fn any(
        &mut self,
        id: SourceId,
        names: &mut VariableNames,
        e: &ast::Expr,
    ) -> Option<(SlotExpr, bool)> {
        self.expr(id, names, e, ExprType::Any, &mut FunctionExpansion::default())
    }

    fn expr(
        &mut self,
        id: SourceId,
        names: &mut VariableNames,
        e: &ast::Expr,
        want: ExprType,
        x: &mut FunctionExpansion,
    ) -> Option<(SlotExpr, bool)> {
        x.nodes += 1;
        let refusal = if x.nodes > MAX_NODES {
            Some(("large", "give parts of it names with `let`: what has a name is evaluated once"))
        } else if x.depth > MAX_NESTED {
            Some(("deep", "let fewer functions call each other, each with fewer variables"))
        } else {
            None
        };
        if let Some((how, help)) = refusal {
            let message = format!("the expression grows too {how} when its functions are expanded");
            self.report(
                Diagnostic::error(codes::TOO_LARGE, message).label(e.span, "here").help(help),
            );
            return None;
        }
        x.depth += 1;
        let found = self.expr_within(id, names, e, want, x);
        x.depth -= 1;
        found
    }

    fn expr_within(
        &mut self,
        id: SourceId,
        names: &mut VariableNames,
        e: &ast::Expr,
        want: ExprType,
        x: &mut FunctionExpansion,
    ) -> Option<(SlotExpr, bool)> {
        let (node, truth) = match &e.kind {
            ExprKind::Int(v) => (ExprNode::Int(*v), false),
            ExprKind::Truth(value) => (ExprNode::Int((*value).into()), true),
            ExprKind::Name(name) => match names.find(name) {
                Some((slot, truth)) => (ExprNode::Var(slot), truth),
                None => match (names.coordinate(name), self.scope(id).constants.get(name)) {
                    (Some(coordinate), _) => (coordinate.node.clone(), false),
                    (None, Some(constant)) => {
                        let (value, truth) = self.constant(constant)?;
                        (ExprNode::Int(value), truth)
                    }
                    (None, None) => {
                        self.unknown(id, names, name, e);
                        return None;
                    }
                },
            },
            ExprKind::Field(base, field) => {
                let full = format!("{}.{}", base.text, field.text);
                let Some((slot, truth)) = names.find(&full) else {
                    self.unknown(id, names, &full, e);
                    return None;
                };
                (ExprNode::Var(slot), truth)
            }
            ExprKind::Unary(op, a) => {
                let want = if *op == UnOp::Not { ExprType::Truth } else { ExprType::Number };
                let (a, _) = self.expr(id, names, a, want, x)?;
                (ExprNode::Unary(*op, Box::new(a)), *op == UnOp::Not)
            }
            ExprKind::Binary(op, a, b) => {
                let logic = matches!(op, BinOp::And | BinOp::Or);
                let compare = matches!(
                    op,
                    BinOp::Eq | BinOp::Ne | BinOp::Lt | BinOp::Le | BinOp::Gt | BinOp::Ge
                );
                let want = if logic { ExprType::Truth } else { ExprType::Number };
                let a = self.expr(id, names, a, want, x);
                let b = self.expr(id, names, b, want, x);
                (ExprNode::Binary(*op, Box::new(a?.0), Box::new(b?.0)), logic || compare)
            }
            ExprKind::If(c, a, b) => {
                let (c, _) = self.expr(id, names, c, ExprType::Truth, x)?;
                let (a, truth) = self.expr(id, names, a, want, x)?;
                let same = if truth { ExprType::Truth } else { ExprType::Number };
                let (b, _) = self.expr(id, names, b, same, x)?;
                (ExprNode::If(Box::new(c), Box::new(a), Box::new(b)), truth)
            }
            ExprKind::Call(name, args) => self.call(id, names, name, args, e, x)?,
        };
        let wrong = match want {
            ExprType::Number => truth,
            ExprType::Truth => !truth,
            ExprType::Any => false,
        };
        if wrong {
            let (is, should) =
                if truth { ("a truth value", "a number") } else { ("a number", "a truth value") };
            self.report(
                Diagnostic::error(codes::TYPE, format!("{should} is needed here"))
                    .label(e.span, format!("this is {is}"))
                    .help(if truth {
                        "write `if … { 1 } else { 0 }` to make a number of it"
                    } else {
                        "compare it, as in `… != 0`"
                    }),
            );
            return None;
        }
        Some((SlotExpr { node, span: e.span }, truth))
    }

    fn call(
        &mut self,
        id: SourceId,
        names: &mut VariableNames,
        name: &ast::SpannedName,
        args: &[ast::Expr],
        e: &ast::Expr,
        x: &mut FunctionExpansion,
    ) -> Option<(ExprNode, bool)> {
        let wrong_count = |this: &mut Self, takes: String| {
            this.report(
                Diagnostic::error(
                    codes::ARITY,
                    format!("`{}` takes {takes}, not {}", name.text, args.len()),
                )
                .label(e.span, "called here"),
            );
        };
        let plural = |n: usize| format!("{n} argument{}", if n == 1 { "" } else { "s" });
        if let Some(f) = self.scope(id).functions.get(&name.text).cloned() {
            if f.params.len() != args.len() {
                wrong_count(self, plural(f.params.len()));
                return None;
            }
            if x.stack.contains(&name.text) {
                self.report(
                    Diagnostic::error(codes::RECURSION, format!("function `{}` calls itself", name.text))
                        .label(name.span, "called again here")
                        .label(f.name.span, "declared here")
                        .help("functions cannot recurse; use a closed form or a built-in such as `pow` or `log2`"),
                );
                return None;
            }
            let mut bound = Vec::new();
            for arg in args {
                bound.push(self.expr(id, names, arg, ExprType::Number, x)?.0);
            }
            return self.expand(names, &f, bound, x);
        }
        if name.text == "commutative" {
            self.report(commutative(name, args, e));
            return None;
        }
        let Some(&(_, builtin, arity, truth)) = BUILTINS.iter().find(|b| b.0 == name.text) else {
            let scope = self.scope(id);
            let known =
                BUILTINS.iter().map(|b| b.0).chain(scope.functions.keys().map(String::as_str));
            let mut d = Diagnostic::error(
                codes::UNKNOWN_NAME,
                format!("no function is named `{}`", name.text),
            )
            .label(name.span, "not known");
            if let Some(near) = similar(&name.text, known) {
                d = d.help(format!("did you mean `{near}`?"));
            }
            self.report(d);
            return None;
        };
        if arity.is_some_and(|a| a != args.len())
            || args.is_empty()
            || (arity.is_none() && args.len() < 2)
        {
            wrong_count(self, arity.map_or("two arguments or more".into(), plural));
            return None;
        }
        let mut list = Vec::new();
        for arg in args {
            list.push(self.expr(id, names, arg, ExprType::Number, x)?.0);
        }
        Some((ExprNode::Call(builtin, list), truth))
    }

    /// Resolves the body of a function with its parameters bound; it sees nothing else of the caller.
    fn expand(
        &mut self,
        names: &mut VariableNames,
        f: &ast::FnDef,
        args: Vec<SlotExpr>,
        x: &mut FunctionExpansion,
    ) -> Option<(ExprNode, bool)> {
        let home = f.span.source;
        let caller = std::mem::take(&mut names.visible);
        let coordinates = std::mem::take(&mut names.coordinates);
        x.stack.push(f.name.text.clone());
        let mut bound = Vec::new();
        for (param, arg) in f.params.iter().zip(args) {
            let slot = names.hidden();
            bound.push((param.text.clone(), slot, false, arg));
        }
        let depth = x.depth;
        x.depth += bound.len();
        names.visible = bound.iter().map(|(n, s, t, _)| (n.clone(), *s, *t)).collect();
        let mut ok = true;
        for (name, value) in &f.lets {
            match self.expr(home, names, value, ExprType::Any, x) {
                Some((value, truth)) => {
                    let slot = names.hidden();
                    names.visible.push((name.text.clone(), slot, truth));
                    bound.push((name.text.clone(), slot, truth, value));
                    x.depth += 1;
                }
                None => ok = false,
            }
        }
        let body = if ok { self.expr(home, names, &f.value, ExprType::Any, x) } else { None };
        x.depth = depth;
        x.stack.pop();
        names.visible = caller;
        names.coordinates = coordinates;
        let (body, truth) = body?;
        let nested = bound.into_iter().rev().fold(body, |body, (_, slot, _, value)| {
            let span = body.span;
            SlotExpr { node: ExprNode::Let(slot, Box::new(value), Box::new(body)), span }
        });
        Some((nested.node, truth))
    }

    /// Checks a function that may never be called.
    pub(super) fn check_function(&mut self, id: SourceId, f: &ast::FnDef) {
        let mut names = VariableNames::new();
        let zero = |span| SlotExpr { node: ExprNode::Int(0), span };
        let args = f.params.iter().map(|p| zero(p.span)).collect();
        let _ = id;
        self.expand(&mut names, f, args, &mut FunctionExpansion::default());
    }

    fn unknown(&mut self, id: SourceId, names: &VariableNames, name: &str, e: &ast::Expr) {
        let scope = self.scope(id);
        let visible = names.visible.iter().map(|(n, _, _)| n.as_str());
        let axes = names.coordinates.iter().map(|(n, _)| n.as_str());
        let constants = scope.constants.keys().map(String::as_str);
        let known: Vec<&str> = visible.chain(axes).chain(constants).collect();
        let mut d = Diagnostic::error(codes::UNKNOWN_NAME, format!("`{name}` is not declared"))
            .label(e.span, "not known here");
        d = match similar(name, known.iter().copied()) {
            Some(near) => d.help(format!("did you mean `{near}`?")),
            None if known.is_empty() => d,
            None => d.help(format!("known here: {}", known.join(", "))),
        };
        self.report(d);
    }
}
