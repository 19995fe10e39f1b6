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

    /// Returns the number of ranks; `u64::MAX`, which no limit allows, if it is greater than that.
    pub fn ranks(&self) -> u64 {
        let extents = self.axes.iter().map(|&a| u64::from(a));
        extents.into_iter().try_fold(1, u64::checked_mul).unwrap_or(u64::MAX)
    }
}

/// The reason for which a text is no shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// It is neither a number nor numbers with `x` between them.
    #[error("`{0}` is not a rank count such as 8 or 2x4")]
    NoCount(String),
    /// There are no ranks.
    #[error("at least one rank is needed")]
    NoRanks,
    /// There are more ranks than algorithms are compiled for.
    #[error("{0} ranks are more than the {MAX_RANKS} supported")]
    TooMany(u64),
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.axes.iter().map(u32::to_string).collect();
        f.write_str(&parts.join("x"))
    }
}

impl std::str::FromStr for Shape {
    type Err = ShapeError;

    fn from_str(s: &str) -> Result<Self, ShapeError> {
        let axes: Result<Vec<u32>, _> = s.split('x').map(|p| p.trim().parse::<u32>()).collect();
        let shape = Shape { axes: axes.map_err(|_| ShapeError::NoCount(s.into()))? };
        match shape.ranks() {
            0 => Err(ShapeError::NoRanks),
            n if n > MAX_RANKS => Err(ShapeError::TooMany(n)),
            _ => Ok(shape),
        }
    }
}

/// More ranks than this are refused.
pub const MAX_RANKS: u64 = 1 << 24;
