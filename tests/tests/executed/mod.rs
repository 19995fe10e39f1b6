//! Tests every algorithm of the library, and random ones of declared collectives, run on real data by the
//! runtime, and compared with a reference that knows nothing of plans: `reference` says what the collectives
//! are, `values` what the operators do, `case` runs a call and judges it, `job` holds the ranks.
//!
//! Types, operators, data, memory and schedules are drawn from a seed. `SEED=7` draws others,
//! `RUNS=20` more, `ONLY=all_reduce.ring` runs one algorithm; `ROUNDS=20` draws more declared collectives;
//! `ROUNDELAY_CI=full` draws four times as many of both.

mod case;
mod job;
mod reference;
mod values;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use case::{Case, Manner, Plans, SCHEDULES};
use job::Jobs;
use roundelay::launch::RankLauncher;
use roundelay::plan::{CallArgs, PlanCall};
use roundelay::{Communicator, DType, Error, RedOp};
use roundelay_algorithms::{CATALOGUE, sweep};
use roundelay_compiler::program::CollectiveKind;
use roundelay_compiler::{BufferPlacement, Program, Shape};
use roundelay_dsl::span::SourceMap;
use roundelay_tests::oracle::{self, EarlyStop, OraclePlace, ParsedLibrary, ParsedText};
use roundelay_tests::{
    SeededRandom, declared, is_full, is_grid, of_library, read, say as explain, suite,
    test_arguments,
};
use values::{Data, epsilon, pairs};

const COUNTS: [usize; 5] = [0, 1, 7, 1023, 5003];
const MILLION: usize = (1 << 20) + 3;
/// Marks a process as a rank.
const RANK: &str = "EXECUTED_RANK";

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn shapes(program: &Program) -> Vec<Shape> {
    if is_grid(program) {
        [[1, 2], [2, 2], [2, 3], [4, 2]].map(|axes| Shape { axes: axes.to_vec() }).to_vec()
    } else {
        [1, 2, 3, 4, 5, 8].map(Shape::flat).to_vec()
    }
}

/// An algorithm to run, by a name for messages.
type Piece = (String, SourceMap, Arc<Program>);

/// Returns the library, the library once more in channels, and what else the suite has for collectives of the library.
fn pieces() -> Vec<Piece> {
    let mut pieces = Vec::new();
    let moves = CATALOGUE.iter().filter(|e| e.collective != "barrier");
    for entry in moves.flat_map(|entry| sweep(entry).into_iter().take(2)) {
        let name = format!("{}.{}", entry.collective, entry.name);
        let (sources, program) = of_library(entry).expect("the library resolves");
        pieces.push((name.clone(), sources, program));
        if let Some(body) = entry.text.trim_end().strip_suffix('}')
            && !body.contains("schedule {")
            && !entry.name.contains('(')
            // What is split by bandwidth has no channels, and chunks in channels do not fail together.
            && pieces.last().is_some_and(|(_, _, program)| {
                program.weighted().is_none() && program.tolerates.is_none()
            })
        {
            let text = format!("{body}    schedule {{ channels 2 pipeline 2 }}\n}}\n");
            let source =
                read(entry.path, &text).unwrap_or_else(|(s, d)| panic!("{}", explain(&s, &d)));
            let program = source.programs.iter().find(|p| p.name == entry.name);
            let program = program.expect("its algorithm").clone();
            pieces.push((name + " in channels", source.sources, program));
        }
    }
    for path in suite() {
        let name = path.file_stem().map_or(String::new(), |s| s.to_string_lossy().into_owned());
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if name.starts_with("good_")
            && let Ok(mut source) = read(&name, &text)
            && let Some(program) = source.programs.pop()
            && !matches!(program.kind, CollectiveKind::Custom(_))
        {
            pieces.push((name, source.sources, program));
        }
    }
    pieces
}

/// The coverage of all calls.
#[derive(Default)]
struct Tally {
    algorithms: BTreeSet<String>,
    plans: usize,
    pairs: BTreeSet<(DType, RedOp)>,
    calls: usize,
    failures: Vec<String>,
}

impl Tally {
    fn report(&self, jobs: &Jobs, began: Instant) {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} algorithms, {} sets of plans, {} calls in {:.1} s; {} of {} types with operators",
            self.algorithms.len(),
            self.plans,
            self.calls,
            began.elapsed().as_secs_f64(),
            self.pairs.len(),
            pairs().len(),
        );
        let _ = writeln!(
            text,
            "{} messages, {} of them read in place; {} calls in several passes, at most {}",
            jobs.messages, jobs.pulled, jobs.in_passes, jobs.most_passes
        );
        say(&text);
        assert!(self.failures.is_empty(), "{}", self.failures.join("\n"));
    }
}

