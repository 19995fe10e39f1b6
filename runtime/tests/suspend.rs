//! Suspends ranks and resumes them: memory falls as the system counts it, and results are those of other arithmetic.

use std::time::Duration;

use crate::support::scene::{self, Job, say};
use crate::support::{contribution, everywhere, layout, run_ranks, threads, total};
use roundelay::launch::{JobSetup, RankLauncher};
use roundelay::message::ReceiveSource;
use roundelay::transport::TransportSet;
use roundelay::{Communicator, Error, ErrorKind, Hints, MemoryStats, RedOp, SuspendDepth};
use roundelay_tests::runs_alone;
use rustix::process::{Signal, getpid, kill_process};

/// The module of [`rank_process`].
const MODULE: &str = module_path!();
/// Parts that are split off, to be counted.
const PARTS: u64 = 20;
/// A value that no call computes by chance.
const POISON: f32 = -12_345.5;

/// Runs a rank of a launched job; not a test by itself.
#[test]
fn rank_process() {
    scene::rank(|name| match name {
        "killed" => killed(Communicator::from_env()?),
        other => panic!("no scene {other}"),
    });
}

fn over(hints: &'static str) -> impl Fn(u32) -> JobSetup + Sync {
    move |_| {
        let hints: Hints = hints.parse().expect("hints");
        JobSetup::new().transports(TransportSet::TCP).hints(&hints)
    }
}

/// Makes calls of every kind into outputs that were poisoned, and compares them with sums made here.
fn sweep(comm: &mut Communicator, salt: usize) {
    let (n, r) = (comm.size() as usize, comm.rank() as usize);
    for count in [1, 1000, 300_000] {
        let own: Vec<f32> = (0..count).map(|i| contribution(r, i, salt)).collect();
        let mut sum = vec![POISON; count];
        sum.copy_from_slice(&own);
        comm.all_reduce(&mut sum, RedOp::Sum).expect("a call");
        assert!((0..count).all(|i| sum[i] == total(n, i, salt)), "all_reduce of {count}");
        let mut all = vec![POISON; n * count];
        comm.all_gather(&mut all, &own).expect("a call");
        let of = |at: usize| contribution(at / count, at % count, salt);
        assert!((0..n * count).all(|at| all[at] == of(at)), "all_gather of {count}");
        let mut averages = comm.alloc::<f32>(count).expect("a buffer");
        averages.copy_from_slice(&own);
        comm.all_reduce(&mut averages, RedOp::Max).expect("a call");
        let most = |i| (0..n).map(|r| contribution(r, i, salt)).fold(f32::MIN, f32::max);
        assert!((0..count).all(|i| averages[i] == most(i)), "the greatest of {count}");
        pass_on(comm, &own, salt);
    }
    let mut sum: Vec<f32> = (0..900).map(|i| contribution(r, i, salt)).collect();
    let counted = comm.tolerant_all_reduce(&mut sum[..], RedOp::Sum).expect("a call");
    assert!(counted.len() == n && (0..900).all(|i| sum[i] == total(n, i, salt)));
    comm.barrier().expect("a call");
}

/// Passes a vector to the next rank, in a batch and by messages with tags.
fn pass_on(comm: &mut Communicator, own: &[f32], salt: usize) {
    let (n, r) = (comm.size(), comm.rank());
    let (next, last) = ((r + 1) % n, (r + n - 1) % n);
    let theirs = |i| contribution(last as usize, i, salt);
    let mut came = vec![POISON; own.len()];
    let mut batch = comm.batch();
    batch.send(own, next).recv(&mut came[..], last);
    batch.run(comm).expect("a batch");
    assert!((0..own.len()).all(|i| came[i] == theirs(i)), "a batch of {}", own.len());
    let messages = comm.messages().expect("messages");
    let receive = messages.recv_async(vec![POISON; own.len()], last, 7).expect("a receive");
    messages.send(own, next, 7).expect("a message");
    let (came, _) = receive.wait().expect("a message");
    assert!((0..own.len()).all(|i| came[i] == theirs(i)), "a message of {}", own.len());
}

fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the state of the process");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a figure");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number")
}

fn descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").expect("the descriptors").count() as u64
}

fn usage(result: Result<(), Error>) -> String {
    let error = result.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    error.to_string()
}

