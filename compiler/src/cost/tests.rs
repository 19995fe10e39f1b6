//! The model against closed forms, and what it says of heterogeneous links.

use std::sync::Arc;

use roundelay_dsl::span::SourceMap;

use super::{CostProfile, LinkCost, LinkRates, PathCost, Topology, split};
use crate::plan::PathShares;
use crate::{CompileOptions, NoLibrary, Program, ProgramInstance, Shape, resolve};

const RING: &str = "algorithm ring implements all_reduce on n ranks {
    chunks n
    for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }
    for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] } }
}";
const CHAIN: &str = "algorithm chain implements broadcast on n ranks {
    for v in 0..n-1 { (root + v) % n -> (root + v + 1) % n : copy data }
    schedule { pipeline 8 }
}";
const DIRECT: &str = "algorithm direct implements all_to_all on n ranks {
    each r { for p in 0..n { r -> p : copy input[p] -> output[r] } }
}";
const PAIRWISE: &str = "algorithm pairwise implements all_to_all on n ranks {
    for k in 0..n { each r { r -> (r + k) % n : copy input[(r + k) % n] -> output[r] } }
}";
const HALVES: &str = "algorithm halves implements broadcast on n ranks {
    split data over t in 0..2 { each r where r != root { root -> r : copy data } }
}";
const TWO_LEVEL: &str = "algorithm two_level implements all_reduce on (node, gpu) ranks {
    chunks gpu.size * node.size
    for s in 0..gpu.size-1 { each (m, g) {
        (m, g) -> (m, (g + 1) % gpu.size) : reduce data[(g - s) % gpu.size * node.size ..+ node.size]
    } }
    for s in 0..node.size-1 { each (m, g) {
        (m, g) -> ((m + 1) % node.size, g) : reduce data[(g + 1) % gpu.size * node.size + (m - s) % node.size]
    } }
    for s in 0..node.size-1 { each (m, g) {
        (m, g) -> ((m + 1) % node.size, g) : copy data[(g + 1) % gpu.size * node.size + (m + 1 - s) % node.size]
    } }
    for s in 0..gpu.size-1 { each (m, g) {
        (m, g) -> (m, (g + 1) % gpu.size) : copy data[(g + 1 - s) % gpu.size * node.size ..+ node.size]
    } }
}";

fn program(text: &str) -> Arc<Program> {
    let mut sources = SourceMap::new();
    let id = sources.add("test", text);
    match resolve(&mut sources, id, &NoLibrary) {
        Ok(programs) => programs.into_iter().next().expect("a program"),
        Err(found) => panic!("{found:?}"),
    }
}

fn profile(text: &str, shape: &str, topology: &Topology) -> CostProfile {
    let shape: Shape = shape.parse().expect("a shape");
    let instance = ProgramInstance::new(&program(text), &shape, &CompileOptions::default())
        .expect("an instance");
    CostProfile::new(&instance, topology, 4).expect("a profile")
}

const RATES: LinkRates = LinkRates {
    local: LinkCost { latency_us: 2.0, message_us: 0.5, gbs: 10.0 },
    remote: LinkCost::NETWORK,
    uplink_gbs: 1.0,
    reduce_gbs: f64::INFINITY,
    cores: u32::MAX,
    turn_us: 0.3,
    piece_bytes: 16 << 10,
};

/// Returns rates with a gigabit network between hosts.
fn thin() -> LinkRates {
    let remote = LinkCost { latency_us: 30.0, message_us: 3.0, gbs: 0.125 };
    LinkRates { remote, uplink_gbs: 0.125, ..LinkRates::default() }
}

/// Returns one host with links of 2 us and 10 GB/s, and free sums.
fn simple(ranks: u32) -> Topology {
    Topology::one_host(ranks).with(RATES)
}

const SLOT: u64 = 1 << 40;

#[track_caller]
fn near(a: f64, b: f64, tolerance: f64) {
    assert!((a / b - 1.0).abs() <= tolerance, "{a} is not within {tolerance} of {b}");
}

#[test]
fn a_ring_takes_alpha_and_beta_in_each_round() {
    for n in [2u32, 4, 7, 16, 32, 100, 1000] {
        let ring = profile(RING, &n.to_string(), &simple(n));
        for bytes in [0u64, 1 << 10, 1 << 20, 1 << 30] {
            let round = 2.0 + bytes as f64 / f64::from(n) * 1e-4;
            near(ring.time_us(bytes, SLOT), f64::from(2 * (n - 1)) * round, 1e-9);
        }
    }
}