/// Returns all counts, or, where tests take a sample, every fourth: others for each of four sets of plans in turn.
fn some(counts: &[usize], plans: usize) -> impl Iterator<Item = usize> {
    let (first, stride) = if is_full() { (0, 1) } else { (plans % 4, 4) };
    counts.iter().copied().skip(first).step_by(stride)
}

/// Draws pairs of type and operator, each as often as any other.
struct Deck {
    cards: Vec<(DType, RedOp)>,
    dice: SeededRandom,
}

impl Deck {
    fn draw(&mut self) -> (DType, RedOp) {
        if self.cards.is_empty() {
            self.cards = pairs();
        }
        let at = self.dice.below(self.cards.len());
        self.cards.swap_remove(at)
    }

    /// Returns a call of the plans.
    fn case<'a>(&mut self, plans: &'a Plans, count: usize) -> Case<'a> {
        let (dtype, op) = loop {
            let (dtype, op) = self.draw();
            if plans.takes(dtype, op) {
                break (dtype, op);
            }
        };
        let data = match (plans.collective.reduces(), self.dice.below(2)) {
            (false, _) => Data::Bits,
            (true, 0) => Data::Exact,
            (true, _) => Data::Rough,
        };
        let shares = plans.shares(&mut self.dice);
        Case { plans, count, dtype, op, data, seed: self.dice.below(1 << 40) as u64, shares }
    }
}

#[test]
fn the_library_is_right_on_real_data() {
    let began = Instant::now();
    let seed = setting("SEED", 1);
    let runs = setting("RUNS", if is_full() { 2 } else { 1 });
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut deck = Deck { cards: vec![], dice: SeededRandom(seed) };
    let (mut jobs, mut tally) = (Jobs::default(), Tally::default());
    for (name, sources, program) in pieces().iter().filter(|(name, ..)| name.contains(&only)) {
        let paths = if program.weighted().is_some() { 1..5 } else { 1..2 };
        for (shape, paths) in
            shapes(program).into_iter().flat_map(|s| paths.clone().map(move |p| (s.clone(), p)))
        {
            let last = if program.kind.rooted() { shape.ranks() as u32 - 1 } else { 0 };
            for (root, placement) in BTreeSet::from([0, last]).into_iter().flat_map(|root| {
                [(root, BufferPlacement::InPlace), (root, BufferPlacement::OutOfPlace)]
            }) {
                let plans =
                    match Plans::compile(name, program, sources, &shape, root, placement, paths) {
                        Ok(Some(plans)) => plans,
                        Ok(None) => continue,
                        // Files of the suite say themselves where they are right.
                        Err(_) if name.starts_with("good_") => continue,
                        Err(e) => panic!("{name} on {shape}: {e}"),
                    };
                tally.plans += 1;
                tally.algorithms.insert(name.clone());
                for _ in 0..runs {
                    for count in some(&COUNTS, tally.plans) {
                        let case = deck.case(&plans, count);
                        run_twice(&case, &mut jobs, &mut tally, &mut deck.dice);
                    }
                }
            }
        }
    }
    tally.report(&jobs, began);
}

/// Reads a declared collective as the oracle does, and its algorithm; with the plans if it is right.
fn own(text: &str, asked: &str, shape: &Shape) -> Result<Option<Plans>, EarlyStop> {
    let source = read("own.algo", text).unwrap_or_else(|(s, d)| panic!("{}", explain(&s, &d)));
    let program = source.programs.iter().find(|p| p.name == "main").expect("an algorithm");
    let asked = ParsedText::parsed(asked, &[]).expect("a program");
    let lengths: Vec<usize> = shape.axes.iter().map(|a| *a as usize).collect();
    let at = OraclePlace { shape: &lengths, root: 0, paths: 1 };
    let declared = oracle::asked(&ParsedLibrary::default(), &asked, "main", at)?;
    Ok(Plans::declared(text, declared, program, &source.sources, shape).ok().flatten())
}

