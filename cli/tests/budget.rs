//! No input makes the compiler run for long or fill the memory: texts of every construct that can be repeated or
//! nested, each made ever deeper, are judged or refused within seconds of processor time and 512 MB of addresses.
//!
//! On an idle core all take less than a second. The limit leaves room for cores that are shared, and an input whose
//! cost grows without bound is beyond any limit. With many ranks more is allowed, since sensible programs take as
//! long. `ROUNDELAY_CI=full` tries all depths, and all families with many ranks.

use std::process::{Command, Output};

use roundelay_tests::is_full;

/// A text of depth k.
type TextFamily = (&'static str, fn(usize) -> String);

fn algorithm(body: &str) -> String {
    format!("algorithm a implements all_reduce on n ranks {{ {body} }}\n")
}

/// Returns the k-fold of what `one` says of 0, 1, ….
fn times(k: usize, one: impl Fn(usize) -> String) -> String {
    (0..k).map(one).collect()
}

/// Returns a text of `inner` inside k of what `open` says.
fn nested(k: usize, open: impl Fn(usize) -> String, inner: &str) -> String {
    format!("{} {inner} {}", times(k, open), "}".repeat(k))
}

/// Returns a power of ten that an integer can hold.
fn huge(k: usize) -> String {
    format!("1{}", "0".repeat(k.min(18)))
}

/// Returns algorithms that use each other, the last one `body` of the one before.
fn chain(k: usize, first: &str, body: impl Fn(usize) -> String) -> String {
    let mut text = algorithm(first).replacen("algorithm a", "algorithm a0", 1);
    for i in 0..k {
        let one = algorithm(&body(i));
        text += &one.replacen("algorithm a", &format!("algorithm a{}", i + 1), 1);
    }
    text
}

fn declared(input: &str, output: &str, body: &str) -> String {
    format!(
        "collective c on n ranks {{ input {input} output {output} each r {{ {body} }} }}
         algorithm a implements c on n ranks {{ each r {{ r -> r : copy input -> output }} }}\n"
    )
}

const ROUND: &str = "each r { r -> (r + 1) % n : reduce data }";

const FAMILIES: [TextFamily; 42] = [
    ("lets of an each", |k| {
        let lets = times(k, |i| format!("let x{} = (x{i} + x{i} + x{i}) % 9 ", i + 1));
        algorithm(&format!("each r {{ let x0 = r {lets} r -> (r + x{k}) % n : reduce data }}"))
    }),
    ("lets outside", |k| {
        let lets = times(k, |i| format!("let x{} = (x{i} + x{i}) % 7 ", i + 1));
        algorithm(&format!("let x0 = n {lets} each r {{ r -> (r + x{k}) % n : reduce data }}"))
    }),
    ("lets with conditions", |k| {
        let lets = times(k, |i| {
            format!("let x{} = if x{i} < 3 {{ x{i} + 1 }} else {{ x{i} - x{i} }} ", i + 1)
        });
        algorithm(&format!(
            "each r {{ let x0 = r {lets} if x{k} == 0 {{ r -> (r + 1) % n : reduce data }} }}"
        ))
    }),
    ("shadows", |k| {
        let lets = "let x = (x + x) % 5 ".repeat(k);
        algorithm(&format!("each r {{ let x = r {lets} r -> (r + x) % n : reduce data }}"))
    }),
    ("functions of functions", |k| {
        let functions = times(k, |i| format!("fn f{}(x) = f{i}(f{i}(x))\n", i + 1));
        let body = format!("each r {{ r -> (r + f{k}(r)) % n : reduce data }}");
        format!("fn f0(x) = x + 1\n{functions}{}", algorithm(&body))
    }),
    ("functions thrice", |k| {
        let functions = times(k, |i| format!("fn f{}(x) = f{i}(x) + f{i}(x) + f{i}(x)\n", i + 1));
        let body = format!("each r {{ r -> (r + f{k}(r)) % n : reduce data }}");
        format!("fn f0(x) = x % 5\n{functions}{}", algorithm(&body))
    }),
    ("uses of uses", |k| chain(k, ROUND, |i| format!("use a{i} use a{i}"))),
    ("uses of halves", |k| {
        chain(k, ROUND, |i| format!("chunks 2 use a{i} on data[0] use a{i} on data[1]"))
    }),
    ("uses with scratch", |k| {
        chain(k, &format!("scratch t[1] {ROUND}"), |i| format!("scratch t[2] use a{i} use a{i}"))
    }),
    ("uses in loops", |k| {
        let idle = "each r where r < 0 { r -> (r + 1) % n : reduce data }";
        chain(k, idle, |i| format!("for t in 0..100 {{ use a{i} }}"))
    }),
    ("uses in splits", |k| {
        chain(k, ROUND, |i| format!("split data over t in 0..2 {{ use a{i} }}"))
    }),
    ("splits", |k| algorithm(&nested(k, |i| format!("split data over t{i} in 0..2 {{"), ROUND))),
    ("many parts", |k| algorithm(&format!("split data over t in 0..{} {{ {ROUND} }}", huge(k)))),
    ("loops of nothing", |k| {
        algorithm(&nested(k, |i| format!("for t{i} in 0..100 {{"), "let z = 1"))
    }),
    ("loops of idle rounds", |k| {
        let idle = "each r where r < 0 { r -> (r + 1) % n : reduce data }";
        algorithm(&nested(k, |i| format!("for t{i} in 0..100 {{"), idle))
    }),
    ("loops with conditions", |k| {
        algorithm(&nested(k, |i| format!("for t{i} in 0..100 where t{i} < 0 {{"), ROUND))
    }),
    ("loops in a round", |k| {
        let inner = "r -> (r + 1) % n : reduce data";
        let loops = nested(k, |i| format!("for t{i} in 0..100 where t{i} == 0 {{"), inner);
        algorithm(&format!("each r {{ {loops} }}"))
    }),
    ("loops of nothing in a round", |k| {
        let loops = nested(k, |i| format!("for t{i} in 0..100 {{"), "let z = 1");
        algorithm(&format!("each r {{ {loops} }}"))
    }),
    ("loops of conditions in a round", |k| {
        let sum = times(k, |i| format!(" + t{i}"));
        let inner = format!("if r{sum} == 0 {{ r -> (r + 1) % n : reduce data }}");
        let loops = nested(k, |i| format!("for t{i} in 0..100 {{"), &inner);
        algorithm(&format!("each r {{ {loops} }}"))
    }),
    ("a long loop", |k| algorithm(&format!("for t in 0..{} {{ let z = t }}", huge(k)))),
    ("a long loop in a round", |k| {
        algorithm(&format!(
            "each r {{ for t in 0..{} where t * 0 == 1 {{ r -> r : copy data }} }}",
            huge(k)
        ))
    }),
    ("a long loop of transfers", |k| {
        algorithm(&format!(
            "each r {{ for t in 0..{} {{ r -> r : copy data[t % n] -> data[0] }} }}",
            huge(k.max(9))
        ))
    }),
    ("a long loop of rounds", |k| {
        algorithm(&format!("for t in 0..{} {{ {ROUND} }}", huge(k.max(9))))
    }),
    ("many chunks", |k| algorithm(&format!("chunks {} {ROUND}", huge(k.max(9))))),
    ("much scratch", |k| {
        algorithm(&format!("scratch t[{}] each r {{ r -> r : copy data -> t[0] }}", huge(k.max(9))))
    }),
    ("a long sum of chunks", |k| {
        let sum = (0..k.min(7)).fold("2".to_string(), |e, _| format!("({e} + {e})"));
        algorithm(&format!("chunks {sum} {ROUND}"))
    }),
    ("parentheses", |k| {
        let (open, close) = ("(".repeat(100 * k), ")".repeat(100 * k));
        algorithm(&format!("each r {{ r -> {open}r{close} : reduce data }}"))
    }),
    ("signs", |k| algorithm(&format!("each r {{ r -> {}r : reduce data }}", "-".repeat(1000 * k)))),
    ("conditions", |k| {
        let inner = "r -> (r + 1) % n : reduce data";
        algorithm(&format!("each r {{ {} }}", nested(20 * k, |i| format!("if r > {i} {{"), inner)))
    }),
    ("alternatives", |k| {
        let arms = times(200 * k, |i| format!("if r == {i} {{ r -> {i} : reduce data }} else "));
        algorithm(&format!("each r {{ {arms} {{ r -> 0 : reduce data }} }}"))
    }),
    ("loops of a collective", |k| {
        declared(
            "1",
            "1",
            &nested(k, |i| format!("for t{i} in 0..100 {{"), "output[0] = input[0] at r"),
        )
    }),
    ("a long sum of a collective", |k| {
        declared(
            "1",
            "1",
            &format!("output[0] = reduce p in 0..{} where p == r : input[0] at p", huge(k)),
        )
    }),
    ("lets of a collective", |k| {
        let lets = times(k, |i| format!("let x{} = x{i} + x{i} + x{i} ", i + 1));
        declared("1", "1", &format!("let x0 = r {lets} output[0] = input[0] at x{k} % n"))
    }),
    ("chunks of a collective", |k| {
        declared(&huge(k.max(7)), &huge(k.max(7)), "output = input at r")
    }),
    ("outputs of a collective", |k| {
        let size = huge(k.max(7));
        declared("1", &size, &format!("for j in 0..{size} {{ output[j] = input[0] at r }}"))
    }),
    ("a long condition", |k| {
        algorithm(&format!("requires n > 0{} {ROUND}", " && n > 0".repeat(1000 * k)))
    }),
    ("slots", |k| {
        algorithm(&format!("for s in 0..n {{ {ROUND} }} schedule {{ slots {} }}", huge(k)))
    }),
    ("pieces and channels", |k| {
        let k = huge(k);
        algorithm(&format!("for s in 0..4 {{ {ROUND} }} schedule {{ pipeline {k} channels {k} }}"))
    }),
    ("transfers", |k| {
        algorithm(&format!("each r {{ {} }}", "r -> (r + 1) % n : reduce data ".repeat(100 * k)))
    }),
    ("rounds", |k| algorithm(&format!("{ROUND} ").repeat(100 * k))),
    ("scratch memories", |k| {
        algorithm(&format!("{} {ROUND}", times(1000 * k, |i| format!("scratch t{i}[1] "))))
    }),
    ("variables", |k| {
        algorithm(&format!("{} {ROUND}", times(1000 * k, |i| format!("let t{i} = 1 "))))
    }),
];

/// Runs `check` on a text within a limit of processor time in seconds and of address space, in KiB.
fn judged(text: &str, n: u32, seconds: u32, addresses: u32) -> Output {
    // Tests run side by side, each with a file of its own.
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let file = crate::support::file(&format!("deep-{test}.algo"), text);
    let limits = format!("ulimit -t {seconds} -c 0 && ulimit -v {addresses} && exec \"$@\"");
    Command::new("bash")
        .args(["-c", &limits, "limits", env!("CARGO_BIN_EXE_roundelay"), "check"])
        .args([&file, "-n", &n.to_string()])
        .output()
        .unwrap()
}

/// Judges every `stride`-th family at these depths.
fn within(n: u32, seconds: u32, addresses: u32, depths: &[usize], stride: usize) {
    let mut beyond = Vec::new();
    for (name, text) in FAMILIES.iter().step_by(stride) {
        for &k in depths {
            let out = judged(&text(k), n, seconds, addresses);
            let said = String::from_utf8_lossy(&out.stderr);
            if !matches!(out.status.code(), Some(0..=2)) || said.contains("panicked") {
                beyond.push(format!("{name}, {k} deep, on {n} ranks: {}: {said}", out.status));
            }
        }
    }
    assert!(beyond.is_empty(), "{} beyond the limits:\n{}", beyond.len(), beyond.join("\n"));
}

#[test]
fn few_ranks_take_some_seconds_at_most() {
    let (of_4, of_16): (&[usize], &[usize]) =
        if is_full() { (&[1, 3, 8, 40], &[6, 12]) } else { (&[40], &[6]) };
    within(4, 6, 512 << 10, of_4, 1);
    within(16, 6, 512 << 10, of_16, 1);
}

#[test]
fn many_ranks_take_a_minute_at_most() {
    within(131_072, 60, 2 << 20, &[3], if is_full() { 1 } else { 4 });
}

/// An algorithm of the library behind a round that only rank 1 runs: no symmetry, so every step of every rank is
/// looked at.
fn unrolled(name: &str) -> String {
    let (collective, _) = name.split_once('.').expect("collective.name");
    // A rank of all_gather begins with its own chunk alone.
    let chunk = if collective == "all_gather" { "r" } else { "0" };
    let round = format!("each r where r == 1 {{ r -> r : copy data[{chunk}] -> t[0] }}");
    let text = algorithm(&format!("scratch t[1] {round} use {name}"));
    text.replacen("all_reduce", collective, 1)
}

#[test]
fn the_largest_unrolled_proofs_take_half_a_minute_at_most() {
    let all = ["all_gather.direct", "all_reduce.two_shot", "all_reduce.bidirectional_ring"];
    for name in if is_full() { &all[..] } else { &all[..1] } {
        let out = judged(&unrolled(name), 512, 30, 900 << 10);
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(
            out.status.success() && said.contains("unrolled"),
            "{name}: {}: {said}{}",
            out.status,
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

#[test]
fn what_takes_longer_is_noticed() {
    // Honest work of a second and more: the limits are real.
    let text =
        algorithm("chunks n each r { for p in 0..n where p != r { r -> p : reduce data[p] } }");
    let out = judged(&text, 500, 1, 64 << 10);
    assert!(!matches!(out.status.code(), Some(0..=2)), "{}", out.status);
}
