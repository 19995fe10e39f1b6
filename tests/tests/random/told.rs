//! What the compiler says of a program, against an oracle that shares only the syntax tree with it: the
//! verdict, the messages, the chunks sent and received, and whether sums are bitwise equal.

use std::io::Write;
use std::sync::Arc;

use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::{Options, Placement, Program, Shape, compile};
use roundelay_dsl::ast::File;
use roundelay_dsl::diag::Diagnostic;
use roundelay_dsl::diag::codes::{self, Code};
use roundelay_tests::mutate::mutants;
use roundelay_tests::oracle::{Shelves, Stop, parsed, tell};
use roundelay_tests::{Source, is_grid, read, roots, say};

use crate::{Count, changed, dice, guarded, make, number, ranks};

const PLACEMENT: Placement = Placement::InPlace;

/// Refusals of programs that mean something: forms of regions, waits, limits.
const REFUSALS: [Code; 4] = [codes::OVERLAP, codes::DEADLOCK, codes::SLOTS, codes::TOO_BIG];

/// Whether the compiler refuses what means something.
fn refused(d: &Diagnostic) -> bool {
    REFUSALS.contains(&d.code)
}

/// Whether the oracle, which does not tell the faults of results apart, means a code.
fn fits(why: &str, code: &str) -> bool {
    why.starts_with("RL05 ") && code.starts_with("RL05")
}

/// A text, parsed by both.
struct Both<'a> {
    shelves: &'a Shelves,
    file: File,
    source: Source,
}

impl Both<'_> {
    /// Compares at one shape; gives the word under which it counts.
    fn compare(
        &self,
        program: &Arc<Program>,
        axes: &[u32],
        root: u32,
    ) -> Result<&'static str, String> {
        let shape = Shape { axes: axes.to_vec() };
        let options = Options { root, ..Options::default() };
        let sources = &self.source.sources;
        let lengths: Vec<usize> = axes.iter().filter_map(|a| usize::try_from(*a).ok()).collect();
        let at = usize::try_from(root).map_err(|e| e.to_string())?;
        let told = tell(self.shelves, &self.file, &program.name, &lengths, at);
        if let Err(Stop::Unsupported(what)) = told {
            return Ok(what);
        }
        let found = compile(program, sources, &shape, &options, PLACEMENT);
        let differ = |what: &str| Err(format!("on {shape} root {root}: {what}"));
        match (told, found) {
            (Ok(told), Ok(proved)) => {
                let facts = proved.facts();
                let chunks = u64::from(proved.graph().instance.spec.chunks);
                let same = |a: u64, b: u64| a * chunks == b * told.pieces;
                let equal = told.messages == facts.messages
                    && same(told.sent, facts.sent)
                    && same(told.received, facts.received)
                    && told.bitwise == facts.bitwise
                    && told.ordered == facts.ordered;
                if equal {
                    return Ok(if told.bitwise == Some(false) {
                        "right, not bitwise"
                    } else {
                        "right"
                    });
                }
                differ(&format!("{told:?}; {facts:?} of {chunks} chunks"))
            }
            (Err(Stop::Unfit), Err(d)) if d.iter().all(|d| d.code == codes::REQUIRES) => {
                Ok("unfit")
            }
            (Err(Stop::Wrong(why)), Err(d)) => {
                let same = d.iter().any(|d| why.starts_with(d.code.0) || fits(&why, d.code.0));
                if !same && number("SHOW", 0) > 0 {
                    let _ = writeln!(std::io::stderr(), "on {shape}: {why}; {}", say(sources, &d));
                }
                Ok(if same { "wrong" } else { "wrong, for another reason" })
            }
            (Ok(_), Err(d)) if d.iter().all(refused) => Ok(d.first().map_or("", |d| d.code.0)),
            (told, found) => {
                let found = found.map_or_else(|d| say(sources, &d), |p| format!("{:?}", p.facts()));
                differ(&format!("oracle: {told:?}; compiler: {found}"))
            }
        }
    }
}