#[test]
fn declared_collectives_are_right_on_real_data() {
    let began = Instant::now();
    let seed = setting("SEED", 1);
    let mut deck = Deck { cards: vec![], dice: SeededRandom(seed) };
    let (mut jobs, mut tally) = (Jobs::default(), Tally::default());
    let (mut wrong, mut meaningless) = (0, 0);
    for i in 0..30 * setting("ROUNDS", if is_full() { 2 } else { 1 }) {
        let (text, grid) = declared::program(&mut SeededRandom(seed << 32 ^ i));
        let shapes: Vec<Shape> = match grid {
            true => [[1, 2], [2, 2], [2, 3]].map(|axes| Shape { axes: axes.to_vec() }).to_vec(),
            false => [1, 2, 3, 5].map(Shape::flat).to_vec(),
        };
        for shape in shapes {
            match own(&text, &text, &shape) {
                Err(EarlyStop::Wrong(_)) => meaningless += 1,
                Err(e) => panic!("{e:?}: {text}"),
                Ok(None) => wrong += 1,
                Ok(Some(plans)) => {
                    tally.plans += 1;
                    tally.algorithms.insert(text.clone());
                    for count in some(&COUNTS[..4], tally.plans) {
                        let case = deck.case(&plans, count);
                        run_twice(&case, &mut jobs, &mut tally, &mut deck.dice);
                    }
                }
            }
        }
    }
    say(&format!("{wrong} wrong, {meaningless} without a meaning; "));
    tally.report(&jobs, began);
    assert!(tally.plans > 40, "{} sets of plans", tally.plans);
}

/// Results are judged by what the oracle reads: by other postconditions they are wrong.
#[test]
fn results_that_were_not_asked_for_are_reported() {
    let text = |sum: &str, source: &str, from: &str| {
        format!(
            "collective own on n ranks {{ input 2 output 2
    each r {{ output[0] = reduce p in 0..{sum} : input[p % 2] at p
        output[1] = input[{source}] at (r - {from}) % n }} }}
algorithm main implements own on n ranks {{
    each r {{ r -> r : copy input[r % 2] -> output[0]  r -> (r + 1) % n : copy input[0] -> output[1] }}
    each r {{ for q in 0..n where q != r {{ r -> q : reduce input[r % 2] -> output[0] }} }} }}"
        )
    };
    let right = text("n", "0", "1");
    let others = [text("n - 1", "0", "1"), text("n", "1", "1"), text("n", "0", "2")];
    let (mut jobs, mut deck) = (Jobs::default(), Deck { cards: vec![], dice: SeededRandom(1) });
    for (asked, is_right) in [(&right, true)].into_iter().chain(others.iter().map(|o| (o, false))) {
        let plans = own(&right, asked, &Shape::flat(3)).expect("it is asked").expect("it is right");
        let case = Case { dtype: DType::U32, op: RedOp::Sum, ..deck.case(&plans, 100) };
        let manner = Manner { schedule: 0, slot_bytes: 0, shared: true, guard: 1 };
        let found = jobs.run(&case, manner, &case.vectors());
        assert_eq!(found.is_ok(), is_right, "{:?}: {asked}", found.err());
    }
}

/// Runs a call in two manners; the results must be right, and equal.
fn run_twice(case: &Case<'_>, jobs: &mut Jobs, tally: &mut Tally, dice: &mut SeededRandom) {
    if tally.failures.len() >= 5 {
        return;
    }
    tally.calls += 4;
    if case.plans.collective.reduces() && case.count > 0 {
        tally.pairs.insert((case.dtype, case.op));
    }
    let vectors = case.vectors();
    let shared = dice.below(2) == 0;
    // Slots in which messages of more than a few elements take many passes, and usual ones.
    let tiny = if case.count > 2000 { 4096 } else { 64 };
    let mut manner = |shared, slot_bytes| Manner {
        schedule: dice.below(SCHEDULES),
        slot_bytes,
        shared,
        guard: 1 + dice.below(17),
    };
    let manners = [manner(shared, tiny), manner(!shared, 0)];
    match manners.map(|manner| jobs.run(case, manner, &vectors)) {
        [Ok(a), Ok(b)] if a == b => {}
        [Ok(_), Ok(_)] => {
            tally.failures.push(format!("{case}: {manners:?} have different results"));
        }
        [a, b] => {
            for e in [a.err(), b.err()].into_iter().flatten() {
                tally.failures.push(format!("{case}: {e}"));
            }
        }
    }
}

