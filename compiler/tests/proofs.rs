//! Programs of which something false was once proved, or that were too much for a proof: wide values, memories whose
//! sum does not fit, rounds of too many pieces, grids of three and more axes.

use std::sync::Arc;

use roundelay_compiler::verify::symmetry::SymmetryAttempt;
use roundelay_compiler::{
    BufferPlacement, CompileOptions, LibrarySource, Program, ProgramInstance, ProofMethod, Shape,
    by_symmetry, check, compile, project, resolve,
};
use roundelay_dsl::diag::{Diagnostics, codes};
use roundelay_dsl::span::SourceMap;

/// The algorithms of the library that these programs use.
struct Used;

impl LibrarySource for Used {
    fn algorithm(&self, collective: &str, name: &str) -> Option<(String, String)> {
        let text = match (collective, name) {
            ("all_reduce", "circulant") => {
                include_str!("../../algorithms/all_reduce/circulant.algo")
            }
            ("all_reduce", "ring") => include_str!("../../algorithms/all_reduce/ring.algo"),
            ("reduce_scatter", "circulant") => {
                include_str!("../../algorithms/reduce_scatter/circulant.algo")
            }
            ("reduce_scatter", "ring") => include_str!("../../algorithms/reduce_scatter/ring.algo"),
            ("all_gather", "circulant") => {
                include_str!("../../algorithms/all_gather/circulant.algo")
            }
            ("all_gather", "ring") => include_str!("../../algorithms/all_gather/ring.algo"),
            ("scatter", "binomial") => include_str!("../../algorithms/scatter/binomial.algo"),
            _ => return None,
        };
        Some((format!("{collective}/{name}.algo"), text.to_string()))
    }

    fn file(&self, _: &str, _: &str) -> Result<(String, String), String> {
        Err("there are no files here".into())
    }
}

fn program(text: &str) -> (SourceMap, Arc<Program>) {
    let mut sources = SourceMap::new();
    let id = sources.add("here.algo", text);
    let mut programs = resolve(&mut sources, id, &Used).expect("the text resolves");
    (sources, programs.remove(0))
}

fn shape(text: &str) -> Shape {
    text.parse().expect("a shape")
}

/// Returns the method by which a text is proved, or the codes of its findings.
fn verdict(text: &str, at: &str) -> Result<ProofMethod, Vec<&'static str>> {
    let (sources, program) = program(text);
    let checked = check(&program, &sources, &shape(at), &CompileOptions::default());
    checked.map(|c| c.method).map_err(|found| found.iter().map(|d| d.code.0).collect())
}

/// Returns the group and the number of orbits if a text is proved by symmetry; `None` if no symmetry is found.
fn symmetry(text: &str, at: &str) -> Result<Option<(&'static str, u32)>, Diagnostics> {
    let (sources, program) = program(text);
    let instance = ProgramInstance::new(&program, &shape(at), &CompileOptions::default())?;
    Ok(match by_symmetry(&Arc::new(instance), &sources)? {
        SymmetryAttempt::Proved { group, orbits, .. } => Some((group, orbits)),
        SymmetryAttempt::Unknown(_) => None,
    })
}

/// Ways to write `x`, for n a power of two and `x` below 2n, over values that leave 60 bits.
const WIDE: [&str; 16] = [
    "((x << k) >> k)",
    "((x << k) / (1 << k))",
    "((x * (1 << k)) >> k)",
    "(((x << k) + 1) >> k)",
    "(-(-(x << k) >> k))",
    "(-((0 - (x << k)) / (1 << k)))",
    "(abs(0 - (x << k)) >> k)",
    "(min(x << k, 9223372036854775807) >> k)",
    "(max(x << k, 3) >> k)",
    "ceil_div(x << k, 1 << k)",
    "(((x << k) | 1) >> k)",
    "(((x << k) & (x << k)) >> k)",
    "(((x << k) ^ 1) >> k)",
    "(gcd(x << k, x << k) >> k)",
    "((x << k) % 9223372036854775807 >> k)",
    "bit_reverse(bit_reverse(x, 62), 62)",
];