#[test]
fn sums_cost_what_they_add() {
    let topology = simple(4).with(LinkRates { reduce_gbs: 5.0, ..RATES });
    let ring = profile(RING, "4", &topology);
    let bytes = f64::from(1 << 20);
    let expected = 6.0 * (2.0 + bytes / 4.0 * 1e-4) + 3.0 * bytes / 4.0 * 2e-4;
    near(ring.time_us(1 << 20, SLOT), expected, 1e-9);
}

#[test]
fn a_chain_is_pipelined() {
    // (n - 2 + N)(alpha + m / N beta)
    for (bytes, passes) in [(0u64, 1.0), (1 << 16, 4.0), (8 << 20, 8.0)] {
        let chain = profile(CHAIN, "8", &simple(8));
        assert_eq!(chain.passes(bytes, SLOT) as f64, passes);
        let expected = (6.0 + passes) * (2.0 + bytes as f64 / passes * 1e-4);
        near(chain.time_us(bytes, SLOT), expected, 1e-9);
    }
    // Short slots make as many passes.
    let chain = profile(CHAIN, "4", &simple(4));
    let expected = 18.0 * (2.0 + f64::from(1 << 16) * 1e-4);
    near(chain.time_us(1 << 20, 1 << 16), expected, 1e-9);
}

#[test]
fn messages_of_one_round_cost_their_overhead_and_independent_rounds_no_latency() {
    let bytes = 1u64 << 20;
    let moved = bytes as f64 * 3.0 / 4.0 * 1e-4;
    let copied = bytes as f64 / 4.0 * 1e-4;
    let direct = profile(DIRECT, "4", &simple(4)).time_us(bytes, SLOT);
    near(direct, 2.0 + 2.0 * 0.5 + moved + copied, 1e-9);
    let pairwise = profile(PAIRWISE, "4", &simple(4)).time_us(bytes, SLOT);
    near(pairwise, 0.0 + 3.0 * 0.5 + moved + copied, 0.05);
}

#[test]
fn lanes_share_ports() {
    let bytes = 1u64 << 24;
    let halves = profile(HALVES, "4", &simple(4)).time_us(bytes, SLOT);
    near(halves, 3.0 * bytes as f64 * 1e-4, 0.01);
}

#[test]
fn ranks_beyond_the_cores_take_turns() {
    let crowded = simple(8).with(LinkRates { cores: 2, ..RATES });
    let (bytes, ring) = (1u64 << 24, |t: &Topology| profile(RING, "8", t));
    near(ring(&crowded).time_us(bytes, SLOT), 4.0 * ring(&simple(8)).time_us(bytes, SLOT), 0.01);
    // In each of 14 rounds 8 messages, whose latency is work of the cores, and an eighth of a turn; then a turn,
    // and half a latency.
    let work = 8.0 * (2.0 + 0.3 / 8.0) / 2.0;
    near(ring(&crowded).time_us(0, SLOT), 14.0 * (work + 0.3 + 1.0), 0.001);
    near(ring(&simple(8)).time_us(0, SLOT), 14.0 * 2.0, 0.001);
    // Passes follow each other as fast as the cores can do all that there is to do in one, and a fifth of what is left.
    let chain = profile(CHAIN, "4", &simple(4).with(LinkRates { cores: 2, ..RATES }));
    let moved = f64::from(1 << 16) * 1e-4;
    let pass = 3.0 * (2.0 + 0.3 / 8.0 + moved) / 2.0;
    let path = 3.0 * (2.0 + 0.3 + moved);
    near(chain.time_us(1 << 20, 1 << 16), path + 15.0 * (0.8 * pass + 0.2 * path), 1e-9);
}

/// Three send all they have to the first.
const LINEAR: &str = "\
algorithm linear implements reduce on n ranks {
    each r where r != root { r -> root : reduce data }
}";

#[test]
fn on_crowded_cores_a_receiver_does_half_of_each_message() {
    let bytes = 1u64 << 20;
    let at = |cores| profile(LINEAR, "4", &simple(4).with(LinkRates { cores, ..RATES }));
    let moved = bytes as f64 * 1e-4;
    near(at(4).time_us(bytes, bytes), 2.0 + 2.0 * 0.5 + 3.0 * moved, 1e-9);
    near(at(2).time_us(bytes, bytes), 2.0 + 0.3 + 2.0 * 0.5 + 2.0 * moved, 1e-9);
}

