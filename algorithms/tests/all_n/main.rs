//! Algorithms that are proved for every rank count, and mutants of them, of which none may be.

mod certificates;

use std::sync::Arc;

use roundelay_algorithms::{AlgorithmLibrary, CATALOGUE, CatalogueEntry};
use roundelay_compiler::all_n::{
    LinearFormula, NotProved, ProofOptions, RefuteOutcome, StepBudget, prove, refute,
};
use roundelay_compiler::{CompileOptions, Program, Shape, check, resolve};
use roundelay_dsl::diag::codes;
use roundelay_dsl::span::SourceMap;

fn resolve_text(text: &str) -> Option<(SourceMap, Arc<Program>)> {
    let mut sources = SourceMap::new();
    let id = sources.add("here.algo", text);
    let mut programs = resolve(&mut sources, id, &AlgorithmLibrary).ok()?;
    (!programs.is_empty()).then(|| (sources, programs.remove(0)))
}

fn name_of(entry: &CatalogueEntry) -> String {
    format!("{}/{}", entry.collective, entry.name)
}

fn text_of(name: &str) -> &'static str {
    let entry = CATALOGUE.iter().find(|entry| name_of(entry) == name);
    entry.expect("an algorithm of the library").text
}

/// Returns the mutants of a text: one operator, number or variable is another.
fn mutants(text: &str) -> Vec<String> {
    let begin = text.find("algorithm ").expect("an algorithm");
    let (head, body) = text.split_at(begin);
    let begin = body.find('{').map_or(0, |at| at + 1);
    let mut words: Vec<(usize, usize)> = Vec::new();
    let bytes = body.as_bytes();
    let mut at = begin;
    while at < bytes.len() {
        let class = |c: u8| match c {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => 1,
            b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'&' | b'|' | b'^'
            | b'.' => 2,
            _ => 0,
        };
        if body[at..].starts_with("//") {
            at += body[at..].find('\n').unwrap_or(1);
            continue;
        }
        let own = class(bytes[at]);
        let mut end = at + 1;
        while own != 0 && end < bytes.len() && class(bytes[end]) == own {
            end += 1;
        }
        if own != 0 {
            words.push((at, end));
        }
        at = end;
    }
    let names: Vec<&str> = {
        let mut names: Vec<&str> = words
            .iter()
            .map(|&(a, b)| &body[a..b])
            .filter(|w| w.len() <= 4 && w.as_bytes()[0].is_ascii_lowercase())
            .filter(|w| {
                !["each", "for", "in", "let", "if", "use", "take", "by", "fn", "over", "via"]
                    .contains(w)
            })
            .filter(|w| !["else", "copy", "data", "min", "max", "even", "odd"].contains(w))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let mut list = Vec::new();
    for &(a, b) in &words {
        let word = &body[a..b];
        let others: Vec<String> = match word {
            "+" => vec!["-".into()],
            "-" => vec!["+".into()],
            "*" => vec!["+".into()],
            "<" => vec!["<=".into(), ">".into()],
            ">" => vec![">=".into()],
            ">=" => vec![">".into()],
            "==" => vec!["!=".into(), "<=".into(), ">=".into()],
            "!=" => vec!["==".into(), "<".into(), ">".into()],
            "&&" => vec!["||".into()],
            "^" => vec!["+".into()],
            "<<" => vec![">>".into()],
            ">>" => vec!["<<".into()],
            "copy" => vec!["reduce".into()],
            "reduce" => vec!["copy".into()],
            _ if word.as_bytes()[0].is_ascii_digit() => {
                let value: i64 = word.parse().unwrap_or(0);
                vec![(value + 1).to_string(), (value - 1).to_string(), "n".into()]
            }
            _ if names.contains(&word) => names
                .iter()
                .filter(|n| **n != word)
                .map(|n| (*n).to_string())
                .chain(["1".into()])
                .collect(),
            _ => Vec::new(),
        };
        for other in others {
            list.push(format!("{head}{}{other}{}", &body[..a], &body[b..]));
        }
    }
    list
}

/// Returns the first shape at which unrolled checking refutes a program, if there is one.
fn refuted_at(sources: &SourceMap, program: &Arc<Program>, most: u32) -> Option<String> {
    let shapes: Vec<(u32, String)> = match program.axes.names.len() {
        1 => (1..=most).map(|n| (n, n.to_string())).collect(),
        _ => (1..=most)
            .flat_map(|a| (1..=most / a).map(move |b| (a * b, format!("{a}x{b}"))))
            .collect(),
    };
    let found = shapes.into_iter().find(|(n, name)| {
        let n = *n;
        let shape: Shape = name.parse().expect("a shape");
        let mut roots = vec![0, 1, n / 2, n - 1];
        roots.retain(|root| *root < n && (*root == 0 || program.kind.rooted()));
        roots.into_iter().any(|root| {
            let options = CompileOptions { root, ..CompileOptions::default() };
            match check(program, sources, &shape, &options) {
                Ok(_) => false,
                // A condition on the ranks that does not hold refutes nothing.
                Err(found) => found.iter().any(|d| d.code != codes::REQUIRES),
            }
        })
    });
    found.map(|(_, name)| name)
}

/// Runs at small rank counts do not help to refuse what is wrong.
const NO_RUNS: ProofOptions = ProofOptions { stops_at_failed_run: false };

#[test]
fn no_mutant_that_is_wrong_is_proved() {
    let is_full = std::env::var("ROUNDELAY_CI").is_ok_and(|ci| ci == "full");
    let mut all = 0;
    for (at, name) in PROVED.iter().enumerate() {
        let mut tried = 0;
        for (number, mutant) in mutants(text_of(name)).into_iter().enumerate() {
            // A part of them each time, another of each algorithm.
            if !is_full && (number + at) % SHARE != 0 {
                continue;
            }
            let Some((sources, program)) = resolve_text(&mutant) else { continue };
            tried += 1;
            if prove(&program, NO_RUNS).is_ok()
                && let Some(shape) = refuted_at(&sources, &program, 12)
            {
                panic!("{name}: proved, and wrong at {shape} ranks:\n{mutant}");
            }
        }
        all += tried;
    }
    assert!(all > 60, "only {all} mutants were tried");
}

/// Quick runs try one mutant in this number.
const SHARE: usize = 24;

#[test]
fn algorithms_are_proved_for_every_rank_count() {
    for entry in CATALOGUE {
        let name = name_of(entry);
        let (sources, program) = resolve_text(entry.text).expect("the text resolves");
        let is_listed = PROVED.contains(&name.as_str());
        let proof = match prove(&program, ProofOptions::default()) {
            Ok(proof) => proof,
            Err(_) if !is_listed => continue,
            Err(NotProved { span, reason, .. }) => {
                panic!("{name}: {reason} at {:?}", span.map(|span| sources.line_column(span)))
            }
        };
        assert!(is_listed, "{name} is proved: add it to the list");
        // Nothing is proved from assumptions that contradict each other, but that nothing is known before a loop.
        let may_be_empty = |name: &str| name.starts_with("the first turn");
        for (obligation, _) in proof.obligations.iter().filter(|(o, _)| !may_be_empty(&o.name)) {
            let mut impossible = obligation.clone();
            impossible.goal = LinearFormula::False;
            let outcome = refute(&impossible, &mut StepBudget::new(200_000));
            let is_possible = matches!(outcome, RefuteOutcome::Unproved { model: Some(_), .. });
            assert!(is_possible, "{name}: {}: {outcome:?}", obligation.name);
        }
    }
}

/// A program that is wrong with one rank count only, and that rank count.
#[test]
fn faults_at_one_rank_count_are_found() {
    let ring = "algorithm ring implements all_gather on n ranks {
        for s in 0..n-1 { each r where CONDITION { r -> (r + 1) % n : copy data[(r - s) % n] } }
    }";
    let bruck = "algorithm bruck implements all_gather on n ranks {
        for k in 0..ceil_log2(n) {
            let d = 1 << k
            each r where CONDITION { r -> (r - d) % n : copy data[r ..+ min(d, n - d)] }
        }
    }";
    let shot = "algorithm shot implements reduce on n ranks {
        each r where r != root && (CONDITION) { r -> root : reduce data }
    }";
    let cases = [
        (ring, "n != 777 || s != 3 || r != 5", 777),
        (ring, "n != 1000003 || r != 999999", 1_000_003),
        (bruck, "n != 131071 || d != 65536 || r != 77", 131_071),
        (shot, "n != 4097 || root != 5 || r != 4000", 4_097),
    ];
    for (text, condition, ranks) in cases {
        let right = text.replace("CONDITION", "n > 0");
        let (_, program) = resolve_text(&right).expect("the text resolves");
        assert!(prove(&program, ProofOptions::default()).is_ok(), "{right}");
        let wrong = text.replace("CONDITION", condition);
        let (_, program) = resolve_text(&wrong).expect("the text resolves");
        let refusal = prove(&program, ProofOptions::default()).expect_err(&wrong);
        assert_eq!(refusal.ranks, Some(ranks), "{wrong}: {}", refusal.reason);
    }
}

