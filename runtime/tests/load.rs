//! Tests algorithms that users bring: run, installed by agreement, refused.

use crate::support::{layout, threads};
use roundelay::{Algorithm, Communicator, Error, RedOp, Reduction};
use roundelay_compiler::{BufferPlacement, Shape};
use roundelay_dsl::diag::codes;

const RING: &str = "algorithm my_ring implements all_reduce on n ranks {
    chunks n
    for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }
    for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] } }
}
algorithm my_star implements all_reduce on n ranks {
    each r where r != 0 { r -> 0 : reduce data }
    each r where r != 0 { 0 -> r : copy data }
}
";

/// Proved wrong: the last step is missing.
const WRONG: &str = "algorithm short implements all_reduce on n ranks {
    chunks n
    for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }
}
";

const EVEN: &str = "algorithm pairs implements all_reduce on n ranks {
    requires n % 2 == 0
    each r where r != 0 { r -> 0 : reduce data }
    each r where r != 0 { 0 -> r : copy data }
}
";

/// An algorithm that can be run out of place only.
const APART: &str = "algorithm apart implements all_reduce on n ranks {
    each r where r == 0 { r -> r : copy input -> output }
    each r where r != 0 { r -> 0 : reduce input -> output }
    each r where r != 0 { 0 -> r : copy output }
}
";

const GRID: &str = "algorithm on_grid implements all_reduce on (node, gpu) ranks {
    chunks gpu.size
    use reduce_scatter.ring over gpu
    use all_reduce.ring over node on data[gpu]
    use all_gather.ring over gpu
}
";

fn sum(comm: &mut Communicator) {
    let mut data = vec![comm.rank() + 1; 50];
    comm.all_reduce(&mut data, RedOp::Sum).expect("a call");
    assert_eq!(data, vec![comm.size() * (comm.size() + 1) / 2; 50]);
}

fn load(comm: &Communicator, text: &str) -> Algorithm {
    comm.load_text("mine.algo", text).expect("a right text")
}

#[test]
fn an_algorithm_is_run_in_both_places() {
    for n in [1, 2, 3, 5] {
        threads(layout(n, 1024), |comm, r| {
            let ring = load(comm, RING);
            assert_eq!(ring.to_string(), "all_reduce.my_ring");
            assert_eq!(ring.names().collect::<Vec<_>>(), ["my_ring", "my_star"]);
            let star = ring.named("my_star").expect("it is there");
            for algorithm in [&ring, &star, &ring] {
                let mut data = vec![r as i64; 101];
                comm.run_algorithm(algorithm, &mut data, RedOp::Max).expect("in place");
                assert_eq!(data, vec![i64::from(n) - 1; 101]);
                let mut output = vec![-1.0; 101];
                let input = vec![1.0f32; 101];
                let op = Reduction::premul_sum(0.5);
                comm.run_algorithm_into(algorithm, &mut output, &input, op).expect("out of place");
                assert_eq!(output, vec![n as f32 / 2.0; 101]);
            }
            // Compiled once.
            let plan =
                |comm: &Communicator| comm.plan(&star, BufferPlacement::InPlace).expect("a plan");
            assert!(std::sync::Arc::ptr_eq(&plan(comm), &plan(comm)));
        });
    }
}

#[test]
fn a_root_and_a_grid_are_asked_for() {
    threads(layout(4, 1024), |comm, r| {
        let text = roundelay_algorithms::find("gather", "binomial").expect("in the library").text;
        let gather = load(comm, text).rooted(2);
        let mut output = vec![0u32; 12];
        comm.run_algorithm_into(&gather, &mut output, &[r as u32; 3], RedOp::Sum).expect("a call");
        assert!(r != 2 || output == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);

        let grid = load(comm, GRID);
        let mut data = vec![1u32; 9];
        let error = comm.run_algorithm(&grid, &mut data, RedOp::Sum).expect_err("no grid");
        assert_eq!(error.code(), codes::SHAPE, "{error}");
        let off = grid.clone().on(Shape { axes: vec![2, 3] });
        let error = comm.run_algorithm(&off, &mut data, RedOp::Sum).expect_err("six ranks");
        assert!(matches!(&error, Error::Usage(text) if text.contains("2x3")), "{error}");
        let grid = grid.on(Shape { axes: vec![2, 2] });
        comm.run_algorithm(&grid, &mut data, RedOp::Sum).expect("a call");
        assert_eq!(data, vec![4; 9]);
        comm.install(&grid).expect("agreement");
        sum(comm);
    });
}

