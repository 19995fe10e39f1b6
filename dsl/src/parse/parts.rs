//! Takes the parts of a node of pest's tree, for the builder.

use std::iter::Peekable;
use std::vec::IntoIter;

use super::{PestNode, Rule};

/// The children of a node that mean something: all but keywords and signs.
pub(super) struct NodeParts<'t>(Peekable<IntoIter<PestNode<'t>>>);

impl<'t> NodeParts<'t> {
    pub(super) fn of(node: PestNode<'t>) -> Self {
        let parts: Vec<_> = node.into_inner().filter(|n| !is_mark(n.as_rule())).collect();
        NodeParts(parts.into_iter().peekable())
    }

    pub(super) fn next(&mut self) -> Option<PestNode<'t>> {
        self.0.next()
    }

    /// Returns the next child, if it is of this rule.
    pub(super) fn take(&mut self, rule: Rule) -> Option<PestNode<'t>> {
        self.take_any(&[rule])
    }

    /// Returns the next child, if it is of one of these rules.
    pub(super) fn take_any(&mut self, rules: &[Rule]) -> Option<PestNode<'t>> {
        self.0.next_if(|n| rules.contains(&n.as_rule()))
    }

    /// Returns the children of this rule that come next.
    pub(super) fn all(&mut self, rule: Rule) -> Vec<PestNode<'t>> {
        std::iter::from_fn(|| self.take(rule)).collect()
    }
}

/// Returns true if a rule is a keyword or a sign, there for messages only.
fn is_mark(rule: Rule) -> bool {
    use Rule::*;
    matches!(
        rule,
        kw_algorithm | kw_as | kw_at | kw_by | kw_chunks | kw_collective | kw_each | kw_else
    ) || matches!(rule, kw_fn | kw_for | kw_if | kw_implements | kw_import | kw_in | kw_let | kw_on)
        || matches!(
            rule,
            kw_over
                | kw_requires
                | kw_schedule
                | kw_scratch
                | kw_split
                | kw_take
                | kw_tolerates
                | kw_use
        )
        || matches!(rule, kw_via | kw_where | kw_input | kw_output | kw_ranks | kw_reduce | kw_root)
        || matches!(
            rule,
            arrow
                | assign
                | colon
                | comma
                | dots
                | dots_equal
                | dots_plus
                | lbrace
                | lbracket
                | lparen
        )
        || matches!(rule, rbrace | rbracket | rparen | EOI)
}
