//! Tests algorithms that Rust code builds at run time.

use roundelay::build::{data, input, output};
use roundelay::{Algorithm, Communicator, Error, RedOp};

/// Runs ranks as threads.
fn on_threads(ranks: u32, body: impl Fn(&mut Communicator) + Sync) {
    let comms = Communicator::local(ranks).expect("threads");
    std::thread::scope(|scope| {
        for mut comm in comms {
            let body = &body;
            scope.spawn(move || body(&mut comm));
        }
    });
}

/// Returns a ring in the order of a list.
fn ring(order: &[u32]) -> Algorithm {
    let n = order.len();
    let built = Algorithm::build("ordered", "all_reduce", n as u32, |b| {
        b.chunks(n as u32);
        for s in 0..2 * (n - 1) {
            b.each(|round| {
                for p in 0..n {
                    let link = round.to(order[p], order[(p + 1) % n]);
                    let chunk = data().at(((p + 2 * n - s) % n) as u32);
                    match s < n - 1 {
                        true => link.reduce(chunk),
                        false => link.copy(chunk),
                    };
                }
            });
        }
    });
    built.expect("a sound algorithm")
}

#[test]
fn what_was_built_is_run() {
    let algorithm = ring(&[0, 2, 3, 1]);
    on_threads(4, |comm| {
        let mut data: Vec<u32> = (0..1001).map(|i| i + comm.rank()).collect();
        comm.run_algorithm(&algorithm, &mut data, RedOp::Sum).expect("a call");
        assert!(data.iter().zip(0..).all(|(&x, i)| x == 4 * i + 6));
    });
}

#[test]
fn buffers_scratch_and_parts() {
    let spread = Algorithm::build("spread", "all_to_all", 2, |b| {
        let t = b.scratch("t", 2);
        b.each(|round| {
            for r in 0..2 {
                round.to(r, r).copy(input()).into(t.range(0..2));
            }
        });
        b.each(|round| {
            for (r, p) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                round.to(r, p).copy(t.cyclic(p, 1)).into(output().at(r));
            }
        });
    });
    let spread = spread.expect("a sound algorithm");
    let parts = Algorithm::build("parts", "all_reduce", 2, |b| {
        b.chunks(2);
        b.run("reduce_scatter", "ring");
        b.run("all_gather", "ring");
    });
    let parts = parts.expect("a sound algorithm");
    on_threads(2, |comm| {
        let mine = [10 * comm.rank(), 10 * comm.rank() + 1];
        let mut theirs = [9; 2];
        comm.run_algorithm_into(&spread, &mut theirs, &mine, RedOp::Sum).expect("a call");
        assert_eq!(theirs, [comm.rank(), 10 + comm.rank()]);
        let mut sum = [1u8; 3];
        comm.run_algorithm(&parts, &mut sum, RedOp::Sum).expect("a call");
        assert_eq!(sum, [2; 3]);
    });
}

#[test]
fn a_refuted_step_is_named_by_its_line_of_rust() {
    let line = line!() + 3;
    let wrong = Algorithm::build("wrong", "broadcast", 3, |b| {
        b.each(|round| {
            round.to(1, 2).copy(data());
        });
    });
    let wrong = wrong.expect("names are right");
    on_threads(3, |comm| {
        let error = comm.run_algorithm(&wrong, &mut [1u8], RedOp::Sum).expect_err("refuted");
        assert_eq!(error.code().0, "RL0404");
        let text = error.to_string();
        assert!(text.contains("1 -> 2 : copy data"), "{text}");
        assert!(text.contains(&format!("build.rs:{line}:19")), "{text}");
    });
}

#[test]
fn other_rank_counts_and_unknown_names_are_refused() {
    let two = ring(&[1, 0]);
    on_threads(3, |comm| {
        let error = comm.run_algorithm(&two, &mut [1u8; 6], RedOp::Sum).expect_err("3 ranks");
        assert_eq!(error.code().0, "RL0601");
    });
    let refused = |built: Result<Algorithm, Error>| built.expect_err("refused").code().0;
    assert_eq!(refused(Algorithm::build("a", "all_reduced", 2, |_| {})), "RL0202");
    let unknown = Algorithm::build("a", "all_reduce", 2, |b| b.run("all_reduce", "rign"));
    assert_eq!(refused(unknown), "RL0203");
}
