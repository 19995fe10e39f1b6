//! Chooses what is played on GPUs where nothing else decides: the algorithm, the way its messages travel, how
//! many blocks.
//!
//! Rules by size, from measurements on two, four and eight H200 without multicast (docs/performance.md). A
//! tuned table goes before them, hints before that. All of it is a function of what all ranks have in common.

use roundelay_compiler::device::{Way, abi};

/// A rule for calls of at most `up_to` bytes of the whole vector.
struct Rule {
    collective: &'static str,
    /// The most ranks that it is for. Of a collective's rules those for the fewest that are enough stand
    /// alone.
    ranks: u32,
    up_to: u64,
    algorithm: &'static str,
    /// The ways, the best first; a way that the buffers do not allow is passed over, and `staged` takes any.
    ways: &'static [Way],
}

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const ANY: u64 = u64::MAX;
/// The bytes of a broadcast between two ranks beyond which copy engines make it. Where both send at once
/// stores are as fast.
const ENGINES: u64 = 64 * M;

const fn rule(
    collective: &'static str,
    up_to: u64,
    algorithm: &'static str,
    ways: &'static [Way],
) -> Rule {
    Rule { collective, ranks: u32::MAX, up_to, algorithm, ways }
}

const fn on(ranks: u32, rule: Rule) -> Rule {
    Rule { ranks, ..rule }
}

/// The rules by collective, in ascending order of size.
const RULES: &[Rule] = &[
    rule("all_reduce", 32 * K, "one_shot", &[Way::Packet]),
    rule("all_reduce", M, "two_shot", &[Way::Packet]),
    rule("all_reduce", 16 * M, "two_shot", &[Way::Get, Way::Staged]),
    rule("all_reduce", ANY, "ring", &[Way::Put, Way::Staged]),
    on(4, rule("all_reduce", 64 * K, "one_shot", &[Way::Packet])),
    on(4, rule("all_reduce", M, "two_shot", &[Way::Packet])),
    on(4, rule("all_reduce", 8 * M, "two_shot", &[Way::Get, Way::Staged])),
    on(4, rule("all_reduce", ANY, "ring", &[Way::Put, Way::Staged])),
    on(2, rule("all_reduce", M, "one_shot", &[Way::Packet])),
    on(2, rule("all_reduce", 16 * M, "two_shot", &[Way::Get, Way::Staged])),
    on(2, rule("all_reduce", ANY, "ring", &[Way::Put, Way::Staged])),
    rule("all_gather", 512 * K, "direct", &[Way::Packet]),
    rule("all_gather", 16 * M, "direct", &[Way::Staged]),
    rule("all_gather", ANY, "direct", &[Way::Put, Way::Staged]),
    on(4, rule("all_gather", 512 * K, "direct", &[Way::Packet])),
    on(4, rule("all_gather", 8 * M, "direct", &[Way::Staged])),
    on(4, rule("all_gather", ANY, "direct", &[Way::Put, Way::Staged])),
    on(2, rule("all_gather", M, "direct", &[Way::Packet])),
    on(2, rule("all_gather", ANY, "direct", &[Way::Put, Way::Staged])),
    rule("reduce_scatter", 512 * K, "direct", &[Way::Packet]),
    rule("reduce_scatter", 8 * M, "direct", &[Way::Staged]),
    rule("reduce_scatter", 32 * M, "direct", &[Way::Get, Way::Staged]),
    rule("reduce_scatter", ANY, "ring", &[Way::Put, Way::Staged]),
    on(2, rule("reduce_scatter", M, "direct", &[Way::Packet])),
    on(2, rule("reduce_scatter", 64 * M, "direct", &[Way::Get, Way::Staged])),
    on(2, rule("reduce_scatter", ANY, "ring", &[Way::Put, Way::Staged])),
    rule("all_to_all", 512 * K, "direct", &[Way::Packet]),
    rule("all_to_all", 16 * M, "direct", &[Way::Staged]),
    rule("all_to_all", ANY, "direct", &[Way::Put, Way::Staged]),
    on(4, rule("all_to_all", 512 * K, "direct", &[Way::Packet])),
    on(4, rule("all_to_all", 8 * M, "direct", &[Way::Staged])),
    on(4, rule("all_to_all", ANY, "direct", &[Way::Put, Way::Staged])),
    on(2, rule("all_to_all", M, "direct", &[Way::Packet])),
    on(2, rule("all_to_all", ANY, "direct", &[Way::Put, Way::Staged])),
    rule("broadcast", 64 * K, "binomial", &[Way::Packet]),
    rule("broadcast", 512 * K, "chain", &[Way::Packet]),
    rule("broadcast", ANY, "chain", &[Way::Staged]),
    on(2, rule("broadcast", 64 * K, "binomial", &[Way::Packet])),
    on(2, rule("broadcast", 512 * K, "chain", &[Way::Packet])),
    on(2, rule("broadcast", 16 * M, "chain", &[Way::Staged])),
    on(2, rule("broadcast", ENGINES, "chain", &[Way::Put, Way::Staged])),
    on(2, rule("broadcast", ANY, "chain", &[Way::Engine, Way::Put, Way::Staged])),
    rule("reduce", 512 * K, "linear", &[Way::Packet]),
    rule("reduce", ANY, "chain", &[Way::Put, Way::Staged]),
    rule("gather", 512 * K, "linear", &[Way::Packet]),
    rule("gather", ANY, "linear", &[Way::Get, Way::Staged]),
    rule("scatter", 512 * K, "linear", &[Way::Packet]),
    rule("scatter", ANY, "linear", &[Way::Put, Way::Staged]),
    rule("barrier", ANY, "dissemination", &[Way::Staged]),
];

