//! Parses a text to a syntax tree.
//!
//! `algo.pest` is the grammar; pest finds one fault a parse, so a file is cut into its declarations
//! first and each is parsed by itself. Only this module and its children name pest's rules.
//!
//! * `limits` refuses what must not reach a recursive parser.
//! * `build`, `statement` and `expr` turn pest's nodes into the tree of [`crate::ast`].
//! * `explain` turns pest's faults into diagnostics.
//! * `layout` tells the printer where statements and blocks begin and end.

mod build;
mod explain;
mod expr;
pub(crate) mod layout;
mod limits;
mod parts;
mod statement;
#[cfg(test)]
mod tests;

use std::ops::Range;

use pest::Parser as _;
use pest::iterators::{Pair, Pairs};

use crate::ast::SourceFile;
use crate::diag::{Diagnostic, Diagnostics, codes};
use crate::lex::{SourceToken, TokenKind, lex};
use crate::span::{SourceId, SourceMap, Span};

pub use limits::{MAX_BYTES, MAX_DEPTH, check_text, too_deep, with_stack};

/// Number of faults after which the rest of a file is not looked at.
const MAX_FAULTS: usize = 50;

#[derive(pest_derive::Parser)]
#[grammar = "algo.pest"]
struct AlgoGrammar;

/// Parses one source of the map.
///
/// # Errors
/// At most one syntax error (RL0101) a declaration, in the order of the text, some fifty in all; RL0102 if the text is
/// larger than [`MAX_BYTES`] or nested deeper than [`MAX_DEPTH`], RL0103 for NUL bytes, RL0104 if it
/// declares nothing, RL0105 for numbers beyond 64 bits, RL0208 for misplaced statements.
pub fn parse(sources: &SourceMap, id: SourceId) -> Result<SourceFile, Diagnostics> {
    with_stack(|| parse_within(sources, id))
}

fn parse_within(sources: &SourceMap, id: SourceId) -> Result<SourceFile, Diagnostics> {
    let input = ParserInput::new(sources, id)?;
    let mut file =
        SourceFile { docs: Vec::new(), items: Vec::new(), span: input.span(0, input.text.len()) };
    let mut faults = Diagnostics::new();
    for range in input.declarations() {
        if faults.len() >= MAX_FAULTS {
            break;
        }
        match input.nodes(range.clone()) {
            Ok(nodes) => faults.extend(build::file(&input, range.start, nodes, &mut file)),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() && file.items.is_empty() {
        faults.push(
            Diagnostic::error(codes::EMPTY, "the file declares nothing")
                .label(Span::new(id, 0, 0), "")
                .help(
                    "declare an algorithm: `algorithm name implements all_reduce on n ranks { … }`",
                ),
        );
    }
    faults.truncate(MAX_FAULTS);
    if faults.is_empty() { Ok(file) } else { Err(faults) }
}

/// One source on its way through the parser.
pub(crate) struct ParserInput<'t> {
    pub(crate) text: &'t str,
    pub(crate) source: SourceId,
    /// Everything, comments too.
    pub(crate) tokens: Vec<SourceToken>,
    /// The tokens that the grammar sees: all but comments.
    words: Vec<SourceToken>,
}

impl<'t> ParserInput<'t> {
    /// Reads the tokens of a text that is within the limits.
    pub(crate) fn new(sources: &'t SourceMap, source: SourceId) -> Result<Self, Diagnostics> {
        let text = sources.get(source).text.as_str();
        limits::check_size(text, source).map_err(|d| vec![d])?;
        let tokens = lex(text);
        limits::check_tokens(text, source, &tokens).map_err(|d| vec![d])?;
        let words = tokens.iter().copied().filter(|t| !t.is_comment()).collect();
        Ok(ParserInput { text, source, tokens, words })
    }

    /// Returns the text cut before each declaration; the pieces cover all of it.
    ///
    /// A declaration begins with one of four reserved words, outside of all braces or first on its
    /// line, so that an open brace does not swallow what follows, or with a `let` outside of all braces; its
    /// comments belong to it.
    pub(crate) fn declarations(&self) -> Vec<Range<usize>> {
        let mut cuts = vec![0];
        let (mut depth, mut after) = (0_usize, 0);
        for (i, token) in self.tokens.iter().enumerate() {
            match token.text(self.text) {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                "algorithm" | "collective" | "fn" | "import"
                    if depth == 0 || self.opens_line(i) =>
                {
                    depth = 0;
                    cuts.push(self.tokens[after..=i].first().map_or(token.start, |t| t.start));
                }
                "let" if depth == 0 => {
                    cuts.push(self.tokens[after..=i].first().map_or(token.start, |t| t.start));
                }
                _ => {}
            }
            if !token.is_comment() && !self.is_item_doc(token) {
                after = i + 1;
            }
        }
        cuts.push(self.text.len());
        cuts.windows(2).map(|w| w[0]..w[1]).filter(|r| !r.is_empty()).collect()
    }

    /// Returns pest's nodes of one piece.
    pub(crate) fn nodes(&self, range: Range<usize>) -> Result<Pairs<'t, Rule>, Diagnostic> {
        let piece = &self.text[range.clone()];
        AlgoGrammar::parse(Rule::file, piece).map_err(|e| explain::explain(self, range, &e))
    }

    fn opens_line(&self, token: usize) -> bool {
        let from = token.checked_sub(1).map_or(0, |i| self.tokens[i].end);
        token == 0 || self.text[from..self.tokens[token].start].contains('\n')
    }

    fn is_item_doc(&self, token: &SourceToken) -> bool {
        token.kind == TokenKind::Doc && token.text(self.text).starts_with("///")
    }

    /// Returns the words within a range of the text.
    fn words(&self, range: &Range<usize>) -> &[SourceToken] {
        let index = |at| self.words.partition_point(|t| t.start < at);
        self.words.get(index(range.start)..index(range.end)).unwrap_or_default()
    }

    /// Returns the span of `start..end` without the blanks and comments at its end.
    fn span(&self, start: usize, end: usize) -> Span {
        let last = self.words.partition_point(|t| t.end <= end).checked_sub(1);
        let tight = last.map_or(start, |i| self.words[i].end).max(start);
        Span::new(self.source, start, tight)
    }
}

/// A node of pest's tree.
type PestNode<'t> = Pair<'t, Rule>;

/// The reserved words, in order: none of them is a name. A test holds them to the grammar.
pub const KEYWORDS: &[&str] = &[
    "algorithm",
    "as",
    "at",
    "by",
    "chunks",
    "collective",
    "each",
    "else",
    "false",
    "fn",
    "for",
    "if",
    "implements",
    "import",
    "in",
    "let",
    "on",
    "over",
    "requires",
    "schedule",
    "scratch",
    "split",
    "take",
    "tolerates",
    "true",
    "use",
    "via",
    "where",
];
