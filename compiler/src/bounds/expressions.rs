//! Random expressions for tests: every operator and function, on small and on wide values.

/// Makes expressions from a seed.
pub(crate) struct ExprGenerator {
    state: u64,
    names: Vec<&'static str>,
}

impl ExprGenerator {
    /// Creates a generator of expressions over variables of these names.
    pub(crate) fn new(seed: u64, names: &[&'static str]) -> Self {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x51ed_270b_0f1d;
        ExprGenerator { state, names: names.to_vec() }
    }

    /// Names other variables for the next expressions.
    pub(crate) fn named(&mut self, names: &[&'static str]) -> &mut Self {
        self.names = names.to_vec();
        self
    }

    /// Returns a number below `most`.
    pub(crate) fn below(&mut self, most: i64) -> i64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let drawn = i64::try_from(self.state >> 33).expect("31 bits");
        drawn % most
    }

    fn one(&mut self, of: &[&'static str]) -> &'static str {
        of[usize::try_from(self.below(100)).expect("small") % of.len()]
    }

    fn leaf(&mut self) -> String {
        let names = self.names.clone();
        match self.below(10) {
            0..=4 => self.one(&names).to_string(),
            5 | 6 => self.below(9).to_string(),
            7 => format!("(1 << {})", self.below(63)),
            8 => format!("({} - (1 << {}))", self.below(5), self.below(63)),
            _ => self
                .one(&["9223372036854775807", "4611686018427387905", "1152921504606846977"])
                .into(),
        }
    }

    /// Returns an expression of at most this number of levels.
    pub(crate) fn number(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.leaf();
        }
        let depth = depth - 1;
        match self.below(20) {
            0..=2 => self.leaf(),
            3..=6 => {
                let op = self.one(&["+", "-", "*", "+", "-"]);
                format!("({} {op} {})", self.number(depth), self.number(depth))
            }
            7..=9 => {
                let (a, op, k) = (self.number(depth), self.one(&["<<", ">>"]), self.below(63));
                format!("({a} {op} {k})")
            }
            10..=12 => {
                let (op, k) = (self.one(&["/", "%"]), 1 + self.below(7));
                format!("({} {op} {k})", self.number(depth))
            }
            13 => {
                let op = self.one(&["/", "%", "<<", ">>"]);
                format!("({} {op} {})", self.number(depth), self.number(depth))
            }
            14 => {
                let op = self.one(&["&", "|", "^"]);
                format!("({} {op} {})", self.number(depth), self.number(depth))
            }
            15 => format!("(-{})", self.leaf()),
            16 => {
                let f =
                    self.one(&["abs", "popcount", "lowbit", "log2", "ceil_log2", "trailing_zeros"]);
                format!("{f}({})", self.number(depth))
            }
            17 => {
                let f = self.one(&["min", "max", "ceil_div", "gcd", "pow", "bit_reverse"]);
                format!("{f}({}, {})", self.number(depth), self.number(depth))
            }
            18 => {
                let (c, a, b) = (self.condition(depth), self.number(depth), self.number(depth));
                format!("(if {c} {{ {a} }} else {{ {b} }})")
            }
            _ => format!("bit_reverse({}, {})", self.number(depth), self.below(63)),
        }
    }

    /// Returns a condition.
    pub(crate) fn condition(&mut self, depth: u32) -> String {
        let f = self.one(&["even", "odd", "pow2"]);
        match self.below(5) {
            0 => format!("{f}({})", self.number(depth)),
            1 if depth > 0 => {
                let op = self.one(&["&&", "||"]);
                format!("({} {op} {})", self.condition(depth - 1), self.condition(depth - 1))
            }
            2 if depth > 0 => format!("!({})", self.condition(depth - 1)),
            _ => {
                let op = self.one(&["<", "<=", ">", ">=", "==", "!="]);
                format!("({} {op} {})", self.number(depth), self.number(depth))
            }
        }
    }
}