#[test]
fn memory_and_addresses_fall_and_results_are_right_afterwards() {
    // The system counts for the process.
    if !runs_alone(MODULE, "memory_and_addresses_fall_and_results_are_right_afterwards") {
        return;
    }
    let ranks = std::sync::Barrier::new(3);
    everywhere(3, 256 << 10, |comm, rank| {
        let meet = |comm: &mut Communicator| {
            ranks.wait();
            let stats = comm.memory_stats().expect("figures");
            let system = (status("VmRSS:"), status("VmSize:"));
            ranks.wait();
            (stats, system)
        };
        sweep(comm, 1);
        let (before, (resident, size)) = meet(comm);
        comm.suspend(SuspendDepth::Memory).expect("ranks at rest");
        let (after, (least, addresses)) = meet(comm);
        assert!(after.suspended && !before.suspended);
        let gone = |of: fn(&MemoryStats) -> u64| (of(&before), of(&after));
        let (shared, left) = gone(|m| m.shared_bytes);
        assert!(left < 1 << 20 && left < shared, "shared: {shared}, then {left}");
        assert_eq!((after.arena_bytes, after.staging_bytes, after.message_bytes), (0, 0, 0));
        let held = comm.resources().expect("figures");
        assert_eq!(held.memory_ends, 0);
        if shared > 8 << 20 {
            // Three ranks have mapped what they share, and count it three times.
            let gone = (shared - left) >> 10;
            assert!(
                least + gone / 2 < resident,
                "resident: {resident} KiB, then {least} of {gone}"
            );
            assert!(addresses + (64 << 10) < size, "addresses: {size} KiB, then {addresses}");
            assert!(after.mapped_bytes < before.mapped_bytes);
        }
        ranks.wait();
        if rank == 0 {
            say(&format!(
                "resident {resident} -> {least} KiB, addresses {size} -> {addresses} KiB, shared {shared} -> {left}"
            ));
        }
        comm.resume().expect("all ranks");
        sweep(comm, 2);
        let again = comm.memory_stats().expect("figures");
        assert!(!again.suspended, "{again:?}");
        // Parts of peers are mapped when they are first reached, so that what is mapped between may differ.
        comm.suspend(SuspendDepth::Memory).expect("ranks at rest");
        let (last, _) = meet(comm);
        assert!(last.suspended && last.mapped_bytes <= after.mapped_bytes, "{after:?} {last:?}");
    });
}

#[test]
fn calls_on_suspended_ranks_are_refused() {
    everywhere(2, 4096, |comm, rank| {
        sweep(comm, 1);
        let other = 1 - rank as u32;
        let messages = comm.messages().expect("messages");
        comm.suspend(SuspendDepth::Memory).expect("ranks at rest");
        let mut data = [POISON; 100];
        for text in [
            usage(comm.all_reduce(&mut data, RedOp::Sum)),
            usage(comm.all_gather(&mut [0u8; 2], &[1u8]).map(drop)),
            usage(comm.barrier()),
            usage(comm.send(&[1u8], other)),
            usage(comm.recv(&mut [1u8], other)),
            usage(comm.split(&[0, 1]).map(drop)),
            usage(messages.send(&[1u8], other, 3)),
            usage(messages.recv_async(vec![1u8], other, 3).map(drop)),
            usage(comm.messages().expect("the same").send(&[1u8], other, 3)),
            usage(comm.start(|comm| comm.barrier()).wait()),
        ] {
            assert!(text.contains("suspended=resume"), "{text}");
        }
        assert!(data.iter().all(|&x| x == POISON), "nothing is written");
        assert!(usage(comm.suspend(SuspendDepth::Memory)).contains("suspended already"));
        assert!(comm.memory_stats().expect("figures").suspended);
        comm.resume().expect("all ranks");
        comm.resume().expect("a barrier");
        sweep(comm, 2);
    });
}