#[test]
fn an_algorithm_out_of_place_serves_calls_in_place() {
    threads(layout(3, 1024), |comm, _| {
        let apart = load(comm, APART);
        let error = comm.run_algorithm(&apart, &mut [1u8], RedOp::Sum).expect_err("not in place");
        assert!(matches!(&error, Error::Usage(text) if text.contains("in place")), "{error}");
        let mut output = [0u8; 4];
        comm.run_algorithm_into(&apart, &mut output, &[2; 4], RedOp::Sum).expect("a call");
        assert_eq!(output, [6; 4]);
        comm.install(&apart).expect("agreement");
        sum(comm);
        comm.all_reduce_into(&mut output, &[3; 4], RedOp::Sum).expect("a call");
        assert_eq!(output, [9; 4]);
    });
}

#[test]
fn what_is_wrong_is_shown_and_nothing_else_happens() {
    threads(layout(3, 1024), |comm, _| {
        let unknown = comm.load("/no/such/file.algo").expect_err("no file");
        assert_eq!(unknown.code(), codes::FILE, "{unknown}");
        let text = comm.load_text("bad.algo", "algorithm x {").expect_err("no syntax");
        assert!(text.to_string().contains("bad.algo:1"), "{text}");
        assert_eq!(comm.load_text("none.algo", "").expect_err("empty").code(), codes::EMPTY);
        assert_eq!(
            load(comm, RING).named("no").expect_err("none").code(),
            codes::UNKNOWN_ALGORITHM
        );

        let wrong = load(comm, WRONG);
        let mut data = [1.0f32; 7];
        let error = comm.run_algorithm(&wrong, &mut data, RedOp::Sum).expect_err("refuted");
        assert!(error.to_string().contains("mine.algo:3"), "{error}");
        assert_eq!(error, comm.install(&wrong).expect_err("refuted"));
        let odd = comm.install(&load(comm, EVEN)).expect_err("three ranks");
        assert_eq!(odd.code(), codes::REQUIRES, "{odd}");
        let halves = comm.run_algorithm(&load(comm, RING), &mut [1.0f32; 0], RedOp::Sum);
        halves.expect("no elements are fine");
        sum(comm);
    });
}

