//! Makes random programs as text. They start from algorithms that are right, written in random words: peers renumbered,
//! regions cut and turned, superfluous work in scratch, sub-algorithms of the file and of the library, parts,
//! schedules. So a good part of them is right whatever the dice say; the rest is wrong in unforeseen ways.

use roundelay_algorithms::CATALOGUE;
use roundelay_dsl::diag::Diagnostics;
use roundelay_dsl::span::SourceMap;
use roundelay_tests::mutate::mutants;
use roundelay_tests::{ParsedSource, SeededRandom, declared, read_with};

/// A program as text; the algorithm is called `main`.
pub(crate) struct Made {
    pub(crate) text: String,
    pub(crate) grid: bool,
    /// The files that it imports, by the paths that it names.
    pub(crate) files: Vec<(String, String)>,
}

impl Made {
    /// Returns a program of one file.
    pub(crate) fn alone(text: String, grid: bool) -> Made {
        Made { text, grid, files: Vec::new() }
    }

    /// Resolves it.
    pub(crate) fn read(&self) -> Result<ParsedSource, (SourceMap, Diagnostics)> {
        read_with("random.algo", &self.text, &self.files)
    }
}

/// A generator, by its name.
pub(crate) type Generator = (&'static str, fn(&mut SeededRandom) -> Made);

/// All of them.
pub(crate) const GENERATORS: [Generator; 7] = [
    ("words", words),
    ("grids", |dice| Made::alone(crate::random::grid::program(dice), true)),
    ("ranks", crate::random::ranks::program),
    ("declared", own),
    ("files", crate::random::files::program),
    ("mutants of the library", mutant),
    ("parameters", crate::random::parameters::program),
];

/// Makes the `i`-th program: generators take turns.
pub(crate) fn any(i: u64, dice: &mut SeededRandom) -> (&'static str, Made) {
    let turn = usize::try_from(i % GENERATORS.len() as u64).unwrap_or(0);
    let (name, make) = GENERATORS[turn];
    (name, make(dice))
}

/// Returns a mutant of an algorithm of the library.
fn mutant(dice: &mut SeededRandom) -> Made {
    let entry = CATALOGUE[dice.below(CATALOGUE.len())];
    // The oracle here runs ranks that do not fail; `mutants` compares the others.
    let mut all = mutants(&entry.text.replace("    tolerates 1\n", ""));
    let text = match all.is_empty() {
        true => entry.text.to_string(),
        false => all.swap_remove(dice.below(all.len())).text,
    };
    Made::alone(text, entry.text.contains(") ranks"))
}

/// Makes a program, one in eight on a grid, one in ten of a declared collective.
pub(crate) fn program(dice: &mut SeededRandom) -> Made {
    if dice.below(8) == 0 {
        return Made::alone(crate::random::grid::program(dice), true);
    }
    if dice.below(10) == 0 {
        return own(dice);
    }
    words(dice)
}

/// Makes a program of one file, one in six on a grid.
pub(crate) fn plain(dice: &mut SeededRandom) -> Made {
    match dice.below(6) {
        0 => Made::alone(crate::random::grid::program(dice), true),
        _ => words(dice),
    }
}

/// Makes a program of a declared collective.
fn own(dice: &mut SeededRandom) -> Made {
    let (text, grid) = declared::program(dice);
    Made::alone(text, grid)
}

/// Makes a program on one axis.
fn words(dice: &mut SeededRandom) -> Made {
    let k = 1 + dice.below(3);
    let mut maker = Maker { dice, k, by_rank: true, input: None, relabel: (0, 0) };
    Made::alone(maker.file(), false)
}

/// Rounds of transfers, one a line.
pub(crate) type Stages = Vec<String>;

pub(crate) struct Maker<'d> {
    pub(crate) dice: &'d mut SeededRandom,
    /// Chunks of a block, or of all where there are no blocks.
    pub(crate) k: usize,
    /// True if there are n * k chunks, false if k.
    pub(crate) by_rank: bool,
    /// Another buffer to read rubbish from.
    input: Option<&'static str>,
    /// The numbering of ranks in rings and chains: its direction, and its shift.
    relabel: (usize, usize),
}

