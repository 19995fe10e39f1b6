//! Measures how often a diagnostic points at what is wrong. Single changes to the algorithms of the library;
//! the first label of the first finding, at the first shape that refutes the mutant, is either on a guilty
//! line or it is not.
//!
//! * *line*: the label begins on a line that the change touches. Where a statement was taken out,
//!   that is the line where it stood, or the nearest line before or behind it that says something.
//! * *statement*: that, or a statement that the change decides: a transfer or `use` in the body of the
//!   `for`, `if` or `each` whose bound or condition was changed, or in the block behind a changed `let`;
//!   a line that calls a changed function.
//!
//! Mistakes as a person makes them (`mistakes`) are drawn over the library and the right programs of the suite: the
//! first label is on a line of the mistake or it is not; of two lines, both have a label or they do not.
//!
//! `BLAME=200` tries more of each algorithm, `ONLY=all_reduce/ring` one of them, `SHOW=1` shows misses. `SEED=7` draws
//! other mistakes, and asks for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use roundelay_algorithms::{CATALOGUE, CatalogueEntry};
use roundelay_compiler::{CompileOptions, Program, Shape, check};
use roundelay_dsl::ast::{Expr, FileDeclaration, Stmt};
use roundelay_dsl::diag::{Diagnostic, codes, render};
use roundelay_dsl::span::{SourceMap, Span};
use roundelay_tests::guilt::{BlamedMistake, drawn, table};
use roundelay_tests::mistakes::KINDS;
use roundelay_tests::mutate::{TextMutant, mutants};
use roundelay_tests::{ParsedSource, SeededRandom, is_grid, paths, read};

/// Refuted mutants looked at of each algorithm.
const TRIED: usize = 30;

/// Least shares, in thousandths, that were reached: on the line, and on the statement. Where a sum is right unless a
/// rank fails, the line is that of a message whose loss shows it, not of the change.
const REACHED: (usize, usize) = (950, 955);

/// Least number of refuted mutants in all.
const SAMPLE: usize = 1_000;

#[derive(Default, Clone, Copy)]
struct Count {
    tried: usize,
    line: usize,
    statement: usize,
    header: usize,
    library: usize,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.tried += other.tried;
        self.line += other.line;
        self.statement += other.statement;
        self.header += other.header;
        self.library += other.library;
    }

    fn row(&self, name: &str) -> String {
        let share = |k: usize| format!("{:.1} %", 100.0 * k as f64 / self.tried.max(1) as f64);
        let other = self.tried - self.statement - self.header - self.library;
        let cells = [self.line, self.statement, self.header, other, self.library].map(share);
        let [line, statement, header, other, library] = cells;
        format!(
            "{name:<32}{:>7}{line:>9}{statement:>11}{header:>9}{other:>9}{library:>9}\n",
            self.tried
        )
    }
}

/// Returns the first finding on the first shape that refutes the program.
fn refuted(program: &Arc<Program>, sources: &SourceMap) -> Option<(Diagnostic, Shape)> {
    let shapes = if is_grid(program) {
        [[2, 2], [2, 3], [3, 2]].map(|axes| Shape { axes: axes.to_vec() }).to_vec()
    } else {
        (2..=9).map(Shape::flat).collect()
    };
    for shape in shapes {
        let last = u32::try_from(shape.ranks() - 1).unwrap_or(0);
        for root in if program.kind.rooted() { vec![0, last] } else { vec![0] } {
            let paths = 2.min(*paths(program).end());
            let options = CompileOptions { root, paths, ..CompileOptions::default() };
            match check(program, sources, &shape, &options) {
                Err(faults) if faults[0].code != codes::REQUIRES => {
                    return Some((faults[0].clone(), shape));
                }
                _ => {}
            }
        }
    }
    None
}

fn line_of(text: &str, at: usize) -> u32 {
    let lines = text.as_bytes()[..at.min(text.len())].iter().filter(|&&b| b == b'\n').count();
    u32::try_from(lines).unwrap_or(0) + 1
}

