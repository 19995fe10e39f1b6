//! Builds declarations of the syntax tree from pest's nodes.
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
    pub(super) depth: usize,
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

    pub(super) fn names(&self, grid: PestNode<'_>) -> Vec<SpannedName> {
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

    pub(super) fn binding(&mut self, node: PestNode<'_>) -> Option<(SpannedName, Expr)> {
        let mut parts = NodeParts::of(node);
        Some((self.name(parts.take(Rule::name)?), self.expr(parts.next()?)?))
    }
}

/// The kind of declaration around a statement.
#[derive(Clone, Copy)]
pub(super) enum DeclarationKind {
    Collective,
    Algorithm,
}

/// Returns the text of a `///` or `//!` line.
fn doc_text(node: &PestNode<'_>) -> String {
    let text = node.as_str().get(3..).unwrap_or("");
    trim_line(text.strip_prefix(' ').unwrap_or(text)).to_owned()
}
