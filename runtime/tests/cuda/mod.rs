//! Tests calls on GPUs: ranks as processes, a GPU each as far as there are as many. What they do is compared,
//! bit for bit, with what the host executes of the same plans. Where there is no GPU the tests say why they are
//! skipped.

mod bench;
mod counted;
mod cycles;
mod empty;
mod far_windows;
mod functions;
mod inside;
mod mixed;
mod ragged;
mod scenes;
mod suspended;
mod windows;

use std::io::Write;
use std::time::Duration;

use crate::support::scene::{self, Job};
use roundelay::cuda::{CudaOptions, probe};
use roundelay::launch::RankLauncher;
use roundelay::{Communicator, Error, RedOp};

/// No test comes near it unless something hangs.
const FOREVER: Duration = Duration::from_secs(600);

/// The module of [`rank_process`].
const MODULE: &str = module_path!();

/// Runs a rank of a launched job; not a test by itself.
#[test]
fn rank_process() {
    scene::rank(|name| match name {
        "survivor" => cycles::survivor(),
        "newcomer" => cycles::newcomer(),
        "mixed" => Communicator::from_env().and_then(mixed::mixed),
        _ => Communicator::from_env().and_then(|comm| scenes::run(name, comm)),
    });
}

/// Returns the number of ranks: one a GPU, from two to four. `None` where there is none, with the reason on
/// standard error.
fn ranks() -> Option<u32> {
    match probe() {
        Ok(machine) => Some((machine.devices.len() as u32).clamp(2, 4)),
        Err(why) => {
            roundelay_tests::skip(roundelay_tests::CheckNeeds::Gpus, why);
            None
        }
    }
}

fn launch(name: &str, ranks: u32) -> Job {
    launch_over(1, name, ranks)
}

/// Starts ranks that believe to be on `hosts` hosts.
fn launch_over(hosts: u32, name: &str, ranks: u32) -> Job {
    let launcher = RankLauncher::new(ranks).timeout(FOREVER).grace(Duration::from_secs(60));
    Job::run(scene::scene(launcher.hosts(hosts), MODULE, name))
}

/// Runs a scene, and checks that every rank does what it asks.
fn all_well(scene: &str) {
    let Some(ranks) = ranks() else { return };
    let job = launch(scene, ranks);
    assert!(job.outcome.success(), "{scene}: {:?} {:?}", job.outcome, job.said);
}

#[test]
fn every_algorithm_of_the_library_in_every_way() {
    all_well("library");
}

/// Two hosts of one rank, or of two where there are four GPUs.
#[test]
fn what_goes_between_hosts_is_the_same_to_the_bit() {
    let Some(ranks) = ranks().map(|ranks| ranks / 2 * 2) else { return };
    for scene in ["named", "messages", "random", "wrap", "graphs", "ended at its host"] {
        let job = launch_over(2, scene, ranks);
        assert!(job.outcome.success(), "{scene}: {:?} {:?}", job.outcome, job.said);
    }
}

#[test]
fn every_type_and_operator() {
    all_well("types");
}

#[test]
fn collectives_by_name() {
    all_well("named");
}

#[test]
fn inputs_that_are_outputs() {
    all_well("inside");
}

#[test]
fn lists_and_blocks_of_unequal_length() {
    all_well("ragged");
}

#[test]
fn messages_between_single_ranks() {
    all_well("messages");
}

#[test]
fn many_calls_of_random_sizes() {
    all_well("random");
}

/// The numbers of calls begin again at 0.
#[test]
fn calls_go_on_after_the_last_number() {
    all_well("wrap");
}

#[test]
fn graphs_replay_bit_for_bit() {
    all_well("graphs");
}

/// On one host, and as ranks of two.
#[test]
fn memory_of_gpus_goes_and_comes_back() {
    all_well("suspended");
    let Some(ranks) = ranks().map(|ranks| ranks / 2 * 2) else { return };
    let job = launch_over(2, "suspended", ranks);
    assert!(job.outcome.success(), "{:?} {:?}", job.outcome, job.said);
}

