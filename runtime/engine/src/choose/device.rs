//! Chooses for GPUs where nothing else decides: the algorithm, the protocol of its messages, the number of blocks.
//!
//! Rules by size, from measurements on two, four and eight H200 without multicast (docs/performance.md). A
//! tuned table goes before them, hints before that. All of it is a function of what all ranks have in common.

use crate::tunables::{COPY_ENGINE_BYTES_MIN, SIDE_BY_SIDE_BYTES};
use roundelay_compiler::device::{DeviceProtocol, abi};

/// A rule for calls of at most `up_to` bytes of the whole vector.
struct DeviceRule {
    collective: &'static str,
    /// The most ranks that it is for. Of a collective's rules those for the fewest that are enough stand
    /// alone.
    ranks: u32,
    up_to: u64,
    algorithm: &'static str,
    /// The protocols, the best first; a protocol that the buffers do not allow is passed over, and `staged` takes any.
    protocols: &'static [DeviceProtocol],
}

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const ANY: u64 = u64::MAX;

const fn rule(
    collective: &'static str,
    up_to: u64,
    algorithm: &'static str,
    protocols: &'static [DeviceProtocol],
) -> DeviceRule {
    DeviceRule { collective, ranks: u32::MAX, up_to, algorithm, protocols }
}

const fn on(ranks: u32, rule: DeviceRule) -> DeviceRule {
    DeviceRule { ranks, ..rule }
}