/// Programs that break a rule of the language at some rank count, and what is said of them.
#[test]
fn what_breaks_a_rule_is_not_proved() {
    let texts = [
        // Two copies into one place.
        "algorithm a implements broadcast on n ranks { each r { for p in 0..n { root -> p : copy data } } }",
        // Chunks of different length.
        "algorithm a implements all_reduce on n ranks { chunks n
            each r { for p in 0..n where p != r { r -> p : reduce data } }
            each r { r -> r : copy data[0] -> data[(n - 1) % n] } }",
        // A rank that is not.
        "algorithm a implements broadcast on n ranks { each r where r != root { root -> r : copy data }
            0 -> n - 2 : copy data }",
        // A place that nothing was stored in.
        "algorithm a implements gather on n ranks { each r where r != root { r -> root : copy data[r] }
            each r { r -> r : copy data[0] } }",
        // Regions that overlap in part.
        "algorithm a implements all_reduce on n ranks { chunks n
            each r { for p in 0..n where p != r { r -> p : reduce data[0..n] } } }",
        // A schedule that is out of range with many ranks.
        "algorithm a implements gather on n ranks { each r where r != root { r -> root : copy data[r] }
            schedule { pipeline n } }",
        // A path that there is not.
        "algorithm a implements all_gather on n ranks { split data over p in paths by bandwidth(p) { use ring via 1 } }",
        // Prefix sums: against the order of ranks, with a gap between what is added, and into the result that is left
        // alone.
        "algorithm a implements scan on n ranks { requires n == 2
            0 -> 1 : copy data  1 -> 0 : reduce data }",
        "algorithm a implements exscan on n ranks { requires n == 4
            0 -> 2 : copy data  1 -> 2 : reduce data  0 -> 3 : copy data  2 -> 3 : reduce data
            0 -> 1 : copy data }",
        "algorithm a implements exscan on n ranks { scratch t[1] requires n == 4
            1 -> 3 : copy data -> t  2 -> 1 : copy data -> t  0 -> 2 : copy data -> t
            2 -> 3 : reduce t -> t  1 -> 3 : reduce t -> t  3 -> 3 : copy t -> data
            1 -> 2 : copy data  0 -> 2 : reduce data  0 -> 1 : copy data }",
        "algorithm a implements exscan on n ranks { each r where r + 1 < n { r -> r + 1 : copy data }
            0 -> 0 : copy data
            for s in 1..n-1 { s -> s + 1 : reduce data } }",
        "algorithm a implements scan on n ranks { each r { for p in 0..r { p -> r : reduce data } } }",
        // Failures after which survivors do not agree, and at rank counts that are not few.
        "algorithm a implements all_reduce on n ranks { requires n <= 8 tolerates 1
            for s in 0..n-1 { s -> s + 1 : reduce data } each r where r + 1 < n { n - 1 -> r : copy data } }",
        "algorithm a implements all_reduce on n ranks { requires n <= 9 tolerates 1 scratch t[n]
            each r { for p in 0..n { r -> p : copy data -> t[r] } }
            each r { for p in 1..n { r -> r : reduce t[p] -> t[0] } }
            each r { r -> r : copy t[0] -> data } }",
        // A root that is no rank.
        "algorithm a implements all_reduce on n ranks { use reduce.linear root 1  use broadcast.binomial root 1 }",
    ];
    for text in texts {
        let (_, program) = resolve_text(text).expect("the text resolves");
        for options in [NO_RUNS, ProofOptions::default()] {
            assert!(prove(&program, options).is_err(), "{text}");
        }
    }
}

