//! Makes random programs in which the work of a rank is written in every way that the language has: `let`s that shadow,
//! loops of unequal width, conditions, partners found by functions, regions of every form.
//!
//! They start from a program that is right and add rounds. Those that work in scratch leave it right;
//! those that work in the vector mostly spoil it, often on a single rank or only where an index wraps.

use roundelay_tests::SeededRandom;

use crate::random::make::Made;

/// Functions that rank and chunk expressions call.
const FUNCTIONS: &str = "fn swing(r, s, n) { let d = (1 - pow(-2, s + 1)) / 3 if even(r) { (r + d) % n } else { (r - d) % n } }
fn partner(r, d, n) = if r ^ d < n { r ^ d } else { r }
fn turned(r, n) = if pow2(n) { bit_reverse(r, log2(n)) } else { n - 1 - r }
";

/// A program to start from: kind, head, whether chunks are alike, rounds, and what is full after them.
struct Base {
    kind: &'static str,
    requires: &'static str,
    /// True if a chunk may go anywhere: there is one a block.
    alike: bool,
    buffer: &'static str,
    stages: &'static [&'static str],
}

const BASES: [Base; 12] = [
    Base {
        kind: "all_reduce",
        requires: "",
        alike: false,
        buffer: "data",
        stages: &[
            "for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }",
            "for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] } }",
        ],
    },
    Base {
        kind: "all_gather",
        requires: "",
        alike: true,
        buffer: "data",
        stages: &["for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r - s) % n] } }"],
    },
    Base {
        kind: "all_gather",
        requires: "",
        alike: true,
        buffer: "data",
        stages: &["each r { for p in 0..n where p != r { r -> p : copy data[r] } }"],
    },
    Base {
        kind: "all_gather",
        requires: "requires pow2(n)",
        alike: true,
        buffer: "data",
        stages: &[
            "for k in 0..log2(n) { let d = 1 << k each r { r -> r ^ d : copy data[r - r % d ..+ d] } }",
        ],
    },
    Base {
        kind: "all_reduce",
        requires: "",
        alike: false,
        buffer: "data",
        stages: &[
            "each r { for p in 0..n where p != r { r -> p : reduce data[p] } }",
            "each r { for p in 0..n where p != r { r -> p : copy data[r] } }",
        ],
    },
    Base {
        kind: "all_reduce",
        requires: "",
        alike: false,
        buffer: "data",
        stages: &["use all_reduce.ring"],
    },
    Base {
        kind: "all_reduce",
        requires: "",
        alike: false,
        buffer: "data",
        stages: &["split data over side in 0..2 { use all_reduce.ring }"],
    },
    Base {
        kind: "all_reduce",
        requires: "",
        alike: false,
        buffer: "data",
        stages: &["use reduce_scatter.ring", "use all_gather.direct"],
    },
    Base {
        kind: "reduce_scatter",
        requires: "",
        alike: true,
        buffer: "data",
        stages: &["for s in 1..n { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }"],
    },
    Base {
        kind: "all_to_all",
        requires: "",
        alike: true,
        buffer: "output",
        stages: &[
            "for s in 0..n { each r { r -> (r + s) % n : copy input[(r + s) % n] -> output[r] } }",
        ],
    },
    Base {
        kind: "all_gather",
        requires: "",
        alike: true,
        buffer: "output",
        stages: &[
            "each r { r -> r : copy input[0] -> output[r] }",
            "for s in 0..n-1 { each r { r -> (r + 1) % n : copy output[(r - s) % n] } }",
        ],
    },
    Base {
        kind: "broadcast",
        requires: "",
        alike: false,
        buffer: "data",
        stages: &["each r where r == root { for p in 0..n where p != r { r -> p : copy data } }"],
    },
];

/// Makes a program.
pub(crate) fn program(dice: &mut SeededRandom) -> Made {
    let grid = dice.below(6) == 0;
    let base = &BASES[dice.below(BASES.len())];
    let tame = dice.below(3) > 0;
    let mut maker = Maker { dice, base, vars: Vec::new(), grid, tame };
    Made::alone(maker.file(), grid)
}

struct Maker<'d> {
    dice: &'d mut SeededRandom,
    base: &'static Base,
    /// Numbers known where the next expression stands, each at least 0 and mostly small.
    vars: Vec<String>,
    grid: bool,
    /// True if all ranks do alike, but for what an exception does.
    tame: bool,
}