#[test]
fn a_million_elements() {
    let began = Instant::now();
    let (mut jobs, mut tally) = (Jobs::default(), Tally::default());
    let mut dice = SeededRandom(setting("SEED", 1));
    let (inside, apart) = (BufferPlacement::InPlace, BufferPlacement::OutOfPlace);
    for (path, shape, root, placement, dtype, op, data) in [
        ("all_reduce.ring", "3", 0, inside, DType::F32, RedOp::Sum, Data::Rough),
        ("all_reduce.halving_doubling", "4", 0, apart, DType::Bf16, RedOp::Avg, Data::Exact),
        (
            "all_reduce.double_binary_tree",
            "5",
            0,
            inside,
            DType::I64,
            RedOp::PremulSum,
            Data::Exact,
        ),
        ("all_reduce.two_level", "2x2", 0, inside, DType::F16, RedOp::Max, Data::Rough),
        ("all_gather.bruck", "3", 0, apart, DType::I8, RedOp::Sum, Data::Bits),
        ("all_to_all.bruck", "3", 0, apart, DType::U8, RedOp::Sum, Data::Bits),
        ("reduce_scatter.ring", "2", 0, inside, DType::F64, RedOp::Prod, Data::Rough),
        ("broadcast.chain", "8", 7, inside, DType::U32, RedOp::Sum, Data::Bits),
        ("reduce.binomial", "5", 4, apart, DType::U8, RedOp::Xor, Data::Exact),
    ] {
        let plans = Plans::of(path, shape, root, placement);
        tally.plans += 1;
        tally.algorithms.insert(path.into());
        tally.pairs.insert((dtype, op));
        let case = Case {
            plans: &plans,
            count: MILLION,
            dtype,
            op,
            data,
            seed: dice.below(1 << 40) as u64,
            shares: None,
        };
        let vectors = case.vectors();
        for shared in [true, false] {
            let manner = Manner { schedule: 0, slot_bytes: 0, shared, guard: 1 };
            tally.calls += 2;
            if let Err(e) = jobs.run(&case, manner, &vectors) {
                tally.failures.push(format!("{case}: {e}"));
            }
        }
    }
    tally.report(&jobs, began);
}

#[test]
fn a_barrier_lets_nobody_out_before_all_are_in() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for n in [1, 2, 3, 4, 5, 8] {
        for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
            let plans = Plans::of("barrier.dissemination", &n.to_string(), 0, placement);
            let arrived = AtomicUsize::new(0);
            job::together(&mut job::ranks(n, 0), |comm| {
                for round in 1..=100 {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    let args = match placement {
                        BufferPlacement::InPlace => CallArgs::InPlace { data: &mut [][..] },
                        BufferPlacement::OutOfPlace => {
                            CallArgs::OutOfPlace { input: &[][..], output: &mut [][..] }
                        }
                    };
                    let (dtype, op) = (DType::U8, RedOp::Sum);
                    let call = PlanCall { count: 0, dtype, op, factor: 1.0, args };
                    comm.run(&plans.plans[0][comm.rank() as usize], call).expect("a barrier");
                    assert!(arrived.load(Ordering::SeqCst) >= n as usize * round);
                }
            });
        }
    }
}

#[test]
fn a_fault_is_reported() {
    for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
        let plans = Plans::of("all_reduce.ring", "3", 0, placement);
        let mut dice = SeededRandom(3);
        for &dtype in DType::ALL {
            let op = if dtype == DType::Bool { RedOp::Xor } else { RedOp::Sum };
            for data in [Data::Exact, Data::Rough] {
                let case =
                    Case { plans: &plans, count: 100, dtype, op, data, seed: 5, shares: None };
                let vectors = case.vectors();
                let shared = dice.below(2) == 0;
                let manner = Manner { schedule: 0, slot_bytes: 0, shared, guard: 2 };
                let outcomes = job::together(&mut job::ranks(3, 0), |comm| {
                    case.run(comm, manner, &vectors).expect("a run")
                });
                for (rank, mut outcome) in (0..).zip(outcomes) {
                    assert_eq!(case.judge(rank, &vectors, &outcome), Ok(()), "{case}");
                    let mut changed = vectors.clone();
                    let at = dice.below(100) * dtype.size();
                    // The byte with the sign, the exponent or the only bit there is.
                    changed[dice.below(3)][at + dtype.size() - 1] ^=
                        if dtype == DType::Bool { 1 } else { 0x40 };
                    assert!(case.judge(rank, &changed, &outcome).is_err(), "{case}");
                    let wrong = dice.below(outcome.result.all_mut().len());
                    outcome.result.all_mut()[wrong] ^= 0x41;
                    let seen = case.judge(rank, &vectors, &outcome).is_err();
                    // In the low byte of a float it may be a rounding.
                    assert!(seen || data == Data::Rough && epsilon(dtype).is_some(), "{case}");
                }
            }
        }
    }
}