#[test]
fn calls_without_elements_keep_their_place() {
    all_well("empty");
}

#[test]
fn a_rank_without_elements_makes_another_call() {
    let Some(ranks) = ranks().filter(|&ranks| ranks > 1) else { return };
    for scene in ["first", "again", "captured"] {
        let job = launch(&format!("empty alone {scene}"), ranks);
        for lines in &job.said {
            let failed = |line: &String| line.starts_with("RL0702") || line.starts_with("RL0703");
            assert!(lines.iter().any(failed), "{scene}: {:?}", job.said);
            assert!(
                lines.iter().any(|line| line == "the GPU is usable"),
                "{scene}: {:?}",
                job.said
            );
        }
    }
}

#[test]
fn functions_in_kernels_of_others() {
    all_well("functions");
}

#[test]
fn functions_that_are_called_wrongly_say_so() {
    let Some(ranks) = ranks() else { return };
    for (what, said) in [
        ("count", "a call of 4848 elements, with a handle that was made for 4800 at most"),
        ("place", "does not lie in the memory"),
        ("alignment", "multiples of 16 bytes"),
        ("grid", "are needed"),
        ("header", "another header"),
    ] {
        let job = launch(&format!("misused {what}"), ranks);
        assert!(job.outcome.success(), "{what}: {:?} {:?}", job.outcome, job.said);
        let mut lines = job.said.iter().flatten();
        assert!(lines.any(|line| line.contains(said)), "{what}: {:?}", job.said);
    }
}

#[test]
fn a_function_whose_peer_does_not_come_names_it() {
    let Some(ranks) = ranks() else { return };
    let job = launch("late function", ranks);
    let named =
        |line: &String| line.starts_with("RL0703") && line.contains("all_reduce.ring, step");
    assert!(job.said[0].iter().any(named), "{:?}", job.said);
}

#[test]
fn blocks_whose_counts_lie_on_the_device() {
    all_well("counted");
}

#[test]
fn counts_that_are_too_large_write_nothing() {
    let Some(ranks) = ranks() else { return };
    for (what, said) in [
        ("block", "the block for or from rank 1 has 701 rows, and 700 are the most"),
        ("padded", "has 31 rows, and 30 are the most"),
        ("input", "and the vector has 2000"),
    ] {
        let job = launch(&format!("beyond {what}"), ranks);
        assert!(job.outcome.success(), "{what}: {:?} {:?}", job.outcome, job.said);
        assert!(job.said[0].iter().any(|line| line.contains(said)), "{what}: {:?}", job.said);
    }
}

#[test]
fn puts_gets_and_signals_of_windows() {
    all_well("windows");
}

#[test]
fn a_signal_that_does_not_come_names_the_rank() {
    let Some(ranks) = ranks() else { return };
    for (scene, code, said) in [
        ("window late", "RL0703", "a signal of rank 1"),
        ("window killed", "RL0704", "rank 1 is gone"),
    ] {
        let job = launch(scene, ranks);
        let lines = &job.said[0];
        let named = |line: &String| line.starts_with(code) && line.contains(said);
        assert!(lines.iter().any(named), "{scene}: {:?}", job.said);
        assert!(lines.iter().any(|line| line == "the GPU is usable"), "{scene}: {:?}", job.said);
    }
}

/// Two hosts of one rank, or of two where there are four GPUs.
#[test]
fn windows_reach_ranks_on_other_hosts() {
    let Some(ranks) = ranks().map(|ranks| ranks / 2 * 2) else { return };
    let job = launch_over(2, "far windows", ranks);
    assert!(job.outcome.success(), "{:?} {:?}", job.outcome, job.said);
    let times = job.said[0].join("\n");
    let _ = writeln!(std::io::stderr(), "{times}");
}

