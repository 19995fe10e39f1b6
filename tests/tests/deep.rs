//! Whatever nests deeply is judged or refused on a thread with little stack: blocks, expressions, functions that call
//! each other, algorithms that use each other, and each inside the other.

use roundelay_compiler::{BufferPlacement, CompileOptions, Shape, check, compile};
use roundelay_dsl::diag::{Diagnostics, codes};
use roundelay_dsl::{MAX_DEPTH, format};
use roundelay_tests::read;

const ROUND: &str = "each r { r -> (r + 1) % n : reduce data }";

fn algorithm(name: &str, body: &str) -> String {
    format!("algorithm {name} implements all_reduce on n ranks {{ {body} }}\n")
}

fn nested(k: usize, open: &str, inner: &str) -> String {
    let open: String = (0..k).map(|i| open.replace('#', &i.to_string())).collect();
    format!("{open}{inner}{}", "}".repeat(k))
}

/// k functions that each call the one before, within `around` of them.
fn functions(k: usize, around: usize) -> String {
    let (open, close) = ("(1 + ".repeat(around), ")".repeat(around));
    let one = |i: usize| format!("fn f{}(x) = {open}f{i}(x){close}\n", i + 1);
    let rest: String = (0..k).map(one).collect();
    format!(
        "fn f0(x) = x\n{rest}{}",
        algorithm("a", &format!("each r {{ r -> (r + f{k}(r)) % n : reduce data }}"))
    )
}

/// k algorithms that each use the one before, within `around` blocks; the last one is declared first if asked for.
fn uses(k: usize, around: usize, backwards: bool) -> String {
    let one = |i: usize| {
        let inner = nested(around, "if n > 0 { ", &format!("use a{i} "));
        algorithm(&format!("a{}", i + 1), &inner)
    };
    let mut all = vec![algorithm("a0", ROUND)];
    all.extend((0..k).map(one));
    if backwards {
        all.reverse();
    }
    all.concat()
}

/// Does with a text all that is done with texts, and returns what its syntax and its names are refused for.
fn walked(text: &str) -> Result<(), Diagnostics> {
    let source = read("deep.algo", text).map_err(|(_, found)| found)?;
    let id = source.sources.find("deep.algo").expect("the text");
    format(&source.sources, id)?;
    let program = source.programs.last().expect("an algorithm");
    // They are wrong, and short enough for a diagnostic.
    let shape = Shape::flat(2);
    let _ = check(program, &source.sources, &shape, &CompileOptions::default());
    let _ = compile(
        program,
        &source.sources,
        &shape,
        &CompileOptions::default(),
        BufferPlacement::InPlace,
    );
    Ok(())
}

fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(128 << 10).spawn(work);
    thread.expect("a thread").join().expect("it is judged or refused");
}

#[test]
fn deep_texts_are_judged_on_a_small_stack() {
    on_a_small_stack(|| {
        let k = MAX_DEPTH - 4;
        for text in [
            algorithm("a", &nested(k, "for t# in 0..1 { ", ROUND)),
            algorithm("a", &nested(k, "split data over t# in 0..1 { ", ROUND)),
            algorithm(
                "a",
                &format!("each r {{ {} }}", nested(k, "if n > 0 { ", "r -> r : reduce data ")),
            ),
            algorithm(
                "a",
                &format!("let x = {}1{} {ROUND}", "(1 + ".repeat(k / 2), ")".repeat(k / 2)),
            ),
            algorithm("a", &format!("let x = {}1 {ROUND}", "1 + ".repeat(k))),
            functions(k, 0),
            functions(2, 90),
            uses(60, 2, false),
            uses(60, 2, true),
        ] {
            let start: String = text.chars().take(100).collect();
            walked(&text).unwrap_or_else(|found| panic!("{start}: {found:?}"));
        }
    });
}

#[test]
fn what_is_nested_too_deep_is_refused() {
    on_a_small_stack(|| {
        for text in [
            functions(10_000, 0),
            functions(200, 90),
            uses(300, 0, false),
            uses(300, 0, true),
            uses(3_000, 0, true),
            uses(20, 90, false),
            uses(20, 90, true),
            algorithm("a", &nested(1 + MAX_DEPTH, "for t# in 0..1 { ", ROUND)),
        ] {
            let start: String = text.chars().take(100).collect();
            let found = walked(&text).expect_err(&start);
            assert!(found.iter().all(|d| d.code == codes::TOO_LARGE), "{start}: {found:?}");
        }
    });
}
