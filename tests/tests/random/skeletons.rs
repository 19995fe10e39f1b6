//! Makes algorithms that are right, in one buffer, written in random words.

use crate::random::make::{Maker, Stages};

impl Maker<'_> {
    pub(crate) fn barrier(&mut self) -> Stages {
        vec![match self.dice.below(5) {
            0 => "for p in 0..n { each r where r != p { r -> p : reduce data ; } }".into(),
            1 => "for s in 0..n-1 { each r { r -> (r + 1) % n : copy data ; } }".into(),
            2 => "each r where r > 0 { r -> 0 : copy data ; } each r where r > 0 { 0 -> r : copy data ; }".into(),
            3 => "for s in 0..2 * n { s % n -> (s + 1) % n : copy data ; }".into(),
            _ => "for k in 0..ceil_log2(n) { each r { r -> (r - (1 << k)) % n : copy data ; } }".into(),
        }]
    }

    pub(crate) fn all_reduce(&mut self, buf: &str, own: bool) -> Stages {
        let c = self.one(&["0", "n - 1", "1 % n", "n / 2"]);
        if own {
            return match self.dice.below(3) {
                0 => vec![
                    format!("use reduce.{} root {c}", self.one(&["binomial", "chain"])),
                    format!(
                        "use broadcast.{} root {c}",
                        self.one(&["binomial", "chain", "double_binary_tree"])
                    ),
                ],
                1 => vec![
                    format!("use reduce_scatter.{}", self.one(&["ring", "circulant", "direct"])),
                    format!("use all_gather.{}", self.one(&["ring", "bruck", "pat", "circulant"])),
                ],
                _ => vec![format!(
                    "use all_reduce.{}",
                    self.one(&["ring", "circulant", "two_shot", "bidirectional_ring"])
                )],
            };
        }
        if !self.by_rank && self.chance(15) {
            return self.by_two(buf);
        }
        match self.dice.below(if self.by_rank { 6 } else { 4 }) {
            0 | 1 => {
                let up = self.whole("r", c, "reduce", buf);
                let down = self.whole(c, "r", "copy", buf);
                let filter = format!("r != {c}");
                vec![self.each(&filter, &up, true), self.each(&filter, &down, true)]
            }
            2 => {
                let body = self.whole("r", "p", "reduce", buf);
                vec![self.each("", &format!("for p in 0..n where p != r {{ {body} }}"), false)]
            }
            3 => {
                let (a, b) = (self.rank("s"), self.rank("s + 1"));
                let up = self.whole(&a, &b, "reduce", buf);
                let (a, b) = (self.rank("n - 1 - s"), self.rank("n - 2 - s"));
                let down = self.whole(&a, &b, "copy", buf);
                vec![format!("for s in 0..n-1 {{ {up} }}"), format!("for s in 0..n-1 {{ {down} }}")]
            }
            _ => {
                let mut stages = self.reduce_scatter(buf, false);
                stages.extend(self.all_gather(buf, false));
                stages
            }
        }
    }

    /// One rank sends another its own data and a third one's, into one place.
    fn by_two(&mut self, buf: &str) -> Stages {
        let (k, c) = (self.k, 1 + self.dice.below(2));
        vec![
            format!(
                "each r where r > 0 && r % 2 == 0 {{ r -> r - 1 : copy {buf} -> g[0..{k}] ; }}"
            ),
            format!(
                "each r where r % 2 == 1 {{ r -> 0 : reduce {buf} ; \n\
                 if r + 1 < n {{ r -> 0 : reduce g[0..{k}] -> {buf} ; }} }}"
            ),
            format!("each r where r * {c} > 0 {{ 0 -> r : copy {buf} ; }}"),
        ]
    }

    /// Makes rounds around the ring of renumbered ranks; `block` is a place too.
    pub(crate) fn ring(&mut self, op: &str, buf: &str, block: &str) -> Stages {
        let (a, b) = (self.rank("r"), self.rank("(r + 1)"));
        let block = self.rank(block);
        let body = self.block(&a, &b, op, buf, &block);
        let round = self.each("", &body, false);
        vec![format!("for s in 0..n-1 {{ {round} }}")]
    }

    pub(crate) fn reduce_scatter(&mut self, buf: &str, own: bool) -> Stages {
        if own {
            return vec![format!(
                "use reduce_scatter.{}",
                self.one(&["ring", "circulant", "direct"])
            )];
        }
        match self.dice.below(3) {
            0 => {
                let body = self.block("r", "p", "reduce", buf, "p");
                vec![self.each("", &format!("for p in 0..n where p != r {{ {body} }}"), false)]
            }
            1 => {
                let body = self.block("r", "(r + s) % n", "reduce", buf, "(r + s) % n");
                let round = self.each("", &body, false);
                vec![format!("for s in 1..n {{ {round} }}")]
            }
            _ => self.ring("reduce", buf, "(r - s - 1) % n"),
        }
    }

    pub(crate) fn all_gather(&mut self, buf: &str, own: bool) -> Stages {
        if own {
            return vec![format!(
                "use all_gather.{}",
                self.one(&["ring", "bruck", "pat", "circulant", "direct"])
            )];
        }
        match self.dice.below(4) {
            0 => {
                let body = self.block("r", "p", "copy", buf, "r");
                vec![self.each("", &format!("for p in 0..n where p != r {{ {body} }}"), true)]
            }
            1 => {
                let body = self.block("r", "(r - s) % n", "copy", buf, "r");
                let round = self.each("", &body, true);
                vec![format!("for s in 1..n {{ {round} }}")]
            }
            2 => {
                let up = self.block("r", "0", "copy", buf, "r");
                let down = self.whole("0", "r", "copy", buf);
                vec![self.each("r > 0", &up, true), self.each("r > 0", &down, true)]
            }
            _ => self.ring("copy", buf, "(r - s) % n"),
        }
    }

    pub(crate) fn broadcast(&mut self, buf: &str, own: bool) -> Stages {
        if own {
            return vec![format!(
                "use broadcast.{} root root",
                self.one(&["binomial", "chain", "double_binary_tree"])
            )];
        }
        match self.dice.below(if self.by_rank { 5 } else { 4 }) {
            0 | 1 => {
                let body = self.whole("root", "r", "copy", buf);
                vec![self.each("r != root", &body, true)]
            }
            2 => {
                let body = self.whole("(root + s) % n", "(root + s + 1) % n", "copy", buf);
                vec![format!("for s in 0..n-1 {{ {body} }}")]
            }
            3 if !self.by_rank => {
                let k = self.k;
                vec![
                    format!("each r where r != root {{ root -> r : copy {buf} -> g[0..{k}] ; }}"),
                    format!("each r where r != root {{ r -> r : copy g[0..{k}] -> {buf} ; }}"),
                ]
            }
            _ => {
                let body = self.block("root", "r", "copy", buf, "r");
                let mut stages = vec![self.each("r != root", &body, true)];
                stages.extend(self.all_gather(buf, false));
                stages
            }
        }
    }

    pub(crate) fn reduce(&mut self, buf: &str, own: bool) -> Stages {
        if own {
            return vec![format!("use reduce.{} root root", self.one(&["binomial", "chain"]))];
        }
        match self.dice.below(if self.by_rank { 4 } else { 3 }) {
            0 => {
                let body = self.whole("r", "root", "reduce", buf);
                vec![self.each("r != root", &body, true)]
            }
            1 | 2 => {
                let body = self.whole("(root - s) % n", "(root - s + 1) % n", "reduce", buf);
                vec![format!("for t in 1..n {{ let s = n - t {body} }}")]
            }
            _ => {
                let mut stages = self.reduce_scatter(buf, false);
                let body = self.block("r", "root", "copy", buf, "r");
                stages.push(self.each("r != root", &body, true));
                stages
            }
        }
    }
}
