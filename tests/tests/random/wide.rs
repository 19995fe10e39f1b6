//! Programs over wide values and on odd grids: peers, chunks and conditions that are computed by way of numbers of
//! more than 60 bits, and grids of up to four axes, some of one rank, that differ along some of them.
//!
//! The oracles, the unrolled proof, the proof by symmetry and the plan of each rank alone agree on each.

use roundelay_compiler::Shape;
use roundelay_tests::oracle::ParsedLibrary;
use roundelay_tests::{SeededRandom, instance};

use crate::random::alike::of_is_all;
use crate::random::judge::{At, Verdict};
use crate::random::make::Made;
use crate::random::{Count, dice, guarded, number, oracle};

/// Writes a program.
struct Writer<'d> {
    dice: &'d mut SeededRandom,
}

impl Writer<'_> {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.dice.below(of.len())]
    }

    /// Returns another way to write a number from 0 to 31, mostly over a wide value; one in twelve is another number.
    fn wide(&mut self, x: &str) -> String {
        let k = 48 + self.dice.below(11);
        let most = self.one(&["9223372036854775807", "(1 << 62)", "(1 << 61) + 5"]).to_string();
        match self.dice.below(24) {
            0 | 1 => format!("(({x} << {k}) >> {k})"),
            2 => format!("(({x} << {k}) / (1 << {k}))"),
            3 => format!("(({x} * (1 << {k})) / (1 << {k}))"),
            4 => format!("((({x} << {k}) + {}) >> {k})", self.dice.below(9)),
            5 => format!("(-(-({x} << {k}) >> {k}))"),
            6 => format!("(-((0 - ({x} << {k})) / (1 << {k})))"),
            7 => format!("(abs(0 - ({x} << {k})) >> {k})"),
            8 => format!("(min({x} << {k}, {most}) >> {k})"),
            9 => format!("(max({x} << {k}, {x}) >> {k})"),
            10 => format!("ceil_div({x} << {k}, 1 << {k})"),
            11 => format!("((({x} << {k}) | 1) >> {k})"),
            12 => format!("((({x} << {k}) ^ {most}) >> {k} ^ ({most} >> {k}))"),
            13 => format!("((({x} << {k}) & {most}) >> {k})"),
            14 => format!("(({x} << {k}) % {most} >> {k})"),
            15 => format!("(({x} + {most} - {most}) % 32)"),
            16 => format!("bit_reverse(bit_reverse({x}, 62), 62)"),
            17 => format!("(bit_reverse({x}, 60) % 7 - bit_reverse({x}, 60) % 7 + {x})"),
            18 => format!(
                "(popcount(((1 << 31) - 1) << 31 >> (31 - {x}) << 31 >> 31) - 31 + {x} % 1 + {x})"
            ),
            19 => format!("(log2(1 << {x} << 30) - 30)"),
            20 => format!("(trailing_zeros((1 << 62) >> (30 - {x} % 31)) - 32 + {x} / 31)"),
            21 => format!("((if ({x} << {k}) < {most} {{ {x} << {k} }} else {{ {x} }}) >> {k})"),
            22 => format!("({x} - ({x} << {k}) % (1 << {k}))"),
            _ => format!("(({x} << {k}) % {most} >> {})", k - 1 + self.dice.below(2)),
        }
    }

    /// Returns the number, twice over wide values or once.
    fn number(&mut self, x: &str) -> String {
        let once = self.wide(x);
        if self.dice.below(4) == 0 { self.wide(&once) } else { once }
    }

    /// Writes a program on one axis.
    fn flat(&mut self) -> String {
        let peer = |w: &mut Self, by: &str| match w.dice.below(3) {
            0 => format!("({} + {by}) % n", w.number("r")),
            1 => format!("{} % n", w.number(&format!("(r + {by})"))),
            _ => w.number(&format!("((r + {by}) % n)")),
        };
        let (kind, mut rounds) = match self.dice.below(5) {
            0 => {
                let (to, chunk) = (peer(self, "1"), self.number("((r - s) % n)"));
                (
                    "all_gather",
                    format!("for s in 0..n-1 {{ each r {{ r -> {to} : copy data[{chunk}] }} }}"),
                )
            }
            1 => {
                let (a, b) = (peer(self, "1"), peer(self, "1"));
                (
                    "all_reduce",
                    format!(
                        "for s in 0..n-1 {{ each r {{ r -> {a} : reduce data[(r - s) % n] }} }}
                        for s in 0..n-1 {{ each r {{ r -> {b} : copy data[(r + 1 - s) % n] }} }}"
                    ),
                )
            }
            2 => {
                let (to, at) = (peer(self, "s"), peer(self, "s"));
                (
                    "all_to_all",
                    format!(
                        "for s in 0..n {{ each r {{ r -> {to} : copy input[{at}] -> output[r] }} }}"
                    ),
                )
            }
            3 => {
                let (from, much) = (self.number("r"), self.number("1"));
                (
                    "all_gather",
                    format!(
                        "each r {{ for p in 0..n where p != {from} {{ r -> p : copy data[r ..+ {much}] }} }}"
                    ),
                )
            }
            _ => {
                let (to, at) = (self.number("(r ^ d)"), self.number("(r - r % d)"));
                (
                    "all_gather",
                    format!(
                        "requires pow2(n) chunks n for k in 0..log2(n) {{ let d = 1 << k
                        each r {{ r -> {to} : copy data[{at} ..+ d] }} }}"
                    ),
                )
            }
        };
        // A round that spoils the result, or one that changes nothing.
        if kind == "all_gather" && self.dice.below(3) == 0 {
            let (to, chunk, c) =
                (peer(self, "1"), self.number("((r + 2) % n)"), self.dice.below(3));
            let filter = match self.dice.below(3) {
                0 => format!("where {} == {c}", self.number("r")),
                _ => String::new(),
            };
            let into = self.one(&["", "-> data[(r + 3) % n]"]);
            rounds += &format!(" each r {filter} {{ r -> {to} : copy data[{chunk}] {into} }}");
        }
        let chunks = if rounds.starts_with("requires") { "" } else { "chunks n " };
        format!("algorithm main implements {kind} on n ranks {{ {chunks}{rounds} }}\n")
    }

    /// Writes a program on a grid of this number of axes.
    fn grid(&mut self, axes: usize) -> String {
        let names = &["a", "b", "c", "d"][..axes];
        let mut order: Vec<usize> = (0..axes).collect();
        for i in 0..axes {
            order.swap(i, self.dice.below(axes));
        }
        if self.dice.below(8) == 0 {
            order.pop();
        }
        let barrier = self.dice.below(2) == 0;
        let mut rounds = String::new();
        for &at in &order {
            let round = if barrier { self.signal(names, at) } else { self.sum(names, at) };
            rounds += &round;
            rounds.push('\n');
        }
        let kind = if barrier { "barrier" } else { "all_reduce" };
        format!("algorithm main implements {kind} on ({}) ranks {{\n{rounds}}}\n", names.join(", "))
    }

    /// Returns the coordinates with one replaced.
    fn coordinates(names: &[&str], at: usize, by: &str) -> String {
        let all: Vec<&str> =
            (0..names.len()).map(|i| if i == at { by } else { names[i] }).collect();
        format!("({})", all.join(", "))
    }

    /// Returns the rounds of a barrier along an axis.
    fn signal(&mut self, names: &[&str], at: usize) -> String {
        let (axis, own) = (names[at], Self::coordinates(names, at, names[at]));
        let to = match self.dice.below(3) {
            0 => format!("({axis} + (1 << s)) % {axis}.size"),
            _ => format!("({} + (1 << s)) % {axis}.size", self.number(axis)),
        };
        let to = Self::coordinates(names, at, &to);
        let most = match self.dice.below(8) {
            0 => format!("log2({axis}.size)"),
            _ => format!("ceil_log2({axis}.size)"),
        };
        format!("for s in 0..{most} {{ each {own} {{ {own} -> {to} : copy data }} }}")
    }

    /// Returns the rounds that sum along an axis: all alike, or by way of one rank.
    fn sum(&mut self, names: &[&str], at: usize) -> String {
        let (axis, own) = (names[at], Self::coordinates(names, at, names[at]));
        let to = Self::coordinates(names, at, "p");
        let wide = self.number(axis);
        match self.dice.below(5) {
            0 => {
                let first = Self::coordinates(names, at, "0");
                let from = self.dice.below(8) / 7;
                format!(
                    "each {own} where {axis} > {from} {{ {own} -> {first} : reduce data }}
                    each {own} where {wide} == 0 {{ for p in 1..{axis}.size {{ {own} -> {to} : copy data }} }}"
                )
            }
            1 => format!(
                "use all_reduce.{} over {axis}",
                self.one(&["ring", "circulant", "one_shot"])
            ),
            _ => format!(
                "each {own} {{ for p in 0..{axis}.size where p != {wide} {{ {own} -> {to} : reduce data }} }}"
            ),
        }
    }
}

