//! Keeps programs on which something went wrong once.

use roundelay_compiler::{BufferPlacement, CompileOptions, Shape, check, compile};
use roundelay_tests::{ParsedSource, SeededRandom, read, say};

use crate::random::judge::{At, Verdict};
use crate::random::{execution, noise};

fn source(text: &str) -> ParsedSource {
    read("kept.algo", text).unwrap_or_else(|(s, d)| panic!("{}", say(&s, &d)))
}

fn at(source: &ParsedSource, n: u32) -> At<'_> {
    At { program: &source.programs[0], sources: &source.sources, shape: Shape::flat(n), root: 0 }
}

/// Chunks shorter than those of scratch, from which they are sent on in passes.
#[test]
fn passes_begin_alike_in_short_chunks() {
    let source = source(
        "algorithm a implements all_to_all on n ranks { use all_to_all.bruck
            schedule { channels 3 pipeline 3 } }",
    );
    for seed in 0..60 {
        let Ok(Verdict::Right(instance, plans)) = at(&source, 3).judge() else {
            panic!("it is right");
        };
        for proved in &plans {
            execution::execute(&instance, proved, &mut SeededRandom(seed))
                .expect("it runs to the right end");
        }
    }
}

/// Several messages of one connection meet in one operation.
#[test]
fn messages_of_one_connection_are_taken_one_by_one() {
    let source = source(
        "algorithm a implements all_reduce on n ranks { chunks 2  scratch t[2]
            each r where r > 1 { r -> 1 : copy data -> t }
            each r where r == 1 { r -> 0 : reduce data  r -> 0 : reduce t -> data }
            each r where r > 0 { 0 -> r : copy data } }",
    );
    let Ok(Verdict::Right(instance, plans)) = at(&source, 3).judge() else { panic!("it is right") };
    for proved in &plans {
        assert!(proved.least_slots() >= 2);
        for seed in 0..20 {
            execution::execute(&instance, proved, &mut SeededRandom(seed))
                .expect("it runs to the right end");
        }
    }
}

/// No rank of a barrier may do in a round what one rank may not do.
#[test]
fn barriers_are_proved_round_by_round() {
    let source = source(
        "algorithm a implements barrier on n ranks {
            each r { for p in 0..n where p != r { r -> p : copy data } } }",
    );
    assert_eq!(at(&source, 4).symmetry(), Ok(Some(false)));
}

/// Chunks of a part do not lie in the vector as its own do; scratch stays while the vector moves.
#[test]
fn regions_move_as_their_buffers_do() {
    let texts = [
        "algorithm a implements all_reduce on n ranks { chunks 3
            split data over t in 0..2 { use all_reduce.circulant } }",
        "algorithm a implements all_reduce on n ranks { chunks n
            use all_reduce.one_shot on data[0..1]  use all_reduce.one_shot on data[1..n] }",
        "algorithm a implements all_reduce on n ranks { chunks n  scratch t[n]
            each r { r -> r : copy data -> t }
            each r { for p in 0..n where p != r { r -> p : reduce t -> data } } }",
        "algorithm a implements all_gather on n ranks { scratch t[n]
            each r { r -> r : copy data[r] -> t[0] }
            for s in 0..n-1 { each r { r -> (r + 1) % n : copy t[s] -> t[s + 1] } }
            each r { r -> r : copy t -> data } }",
        "algorithm a implements all_reduce on n ranks { chunks n
            each r { r -> r : copy input -> output as bf16 }
            each r { for p in 0..n where p != r { r -> p : reduce input -> output } } }",
    ];
    for text in texts {
        let source = source(text);
        for n in 2..=8 {
            if let Err(why) = at(&source, n).symmetry() {
                panic!("{text}: {why}");
            }
        }
    }
}

/// Bounds at the ends of the numbers.
#[test]
fn bounds_do_not_overflow() {
    let least = "(-9223372036854775807 - 1)";
    for text in [
        format!(
            "algorithm a implements broadcast on n ranks {{ split data over t in {least}..2 {{ }} }}"
        ),
        format!(
            "algorithm a implements broadcast on n ranks {{ each r {{ r -> r : copy data[r + 1..{least}] }} }}"
        ),
        format!(
            "algorithm a implements broadcast on n ranks {{ each r {{ for q in 0..{least} {{ r -> q : copy data[q] }} }} }}"
        ),
        format!(
            "algorithm a implements all_gather on n ranks {{ each r {{ r -> r : copy data[r ..+ ceil_div(n, {least})] }} }}"
        ),
        format!(
            "algorithm a implements all_gather on n ranks {{ let d = {least} each r {{ r -> (r - d) % n - 1 : copy data[r] }} }}"
        ),
        format!(
            "algorithm a implements all_gather on n ranks {{ let d = {least} each r {{ r -> d - r : copy data[-d % -1] }} }}"
        ),
    ] {
        assert!(noise::survive(&text).is_ok(), "{text}");
    }
}

const RING: &str = "for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }
    for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] } }";