/// Returns an all-gather in which the peer is found by way of a wide value; a wrong one overwrites a block at the end.
fn gather(wide: &str, right: bool) -> String {
    let peer = format!("({} - n / 2 + 1) % n", wide.replace('x', "(r + n / 2)"));
    let peer = peer.replace("ma(r + n / 2)", "max");
    let (ring, last) = match right {
        true => (format!("r -> {peer} : copy data[(r - s) % n]"), String::new()),
        false => (
            "r -> (r + 1) % n : copy data[(r - s) % n]".into(),
            format!("each r {{ r -> {peer} : copy data[(r + 2) % n] -> data[(r + 3) % n] }}"),
        ),
    };
    format!(
        "algorithm a implements all_gather on n ranks {{
            requires pow2(n)
            chunks n
            let k = 62 - log2(n)
            for s in 0..n-1 {{ each r {{ {ring} }} }}
            {last} }}"
    )
}

/// A message whose peer depends on a wide value is seen by the rank that takes it: what is wrong is not proved, what is
/// right is, and each rank's plan alone is its plan among all.
#[test]
fn wide_values_hide_no_message() {
    for wide in WIDE {
        for (n, right) in [(16, true), (16, false), (64, false)] {
            let text = gather(wide, right);
            let (sources, program) = program(&text);
            let shape = Shape::flat(n);
            let found = symmetry(&text, &n.to_string());
            let all = compile(
                &program,
                &sources,
                &shape,
                &CompileOptions::default(),
                BufferPlacement::InPlace,
            );
            assert_eq!(all.is_ok(), right, "{wide} on {n}");
            if !right {
                assert!(!matches!(found, Ok(Some(_))), "{wide} on {n} is proved");
                continue;
            }
            assert!(matches!(found, Ok(Some(_))), "{wide} on {n} is not proved: {found:?}");
            let all = all.expect("it is right");
            let instance = Arc::new(
                ProgramInstance::new(&program, &shape, &CompileOptions::default())
                    .expect("the shape fits"),
            );
            let alone = project(&instance, &sources, BufferPlacement::InPlace, 3).expect("a plan");
            assert_eq!(alone.part, all.plans()[3].part, "{wide}");
        }
    }
    assert_eq!(verdict(&gather(WIDE[0], false), "1024"), Err(vec!["RL0501"]));
    assert!(matches!(verdict(&gather(WIDE[0], true), "1024"), Ok(ProofMethod::Symmetry { .. })));
}

/// The largest message of a plan is no bound that a wide value was cut to.
#[test]
fn wide_values_shorten_no_message() {
    for one in ["(((r + 8) << 59) >> 59) - 7 - r", "((r + 8) << 59) / (1 << 59) - 7 - r", "1"] {
        let text = format!(
            "algorithm a implements all_gather on n ranks {{
                requires n == 4
                chunks n
                for s in 0..n-1 {{ each r {{
                    let one = {one}
                    r -> (r + 1) % n : copy data[(r - s) % n ..+ one] }} }} }}"
        );
        let (sources, program) = program(&text);
        let proved = compile(
            &program,
            &sources,
            &shape("4"),
            &CompileOptions::default(),
            BufferPlacement::InPlace,
        );
        let most = proved.expect("it is right").plans()[0].header.message;
        assert!((1..=4).contains(&most), "{most} chunks: {one}");
    }
}

/// Returns a program with this number of memories, of this number of chunks each.
fn memories(count: u32, chunks: &str, more: &str) -> String {
    let scratch: Vec<String> = (0..count).map(|i| format!("scratch t{i}[{chunks}]")).collect();
    let (last, before) = (count - 1, count - 2);
    format!(
        "algorithm a implements all_gather on n ranks {{
            {}
            {more}
            each r {{ r -> 1 - r : copy data[r] -> t{before}[7] }}
            each r {{ r -> r : copy t{last}[8] -> data[1 - r] }} }}",
        scratch.join("\n")
    )
}