/// The rules by collective, in ascending order of size.
const RULES: &[DeviceRule] = &[
    rule("all_reduce", 32 * K, "one_shot", &[DeviceProtocol::Packet]),
    rule("all_reduce", M, "two_shot", &[DeviceProtocol::Packet]),
    rule("all_reduce", 16 * M, "two_shot", &[DeviceProtocol::Get, DeviceProtocol::Staged]),
    rule("all_reduce", ANY, "ring", &[DeviceProtocol::Put, DeviceProtocol::Staged]),
    on(4, rule("all_reduce", 64 * K, "one_shot", &[DeviceProtocol::Packet])),
    on(4, rule("all_reduce", M, "two_shot", &[DeviceProtocol::Packet])),
    on(4, rule("all_reduce", 8 * M, "two_shot", &[DeviceProtocol::Get, DeviceProtocol::Staged])),
    on(4, rule("all_reduce", ANY, "ring", &[DeviceProtocol::Put, DeviceProtocol::Staged])),
    on(2, rule("all_reduce", M, "one_shot", &[DeviceProtocol::Packet])),
    on(2, rule("all_reduce", 16 * M, "two_shot", &[DeviceProtocol::Get, DeviceProtocol::Staged])),
    on(2, rule("all_reduce", ANY, "ring", &[DeviceProtocol::Put, DeviceProtocol::Staged])),
    rule("all_gather", 512 * K, "direct", &[DeviceProtocol::Packet]),
    rule("all_gather", 16 * M, "direct", &[DeviceProtocol::Staged]),
    rule("all_gather", ANY, "direct", &[DeviceProtocol::Put, DeviceProtocol::Staged]),
    on(4, rule("all_gather", 512 * K, "direct", &[DeviceProtocol::Packet])),
    on(4, rule("all_gather", 8 * M, "direct", &[DeviceProtocol::Staged])),
    on(4, rule("all_gather", ANY, "direct", &[DeviceProtocol::Put, DeviceProtocol::Staged])),
    on(2, rule("all_gather", M, "direct", &[DeviceProtocol::Packet])),
    on(2, rule("all_gather", ANY, "direct", &[DeviceProtocol::Put, DeviceProtocol::Staged])),
    rule("reduce_scatter", 512 * K, "direct", &[DeviceProtocol::Packet]),
    rule("reduce_scatter", 8 * M, "direct", &[DeviceProtocol::Staged]),
    rule("reduce_scatter", 32 * M, "direct", &[DeviceProtocol::Get, DeviceProtocol::Staged]),
    rule("reduce_scatter", ANY, "ring", &[DeviceProtocol::Put, DeviceProtocol::Staged]),
    on(2, rule("reduce_scatter", M, "direct", &[DeviceProtocol::Packet])),
    on(2, rule("reduce_scatter", 64 * M, "direct", &[DeviceProtocol::Get, DeviceProtocol::Staged])),
    on(2, rule("reduce_scatter", ANY, "ring", &[DeviceProtocol::Put, DeviceProtocol::Staged])),
    rule("all_to_all", 512 * K, "direct", &[DeviceProtocol::Packet]),
    rule("all_to_all", 16 * M, "direct", &[DeviceProtocol::Staged]),
    rule("all_to_all", ANY, "direct", &[DeviceProtocol::Put, DeviceProtocol::Staged]),
    on(4, rule("all_to_all", 512 * K, "direct", &[DeviceProtocol::Packet])),
    on(4, rule("all_to_all", 8 * M, "direct", &[DeviceProtocol::Staged])),
    on(4, rule("all_to_all", ANY, "direct", &[DeviceProtocol::Put, DeviceProtocol::Staged])),
    on(2, rule("all_to_all", M, "direct", &[DeviceProtocol::Packet])),
    on(2, rule("all_to_all", ANY, "direct", &[DeviceProtocol::Put, DeviceProtocol::Staged])),
    rule("broadcast", 64 * K, "binomial", &[DeviceProtocol::Packet]),
    rule("broadcast", 512 * K, "chain", &[DeviceProtocol::Packet]),
    rule("broadcast", ANY, "chain", &[DeviceProtocol::Staged]),
    on(2, rule("broadcast", 64 * K, "binomial", &[DeviceProtocol::Packet])),
    on(2, rule("broadcast", 512 * K, "chain", &[DeviceProtocol::Packet])),
    on(2, rule("broadcast", 16 * M, "chain", &[DeviceProtocol::Staged])),
    on(
        2,
        rule(
            "broadcast",
            COPY_ENGINE_BYTES_MIN,
            "chain",
            &[DeviceProtocol::Put, DeviceProtocol::Staged],
        ),
    ),
    on(
        2,
        rule(
            "broadcast",
            ANY,
            "chain",
            &[DeviceProtocol::Engine, DeviceProtocol::Put, DeviceProtocol::Staged],
        ),
    ),
    rule("reduce", 512 * K, "linear", &[DeviceProtocol::Packet]),
    rule("reduce", ANY, "chain", &[DeviceProtocol::Put, DeviceProtocol::Staged]),
    rule("gather", 512 * K, "linear", &[DeviceProtocol::Packet]),
    rule("gather", ANY, "linear", &[DeviceProtocol::Get, DeviceProtocol::Staged]),
    rule("scatter", 512 * K, "linear", &[DeviceProtocol::Packet]),
    rule("scatter", ANY, "linear", &[DeviceProtocol::Put, DeviceProtocol::Staged]),
    rule("scan", 512 * K, "recursive_doubling", &[DeviceProtocol::Packet]),
    rule("scan", ANY, "linear", &[DeviceProtocol::Put, DeviceProtocol::Staged]),
    rule("exscan", 512 * K, "recursive_doubling", &[DeviceProtocol::Packet]),
    rule("exscan", ANY, "linear", &[DeviceProtocol::Put, DeviceProtocol::Staged]),
    rule("barrier", ANY, "dissemination", &[DeviceProtocol::Staged]),
];

/// Returns the rules of a collective, in ascending order of size.
fn rules(collective: &str, ranks: u32) -> impl Iterator<Item = &'static DeviceRule> + use<'_> {
    let all = RULES.iter().filter(move |r| r.collective == collective && r.ranks >= ranks);
    let fewest = all.clone().map(|r| r.ranks).min();
    all.filter(move |r| Some(r.ranks) == fewest)
}

/// Returns the algorithms for a call of `bytes`, the best first.
pub fn algorithms(
    collective: &str,
    bytes: u64,
    ranks: u32,
) -> impl Iterator<Item = &'static str> + use<> {
    let of: Vec<&DeviceRule> = rules(collective, ranks).collect();
    let at = of.iter().position(|r| bytes <= r.up_to).unwrap_or(0);
    let (smaller, larger) = of.split_at(at);
    let order: Vec<&'static str> =
        larger.iter().chain(smaller.iter().rev()).map(|r| r.algorithm).collect();
    order.into_iter()
}

