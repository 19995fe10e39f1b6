//! Compares what the compiler says of a program with an oracle that shares only the syntax tree with it: the
//! verdict, the messages, the chunks sent and received, and whether sums are bitwise equal and in order.
//! Slots are compared in `slots`.

use std::io::Write;
use std::sync::Arc;

use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::verify::ProofFacts;
use roundelay_compiler::{BufferPlacement, CompileOptions, Program, Shape, compile};
use roundelay_dsl::diag::Diagnostic;
use roundelay_dsl::diag::codes::{self, ErrorCode};
use roundelay_tests::mutate::mutants;
use roundelay_tests::oracle::{
    EarlyStop, OracleFacts, OraclePlace, ParsedLibrary, ParsedText, evaluate,
};
use roundelay_tests::{ParsedSource, is_grid, roots, say};

use crate::random::make::{self, Made};
use crate::random::{Count, changed, dice, given, guarded, number};

const PLACEMENT: BufferPlacement = BufferPlacement::InPlace;

/// Refusals of programs that mean something: forms of regions, waits, limits.
const REFUSALS: [ErrorCode; 4] = [codes::OVERLAP, codes::DEADLOCK, codes::SLOTS, codes::TOO_BIG];

/// Returns true if the compiler refuses a program that means something.
fn refused(d: &Diagnostic) -> bool {
    REFUSALS.contains(&d.code)
}

/// Returns true if the oracle, which does not distinguish the faults of results, means a code.
fn fits(why: &str, code: &str) -> bool {
    why.starts_with("RL05 ") && code.starts_with("RL05")
}

/// A text, parsed by both.
struct Both<'a> {
    shelves: &'a ParsedLibrary,
    text: ParsedText,
    source: ParsedSource,
}

/// Returns the first property in which the oracle differs from the proof of the compiler.
fn difference(oracle: &OracleFacts, facts: &ProofFacts, chunks: u64) -> Option<&'static str> {
    let same = |a: u64, b: u64| a * chunks == b * oracle.pieces;
    let properties = [
        ("messages", oracle.messages == facts.messages),
        ("chunks sent", same(oracle.sent, facts.sent)),
        ("chunks received", same(oracle.received, facts.received)),
        ("bitwise", oracle.bitwise == facts.bitwise),
        ("order", oracle.ordered == facts.order.map(|o| o.ascending_sums)),
    ];
    properties.into_iter().find(|(_, same)| !same).map(|(name, _)| name)
}

impl<'a> Both<'a> {
    /// Pairs a program that the compiler reads with another one, or the same, that the oracle does.
    fn new(shelves: &'a ParsedLibrary, compiled: &Made, oracle: &Made) -> Option<Both<'a>> {
        let (source, text) =
            (compiled.read().ok()?, ParsedText::parsed(&oracle.text, &oracle.files)?);
        Some(Both { shelves, text, source })
    }

    /// Returns the algorithm that is meant.
    fn program(&self) -> Option<Arc<Program>> {
        self.source.programs.iter().find(|p| p.name != "helper").cloned()
    }

    /// Compares at one shape; gives the word under which it counts.
    fn compare(
        &self,
        program: &Arc<Program>,
        axes: &[u32],
        root: u32,
        paths: u32,
    ) -> Result<&'static str, String> {
        let shape = Shape { axes: axes.to_vec() };
        let options = CompileOptions { root, paths, ..CompileOptions::default() };
        let sources = &self.source.sources;
        let size = |v: u32| usize::try_from(v).unwrap_or(0);
        let lengths: Vec<usize> = axes.iter().map(|a| size(*a)).collect();
        let at = OraclePlace { shape: &lengths, root: size(root), paths: size(paths) };
        let oracle = evaluate(self.shelves, &self.text, &program.name, at);
        if let Err(EarlyStop::Unsupported(what)) = oracle {
            return Ok(what);
        }
        let found = compile(program, sources, &shape, &options, PLACEMENT);
        let differ = |what: &str| Err(format!("on {shape} root {root}, {paths} paths: {what}"));
        match (oracle, found) {
            (Ok(oracle), Ok(proved)) => {
                let facts = proved.facts();
                let chunks = u64::from(proved.graph().instance.spec.chunks);
                match (difference(&oracle, facts, chunks), oracle.bitwise) {
                    (Some(what), _) => {
                        differ(&format!("{what}: {oracle:?}; {facts:?} of {chunks} chunks"))
                    }
                    (None, Some(false)) => Ok("right, not bitwise"),
                    (None, _) => Ok("right"),
                }
            }
            (Err(EarlyStop::Unfit), Err(d)) if d.iter().all(|d| d.code == codes::REQUIRES) => {
                Ok("unfit")
            }
            (Err(EarlyStop::Wrong(why)), Err(d)) => {
                let same = d.iter().any(|d| why.starts_with(d.code.0) || fits(&why, d.code.0));
                if !same && number("SHOW", 0) > 0 {
                    let _ = writeln!(std::io::stderr(), "on {shape}: {why}; {}", say(sources, &d));
                }
                Ok(if same { "wrong" } else { "wrong, for another reason" })
            }
            (Ok(_), Err(d)) if d.iter().all(refused) => Ok(d.first().map_or("", |d| d.code.0)),
            (oracle, found) => {
                let found = found.map_or_else(|d| say(sources, &d), |p| format!("{:?}", p.facts()));
                differ(&format!("verdict: oracle: {oracle:?}; compiler: {found}"))
            }
        }
    }
}