/// Memories of one rank whose chunks together cannot be numbered are refused, at the one that is too much; no two of
/// them are taken for one.
#[test]
fn memories_are_numbered_or_refused() {
    let too_big = |text: &str| {
        let (sources, program) = program(text);
        let found = ProgramInstance::new(&program, &shape("2"), &CompileOptions::default())
            .expect_err("refused");
        assert_eq!(found[0].code, codes::TOO_BIG, "{found:?}");
        let at = found[0].span().expect("a place");
        sources.line_column(at).0
    };
    assert_eq!(too_big(&memories(19, "268435455", "")), 10);
    assert_eq!(too_big(&memories(600, "7158279", "")), 301);
    assert_eq!(too_big(&memories(9, "268435455", "")), 10);
    // What fits is judged: the last memory is read and was never stored.
    assert_eq!(verdict(&memories(7, "268435455", ""), "2"), Err(vec!["RL0404"]));
    // One memory in each of many parts.
    let used = "algorithm part implements all_gather on n ranks {
            scratch t[200000000]
            each r { r -> 1 - r : copy data[r] } }
        algorithm a implements all_gather on n ranks {
            split data over p in 0..16 { use part } }";
    let mut sources = SourceMap::new();
    let id = sources.add("here.algo", used);
    let programs = resolve(&mut sources, id, &Used).expect("the text resolves");
    let found = ProgramInstance::new(&programs[1], &shape("2"), &CompileOptions::default());
    assert_eq!(found.expect_err("refused")[0].code, codes::TOO_BIG);
}

/// The product of extents does not wrap around to a small number of ranks.
#[test]
fn extents_do_not_wrap() {
    let text = "3242996797x2653940617x3791511183x1214823448";
    assert!(text.parse::<Shape>().is_err());
    let axes = vec![3_242_996_797, 2_653_940_617, 3_791_511_183, 1_214_823_448];
    let (_, program) = program(
        "algorithm a implements barrier on (i, j, k, l) ranks {
            each r { r -> r : copy data } }",
    );
    let found = ProgramInstance::new(&program, &Shape { axes }, &CompileOptions::default());
    assert_eq!(found.expect_err("refused")[0].code, codes::SHAPE);
}

/// A barrier along each of the axes, in this order.
fn barrier(names: &[&str], order: &[usize]) -> String {
    let tuple = names.join(", ");
    let rounds: Vec<String> = order
        .iter()
        .map(|&at| {
            let mut to: Vec<String> = names.iter().map(|n| (*n).to_string()).collect();
            to[at] = format!("({} + (1 << s)) % {}.size", names[at], names[at]);
            format!(
                "for s in 0..ceil_log2({}.size) {{ each ({tuple}) {{ ({tuple}) -> ({}) : copy data }} }}",
                names[at],
                to.join(", ")
            )
        })
        .collect();
    format!("algorithm a implements barrier on ({tuple}) ranks {{ {} }}", rounds.join("\n"))
}

/// Products of any number of axes are proved by symmetry, and agree with what is unrolled.
#[test]
fn products_of_axes_are_proved() {
    let three = barrier(&["a", "b", "c"], &[1, 0, 2]);
    for at in ["4x64x4", "2x3x4", "1x5x3", "3x1x4", "2x7x1"] {
        assert_eq!(symmetry(&three, at).expect(at).map(|s| s.1), Some(1), "{at}");
    }
    let four = barrier(&["a", "b", "c", "d"], &[2, 0, 3, 1]);
    assert_eq!(symmetry(&four, "2x3x4x5").expect("right"), Some(("shifts", 1)));
    assert_eq!(symmetry(&four, "2x1x4x5").expect("right"), Some(("shifts", 1)));
    let seven = barrier(&["a", "b", "c", "d", "e", "f", "g"], &[0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(symmetry(&seven, "2x2x2x3x2x2x2").expect("right"), Some(("shifts", 1)));
    // The same without one axis: nothing of some ranks ever arrives.
    let short = barrier(&["a", "b", "c"], &[1, 0]);
    let found = symmetry(&short, "4x8x4").expect_err("it is wrong");
    assert_eq!(found[0].code, codes::MISSING);
    assert_eq!(verdict(&short, "2x3x2"), Err(vec!["RL0501"]));
}

/// An all-reduce on a grid along whose axis `odd` ranks differ.
fn uneven(odd: &str) -> String {
    let reduce = |axis: &str, from: &str| {
        format!(
            "each (a, b, c) {{ for p in 0..{axis}.size where p != {axis} {{
                (a, b, c) -> ({from}) : reduce data }} }}"
        )
    };
    let all = [("a", "p, b, c"), ("b", "a, p, c"), ("c", "a, b, p")];
    let rounds: Vec<String> = all
        .iter()
        .map(|(axis, to)| match *axis == odd {
            false => reduce(axis, to),
            true => {
                let first = to.replace('p', "0");
                format!(
                    "each (a, b, c) where {axis} > 0 {{ (a, b, c) -> ({first}) : reduce data }}
                    each (a, b, c) where {axis} == 0 {{ for p in 1..{axis}.size {{
                        (a, b, c) -> ({to}) : copy data }} }}"
                )
            }
        })
        .collect();
    format!("algorithm a implements all_reduce on (a, b, c) ranks {{ {} }}", rounds.join("\n"))
}

