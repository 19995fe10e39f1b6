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
        let found = compile(program, sources, &shape, &options, Placement::InPlace);
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