/// Returns the rules of a collective, in ascending order of size.
fn rules(collective: &str, ranks: u32) -> impl Iterator<Item = &'static Rule> + use<'_> {
    let all = RULES.iter().filter(move |r| r.collective == collective && r.ranks >= ranks);
    let fewest = all.clone().map(|r| r.ranks).min();
    all.filter(move |r| Some(r.ranks) == fewest)
}

/// Returns the algorithms for a call of so many bytes, the best first.
pub(crate) fn algorithms(
    collective: &str,
    bytes: u64,
    ranks: u32,
) -> impl Iterator<Item = &'static str> + use<> {
    let of: Vec<&Rule> = rules(collective, ranks).collect();
    let at = of.iter().position(|r| bytes <= r.up_to).unwrap_or(0);
    let (smaller, larger) = of.split_at(at);
    let order: Vec<&'static str> =
        larger.iter().chain(smaller.iter().rev()).map(|r| r.algorithm).collect();
    order.into_iter()
}

/// Returns the ways for a call, the best first: any algorithm's.
pub(crate) fn ways(collective: &str, bytes: u64, ranks: u32) -> Vec<Way> {
    let rule = rules(collective, ranks).find(|r| bytes <= r.up_to);
    let mut ways = rule.map(|r| r.ways.to_vec()).unwrap_or_else(|| match bytes <= 512 * K {
        true => vec![Way::Packet],
        false => vec![Way::Put],
    });
    if !ways.contains(&Way::Staged) {
        ways.push(Way::Staged);
    }
    ways
}

/// Returns the number of blocks for a call on so many ranks: enough to keep the links busy, few where meeting
/// costs more than moving. On two GPUs all of them are best: all_reduce.ring of 1 GiB took 3.27 ms with 32
/// blocks, 3.00 with 128. On more, 64 were best up to 32 MiB where all send to all: all_gather of 32 MiB on
/// four took 87.9 us with 32, 79.3 with 64, 96 with 128. A broadcast goes down a chain, whose ranks send to
/// one each.
pub(crate) fn blocks(
    collective: &str,
    way: Way,
    bytes: u64,
    ranks: u32,
    sms: u32,
    most: Option<u32>,
) -> u32 {
    let each = match way {
        // 128 packets of 8 bytes: a thread waits for one or two of each peer.
        Way::Packet => K,
        Way::Staged | Way::Put | Way::Get if ranks <= 2 => 64 * K,
        Way::Staged | Way::Put | Way::Get => 16 * K,
        // Its kernel only waits and tells.
        Way::Engine => ANY,
    };
    let useful = match way {
        Way::Packet => abi::BLOCKS,
        _ if ranks <= 2 || bytes > 32 * M || collective == "broadcast" => abi::BLOCKS,
        _ => 64,
    };
    let wanted = bytes.div_ceil(each).clamp(1, u64::from(useful)) as u32;
    wanted.min(sms.max(1)).min(most.unwrap_or(abi::BLOCKS).max(1))
}

