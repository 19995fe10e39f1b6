//! Parses the values of options: rank counts, sizes, times.

use std::str::FromStr;
use std::time::Duration;

use roundelay_compiler::{Shape, ShapeError};

/// The reason for which a text is no value of an option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error("`{0}`: a range is of rank counts such as 2..64, not of grids")]
    RangeOfGrids(String),
    #[error("`{text}` is an empty range: {from} is more than {to}")]
    NoRanks { text: String, from: u32, to: u32 },
    #[error("`{0}` has more than {MOST} rank counts")]
    TooMany(String),
    #[error("`{0}` is an empty range")]
    NoSizes(String),
    #[error("`{0}` is not a size such as 64K or 1M")]
    Size(String),
    #[error("`{0}` is no unit of size; there are K, M and G")]
    SizeUnit(String),
    #[error("`{0}` is more than 1024G")]
    TooLarge(String),
    #[error("`{0}` is not a time such as 5s or 500ms")]
    Time(String),
    #[error("`{0}` is no unit of time; there are ms, s, m and h")]
    TimeUnit(String),
    #[error("`{0}` is not between 1ms and 10 days")]
    OutOfRange(String),
}

/// `8`, `2x4`, `2,4,8` or `2..64` (both ends included).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankCounts {
    /// The shapes, in the order given.
    pub(crate) shapes: Vec<Shape>,
    /// Given as a range: counts that the algorithm does not allow are passed over.
    pub(crate) range: bool,
}

/// More shapes than this in one option are a slip.
const MOST: u32 = 100_000;

impl FromStr for RankCounts {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let Some((from, to)) = text.split_once("..") else {
            let shapes = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
            return Ok(RankCounts { shapes, range: false });
        };
        let end = |s: &str| {
            let shape: Shape = s.strip_prefix('=').unwrap_or(s).parse()?;
            match shape.axes[..] {
                [n] => Ok(n),
                _ => Err(ValueError::RangeOfGrids(text.into())),
            }
        };
        let (from, to) = (end(from)?, end(to)?);
        if from > to {
            return Err(ValueError::NoRanks { text: text.into(), from, to });
        }
        if to - from >= MOST {
            return Err(ValueError::TooMany(text.into()));
        }
        Ok(RankCounts { shapes: (from..=to).map(Shape::flat).collect(), range: true })
    }
}

/// `4K`, `1,4K,1M` or `8..128M` (both ends included).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ByteSizes(Vec<SizeTerm>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum SizeTerm {
    One(u64),
    Range(u64, u64),
}

impl ByteSizes {
    /// Returns the sizes, ranges stepping by a factor.
    pub(crate) fn list(&self, factor: u64) -> Vec<u64> {
        let mut sizes = Vec::new();
        for item in &self.0 {
            match *item {
                SizeTerm::One(size) => sizes.push(size),
                SizeTerm::Range(from, to) => steps(from, to, factor, &mut sizes),
            }
        }
        sizes
    }
}

/// Lists `from`, `from * factor`, … up to `to`, which comes last whether or not it is a step.
pub(crate) fn steps(from: u64, to: u64, factor: u64, sizes: &mut Vec<u64>) {
    let mut size = from;
    while size < to {
        sizes.push(size);
        size = size.saturating_mul(factor.max(2)).max(1);
    }
    sizes.push(to);
}

impl FromStr for ByteSizes {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let item = |part: &str| match part.split_once("..") {
            None => bytes(part).map(SizeTerm::One),
            Some((from, to)) => {
                let (from, to) = (bytes(from)?, bytes(to.strip_prefix('=').unwrap_or(to))?);
                match from <= to {
                    true => Ok(SizeTerm::Range(from, to)),
                    false => Err(ValueError::NoSizes(part.into())),
                }
            }
        };
        text.split(',').map(item).collect::<Result<_, _>>().map(ByteSizes)
    }
}

/// Parses `64`, `64K`, `1M`, `2G`: binary units, of bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, ValueError> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        unit => return Err(ValueError::SizeUnit(unit.into())),
    };
    let number: u64 = digits.parse().map_err(|_| ValueError::Size(text.into()))?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes <= 1 << 40 => Ok(bytes),
        _ => Err(ValueError::TooLarge(text.into())),
    }
}

/// Prints a size as [`bytes`] reads it: `1M` for 1 MiB.
pub(crate) fn size_text(bytes: u64) -> String {
    let units = [("G", 30), ("M", 20), ("K", 10)];
    match units.iter().find(|&&(_, s)| bytes >> s > 0 && bytes.trailing_zeros() >= s) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Parses `5s`, `500ms`, `2m`, or seconds without a unit.
pub(crate) fn duration(text: &str) -> Result<Duration, ValueError> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(ValueError::TimeUnit(unit.into())),
    };
    let number: f64 = digits.parse().map_err(|_| ValueError::Time(text.into()))?;
    let seconds = number * unit;
    if !(1e-3..=1e6).contains(&seconds) {
        return Err(ValueError::OutOfRange(text.into()));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Prints microseconds with their unit: `1.23 ms`.
pub(crate) fn time_text(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2} us"),
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// Returns the median of what was measured, the later of two in the middle; nothing of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(text: &str) -> Result<(Vec<String>, bool), ValueError> {
        let ranks: RankCounts = text.parse()?;
        Ok((ranks.shapes.iter().map(Shape::to_string).collect(), ranks.range))
    }

    #[test]
    fn rank_counts() {
        assert_eq!(ranks("8"), Ok((vec!["8".into()], false)));
        assert_eq!(ranks("2x4,3"), Ok((vec!["2x4".into(), "3".into()], false)));
        assert_eq!(ranks("2..4"), Ok((vec!["2".into(), "3".into(), "4".into()], true)));
        for bad in ["0", "", "x", "2x0", "4..2", "2x2..3x3", "-1", "1..9999999", "99999999999"] {
            assert!(ranks(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes() {
        let list = |text: &str, factor| text.parse::<ByteSizes>().map(|s| s.list(factor));
        assert_eq!(list("1,4K,1M", 2), Ok(vec![1, 4096, 1 << 20]));
        assert_eq!(list("8..64", 2), Ok(vec![8, 16, 32, 64]));
        assert_eq!(list("8..100", 4), Ok(vec![8, 32, 100]));
        assert_eq!(list("0..4", 2), Ok(vec![0, 1, 2, 4]));
        for bad in ["", "1Q", "K", "9..8", "-4", "99999999999G"] {
            assert!(list(bad, 2).is_err(), "{bad}");
        }
        assert_eq!(size_text(0), "0");
        assert_eq!(size_text(3 << 20), "3M");
        assert_eq!(size_text(1500), "1500");
    }

    #[test]
    fn times() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(time_text(1234.0), "1.23 ms");
        for bad in ["", "s", "-1s", "5y", "nan", "0"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