#[test]
fn calls_resume_ranks_if_a_hint_says_so() {
    everywhere(3, 4096, |comm, rank| {
        comm.set_hints("suspended=resume".parse().expect("hints")).expect("all ranks");
        for round in 0..4 {
            sweep(comm, round);
            let depth = match round % 2 {
                0 => SuspendDepth::Memory,
                _ => SuspendDepth::Connections,
            };
            comm.suspend(depth).expect("ranks at rest");
            // Two ranks go on by themselves; the third is suspended still, and all suspend again.
            match rank {
                0 => comm.send(&[7u32; 5000], 1).expect("rank 1 receives"),
                1 => {
                    let mut came = [0u32; 5000];
                    comm.recv(&mut came, 0).expect("rank 0 sends");
                    assert_eq!(came, [7; 5000]);
                }
                _ => {}
            }
            assert_eq!(comm.memory_stats().expect("figures").suspended, rank == 2);
            comm.suspend(depth).expect("ranks at rest");
            let messages = comm.messages().expect("messages");
            match rank {
                0 => messages.send(&[8u8; 9], 2, 1).expect("rank 2 receives"),
                2 => {
                    let mut came = [0u8; 9];
                    messages.recv(&mut came, ReceiveSource::Any, 1).expect("rank 0 sends");
                    assert_eq!(came, [8; 9]);
                }
                _ => {}
            }
        }
        sweep(comm, 9);
    });
}

#[test]
fn ranks_that_ask_for_different_things_stay_as_they_are() {
    everywhere(2, 4096, |comm, rank| {
        let depth = [SuspendDepth::Memory, SuspendDepth::Connections][rank];
        assert!(usage(comm.suspend(depth)).contains("must suspend alike"));
        if rank == 1 {
            comm.set_hints("suspended=resume".parse().expect("hints")).expect("hints");
        }
        assert!(usage(comm.suspend(SuspendDepth::Memory)).contains("different hints"));
        comm.set_hints(Hints::default()).expect("hints");
        sweep(comm, 3);
    });
}

#[test]
fn messages_that_are_under_way_are_not_lost() {
    everywhere(2, 4096, |comm, rank| {
        sweep(comm, 1);
        if rank == 0 {
            comm.send(&[5u8; 10], 1).expect("a short message");
        }
        assert!(usage(comm.suspend(SuspendDepth::Memory)).contains("were sent and not received"));
        if rank == 1 {
            let mut came = [0u8; 10];
            comm.recv(&mut came, 0).expect("it is there");
            assert_eq!(came, [5; 10]);
        }
        let messages = comm.messages().expect("messages");
        let pending = (rank == 1).then(|| messages.recv_async(vec![0u8; 3], 0, 9).expect("begun"));
        let text = usage(comm.suspend(SuspendDepth::Connections));
        assert!(text.contains("ranks [1]"), "{text}");
        if rank == 0 {
            messages.send(&[1u8, 2, 3], 1, 9).expect("rank 1 receives");
            messages.send(&[4u8], 1, 10).expect("a short message");
        }
        if let Some(pending) = pending {
            assert_eq!(pending.wait().expect("a message").0, [1, 2, 3]);
        }
        // One has come that no receive asked for.
        assert!(usage(comm.suspend(SuspendDepth::Memory)).contains("received"));
        if rank == 1 {
            let mut came = [0u8];
            messages.recv(&mut came, 0, 10).expect("it is there");
            assert_eq!(came, [4]);
        }
        let work = comm.start(|comm| {
            let mut word = [1u32; 50_000];
            comm.all_reduce(&mut word, RedOp::Sum).map(|()| word[49_999])
        });
        // What was started ends first.
        comm.suspend(SuspendDepth::Memory).expect("ranks at rest");
        assert_eq!(work.wait().expect("it has ended"), 2);
        comm.resume().expect("all ranks");
        sweep(comm, 2);
    });
}

#[test]
fn connections_go_if_asked_and_come_back() {
    for hints in ["lazy=true", "lazy=false", "encryption=required", "paths=127.0.0.1+::1"] {
        let setup = |rank| match hints {
            "encryption=required" => over(hints)(rank).secret("a secret of tests"),
            _ => over(hints)(rank),
        };
        let ranks = Communicator::local_over(3, setup).expect("the ranks join");
        run_ranks(ranks, |comm, _| {
            for round in 0..3 {
                sweep(comm, round);
                let before = comm.resources().expect("figures");
                assert!(before.data_sockets > 0 && before.control_links > 0, "{before:?}");
                comm.suspend(SuspendDepth::Memory).expect("ranks at rest");
                let kept = comm.resources().expect("figures");
                assert_eq!(kept.data_sockets, before.data_sockets, "{hints}");
                comm.resume().expect("all ranks");
                sweep(comm, round + 3);
                comm.suspend(SuspendDepth::Connections).expect("ranks at rest");
                let after = comm.resources().expect("figures");
                assert_eq!((after.data_sockets, after.control_links), (0, before.control_links));
                assert!(after.descriptors < before.descriptors, "{before:?}, {after:?}");
                let encryption = (before.memory.encryption_bytes, after.memory.encryption_bytes);
                match hints {
                    "encryption=required" => assert!(encryption.1 < encryption.0),
                    _ => assert_eq!(encryption, (0, 0)),
                }
                comm.resume().expect("all ranks");
                let again = comm.resources().expect("figures");
                assert_eq!(again.data_sockets == 0, again.lazy, "{hints}");
            }
            sweep(comm, 9);
        });
    }
}