/// Makes a program and the shapes to try it on.
fn program(dice: &mut SeededRandom) -> (Made, Vec<Shape>) {
    let axes = [1, 1, 2, 3, 3, 4][dice.below(6)];
    let text = match axes {
        1 => Writer { dice }.flat(),
        _ => Writer { dice }.grid(axes),
    };
    let of = |list: &[&[u32]]| list.iter().map(|axes| Shape { axes: axes.to_vec() }).collect();
    let shapes = match axes {
        1 => [2, 3, 4, 5, 8, 16].map(Shape::flat).to_vec(),
        2 => of(&[&[2, 3], &[3, 2], &[1, 4], &[4, 1], &[3, 3]]),
        3 => of(&[&[2, 3, 4], &[2, 1, 3], &[1, 3, 2], &[2, 2, 1], &[3, 2, 2]]),
        _ => of(&[&[2, 3, 1, 2], &[1, 2, 3, 2], &[2, 1, 2, 1], &[2, 2, 2, 2]]),
    };
    (Made::alone(text, axes > 1), shapes)
}

/// Whatever a program is written with, no proof of it is false and none is missing. `ROUNDS=20` tries twenty times as
/// many.
#[test]
fn wide_values_and_odd_grids_are_judged_alike() {
    let (mut count, shelves) = (Count::default(), ParsedLibrary::new());
    for i in 0..120 * number("ROUNDS", 1) {
        let mut dice = dice(i);
        let (made, shapes) = program(&mut dice);
        let source = match made.read() {
            Ok(source) => source,
            Err((sources, faults)) => {
                let why = roundelay_tests::say(&sources, &faults);
                count.differs(i, &made.text, &why);
                continue;
            }
        };
        let program = &source.programs[0];
        for shape in shapes {
            let axes = shape.axes.clone();
            let at = At { program, sources: &source.sources, shape, root: 0 };
            match guarded(|| at.judge()) {
                Err(why) => count.differs(i, &made.text, &why),
                Ok(Verdict::Unfit) => count.add("unfit shape", 1),
                Ok(Verdict::Refuted) => count.add("refuted", 1),
                Ok(Verdict::Refused) => count.add("refused for slots", 1),
                Ok(Verdict::Right(..)) => count.add("proved", 1),
            }
            match guarded(|| at.symmetry()) {
                Err(why) => count.differs(i, &made.text, &why),
                Ok(None) => count.add("no symmetry", 1),
                Ok(Some(true)) => count.add("proved by symmetry", 1),
                Ok(Some(false)) => count.add("refuted by symmetry", 1),
            }
            if let Ok(Some(instance)) = instance(program, &at.shape, 0) {
                match guarded(|| of_is_all(&instance)) {
                    Err(why) => count.differs(i, &made.text, &why),
                    Ok(transfers) => count.add("transfers", transfers.unwrap_or(0)),
                }
            }
            match guarded(|| oracle::agrees(&shelves, &made, &axes)) {
                Err(why) => count.differs(i, &made.text, &why),
                Ok(what) => count.add(what, 1),
            }
        }
    }
    let least = [("proved", 100), ("refuted", 50), ("proved by symmetry", 60)];
    count.finish("wide values and odd grids", &least);
}