const FLAT: [&str; 11] = [
    "all_reduce",
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "sendrecv",
    "barrier",
];

impl Maker<'_> {
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.dice.below(100) < percent
    }

    pub(crate) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.dice.below(of.len())]
    }

    fn file(&mut self) -> String {
        if self.chance(8) {
            return self.custom();
        }
        let kind = FLAT[self.dice.below(FLAT.len())];
        let main = self.algorithm("main", kind, true);
        if !main.contains("use helper") {
            return main;
        }
        let helper = self.algorithm("helper", kind, false);
        if self.chance(50) { format!("{helper}\n{main}") } else { format!("{main}\n{helper}") }
    }

    /// Returns a collective of the file's own: everyone has a neighbour's buffer, and a sum over some ranks.
    fn custom(&mut self) -> String {
        let (c, k) = (self.dice.below(4), self.k);
        let adds = self.dice.below(3);
        let cond = |p: &str, r: &str| match adds {
            0 => format!("{p} <= {r}"),
            1 => format!("{p} % 2 == {r} % 2"),
            _ => format!("{p} >= 0 * {r}"),
        };
        let moved = self.one(&[
            "copy input -> output[0..K]",
            "copy input[0..K] -> output[0 ..+ K]",
            "copy input[0] -> output[0]",
        ]);
        format!(
            "collective own on n ranks {{ input {k} output {k} + 1
    each r {{ for q in 0..{k} {{ output[q] = input[q] at (r - {c}) % n }}
        output[{k}] = reduce p in 0..n where {} : input[0] at p }} }}