#[test]
fn windows_stay_and_serve() {
    everywhere(2, 4096, |comm, rank| {
        let window = comm.window(comm.alloc::<u32>(1000).expect("a buffer")).expect("a window");
        sweep(comm, 1);
        for round in 1..4u32 {
            comm.suspend(SuspendDepth::Memory).expect("ranks at rest");
            comm.resume().expect("all ranks");
            window.put(&[round * 10 + rank as u32; 1000], 1 - rank as u32, 0).expect("a put");
            window.flush(1 - rank as u32).expect("it is there");
            comm.barrier().expect("a call");
            let mut own = [0; 1000];
            window.read(0, &mut own).expect("its own part");
            assert_eq!(own, [round * 10 + 1 - rank as u32; 1000]);
            comm.barrier().expect("a call");
        }
    });
}

#[test]
fn parts_are_suspended_by_themselves() {
    everywhere(4, 4096, |comm, rank| {
        let list: &[u32] = if rank % 2 == 0 { &[0, 2] } else { &[1, 3] };
        let mut part = comm.split(list).expect("all ranks").expect("a part");
        sweep(comm, 1);
        sweep(&mut part, 2);
        let kept = part.alloc::<u32>(4096).expect("a buffer");
        comm.suspend(SuspendDepth::Memory).expect("ranks at rest");
        // It goes on meanwhile, in the arena of the whole.
        sweep(&mut part, 3);
        if rank % 2 == 0 {
            part.suspend(SuspendDepth::Connections).expect("ranks at rest");
        }
        comm.resume().expect("all ranks");
        sweep(comm, 4);
        if rank % 2 == 0 {
            part.resume().expect("all ranks");
        }
        sweep(&mut part, 5);
        assert!(kept.iter().all(|&word| word == 0));
    });
}

/// Suspends and resumes again and again, with calls in between: the process keeps nothing of it.
#[test]
fn many_suspends_under_load_are_flat_and_right() {
    if !runs_alone(MODULE, "many_suspends_under_load_are_flat_and_right") {
        return;
    }
    let rounds = if roundelay_tests::is_full() { 1000 } else { 30 };
    let ranks = std::sync::Barrier::new(3);
    everywhere(3, 64 << 10, |comm, rank| {
        // The most of the first tenth, in which what is made once is made; ranks look at the list of descriptors at
        // once, each by one of its own.
        let (warm, mut first) = (rounds / 10 + 10, (0, 0, 0));
        for round in 0..rounds {
            let count = [1, 700, 40_000][round % 3];
            let mut data: Vec<f32> = (0..count).map(|i| contribution(rank, i, round)).collect();
            comm.all_reduce(&mut data, RedOp::Sum).expect("a call");
            assert!((0..count).all(|i| data[i] == total(3, i, round)), "round {round}");
            let own: Vec<f32> = (0..count).map(|i| contribution(rank, i, round)).collect();
            pass_on(comm, &own, round);
            let depth = match round % 5 {
                4 => SuspendDepth::Connections,
                _ => SuspendDepth::Memory,
            };
            comm.suspend(depth).expect("ranks at rest");
            ranks.wait();
            let now = (status("VmRSS:"), descriptors(), status("Threads:"));
            ranks.wait();
            if round + 1 == rounds && rank == 0 {
                say(&format!("{rounds} rounds: KiB, descriptors, threads {first:?}, then {now:?}"));
            }
            if round < warm {
                first = (first.0.max(now.0), first.1.max(now.1), first.2.max(now.2));
            } else {
                assert!(now.0 <= first.0 + first.0 / 8 + 1024, "resident: {first:?}, then {now:?}");
                assert!(now.1 <= first.1 + 6 && now.2 <= first.2 + 3, "{first:?}, then {now:?}");
            }
            comm.resume().expect("all ranks");
        }
    });
}