#[test]
fn what_does_not_go_together_is_refused_and_does_no_harm() {
    let ring = Plans::of("all_reduce.ring", "2", 0, BufferPlacement::InPlace);
    let compressed = Plans::of("all_reduce.compressed", "2", 0, BufferPlacement::InPlace);
    job::together(&mut job::ranks(2, 0), |comm| {
        for plans in [&ring, &compressed] {
            for &dtype in DType::ALL {
                for &op in RedOp::ALL {
                    let mut bytes = vec![1; 16 * dtype.size()];
                    let args = CallArgs::InPlace { data: &mut bytes[..] };
                    let call = PlanCall { count: 16, dtype, op, factor: 1.0, args };
                    let result = comm.run(&plans.plans[0][comm.rank() as usize], call);
                    let fits = plans.takes(dtype, op);
                    match result {
                        Ok(_) => assert!(fits, "{} takes {dtype} {op}", plans.name),
                        Err(Error::Unsupported(e)) => {
                            assert!(!fits, "{}: {dtype} {op}: {e}", plans.name);
                        }
                        Err(e) => panic!("{}: {dtype} {op}: {e}", plans.name),
                    }
                }
            }
        }
    });
}

/// Returns the plans of calls that processes make.
fn of_processes(n: u32) -> Vec<Plans> {
    let mut all = Vec::new();
    for (path, root) in [
        ("all_reduce.ring", 0),
        ("all_reduce.one_shot", 0),
        ("all_reduce.double_binary_tree", 0),
        ("broadcast.binomial", n - 1),
        ("reduce_scatter.circulant", 0),
        ("gather.binomial", 1 % n),
    ] {
        for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
            all.push(Plans::of(path, &n.to_string(), root, placement));
        }
    }
    all.push(Plans::of("all_to_all.bruck", &n.to_string(), 0, BufferPlacement::OutOfPlace));
    all
}

/// Runs a rank of a launched job; not a test by itself.
#[test]
fn rank_process() {
    if std::env::var(RANK).is_err() {
        return;
    }
    let mut comm = Communicator::from_env().expect("a job");
    let (rank, n) = (comm.rank(), comm.size());
    let mut deck = Deck { cards: vec![], dice: SeededRandom(setting("SEED", 1)) };
    let mut said = String::new();
    for plans in of_processes(n) {
        for count in [1, 1023, 100_003] {
            let case = deck.case(&plans, count);
            let vectors = case.vectors();
            let (schedule, shared) = (deck.dice.below(SCHEDULES), deck.dice.below(2) == 0);
            let manner = Manner { schedule, slot_bytes: 0, shared, guard: 1 };
            let outcome =
                case.run(&mut comm, manner, &vectors).unwrap_or_else(|e| panic!("{case}: {e}"));
            case.judge(rank, &vectors, &outcome).unwrap_or_else(|e| panic!("{case}: {e}"));
            let equal = plans.bitwise && plans.collective.name == "all_reduce";
            let result = if equal { case.result(rank, &outcome) } else { vec![] };
            let sum = result.iter().fold(0u64, |h, &b| h.wrapping_mul(31) ^ u64::from(b));
            let _ = writeln!(said, "\n> {case}: {sum}");
        }
    }
    let _ = std::io::stdout().write_all(said.as_bytes());
}

#[test]
fn processes_are_right_too() {
    for n in [1, 2, 3, 5] {
        let mut said = vec![Vec::new(); n as usize];
        let outcome = RankLauncher::new(n)
            .args(test_arguments(module_path!(), "rank_process"))
            .env(RANK, "1")
            .run(|rank, line| {
                if line.starts_with("> ") {
                    said[rank as usize].push(line.to_string());
                }
            })
            .expect("a job");
        assert!(outcome.success(), "{outcome:?}");
        assert_eq!(said[0].len(), 3 * of_processes(n).len());
        for (rank, lines) in said.iter().enumerate() {
            assert_eq!(*lines, said[0], "rank {rank} has not what rank 0 has");
        }
    }
}
