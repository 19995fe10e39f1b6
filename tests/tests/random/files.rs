//! Makes random programs of several files: functions, collectives and algorithms that are imported, some of
//! which have names that the importing file or the library has too; parts of one and of two buffers, of declared
//! collectives, on whole grids, and over paths.

use roundelay_tests::SeededRandom;

use crate::random::make::Made;

/// The file that the others import.
const BASE: &str = "fn back(r, n) = (r - 1) % n
fn hop(k) = 1 << k
algorithm base implements all_gather on n ranks {
    each r { for p in 0..n where p != r { r -> p : copy data[r] } }
}
algorithm base implements reduce_scatter on n ranks {
    each r { for p in 0..n where p != r { r -> p : reduce data[p] } }
}
";

struct Maker<'d> {
    dice: &'d mut SeededRandom,
}

/// Returns a program called `main`, and what it imports.
pub(crate) fn program(dice: &mut SeededRandom) -> Made {
    let mut maker = Maker { dice };
    let (tools, body, grid) = match maker.dice.below(5) {
        0 => maker.paths(),
        1 => maker.buffers(),
        2 => maker.own(),
        3 => maker.grid(),
        _ => maker.functions(),
    };
    // Functions of the same name as those that imported algorithms call.
    let hides = maker.one(&["", "fn next(r, n) = (r + n - 1) % n\n", "fn hop(k) = k + 1\n"]);
    let imports = maker.one(&["", "import \"base.algo\"\n"]);
    Made {
        text: format!("import \"tools.algo\"\n{imports}{hides}{body}"),
        grid,
        files: vec![
            ("tools.algo".into(), format!("import \"base.algo\"\n{tools}")),
            ("base.algo".into(), BASE.into()),
        ],
    }
}

