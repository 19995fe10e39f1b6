//! Declared collectives: postconditions as rules over ranks.

use std::sync::Arc;

use roundelay_dsl::ast;
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::SourceId;

use super::names::{VariableNames, axes, coordinates};
use super::region::{index, rank_expr};
use super::resolver::ProgramResolver;
use crate::program::{
    CustomCollective, EnsureClause, ExprNode, RankAxes, RuleBinder, Slot, SlotExpr,
};

impl ProgramResolver<'_> {
    /// Returns the collective declared under this name, as the file sees it.
    pub(super) fn custom(&mut self, id: SourceId, name: &str) -> Option<Arc<CustomCollective>> {
        let declared = self.scope(id).collectives.get(name).cloned()?;
        let key = (declared.span.source, name.to_string());
        if let Some(done) = self.customs.get(&key) {
            return Some(done.clone());
        }
        let custom = Arc::new(self.custom_inner(declared.span.source, &declared)?);
        self.customs.insert(key, custom.clone());
        Some(custom)
    }

    fn custom_inner(&mut self, id: SourceId, c: &ast::CollectiveDecl) -> Option<CustomCollective> {
        let before = self.diagnostics.len();
        let mut names = VariableNames::new();
        let ranks = axes(&mut names, &c.axes);
        let one = SlotExpr { node: ExprNode::Int(1), span: c.name.span };
        let input = match &c.input {
            Some(e) => self.number(id, &mut names, e)?,
            None => one.clone(),
        };
        let output = match &c.output {
            Some(e) => self.number(id, &mut names, e)?,
            None => one,
        };
        let mut ensures = Vec::new();
        self.ensures(id, &mut names, &ranks, &c.body, None, &mut Vec::new(), &mut ensures);
        if ensures.is_empty() && self.diagnostics.len() == before {
            self.report(
                Diagnostic::error(
                    codes::MISPLACED,
                    format!("collective `{}` asks for nothing", c.name.text),
                )
                .label(c.name.span, "has no postcondition")
                .help("write `each r { output[0] = input[0] at … }`"),
            );
        }
        if let Some(d) = names.full(c.name.span) {
            self.report(d);
        }
        if self.diagnostics.len() != before {
            return None;
        }
        Some(CustomCollective {
            name: c.name.text.clone(),
            axes: ranks,
            input,
            output,
            ensures,
            slots: names.slots,
            span: c.name.span,
        })
    }

    #[allow(clippy::too_many_arguments, reason = "the state of one recursive descent")]
    fn ensures(
        &mut self,
        id: SourceId,
        names: &mut VariableNames,
        ranks: &RankAxes,
        stmts: &[ast::Stmt],
        var: Option<Slot>,
        binders: &mut Vec<RuleBinder>,
        out: &mut Vec<EnsureClause>,
    ) {
        let (depth, bound) = (names.visible.len(), binders.len());
        for s in stmts {
            match s {
                ast::Stmt::Let(name, e) => {
                    if let Some((e, truth)) = self.any(id, names, e) {
                        binders.push(RuleBinder::Let(names.bind(&name.text, truth), e));
                    }
                }
                ast::Stmt::For(f) => {
                    let from = self.number(id, names, &f.from);
                    let to = self.number(id, names, &f.to);
                    let inner = (names.visible.len(), binders.len());
                    let slot = names.bind(&f.var.text, false);
                    if let (Some(from), Some(to)) = (from, to) {
                        binders.push(RuleBinder::For(slot, from, to));
                        if let Some(c) = &f.filter
                            && let Some(c) = self.truth(id, names, c)
                        {
                            binders.push(RuleBinder::Where(c));
                        }
                        self.ensures(id, names, ranks, &f.body, var, binders, out);
                    }
                    names.visible.truncate(inner.0);
                    binders.truncate(inner.1);
                }
                ast::Stmt::If(i) => {
                    if let Some(c) = self.truth(id, names, &i.cond) {
                        let at = binders.len();
                        binders.push(RuleBinder::Where(c.clone()));
                        self.ensures(id, names, ranks, &i.then, var, binders, out);
                        binders.truncate(at);
                        let span = c.span;
                        let not = ExprNode::Unary(ast::UnOp::Not, Box::new(c));
                        binders.push(RuleBinder::Where(SlotExpr { node: not, span }));
                        self.ensures(id, names, ranks, &i.otherwise, var, binders, out);
                        binders.truncate(at);
                    }
                }
                ast::Stmt::Each(e) if var.is_none() => {
                    self.each_ensures(id, names, ranks, e, binders, out);
                }
                ast::Stmt::Ensure(e) if var.is_some() => {
                    if let Some(e) = self.ensure(id, names, ranks, e, var, binders) {
                        out.push(e);
                    }
                }
                ast::Stmt::Ensure(e) => self.report(
                    Diagnostic::error(codes::MISPLACED, "a postcondition belongs into an `each`")
                        .label(e.span, "of which rank?")
                        .help("write `each r where r == 0 { … }`"),
                ),
                _ => self.report(
                    Diagnostic::error(
                        codes::MISPLACED,
                        "a collective says what must hold, not what moves",
                    )
                    .label(stmt_span(s), "not a postcondition")
                    .help("write `output[…] = input[…] at …`"),
                ),
            }
        }
        names.visible.truncate(depth);
        binders.truncate(bound);
    }

    fn each_ensures(
        &mut self,
        id: SourceId,
        names: &mut VariableNames,
        ranks: &RankAxes,
        e: &ast::EachStmt,
        binders: &mut Vec<RuleBinder>,
        out: &mut Vec<EnsureClause>,
    ) {
        let (depth, bound) = (names.visible.len(), binders.len());
        let slot =
            if e.vars.len() == 1 { names.bind(&e.vars[0].text, false) } else { names.hidden() };
        if e.vars.len() > 1 && e.vars.len() == ranks.names.len() {
            let span = e.span;
            let v = |slot| SlotExpr { node: ExprNode::Var(slot), span };
            for (i, name) in e.vars.iter().enumerate() {
                let op = |op, a, b| SlotExpr {
                    node: ExprNode::Binary(op, Box::new(a), Box::new(b)),
                    span,
                };
                let mut value = v(slot);
                for &size in ranks.sizes[i + 1..].iter().rev() {
                    value = op(ast::BinOp::Div, value, v(size));
                }
                value = op(ast::BinOp::Mod, value, v(ranks.sizes[i]));
                binders.push(RuleBinder::Let(names.bind(&name.text, false), value));
            }
        }
        names.coordinates = coordinates(ranks, slot, e.span);
        if let Some(c) = &e.filter
            && let Some(c) = self.truth(id, names, c)
        {
            binders.push(RuleBinder::Where(c));
        }
        self.ensures(id, names, ranks, &e.body, Some(slot), binders, out);
        names.coordinates.clear();
        names.visible.truncate(depth);
        binders.truncate(bound);
    }

    fn ensure(
        &mut self,
        id: SourceId,
        names: &mut VariableNames,
        ranks: &RankAxes,
        e: &ast::EnsureClause,
        var: Option<Slot>,
        binders: &[RuleBinder],
    ) -> Option<EnsureClause> {
        for (region, want) in [(&e.target, "output"), (&e.source, "input")] {
            if region.buffer.text != want {
                self.report(
                    Diagnostic::error(
                        codes::MISPLACED,
                        "a postcondition reads `output[…] = input[…] at …`",
                    )
                    .label(region.buffer.span, format!("must be `{want}`")),
                );
                return None;
            }
        }
        let target = index(self, id, names, e.target.index.as_ref())?;
        let depth = names.visible.len();
        let reduce = match &e.reduce {
            None => None,
            Some(red) => {
                let (from, to) =
                    (self.number(id, names, &red.from)?, self.number(id, names, &red.to)?);
                let slot = names.bind(&red.var.text, false);
                let filter = match &red.filter {
                    Some(f) => Some(self.truth(id, names, f)?),
                    None => None,
                };
                Some((slot, from, to, filter))
            }
        };
        let source = index(self, id, names, e.source.index.as_ref())?;
        let at = rank_expr(self, id, names, ranks, &e.at)?;
        names.visible.truncate(depth);
        Some(EnsureClause {
            var,
            binders: binders.to_vec(),
            target,
            source,
            reduce,
            at,
            span: e.span,
        })
    }
}

/// Returns the span of a statement.
fn stmt_span(s: &ast::Stmt) -> roundelay_dsl::span::Span {
    match s {
        ast::Stmt::Let(n, _) => n.span,
        ast::Stmt::For(f) => f.span,
        ast::Stmt::If(i) => i.span,
        ast::Stmt::Each(e) => e.span,
        ast::Stmt::Transfer(t) => t.span,
        ast::Stmt::Use(u) => u.span,
        ast::Stmt::Split(s) => s.span,
        ast::Stmt::Ensure(e) => e.span,
    }
}
