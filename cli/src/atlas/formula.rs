//! Finds the formula of a quantity in the ranks and the parameters, from its values: a sum of few known terms that fits
//! all of them exactly. It is found, not derived: the page names the values that it fits.

use std::fmt;

/// One value of a quantity.
#[derive(Debug, Clone)]
pub(crate) struct FormulaSample {
    /// Extents of the axes of ranks.
    pub(crate) axes: Vec<u32>,
    /// The radix, if the algorithm has a parameter.
    pub(crate) radix: Option<u32>,
    /// The value, as a fraction.
    pub(crate) value: (u64, u64),
}

/// A sum of terms, each with its factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FittedFormula {
    terms: Vec<(ExactFraction, String)>,
    /// The value of a parameter for which alone it holds.
    condition: Option<String>,
}

impl FittedFormula {
    /// Returns it as one that holds under a condition.
    pub(crate) fn where_is(self, condition: String) -> Self {
        FittedFormula { condition: Some(condition), ..self }
    }
}

/// Samples that a formula must fit beyond those that determine it.
const SPARE: usize = 3;
/// Most terms.
const TERMS: usize = 3;

/// Returns the shortest formula that fits all samples exactly, if there is one.
///
/// `axes` are the names of the axes, `radix` that of the parameter.
pub(crate) fn fit(
    axes: &[String],
    radix: Option<&str>,
    samples: &[FormulaSample],
) -> Option<FittedFormula> {
    if samples.is_empty() {
        return None;
    }
    let basis = basis(axes, radix);
    let values: Option<Vec<ExactFraction>> =
        samples.iter().map(|s| ExactFraction::new(s.value.0.into(), s.value.1.into())).collect();
    let values = values?;
    if values.iter().all(|v| v.num == 0) {
        return Some(FittedFormula { terms: Vec::new(), condition: None });
    }
    let columns: Vec<Option<Vec<ExactFraction>>> =
        basis.iter().map(|term| samples.iter().map(|s| (term.of)(s)).collect()).collect();
    for size in 1..=TERMS {
        if samples.len() < size + SPARE {
            return None;
        }
        for chosen in subsets(basis.len(), size) {
            let columns: Option<Vec<&Vec<ExactFraction>>> =
                chosen.iter().map(|&i| columns[i].as_ref()).collect();
            let Some(factors) = columns.and_then(|columns| solve(&columns, &values)) else {
                continue;
            };
            let names = chosen.iter().map(|&i| basis[i].name.clone());
            let terms = factors.into_iter().zip(names).collect();
            return Some(FittedFormula { terms, condition: None });
        }
    }
    None
}

impl fmt::Display for FittedFormula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            f.write_str("0")?;
        }
        // A number stands behind what grows.
        let mut terms: Vec<&(ExactFraction, String)> = self.terms.iter().collect();
        terms.sort_by_key(|(factor, name)| (name.is_empty(), factor.num < 0));
        for (i, (factor, name)) in terms.into_iter().enumerate() {
            let sign = match (i, factor.num < 0) {
                (0, false) => "",
                (0, true) => "−",
                (_, false) => " + ",
                (_, true) => " − ",
            };
            let (num, den) = (factor.num.unsigned_abs(), factor.den);
            f.write_str(sign)?;
            match (num, den, name.is_empty()) {
                (1, 1, false) if self.terms.len() == 1 => f.write_str(bare(name))?,
                (1, 1, false) => f.write_str(name)?,
                (1, _, false) => write!(f, "{name}/{den}")?,
                (_, 1, false) => write!(f, "{num} {name}")?,
                (_, _, false) => write!(f, "{num}/{den} {name}")?,
                (_, 1, true) => write!(f, "{num}")?,
                (_, _, true) => write!(f, "{num}/{den}")?,
            }
        }
        match &self.condition {
            Some(condition) => write!(f, ", where {condition}"),
            None => Ok(()),
        }
    }
}

/// Returns a name without the parentheses around it.
fn bare(name: &str) -> &str {
    let inner = name.strip_prefix('(').and_then(|name| name.strip_suffix(')'));
    inner.filter(|inner| !inner.contains(['(', ')'])).unwrap_or(name)
}

/// Returns the value of a term at the ranks of a sample.
type TermValue = dyn Fn(&FormulaSample) -> Option<ExactFraction>;

/// A term that formulas may have.
struct BasisTerm {
    name: String,
    of: Box<TermValue>,
}

