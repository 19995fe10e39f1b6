//! Builds declarations and statements of the syntax tree from pest's nodes.
//!
//! Functions return `None` only where a node is not as the grammar says, which is a fault of this
//! package; faults of the text go to [`TreeBuilder::faults`] and the work goes on.

use pest::iterators::Pairs;

use super::parts::NodeParts;
use super::{ParserInput, PestNode, Rule, limits};
use crate::ast::*;
use crate::diag::{Diagnostic, Diagnostics, codes};
use crate::lex::trim_line;
use crate::span::Span;

/// Adds what a parsed piece at byte `base` declares to `file`, and returns the faults.
pub(super) fn file(
    input: &ParserInput,
    base: usize,
    nodes: Pairs<'_, Rule>,
    file: &mut SourceFile,
) -> Diagnostics {
    let mut builder = TreeBuilder { input, base, depth: 0, faults: Diagnostics::new() };
    for node in nodes.flat_map(|n| n.into_inner()) {
        match node.as_rule() {
            Rule::file_doc => file.docs.push(doc_text(&node)),
            Rule::item => {
                let span = builder.span(&node);
                match builder.item(node) {
                    Some(item) => file.items.push(item),
                    None => builder.faults.push(
                        Diagnostic::error(codes::SYNTAX, "the declaration cannot be read")
                            .label(span, "this is a fault of the parser, please report it"),
                    ),
                }
            }
            _ => {}
        }
    }
    builder.faults
}

pub(super) struct TreeBuilder<'i, 't> {
    input: &'i ParserInput<'t>,
    /// The byte of the text at which the piece begins.
    base: usize,
    /// Number of statements around the present one.
    depth: usize,
    pub(super) faults: Diagnostics,
}

impl TreeBuilder<'_, '_> {
    pub(super) fn span(&self, node: &PestNode<'_>) -> Span {
        let at = node.as_span();
        self.input.span(self.base + at.start(), self.base + at.end())
    }

    /// Returns a span, extended to the word before it.
    pub(super) fn with_word_before(&self, span: Span) -> Span {
        let words = &self.input.words;
        let before = words.partition_point(|t| t.end <= span.start as usize).checked_sub(1);
        before.map_or(span, |i| self.input.span(words[i].start, span.end as usize))
    }

    pub(super) fn name(&self, node: PestNode<'_>) -> SpannedName {
        SpannedName { text: node.as_str().to_owned(), span: self.span(&node) }
    }

    /// Reports too deep a nesting, once a declaration.
    pub(super) fn too_deep(&mut self, span: Span) {
        if self.faults.iter().all(|f| f.code != codes::TOO_LARGE) {
            self.faults.push(limits::too_deep(span));
        }
    }

    fn item(&mut self, node: PestNode<'_>) -> Option<FileDeclaration> {
        let mut parts = NodeParts::of(node);
        let docs = parts.all(Rule::doc).iter().map(doc_text).collect();
        let node = parts.next()?;
        let span = self.span(&node);
        let rule = node.as_rule();
        let mut parts = NodeParts::of(node);
        Some(match rule {
            Rule::import => {
                let path = parts.take(Rule::path)?;
                let path_span = self.span(&path);
                FileDeclaration::Import(ImportDecl {
                    path: path.as_str().trim_matches('"').to_owned(),
                    path_span,
                    span,
                })
            }
            Rule::constant => {
                let name = self.name(parts.take(Rule::name)?);
                let value = self.expr(parts.next()?)?;
                FileDeclaration::Constant(ConstantDecl { docs, name, value, span })
            }
            Rule::function => FileDeclaration::Fn(self.function(parts, docs, span)?),
            Rule::collective => FileDeclaration::Collective(self.collective(parts, docs, span)?),
            Rule::algorithm => FileDeclaration::Algorithm(self.algorithm(parts, docs, span)?),
            _ => return None,
        })
    }

    fn function(
        &mut self,
        mut parts: NodeParts<'_>,
        docs: Vec<String>,
        span: Span,
    ) -> Option<FnDef> {
        let name = self.name(parts.take(Rule::name)?);
        let params = parts.all(Rule::name).into_iter().map(|n| self.name(n)).collect();
        let mut lets = Vec::new();
        if let Some(body) = parts.take(Rule::fn_body) {
            parts = NodeParts::of(body);
            while let Some(node) = parts.take(Rule::let_stmt) {
                lets.push(self.binding(node)?);
            }
        }
        let value = self.expr(parts.take(Rule::expr)?)?;
        Some(FnDef { docs, name, params, lets, value, span })
    }

    fn collective(
        &mut self,
        mut parts: NodeParts<'_>,
        docs: Vec<String>,
        span: Span,
    ) -> Option<CollectiveDecl> {
        let name = self.name(parts.take(Rule::name)?);
        let axes = self.axes(parts.take(Rule::axes)?)?;
        let (mut input, mut output) = (None, None);
        while let Some(node) = parts.take_any(&[Rule::input_clause, Rule::output_clause]) {
            let (slot, word) = match node.as_rule() {
                Rule::input_clause => (&mut input, "input"),
                _ => (&mut output, "output"),
            };
            self.once(slot, word, node)?;
        }
        let body = self.statements(parts, DeclarationKind::Collective)?;
        Some(CollectiveDecl { docs, name, axes, input, output, body, span })
    }

