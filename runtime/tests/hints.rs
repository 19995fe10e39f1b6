//! Tests hints on a communicator, and sums whose bits depend on nothing but the contributions.

use crate::support::{layout, threads};
use roundelay::choose::DecidedBy;
use roundelay::launch::JobSetup;
use roundelay::{CallOptions, Communicator, DType, Hints, RedOp};

const SLOT: u64 = 64 << 10;

fn hints(text: &str) -> Hints {
    text.parse().expect(text)
}

/// Returns numbers of all magnitudes, so that every order of additions rounds differently: element `i` of a
/// rank, whatever the size of the vector.
fn number(rank: usize, i: usize) -> f32 {
    let mut x = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i as u64 + 7);
    for _ in 0..3 {
        x ^= x >> 31;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    let unit = (x >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
    unit * 2f32.powi((x % 24) as i32)
}

/// Returns the sum in ascending order of ranks.
fn in_order(ranks: usize, i: usize) -> f32 {
    (1..ranks).fold(number(0, i), |sum, rank| sum + number(rank, i))
}

/// Numbers of elements around those at which messages change their way, and choices theirs.
const COUNTS: [usize; 6] = [1, 5, 300, 4096, 20_001, 300_000];

fn summed(comm: &mut Communicator, rank: usize, count: usize) -> Vec<f32> {
    let mut data = comm.alloc::<f32>(count).expect("memory");
    for (i, x) in data.iter_mut().enumerate() {
        *x = number(rank, i);
    }
    comm.all_reduce(&mut data, RedOp::Sum).expect("a sum");
    data.to_vec()
}

#[test]
fn deterministic_sums_have_the_same_bits_at_every_size() {
    for ranks in [3usize, 4] {
        threads(layout(ranks as u32, SLOT), |comm, rank| {
            comm.set_hints(hints("deterministic=true")).expect("hints");
            for count in COUNTS {
                for (i, x) in summed(comm, rank, count).iter().enumerate() {
                    let wanted = in_order(ranks, i);
                    assert_eq!(x.to_bits(), wanted.to_bits(), "{count}, element {i}: {x} {wanted}");
                }
            }
            // The other collectives that add.
            let count = 1000;
            let mut data: Vec<f32> = (0..count).map(|i| number(rank, i)).collect();
            comm.reduce(&mut data, 1, RedOp::Sum).expect("a sum");
            let input: Vec<f32> = (0..count * ranks).map(|i| number(rank, i)).collect();
            let mut block = vec![0f32; count];
            comm.reduce_scatter(&mut block, &input, RedOp::Sum).expect("a sum");
            for i in 0..count {
                if rank == 1 {
                    assert_eq!(data[i].to_bits(), in_order(ranks, i).to_bits());
                }
                let wanted = in_order(ranks, rank * count + i);
                assert_eq!(block[i].to_bits(), wanted.to_bits());
            }
        });
    }
}

#[test]
fn without_the_hint_bits_depend_on_the_algorithm() {
    threads(layout(4, SLOT), |comm, rank| {
        comm.set_hints(hints("algorithm=ring")).expect("hints");
        let sums = summed(comm, rank, 4096);
        let differ = sums.iter().enumerate().filter(|(i, x)| **x != in_order(4, *i)).count();
        assert!(differ > 100, "only {differ}: the test above would not notice a wrong order");
    });
}

#[test]
fn hints_of_a_communicator_decide_its_calls() {
    threads(layout(3, SLOT), |comm, rank| {
        let none = Hints::default();
        let chosen = |comm: &mut Communicator, call: &Hints| {
            let mut comm = comm.with(CallOptions::new().hints(call.clone()));
            let choice = comm.explain("all_reduce", 1 << 20, DType::F32, RedOp::Sum);
            choice.map(|c| (c.entry.name, c.source))
        };
        let before = chosen(comm, &none).expect("a choice");
        assert_ne!(before.0, "circulant");
        comm.set_hints(hints("algorithm=circulant,timeout=20s")).expect("hints");
        assert_eq!(chosen(comm, &none).expect("a choice").0, "circulant");
        let call = chosen(comm, &hints("algorithm=ring")).expect("a choice");
        assert_eq!(call.0, "ring");
        assert!(matches!(call.1, DecidedBy::Hint(..)));
        let mut data = vec![rank as f32; 10];
        comm.all_reduce(&mut data, RedOp::Sum).expect("a sum");
        assert_eq!(data, vec![3.0; 10]);
        // What cannot be run is refused before a byte moves, and the communicator stays usable.
        comm.set_hints(hints("algorithm=halving_doubling")).expect("hints");
        let error = comm.all_reduce(&mut data, RedOp::Sum).expect_err("three ranks");
        assert!(error.to_string().contains("requires pow2(n), which does not hold with n = 3"));
        comm.set_hints(none.clone()).expect("hints");
        assert_eq!(chosen(comm, &none).expect("a choice"), before);
        comm.all_reduce(&mut data, RedOp::Sum).expect("a sum");
        assert_eq!(data, vec![9.0; 10]);
    });
}

#[test]
fn different_hints_on_ranks_are_an_error_and_no_hang() {
    threads(layout(3, SLOT), |comm, rank| {
        let mine = if rank == 1 { "algorithm=ring" } else { "algorithm=circulant" };
        comm.set_hints(hints(&format!("{mine},timeout=10s"))).expect("hints");
        let mut data = vec![1f32; 1000];
        let error = comm.all_reduce(&mut data, RedOp::Sum).expect_err("different plans");
        assert_eq!(error.code().0, "RL0702", "{error}");
    });
}

#[test]
fn hints_that_ranks_join_with_are_those_of_their_calls() {
    let setup = |_| {
        let setup = JobSetup::new().hints(&hints("algorithm=all_reduce.two_shot,timeout=20s"));
        setup.hints(&hints("algorithm=all_reduce.ring"))
    };
    for mut comm in Communicator::local_over(2, setup).expect("two ranks") {
        let choice = comm.explain("all_reduce", 64, DType::F32, RedOp::Sum).expect("a choice");
        assert_eq!(choice.entry.name, "ring");
        assert_eq!(choice.source.to_string(), "hint on the communicator (algorithm)");
        comm.set_hints(Hints::default()).expect("no hints");
        let free = comm.explain("all_reduce", 64, DType::F32, RedOp::Sum).expect("a choice");
        assert!(!matches!(free.source, DecidedBy::Hint(..)), "{}", free.source);
    }
}