/// Compares at all shapes, and counts.
fn all(count: &mut Count, shelves: &Shelves, i: u64, text: &str, name: Option<&str>) {
    let (Ok(source), Some(file)) = (read("random.algo", text), parsed(text)) else {
        return count.add("not resolved", 1);
    };
    let wanted = |p: &&Arc<Program>| name.map_or(p.name != "helper", |n| p.name == n);
    let Some(program) = source.programs.iter().find(wanted).cloned() else { return };
    let both = Both { shelves, file, source };
    let shapes: Vec<Vec<u32>> = match is_grid(&program) {
        true => [[2, 2], [2, 3], [3, 2], [2, 4]].map(|s| s.to_vec()).to_vec(),
        false => (2..=9).map(|n| vec![n]).collect(),
    };
    for axes in shapes {
        let all = roots(&program, axes.iter().product());
        let root = all[usize::try_from(i).unwrap_or(0) % all.len()];
        match guarded(|| both.compare(&program, &axes, root)) {
            Ok(what) => count.add(what, 1),
            Err(why) => count.differs(i, text, &why),
        }
    }
}

#[test]
fn the_compiler_says_of_the_book_what_the_oracle_says() {
    let (mut count, shelves) = (Count::default(), Shelves::new());
    for (i, e) in (0..).zip(CATALOGUE) {
        all(&mut count, &shelves, i, e.text, Some(e.name));
    }
    count.finish("told of the book", &[("right", 250), ("right, not bitwise", 5)]);
}

#[test]
fn the_compiler_says_of_random_programs_what_the_oracle_says() {
    let (mut count, shelves) = (Count::default(), Shelves::new());
    for i in 0..1000 * number("ROUNDS", 1) {
        let mut dice = dice(i);
        let text = match dice.below(5) {
            0 | 1 => changed(make::program(&mut dice), &mut dice).text,
            2 | 3 => changed(ranks::program(&mut dice), &mut dice).text,
            _ => {
                let mut all = mutants(CATALOGUE[dice.below(CATALOGUE.len())].text);
                all.swap_remove(dice.below(all.len())).text
            }
        };
        all(&mut count, &shelves, i, &text, None);
    }
    count.finish("told", &[("right", 1500), ("wrong", 1500)]);
}

/// A text that the compiler reads, and another one that the oracle does.
fn apart<'s>(shelves: &'s Shelves, compiled: &str, told: &str) -> Option<(Both<'s>, Arc<Program>)> {
    let (source, file) = (read("random.algo", compiled).ok()?, parsed(told)?);
    let program = source.programs.iter().find(|p| p.name != "helper")?.clone();
    Some((Both { shelves, file, source }, program))
}

/// The comparison finds differences where there are some: an oracle that takes sums for copies, or that reads
/// another program than the compiler does.
#[test]
fn the_comparison_can_fail() {
    let (mut count, shelves) = (Count::default(), Shelves::new());
    for (i, e) in (0..).zip(CATALOGUE) {
        let deaf = e.text.replace(": reduce ", ": copy ");
        let Some((both, program)) = apart(&shelves, e.text, &deaf) else { continue };
        if is_grid(&program) {
            continue;
        }
        let differs = |both: &Both<'_>, n| both.compare(&program, &[n], 0).is_err();
        if deaf != e.text {
            let missed = !(2..=9).any(|n| differs(&both, n));
            count.add("deaf", 1);
            if missed {
                count.differs(i, e.text, "sums are copies for the oracle, and nothing differs");
            }
        }
        let mut dice = dice(i);
        for _ in 0..8 {
            let mut all = mutants(e.text);
            let other = all.swap_remove(dice.below(all.len())).text;
            let Some((own, mutant)) = apart(&shelves, &other, &other) else { continue };
            let Some((both, _)) = apart(&shelves, e.text, &other) else { continue };
            for n in 2..=6 {
                // What both say of the mutant, and of the program.
                let shape = Shape::flat(n);
                let found = |program, sources| {
                    let found = compile(program, sources, &shape, &Options::default(), PLACEMENT);
                    found.map(|p| p.facts().clone()).map_err(|d| d.iter().all(refused))
                };
                let told = found(&program, &both.source.sources);
                let others = found(&mutant, &own.source.sources);
                let fits = own.compare(&mutant, &[n], 0);
                let covered = ["right", "right, not bitwise", "wrong"].map(Ok).contains(&fits);
                if !covered || told == Err(true) || told.is_err() == others.is_err() {
                    continue;
                }
                count.add("mutants", 1);
                if !differs(&both, n) {
                    count.differs(i, &other, &format!("on {n}: another verdict does not differ"));
                }
            }
        }
    }
    count.finish("apart", &[("deaf", 10), ("mutants", 200)]);
}
