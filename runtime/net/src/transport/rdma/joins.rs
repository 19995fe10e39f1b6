//! Decides which queue of this end is joined with which of the peer's.
//!
//! Both ends have the networks of all queues, in each end's own order, and come to the same pairs in the same
//! order without another word. Two of one network are joined, the first of one end with the first of the
//! other. Of the rest, queues of unknown network are joined. If no two are of one network there
//! may be a router between all, and order alone decides.

/// Returns pairs of a queue of this end and one of the other's, by number, in an order that both ends derive.
/// A queue is described by its network, where that is known, and by an identity that no other queue has.
pub(super) fn joins<N: PartialEq, I: Ord + Copy>(
    here: &[(Option<N>, I)],
    there: &[(Option<N>, I)],
) -> Vec<(usize, usize)> {
    let (mut own, mut peer_targets): (Vec<usize>, Vec<usize>) =
        ((0..here.len()).collect(), (0..there.len()).collect());
    let mut pairs = Vec::new();
    let mut join = |fits: &dyn Fn(usize, usize) -> bool| {
        own.retain(|&a| {
            let found = peer_targets.iter().position(|&b| fits(a, b));
            pairs.extend(found.map(|at| (a, peer_targets.remove(at))));
            found.is_none()
        });
    };
    join(&|a, b| here[a].0.is_some() && here[a].0 == there[b].0);
    join(&|a, b| here[a].0.is_none() && there[b].0.is_none());
    join(&|a, b| here[a].0.is_none() || there[b].0.is_none());
    if pairs.is_empty() {
        pairs = (0..here.len().min(there.len())).map(|at| (at, at)).collect();
    }
    pairs.sort_by_key(|&(a, b)| (a + b, here[a].1.min(there[b].1)));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Describes joins; networks are digits, unknown ones dots.
    fn names(here: &str, there: &str) -> String {
        let end = |text: &str, from: usize| -> Vec<(Option<char>, usize)> {
            let known = |(at, c)| (Some(c).filter(|&c| c != '.'), from + at);
            text.chars().enumerate().map(known).collect()
        };
        let (a, b) = (end(here, 0), end(there, 100));
        let pairs = joins(&a, &b);
        let turned: Vec<_> = joins(&b, &a).into_iter().map(|(b, a)| (a, b)).collect();
        assert_eq!(pairs, turned, "both ends find the same, {here} and {there}");
        pairs.iter().map(|(a, b)| format!("{a}{b} ")).collect()
    }

    #[test]
    fn queues_of_one_network_are_joined_in_order() {
        for (here, there, pairs) in [
            ("01", "01", "00 11 "),
            ("01", "10", "01 10 "),
            ("0011", "1100", "02 20 13 31 "),
            ("0000", "00", "00 11 "),
            ("012", "2", "20 "),
            ("..", "..", "00 11 "),
            (".0", "0.", "01 10 "),
            ("0.", "01", "00 11 "),
            ("1.", "0", "10 "),
            // All behind routers.
            ("01", "23", "00 11 "),
            ("", "0", ""),
        ] {
            assert_eq!(names(here, there), pairs, "{here} and {there}");
        }
    }

    #[test]
    fn both_ends_always_find_the_same() {
        let end = |mut number: usize| -> String {
            let mut text = String::new();
            for _ in 0..number % 5 {
                number /= 4;
                text.push(['.', '0', '1', '2'][number % 4]);
            }
            text
        };
        for here in 0..600 {
            for there in 0..600 {
                names(&end(here), &end(there));
            }
        }
    }
}