algorithm main implements own on n ranks {{
    each r {{ r -> (r + {c}) % n : {} }}
    each r {{ r -> r : copy input[0] -> output[{k}] }}
    each r {{ for p in 0..n where {} && p != r {{ r -> p : reduce input[0] -> output[{k}] }} }}
    {}
}}
",
            cond("p", "r"),
            moved.replace('K', &k.to_string()),
            cond("r", "p"),
            self.schedule(),
        )
    }

    fn algorithm(&mut self, name: &str, kind: &str, main: bool) -> String {
        let blocks = ["reduce_scatter", "all_gather", "gather", "scatter", "all_to_all"];
        self.by_rank = blocks.contains(&kind) || self.chance(50);
        self.relabel = (self.dice.below(3), self.dice.below(4));
        let split_buffers = main && kind != "barrier" && self.chance(30);
        self.input = split_buffers.then_some("input");
        let mut stages = Stages::new();
        if split_buffers {
            stages = self.apart(kind);
        } else if main && self.chance(12) && kind != "barrier" {
            let root = self.root_clause(kind);
            stages.push(match self.dice.below(3) {
                0 if !self.by_rank => {
                    let h = self.dice.below(self.k + 1);
                    format!(
                        "use helper on data[0..{h}]{root}\nuse helper on data[{h}..{}]{root}",
                        self.k
                    )
                }
                1 => format!("split data over t in 0..2 {{ use helper{root} }}"),
                _ => format!("use helper{root}"),
            });
        } else {
            stages = self.stages(kind, "data", main);
        }
        if self.chance(45) {
            self.rubbish(&mut stages, kind);
        }
        for stage in &mut stages {
            if self.chance(8) {
                *stage = match self.dice.below(3) {
                    0 => format!("if n > 0 {{ {stage} }} else {{ }}"),
                    1 => format!("for once in 0..1 {{ {stage} }}"),
                    _ => format!("let two = 2 if two == 2 {{ {stage} }}"),
                };
            }
        }
        if self.chance(6) {
            let at = self.dice.below(stages.len());
            stages.insert(at, stages[at].clone());
        }
        let body = stages.join("\n    ");
        let chunks = match (self.by_rank, kind) {
            (_, "barrier") => String::new(),
            (true, _) => format!("chunks n * {}", self.k),
            (false, _) => format!("chunks {}", self.k),
        };
        let scratch = if body.contains("g[") { "scratch g[4]" } else { "" };
        let schedule = if main { self.schedule() } else { String::new() };
        let sums = ["all_reduce", "reduce_scatter", "reduce"].contains(&kind);
        let percent = if sums && self.chance(12) { 60 } else { 0 };
        let body = self.wires(&body, percent);
        format!(
            "algorithm {name} implements {kind} on n ranks {{\n    {chunks} {scratch}\n    {body}\n    {schedule}\n}}\n"
        )
    }

    fn root_clause(&mut self, kind: &str) -> &'static str {
        match kind {
            "broadcast" | "reduce" | "gather" | "scatter" => " root root",
            _ => "",
        }
    }

    fn schedule(&mut self) -> String {
        if self.chance(50) {
            return String::new();
        }
        let mut entries = String::new();
        if self.chance(40) {
            entries += &format!("pipeline {} ", 1 + self.dice.below(4));
        }
        if self.chance(40) {
            entries += &format!("channels {} ", 1 + self.dice.below(3));
        }
        if self.chance(50) {
            entries += &format!("slots {} ", 1 + self.dice.below(4));
        }
        if self.chance(60) {
            entries += self.one(&["protocol staged", "protocol direct", "protocol auto"]);
        }
        format!("schedule {{ {entries} }}")
    }

    /// Puts wire types behind some transfers, which end with `;`, and takes the `;` away.
    fn wires(&mut self, body: &str, percent: usize) -> String {
        let mut parts = body.split(';');
        let mut out = parts.next().unwrap_or_default().to_string();
        for part in parts {
            out += if self.chance(percent) { "as bf16" } else { "" };
            out += part;
        }
        out
    }

    /// Returns a rank by its place in a ring or chain.
    pub(crate) fn rank(&self, place: &str) -> String {
        match self.relabel {
            (0, _) => place.to_string(),
            (1, by) => format!("({place} + {by}) % n"),
            (_, by) => format!("({by} - ({place})) % n"),
        }
    }

    /// Chunks of the whole vector.
    fn all(&self) -> String {
        if self.by_rank { format!("n * {}", self.k) } else { self.k.to_string() }
    }

    /// Moves a block, in one or in several transfers.
    pub(crate) fn block(
        &mut self,
        from: &str,
        to: &str,
        op: &str,
        buf: &str,
        block: &str,
    ) -> String {
        let k = self.k;
        let base = if k == 1 { format!("({block})") } else { format!("({block}) * {k}") };
        let head = format!("{from} -> {to} : {op} {buf}");
        match self.dice.below(6) {
            0 => format!("{head}[{base} ..+ {k}] ; "),
            1 => format!("for q in 0..{k} {{ {head}[{base} + q] ; }}"),
            2 => format!(
                "{head}[{base}..{base} + {k} by 2] ; \n{head}[{base} + 1..{base} + {k} by 2] ; "
            ),
            3 => {
                let h = self.dice.below(k + 1);
                format!("{head}[{base}..{base} + {h}] ; \n{head}[{base} + {h}..{base} + {k}] ; ")
            }
            _ => format!("{head}[{base}..{base} + {k}] ; "),
        }
    }

    /// Moves everything.
    pub(crate) fn whole(&mut self, from: &str, to: &str, op: &str, buf: &str) -> String {
        let all = self.all();
        let head = format!("{from} -> {to} : {op} {buf}");
        match self.dice.below(8) {
            0 => format!("{head}[0..{all}] ; "),
            1 => format!("{head}[{} % ({all}) ..+ {all}] ; ", self.dice.below(5)),
            2 => format!("for q in 0..{all} {{ {head}[q] ; }}"),
            3 => format!("{head}[0..{all} by 2] ; {head}[1..{all} by 2] ; "),
            4 => format!("{head}[0..{all} by 3 take 2] ; {head}[2..{all} by 3] ; "),
            5 => format!(
                "{head}[0..{all} by 2] ; if {all} > 1 {{ {head}[1 ..+ ({all}) / 2 by 2] ; }}"
            ),
            _ => format!("{head} ; "),
        }
    }

    /// Returns a round, or as many as there are ranks where that is the same.
    pub(crate) fn each(&mut self, filter: &str, body: &str, serial: bool) -> String {
        let filter_of = |word: &str| {
            if filter.is_empty() { String::new() } else { format!(" {word} {filter}") }
        };
        let extra = if self.chance(8) { self.aside() } else { String::new() };
        match self.dice.below(4) {
            0 if serial => format!("for r in 0..n{} {{ {body} }}", filter_of("where")),
            1 if !filter.is_empty() => format!("each r {{ {extra} if {filter} {{ {body} }} }}"),
            2 => format!("each r{} {{ let unused = r + 1 {body} {extra} }}", filter_of("where")),
            _ => format!("each r{} {{ {body} {extra} }}", filter_of("where")),
        }
    }

    /// Makes a superfluous transfer beside others.
    fn aside(&mut self) -> String {
        let buf = self.input.unwrap_or("data");
        let to = self.one(&["r", "(r + 1) % n", "(r - 1) % n", "n - 1 - r"]);
        let at = self.dice.below(4);
        format!("r -> {to} : copy {buf}[0] -> g[{at}] ; ")
    }

    /// Adds superfluous rounds.
    fn rubbish(&mut self, stages: &mut Stages, kind: &str) {
        if kind == "barrier" {
            return;
        }
        let buf = self.input.unwrap_or("data");
        let first = self.dice.below(stages.len() + 1);
        for at in first..first + 1 + self.dice.below(4) {
            let to = self.one(&["r", "r", "(r + 1) % n", "(r - 1) % n", "n - 1 - r"]);
            let (i, j, c) = (self.dice.below(4), self.dice.below(4), self.dice.below(self.k));
            let op = match self.dice.below(8) {
                0 => format!("copy g[{i}] -> g[{j}]"),
                1 => format!("reduce g[{i}] -> g[{j}]"),
                2 => format!("reduce {buf}[{c}] -> g[{j}]"),
                3 if kind == "all_reduce" || kind == "reduce" => {
                    format!("copy g[{i}] -> data[{c}]")
                }
                4 => format!("copy g[{i} ..+ 2] -> g[{j} ..+ 2]"),
                _ => format!("copy {buf}[{c}] -> g[{j}]"),
            };
            let filter = self.one(&["", "", "", " where r > 0", " where even(r)"]);
            stages.insert(at, format!("each r{filter} {{ r -> {to} : {op} ; }}"));
        }
    }

    /// Makes rounds from `input` to `output`.
    fn apart(&mut self, kind: &str) -> Stages {
        let k = self.k;
        let blk = |b: &str| format!("[({b}) * {k} ..+ {k}]");
        match kind {
            "reduce_scatter" => vec![
                format!("each r {{ r -> r : copy input{} -> output ; }}", blk("r")),
                match self.dice.below(2) {
                    0 => format!(
                        "each r {{ for p in 0..n where p != r {{ r -> p : reduce input{} -> output ; }} }}",
                        blk("p")
                    ),
                    _ => format!(
                        "for s in 1..n {{ each r {{ r -> (r + s) % n : reduce input{} -> output ; }} }}",
                        blk("(r + s) % n")
                    ),
                },
            ],
            "scatter" => {
                vec![format!("each r {{ root -> r : copy input{} -> output ; }}", blk("r"))]
            }
            "gather" => {
                vec![format!("each r {{ r -> root : copy input -> output{} ; }}", blk("r"))]
            }
            "all_to_all" => match self.dice.below(3) {
                0 => vec![format!(
                    "for s in 0..n {{ each r {{ r -> (r + s) % n : copy input{} -> output{} ; }} }}",
                    blk("(r + s) % n"),
                    blk("r")
                )],
                1 => vec![format!(
                    "for s in 0..n {{ each r {{ r -> (s - r) % n : copy input{} -> output{} ; }} }}",
                    blk("(s - r) % n"),
                    blk("r")
                )],
                _ => vec![format!(
                    "each r {{ for p in 0..n {{ r -> p : copy input{} -> output{} ; }} }}",
                    blk("p"),
                    blk("r")
                )],
            },
            "all_gather" => {
                let mut stages =
                    vec![format!("each r {{ r -> r : copy input -> output{} ; }}", blk("r"))];
                if self.chance(30) {
                    stages = vec![format!(
                        "each r {{ for p in 0..n {{ r -> p : copy input -> output{} ; }} }}",
                        blk("r")
                    )];
                } else {
                    stages.extend(self.stages(kind, "output", false));
                }
                stages
            }
            "sendrecv" => vec!["0 -> 1 : copy input -> output ;".into()],
            "broadcast" => {
                let mut stages =
                    vec!["each r where r == root { r -> r : copy input -> output ; }".into()];
                stages.extend(self.stages(kind, "output", false));
                stages
            }
            _ => {
                let mut stages = vec!["each r { r -> r : copy input -> output ; }".into()];
                stages.extend(match self.dice.below(3) {
                    0 if kind == "all_reduce" => vec!["each r { for p in 0..n where p != r { r -> p : reduce input -> output ; } }".into()],
                    0 => vec!["each r where r != root { r -> root : reduce input -> output ; }".into()],
                    _ => self.stages(kind, "output", false),
                });
                stages
            }
        }
    }

    /// Makes rounds in one buffer.
    fn stages(&mut self, kind: &str, buf: &str, nest: bool) -> Stages {
        let data = buf == "data";
        if data && nest && self.chance(12) && kind != "barrier" {
            let parts = 1 + self.dice.below(3);
            let inner = self.stages(kind, buf, false).join("\n");
            return vec![format!("split data over t in 0..{parts} {{ {inner} }}")];
        }
        let own = data && self.chance(20);
        match kind {
            "all_reduce" => self.all_reduce(buf, own),
            "reduce_scatter" => self.reduce_scatter(buf, own),
            "all_gather" => self.all_gather(buf, own),
            "broadcast" => self.broadcast(buf, own),
            "reduce" => self.reduce(buf, own),
            "gather" if own => {
                vec![format!("use gather.{} root root", self.one(&["linear", "binomial"]))]
            }
            "gather" if self.chance(20) => self.all_gather(buf, false),
            "gather" => {
                let body = self.block("r", "root", "copy", buf, "r");
                vec![self.each("r != root", &body, true)]
            }
            "scatter" if own => {
                vec![format!("use scatter.{} root root", self.one(&["linear", "binomial"]))]
            }
            "scatter" if self.chance(20) => self.broadcast(buf, false),
            "scatter" => {
                let body = self.block("root", "r", "copy", buf, "r");
                vec![self.each("r != root", &body, true)]
            }
            "all_to_all" if own => vec!["use all_to_all.direct".into()],
            "all_to_all" => {
                let k = self.k;
                vec![format!(
                    "each r {{ for p in 0..n where p != r {{ r -> p : copy {buf}[p * {k} ..+ {k}] -> {buf}[r * {k} ..+ {k}] ; }} }}"
                )]
            }
            "sendrecv" if own => vec!["use sendrecv.direct".into()],
            "sendrecv" if self.chance(30) => {
                vec![self.whole("0", "n - 1", "copy", buf), self.whole("n - 1", "1", "copy", buf)]
            }
            "sendrecv" => vec![self.whole("0", "1", "copy", buf)],
            _ => self.barrier(),
        }
    }
}
