//! Random declared collectives, with algorithms that are right or nearly right: sums whose chunk differs
//! from rank to rank, places that two postconditions name, coordinates that leave their axis, guards,
//! channels, parts and passes.

use std::sync::Arc;

use roundelay_compiler::collective::Kind;
use roundelay_compiler::program::Buffer;
use roundelay_compiler::{Instance, Options, Program, Shape, postcondition};
use roundelay_tests::{Dice, is_grid, read};

use crate::make::Made;
use crate::{Count, number};

fn one<'a>(dice: &mut Dice, of: &[&'a str]) -> &'a str {
    of[dice.below(of.len())]
}

/// A collective and an algorithm for it.
pub(crate) fn program(dice: &mut Dice) -> Made {
    match dice.below(4) {
        0 => Made { text: grid(dice), grid: true },
        1 => Made { text: pair(dice), grid: false },
        _ => Made { text: sum(dice), grid: false },
    }
}

/// Puts statements into parts or channels, or leaves them.
fn played(dice: &mut Dice, body: &str) -> String {
    let mut entries = String::new();
    if dice.below(3) == 0 {
        entries += &format!("channels {} ", 2 + dice.below(2));
    }
    if dice.below(4) == 0 {
        entries += &format!("pipeline {} ", 2 + dice.below(3));
    }
    let schedule = match entries.is_empty() {
        true => String::new(),
        false => format!("schedule {{ {entries}}}"),
    };
    match dice.below(4) {
        0 => format!(
            "split data over side in 0..{} {{\n{body}    }}\n    {schedule}",
            2 + dice.below(2)
        ),
        _ => format!("{body}    {schedule}"),
    }
}

/// Sums over ranks of a chunk that depends on both.
fn sum(dice: &mut Dice) -> String {
    let chunks = one(dice, &["n", "n", "2 * n", "3"]);
    const OF: [&str; 7] = [
        "P % CC",
        "R % CC",
        "(P + R) % CC",
        "(P * 2 + 1) % CC",
        "0",
        "min(P, CC - 1)",
        "(P - R) % CC",
    ];
    const WHO: [&str; 4] = ["P >= 0", "P <= R", "P % 2 == R % 2", "P == R || P == (R + 1) % n"];
    let (asked, who) = (one(dice, &OF), one(dice, &WHO));
    // The last of all: what a table would hold that keeps one chunk of a sum.
    let does = match dice.below(5) {
        0 => one(dice, &OF),
        1 => "CC - 1",
        _ => asked,
    };
    let fill = |t: &str, p: &str, r: &str| {
        t.replace('P', p).replace('R', r).replace("CC", &format!("({chunks})"))
    };
    let twice = dice.below(12) == 0;
    let at = if twice { "p / 2" } else { "p" };
    let body = format!(
        "    each r {{ r -> r : copy input[{}] -> output[1] }}
    each r {{ for q in 0..n where q != r && ({}) {{ r -> q : reduce input[{}] -> output[1] }} }}
    each r {{ r -> (r + 1) % n : copy input[0] -> output[0] }}
",
        fill(does, "r", "r"),
        fill(who, "r", "q"),
        fill(does, "r", "q"),
    );
    format!(
        "collective own on n ranks {{ input {chunks} output 2
    each r {{ output[1] = reduce p in 0..n where {} : input[{}] at {at}
        output[0] = input[0] at (r - 1) % n }} }}
algorithm main implements own on n ranks {{
{}
}}
",
        fill(who, "p", "r"),
        fill(asked, "p", "r"),
        played(dice, &body),
    )
}

/// Two postconditions, which may name one place.
fn pair(dice: &mut Dice) -> String {
    let (a, b) = (dice.below(3), dice.below(3));
    let places = one(dice, &["1", "1", "1", "0", "r % 2", "0..2"]);
    let guard = one(dice, &["if n > 0", "if r > 0", "if even(r)", "if r < n - 1"]);
    let again = if dice.below(6) == 0 { "for t in 0..2" } else { "if n > 0" };
    let source = if places == "0..2" { "0..2" } else { "1" };
    let body = format!(
        "    each r {{ r -> (r + {a}) % n : copy input[0] -> output[0] }}
    each r {{ r -> (r + {b}) % n : copy input[{source}] -> output[{}] }}
",
        places.replace("r % 2", &format!("(r + {b}) % n % 2")),
    );
    format!(
        "collective own on n ranks {{ input 2 output 2
    each r {{ output[0] = input[0] at (r - {a}) % n
        {guard} {{ {again} {{ output[{places}] = input[{source}] at (r - {b}) % n }} }} }} }}
algorithm main implements own on n ranks {{
{}
}}
",
        played(dice, &body),
    )
}

