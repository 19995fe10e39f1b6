//! Makes random declared collectives, with algorithms that are right or nearly right: sums whose chunk
//! differs from rank to rank, places that two postconditions name, coordinates that leave their axis, guards,
//! channels, parts and passes.

use crate::SeededRandom;

fn one<'a>(dice: &mut SeededRandom, of: &[&'a str]) -> &'a str {
    of[dice.below(of.len())]
}

/// Returns a collective and an algorithm for it called `main`, as text, and whether they are on a grid.
pub fn program(dice: &mut SeededRandom) -> (String, bool) {
    match dice.below(4) {
        0 => (grid(dice), true),
        1 => (pair(dice), false),
        _ => (sum(dice), false),
    }
}

/// Puts statements into parts or channels, or leaves them.
fn with_schedule(dice: &mut SeededRandom, body: &str) -> String {
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

/// Returns sums over ranks of a chunk that depends on both.
fn sum(dice: &mut SeededRandom) -> String {
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
        with_schedule(dice, &body),
    )
}

/// Returns two postconditions, which may name one place.
fn pair(dice: &mut SeededRandom) -> String {
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
        with_schedule(dice, &body),
    )
}

/// Returns a neighbour on a grid, beyond the end of the axis or round it.
fn grid(dice: &mut SeededRandom) -> String {
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
        with_schedule(dice, &body),
    )
}