#[test]
fn a_file_is_read_with_what_it_imports() {
    let folder = std::env::temp_dir().join(format!("roundelay-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("ring.algo"), RING).expect("a file");
    std::fs::write(
        folder.join("user.algo"),
        "import \"ring.algo\"\nalgorithm user implements all_reduce on n ranks { use my_ring }\n",
    )
    .expect("a file");
    threads(layout(3, 1024), |comm, _| {
        let user = comm.load(folder.join("user.algo")).expect("a right file");
        assert_eq!(user.name(), "user");
        let mut data = [1u8; 5];
        comm.run_algorithm(&user, &mut data, RedOp::Sum).expect("a call");
        assert_eq!(data, [3; 5]);
    });
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn an_installed_algorithm_serves_its_collective() {
    threads(layout(3, 1024), |comm, _| {
        sum(comm);
        let ring = load(comm, RING);
        for algorithm in [ring.clone(), ring.named("my_star").expect("it is there")] {
            comm.install(&algorithm).expect("agreement");
            sum(comm);
        }
        // In the background too, in issue order.
        let later = ring.clone();
        let swap = comm.start(move |comm| comm.install(&later));
        let data = comm.all_reduce_async(vec![1u8; 9], RedOp::Sum);
        swap.wait().expect("agreement");
        assert_eq!(data.wait().expect("a sum"), [3; 9]);
        assert_eq!(comm.uninstall("all_reduce"), Ok(true));
        assert_eq!(comm.uninstall("all_reduce"), Ok(false));
        sum(comm);
    });
}

/// The installed algorithm is the one that is run: it is the same call as to run it by name, and no other.
#[test]
fn an_installed_algorithm_is_what_is_run() {
    threads(layout(2, 1024), |comm, r| {
        let star = load(comm, RING).named("my_star").expect("it is there");
        comm.install(&star).expect("agreement");
        let sum = |comm: &mut Communicator, by_name: &Algorithm| {
            let mut data = [1.0f32; 10];
            let outcome = match r {
                0 => comm.all_reduce(&mut data, RedOp::Sum),
                _ => comm.run_algorithm(by_name, &mut data, RedOp::Sum).map(drop),
            };
            outcome.map(|()| data)
        };
        assert_eq!(sum(comm, &star).expect("the same call"), [2.0; 10]);
        let ring = load(comm, RING);
        let error = sum(comm, &ring).expect_err("another call");
        assert!(error.to_string().contains("do not make the same call"), "{error}");
    });
}

#[test]
fn arguments_are_what_ranks_agree_on() {
    threads(layout(4, 1024), |comm, r| {
        let tree = comm.algorithm("broadcast", "k_nomial(k=4)").expect("in the library");
        assert_eq!(tree.to_string(), "broadcast.k_nomial(k = 4)");
        let why = comm.algorithm("broadcast", "k_nomial(k=9)").expect_err("out of its bounds");
        assert!(why.to_string().contains("k goes from 2 to 8"), "{why}");
        comm.install(&tree).expect("agreement");
        let mut data = [if r == 1 { 7u32 } else { 0 }; 5];
        comm.broadcast(&mut data, 1).expect("a call");
        assert_eq!(data, [7; 5]);
        // The same algorithm with another argument is another one.
        let mine = if r == 2 { tree.named("k_nomial(k = 3)").expect("its own") } else { tree };
        let error = comm.install(&mine).expect_err("a difference");
        assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}");
        assert!(error.to_string().contains(&format!("installs {mine}")), "{error}");
        let text = comm.load_text("t.algo", "algorithm t(k = 2) implements barrier on n ranks { }");
        let unknown = text.expect("a text").named("t(j = 2)").expect_err("no such parameter");
        assert_eq!(unknown.code(), codes::ARGUMENT, "{unknown}");
    });
}

#[test]
fn ranks_that_disagree_change_nothing() {
    threads(layout(3, 1024), |comm, r| {
        let ring = load(comm, RING);
        let star = ring.named("my_star").expect("it is there");
        comm.install(&ring).expect("agreement");
        let mine = if r == 1 { &star } else { &ring };
        let error = comm.install(mine).expect_err("a difference");
        assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}");
        assert!(error.to_string().contains(&format!("installs {mine}")), "{error}");
        sum(comm);
        // One rank has a wrong file: its error has the cause, those of the others that it differs.
        let mine = if r == 2 { load(comm, WRONG) } else { star };
        let error = comm.install(&mine).expect_err("a difference");
        assert_eq!(error.code() == codes::PLAN_MISMATCH, r != 2, "{error}");
        sum(comm);
        // Only some ask for nothing.
        let error = comm.uninstall(if r == 0 { "reduce" } else { "all_reduce" });
        assert!(matches!(error, Err(Error::PlanMismatch { .. })));
        assert_eq!(comm.uninstall("all_reduce"), Ok(true));
        sum(comm);
    });
}

#[test]
fn every_collective_and_barrier_can_be_served() {
    threads(layout(3, 1024), |comm, r| {
        let r = r as u32;
        for e in roundelay_algorithms::CATALOGUE {
            let algorithm = load(comm, e.text).named(e.name).expect("it is there");
            match comm.install(&algorithm) {
                Ok(()) => {}
                Err(Error::Usage(text)) if e.collective == "sendrecv" => {
                    assert!(text.contains("cannot be installed"), "{text}");
                }
                Err(error) => {
                    let shape = [codes::REQUIRES, codes::SHAPE].contains(&error.code());
                    assert!(shape, "{}: {error}", e.path);
                    continue;
                }
            }
            comm.barrier().expect("barrier");
            // Sums of floats, for some algorithms round on the wire.
            let mut data = vec![1.0f32; 6];
            comm.all_reduce(&mut data, RedOp::Sum).expect("all_reduce");
            assert_eq!(data, [3.0; 6]);
            comm.broadcast(&mut data, 1).expect("broadcast");
            comm.reduce(&mut data, 2, RedOp::Sum).expect("reduce");
            assert!(r != 2 || data == [9.0; 6]);
            let mut all = vec![9; 6];
            comm.all_gather(&mut all, &[r, r]).expect("all_gather");
            assert_eq!(all, [0, 0, 1, 1, 2, 2]);
            comm.gather(&mut all, &[r + 1, r + 1], 1).expect("gather");
            assert!(r != 1 || all == [1, 1, 2, 2, 3, 3]);
            let mut part = vec![0; 2];
            comm.scatter(&mut part, &all, 1).expect("scatter");
            assert_eq!(part, [r + 1; 2]);
            comm.reduce_scatter(&mut part, &[r; 6], RedOp::Sum).expect("reduce_scatter");
            assert_eq!(part, [3; 2]);
            let input: Vec<_> = (0..6).map(|b| r * 10 + b / 2).collect();
            comm.all_to_all(&mut all, &input).expect("all_to_all");
            assert_eq!(all, [r, r, 10 + r, 10 + r, 20 + r, 20 + r]);
        }
    });
}
