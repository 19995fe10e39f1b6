//! `each`: its body, flattened into rules that every rank follows.

use roundelay_dsl::ast;
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use super::body::AlgorithmBody;
use super::names::{coordinate, coordinates};
use super::resolver::ProgramResolver;
use crate::plan::WireType;
use crate::program::{
    EachRules, ExprNode, ProgramBuffer, RuleBinder, Slot, SlotExpr, TransferRule,
};

/// An `each` while its body is being flattened.
pub(super) struct FlatEach {
    var: Slot,
    binders: Vec<RuleBinder>,
    /// Slots that depend on the rank.
    dependent: Vec<Slot>,
    defs: Vec<(Slot, SlotExpr)>,
    pub(super) rules: Vec<TransferRule>,
}

impl FlatEach {
    /// Creates an empty set of rules, for a rank in this slot.
    pub(super) fn new(var: Slot) -> Self {
        FlatEach {
            var,
            binders: Vec::new(),
            dependent: vec![var],
            defs: Vec::new(),
            rules: Vec::new(),
        }
    }
}

impl AlgorithmBody {
    pub(super) fn each(
        &mut self,
        r: &mut ProgramResolver<'_>,
        e: &ast::EachStmt,
    ) -> Option<EachRules> {
        let depth = self.names.visible.len();
        let mut flat = if e.vars.len() == 1 {
            let var = self.names.bind(&e.vars[0].text, false);
            FlatEach::new(var)
        } else {
            if e.vars.len() != self.axes.names.len() {
                r.report(
                    Diagnostic::error(
                        codes::SHAPE,
                        format!("{} coordinates, but {} axes", e.vars.len(), self.axes.names.len()),
                    )
                    .label(e.span, "one name an axis, or one for the linear rank"),
                );
                return None;
            }
            let var = self.names.hidden();
            let mut flat = FlatEach::new(var);
            for (i, name) in e.vars.iter().enumerate() {
                let value = coordinate(&self.axes, i, var, e.span);
                let slot = self.names.bind(&name.text, false);
                flat.dependent.push(slot);
                flat.defs.push((slot, value.clone()));
                flat.binders.push(RuleBinder::Let(slot, value));
            }
            flat
        };
        self.names.coordinates = coordinates(&self.axes, flat.var, e.span);
        if let Some(filter) = &e.filter
            && let Some(f) = r.truth(self.id, &mut self.names, filter)
        {
            flat.binders.push(RuleBinder::Where(f));
        }
        self.flatten(r, &e.body, &mut flat);
        self.names.coordinates.clear();
        self.names.visible.truncate(depth);
        Some(EachRules {
            var: flat.var,
            rules: flat.rules,
            defs: flat.defs,
            once: false,
            span: e.span,
        })
    }