impl Maker<'_> {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.dice.below(of.len())]
    }

    fn schedule(&mut self) -> &'static str {
        self.one(&["", "", "schedule { channels 2 }", "schedule { channels 3 slots 2 }"])
    }

    /// Statements as they are, in parts, or in parts for paths.
    fn within(&mut self, stmts: &str) -> String {
        match self.dice.below(5) {
            0 => format!("split data over t in 0..{} {{ {stmts} }}", 1 + self.dice.below(3)),
            1 => format!("split data over t in paths {{ {stmts} }}"),
            2 => format!("for once in 0..1 {{ {stmts} }}"),
            _ => stmts.to_string(),
        }
    }

    /// Rings whose neighbours are found by functions.
    fn rings(&mut self) -> String {
        let step = self.one(&["1", "1", "1", "2"]);
        format!(
            "fn next(r, n) = (r + {step}) % n
fn before(r, n) = back(r, n)
algorithm helper implements all_gather on n ranks {{
    for s in 0..n-1 {{ each r {{ r -> next(r, n) : copy data[(r - s) % n] }} }}
}}
algorithm ring implements all_gather on n ranks {{
    for s in 0..n-1 {{ each r {{ r -> before(r, n) : copy data[(r + s) % n] }} }}
}}
algorithm helper implements reduce_scatter on n ranks {{
    for s in 1..n {{ each r {{ r -> next(r, n) : reduce data[(r - s) % n] }} }}
}}
"
        )
    }

    fn functions(&mut self) -> (String, String, bool) {
        let tools = self.rings();
        let gather = self.one(&["helper", "ring", "base", "bruck"]);
        let scatter = self.one(&["helper", "base", "ring"]);
        let k = 1 + self.dice.below(3);
        let (kind, body) = match self.dice.below(4) {
            0 => ("all_gather", format!("use {gather}")),
            1 => (
                "all_gather",
                "for s in 0..n-1 { each r { r -> before(r, n) : copy data[(r + s) % n] } }".into(),
            ),
            2 => ("reduce_scatter", format!("use {scatter}")),
            _ => ("all_reduce", format!("use reduce_scatter.{scatter} use all_gather.{gather}")),
        };
        let chunks = match body.contains("each") {
            true => "chunks n".to_string(),
            false => format!("chunks n * {k}"),
        };
        let (body, schedule) = (self.within(&body), self.schedule());
        let text = format!(
            "algorithm main implements {kind} on n ranks {{ {chunks}\n    {body}\n    {schedule}\n}}\n"
        );
        (tools, text, false)
    }

    fn paths(&mut self) -> (String, String, bool) {
        let tools = self.rings();
        let (kind, of) = match self.dice.below(3) {
            0 => ("all_reduce", ["ring", "circulant", "two_shot"]),
            1 => ("all_gather", ["helper", "ring", "base"]),
            _ => ("reduce_scatter", ["helper", "ring", "base"]),
        };
        let (a, b) = (self.one(&of), self.one(&of));
        let via = self.one(&["via p", "via p", "", "via 0", "via p / 2", "via p + 1"]);
        let by = self.one(&["", "by bandwidth(p)"]);
        let body = match self.dice.below(3) {
            0 => format!("if p == 0 {{ use {a} {via} }} else {{ use {b} }}"),
            1 => format!("split data over half in 0..2 {{ use {a} {via} }}"),
            _ => format!("use {a} {via}"),
        };
        let mut body = format!("split data over p in paths {by} {{ {body} }}");
        if by.is_empty() && kind != "reduce_scatter" && self.dice.below(4) == 0 {
            body += " for p in 0..0 { use ring via 9 }";
        }
        let schedule = if by.is_empty() { self.schedule() } else { "" };
        let text = format!(
            "algorithm main implements {kind} on n ranks {{\n    {body}\n    {schedule}\n}}\n"
        );
        (tools, text, false)
    }

    /// Makes parts that have two buffers.
    fn buffers(&mut self) -> (String, String, bool) {
        let tools = "algorithm two implements all_gather on n ranks {
    each r { for p in 0..n { r -> p : copy input -> output[r] } }
}
algorithm two implements all_to_all on n ranks {
    each r { for p in 0..n { r -> p : copy input[p] -> output[r] } }
}
algorithm two implements reduce_scatter on n ranks {
    each r { r -> r : copy input[r] -> output }
    each r { for p in 0..n where p != r { r -> p : reduce input[p] -> output } }
}
algorithm two implements all_reduce on n ranks {
    each r { r -> r : copy input -> output }
    each r { for p in 0..n where p != r { r -> p : reduce input -> output } }
}
";
        let (k, off) = (1 + self.dice.below(2), self.one(&["0", "0", "1"]));
        let kinds = ["all_gather", "all_to_all", "reduce_scatter", "all_reduce"];
        let kind = self.one(&kinds);
        let body = match (self.dice.below(3), kind) {
            (0, _) => "use two".to_string(),
            (_, "all_gather") => format!(
                "scratch t[n * {k}] each r {{ r -> r : copy data[r * {k} ..+ {k}] -> t[{off} ..+ {k}] }}
    use two on t[0..{k}] -> data"
            ),
            (1, "all_reduce") => format!(
                "scratch t[{k}] each r {{ r -> r : copy data -> t }} use two on t -> data[{off}..{k}]"
            ),
            (_, "all_reduce") => format!(
                "scratch t[{k}] use reduce_scatter.two on data -> t
    each r {{ for p in 0..n {{ r -> p : copy t -> data[r * {k} ..+ {k}] }} }}"
            ),
            _ => format!("scratch t[n * {k}] each r {{ r -> r : copy data -> t }} use two on t -> data"),
        };
        let chunks = match (kind, body.contains("use two on t -> data[")) {
            ("all_reduce", true) => format!("chunks {k}"),
            _ => format!("chunks n * {k}"),
        };
        let schedule = self.schedule();
        let text = format!(
            "algorithm main implements {kind} on n ranks {{ {chunks} {body}\n    {schedule}\n}}\n"
        );
        (tools.into(), text, false)
    }

    /// Returns a declared collective that two files have algorithms for.
    fn own(&mut self) -> (String, String, bool) {
        let c = 1 + self.dice.below(2);
        let d = if self.dice.below(5) == 0 { 1 } else { c };
        let tools = format!(
            "fn next(r, n) = (r + {d}) % n
/// A sum, and what a neighbour has.
collective total on n ranks {{ input 1 output 2
    each r {{ output[0] = reduce p in 0..n : input[0] at p
        output[1] = input[0] at (r - {c}) % n }}
}}
algorithm helper implements total on n ranks {{
    each r {{ r -> r : copy input -> output[0]  r -> next(r, n) : copy input -> output[1] }}
    use all_reduce.{} on output[0]
}}
",
            self.one(&["ring", "two_shot", "circulant"])
        );
        let stmts = match self.dice.below(9) {
            // It is of a declared collective, and so no part.
            0 => self.one(&["use helper", "use total.helper on input -> output"]).to_string(),
            1..5 => format!(
                "each r {{ r -> r : copy input -> output[0] }} use all_reduce.ring on output[0]
    each r {{ r -> (r + {c}) % n : copy input[0] -> output[1] }}"
            ),
            _ => format!(
                "each r {{ r -> (r + {d}) % n : copy input -> output[1]  r -> r : copy input -> output[0] }}
    for s in 1..n {{ each r {{ r -> (r + s) % n : reduce input -> output[0] }} }}"
            ),
        };
        let (body, schedule) = (self.within(&stmts), self.schedule());
        let text = format!(
            "algorithm main implements total on n ranks {{\n    {body}\n    {schedule}\n}}\n"
        );
        (tools, text, false)
    }

    /// Makes algorithms on a whole grid, and along its axes.
    fn grid(&mut self) -> (String, String, bool) {
        let tools = "algorithm helper implements all_reduce on (x, y) ranks {
    each (i, j) where i > 0 { (i, j) -> (0, j) : reduce data }
    each (i, j) where i == 0 && j > 0 { (i, j) -> 0 : reduce data }
    each (i, j) where i + j > 0 { 0 -> (i, j) : copy data }
}
algorithm helper implements all_gather on n ranks {
    each r { for p in 0..n where p != r { r -> p : copy data[r] } }
}
";
        let k = 1 + self.dice.below(2);
        let (kind, body) = match self.dice.below(4) {
            0 => ("all_reduce", format!("chunks {k} use helper")),
            1 => ("all_reduce", format!("chunks {k} use all_reduce.ring")),
            2 => (
                "all_reduce",
                "chunks b.size use reduce_scatter.ring over b use all_reduce.ring over a on data[b]
    use all_gather.helper over b"
                    .into(),
            ),
            _ => ("all_gather", format!("chunks a.size * b.size * {k} use helper")),
        };
        let schedule = self.schedule();
        let text = format!(
            "algorithm main implements {kind} on (a, b) ranks {{ {body}\n    {schedule}\n}}\n"
        );
        (tools.into(), text, true)
    }
}
