//! Draws wrong programs from right ones as a person errs: another variable, an index that is one off, a sign, an
//! operator, a statement left out or written twice, source and target exchanged, and two lines at once.
//!
//! The changes are made in the text, so that a mistake has lines, and can be read in a message. `places` lists them.

mod places;

use std::collections::BTreeSet;
use std::ops::Range;

use roundelay_dsl::span::SourceMap;

use crate::SeededRandom;
use places::TextChange;

/// The kinds of mistake, in the order in which they are drawn.
pub const KINDS: &[&str] = &[
    "variable",
    "off by one",
    "sign",
    "operator",
    "condition",
    "missing",
    "turned",
    "range",
    "operation",
    "index",
    "bound",
    "rank",
    "term",
    "parentheses",
    "doubled",
    "swapped",
    "two lines",
];

/// A wrong text.
#[derive(Debug, Clone)]
pub struct TextMistake {
    /// The kind, of [`KINDS`].
    pub kind: &'static str,
    /// The whole text.
    pub text: String,
    /// The changes, for messages.
    pub change: String,
    /// The lines of each change in the text, counted from 1. Where a statement was left out, that is the
    /// line where it stood, the nearest lines before and behind it that hold any text, and the headers of blocks
    /// that are left without anything that moves.
    pub lines: Vec<BTreeSet<u32>>,
    /// The text with each change alone, if there are several.
    pub alone: Vec<String>,
}

/// The single mistakes that a text allows, by kind.
pub struct MistakeList<'t> {
    text: &'t str,
    changes: Vec<TextChange>,
}

impl<'t> MistakeList<'t> {
    /// Returns the mistakes that a text allows; none if it does not parse.
    pub fn new(text: &'t str) -> Self {
        let mut sources = SourceMap::new();
        let id = sources.add("mistake.algo", text);
        let file = roundelay_dsl::parse(&sources, id);
        let changes = file.map_or_else(|_| Vec::new(), |file| places::all(text, &file));
        MistakeList { text, changes }
    }

    /// Draws a mistake: first a kind, all of which are equally likely, then one of that kind.
    pub fn draw(&self, dice: &mut SeededRandom) -> Option<TextMistake> {
        let kind = KINDS[dice.below(KINDS.len())];
        if kind != "two lines" {
            let one = self.of(kind, dice)?;
            return Some(self.made(kind, &[one]));
        }
        // Two mistakes of one line each, on different lines; texts of one line have none.
        let single = &KINDS[..KINDS.len() - 3];
        for _ in 0..8 {
            let [a, b] = [0; 2].map(|_| self.of(single[dice.below(single.len())], dice));
            let (Some(a), Some(b)) = (a, b) else { continue };
            let (a, b) = if a.range.start < b.range.start { (a, b) } else { (b, a) };
            if self.line(a.range.end) < self.line(b.range.start) {
                return Some(self.made(kind, &[a, b]));
            }
        }
        None
    }

    fn of(&self, kind: &str, dice: &mut SeededRandom) -> Option<&TextChange> {
        let all: Vec<&TextChange> = self.changes.iter().filter(|c| c.kind == kind).collect();
        all.get(dice.below(all.len())).copied()
    }

    fn line(&self, at: usize) -> u32 {
        line_of(self.text, at)
    }

    /// Returns the text with the changes, which do not overlap and ascend.
    fn made(&self, kind: &'static str, changes: &[&TextChange]) -> TextMistake {
        let (mut text, mut from) = (String::new(), 0);
        let (mut new, mut says) = (Vec::new(), Vec::new());
        for change in changes {
            let Range { start, end } = change.range;
            text += &self.text[from..start];
            let at = text.len()..text.len() + change.new.len();
            // What comes before a change of an empty block is as it was, or shifted alike.
            let moved = |byte: &usize| (at.start + byte).saturating_sub(start);
            let empty: Vec<usize> = change.empty.iter().map(moved).collect();
            new.push((at, change.new.is_empty(), empty));
            text += &change.new;
            says.push(format!("`{}` becomes `{}`", &self.text[start..end], change.new));
            from = end;
        }
        text += &self.text[from..];
        let lines = |(at, gone, empty): &(Range<usize>, bool, Vec<usize>)| {
            let mut lines = lines_of(&text, at, *gone);
            lines.extend(empty.iter().map(|&byte| line_of(&text, byte)));
            lines
        };
        let lines = new.iter().map(lines).collect();
        let alone = match changes {
            [_] => Vec::new(),
            _ => changes.iter().map(|change| self.made(kind, &[change]).text).collect(),
        };
        TextMistake { kind, text, change: says.join(", and "), lines, alone }
    }
}

/// Returns the line of a byte, counted from 1.
pub fn line_of(text: &str, at: usize) -> u32 {
    let lines = text.as_bytes()[..at.min(text.len())].iter().filter(|&&b| b == b'\n').count();
    u32::try_from(lines).unwrap_or(0) + 1
}

fn lines_of(text: &str, at: &Range<usize>, gone: bool) -> BTreeSet<u32> {
    let (first, last) = (line_of(text, at.start), line_of(text, at.end));
    let mut lines: BTreeSet<u32> = (first..=last).collect();
    if gone {
        let all: Vec<&str> = text.lines().collect();
        let holds = |line: &u32| {
            let text = all.get(*line as usize - 1).map_or("", |t| t.trim());
            !text.is_empty() && !text.starts_with("//") && text != "}"
        };
        lines.extend((1..first).rev().find(holds));
        lines.extend((last + 1..=last + 40).find(holds));
    }
    lines
}
