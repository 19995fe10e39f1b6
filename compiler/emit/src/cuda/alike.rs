//! Texts that differ in numbers only, as one text of an index.
//!
//! The tasks of a phase are mostly alike: they send other chunks to other peers. So are the phases of a ring. Code
//! that is alike is written once and run with an index, which keeps kernels short for the compiler and for the
//! instruction cache, which is cold when a kernel starts. Numbers that may differ are marked where they are written.

const BEGIN: char = '\u{1}';
const END: char = '\u{2}';

/// Marks a number that may differ between texts that are alike.
pub(super) fn number(value: impl Into<u64>) -> String {
    format!("{BEGIN}{}{END}", value.into())
}

/// Returns a text without its marks.
pub(super) fn plain(text: &str) -> String {
    text.replace([BEGIN, END], "")
}

/// Returns the text around the marked numbers, which texts that are alike have in common.
fn skeleton(text: &str) -> Vec<&str> {
    text.split(BEGIN).map(|part| part.split_once(END).map_or(part, |(_, rest)| rest)).collect()
}

fn numbers(text: &str) -> Vec<u64> {
    let marked = text.split(BEGIN).skip(1);
    marked.map(|part| part.split_once(END).and_then(|(n, _)| n.parse().ok()).unwrap_or(0)).collect()
}

/// Returns true if two texts differ in numbers only.
pub(super) fn alike(a: &str, b: &str) -> bool {
    a.len().abs_diff(b.len()) < 1000 && skeleton(a) == skeleton(b)
}

/// Returns one text for several that are alike, in which `index` tells them apart; numbers may wrap at
/// `moduli`.
pub(super) fn unite(texts: &[&str], index: &str, moduli: &[u32]) -> String {
    let [first, ..] = texts else { return String::new() };
    let columns: Vec<Vec<u64>> = texts.iter().map(|text| numbers(text)).collect();
    let mut united = String::new();
    for (i, part) in skeleton(first).into_iter().enumerate() {
        if let Some(column) = i.checked_sub(1) {
            let values: Vec<u64> = columns.iter().map(|numbers| numbers[column]).collect();
            united += &expression(&values, index, moduli);
        }
        united += part;
    }
    united
}

/// Returns an expression of the index with these values, good as an argument and as a summand.
fn expression(values: &[u64], index: &str, moduli: &[u32]) -> String {
    let (first, second) = (values[0], values.get(1).copied().unwrap_or(values[0]));
    if values.iter().all(|&v| v == first) {
        return number(first);
    }
    let along = |step: u64| match step {
        1 => index.to_string(),
        _ => format!("{step} * {index}"),
    };
    let all = |f: &dyn Fn(u64) -> u64| (0..).zip(values).all(|(i, &v)| v == f(i));
    if second > first && all(&|i| first + i * (second - first)) {
        let step = along(second - first);
        return if first == 0 { step } else { format!("{} + {step}", number(first)) };
    }
    if first > second && all(&|i| first.wrapping_sub(i * (first - second))) {
        return format!("{} - {}", number(first), along(first - second));
    }
    for &m in moduli.iter().filter(|&&m| m > 1) {
        let m = u64::from(m);
        let step = (second + m - first % m) % m;
        if values.iter().all(|&v| v < m) && all(&|i| (first + i * step) % m) {
            return format!("({} + {}) % {m}", number(first), along(step));
        }
    }
    let list: Vec<String> = values.iter().map(u64::to_string).collect();
    format!("pick({index}, {})", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn united(values: &[u64]) -> String {
        let texts: Vec<String> = values.iter().map(|&v| format!("to({}, 7);", number(v))).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        assert!(texts.iter().all(|text| alike(text, texts[0])));
        plain(&unite(&texts, "a", &[4]))
    }

    #[test]
    fn numbers_become_expressions() {
        assert_eq!(united(&[3, 3, 3]), "to(3, 7);");
        assert_eq!(united(&[1, 2, 3]), "to(1 + a, 7);");
        assert_eq!(united(&[0, 6, 12]), "to(6 * a, 7);");
        assert_eq!(united(&[5, 3, 1]), "to(5 - 2 * a, 7);");
        assert_eq!(united(&[2, 3, 0, 1]), "to((2 + a) % 4, 7);");
        assert_eq!(united(&[1, 0, 3]), "to((1 + 3 * a) % 4, 7);");
        assert_eq!(united(&[1, 2, 4, 8]), "to(pick(a, 1, 2, 4, 8), 7);");
    }

    #[test]
    fn other_words_are_not_alike() {
        assert!(!alike(&format!("to({})", number(1_u64)), &format!("from({})", number(1_u64))));
        assert!(!alike("to(1)", "to(2)"), "unmarked numbers may not differ");
        assert!(!alike(&number(1_u64), &(number(1_u64) + &number(1_u64))));
    }
}