/// The product of the axes along which ranks do not differ is found, whichever axis differs, and the ranks that stand
/// for all are those along that axis.
#[test]
fn ranks_that_stand_for_all_lie_along_any_axis() {
    for (odd, orbits) in [("a", 2), ("b", 3), ("c", 4)] {
        let text = uneven(odd);
        assert_eq!(symmetry(&text, "2x3x4").expect("right"), Some(("shifts", orbits)), "{odd}");
        assert!(verdict(&text, "2x3x4").is_ok(), "{odd}");
        assert!(matches!(verdict(&text, "4x64x4"), Ok(ProofMethod::Symmetry { .. })), "{odd}");
        // One reduction too few, of the axis that differs.
        let wrong = text.replace(&format!("{odd} > 0"), &format!("{odd} > 1"));
        assert_ne!(wrong, text);
        assert!(symmetry(&wrong, "2x3x4").is_err(), "{odd}");
    }
}

/// Compositions on three axes are right, by whichever proof, and no proof by symmetry differs.
#[test]
fn compositions_on_three_axes_are_proved() {
    let whole = "algorithm a implements all_reduce on (a, b, c) ranks {
        use all_reduce.circulant over a
        use all_reduce.circulant over b
        use all_reduce.circulant over c }";
    let nested = "algorithm a implements all_reduce on (a, b, c) ranks {
        chunks c.size
        use reduce_scatter.ring over c
        use all_reduce.ring over b on data[c]
        use all_reduce.ring over a on data[c]
        use all_gather.ring over c }";
    for text in [whole, nested] {
        for at in ["2x3x4", "2x8x2", "1x4x3", "3x1x2", "2x2x1"] {
            assert!(verdict(text, at).is_ok(), "{at}");
            assert!(symmetry(text, at).is_ok(), "{at}");
        }
    }
    assert!(verdict(whole, "2x32x2").is_ok());
}

/// Ranks that differ in the first rounds of a broadcast are judged each by its own plan.
#[test]
fn a_rank_that_differs_is_judged() {
    let few = |slots: &str| {
        format!(
            "algorithm x implements broadcast on n ranks {{
                requires root == 0 && n >= 32
                chunks n * 4
                use scatter.binomial root root
                each r {{
                    for q in 3..21 where r == root {{ r -> q : copy data[0..n*4 by 2] }}
                    if r == n - 1 || r == n - 3 {{
                        r -> 2 * n - 4 - r : copy data[r*4]
                        r -> 2 * n - 4 - r : copy data[r*4 + 2] }}
                }}
                each r {{ for p in 0..n where p != r {{ r -> p : copy data[r*4 ..+ 4] }} }}
                {slots} }}"
        )
    };
    let (one, any) = (few("schedule { slots 1 }"), few(""));
    assert_eq!(symmetry(&one, "64").expect_err("it deadlocks")[0].code, codes::DEADLOCK);
    assert!(symmetry(&any, "64").expect("right").is_some());
}