/// Bytes of an arm's chunk in a pass, up to which arms are played side by side: what a block has in flight at once.
const SIDE_BY_SIDE: u64 = 32 * K;

/// Returns the number of groups of warps that play arms side by side: as many as a phase has arms where
/// chunks are small; one where they are large, so that all ranks send to one peer each at a time.
pub(crate) fn groups(way: Way, arms: u32, pass_bytes: u64) -> u64 {
    match way {
        Way::Staged | Way::Put | Way::Get if pass_bytes > SIDE_BY_SIDE => 1,
        _ => arms.clamp(1, abi::THREADS / 32).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_names_an_algorithm_of_the_book() {
        for rule in RULES {
            let found = roundelay_algorithms::find(rule.collective, rule.algorithm);
            assert!(found.is_some(), "{}.{}", rule.collective, rule.algorithm);
        }
    }

    #[test]
    fn sizes_ascend_and_every_size_has_a_rule() {
        for pair in RULES.windows(2) {
            let same = pair[0].collective == pair[1].collective && pair[0].ranks == pair[1].ranks;
            assert!(if same { pair[0].up_to < pair[1].up_to } else { pair[0].up_to == ANY });
        }
        for collective in crate::comm::SERVED.iter().copied() {
            assert!(algorithms(collective, u64::MAX, 8).next().is_some(), "{collective}");
        }
    }

    #[test]
    fn the_rule_of_the_size_comes_first() {
        let names: Vec<_> = algorithms("all_reduce", M, 4).collect();
        assert_eq!(names, ["two_shot", "two_shot", "ring", "one_shot"]);
        assert_eq!(ways("all_reduce", 8 * M, 4), [Way::Get, Way::Staged]);
        assert_eq!(ways("mine", 8, 2), [Way::Packet, Way::Staged]);
    }

    #[test]
    fn few_ranks_have_rules_of_their_own() {
        let first = |bytes, ranks| algorithms("all_reduce", bytes, ranks).next();
        assert_eq!(
            [2, 3, 4, 5, 8].map(|n| first(16 * M, n)),
            ["two_shot", "ring", "ring", "two_shot", "two_shot"].map(Some)
        );
        assert_eq!(ways("broadcast", 2 * M, 2), [Way::Staged]);
        assert_eq!(ways("broadcast", 512 * K, 3), [Way::Packet, Way::Staged]);
        let names: Vec<_> = algorithms("broadcast", 2 * M, 2).collect();
        assert_eq!(names, ["chain", "chain", "chain", "chain", "binomial"]);
        assert_eq!(ways("gather", ANY, 2), ways("gather", ANY, 3), "those of all others");
        assert_eq!(ways("broadcast", ENGINES, 2), [Way::Put, Way::Staged]);
        assert_eq!(ways("broadcast", ENGINES + 1, 2), [Way::Engine, Way::Put, Way::Staged]);
        assert_eq!(ways("broadcast", ANY, 4), [Way::Staged], "not on more");
    }

    #[test]
    fn blocks_stay_within_what_there_is() {
        assert_eq!(blocks("all_gather", Way::Packet, 0, 4, 132, None), 1);
        assert_eq!(blocks("all_gather", Way::Packet, 8 * K, 4, 132, None), 8);
        assert_eq!(blocks("all_gather", Way::Put, M, 2, 132, None), 16);
        assert_eq!(blocks("all_gather", Way::Put, M, 4, 132, None), 64);
        assert_eq!(blocks("broadcast", Way::Staged, 2 * M, 4, 132, None), 128);
        assert_eq!(blocks("all_gather", Way::Get, 1 << 30, 2, 132, None), 128);
        assert_eq!(blocks("all_gather", Way::Put, 32 << 20, 4, 132, None), 64);
        assert_eq!(blocks("all_gather", Way::Put, 1 << 30, 4, 132, None), 128);
        assert_eq!(blocks("all_gather", Way::Put, 1 << 30, 4, 20, None), 20);
        assert_eq!(blocks("all_gather", Way::Put, 1 << 30, 4, 132, Some(8)), 8);
        assert_eq!(blocks("all_gather", Way::Engine, 1 << 40, 2, 132, None), 1);
    }
}
