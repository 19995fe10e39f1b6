//! The ranks given.

/// The ranks given: one number, or one an axis.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Extents, slowest axis first.
    pub axes: Vec<u32>,
}

impl Shape {
    /// Creates a shape of `n` ranks on one axis.
    pub fn flat(n: u32) -> Self {
        Shape { axes: vec![n] }
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> u64 {
        self.axes.iter().map(|&a| u64::from(a)).product()
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.axes.iter().map(u32::to_string).collect();
        f.write_str(&parts.join("x"))
    }
}

impl std::str::FromStr for Shape {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let axes: Result<Vec<u32>, _> = s.split('x').map(|p| p.trim().parse::<u32>()).collect();
        let shape = Shape {
            axes: axes.map_err(|_| format!("`{s}` is not a rank count such as 8 or 2x4"))?,
        };
        match shape.ranks() {
            0 => Err("at least one rank is needed".into()),
            n if n > MAX_RANKS => Err(format!("{n} ranks are more than the {MAX_RANKS} supported")),
            _ => Ok(shape),
        }
    }
}

/// More ranks than this are refused.
pub(crate) const MAX_RANKS: u64 = 1 << 24;