/// Compares the first program of a text at one shape; gives the word under which it counts.
///
/// # Errors
/// The difference between the two.
pub(crate) fn agrees(
    shelves: &ParsedLibrary,
    made: &Made,
    axes: &[u32],
) -> Result<&'static str, String> {
    let both = Both::new(shelves, made, made).ok_or("it is not resolved")?;
    let program = both.program().ok_or("there is no program")?;
    both.compare(&program, axes, 0, 1)
}

/// Compares at all shapes, and counts.
fn all(count: &mut Count, shelves: &ParsedLibrary, i: u64, made: &Made, name: Option<&str>) {
    let Some(both) = Both::new(shelves, made, made) else {
        return count.add("not resolved", 1);
    };
    let named = |n| both.source.programs.iter().find(|p| p.name == n).cloned();
    let Some(program) = name.map_or_else(|| both.program(), named) else { return };
    let program = if name.is_some() { program } else { given(&program, &mut dice(i)) };
    count.add("with arguments", u64::from(program.name.contains('(')));
    let shapes: Vec<Vec<u32>> = match is_grid(&program) {
        true => [[2, 2], [2, 3], [3, 2], [2, 4]].map(|s| s.to_vec()).to_vec(),
        false => (2..=9).map(|n| vec![n]).collect(),
    };
    for (axes, turn) in shapes.into_iter().zip(i..) {
        let all = roots(&program, axes.iter().product());
        let root = all[usize::try_from(i).unwrap_or(0) % all.len()];
        let over = made.text.contains("paths");
        let paths = if over { 1 + u32::try_from(turn % 3).unwrap_or(0) } else { 1 };
        match guarded(|| both.compare(&program, &axes, root, paths)) {
            Ok(what) => count.add(what, 1),
            Err(why) => {
                let files: String =
                    made.files.iter().map(|(p, t)| format!("-- {p}\n{t}")).collect();
                count.differs(i, &format!("{}{files}", made.text), &why);
            }
        }
    }
}

#[test]
fn the_compiler_says_of_the_library_what_the_oracle_says() {
    let (mut count, shelves) = (Count::default(), ParsedLibrary::new());
    for (i, e) in (0..).zip(CATALOGUE) {
        let made = Made::alone(e.text.to_string(), false);
        all(&mut count, &shelves, i, &made, Some(e.name));
    }
    count.finish("oracle on the library", &[("right", 300), ("right, not bitwise", 5)]);
}

#[test]
fn the_compiler_says_of_random_programs_what_the_oracle_says() {
    let (mut count, shelves) = (Count::default(), ParsedLibrary::new());
    for i in 0..1200 * number("ROUNDS", 1) {
        let mut dice = dice(i);
        let (name, made) = make::any(i, &mut dice);
        let made = changed(made, &mut dice);
        count.add(name, 1);
        all(&mut count, &shelves, i, &made, None);
    }
    count.finish("oracle", &[("right", 1500), ("wrong", 1500), ("with arguments", 50)]);
}

/// The start of programs that gather in `t`, on all ranks and by rank, what every rank begins with.
const GATHERED: &str = "chunks 2 scratch t[2 * n] scratch u[2]
    each r { for p in 0..n { r -> p : copy data -> t[2 * r ..+ 2] } }
";

/// Sums in the order of ranks.
const SUMMED: &str = "each r { r -> r : copy t[0..2] -> data }
    for p in 1..n { each r { r -> r : reduce t[2 * p ..+ 2] -> data } }
";