/// A neighbour on a grid, beyond the end of the axis or round it.
fn grid(dice: &mut Dice) -> String {
    let (a, b) = (dice.below(2), dice.below(3));
    let asked = match dice.below(3) {
        0 => format!("(i + {a}, j + {b})"),
        1 => format!("((i + {a}) % x.size, j + {b})"),
        _ => format!("((i + {a}) % x.size, (j + {b}) % y.size)"),
    };
    let guard =
        one(dice, &["", " where i + 1 < x.size", " where j == 0", " where i == 0 && j < 2"]);
    let from = match dice.below(2) {
        0 => format!("((i + {a}) % x.size, (j + {b}) % y.size)"),
        _ => format!("(i * y.size + j + {a} * y.size + {b}) % n"),
    };
    let n = from.replace("% n", "% (x.size * y.size)");
    let body = format!("    each (i, j){guard} {{ {n} -> (i, j) : copy input -> output }}\n");
    format!(
        "collective own on (x, y) ranks {{ each (i, j){guard} {{ output[0] = input[0] at {asked} }} }}
algorithm main implements own on (x, y) ranks {{
{}
}}
",
        played(dice, &body),
    )
}

/// The table that the proofs use against the postconditions, at one shape; whether it is refused.
fn compare(program: &Arc<Program>, shape: &Shape) -> Result<bool, String> {
    let Kind::Custom(custom) = &program.kind else { return Err("not declared".into()) };
    let plain: Result<Vec<_>, String> = (0..u32::try_from(shape.ranks()).unwrap_or(0))
        .map(|rank| postcondition::asked(custom, &shape.axes, rank))
        .collect();
    let instance = Instance::new(program, shape, &Options::default());
    let (plain, instance) = match (plain, instance) {
        (Err(_), Err(_)) => return Ok(true),
        (Ok(_), Err(d)) => return Err(format!("on {shape}: refused: {}", d[0].message)),
        (Err(e), Ok(_)) => return Err(format!("on {shape}: {e}, and not refused")),
        (Ok(plain), Ok(instance)) => (plain, instance),
    };
    let per = instance.spec.per_block();
    for (rank, asked) in (0..).zip(plain) {
        let mut all = vec![None; instance.spec.size(Buffer::Output) as usize];
        for a in asked {
            for k in 0..per {
                let mut of: Vec<(u32, u32)> = a.of.iter().map(|&(r, c)| (r, c * per + k)).collect();
                of.sort_unstable();
                all[(a.output * per + k) as usize] = Some(of);
            }
        }
        for (chunk, asked) in (0..).zip(all) {
            let is = instance.spec.expected(Buffer::Output, rank, chunk);
            let is = is.map(|e| e.contributions(instance.spec.ranks));
            if is != asked {
                return Err(format!("on {shape}, rank {rank}, {chunk}: {is:?}, not {asked:?}"));
            }
        }
    }
    Ok(false)
}

#[test]
fn tables_hold_what_postconditions_ask() {
    let mut count = Count::default();
    for i in 0..2000 * number("ROUNDS", 1) {
        let made = program(&mut crate::dice(i));
        let source = match read("random.algo", &made.text) {
            Ok(source) => source,
            Err((sources, faults)) => {
                count.differs(i, &made.text, &roundelay_tests::say(&sources, &faults));
                continue;
            }
        };
        let Some(program) = source.programs.first() else { continue };
        let shapes: Vec<Shape> = match is_grid(program) {
            true => [[2, 2], [2, 3], [3, 1]].map(|axes| Shape { axes: axes.to_vec() }).to_vec(),
            false => [1, 2, 3, 5].map(Shape::flat).to_vec(),
        };
        for shape in shapes {
            match compare(program, &shape) {
                Ok(refused) => count.add(if refused { "refused" } else { "alike" }, 1),
                Err(why) => count.differs(i, &made.text, &why),
            }
        }
    }
    count.finish("tables", &[("alike", 2000), ("refused", 500)]);
}

/// A proof by a table that keeps the last chunk of a sum only: the oracle does not believe it.
#[test]
fn the_oracle_notices_a_wrong_table() {
    let text = |asked: &str| {
        format!(
            "collective own on n ranks {{ input n output 1
    each r {{ output[0] = reduce p in 0..n : input[{asked}] at p }} }}
algorithm main implements own on n ranks {{
    each r {{ r -> r : copy input[n - 1] -> output[0] }}
    each r {{ for q in 0..n where q != r {{ r -> q : reduce input[n - 1] -> output[0] }} }}
}}
"
        )
    };
    let made = |asked: &str| {
        let source = read("own.algo", &text(asked))
            .unwrap_or_else(|(s, d)| panic!("{}", roundelay_tests::say(&s, &d)));
        Instance::new(&source.programs[0], &Shape::flat(3), &Options::default()).expect("it fits")
    };
    let verdict = |instance: &Instance| {
        let graph = roundelay_compiler::graph::unroll(&Arc::new(instance.clone()));
        graph.and_then(roundelay_compiler::verify::verify).is_ok()
    };
    let mut wrong = made("p");
    assert!(!verdict(&wrong));
    // The old table.
    wrong.spec.custom = made("n - 1").spec.custom;
    assert!(verdict(&wrong), "proved by a wrong table");
    let outcome = roundelay_compiler::interpret::interpret(&wrong, 1).expect("it runs");
    assert!(!outcome.right, "the oracle asks the postconditions");
}
