//! Compares the resources that communicators report with what the system says.

use crate::support::{layout, run_ranks, threads};
use roundelay::launch::JobSetup;
use roundelay::plan::plan_of;
use roundelay::transport::TransportSet;
use roundelay::{Communicator, HeldResources, RedOp};
use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::{BufferPlacement, CompileOptions, Shape};
use roundelay_tests::runs_alone;

fn descriptors() -> u64 {
    std::fs::read_dir("/proc/self/fd").expect("the descriptors").count() as u64
}

fn over_tcp(lazy: bool) -> impl Fn(u32) -> JobSetup + Sync {
    let tcp = TransportSet::TCP;
    move |_| JobSetup::new().transports(tcp).lazy(lazy)
}

/// Makes calls of every kind, small and large.
fn sweep(comm: &mut Communicator) {
    let n = comm.size() as usize;
    for count in [1, 100, 100_000] {
        let (mut vector, mut wide) = (vec![1.0f32; count], vec![0.0f32; n * count]);
        comm.all_reduce(&mut vector, RedOp::Sum).expect("a call");
        comm.broadcast(&mut vector, 1).expect("a call");
        comm.all_gather(&mut wide, &vector).expect("a call");
        comm.reduce_scatter(&mut vector, &wide, RedOp::Max).expect("a call");
        comm.all_to_all(&mut wide.clone(), &wide).expect("a call");
        comm.all_gather_v(&mut wide, &vector, &vec![count; n]).expect("a call");
        let counts = vec![count; n];
        comm.all_to_all_v(&mut wide.clone(), &counts, &wide, &counts).expect("a call");
        comm.barrier().expect("a call");
    }
}

/// Returns what each rank holds before a sweep of calls and after it.
fn around_a_sweep(ranks: Vec<Communicator>) -> Vec<(HeldResources, HeldResources)> {
    run_ranks(ranks, |comm, _| {
        let before = comm.resources().expect("figures");
        // A rank that goes ahead must not connect to one that is still counting.
        comm.barrier().expect("a call");
        sweep(comm);
        (before, comm.resources().expect("figures"))
    })
}

#[test]
fn eager_ranks_connect_when_they_join_and_never_again() {
    let ranks = Communicator::local_over(4, over_tcp(false)).expect("the ranks join");
    for (before, after) in around_a_sweep(ranks) {
        assert!(!before.lazy);
        // To each of the three others.
        assert_eq!(before.data_sockets, 3 * (u64::from(JobSetup::CHANNELS) + 1), "{before:?}");
        let connections = |r: &HeldResources| (r.data_sockets, r.made, r.accepted, r.descriptors);
        assert_eq!(connections(&after), connections(&before));
        assert_eq!(before.made + before.accepted, before.data_sockets + before.control_links);
        assert_eq!((after.store_operations, after.refused), (3, 0));
        assert!(after.control_bytes > before.control_bytes, "words travel over links");
        assert!(after.memory.staging_bytes > 0);
    }
}

#[test]
fn the_library_needs_no_other_channels() {
    let mut most = 0;
    for (entry, n) in CATALOGUE.iter().flat_map(|entry| [2, 3, 4, 8].map(|n| (entry, n))) {
        for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
            let (shape, options) = (Shape::flat(n), CompileOptions::default());
            // Some algorithms are only for some counts and placements.
            let plan = plan_of(entry.path, entry.text, &shape, &options, placement, n - 1);
            let channels =
                plan.iter().flat_map(|p| &p.part.conns).map(|c| u32::from(c.channel) + 1);
            most = channels.fold(most, u32::max);
        }
    }
    assert_eq!(most, JobSetup::CHANNELS);
}

#[test]
fn lazy_ranks_connect_when_a_call_needs_it() {
    let ranks = Communicator::local_over(4, over_tcp(true)).expect("the ranks join");
    for (before, after) in around_a_sweep(ranks) {
        assert!(before.lazy);
        assert_eq!((before.data_sockets, before.memory.staging_bytes), (0, 0), "{before:?}");
        assert_eq!(before.made + before.accepted, before.control_links);
        assert!(after.data_sockets > 0, "{after:?}");
        let new = after.data_sockets;
        assert_eq!(after.made + after.accepted, before.made + before.accepted + new);
        assert_eq!(after.descriptors, before.descriptors + new);
    }
}

