//! Builds statements of the syntax tree, with the ranks and regions in them.

use super::build::{DeclarationKind, TreeBuilder};
use super::parts::NodeParts;
use super::{PestNode, Rule, limits};
use crate::ast::*;
use crate::diag::{Diagnostic, codes};
use crate::span::Span;

impl TreeBuilder<'_, '_> {
    pub(super) fn statements(
        &mut self,
        mut parts: NodeParts<'_>,
        context: DeclarationKind,
    ) -> Option<Vec<Stmt>> {
        self.statements_of(parts.all(Rule::stmt), context)
    }

    pub(super) fn statements_of(
        &mut self,
        nodes: Vec<PestNode<'_>>,
        context: DeclarationKind,
    ) -> Option<Vec<Stmt>> {
        let mut statements = Vec::with_capacity(nodes.len());
        for node in nodes {
            let node = NodeParts::of(node).next()?;
            self.check_context(&node, context);
            statements.push(self.statement(node, context)?);
        }
        Some(statements)
    }

    /// Reports a statement that has no meaning in this kind of declaration.
    fn check_context(&mut self, node: &PestNode<'_>, context: DeclarationKind) {
        let (word, help) = match (context, node.as_rule()) {
            (DeclarationKind::Algorithm, Rule::ensure) => (
                "an `output[…] = …`",
                "declare what must hold in a `collective`; move data with `a -> b : copy …`",
            ),
            (DeclarationKind::Collective, Rule::transfer) => {
                ("a transfer", "say what must hold: `output[i] = input[j] at r`")
            }
            (DeclarationKind::Collective, Rule::use_stmt) => ("`use`", "write it in an algorithm"),
            (DeclarationKind::Collective, Rule::split_stmt) => {
                ("`split`", "write it in an algorithm")
            }
            _ => return,
        };
        let (here, there) = match context {
            DeclarationKind::Algorithm => ("an algorithm", "a collective"),
            DeclarationKind::Collective => ("a collective", "an algorithm"),
        };
        let message = format!("{word} stands in {here}, but belongs in {there}");
        let span = self.span(node);
        self.faults.push(
            Diagnostic::error(codes::MISPLACED, message)
                .label(span, "has no meaning here")
                .help(help),
        );
    }

    fn block(&mut self, node: PestNode<'_>, context: DeclarationKind) -> Option<Vec<Stmt>> {
        if self.depth >= limits::MAX_DEPTH {
            let span = self.span(&node);
            self.too_deep(span);
            return Some(Vec::new());
        }
        self.depth += 1;
        let statements = self.statements(NodeParts::of(node), context);
        self.depth -= 1;
        statements
    }

    fn statement(&mut self, node: PestNode<'_>, context: DeclarationKind) -> Option<Stmt> {
        let span = self.span(&node);
        let rule = node.as_rule();
        if rule == Rule::let_stmt {
            return self.binding(node).map(|(name, value)| Stmt::Let(name, value));
        }
        let mut parts = NodeParts::of(node);
        Some(match rule {
            Rule::for_stmt => {
                let var = self.name(parts.take(Rule::name)?);
                let (from, to) = self.range(parts.take(Rule::range)?)?;
                let filter = self.optional(&mut parts, Rule::filter)?;
                let head = head(span, filter.as_ref().map_or(to.span, |f| f.span));
                let body = self.block(parts.next()?, context)?;
                Stmt::For(ForStmt { var, from, to, filter, body, span: head })
            }
            Rule::if_stmt => self.choice_of(parts, context)?,
            Rule::each_stmt => {
                let vars = parts.next()?;
                let vars_span = self.span(&vars);
                let vars = if vars.as_rule() == Rule::name {
                    vec![self.name(vars)]
                } else {
                    self.names(vars)
                };
                let filter = self.optional(&mut parts, Rule::filter)?;
                let head = head(span, filter.as_ref().map_or(vars_span, |f| f.span));
                let body = self.block(parts.next()?, context)?;
                Stmt::Each(EachStmt { vars, filter, body, span: head })
            }
            Rule::split_stmt => self.split(parts, span, context)?,
            Rule::use_stmt => self.use_of(parts, span)?,
            Rule::ensure => self.ensure(parts, span)?,
            Rule::transfer => self.transfer(parts, span)?,
            _ => return None,
        })
    }