/// Programs on grids whose steps do not fit, each of which unrolling refutes, and one whose steps do.
#[test]
fn steps_on_a_grid_must_fit() {
    let detour = "algorithm detour implements all_gather on n ranks {
            each r { r -> r : copy data[r] -> data[(r + 1) % n] }
            each r { for p in 0..n { r -> p : copy data[(r + 1) % n] -> data[r] } }
        }";
    let right = "use reduce_scatter.ring over gpu  use all_reduce.ring over node on data[gpu]
            use all_gather.ring over gpu";
    let of = |kind: &str, chunks: &str, body: &str| {
        format!(
            "algorithm a implements {kind} on (node, gpu) ranks {{ {chunks}\n {body} }} {detour}"
        )
    };
    let (_, program) =
        resolve_text(&of("all_reduce", "chunks gpu.size", right)).expect("it resolves");
    assert!(prove(&program, NO_RUNS).is_ok());
    let chunked = [
        right.replace("data[gpu]", "data[0]"),
        right.replace("data[gpu]", "data[gpu + 1]"),
        right.replace("all_gather.ring over gpu", "all_gather.ring over node"),
        right.replace("over node on data[gpu]", "over gpu on data[0]"),
        // It changes the numbers of chunks: their lengths differ here.
        right.replace("all_gather.ring", "all_gather.detour"),
        "use reduce_scatter.ring over gpu  use all_gather.ring over gpu".into(),
        "use all_reduce.ring over node  use all_reduce.ring over gpu  use all_reduce.ring over node".into(),
        "use reduce.binomial over gpu root 0  use all_reduce.ring over node".into(),
        "use reduce.binomial over gpu root 1  use all_reduce.ring over node
            use broadcast.binomial over gpu root 0".into(),
        "use reduce.binomial over gpu root gpu.size  use broadcast.binomial over gpu".into(),
    ];
    let whole = [
        "use broadcast.binomial over node root root / gpu.size
            use broadcast.binomial over gpu root 0",
        "use broadcast.binomial over gpu root root % gpu.size
            use broadcast.binomial over node root root % gpu.size",
        "use broadcast.binomial over gpu root root % gpu.size",
        "use broadcast.binomial over node on data[0 ..+ if gpu == 0 { 1 } else { 0 }] root root / gpu.size
            use broadcast.binomial over gpu root root % gpu.size",
        "use all_reduce.ring over node",
    ];
    let chunked = chunked.iter().map(|body| of("all_reduce", "chunks gpu.size", body));
    for text in chunked.chain(whole.iter().map(|body| of("broadcast", "", body))) {
        // What does not resolve is refused as well.
        let Some((sources, program)) = resolve_text(&text) else { continue };
        assert!(refuted_at(&sources, &program, 12).is_some(), "{text}");
        assert!(prove(&program, NO_RUNS).is_err(), "{text}");
    }
}

