//! Locates declarations, statements and blocks in a text, for the printer.

use std::collections::BTreeSet;

use super::{ParserInput, PestNode, Rule};
use crate::diag::Diagnostics;

/// A part that begins a line: a declaration, a clause, a statement. Bytes `start..end` of the text.
pub(crate) struct LineUnit {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Its `{ … }`, in order; braces of an `if` expression are none.
    pub(crate) blocks: Vec<BraceBlock>,
}

/// `{ … }`
pub(crate) struct BraceBlock {
    /// Byte of the `{`.
    pub(crate) open: usize,
    /// Byte of the `}`.
    pub(crate) close: usize,
    pub(crate) units: Vec<LineUnit>,
    /// Number of units that may share one line with the braces.
    pub(crate) inline: usize,
}

/// The places of a text that the printer must know beyond its tokens.
#[derive(Default)]
pub(crate) struct TextLayout {
    pub(crate) items: Vec<LineUnit>,
    /// The bytes at which a `-` or `!` is a prefix.
    pub(crate) prefixes: BTreeSet<usize>,
    /// The bytes at which an operator stands between short operands of a range: `0..n-1`.
    pub(crate) tight: BTreeSet<usize>,
    /// The bytes at which a `(` belongs to the name before it.
    pub(crate) calls: BTreeSet<usize>,
}

/// Returns the layout of a text.
///
/// # Errors
/// Those of [`super::parse`] that concern the grammar.
pub(crate) fn layout(input: &ParserInput) -> Result<TextLayout, Diagnostics> {
    let mut layout = TextLayout::default();
    let mut faults = Diagnostics::new();
    for range in input.declarations() {
        let nodes = match input.nodes(range.clone()) {
            Ok(nodes) => nodes,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        let mut walk = LayoutWalk { input, base: range.start, layout: &mut layout };
        let items = nodes.flat_map(|n| n.into_inner()).filter(|n| n.as_rule() == Rule::item);
        let units: Vec<_> =
            items.filter_map(|n| n.into_inner().last()).map(|n| walk.unit(n)).collect();
        layout.items.extend(units);
    }
    if faults.is_empty() { Ok(layout) } else { Err(faults) }
}

struct LayoutWalk<'i, 't> {
    input: &'i ParserInput<'t>,
    base: usize,
    layout: &'i mut TextLayout,
}

impl LayoutWalk<'_, '_> {
    fn start(&self, node: &PestNode<'_>) -> usize {
        self.base + node.as_span().start()
    }

    fn unit(&mut self, node: PestNode<'_>) -> LineUnit {
        if matches!(node.as_rule(), Rule::stmt | Rule::clause)
            && let Some(inner) = node.clone().into_inner().next()
        {
            return self.unit(inner);
        }
        let end = self.input.span(self.start(&node), self.base + node.as_span().end()).end as usize;
        let mut unit = LineUnit { start: self.start(&node), end, blocks: Vec::new() };
        if node.as_rule() == Rule::expr {
            self.spacing(node);
        } else {
            self.blocks(node, &mut unit.blocks);
        }
        unit
    }

    /// Adds the blocks among a node's children; all else concerns blanks only.
    fn blocks(&mut self, node: PestNode<'_>, blocks: &mut Vec<BraceBlock>) {
        let inline = match node.as_rule() {
            Rule::algorithm | Rule::collective => 0,
            Rule::schedule => usize::MAX,
            _ => 1,
        };
        let is_function = node.as_rule() == Rule::function;
        let mut open: Option<BraceBlock> = None;
        for child in node.into_inner() {
            let at = self.start(&child);
            match (child.as_rule(), &mut open) {
                (Rule::lbrace, _) => {
                    open = Some(BraceBlock { open: at, close: at, units: Vec::new(), inline });
                }
                (Rule::rbrace, _) => {
                    blocks.extend(open.take().map(|b| BraceBlock { close: at, ..b }));
                }
                (Rule::block | Rule::fn_body, _) => self.blocks(child, blocks),
                (Rule::lparen, _) if is_function => drop(self.layout.calls.insert(at)),
                (_, Some(block)) => block.units.push(self.unit(child)),
                (_, None) => self.spacing(child),
            }
        }
    }

    /// Notes prefixes, calls and short ranges at and below a node.
    fn spacing(&mut self, node: PestNode<'_>) {
        match node.as_rule() {
            Rule::prefix => drop(self.layout.prefixes.insert(self.start(&node))),
            Rule::parameters => drop(self.layout.calls.insert(self.start(&node))),
            Rule::call_open | Rule::use_open => {
                self.layout.calls.insert(self.base + node.as_span().end() - 1);
            }
            Rule::range | Rule::bounds => self.tighten(node.clone().into_inner().collect()),
            Rule::index => {
                let parts = node.clone().into_inner().filter(|n| n.as_rule() != Rule::lbracket);
                let flat = parts.flat_map(|n| match n.as_rule() {
                    Rule::upto => n.into_inner().collect(),
                    _ => vec![n],
                });
                self.tighten(flat.take(3).collect());
            }
            _ => {}
        }
        for child in node.into_inner() {
            self.spacing(child);
        }
    }

    /// Notes that `a..b` is written without blanks if both ends are one operation at most.
    fn tighten(&mut self, range: Vec<PestNode<'_>>) {
        let [from, dots, to] = range.as_slice() else { return };
        let short = |n: &PestNode<'_>| n.as_rule() == Rule::expr && is_short(n);
        if matches!(dots.as_rule(), Rule::dots | Rule::dots_equal) && short(from) && short(to) {
            let signs = [from, to].into_iter().flat_map(|e| e.clone().into_inner());
            let signs = signs.filter(|n| n.as_rule() == Rule::infix).chain([dots.clone()]);
            let places: Vec<_> = signs.map(|n| self.start(&n)).collect();
            self.layout.tight.extend(places);
        }
    }
}

/// Returns true for an atom, for something in parentheses, and for two atoms and an operator.
fn is_short(expr: &PestNode<'_>) -> bool {
    let atom =
        |r: &Rule| matches!(r, Rule::int | Rule::truth | Rule::name | Rule::field | Rule::call);
    let rules: Vec<Rule> = expr.clone().into_inner().map(|n| n.as_rule()).collect();
    match rules.as_slice() {
        [one] => atom(one) || *one == Rule::paren,
        [left, Rule::infix, right] => atom(left) && atom(right),
        _ => false,
    }
}