/// Checks that a wrong program on many ranks is refused, where symmetry is asked first.
fn refuted(text: &str, n: u32) {
    let source = source(text);
    let found =
        check(&source.programs[0], &source.sources, &Shape::flat(n), &CompileOptions::default());
    assert!(found.is_err(), "proved on {n}: {text}");
}

/// A rank does another thing in place of the second of two equal transfers.
#[test]
fn equal_transfers_are_counted() {
    let text = |odd: &str| {
        format!(
            "algorithm a implements all_reduce on n ranks {{ chunks n scratch t[1] {RING}
            each r {{ r -> r : copy data[r] -> t[0] }}
            each r {{ r -> r : reduce data[r] -> t[0]
                if r == {odd} {{ r -> r : reduce data[r] -> data[r] }}
                else {{ r -> r : reduce data[r] -> t[0] }} }} }}"
        )
    };
    for n in 4..=9 {
        let source = source(&text("3"));
        assert_ne!(at(&source, n).symmetry(), Ok(Some(true)));
    }
    refuted(&text("777"), 1000);
}

/// A modulus reads a `let` of its `each`.
#[test]
fn moduli_are_known_where_they_have_values() {
    let text = "algorithm a implements all_gather on n ranks {
        for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r - s) % n] } }
        each r { let m = 1  r -> r : copy data[r % (n - m)] -> data[r % n] } }";
    let source = source(text);
    for n in 2..=9 {
        assert!(matches!(at(&source, n).symmetry(), Ok(None | Some(false))), "n = {n}");
    }
    refuted(text, 1000);
}

/// Inner loops of unequal width, the turns of which are distinguished.
#[test]
fn turns_of_unequal_loops_are_distinguished() {
    let text = format!(
        "algorithm a implements all_reduce on n ranks {{ chunks n {RING}
        each r {{ for a in 0..2 {{ for b in 0..(3 - 2 * a) {{
            r -> r : copy data[(r + b + 7 * a) % n] -> data[(r + b + 3 * a) % n] }} }} }} }}"
    );
    refuted(&text, 1000);
    let text = "algorithm a implements all_gather on n ranks { scratch t[n]
        for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r - s) % n] } }
        each r { r -> r : copy data -> t }
        each r { for a in 0..2 { for b in 0..(3 - 2 * a) {
            r -> (r + a) % n : reduce data[(r + b + 7 * a) % n] -> t[(r + b + 3 * a) % n] } } } }";
    let source = source(text);
    for n in 2..=9 {
        match at(&source, n).judge() {
            Ok(Verdict::Right(..)) => {}
            Ok(_) => panic!("it is right on {n}"),
            Err(why) => panic!("{why}"),
        }
    }
}

/// Sums of different contributions were compared with each other, where ranks hold them in one place.
#[test]
fn sums_are_compared_with_those_of_the_same_contributions() {
    let claims = |of: &str, rounds: &str| {
        let source = source(&format!(
            "collective own on n ranks {{ each r {{ output[0] = reduce p in 0..{of} : input[0] at p }} }}
            algorithm a implements own on n ranks {{ scratch t[n]
                each r {{ for p in 0..n {{ r -> p : copy input -> t[r] }} }} {rounds} }}"
        ));
        let (program, shape) = (&source.programs[0], Shape::flat(4));
        let options = CompileOptions::default();
        let proved =
            compile(program, &source.sources, &shape, &options, BufferPlacement::OutOfPlace);
        let proved = proved.unwrap_or_else(|d| panic!("{}", say(&source.sources, &d)));
        (proved.facts().bitwise, proved.facts().order.map(|o| o.ascending_sums))
    };
    let added = |order: &str| {
        format!(
            "each r {{ r -> r : copy t[{}] -> output }}
            for p in 1..n {{ each r {{ r -> r : reduce t[{order}] -> output }} }}",
            order.replace('p', "0")
        )
    };
    let prefix = "each r { r -> r : copy t[0] -> output }
        for p in 1..n { each r where p <= r { r -> r : reduce t[p] -> output } }";
    assert_eq!(claims("r + 1", prefix), (Some(true), Some(true)));
    assert_eq!(claims("n", &added("p")), (Some(true), Some(true)));
    assert_eq!(claims("n", &added("n - 1 - p")), (Some(true), Some(false)));
    assert_eq!(claims("n", &added("(r + p) % n")), (Some(false), Some(false)));
}

/// A part on an empty region had scratch of which chunks were longer than those of its vector.
#[test]
fn parts_on_empty_regions_move_nothing() {
    let source = source(
        "algorithm a implements all_reduce on n ranks { chunks 2
            use helper on data[0..0]  use all_reduce.ring }
        algorithm helper implements all_reduce on n ranks { scratch g[2]
            each r { r -> r : copy data[0] -> g[1] }  use all_reduce.ring }",
    );
    for n in 1..=5 {
        assert!(matches!(at(&source, n).judge(), Ok(Verdict::Right(..))), "on {n}");
        assert!(at(&source, n).symmetry().is_ok(), "on {n}");
    }
}
