//! Measures how often a finding points at the lines that a mistake changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::{CompileOptions, Program, Shape, check};
use roundelay_dsl::diag::{Diagnostic, codes, render};
use roundelay_dsl::span::SourceMap;

use crate::mistakes::{MistakeList, TextMistake, line_of};
use crate::{SeededRandom, is_grid, paths, read, shapes, suite};

/// The most ranks of a shape at which a suite's program is tried.
const MOST_RANKS: u32 = 9;

/// A right text in which mistakes are made.
pub struct RightText {
    /// The name of its file.
    pub name: String,
    /// The text.
    pub text: String,
    /// The shapes that it names, if it does.
    shapes: Vec<Shape>,
}

/// Returns the programs of the library, and those of the suite that are right.
pub fn right_texts() -> Vec<RightText> {
    let library = CATALOGUE.iter().map(|e| RightText {
        name: e.path.to_string(),
        text: e.text.to_string(),
        shapes: Vec::new(),
    });
    let mut all: Vec<RightText> = library.collect();
    for path in suite() {
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into());
        let Some(text) = std::fs::read_to_string(&path).ok().filter(|_| name.starts_with("good_"))
        else {
            continue;
        };
        let words = text.lines().find_map(|l| l.trim().strip_prefix("// check:"));
        let words = words.unwrap_or("").split_whitespace();
        let mut shapes = shapes(words).unwrap_or_default();
        shapes.retain(|shape| shape.ranks() <= MOST_RANKS.into());
        all.push(RightText { name, text, shapes });
    }
    all
}

/// A refuted mistake, and what the first finding says of it.
pub struct BlamedMistake {
    /// The file.
    pub name: String,
    /// The mistake.
    pub mistake: TextMistake,
    /// The shape that refutes it.
    pub shape: Shape,
    /// The finding.
    pub finding: Diagnostic,
    /// The finding in one line.
    pub text: String,
    /// The lines of its labels in the text, in order; 0 for those of other texts.
    pub lines: Vec<u32>,
}

impl BlamedMistake {
    /// Returns true if the first label stands on a changed line.
    pub fn guilty(&self) -> bool {
        let first = self.lines.first();
        first.is_some_and(|line| self.mistake.lines.iter().any(|lines| lines.contains(line)))
    }

    /// Returns true if every change has a label on its lines.
    pub fn all_named(&self) -> bool {
        let named = |lines: &BTreeSet<u32>| self.lines.iter().any(|line| lines.contains(line));
        self.mistake.lines.iter().all(named)
    }
}

/// Returns the first finding on the first shape that refutes a program.
fn refuted(
    program: &Arc<Program>,
    sources: &SourceMap,
    shapes: &[Shape],
) -> Option<(Diagnostic, Shape)> {
    let usual = if is_grid(program) {
        [[2, 2], [2, 3], [3, 2]].map(|axes| Shape { axes: axes.to_vec() }).to_vec()
    } else {
        (2..=MOST_RANKS).map(Shape::flat).collect()
    };
    for shape in if shapes.is_empty() { &usual } else { shapes } {
        let last = u32::try_from(shape.ranks() - 1).unwrap_or(0);
        for root in if program.kind.rooted() { vec![0, last] } else { vec![0] } {
            let paths = 2.min(*paths(program).end());
            let options = CompileOptions { root, paths, ..CompileOptions::default() };
            match check(program, sources, shape, &options) {
                Err(faults) if faults[0].code != codes::REQUIRES => {
                    return Some((faults[0].clone(), shape.clone()));
                }
                _ => {}
            }
        }
    }
    None
}

/// Checks a mistake; `None` if it does not resolve, or is right at all shapes. Of several changes each must be
/// refuted alone.
pub fn blame(of: &RightText, mistake: &TextMistake) -> Option<BlamedMistake> {
    let first = |text: &str| {
        let source = read("mistake.algo", text).ok()?;
        let mut programs = source.programs.iter();
        let found = programs.find_map(|p| refuted(p, &source.sources, &of.shapes))?;
        Some((found, source))
    };
    let ((finding, shape), source) = first(&mistake.text)?;
    if mistake.alone.iter().any(|text| first(text).is_none()) {
        return None;
    }
    let line = |span: roundelay_dsl::span::Span| {
        let here = source.sources.get(span.source).name == "mistake.algo";
        if here { line_of(&mistake.text, span.start as usize) } else { 0 }
    };
    let lines = finding.labels.iter().map(|l| line(l.span)).collect();
    let text = render::short(&source.sources, &finding).trim().to_string();
    let (name, mistake) = (of.name.clone(), mistake.clone());
    Some(BlamedMistake { name, mistake, shape, finding, text, lines })
}

/// Draws a number of different mistakes that are refuted, from a seed.
pub fn drawn(seed: u64, count: usize) -> Vec<BlamedMistake> {
    let texts = right_texts();
    let all: Vec<MistakeList<'_>> = texts.iter().map(|t| MistakeList::new(&t.text)).collect();
    let (mut dice, mut seen, mut found) = (SeededRandom(seed), BTreeSet::new(), Vec::new());
    // Nine of ten draws are refuted or repeat; the limit ends a generator that draws nothing.
    for _ in 0..100 * count {
        if found.len() == count {
            break;
        }
        let i = dice.below(texts.len());
        let Some(mistake) = all[i].draw(&mut dice) else { continue };
        if seen.insert(mistake.text.clone()) {
            found.extend(blame(&texts[i], &mistake));
        }
    }
    found
}

/// Returns the shares of a set of blames as a table: the guilty line is first, each change has a label.
pub fn table(blames: &[BlamedMistake]) -> String {
    let mut kinds: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for b in blames {
        for kind in [b.mistake.kind, "~ all"] {
            let row = kinds.entry(kind).or_default();
            row[0] += 1;
            row[1] += usize::from(b.guilty());
            row[2] += usize::from(b.all_named());
        }
    }
    let share = |k: usize, of: usize| 100.0 * k as f64 / of.max(1) as f64;
    let mut text = format!("{:<14}{:>6}{:>9}{:>9}\n", "", "drawn", "guilty", "all named");
    for (kind, [all, guilty, named]) in kinds {
        let (guilty, named) = (share(guilty, all), share(named, all));
        text += &format!("{kind:<14}{all:>6}{guilty:>8.1}%{named:>8.1}%\n");
    }
    text
}