/// Every property is compared: programs that differ in one only are distinguished by it.
#[test]
fn each_property_is_compared() {
    let shelves = ParsedLibrary::new();
    let last = |text: &str| format!("{SUMMED}    {text}");
    let turned = |first: &str, next: &str| {
        format!(
            "each r {{ r -> r : copy t[2 * ({first}) ..+ 2] -> data }}
    for p in 1..n {{ each r {{ r -> r : reduce t[2 * ({next}) ..+ 2] -> data }} }}"
        )
    };
    let pairs = [
        ("verdict", SUMMED.to_string(), SUMMED.replace("1..n", "2..n")),
        (
            "messages",
            last("each r { r -> (r + 1) % n : copy data -> u }"),
            last("each r { for q in 0..2 { r -> (r + 1) % n : copy data[q] -> u[q] } }"),
        ),
        (
            "chunks sent",
            last("0 -> 1 : copy data -> u 0 -> 2 : copy data -> u"),
            last("0 -> 1 : copy data -> u 1 -> 2 : copy data -> u"),
        ),
        (
            "chunks received",
            last("0 -> 2 : copy data -> u 1 -> 2 : copy data -> u"),
            last("0 -> 2 : copy data -> u 1 -> 0 : copy data -> u"),
        ),
        ("bitwise", SUMMED.to_string(), turned("r", "(r + p) % n")),
        ("order", SUMMED.to_string(), turned("n - 1", "n - 1 - p")),
    ];
    let made = |body: &str| {
        let text =
            format!("algorithm main implements all_reduce on n ranks {{ {GATHERED}    {body} }}");
        Made::alone(text, false)
    };
    for (property, one, other) in &pairs {
        for (a, b) in [(one, other), (other, one), (one, one), (other, other)] {
            let both = Both::new(&shelves, &made(a), &made(b)).expect("both are programs");
            let program = both.program().expect("an algorithm");
            let found = both.compare(&program, &[3], 0, 1);
            match (a == b, found) {
                (true, found) => assert!(found.is_ok(), "{property}: {found:?}"),
                (false, Ok(found)) => panic!("{property}: {found}"),
                (false, Err(why)) => {
                    assert!(why.contains(&format!("paths: {property}: ")), "{why}");
                }
            }
        }
    }
}

/// An oracle that reads other postconditions, other imports or other paths than the compiler differs.
#[test]
fn declarations_and_imports_are_compared() {
    let shelves = ParsedLibrary::new();
    let made = |asked: &str, step: &str, path: &str| Made {
        text: format!(
            "import \"tools.algo\"
fn next(r, n) = (r + 2) % n
collective own on n ranks {{ input 2 output 2
    each r {{ output[0] = reduce p in 0..{asked} : input[p % 2] at p
        output[1] = input[0] at (r - 1) % n }} }}
algorithm main implements own on n ranks {{
    each r {{ r -> r : copy input[r % 2] -> output[0] }}
    each r {{ for q in 0..n where q != r {{ r -> q : reduce input[r % 2] -> output[0] }} }}
    each r {{ r -> after(r, n) : copy input[0] -> output[1] }}
    split data over p in paths {{ use all_reduce.ring on output[0..0] via {path} }} }}"
        ),
        grid: false,
        files: vec![(
            "tools.algo".into(),
            format!("fn after(r, n) = next(r, n) fn next(r, n) = (r + {step}) % n"),
        )],
    };
    let right = made("n", "1", "p");
    let others = [
        made("r + 1", "1", "p"),
        made("n - 1", "1", "p"),
        made("n", "2", "p"),
        made("n", "1", "2"),
    ];
    for (same, oracle) in [(true, &right)].into_iter().chain(others.iter().map(|o| (false, o))) {
        let both = Both::new(&shelves, &right, oracle).expect("both are programs");
        let program = both.program().expect("an algorithm");
        let found = both.compare(&program, &[4], 0, 2);
        assert_eq!(found == Ok("right"), same, "{found:?}: {}", oracle.text);
        assert_eq!(found.is_err(), !same, "{found:?}: {}", oracle.text);
    }
}

/// The comparison finds differences where there are some: an oracle that takes sums for copies, or that reads
/// another program than the compiler does.
#[test]
fn the_comparison_can_fail() {
    let (mut count, shelves) = (Count::default(), ParsedLibrary::new());
    for (i, e) in (0..).zip(CATALOGUE) {
        let made = |text: &str| Made::alone(text.to_string(), false);
        let deaf = e.text.replace(": reduce ", ": copy ");
        let Some(both) = Both::new(&shelves, &made(e.text), &made(&deaf)) else { continue };
        let Some(program) = both.program() else { continue };
        if is_grid(&program) {
            continue;
        }
        let differs = |both: &Both<'_>, n| both.compare(&program, &[n], 0, 1).is_err();
        // In a barrier nothing is summed.
        if deaf != e.text && e.collective != "barrier" {
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
            let Some(own) = Both::new(&shelves, &made(&other), &made(&other)) else { continue };
            let Some(both) = Both::new(&shelves, &made(e.text), &made(&other)) else { continue };
            let Some(mutant) = own.program() else { continue };
            for n in 2..=6 {
                // Compares what both say of the mutant, and of the program.
                let shape = Shape::flat(n);
                let found = |program, sources| {
                    let found =
                        compile(program, sources, &shape, &CompileOptions::default(), PLACEMENT);
                    found.map(|p| p.facts().clone()).map_err(|d| d.iter().all(refused))
                };
                let oracle = found(&program, &both.source.sources);
                let others = found(&mutant, &own.source.sources);
                let fits = own.compare(&mutant, &[n], 0, 1);
                let covered = ["right", "right, not bitwise", "wrong"].map(Ok).contains(&fits);
                if !covered || oracle == Err(true) || oracle.is_err() == others.is_err() {
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
