//! Makes the labels of results in pictures and tables: no two results have the same.

use std::collections::BTreeSet;

use super::table::title;
use crate::job::table::ResultRow;

/// The label of ours, where an algorithm was chosen for each size.
pub(super) const CHOSEN: &str = "roundelay";

/// Returns the name of an own result among those of other algorithms.
fn full(line: &ResultRow) -> String {
    match (&line.file, line.chosen) {
        (_, true) => CHOSEN.into(),
        (Some(file), _) => format!("{CHOSEN} {} ({file})", line.algorithm),
        (None, _) => format!("{CHOSEN} {}", line.algorithm),
    }
}

/// One name of the command line, and the algorithm that it stands for.
pub(super) struct RequestedName<'a> {
    /// The name as the user wrote it.
    pub(super) name: &'a str,
    /// The collective.
    pub(super) collective: String,
    /// Its name; none where one is chosen for each size.
    pub(super) algorithm: Option<String>,
}

/// Returns a label for each name of the command line: that of the algorithm, and the file where two have it.
pub(super) fn labels(asked: &[RequestedName<'_>]) -> Vec<String> {
    let short = |a: &RequestedName<'_>| match &a.algorithm {
        Some(algorithm) => format!("{CHOSEN} {algorithm}"),
        None => CHOSEN.into(),
    };
    let alike = |a: &RequestedName<'_>, b: &RequestedName<'_>| {
        a.collective == b.collective && short(a) == short(b)
    };
    let label = |(at, a): (usize, &RequestedName<'_>)| {
        if asked.iter().filter(|b| alike(a, b)).count() == 1 {
            return short(a);
        }
        let before = asked[..at].iter().filter(|b| alike(a, b) && a.name == b.name).count();
        let again = if before > 0 { format!(" #{}", before + 1) } else { String::new() };
        format!("{} ({}){again}", short(a), a.name)
    };
    asked.iter().enumerate().map(label).collect()
}

/// Returns the names of own rows that were printed before, by size: those of algorithms where several were measured.
pub(super) fn of_rows(sizes: &[Vec<ResultRow>]) -> Vec<String> {
    let own = || sizes.iter().filter_map(|lines| lines.first());
    let (mut seen, mut several) = (BTreeSet::new(), BTreeSet::new());
    for line in own() {
        if !seen.insert((title(line), line.bytes)) {
            several.insert(title(line));
        }
    }
    let name = |line: &ResultRow| match several.contains(&title(line)) {
        true => full(line),
        false => CHOSEN.into(),
    };
    own().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_where_algorithms_are_called_alike() {
        let asked = |name, collective: &str, algorithm: Option<&str>| RequestedName {
            name,
            collective: collective.into(),
            algorithm: algorithm.map(str::to_owned),
        };
        let all = [
            asked("a.algo", "all_reduce", Some("ring")),
            asked("b.algo", "all_reduce", Some("ring")),
            asked("all_gather.ring", "all_gather", Some("ring")),
            asked("all_reduce", "all_reduce", None),
            asked("a.algo", "all_reduce", Some("ring")),
        ];
        let wanted = [
            "roundelay ring (a.algo)",
            "roundelay ring (b.algo)",
            "roundelay ring",
            "roundelay",
            "roundelay ring (a.algo) #2",
        ];
        assert_eq!(labels(&all), wanted);
    }
}