#[test]
fn the_system_counts_as_many_descriptors() {
    // Descriptors are counted for the process.
    if !runs_alone(module_path!(), "the_system_counts_as_many_descriptors") {
        return;
    }
    let mixed = |rank: u32| JobSetup::new().host_label(format!("machine {}", rank % 2));
    for (over, setup) in [
        ("tcp", &over_tcp(false) as &(dyn Fn(u32) -> JobSetup + Sync)),
        ("tcp, lazy", &over_tcp(true)),
        ("memory", &|_| JobSetup::new()),
        ("both", &mixed),
    ] {
        let before = descriptors();
        let mut ranks = Communicator::local_over(3, setup).expect("the ranks join");
        let held = ranks.iter_mut().map(|comm| comm.resources().expect("figures").descriptors);
        let held: u64 = held.sum();
        assert_eq!(descriptors() - before, held, "{over}");
        drop(ranks);
        assert_eq!(descriptors(), before, "{over}: all are given back");
    }
}

#[test]
fn memory_grows_with_what_is_used_and_no_descriptor_does() {
    threads(layout(2, 64 << 10), |comm, _| {
        let before = comm.resources().expect("figures");
        comm.barrier().expect("a call");
        assert_eq!((before.memory.arena_bytes, before.memory_ends, before.descriptors), (0, 0, 1));
        let mut buffer = comm.alloc::<u8>(1 << 20).expect("a buffer");
        let held = comm.resources().expect("figures");
        assert_eq!(held.memory.arena_bytes, 1 << 20);
        assert!(held.memory.shared_bytes >= before.memory.shared_bytes + (1 << 20));
        comm.broadcast(&mut buffer, 0).expect("a call");
        let used = comm.resources().expect("figures");
        assert!(used.memory_ends > 0);
        assert_eq!((used.descriptors, used.data_sockets, used.memory.staging_bytes), (1, 0, 0));
        drop(buffer);
        assert!(comm.resources().expect("figures").memory.arena_bytes < held.memory.arena_bytes);
    });
}

#[test]
fn a_part_counts_what_it_shares() {
    threads(layout(3, 1024), |comm, rank| {
        let list: &[u32] = if rank == 1 { &[] } else { &[0, 2] };
        if let Some(mut part) = comm.split(list).expect("a part") {
            let (whole, own) = (comm.resources(), part.resources().expect("figures"));
            assert_eq!((whole.expect("figures").descriptors, own.descriptors), (1, 2));
        }
        comm.barrier().expect("a call");
    });
}

/// Returns the names of the threads that the library has in this process, in order.
fn thread_names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
    let names = tasks.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
    let mut names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    names.retain(|name| name.starts_with("roundelay"));
    names.sort();
    names
}

#[test]
fn a_communicator_has_two_threads_at_most_beside_those_of_its_callers() {
    // Threads of this process are counted by name.
    let test = "a_communicator_has_two_threads_at_most_beside_those_of_its_callers";
    if !runs_alone(module_path!(), test) {
        return;
    }
    let ranks = Communicator::local_over(3, over_tcp(false)).expect("the ranks join");
    let of_job = |names: &[String]| {
        let is_of_job = |name: &&String| *name == "roundelay door";
        names.iter().filter(is_of_job).count()
    };
    run_ranks(ranks, |comm, r| {
        // A rank that listens guards its port, however many communicators its job has.
        let before = thread_names();
        assert_eq!(of_job(&before), before.len(), "nothing was asked of it: {before:?}");
        comm.barrier().expect("all have counted");
        // Asynchronous calls, messages without a waiter, windows that are served, calls that go on without a rank.
        comm.all_reduce_async(vec![1.0f32; 1000], RedOp::Sum).wait().expect("a call");
        let messages = comm.messages().expect("messages");
        let (next, last) = ((r as u32 + 1) % 3, (r as u32 + 2) % 3);
        let pending = messages.recv_async(vec![0u8; 3], last, 7).expect("a receive");
        let window = comm.window(comm.alloc::<u64>(64).expect("memory")).expect("a window");
        window.put(&[7, 8], next, 3).expect("a put");
        window.flush(next).expect("a flush");
        let mut data = [1u32; 10];
        comm.tolerant_all_reduce(&mut data, RedOp::Sum).expect("a tolerant call");
        comm.barrier().expect("all have made their requests");
        let names = thread_names();
        for rank in 0..3 {
            for wanted in [format!("roundelay-{rank}"), format!("roundelay-m{rank}")] {
                let count = names.iter().filter(|name| **name == wanted).count();
                assert_eq!(count, 1, "{wanted}: {names:?}");
            }
        }
        assert_eq!(names.len(), of_job(&names) + 3 * 2, "{names:?}");
        assert!(of_job(&names) <= 3, "{names:?}");
        comm.barrier().expect("all have counted");
        messages.send(&[1u8, 2, 3], next, 7).expect("a send");
        assert_eq!(pending.wait().expect("it came").0, [1, 2, 3]);
        window.free(comm).expect("its end");
    });
}