/// Lines that the change touches.
fn touched(m: &TextMutant) -> BTreeSet<u32> {
    let (first, last) = (line_of(&m.text, m.at.start), line_of(&m.text, m.at.end));
    let mut lines: BTreeSet<u32> = (first..=last).collect();
    if m.kind == "drop" {
        let text: Vec<&str> = m.text.lines().collect();
        let says = |line: &u32| {
            let text = text.get(*line as usize - 1).map_or("", |t| t.trim());
            !text.is_empty() && !text.starts_with("//") && text != "}"
        };
        lines.extend((1..first).rev().find(says));
        lines.extend((last + 1..=last + 40).find(says));
    }
    lines
}

/// Lines of the statements that a change at a place decides.
struct Decided<'t> {
    text: &'t str,
    at: Range<usize>,
    lines: BTreeSet<u32>,
}

impl Decided<'_> {
    fn holds(&self, span: Span) -> bool {
        span.start as usize <= self.at.start && self.at.start < span.end as usize
    }

    fn has(&self, e: &Expr) -> bool {
        self.holds(e.span)
    }

    fn block(&mut self, stmts: &[Stmt]) {
        for (i, s) in stmts.iter().enumerate() {
            match s {
                Stmt::Let(_, e) if self.has(e) => self.moves(&stmts[i + 1..]),
                Stmt::For(f) => {
                    if [&f.from, &f.to].into_iter().chain(&f.filter).any(|e| self.has(e)) {
                        self.moves(&f.body);
                    }
                    self.block(&f.body);
                }
                Stmt::If(i) => {
                    if self.has(&i.cond) {
                        self.moves(&i.then);
                        self.moves(&i.otherwise);
                    }
                    self.block(&i.then);
                    self.block(&i.otherwise);
                }
                Stmt::Each(e) => {
                    if e.filter.as_ref().is_some_and(|c| self.has(c)) {
                        self.moves(&e.body);
                    }
                    self.block(&e.body);
                }
                Stmt::Split(p) => {
                    if p.range.iter().any(|(a, b)| self.has(a) || self.has(b)) {
                        self.moves(&p.body);
                    }
                    self.block(&p.body);
                }
                _ => {}
            }
        }
    }

    /// Notes the lines of all transfers in a block.
    fn moves(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Transfer(t) => self.line(t.span),
                Stmt::Use(u) => self.line(u.span),
                Stmt::For(f) => self.moves(&f.body),
                Stmt::Each(e) => self.moves(&e.body),
                Stmt::Split(p) => self.moves(&p.body),
                Stmt::If(i) => {
                    self.moves(&i.then);
                    self.moves(&i.otherwise);
                }
                Stmt::Let(..) | Stmt::Ensure(_) => {}
            }
        }
    }

    fn line(&mut self, span: Span) {
        self.lines.insert(line_of(self.text, span.start as usize));
    }
}

fn decided(m: &TextMutant) -> BTreeSet<u32> {
    let mut sources = SourceMap::new();
    let id = sources.add("mutant.algo", m.text.as_str());
    let mut found = Decided { text: &m.text, at: m.at.clone(), lines: BTreeSet::new() };
    let file = roundelay_dsl::parse(&sources, id);
    for item in file.iter().flat_map(|f| &f.items) {
        match item {
            FileDeclaration::Algorithm(a) => found.block(&a.body),
            FileDeclaration::Fn(f)
                if found.has(&f.value) || f.lets.iter().any(|(_, e)| found.has(e)) =>
            {
                let call = format!("{}(", f.name.text);
                let lines = m.text.lines().zip(1..).filter(|(t, _)| t.contains(&call));
                found.lines.extend(lines.map(|(_, line)| line));
            }
            _ => {}
        }
    }
    found.lines
}

fn judge(m: &TextMutant, source: &ParsedSource, program: &Program, found: &Diagnostic) -> Count {
    let mut count = Count { tried: 1, ..Count::default() };
    let Some(span) = found.span() else { return count };
    if source.sources.get(span.source).name != "mutant.algo" {
        count.library = 1;
        return count;
    }
    let line = line_of(&m.text, span.start as usize);
    count.line = usize::from(touched(m).contains(&line));
    count.statement = usize::from(count.line == 1 || decided(m).contains(&line));
    let header = line_of(&m.text, program.header.start as usize);
    count.header = usize::from(count.statement == 0 && line == header);
    count
}