/// Rank 1 is killed while the others resume.
fn killed(mut comm: Communicator) -> Result<(), Error> {
    comm.set_timeout(Duration::from_secs(60));
    let mut data = [1u32; 1000];
    comm.all_reduce(&mut data, RedOp::Sum)?;
    comm.suspend(SuspendDepth::Memory)?;
    if comm.rank() == 1 {
        // Its process is gone at once, and says nothing.
        kill_process(getpid(), Signal::KILL).expect("a signal");
    }
    say("suspended");
    comm.resume()
}

#[test]
fn a_rank_that_is_killed_while_others_resume_is_named() {
    for hosts in [1, 2] {
        let launcher = RankLauncher::new(4).hosts(hosts).grace(Duration::from_secs(60));
        let job =
            Job::run(scene::scene(launcher.timeout(Duration::from_secs(90)), MODULE, "killed"));
        assert!(job.took < Duration::from_secs(50), "before the deadline: {:?}", job.took);
        let named = |line: &String| line.contains("rank 1") && line.starts_with("RL07");
        // One that leaves the suspension last may learn of it there.
        let resumed = [0, 2, 3].map(|rank| job.said[rank].iter().any(|line| line == "suspended"));
        assert!(resumed.contains(&true), "{hosts}: {:?}", job.said);
        for rank in [0, 2, 3] {
            assert!(job.said[rank].last().is_some_and(named), "{hosts}: {:?}", job.said);
        }
    }
}

/// An idle part costs a rank little beyond the whole, and opens no connection that the whole has.
#[test]
fn idle_parts_share_what_the_whole_has() {
    if !runs_alone(MODULE, "idle_parts_share_what_the_whole_has") {
        return;
    }
    let tcp = |_| JobSetup::new().transports(TransportSet::TCP);
    for (over, ranks) in [
        ("memory", Communicator::local(8).expect("ranks")),
        ("tcp", Communicator::local_over(8, tcp).expect("the ranks join")),
    ] {
        let meeting = std::sync::Barrier::new(8);
        run_ranks(ranks, |comm, rank| {
            let all: Vec<u32> = (0..8).collect();
            let mut parts = Vec::new();
            let mut part = |comm: &mut Communicator| {
                let part = comm.split(&all).expect("all ranks").expect("a part");
                parts.push(part);
            };
            // What the first ones need is there for all.
            (0..4).for_each(|_| part(comm));
            let before = comm.resources().expect("figures");
            let sum = |key: &str| {
                meeting.wait();
                let now = status(key);
                meeting.wait();
                now
            };
            let resident = sum("VmRSS:");
            let opened = descriptors();
            meeting.wait();
            (0..PARTS).for_each(|_| part(comm));
            let each = (sum("VmRSS:").saturating_sub(resident) << 10) / (8 * PARTS);
            let opened = (descriptors() - opened) / (8 * PARTS);
            meeting.wait();
            if rank == 0 {
                say(&format!(
                    "{over}: a part of 8 takes {each} bytes and {opened} descriptors a rank"
                ));
            }
            assert!(each < 64 << 10, "{over}: {each} bytes a rank");
            for part in &mut parts {
                let held = part.resources().expect("figures");
                assert_eq!((held.data_sockets, held.memory_ends), (0, 0), "{over}: {held:?}");
                // Its ranks are linked as those of the whole are.
                let linked = (held.made, held.accepted, held.control_links);
                assert_eq!(linked, (0, 0, 0), "{over}: {held:?}");
            }
            let after = comm.resources().expect("figures");
            assert_eq!(after.data_sockets, before.data_sockets);
            assert_eq!(after.memory.pinned_bytes, before.memory.pinned_bytes);
            // They serve all the same.
            if let Some(part) = parts.last_mut() {
                sweep(part, 1);
            }
        });
    }
}

#[test]
fn figures_of_one_rank_are_small_and_name_the_kinds() {
    threads(layout(1, 4096), |comm, _| {
        let mut data = [3u32; 100];
        comm.all_reduce(&mut data, RedOp::Sum).expect("a call");
        comm.suspend(SuspendDepth::Connections).expect("a rank at rest");
        let stats = comm.memory_stats().expect("figures");
        assert!(stats.suspended && stats.shared_bytes < 1 << 20, "{stats:?}");
        comm.resume().expect("a rank");
        comm.all_reduce(&mut data, RedOp::Sum).expect("a call");
        assert_eq!(data, [3; 100]);
    });
}
