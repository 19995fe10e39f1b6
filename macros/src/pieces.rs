//! Holds texts of Rust functions as sources of diagnostics, with the way from tokens to bytes and back.
//!
//! A piece begins at column 1 of the function's first line and has every token at its own place, so that
//! lines and columns are those of the Rust file. Where tokens have no places (an editor that does not
//! tell them, tokens that a macro made), they are written one after another.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use roundelay_dsl::span::{SourceId, SourceMap, Span};

/// The texts of one prototype.
#[derive(Debug, Default)]
pub(crate) struct SourcePieces {
    /// The sources as the compiler sees them.
    pub(crate) sources: SourceMap,
    /// The tokens of each source, by its id.
    leaves: Vec<Vec<LeafToken>>,
    /// Bytes of a leaf by what tells its span from others, which is all that spans offer.
    bytes: BTreeMap<(SourceId, String), (u32, u32)>,
}

/// A token without parts: a word, a sign, or a delimiter.
#[derive(Debug, Clone)]
struct LeafToken {
    text: String,
    span: proc_macro2::Span,
    start: u32,
    end: u32,
}

impl SourcePieces {
    /// Adds the text of these tokens.
    pub(crate) fn add(&mut self, tokens: &TokenStream) -> SourceId {
        let (mut leaves, mut groups) = (Vec::new(), Vec::new());
        flatten(tokens.clone(), &mut leaves, &mut groups);
        let first = leaves.first().map(|l| l.span);
        let (text, line) = match laid_out(&mut leaves) {
            Some(text) => (text, first.map_or(1, |s| s.start().line as u32)),
            None => (in_a_row(&mut leaves), 1),
        };
        let text = with_comments(tokens, &leaves, &text).unwrap_or(text);
        let name = first.map_or_else(String::new, |s| s.file());
        let id = self.sources.add_piece(name, text, line);
        for leaf in &leaves {
            self.bytes.entry((id, format!("{:?}", leaf.span))).or_insert((leaf.start, leaf.end));
        }
        // A group that was parsed and written again has the span of the whole at both ends.
        for (span, open, close) in groups {
            let bytes = (leaves[open].start, leaves[close].end);
            self.bytes.entry((id, format!("{span:?}"))).or_insert(bytes);
        }
        self.leaves.push(leaves);
        id
    }

    /// Returns the bytes of a node of this piece, from its first token to its last.
    pub(crate) fn span(&self, id: SourceId, node: &impl ToTokens) -> Span {
        let tokens = node.to_token_stream();
        let first = tokens.clone().into_iter().next().map(|t| edge(&t, false));
        let last = tokens.into_iter().last().map(|t| edge(&t, true));
        let find = |edge: Option<proc_macro2::Span>| {
            let found = edge.and_then(|s| self.bytes.get(&(id, format!("{s:?}"))));
            found.copied().unwrap_or_default()
        };
        let (start, end) = (find(first).0, find(last).1);
        Span { source: id, start, end: end.max(start) }
    }

    /// Returns the first and the last token in a span, for rustc to underline.
    pub(crate) fn tokens(&self, span: Span) -> Option<(proc_macro2::Span, proc_macro2::Span)> {
        let leaves = self.leaves.get(span.source.0 as usize)?;
        let first = leaves.iter().find(|l| l.end > span.start)?;
        let last = leaves.iter().rev().find(|l| l.start < span.end.max(first.end))?;
        Some((first.span, last.span))
    }
}

/// Returns the span of the first or the last leaf of a tree.
fn edge(tree: &TokenTree, last: bool) -> proc_macro2::Span {
    match tree {
        TokenTree::Group(g) if g.delimiter() == Delimiter::None => {
            let mut inner = g.stream().into_iter();
            let tree = if last { inner.last() } else { inner.next() };
            tree.map_or(g.span(), |t| edge(&t, last))
        }
        TokenTree::Group(g) if last => g.span_close(),
        TokenTree::Group(g) => g.span_open(),
        tree => tree.span(),
    }
}

/// The span of a group, and its first and last leaf.
type GroupSpan = (proc_macro2::Span, usize, usize);

fn flatten(tokens: TokenStream, out: &mut Vec<LeafToken>, groups: &mut Vec<GroupSpan>) {
    let leaf = |text: &str, span| LeafToken { text: text.into(), span, start: 0, end: 0 };
    for tree in tokens {
        match tree {
            TokenTree::Group(g) => {
                let (open, close) = match g.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => {
                        flatten(g.stream(), out, groups);
                        continue;
                    }
                };
                let first = out.len();
                out.push(leaf(open, g.span_open()));
                flatten(g.stream(), out, groups);
                groups.push((g.span(), first, out.len()));
                out.push(leaf(close, g.span_close()));
            }
            tree => out.push(leaf(&tree.to_string(), tree.span())),
        }
    }
}

/// Returns the tokens at their places; `None` if their places are in no order.
fn laid_out(leaves: &mut [LeafToken]) -> Option<String> {
    let first = leaves.first()?.span.start().line;
    let (mut text, mut line, mut column) = (String::new(), first, 0);
    for leaf in leaves {
        let (from, to) = (leaf.span.start(), leaf.span.end());
        if from.line == 0 || (from.line, from.column) < (line, column) || to < from {
            return None;
        }
        while line < from.line {
            text.push('\n');
            (line, column) = (line + 1, 0);
        }
        text.extend(std::iter::repeat_n(' ', from.column - column));
        leaf.start = text.len() as u32;
        text.push_str(&leaf.text);
        leaf.end = text.len() as u32;
        (line, column) = (to.line, to.column);
        if leaf.text.lines().count() > 1 + to.line - from.line {
            return None;
        }
    }
    text.push('\n');
    Some(text)
}

/// Returns the tokens one after another.
fn in_a_row(leaves: &mut [LeafToken]) -> String {
    let mut text = String::new();
    for leaf in leaves {
        leaf.start = text.len() as u32;
        text.push_str(&leaf.text);
        leaf.end = text.len() as u32;
        text.push(' ');
    }
    text
}

/// Returns the text with the body as it was written, if that leaves all tokens where they are.
fn with_comments(tokens: &TokenStream, leaves: &[LeafToken], text: &str) -> Option<String> {
    let TokenTree::Group(body) = tokens.clone().into_iter().last()? else { return None };
    let written = body.span().source_text()?;
    let opens = body.span_open().start();
    let open = leaves.iter().find(|l| l.span.start() == opens)?;
    let whole = format!("{}{written}\n", text.get(..open.start as usize)?);
    let kept = |l: &LeafToken| whole.get(l.start as usize..l.end as usize) == Some(&l.text);
    leaves.iter().all(kept).then_some(whole)
}
