//! The text that mends a fault, as the finding says it.

use std::ops::Range;

/// Returns what should stand at a place of a text that a finding blames: a word that was meant, an expression that
/// wraps around, or the change with which the compiler has tried that the algorithm would be right.
pub(crate) fn mended(message: &str, text: &str, at: Range<usize>) -> Option<String> {
    let blamed = text.get(at.clone())?;
    let helps = message.lines().filter_map(|line| line.strip_prefix("help: "));
    let tried = message.lines().filter_map(|line| line.strip_suffix(" it would be right"));
    let word = tried
        .filter_map(|change| changed(change, blamed))
        .chain(helps.filter_map(|help| written(help, blamed)))
        .next()?;
    let is_sum = |text: &str| !is_one(text) && text.contains(['+', '-', '%']);
    match is_sum(&word) && !is_sum(blamed) && !stands_alone(&text[..at.start], &text[at.end..]) {
        true => Some(format!("({word})")),
        false => Some(word),
    }
}

/// Returns true if no operator stands beside the place between two texts.
fn stands_alone(before: &str, after: &str) -> bool {
    let before = before.trim_end();
    let compares = ["==", "<=", ">=", "!="].iter().any(|op| before.ends_with(op));
    let opens = ["(", "[", ",", "->", "..", "..+", ":", "=", "{", "}"];
    let closes = [")", "]", ",", "->", "..", ":", "{", "}"];
    !compares
        && opens.iter().any(|mark| before.ends_with(mark))
        && closes.iter().any(|mark| after.trim_start().starts_with(mark))
}

/// Returns the words of a help.
fn written(help: &str, blamed: &str) -> Option<String> {
    let quoted = |before: &str| {
        let (_, rest) = help.split_once(before)?;
        rest.split_once('`').map(|(word, _)| word)
    };
    let wraps = |word: &&str| word.split_once('%').is_some_and(|(value, _)| !value.is_empty());
    let word = quoted("did you mean `").or_else(|| quoted("write `").filter(wraps))?;
    (word != blamed).then(|| word.into())
}

/// Makes a change in words to a text: ``with `r` instead of `s` ``.
fn changed(change: &str, blamed: &str) -> Option<String> {
    let quoted = |text: &str| {
        let rest = text.strip_prefix('`')?;
        rest.split_once('`').map(|(word, rest)| (word.to_owned(), rest.to_owned()))
    };
    for (start, more) in [("one more here", 1), ("one less here", -1)] {
        if change.starts_with(start) {
            return Some(raised(blamed, more));
        }
    }
    if let Some((rank, rest)) = change.strip_prefix("with rank ").and_then(quoted) {
        return rest.is_empty().then_some(rank);
    }
    if let Some((left_out, rest)) = change.strip_prefix("without ").and_then(quoted) {
        let without = blamed.strip_suffix(&left_out).or_else(|| blamed.strip_prefix(&left_out));
        return rest.is_empty().then_some(without?.trim().to_owned()).filter(|t| !t.is_empty());
    }
    let (word, rest) = change.strip_prefix("with ").and_then(quoted)?;
    if let Some((old, rest)) = rest.strip_prefix(" instead of ").and_then(quoted) {
        return rest.is_empty().then_some(replaced(blamed, &old, &word)?);
    }
    if !rest.is_empty() {
        return None;
    }
    if word.starts_with('[') {
        return blamed.split_once('[').map(|(buffer, _)| format!("{buffer}{word}"));
    }
    match word.split_once(' ') {
        Some(("%", _)) if is_one(blamed) => Some(format!("{blamed} {word}")),
        Some(("%", _)) => Some(format!("({blamed}) {word}")),
        Some(("+" | "-", _)) => Some(format!("{blamed} {word}")),
        None if word == "copy" => replaced(blamed, "reduce", "copy"),
        None if word == "reduce" => replaced(blamed, "copy", "reduce"),
        _ => None,
    }
}