#[test]
fn two_levels_beat_a_flat_ring_over_a_thin_link() {
    let topology = Topology::even(2, 2).with(thin());
    let bytes = 16u64 << 20;
    let flat = profile(RING, "4", &topology).time_us(bytes, SLOT);
    let two = profile(TWO_LEVEL, "2x2", &topology).time_us(bytes, SLOT);
    // The ring sends 2(n-1)/n of the data over the link, two levels 2(m-1)/m for m hosts.
    near(flat, 6.0 / 4.0 * bytes as f64 / 125.0, 0.05);
    near(two, bytes as f64 / 125.0, 0.05);
    near(flat / two, 1.5, 0.05);
}

#[test]
fn four_hosts_at_a_gigabit_meet_the_floors() {
    let topology = Topology::even(4, 1).with(thin());
    near(profile(RING, "4", &topology).time_us(16 << 20, SLOT), 201_000.0, 0.03);
}

#[test]
fn a_sample_of_ranks_says_what_all_say() {
    // 33 ranks are sampled, 32 are not; the model is smooth there.
    let time = |n: u32| profile(RING, &n.to_string(), &simple(n)).time_us(1 << 20, SLOT);
    near(time(33) / time(32), 64.0 / 62.0, 0.02);
    let big = Topology::even(64, 8);
    let ring = profile(RING, "512", &big).time_us(1 << 30, SLOT);
    near(ring, 1022.0 * (25.0 + f64::from(1 << 21) / 1180.0), 0.1);
}

#[test]
fn hosts_are_counted_in_order() {
    let t = Topology::new(&[7, 7, 3, 3]);
    assert_eq!((t.hosts(), t.host(2), t.ranks_of(1)), (2, 1, 2));
    assert_eq!(t.grid(), Some(Shape { axes: vec![2, 2] }));
    assert_eq!(Topology::new(&[1, 2, 1, 2]).grid(), None, "ranks of a host are not in a row");
    assert_eq!(Topology::new(&[1, 1, 2]).grid(), None, "hosts differ");
    assert_eq!(Topology::one_host(4).grid(), None);
    assert_eq!(Topology::of_shape(&Shape { axes: vec![2, 3, 4] }).hosts(), 6);
}

#[test]
fn parts_know_what_they_take() {
    let text = "algorithm rail implements all_reduce on n ranks {
        split data over p in paths by bandwidth(p) {
            for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data } }
        }
    }";
    let program = program(text);
    let options = CompileOptions { paths: 3, ..CompileOptions::default() };
    let instance = ProgramInstance::new(&program, &Shape::flat(4), &options).expect("an instance");
    let loads = split(&instance).expect("it is walked").map(|split| split.loads).expect("a split");
    assert_eq!(loads.len(), 3);
    for load in &loads {
        assert_eq!((load.rounds, load.vectors()), (3, 3.0));
    }
    let path = |gbs| PathCost { name: String::new(), link: LinkCost { gbs, ..RATES.local } };
    let topology = Topology::even(4, 1).with(RATES).over(vec![path(4.0), path(2.0), path(2.0)]);
    let profile = CostProfile::new(&instance, &topology, 4).expect("a profile");
    let shares = profile.shares(1 << 30).expect("shares");
    for (share, wanted) in shares.list().iter().zip([0.5, 0.25, 0.25]) {
        near(f64::from(*share) / 65536.0, wanted, 0.01);
    }
    // All three end together, in the time of one that has all their bandwidth.
    let alone = PathShares::single(0, 3);
    let time = |shares| profile.time_with_us(1 << 30, SLOT, shares);
    near(time(&alone) / time(&shares), 2.0, 0.02);
    near(profile.time_us(1 << 30, SLOT), time(&shares), 1e-9);
    assert_eq!(profile.shares(1 << 4).expect("shares").only(), Some(0));
}

/// Rounds that wait for no message take as much each, however many there are.
#[test]
fn the_work_grows_with_the_rounds() {
    let looked = |rounds: u32, apart: u32| {
        let text = format!(
            "algorithm a implements all_reduce on n ranks {{ chunks {}
                for t in 0..{rounds} {{ each r {{ r -> (r + 1) % n : copy data[{apart} * t] }} }} }}",
            apart * rounds
        );
        super::fresh::LOOKED.set(0);
        let found = profile(&text, "4", &Topology::one_host(4));
        assert_eq!(found.rounds(), rounds as usize);
        super::fresh::LOOKED.get()
    };
    for apart in [1, 2] {
        let (few, many) = (looked(256, apart), looked(1024, apart));
        assert!(few > 256 && many < few * 9 / 2, "{apart} apart: {many} looks, and {few} before");
    }
}