/// Algorithms of the library that are proved, with the defaults of their parameters.
const PROVED: &[&str] = &[
    "all_gather/bruck",
    "all_gather/circulant",
    "all_gather/direct",
    "all_gather/k_bruck",
    "all_gather/multipath",
    "all_gather/neighbor_exchange",
    "all_gather/pat",
    "all_gather/recursive_doubling",
    "all_gather/ring",
    "all_reduce/bidirectional_ring",
    "all_reduce/circulant",
    "all_reduce/compressed",
    "all_reduce/double_binary_tree",
    "all_reduce/folded_halving_doubling",
    "all_reduce/halving_doubling",
    "all_reduce/han",
    "all_reduce/multipath",
    "all_reduce/multipath_two_level",
    "all_reduce/one_shot",
    "all_reduce/recursive_doubling",
    "all_reduce/ring",
    "all_reduce/tolerant",
    "all_reduce/two_level",
    "all_reduce/two_shot",
    "all_to_all/bruck",
    "all_to_all/direct",
    "all_to_all/k_bruck",
    "all_to_all/multipath",
    "all_to_all/pairwise",
    "barrier/dissemination",
    "barrier/k_dissemination",
    "broadcast/binomial",
    "broadcast/chain",
    "broadcast/double_binary_tree",
    "broadcast/han",
    "broadcast/k_ary",
    "broadcast/k_nomial",
    "broadcast/multipath",
    "broadcast/scatter_all_gather",
    "exscan/binomial",
    "exscan/linear",
    "exscan/recursive_doubling",
    "gather/binomial",
    "gather/linear",
    "reduce/binomial",
    "reduce/chain",
    "reduce/linear",
    "reduce/two_shot",
    "reduce_scatter/circulant",
    "reduce_scatter/direct",
    "reduce_scatter/pairwise",
    "reduce_scatter/pat",
    "reduce_scatter/recursive_halving",
    "reduce_scatter/ring",
    "scan/binomial",
    "scan/linear",
    "scan/recursive_doubling",
    "scatter/binomial",
    "scatter/linear",
    "sendrecv/direct",
];