#[test]
fn a_rank_on_another_host_that_is_ill_is_named() {
    let Some(ranks) = ranks().map(|ranks| ranks / 2 * 2) else { return };
    let last = ranks - 1;
    for (scene, codes, said) in [
        ("far window late", &["RL0703"][..], format!("a signal of rank {last}")),
        ("far window killed", &["RL0704"], format!("rank {last} is gone")),
        // Its window is gone first, or it is.
        ("far window dropped", &["RL0704", "RL0716"], format!("rank {last}")),
    ] {
        let job = launch_over(2, scene, ranks);
        let lines = &job.said[0];
        let named =
            |line: &String| codes.iter().any(|code| line.starts_with(code)) && line.contains(&said);
        assert!(lines.iter().any(named), "{scene}: {:?}", job.said);
        assert!(lines.iter().any(|line| line == "the GPU is usable"), "{scene}: {:?}", job.said);
    }
}

#[test]
fn ranks_with_and_without_a_gpu_call_together() {
    if ranks().is_some() {
        let job = launch("mixed", 3);
        assert!(job.outcome.success(), "{:?} {:?}", job.outcome, job.said);
    }
}

/// Without a GPU anywhere there is nothing to open; a GPU that a rank has not is an error on all.
#[test]
fn ranks_that_have_no_gpu_need_none() {
    let mut ranks = Communicator::local(2).expect("ranks");
    let results: Vec<_> = std::thread::scope(|scope| {
        let ranks: Vec<_> = ranks
            .iter_mut()
            .map(|comm| {
                scope.spawn(move || {
                    let mut mixed = comm.cuda_mixed(None).expect("no GPU is needed");
                    let mut x = [comm.rank() + 1];
                    mixed.all_reduce(&mut x, RedOp::Sum).expect("a sum");
                    assert_eq!(x, [3]);
                    assert!(mixed.stream().is_err());
                    let options = CudaOptions { device: Some(999), ..CudaOptions::default() };
                    comm.cuda_mixed((comm.rank() == 1).then_some(options)).map(drop)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    });
    for result in results {
        let error = result.expect_err("there are fewer GPUs");
        assert!(matches!(error, Error::Cuda { rank: 1, .. }), "{error}");
    }
}

#[test]
fn memory_at_odd_addresses_and_of_other_allocators() {
    all_well("memory");
}

#[test]
fn a_call_that_cannot_be_made_leaves_the_ranks_usable() {
    all_well("refused");
}

#[test]
fn ranks_share_one_gpu() {
    all_well("one gpu");
}

#[test]
fn a_rank_that_makes_no_call_is_named() {
    let Some(ranks) = ranks() else { return };
    let job = launch("late", ranks);
    let lines = &job.said[0];
    let named = |line: &String| {
        line.starts_with("RL0703 rank 0, all_reduce.ring, step") && line.contains("from rank 1")
            || line.contains("rank 1 to enter")
            || line.starts_with("RL0703") && line.contains("rank")
    };
    assert!(lines.iter().any(named), "{:?}", job.said);
    assert!(lines.iter().any(|line| line == "the GPU is usable"), "{:?}", job.said);
    assert!(job.took < FOREVER, "{:?}", job.took);
}

/// `TEST_CYCLES=100` runs more of them.
#[test]
fn ranks_that_are_killed_are_replaced_again_and_again() {
    if ranks().is_some() {
        let job = launch("survivor", 1);
        assert!(job.outcome.success(), "{:?} {:?}", job.outcome, job.said);
    }
}

#[test]
fn a_rank_that_is_killed_is_named() {
    let Some(ranks) = ranks() else { return };
    let job = launch("killed", ranks);
    for (rank, lines) in job.said.iter().enumerate().filter(|(rank, _)| *rank != 1) {
        assert!(lines.iter().any(|line| line.contains("rank 1")), "{rank}: {:?}", job.said);
        assert!(lines.iter().any(|line| line == "the GPU is usable"), "{rank}: {:?}", job.said);
    }
}
