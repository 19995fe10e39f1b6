//! Finds similar words, for «did you mean …?».

/// Returns the candidate that looks most like `name`, if one is near enough to be a slip of the keyboard: at
/// most a third of its characters differ. The first of equals wins.
pub fn similar<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let limit = (name.chars().count() / 3).max(1);
    let near = candidates.into_iter().map(|c| (distance(name, c), c));
    near.filter(|(d, c)| *d <= limit && *d < c.chars().count())
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Returns the keyword that a word was meant to be: one that looks like it, or the only one that it begins.
pub fn keyword<'c>(word: &str, keywords: &[&'c str]) -> Option<&'c str> {
    let mut longer = keywords.iter().copied().filter(|k| k.starts_with(word));
    let begun = longer.next().filter(|_| longer.next().is_none());
    let long = word.chars().count() >= SHORTEST;
    similar(word, keywords.iter().copied()).or(begun).filter(|_| long)
}

/// Shorter words are near to every short keyword.
const SHORTEST: usize = 3;

/// Insertions, deletions, replacements and swaps of neighbours between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{keyword, similar};

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let names = ["ring", "bidirectional_ring", "halving_doubling", "n"];
        assert_eq!(similar("rign", names), Some("ring"));
        assert_eq!(similar("halving_doublin", names), Some("halving_doubling"));
        assert_eq!(similar("tree", names), None);
        assert_eq!(similar("m", names), None);
        assert_eq!(similar("", names), None);
    }

    #[test]
    fn keywords_are_found_by_their_beginning_too() {
        let words = ["each", "if", "schedule", "scratch"];
        for (word, meant) in
            [("eech", Some("each")), ("sched", Some("schedule")), ("scratches", Some("scratch"))]
        {
            assert_eq!(keyword(word, &words), meant, "{word}");
        }
        for word in ["sc", "i", "sch", "loop"] {
            let meant = (word == "sch").then_some("schedule");
            assert_eq!(keyword(word, &words), meant, "{word}");
        }
    }
}