    /// Flattens statements of an `each` into rules.
    pub(super) fn flatten(
        &mut self,
        r: &mut ProgramResolver<'_>,
        stmts: &[ast::Stmt],
        flat: &mut FlatEach,
    ) {
        let (depth, binders) = (self.names.visible.len(), flat.binders.len());
        for s in stmts {
            match s {
                ast::Stmt::Let(name, e) => {
                    let value = r.any(self.id, &mut self.names, e);
                    let slot = self.names.bind(&name.text, value.as_ref().is_some_and(|v| v.1));
                    if let Some((e, _)) = value {
                        if e.depends_on(&flat.dependent) {
                            flat.dependent.push(slot);
                            flat.defs.push((slot, e.clone()));
                        }
                        flat.binders.push(RuleBinder::Let(slot, e));
                    }
                }
                ast::Stmt::For(f) => {
                    let from = r.number(self.id, &mut self.names, &f.from);
                    let to = r.number(self.id, &mut self.names, &f.to);
                    let inner = (self.names.visible.len(), flat.binders.len());
                    let slot = self.names.bind(&f.var.text, false);
                    if let (Some(from), Some(to)) = (from, to) {
                        flat.binders.push(RuleBinder::For(slot, from, to));
                        if let Some(filter) = &f.filter
                            && let Some(filter) = r.truth(self.id, &mut self.names, filter)
                        {
                            flat.binders.push(RuleBinder::Where(filter));
                        }
                        self.flatten(r, &f.body, flat);
                    }
                    self.names.visible.truncate(inner.0);
                    flat.binders.truncate(inner.1);
                }
                ast::Stmt::If(i) => {
                    if let Some(cond) = r.truth(self.id, &mut self.names, &i.cond) {
                        let at = flat.binders.len();
                        flat.binders.push(RuleBinder::Where(cond.clone()));
                        self.flatten(r, &i.then, flat);
                        flat.binders.truncate(at);
                        let span = cond.span;
                        let not = ExprNode::Unary(ast::UnOp::Not, Box::new(cond));
                        flat.binders.push(RuleBinder::Where(SlotExpr { node: not, span }));
                        self.flatten(r, &i.otherwise, flat);
                        flat.binders.truncate(at);
                    }
                }
                ast::Stmt::Transfer(t) => self.transfer(r, t, flat),
                ast::Stmt::Each(e) => self.misplaced(
                    r,
                    e.span,
                    "an `each` cannot stand in another",
                    "use `for p in 0..n` inside an `each`",
                ),
                ast::Stmt::Use(u) => self.misplaced(
                    r,
                    u.span,
                    "a `use` cannot stand in an `each`",
                    "write it outside; it runs on every group at once",
                ),
                ast::Stmt::Split(s) => self.misplaced(
                    r,
                    s.span,
                    "a `split` cannot stand in an `each`",
                    "write the `each` inside the `split`",
                ),
                ast::Stmt::Ensure(e) => self.misplaced(
                    r,
                    e.span,
                    "a postcondition belongs into a `collective`",
                    "write `a -> b : copy …` to move data",
                ),
            }
        }
        self.names.visible.truncate(depth);
        flat.binders.truncate(binders);
    }

    pub(super) fn misplaced(
        &self,
        r: &mut ProgramResolver<'_>,
        span: Span,
        what: &str,
        help: &str,
    ) {
        r.report(Diagnostic::error(codes::MISPLACED, what).label(span, "here").help(help));
    }

    pub(super) fn transfer(
        &mut self,
        r: &mut ProgramResolver<'_>,
        t: &ast::TransferStmt,
        flat: &mut FlatEach,
    ) {
        let src = self.rank(r, &t.src);
        let dst = self.rank(r, &t.dst);
        let from = self.region(r, &t.from);
        let to = match &t.to {
            Some(region) => self.region(r, region),
            None => from.clone(),
        };
        let wire = match &t.wire {
            None => None,
            Some(w) => {
                let wire = [WireType::F16, WireType::Bf16, WireType::F32]
                    .into_iter()
                    .find(|k| k.name() == w.text);
                if wire.is_none() {
                    r.report(
                        Diagnostic::error(
                            codes::UNKNOWN_WIRE,
                            format!("no wire type is named `{}`", w.text),
                        )
                        .label(w.span, "not known")
                        .help("wire types are f16, bf16 and f32"),
                    );
                }
                wire
            }
        };
        let (Some(src), Some(dst), Some(from), Some(to)) = (src, dst, from, to) else { return };
        if to.buf == ProgramBuffer::Input {
            r.report(
                Diagnostic::error(codes::MISPLACED, "`input` is never written")
                    .label(to.span, "written here")
                    .help("move to `output` or a scratch buffer: `copy input[…] -> output[…]`"),
            );
            return;
        }
        let uniform = flat.binders.iter().all(|b| match b {
            RuleBinder::For(_, from, to) => {
                !from.depends_on(&flat.dependent) && !to.depends_on(&flat.dependent)
            }
            _ => true,
        });
        flat.rules.push(TransferRule {
            binders: flat.binders.clone(),
            uniform,
            src,
            dst,
            op: t.op,
            from,
            to,
            wire,
            span: t.span,
        });
    }
}
