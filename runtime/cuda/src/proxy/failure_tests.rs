//! Connections, peers and kernels fail in the middle of a call between hosts: each rank learns why.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::emulated::{EmulatedLaunch, KernelExit};
use super::tests::{PATIENCE, World, everywhere, late, long, sees_the_end};
use roundelay_support::error::Error;

/// Checks that an error names the lost rank, and the place in the algorithm.
fn names(error: Option<&Error>, peer: u32) {
    let Some(Error::LostRank { lost, location: Some(location), .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(*lost, peer);
    assert_eq!(location.name, "all_reduce.ring");
    assert!(location.site.contains("ring.algo:") && !location.text.is_empty(), "{location:?}");
}

#[test]
fn a_connection_that_is_cut_ends_the_call_on_both_sides() {
    let world = World::new(&[0, 1], 2);
    let jobs = long(&world.hosts);
    let ends = everywhere(&world, &jobs, |rank| {
        rank.launch([(0, 1)].into_iter());
        let own = rank.core.rank();
        std::thread::scope(|scope| {
            let far = rank.device.far.clone();
            let connection = rank.lanes.connections[0].clone();
            // In the middle of the call.
            scope.spawn(move || {
                let word = far.proxy_word(roundelay_compiler::device::abi::sent(1 - own, 0, 0));
                while own == 0 && (word.load(Ordering::Acquire) as u32) < 100 {
                    std::thread::yield_now();
                }
                if let (0, Some(fd)) = (own, connection.fd()) {
                    rustix::net::shutdown(&*fd, rustix::net::Shutdown::Both).expect("a socket");
                }
            });
            let left = rank.run(0, 1, false).map(drop);
            (left, rank.lanes.failure(), rank.core.hear(None).is_err())
        })
    });
    for (left, _, _) in &ends {
        assert_eq!(*left, Err(KernelExit::Aborted));
    }
    // The rank that saw it first raised the alarm, which may reach the other before its own loss.
    let blames = |own: usize| matches!(&ends[own].1, Some(Error::LostRank { .. }));
    let first = (0..2).find(|&own| blames(own)).expect("a rank saw it");
    names(ends[first].1.as_ref(), 1 - first as u32);
}

#[test]
fn a_peer_that_goes_is_named() {
    let world = World::new(&[0, 1], 2);
    let jobs = long(&world.hosts);
    let ends = everywhere(&world, &jobs, |rank| match rank.core.rank() {
        0 => {
            rank.launch([(0, 1)].into_iter());
            let left = rank.run(0, 1, false).map(drop);
            Some((left, rank.lanes.failure()))
        }
        _ => None,
    });
    let (left, failure) = ends[0].as_ref().expect("of rank 0");
    assert_eq!(*left, Err(KernelExit::Aborted));
    names(failure.as_ref(), 1);
}

#[test]
fn an_abort_makes_kernels_leave_and_lanes_end() {
    let world = World::new(&[0, 1], 2);
    let jobs = long(&world.hosts);
    let ends = everywhere(&world, &jobs, |rank| {
        rank.launch([(0, 1)].into_iter());
        if rank.core.rank() == 1 {
            let text = "enough".to_string();
            let code = roundelay_dsl::diag::codes::ABORTED;
            rank.core.group.abort(&roundelay_support::abort::AbortRecord { code, rank: 1, text });
            // The other one must hear it, and not that the sockets end.
            let since = Instant::now();
            while !rank.device.aborted.load(Ordering::Acquire) && since.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
            return (Err(KernelExit::Aborted), None);
        }
        std::thread::scope(|scope| {
            let (device, core) = (&rank.device, &mut *rank.core);
            scope.spawn(move || sees_the_end(core));
            let (program, call) = (&jobs[0].lowered[0].program, jobs[0].call(0, 1));
            let call = call.expect("far links");
            let (fold, synchronized, proves) = (jobs[0].fold(), false, true);
            let launch = EmulatedLaunch { program, call: &call, fold, synchronized, proves };
            (device.run(&launch), rank.lanes.failure())
        })
    });
    assert_eq!(ends, [(Err(KernelExit::Aborted), None), (Err(KernelExit::Aborted), None)]);
}

#[test]
fn ranks_that_make_different_calls_learn_of_it() {
    let world = World::new(&[0, 1], 2);
    let jobs = long(&world.hosts);
    let failures = everywhere(&world, &jobs, |rank| {
        let mut call = jobs[0].call(rank.core.rank(), 1).expect("far links");
        call.digest += u64::from(rank.core.rank());
        rank.lanes.order_call(&call);
        assert_eq!(rank.run(0, 1, false).map(drop), Err(KernelExit::Aborted));
        rank.lanes.failure()
    });
    let mismatch = |failure: &Option<Error>| matches!(failure, Some(Error::PlanMismatch { detail, .. }) if detail.contains("all_reduce.ring"));
    assert!(failures.iter().any(mismatch), "{failures:?}");
}

#[test]
fn a_peer_whose_kernel_does_not_come_is_named_in_time() {
    let world = World::new(&[0, 1], 1);
    let mut jobs = long(&world.hosts);
    jobs[0].timeout = Duration::from_millis(150);
    let ends = everywhere(&world, &jobs, |rank| {
        rank.launch([(0, 1)].into_iter());
        let own = rank.core.rank();
        // The kernel of rank 0 has more patience than its lanes here.
        rank.device.patience = PATIENCE;
        match own {
            0 => Some((rank.run(0, 1, false).map(drop), rank.lanes.failure())),
            _ => {
                sees_the_end(rank.core);
                rank.lanes.stop();
                None
            }
        }
    });
    let (location, awaited, remark) = late(&ends);
    assert_eq!((&location.name[..], awaited), ("all_reduce.ring", "a message from rank 1"));
    assert!(
        remark.contains("block 0 of call 1") && remark.contains("raise the timeout"),
        "{remark}"
    );
}

#[test]
fn what_is_no_packet_is_refused() {
    use roundelay_net::transport::message::{ContentKind, meta};
    use roundelay_net::transport::posted::PostedSender;
    let world = World::new(&[0, 1], 1);
    let jobs = long(&world.hosts);
    let failures = everywhere(&world, &jobs, |rank| {
        if rank.core.rank() == 1 {
            // Its lane has no order, and leaves the connection alone.
            let mut sender = roundelay_net::transport::stream::StreamSender::new(
                rank.lanes.connections[0].clone(),
            );
            sender.stage(1, 32);
            sender.post(meta(7, 32, ContentKind::Slot), 32);
            sees_the_end(rank.core);
            return None;
        }
        rank.launch([(0, 1)].into_iter());
        assert_eq!(rank.run(0, 1, false).map(drop), Err(KernelExit::Aborted));
        rank.lanes.failure()
    });
    let text = failures[0].as_ref().map(Error::to_string).unwrap_or_default();
    assert!(text.contains("no packet of a lane"), "{text}");
}