    /// Builds `if … else if … else …`, from its end: each `else if` is an `if` alone in the part before.
    fn choice_of(&mut self, mut parts: NodeParts<'_>, context: DeclarationKind) -> Option<Stmt> {
        let (outside, mut arms) = (self.depth, Vec::new());
        while let Some(condition) = parts.take(Rule::expr) {
            let cond = self.expr(condition)?;
            let then = self.block(parts.next()?, context)?;
            if self.depth < limits::MAX_DEPTH {
                self.depth += 1;
                arms.push((cond, then));
            }
        }
        let mut otherwise = match parts.take(Rule::block) {
            Some(block) => self.block(block, context)?,
            None => Vec::new(),
        };
        self.depth = outside;
        while let Some((cond, then)) = arms.pop() {
            let span = self.with_word_before(cond.span);
            otherwise = vec![Stmt::If(IfStmt { cond, then, otherwise, span })];
        }
        otherwise.pop()
    }

    fn split(
        &mut self,
        mut parts: NodeParts<'_>,
        span: Span,
        context: DeclarationKind,
    ) -> Option<Stmt> {
        let buffer = self.name(parts.take(Rule::name)?);
        let var = self.name(parts.take(Rule::name)?);
        let (mut end, mut range) = (var.span, None);
        if let Some(node) = parts.take_any(&[Rule::range, Rule::kw_paths]) {
            end = self.span(&node);
            if node.as_rule() == Rule::range {
                range = Some(self.range(node)?);
            }
        }
        let by = self.optional(&mut parts, Rule::weight)?;
        let head = head(span, by.as_ref().map_or(end, |b| b.span));
        let body = self.block(parts.next()?, context)?;
        Some(Stmt::Split(SplitStmt { buffer, var, range, by, body, span: head }))
    }

    fn use_of(&mut self, mut parts: NodeParts<'_>, span: Span) -> Option<Stmt> {
        let (mut name, mut arguments) = (parts.take(Rule::use_name), Vec::new());
        if let Some(call) = parts.take(Rule::use_call) {
            let mut call = NodeParts::of(call);
            name = NodeParts::of(call.take(Rule::use_open)?).next();
            for argument in call.all(Rule::argument) {
                arguments.push(self.binding(argument)?);
            }
        }
        let mut names = NodeParts::of(name?).all(Rule::name);
        let name = self.name(names.pop()?);
        let collective = names.pop().map(|n| self.name(n));
        let over =
            parts.take(Rule::use_over).and_then(|n| NodeParts::of(n).next()).map(|n| self.name(n));
        let (mut on, mut to) = (None, None);
        if let Some(node) = parts.take(Rule::use_on) {
            let mut regions = NodeParts::of(node);
            on = Some(self.region(regions.next()?)?);
            to = self.optional_region(&mut regions)?;
        }
        let root = self.optional(&mut parts, Rule::use_root)?;
        let via = self.optional(&mut parts, Rule::use_via)?;
        Some(Stmt::Use(UseStmt { collective, name, arguments, over, on, to, root, via, span }))
    }

    fn ensure(&mut self, mut parts: NodeParts<'_>, span: Span) -> Option<Stmt> {
        let target = self.region(parts.take(Rule::region)?)?;
        let mut reduce = None;
        if let Some(node) = parts.take(Rule::fold) {
            let mut parts = NodeParts::of(node);
            let var = self.name(parts.take(Rule::name)?);
            let (from, to) = self.range(parts.take(Rule::range)?)?;
            let filter = self.optional(&mut parts, Rule::filter)?;
            reduce = Some(EnsureReduce { var, from, to, filter });
        }
        let source = self.region(parts.take(Rule::region)?)?;
        let at = self.rank(parts.next()?)?;
        Some(Stmt::Ensure(EnsureClause { target, reduce, source, at, span }))
    }