    fn algorithm(
        &mut self,
        mut parts: NodeParts<'_>,
        docs: Vec<String>,
        span: Span,
    ) -> Option<AlgorithmDecl> {
        let head = parts.take(Rule::algorithm_head)?;
        let header = self.span(&head);
        let mut words = NodeParts::of(head);
        let name = self.name(words.take(Rule::name)?);
        let parameters = match words.take(Rule::parameters) {
            Some(node) => self.parameters(node)?,
            None => Vec::new(),
        };
        let collective = self.name(words.take(Rule::name)?);
        let axes = self.axes(words.take(Rule::axes)?)?;
        let (mut requires, mut scratch) = (Vec::new(), Vec::new());
        let (mut tolerates, mut chunks) = (None, None);
        let mut lets = Vec::new();
        let mut clauses = parts.all(Rule::clause);
        let is_let =
            |n: &PestNode<'_>| n.clone().into_inner().any(|n| n.as_rule() == Rule::let_stmt);
        // Those behind the last clause are statements like any others.
        let ends = clauses.iter().rposition(|n| !is_let(n)).map_or(0, |last| last + 1);
        let leading = clauses.split_off(ends);
        for clause in clauses {
            let clause = NodeParts::of(clause).next()?;
            match clause.as_rule() {
                Rule::let_stmt => lets.push(self.binding(clause)?),
                Rule::requires => requires.push(self.expr(NodeParts::of(clause).next()?)?),
                Rule::tolerates => self.once(&mut tolerates, "tolerates", clause)?,
                Rule::chunks => self.once(&mut chunks, "chunks", clause)?,
                _ => {
                    let mut parts = NodeParts::of(clause);
                    let name = self.name(parts.take(Rule::name)?);
                    scratch.push(ScratchDecl { name, chunks: self.expr(parts.next()?)? });
                }
            }
        }
        let statements = leading.into_iter().chain(parts.all(Rule::stmt)).collect();
        let body = self.statements_of(statements, DeclarationKind::Algorithm)?;
        let schedule = match parts.take(Rule::schedule) {
            Some(node) => Some(self.schedule(node)?),
            None => None,
        };
        Some(AlgorithmDecl {
            docs,
            name,
            parameters,
            collective,
            axes,
            requires,
            tolerates,
            chunks,
            scratch,
            lets,
            body,
            schedule,
            header,
            span,
        })
    }

    fn parameters(&mut self, node: PestNode<'_>) -> Option<Vec<ParameterDecl>> {
        let mut parameters = Vec::new();
        for node in NodeParts::of(node).all(Rule::parameter) {
            let span = self.span(&node);
            let mut parts = NodeParts::of(node);
            let name = self.name(parts.take(Rule::name)?);
            let default = self.expr(parts.take(Rule::expr)?)?;
            let bounds = match parts.take(Rule::bounds) {
                Some(bounds) => Some(self.range(bounds)?),
                None => None,
            };
            parameters.push(ParameterDecl { name, default, bounds, span });
        }
        Some(parameters)
    }

    /// Fills the slot of a clause that may stand only once.
    fn once(&mut self, slot: &mut Option<Expr>, word: &str, node: PestNode<'_>) -> Option<()> {
        let span = self.span(&node);
        let value = self.expr(NodeParts::of(node).next()?)?;
        match slot {
            None => *slot = Some(value),
            Some(first) => self.faults.push(
                Diagnostic::error(codes::MISPLACED, format!("`{word}` is given twice"))
                    .label(span, "again")
                    .label(first.span, "the first"),
            ),
        }
        Some(())
    }

    fn axes(&mut self, node: PestNode<'_>) -> Option<AxesClause> {
        let node = NodeParts::of(node).next()?;
        if node.as_rule() == Rule::name {
            return Some(AxesClause::Flat(self.name(node)));
        }
        let span = self.span(&node);
        Some(AxesClause::Grid(self.names(node), span))
    }

    fn names(&self, grid: PestNode<'_>) -> Vec<SpannedName> {
        NodeParts::of(grid).all(Rule::name).into_iter().map(|n| self.name(n)).collect()
    }

    fn schedule(&mut self, node: PestNode<'_>) -> Option<ScheduleClause> {
        let span = self.span(&node);
        let mut entries = Vec::new();
        for entry in NodeParts::of(node).all(Rule::entry) {
            let mut parts = NodeParts::of(entry);
            let key = self.name(parts.take(Rule::name)?);
            entries.push((key, self.expr(parts.next()?)?));
        }
        Some(ScheduleClause { entries, span })
    }

    fn binding(&mut self, node: PestNode<'_>) -> Option<(SpannedName, Expr)> {
        let mut parts = NodeParts::of(node);
        Some((self.name(parts.take(Rule::name)?), self.expr(parts.next()?)?))
    }

    fn statements(
        &mut self,
        mut parts: NodeParts<'_>,
        context: DeclarationKind,
    ) -> Option<Vec<Stmt>> {
        self.statements_of(parts.all(Rule::stmt), context)
    }

    fn statements_of(
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

    fn range(&mut self, node: PestNode<'_>) -> Option<(Expr, Expr)> {
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

/// The kind of declaration around a statement.
#[derive(Clone, Copy)]
enum DeclarationKind {
    Collective,
    Algorithm,
}

/// Returns the span from the first word of a statement to `last`.
fn head(statement: Span, last: Span) -> Span {
    Span { end: last.end, ..statement }
}

/// Returns the text of a `///` or `//!` line.
fn doc_text(node: &PestNode<'_>) -> String {
    let text = node.as_str().get(3..).unwrap_or("");
    trim_line(text.strip_prefix(' ').unwrap_or(text)).to_owned()
}
