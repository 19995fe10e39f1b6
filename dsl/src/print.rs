//! Formats a text: the author's words and comments, the language's blanks and lines.
//!
//! One statement a line, four blanks a level, [`WIDTH`] columns. A block of one statement stays on the
//! line of its head if it stood there and fits; a longer line goes on below, one level further in. Of
//! several blank lines one is kept; blocks neither begin nor end with one.

#[cfg(test)]
mod tests;

use crate::diag::Diagnostics;
use crate::lex::{SourceToken, TokenKind};
use crate::parse::layout::{BraceBlock, LineUnit, TextLayout, layout};
use crate::parse::{ParserInput, parse};
use crate::span::{SourceId, SourceMap};

/// The longest line, where words allow it.
const WIDTH: usize = 100;
const LEVEL: usize = 4;

/// Formats one source of the map canonically. Keeps all comments; formatting the result again
/// changes nothing, and it parses to the same tree.
///
/// # Errors
/// Those of [`parse`]: only what parses is formatted.
pub fn format(sources: &SourceMap, id: SourceId) -> Result<String, Diagnostics> {
    crate::with_stack(|| format_within(sources, id))
}

fn format_within(sources: &SourceMap, id: SourceId) -> Result<String, Diagnostics> {
    parse(sources, id)?;
    let input = ParserInput::new(sources, id)?;
    let layout = layout(&input)?;
    let mut printer = TreePrinter {
        input: &input,
        layout: &layout,
        next: 0,
        out: String::new(),
        line: Vec::new(),
        level: 0,
        continued: false,
        fresh: true,
        separate: false,
    };
    for (i, item) in layout.items.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| layout.items.get(i));
        printer.separate = before.is_some_and(|b| !b.blocks.is_empty() || !item.blocks.is_empty());
        printer.unit(item);
    }
    printer.own_lines(input.text.len());
    Ok(printer.out)
}

/// A word of a line.
struct LineWord<'t> {
    text: &'t str,
    /// True after a blank.
    spaced: bool,
    /// May begin a line of its own.
    may_break: bool,
    is_remark: bool,
}

struct TreePrinter<'i, 't> {
    input: &'i ParserInput<'t>,
    layout: &'i TextLayout,
    /// The token to be printed next.
    next: usize,
    out: String,
    line: Vec<LineWord<'t>>,
    level: usize,
    /// The line goes on with what the line before began.
    continued: bool,
    /// No blank line may come now.
    fresh: bool,
    /// A blank line must come now.
    separate: bool,
}