/// Returns an expression that is more by a number: the number at its end is changed, if it has one.
fn raised(blamed: &str, more: i64) -> String {
    let head = blamed.trim_end_matches(|c: char| c.is_ascii_digit());
    let sign = match head.trim_end().chars().next_back() {
        None => 1,
        Some('+') => 1,
        Some('-') => -1,
        _ => 0,
    };
    let terms = head.trim_end().trim_end_matches(['+', '-']);
    match blamed[head.len()..].parse::<i64>().ok().filter(|_| sign != 0) {
        Some(number) if head.trim().is_empty() => (number + more).to_string(),
        Some(number) => match number + sign * more {
            0 => terms.trim_end().into(),
            number if number > 0 => format!("{head}{number}"),
            number => format!("{terms}{}{}", if sign > 0 { '-' } else { '+' }, -number),
        },
        None if more > 0 => format!("{blamed} + {more}"),
        None => format!("{blamed} - {}", -more),
    }
}

/// Returns true if a text is one word or in parentheses.
fn is_one(text: &str) -> bool {
    let inside = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    inside.is_some_and(|inside| !inside.contains(['(', ')']))
        || text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Replaces a piece of a text that occurs in it once, and not within a longer word.
fn replaced(text: &str, old: &str, new: &str) -> Option<String> {
    let in_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let is_word = in_word(old.chars().next());
    let mut places = text.match_indices(old).filter(|(at, _)| {
        let (before, after) = (&text[..*at], &text[at + old.len()..]);
        !is_word || !in_word(before.chars().next_back()) && !in_word(after.chars().next())
    });
    let (at, _) = places.next()?;
    match places.next() {
        None => Some(format!("{}{new}{}", &text[..at], &text[at + old.len()..])),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mends a piece of a text of which nothing else is known.
    fn alone(message: &str, blamed: &str) -> Option<String> {
        mended(message, &format!("({blamed})"), 1..blamed.len() + 1)
    }

    #[test]
    fn changes_in_words_are_made() {
        let right = |change: &str| format!("a fault\n{change} it would be right\nhelp: think");
        for (change, blamed, meant) in [
            ("with `r` instead of `s`", "s", "r"),
            ("with `r` instead of `s`", "s + sum", "r + sum"),
            ("with `..+` instead of `..`", "data[r .. d]", "data[r ..+ d]"),
            ("with `% n`", "r + 1", "(r + 1) % n"),
            ("with `% n`", "(r + 1)", "(r + 1) % n"),
            ("with `% n`", "r", "r % n"),
            ("with `+ 1`", "n - 2", "n - 2 + 1"),
            ("with rank `(r + 1) % n`", "r", "(r + 1) % n"),
            ("with `[r]`", "data[(r + 1) % n]", "data[r]"),
            ("with `copy`", "r -> 0 : reduce data", "r -> 0 : copy data"),
            ("without `- 1`", "n - 1", "n"),
            ("one more here, and", "n-2", "n-1"),
            ("one more here, and", "n - 1", "n"),
            ("one less here, and", "n+0", "n-1"),
            ("one more here, and", "2", "3"),
            ("one less here, and", "log2(n)", "log2(n) - 1"),
        ] {
            assert_eq!(alone(&right(change), blamed).as_deref(), Some(meant), "{change}");
        }
        for (change, blamed) in [
            ("with `r` instead of `s`", "s + s"),
            ("with `r` instead of `s`", "sum"),
            ("with another variable of the function (number 1)", "s"),
            ("with `r` instead of `s`, and with a second change,", "s"),
            ("without `- 1`", "- 1"),
        ] {
            assert_eq!(alone(&right(change), blamed), None, "{change} of {blamed}");
        }
        let product = "2 * r -> 0";
        assert_eq!(mended(&right("with `% n`"), product, 4..5).as_deref(), Some("(r % n)"));
        assert_eq!(mended(&right("with `+ 1`"), "r -> r : copy", 5..6).as_deref(), Some("r + 1"));
        let help = "rank 4 is not one of 4\nhelp: write `(r + 1) % n` to wrap around, or leave it";
        assert_eq!(alone(help, "r + 1").as_deref(), Some("(r + 1) % n"));
        assert_eq!(alone("a fault\nhelp: write `%` to wrap around", "r + 1"), None);
    }
}