/// Returns the terms, the plainest first.
fn basis(axes: &[String], radix: Option<&str>) -> Vec<BasisTerm> {
    let mut terms = vec![term(String::new(), |_| ExactFraction::new(1, 1))];
    let mut extents: Vec<(String, Option<usize>)> = Vec::new();
    match axes {
        [one] => extents.push((one.clone(), None)),
        several => {
            extents.extend(several.iter().enumerate().map(|(i, name)| (name.clone(), Some(i))));
            extents.push((several.join("·"), None));
        }
    }
    for (name, axis) in extents {
        let of = move |s: &FormulaSample| match axis {
            Some(axis) => s.axes.get(axis).map_or(1, |&a| i128::from(a)),
            None => s.axes.iter().map(|&a| i128::from(a)).product(),
        };
        terms.push(term(format!("({name} − 1)"), move |s| ExactFraction::new(of(s) - 1, 1)));
        let own = if name.contains('·') { format!("({name})") } else { name.clone() };
        let part = format!("({name} − 1)/{own}");
        terms.push(term(part, move |s| ExactFraction::new(of(s) - 1, of(s))));
        terms.push(term(format!("⌈log₂ {own}⌉"), move |s| {
            ExactFraction::new(ceil_log(2, of(s)), 1)
        }));
        terms.push(term(format!("⌊log₂ {own}⌋"), move |s| {
            ExactFraction::new(floor_log(2, of(s)), 1)
        }));
        terms.push(term(name.clone(), move |s| ExactFraction::new(of(s), 1)));
        terms.push(term(format!("⌊{own}/2⌋"), move |s| ExactFraction::new(of(s) / 2, 1)));
        terms.push(term(format!("1/{own}"), move |s| ExactFraction::new(1, of(s))));
        if axes.len() == 1 {
            terms.push(term(format!("⌊{name}/2⌋/{name}"), move |s| {
                ExactFraction::new(of(s) / 2, of(s))
            }));
        }
    }
    let Some(k) = radix else { return terms };
    let n = |s: &FormulaSample| s.axes.iter().map(|&a| i128::from(a)).product::<i128>();
    let radix = |s: &FormulaSample| s.radix.map(i128::from);
    let [only, ..] = axes else { return terms };
    terms.push(term(format!("⌈log_{k} {only}⌉"), move |s| {
        ExactFraction::new(ceil_log(radix(s)?, n(s)), 1)
    }));
    terms.push(term(format!("({k} − 1) ⌈log_{k} {only}⌉"), move |s| {
        ExactFraction::new((radix(s)? - 1) * ceil_log(radix(s)?, n(s)), 1)
    }));
    terms.push(term(format!("⌊log_{k} {only}⌋"), move |s| {
        ExactFraction::new(floor_log(radix(s)?, n(s)), 1)
    }));
    terms.push(term(format!("({k} − 1)"), move |s| ExactFraction::new(radix(s)? - 1, 1)));
    terms
}

fn term(name: String, of: impl Fn(&FormulaSample) -> Option<ExactFraction> + 'static) -> BasisTerm {
    BasisTerm { name, of: Box::new(of) }
}

/// Returns the least number of times that a base must be taken to reach a value.
fn ceil_log(base: i128, value: i128) -> i128 {
    let (mut power, mut times) = (1, 0);
    while power < value && base > 1 {
        power *= base;
        times += 1;
    }
    times
}

/// Returns the greatest number of times that a base can be taken without passing a value.
fn floor_log(base: i128, value: i128) -> i128 {
    let (mut power, mut times) = (base, 0);
    while power <= value && base > 1 {
        power *= base;
        times += 1;
    }
    times
}