impl<'t> TreePrinter<'_, 't> {
    fn unit(&mut self, unit: &LineUnit) {
        self.own_lines(unit.start);
        self.blank_line();
        if !self.fits(unit) {
            for block in &unit.blocks {
                self.block(block);
            }
        }
        self.words(unit.end);
        self.end_line();
    }

    fn block(&mut self, block: &BraceBlock) {
        if self.tokens(block.open + 1, block.close).is_empty() {
            return;
        }
        self.words(block.open + 1);
        self.end_line();
        self.level += 1;
        self.fresh = true;
        for unit in &block.units {
            self.unit(unit);
        }
        self.own_lines(block.close);
        self.level -= 1;
    }

    /// Returns true if a unit, blocks and all, can be one line, as it was before.
    fn fits(&self, unit: &LineUnit) -> bool {
        if unit.blocks.is_empty() {
            return true;
        }
        let tokens = self.tokens(unit.start, unit.end);
        unit.blocks.iter().all(|b| self.is_inline(b))
            && tokens.iter().all(|t| !is_remark(t))
            && self.level * LEVEL + self.width(tokens) <= WIDTH
    }

    fn is_inline(&self, block: &BraceBlock) -> bool {
        block.units.len() <= block.inline
            && !self.input.text[block.open..block.close].contains('\n')
            && block.units.iter().flat_map(|u| &u.blocks).all(|b| self.is_inline(b))
    }

    fn tokens(&self, start: usize, end: usize) -> &[SourceToken] {
        let all = &self.input.tokens;
        &all[all.partition_point(|t| t.start < start)..all.partition_point(|t| t.start < end)]
    }

    fn width(&self, tokens: &[SourceToken]) -> usize {
        let words: usize = tokens.iter().map(|t| columns(t.text(self.input.text))).sum();
        words + tokens.windows(2).filter(|w| self.is_spaced(&w[0], &w[1])).count()
    }

    /// Returns true if a blank stands between two words of a line.
    fn is_spaced(&self, before: &SourceToken, token: &SourceToken) -> bool {
        let (a, b) = (before.text(self.input.text), token.text(self.input.text));
        let TextLayout { prefixes, tight, calls, .. } = self.layout;
        let glued = matches!(a, "(" | "[" | ".")
            || matches!(b, ")" | "]" | "[" | "," | ".")
            || (a == "{" && b == "}")
            || prefixes.contains(&before.start)
            || tight.contains(&before.start)
            || tight.contains(&token.start)
            || calls.contains(&token.start);
        !glued || is_remark(before) || is_remark(token)
    }

    /// Comments and documentation before byte `end`, each on its own line.
    fn own_lines(&mut self, end: usize) {
        while let Some(token) = self.input.tokens.get(self.next).filter(|t| t.start < end) {
            self.blank_line();
            self.push(*token);
            self.flush();
        }
    }

    /// Prints all words before byte `end`, with the comments among them.
    fn words(&mut self, end: usize) {
        while let Some(&token) = self.input.tokens.get(self.next).filter(|t| t.start < end) {
            if !is_remark(&token) {
                self.push(token);
                continue;
            }
            let alone = self.breaks_before(self.next) > 0;
            if alone {
                self.flush();
                self.continued = true;
            }
            self.push(token);
            if token.kind != TokenKind::BlockComment || alone {
                self.flush();
                let next = self.input.tokens.get(self.next).map(|t| t.text(self.input.text));
                self.continued = !matches!(next, Some("else" | "{"));
            }
        }
    }

    /// Ends a line with the comments that stand behind it.
    fn end_line(&mut self) {
        while let Some(&token) = self.input.tokens.get(self.next) {
            if !token.is_comment() || self.breaks_before(self.next) > 0 {
                break;
            }
            self.push(token);
        }
        self.flush();
        self.continued = false;
    }

    fn push(&mut self, token: SourceToken) {
        let before = self.next.checked_sub(1).map(|i| self.input.tokens[i]);
        let spaced = before.is_some_and(|b| self.is_spaced(&b, &token));
        let (text, is_remark) = (token.text(self.input.text), is_remark(&token));
        // An operator begins a line and does not end one; a brace stays with its head.
        let after_operator = before.is_some_and(|b| {
            b.kind == TokenKind::Sign
                && !matches!(b.text(self.input.text), ")" | "]" | "}" | "," | "{")
        });
        let may_break = spaced && !is_remark && !after_operator && !matches!(text, "{" | ":" | "=");
        self.line.push(LineWord { text, spaced, may_break, is_remark });
        self.next += 1;
    }

    /// Prints a blank line before the next token, if one stood there or must.
    fn blank_line(&mut self) {
        let wanted = std::mem::take(&mut self.separate) || self.breaks_before(self.next) > 1;
        if wanted && !std::mem::take(&mut self.fresh) {
            self.out.push('\n');
        }
        self.fresh = false;
    }

    /// Returns the number of line ends between a token and the one before it.
    fn breaks_before(&self, token: usize) -> usize {
        let Some(before) = token.checked_sub(1) else { return 0 };
        let (from, to) = match (self.input.tokens.get(before), self.input.tokens.get(token)) {
            (Some(before), Some(token)) => (before.end, token.start),
            _ => return 0,
        };
        self.input.text[from..to].matches('\n').count()
    }

    /// Writes the line, broken where it is too long.
    fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        let indent = self.level * LEVEL;
        let mut at = 0;
        for (i, piece) in line.iter().enumerate() {
            // What must not be parted from this word goes along.
            let tail = line[i + 1..].iter().take_while(|p| !p.may_break && !p.is_remark);
            let tail: usize = tail.map(|p| usize::from(p.spaced) + columns(p.text)).sum();
            let full = i > 0 && piece.may_break && at + 1 + columns(piece.text) + tail > WIDTH;
            if i == 0 || full {
                if full {
                    self.out.push('\n');
                    self.continued = true;
                }
                at = indent + if self.continued { LEVEL } else { 0 };
                self.out.extend(std::iter::repeat_n(' ', at));
            } else if piece.spaced {
                self.out.push(' ');
                at += 1;
            }
            self.out.push_str(piece.text);
            at += columns(piece.text);
        }
        if !line.is_empty() {
            self.out.push('\n');
        }
    }
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

/// Returns true if a token is a comment of any kind.
fn is_remark(token: &SourceToken) -> bool {
    token.is_comment() || token.kind == TokenKind::Doc
}