/// Returns the protocols for a call, the best first: any algorithm's.
pub fn protocols(collective: &str, bytes: u64, ranks: u32) -> Vec<DeviceProtocol> {
    let rule = rules(collective, ranks).find(|r| bytes <= r.up_to);
    let mut protocols =
        rule.map(|r| r.protocols.to_vec()).unwrap_or_else(|| match bytes <= 512 * K {
            true => vec![DeviceProtocol::Packet],
            false => vec![DeviceProtocol::Put],
        });
    if !protocols.contains(&DeviceProtocol::Staged) {
        protocols.push(DeviceProtocol::Staged);
    }
    protocols
}

/// The protocols of calls between hosts, the best first: the others reach as far as one.
pub const BETWEEN_HOSTS: [DeviceProtocol; 2] = [DeviceProtocol::Put, DeviceProtocol::Staged];

/// Returns the number of blocks for a call on `ranks`: enough to keep the links busy, few where meeting
/// costs more than moving. On two GPUs all of them are best: all_reduce.ring of 1 GiB took 3.27 ms with 32
/// blocks, 3.00 with 128. On more, 64 were best up to 32 MiB where all send to all: all_gather of 32 MiB on
/// four took 87.9 us with 32, 79.3 with 64, 96 with 128. A broadcast goes down a chain, whose ranks send to
/// one each.
pub fn blocks(
    collective: &str,
    protocol: DeviceProtocol,
    bytes: u64,
    ranks: u32,
    sms: u32,
    most: Option<u32>,
) -> u32 {
    let each = match protocol {
        // 128 packets of 8 bytes: a thread waits for one or two of each peer.
        DeviceProtocol::Packet => K,
        DeviceProtocol::Staged | DeviceProtocol::Put | DeviceProtocol::Get if ranks <= 2 => 64 * K,
        DeviceProtocol::Staged
        | DeviceProtocol::Put
        | DeviceProtocol::Get
        | DeviceProtocol::Multicast => 16 * K,
        // Its kernel only waits and signals.
        DeviceProtocol::Engine => ANY,
    };
    let useful = match protocol {
        DeviceProtocol::Packet => abi::BLOCKS,
        _ if ranks <= 2 || bytes > 32 * M || collective == "broadcast" => abi::BLOCKS,
        _ => 64,
    };
    let wanted = bytes.div_ceil(each).clamp(1, u64::from(useful)) as u32;
    wanted.min(sms.max(1)).min(most.unwrap_or(abi::BLOCKS).max(1))
}

/// Returns the number of blocks for a call between hosts, at most `most`: one for each of the lanes that carry it, so
/// that a lane sends one piece while its block makes the next; two for long vectors. Between two H200, over eight lanes
/// of TCP on loopback, a broadcast of 1 MiB took 63 us with 8 blocks, 75 with 16, 86 with 32; an all_reduce of 16 MiB
/// 1.08 ms, 1.22, 1.24; one of 256 MiB 19.1 ms, 17.0, 19.6 (docs/results/2026-11-26-nccl-short-h200x2/blocks.txt).
pub fn blocks_between_hosts(bytes: u64, lanes: u32, most: u32) -> u32 {
    let most = most.min(if bytes > 8 * M { 2 * lanes } else { lanes }).max(1);
    bytes.div_ceil(16 * K).clamp(1, most.into()) as u32
}

/// Returns the most blocks of a call beside which others compute: kernels that multiply matrices need a multiprocessor
/// for themselves, and wait for those that calls occupy. A step of DDP on two H100 (eight layers of 4096 x 4096 floats)
/// took 1.07 of NCCL's time with 128 blocks, 1.00 with 32, 1.01 with 16.
pub fn beside_others(sms: u32) -> u32 {
    (sms / 4).max(1)
}