impl Maker<'_> {
    fn chance(&mut self, percent: usize) -> bool {
        self.dice.below(100) < percent
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.dice.below(of.len())]
    }

    fn file(&mut self) -> String {
        let mut stages: Vec<String> = self.base.stages.iter().map(|s| (*s).to_string()).collect();
        let (buffer, tame) = (self.base.buffer, self.tame);
        // From here on every place of scratch holds something.
        stages.push(match tame {
            true => format!(
                "each r {{ for p in 0..n {{ r -> r : copy {buffer}[(r + p) % n] -> t[p] }} }}"
            ),
            false => format!("each r {{ r -> r : copy {buffer} -> t }}"),
        });
        stages.push(format!("each r {{ r -> r : copy {buffer}[r ..+ 1] -> u[1..2] }}"));
        stages.push(format!("each r {{ r -> r : copy {buffer}[r] -> w[0] }}"));
        for _ in 0..1 + self.dice.below(2) {
            let round = self.round();
            stages.push(round);
        }
        if self.grid {
            stages.insert(0, "let n = a.size * b.size".into());
            let (buffer, size) = (self.base.buffer, "a.size * b.size");
            stages.push(format!(
                "each (i, j) {{ (i, j) -> ((i + 1) % a.size, (j + 1) % b.size) : copy {buffer}[i * b.size + j] -> g[(i * b.size + j) % ({size})] }}"
            ));
        }
        let n = if self.grid { "(a.size * b.size)" } else { "n" };
        let axes = if self.grid { "(a, b)" } else { "n" };
        let requires = if self.grid {
            self.base.requires.replace("(n)", n)
        } else {
            self.base.requires.into()
        };
        let none = ["", "", "", ""];
        let some =
            ["schedule { channels 2 }", "schedule { pipeline 2 }", "schedule { protocol staged }"];
        let schedule = self.one(&[none.as_slice(), &some].concat());
        let g = if self.grid { format!("scratch g[{n}]") } else { String::new() };
        format!(
            "{FUNCTIONS}algorithm main implements {} on {axes} ranks {{\n    {requires} chunks {n} scratch t[{n}] scratch u[3] scratch w[1] {g}\n    {}\n    {schedule}\n}}\n",
            self.base.kind,
            stages.join("\n    ")
        )
    }

    /// Returns a round, or a few in a loop.
    fn round(&mut self) -> String {
        self.vars = vec!["r".into()];
        let mut head = String::new();
        let mut tail = "";
        if self.chance(25) {
            head = format!("for o in 0..{} {{ ", 1 + self.dice.below(3));
            self.vars.push("o".into());
            tail = " }";
        } else if self.chance(15) {
            head = format!("if n > {} {{ ", self.dice.below(5));
            tail = " }";
        }
        if self.chance(15) {
            head += &format!("let e = {} ", self.dice.below(3));
            self.vars.push("e".into());
        }
        let filter =
            if self.chance(15) { format!(" where {}", self.condition()) } else { String::new() };
        let body = self.block(0);
        format!("{head}each r{filter} {{ {body} }}{tail}")
    }

    fn name(&mut self) -> String {
        // Some names come twice, and hide each other.
        let names = ["m", "x", "y", "q", "z"];
        names[self.dice.below(names.len())].to_string()
    }

    fn block(&mut self, depth: usize) -> String {
        let known = self.vars.clone();
        let mut text = String::new();
        for _ in 0..self.dice.below(3) {
            let value = match self.dice.below(if self.tame { 4 } else { 6 }) {
                0 => "1".to_string(),
                1 => self.dice.below(4).to_string(),
                2 => "if even(r) { 1 } else { 1 }".into(),
                3 => "min(1, n - 1)".into(),
                4 => format!("abs({}) % 3", self.number()),
                _ => format!("({}) % n", self.number()),
            };
            let name = self.name();
            text += &format!("let {name} = {value} ");
            self.vars.retain(|v| *v != name);
            self.vars.push(name);
        }
        for _ in 0..1 + self.dice.below(2) {
            text += &match self.dice.below(if depth > 1 { 4 } else { 9 }) {
                4 | 5 => self.nest(depth),
                6 => {
                    let (c, then, other) =
                        (self.condition(), self.block(depth + 1), self.block(depth + 1));
                    match self.dice.below(3) {
                        0 => format!("if {c} {{ {then} }} "),
                        1 => {
                            let d = self.condition();
                            format!(
                                "if {c} {{ {then} }} else if {d} {{ {other} }} else {{ {then} }} "
                            )
                        }
                        _ => format!("if {c} {{ {then} }} else {{ {other} }} "),
                    }
                }
                7 => {
                    // Arms that do the same.
                    let same = self.transfer();
                    let c = self.condition();
                    format!("if {c} {{ {same} }} else {{ {same} }} ")
                }
                8 => {
                    // The same transfer twice, but for one rank.
                    let same = self.transfer();
                    let (c, wrong) = (self.dice.below(5), self.transfer_to_vector());
                    match self.dice.below(3) {
                        0 => format!("{same} {same} "),
                        1 => format!("{same} if r == {c} {{ {wrong} }} else {{ {same} }} "),
                        _ => format!("if r == {c} {{ {wrong} }} else {{ {same} }} {same} "),
                    }
                }
                0 if self.chance(20) => self.transfer_to_vector(),
                _ => self.transfer(),
            };
        }
        self.vars = known;
        text
    }

    /// Loops in one another, of widths that are unequal or that depend on each other.
    fn nest(&mut self, depth: usize) -> String {
        let known = self.vars.clone();
        let (a, b) = (format!("a{depth}"), format!("b{depth}"));
        let outer = match self.dice.below(4) {
            0 => format!("0..1 + {} % 2", self.pick()),
            1 => "0..min(n, 3)".into(),
            2 => "1..3".into(),
            _ => "0..2".into(),
        };
        self.vars.push(a.clone());
        let inner = match self.dice.below(5) {
            0 => format!("0..(3 - 2 * {a})"),
            1 => format!("{a}..2"),
            2 if self.tame => format!("0..4 - {a} * {a}"),
            2 => format!("0..1 + ({a} + r) % 2"),
            3 => format!("0..{a} + 1 where {b} != 1"),
            _ => "0..2".into(),
        };
        let text = if self.chance(60) {
            self.vars.push(b.clone());
            let body = self.block(depth + 1);
            format!("for {a} in {outer} {{ for {b} in {inner} {{ {body} }} }} ")
        } else {
            let body = self.block(depth + 1);
            format!("for {a} in {outer} {{ {body} }} ")
        };
        self.vars = known;
        text
    }

    fn pick(&mut self) -> String {
        self.vars[self.dice.below(self.vars.len())].clone()
    }

    /// Returns a variable that is not the rank, where ranks are to do alike.
    fn other(&mut self) -> String {
        match self.pick() {
            v if v == "r" && self.tame => self.dice.below(3).to_string(),
            v => v,
        }
    }

    /// Returns any number.
    fn number(&mut self) -> String {
        let (v, w, c) = (self.other(), self.other(), self.dice.below(4));
        match self.dice.below(if self.tame { 5 } else { 10 }) {
            0 => format!("r + {v}"),
            1 => format!("r - {v} + {c} * {w}"),
            2 => format!("r + 7 * {v} + {w}"),
            3 => format!("r - {c}"),
            4 if self.tame => format!("r + {v} + gcd({w}, n)"),
            4 => format!("{v} + gcd({w}, n)"),
            5 => format!("r + popcount({v}) + lowbit({w})"),
            6 => format!("r + max({v}, {w}) - min({v}, {c})"),
            7 => format!("r + (if {v} > {c} {{ {w} }} else {{ {c} }})"),
            8 => format!("n - 1 - r + {c}"),
            _ => format!("r + {c}"),
        }
    }

    /// Returns a number below n; right moduli mostly.
    fn below(&mut self) -> String {
        let (e, v) = (self.number(), self.pick());
        match self.dice.below(if self.tame { 96 } else { 24 }) {
            0..=2 => format!("({e}) % n % (n - 0 * {v})"),
            3 => format!("({e}) % max(1, n - {v})"),
            4 => {
                let v = if v == "r" { "0".to_string() } else { v };
                format!("({e}) % (if n > {v} {{ n - {v} }} else {{ n }})")
            }
            _ => format!("({e}) % n"),
        }
    }

    fn peer(&mut self) -> String {
        let (v, c) = (self.other(), self.dice.below(3));
        match self.dice.below(if self.tame { 5 } else { 10 }) {
            0 | 1 => "r".into(),
            2 => format!("(r + {c} * {v} + 1) % n"),
            3 => format!("(r + {c}) % n"),
            4 => format!("(r - {v}) % n"),
            5 if self.chance(50) => format!("({c} - r) % n"),
            6 => format!("partner(r, {}, n)", 1 << c),
            7 => format!("if even(n) {{ swing(r, {c}, n) }} else {{ r }}"),
            8 => "turned(r, n)".into(),
            _ => self.below(),
        }
    }

    fn condition(&mut self) -> String {
        let (v, c) = (self.pick(), self.dice.below(5));
        match if self.tame && self.dice.below(8) > 0 { 4 } else { self.dice.below(8) } {
            0 => format!("r == {c}"),
            1 => format!("r != {c} % n"),
            2 => "even(r)".into(),
            3 => format!("{v} < {c}"),
            4 => format!("(r + {c}) % n >= 0 && n > {c}"),
            5 => format!("n % 2 == {c} % 2"),
            6 => format!("r + {c} < n"),
            _ => format!("r >= 0 || {v} / 0 == 1"),
        }
    }

    /// Returns a region of the vector and one of scratch into which it may be added.
    fn regions(&mut self) -> (String, String) {
        let buffer = self.base.buffer;
        if self.tame {
            // What scratch holds is counted from its rank, so that ranks may be alike.
            let (v, w, c) = (self.other(), self.other(), self.dice.below(8));
            let e = format!("{v} + {c} * {w}");
            return (format!("{buffer}[(r + {e}) % n]"), format!("t[({e}) % n]"));
        }
        let at = self.below();
        if self.chance(12) {
            let form = match self.dice.below(5) {
                0 => String::new(),
                1 => "[0..n]".into(),
                2 => "[0..n by 2]".into(),
                3 => format!("[{at} ..+ n]"),
                _ => "[0 ..+ n by 2 take 2]".into(),
            };
            let form = if form.contains("take") { "[0..n by 3 take 2]".into() } else { form };
            return (format!("{buffer}{form}"), format!("t{form}"));
        }
        if self.base.alike && self.chance(50) {
            let to = match self.dice.below(3) {
                0 => "w[0]".to_string(),
                1 => "u[1]".into(),
                _ => format!("t[{}]", self.below()),
            };
            return (format!("{buffer}[{at}]"), to);
        }
        match self.dice.below(4) {
            0 => (format!("{buffer}[r]"), "w".into()),
            1 => (format!("t[{at}]"), format!("t[{at}]")),
            _ => (format!("{buffer}[{at}]"), format!("t[{at}]")),
        }
    }

    /// Makes a transfer into scratch, which harms nothing, as long as it is a reduction.
    fn transfer(&mut self) -> String {
        let (from, to) = self.regions();
        let own = to == "w" || self.tame && !self.base.alike;
        let peer = if own { "r".into() } else { self.peer() };
        let op = if self.chance(if self.tame { 3 } else { 8 }) { "copy" } else { "reduce" };
        if self.chance(5) {
            return format!("{peer} -> r : {op} {from} -> {to} ");
        }
        format!("r -> {peer} : {op} {from} -> {to} ")
    }

    /// Makes a transfer into the vector: a copy of what is there, or a fault.
    fn transfer_to_vector(&mut self) -> String {
        let buffer = self.base.buffer;
        let at = self.below();
        match self.dice.below(6) {
            0 => format!("r -> r : reduce {buffer}[{at}] -> {buffer}[{at}] "),
            1 => format!("r -> {} : reduce {buffer}[{at}] ", self.peer()),
            2 => format!("r -> r : copy {buffer}[{at}] -> {buffer}[{}] ", self.below()),
            3 => {
                let e = self.number();
                let v = self.pick();
                format!("r -> r : copy {buffer}[({e}) % max(1, n - {v})] -> {buffer}[({e}) % n] ")
            }
            4 => "let m = 1 r -> r : copy B[r % (n - m)] -> B[r % n] ".replace('B', buffer),
            _ => format!("r -> r : copy {buffer}[{at}] -> {buffer}[{at}] "),
        }
    }
}