    fn transfer(&mut self, mut parts: NodeParts<'_>, span: Span) -> Option<Stmt> {
        let src = self.rank(parts.take(Rule::rank)?)?;
        let dst = self.rank(parts.take(Rule::rank)?)?;
        let op = if parts.take(Rule::op)?.as_str() == "copy" {
            TransferOp::Copy
        } else {
            TransferOp::Reduce
        };
        let from = self.region(parts.take(Rule::region)?)?;
        let to = self.optional_region(&mut parts)?;
        let wire = parts.take(Rule::name).map(|n| self.name(n));
        Some(Stmt::Transfer(TransferStmt { src, dst, op, from, to, wire, span }))
    }

    fn rank(&mut self, node: PestNode<'_>) -> Option<RankRef> {
        let node = NodeParts::of(node).next()?;
        if node.as_rule() == Rule::expr {
            return self.expr(node).map(RankRef::One);
        }
        let span = self.span(&node);
        let coordinates = NodeParts::of(node).all(Rule::expr);
        let coordinates = coordinates.into_iter().map(|n| self.expr(n)).collect::<Option<_>>()?;
        Some(RankRef::Tuple(coordinates, span))
    }

    fn optional_region(&mut self, parts: &mut NodeParts<'_>) -> Option<Option<RegionRef>> {
        match parts.take(Rule::region) {
            Some(node) => Some(Some(self.region(node)?)),
            None => Some(None),
        }
    }

    fn region(&mut self, node: PestNode<'_>) -> Option<RegionRef> {
        let span = self.span(&node);
        let mut parts = NodeParts::of(node);
        let buffer = self.name(parts.take(Rule::buffer)?);
        let index = match parts.take(Rule::index) {
            Some(node) => Some(self.index(node)?),
            None => None,
        };
        Some(RegionRef { buffer, index, span })
    }

    fn index(&mut self, node: PestNode<'_>) -> Option<RegionIndex> {
        let mut parts = NodeParts::of(node);
        let from = self.expr(parts.take(Rule::expr)?)?;
        let Some(tail) = parts.next() else { return Some(RegionIndex::At(from)) };
        let cyclic = tail.as_rule() == Rule::cyclic;
        let mut parts = NodeParts::of(tail);
        let end = self.expr(parts.take(Rule::expr)?)?;
        let (mut by, mut take) = (None, None);
        if let Some(steps) = parts.take(Rule::steps) {
            let mut steps = NodeParts::of(steps);
            by = Some(self.expr(steps.next()?)?);
            take = match steps.next() {
                Some(node) => Some(self.expr(node)?),
                None => None,
            };
        }
        Some(match cyclic {
            true => RegionIndex::Cyclic { from, count: end, by, take },
            false => RegionIndex::Range { from, to: end, by, take },
        })
    }

    pub(super) fn range(&mut self, node: PestNode<'_>) -> Option<(Expr, Expr)> {
        let mut parts = NodeParts::of(node);
        Some((self.expr(parts.next()?)?, self.expr(parts.next()?)?))
    }

    /// Builds the expression of a node such as `where e`, if there is one.
    fn optional(&mut self, parts: &mut NodeParts<'_>, rule: Rule) -> Option<Option<Expr>> {
        match parts.take(rule) {
            Some(node) => Some(Some(self.expr(NodeParts::of(node).next()?)?)),
            None => Some(None),
        }
    }
}

/// Returns the span from the first word of a statement to `last`.
fn head(statement: Span, last: Span) -> Span {
    Span { end: last.end, ..statement }
}