/// Returns the number of groups of warps that run tasks side by side: as many as a phase has tasks where
/// chunks are small; one where they are large, so that all ranks send to one peer each at a time.
pub fn groups(protocol: DeviceProtocol, tasks: u32, pass_bytes: u64) -> u64 {
    match protocol {
        DeviceProtocol::Staged | DeviceProtocol::Put | DeviceProtocol::Get
            if pass_bytes > SIDE_BY_SIDE_BYTES =>
        {
            1
        }
        _ => tasks.clamp(1, abi::THREADS / 32).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_names_an_algorithm_of_the_library() {
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
        for collective in crate::operation::SERVED.map(|collective| collective.name) {
            assert!(algorithms(collective, u64::MAX, 8).next().is_some(), "{collective}");
        }
    }

    #[test]
    fn the_rule_of_the_size_comes_first() {
        let names: Vec<_> = algorithms("all_reduce", M, 4).collect();
        assert_eq!(names, ["two_shot", "two_shot", "ring", "one_shot"]);
        assert_eq!(
            protocols("all_reduce", 8 * M, 4),
            [DeviceProtocol::Get, DeviceProtocol::Staged]
        );
        assert_eq!(protocols("mine", 8, 2), [DeviceProtocol::Packet, DeviceProtocol::Staged]);
    }

    #[test]
    fn few_ranks_have_rules_of_their_own() {
        let first = |bytes, ranks| algorithms("all_reduce", bytes, ranks).next();
        assert_eq!(
            [2, 3, 4, 5, 8].map(|n| first(16 * M, n)),
            ["two_shot", "ring", "ring", "two_shot", "two_shot"].map(Some)
        );
        assert_eq!(protocols("broadcast", 2 * M, 2), [DeviceProtocol::Staged]);
        assert_eq!(
            protocols("broadcast", 512 * K, 3),
            [DeviceProtocol::Packet, DeviceProtocol::Staged]
        );
        let names: Vec<_> = algorithms("broadcast", 2 * M, 2).collect();
        assert_eq!(names, ["chain", "chain", "chain", "chain", "binomial"]);
        assert_eq!(protocols("gather", ANY, 2), protocols("gather", ANY, 3), "those of all others");
        assert_eq!(
            protocols("broadcast", COPY_ENGINE_BYTES_MIN, 2),
            [DeviceProtocol::Put, DeviceProtocol::Staged]
        );
        assert_eq!(
            protocols("broadcast", COPY_ENGINE_BYTES_MIN + 1, 2),
            [DeviceProtocol::Engine, DeviceProtocol::Put, DeviceProtocol::Staged]
        );
        assert_eq!(protocols("broadcast", ANY, 4), [DeviceProtocol::Staged], "not on more");
    }

    #[test]
    fn calls_between_hosts_have_few_blocks() {
        let blocks = |bytes| blocks_between_hosts(bytes, 8, 32);
        assert_eq!([0, K, 64 * K, M, 8 * M, 1 << 40].map(blocks), [1, 1, 4, 8, 8, 16]);
        assert_eq!([blocks_between_hosts(M, 8, 5), blocks_between_hosts(M, 0, 32)], [5, 1]);
    }

    #[test]
    fn blocks_stay_within_what_there_is() {
        assert_eq!(blocks("all_gather", DeviceProtocol::Packet, 0, 4, 132, None), 1);
        assert_eq!(blocks("all_gather", DeviceProtocol::Packet, 8 * K, 4, 132, None), 8);
        assert_eq!(blocks("all_gather", DeviceProtocol::Put, M, 2, 132, None), 16);
        assert_eq!(blocks("all_gather", DeviceProtocol::Put, M, 4, 132, None), 64);
        assert_eq!(blocks("broadcast", DeviceProtocol::Staged, 2 * M, 4, 132, None), 128);
        assert_eq!(blocks("all_gather", DeviceProtocol::Get, 1 << 30, 2, 132, None), 128);
        assert_eq!(blocks("all_gather", DeviceProtocol::Put, 32 << 20, 4, 132, None), 64);
        assert_eq!(blocks("all_gather", DeviceProtocol::Put, 1 << 30, 4, 132, None), 128);
        assert_eq!(blocks("all_gather", DeviceProtocol::Put, 1 << 30, 4, 20, None), 20);
        assert_eq!(blocks("all_gather", DeviceProtocol::Put, 1 << 30, 4, 132, Some(8)), 8);
        assert_eq!(blocks("all_gather", DeviceProtocol::Engine, 1 << 40, 2, 132, None), 1);
    }
}