/// Returns all subsets of that size of the numbers below `count`, in lexical order.
fn subsets(count: usize, size: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..size {
        let longer = |chosen: &Vec<usize>| {
            let from = chosen.last().map_or(0, |last| last + 1);
            (from..count).map(|i| [&chosen[..], &[i]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Returns the factors with which the columns add up to the values in every row. No factor is 0: a shorter sum would
/// fit. `None` if there are none, or several.
fn solve(columns: &[&Vec<ExactFraction>], values: &[ExactFraction]) -> Option<Vec<ExactFraction>> {
    let width = columns.len();
    let mut rows: Vec<Vec<ExactFraction>> = (0..values.len())
        .map(|row| columns.iter().map(|c| c[row]).chain([values[row]]).collect())
        .collect();
    for at in 0..width {
        let pivot = (at..rows.len()).find(|&row| rows[row][at].num != 0)?;
        rows.swap(at, pivot);
        let by = rows[at][at];
        for cell in &mut rows[at] {
            *cell = cell.over(by)?;
        }
        let own = rows[at].clone();
        for (row, cells) in rows.iter_mut().enumerate() {
            let factor = cells[at];
            if row == at || factor.num == 0 {
                continue;
            }
            for (cell, &own) in cells.iter_mut().zip(&own) {
                *cell = cell.minus(own.times(factor)?)?;
            }
        }
    }
    let fits = rows[width..].iter().all(|row| row[width].num == 0);
    let factors: Vec<ExactFraction> = rows[..width].iter().map(|row| row[width]).collect();
    (fits && factors.iter().all(|f| f.num != 0)).then_some(factors)
}

/// A fraction in its lowest terms, with a positive denominator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ExactFraction {
    num: i128,
    den: i128,
}

impl ExactFraction {
    fn new(num: i128, den: i128) -> Option<Self> {
        let (mut a, mut b) = (num.checked_abs()?, den.checked_abs()?);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let by = a * den.signum();
        (by != 0).then(|| ExactFraction { num: num / by, den: den / by })
    }

    fn times(self, other: Self) -> Option<Self> {
        Self::new(self.num.checked_mul(other.num)?, self.den.checked_mul(other.den)?)
    }

    fn over(self, other: Self) -> Option<Self> {
        self.times(ExactFraction { num: other.den, den: other.num })
    }

    fn minus(self, other: Self) -> Option<Self> {
        let (left, right) = (self.num.checked_mul(other.den)?, other.num.checked_mul(self.den)?);
        Self::new(left.checked_sub(right)?, self.den.checked_mul(other.den)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(counts: impl IntoIterator<Item = u32>, of: impl Fn(u64) -> (u64, u64)) -> String {
        let sample = |n: u32| FormulaSample { axes: vec![n], radix: None, value: of(u64::from(n)) };
        let samples: Vec<FormulaSample> = counts.into_iter().map(sample).collect();
        fit(&["n".into()], None, &samples).map_or("none".into(), |found| found.to_string())
    }

    #[test]
    fn usual_quantities_have_their_usual_formulas() {
        let log = |n: u64| u64::from(n.next_power_of_two().trailing_zeros());
        assert_eq!(flat(2..20, |_| (1, 1)), "1");
        assert_eq!(flat(2..20, |_| (0, 1)), "0");
        assert_eq!(flat(2..20, |n| (2 * (n - 1), 1)), "2 (n − 1)");
        assert_eq!(flat(2..20, |n| (n - 1, 1)), "n − 1");
        assert_eq!(flat((2..20).step_by(2), |n| (n / 2, 1)), "n/2");
        assert_eq!(flat(2..20, |n| (2 * (n - 1), n)), "2 (n − 1)/n");
        assert_eq!(flat(2..20, |n| (2 * log(n), 1)), "2 ⌈log₂ n⌉");
        assert_eq!(flat(2..20, |n| (log(n) + 2, 1)), "⌈log₂ n⌉ + 2");
        assert_eq!(flat(2..20, |n| (n / 2 + 1, 1)), "⌊n/2⌋ + 1");
        assert_eq!(flat([2, 4, 8, 16, 32], |n| (log(n), 1)), "⌈log₂ n⌉");
    }

    #[test]
    fn what_no_sum_fits_has_no_formula() {
        assert_eq!(flat(2..20, |n| (n * n * n % 7, 1)), "none");
        // One value is another: nearly is not enough.
        assert_eq!(flat(2..20, |n| (n + u64::from(n == 17), 1)), "none");
        // Few values would fit anything.
        assert_eq!(flat([2, 4, 8], |n| (n, 1)), "none");
    }

    #[test]
    fn axes_and_a_radix_are_in_it() {
        let grid = (2..6).flat_map(|a| (2..6).map(move |b| [a, b]));
        let sample = |[a, b]: [u32; 2]| FormulaSample {
            axes: vec![a, b],
            radix: None,
            value: (u64::from(2 * (b - 1) + 3 * (a - 1)), 1),
        };
        let samples: Vec<FormulaSample> = grid.map(sample).collect();
        let names = ["node".to_owned(), "gpu".to_owned()];
        let found = fit(&names, None, &samples).expect("a formula");
        assert_eq!(found.to_string(), "3 (node − 1) + 2 (gpu − 1)");
        let radixes = (2..5).flat_map(|k| (2..30).map(move |n| (k, n)));
        let sample = |(k, n): (u32, u32)| FormulaSample {
            axes: vec![n],
            radix: Some(k),
            value: (ceil_log(k.into(), n.into()) as u64, 1),
        };
        let samples: Vec<FormulaSample> = radixes.map(sample).collect();
        let found = fit(&["n".into()], Some("k"), &samples).expect("a formula");
        assert_eq!(found.to_string(), "⌈log_k n⌉");
    }
}