fn try_all(
    entry: &CatalogueEntry,
    kinds: &mut BTreeMap<&'static str, Count>,
    misses: &mut String,
) -> Count {
    let mut dice = SeededRandom(entry.text.len() as u64);
    let tried = std::env::var("BLAME").ok().and_then(|v| v.parse().ok()).unwrap_or(TRIED);
    let mut all = Count::default();
    let mut left = mutants(entry.text);
    while all.tried < tried && !left.is_empty() {
        let m = left.swap_remove(dice.below(left.len()));
        let Ok(source) = read("mutant.algo", &m.text) else { continue };
        let Some(program) = source.programs.iter().find(|p| p.name == entry.name) else { continue };
        let Some((found, shape)) = refuted(program, &source.sources) else { continue };
        let count = judge(&m, &source, program, &found);
        if count.line == 0 {
            *misses += &format!(
                "{} {}: {} ({shape}, line {})\n    {} {:?} {:?}\n",
                entry.path,
                m.kind,
                m.change,
                line_of(&m.text, m.at.start),
                render::short(&source.sources, &found),
                found.labels.first().map(|l| &l.text),
                found.helps,
            );
        }
        kinds.entry(m.kind).or_default().add(count);
        all.add(count);
    }
    all
}

#[test]
fn the_guilty_line_is_named() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut table = format!(
        "{:<32}{:>7}{:>9}{:>11}{:>9}{:>9}{:>9}\n",
        "", "tried", "line", "statement", "header", "other", "library"
    );
    let (mut all, mut kinds, mut misses) = (Count::default(), BTreeMap::new(), String::new());
    for entry in CATALOGUE.iter().filter(|e| e.path.contains(&only)) {
        let count = try_all(entry, &mut kinds, &mut misses);
        table += &count.row(&format!("{}.{}", entry.collective, entry.name));
        all.add(count);
    }
    for (kind, count) in &kinds {
        table += &count.row(kind);
    }
    table += &all.row("all");
    use std::io::Write;
    let shown = if std::env::var("SHOW").is_ok() { misses.as_str() } else { "" };
    let _ = std::io::stderr().write_all(format!("{shown}{table}").as_bytes());
    if only.is_empty() {
        let reached = (all.line * 1000 / all.tried.max(1), all.statement * 1000 / all.tried.max(1));
        assert!(all.tried >= SAMPLE, "only {} refuted mutants", all.tried);
        assert!(reached.0 >= REACHED.0 && reached.1 >= REACHED.1, "{reached:?}, not {REACHED:?}");
        assert_eq!(all.library, 0, "a file of the library is blamed");
    }
}

/// Seeds of the mistakes that are drawn, and how many of each.
const SEEDS: [u64; 2] = [2027, 2028];
const DRAWN: usize = 150;

/// Least shares of mistakes, in thousandths: the first label is on a line of the mistake, and each of its lines has
/// one.
const BLAMED: (usize, usize) = (930, 900);

#[test]
fn mistakes_of_a_person_are_blamed() {
    let seed = std::env::var("SEED").ok().and_then(|v| v.parse().ok());
    let seeds = seed.map_or(SEEDS.to_vec(), |seed| vec![seed]);
    let blames: Vec<BlamedMistake> = seeds.iter().flat_map(|&seed| drawn(seed, DRAWN)).collect();
    assert_eq!(blames.len(), seeds.len() * DRAWN);
    for kind in KINDS {
        let some = blames.iter().any(|b| b.mistake.kind == *kind);
        assert!(some || seed.is_some(), "no mistake is drawn of the kind `{kind}`");
    }
    let mut text = String::new();
    for b in blames.iter().filter(|b| std::env::var("SHOW").is_ok() && !b.guilty()) {
        text += &format!("{} {}: {}\n    {}\n", b.name, b.mistake.kind, b.mistake.change, b.text);
    }
    text += &table(&blames);
    use std::io::Write;
    let _ = std::io::stderr().write_all(text.as_bytes());
    let share = |named: &dyn Fn(&BlamedMistake) -> bool| {
        blames.iter().filter(|b| named(b)).count() * 1000 / blames.len().max(1)
    };
    let reached = (share(&BlamedMistake::guilty), share(&BlamedMistake::all_named));
    let enough = reached.0 >= BLAMED.0 && reached.1 >= BLAMED.1;
    assert!(enough || seed.is_some(), "{reached:?}, not {BLAMED:?}");
}
