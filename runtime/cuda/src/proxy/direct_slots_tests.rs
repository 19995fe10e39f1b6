//! Slots that devices write into, with kernels that threads run. In the virtual machines of `tests/rdma.sh` devices
//! do; elsewhere ranks agree that none does, and all goes by hosts.

use std::cell::RefCell;
use std::sync::Arc;

use super::direct_slots::GpuDirect;
use super::direct_writes::{DirectWrite, DirectWrites};
use super::packet::{PacketKind, ProxyPacket};
use super::tests::{Slots, World, all_alike, captured, everywhere, flat, grids, long, many_calls};
use roundelay_net::transport::one_sided::{
    AccessGrant, AccessReport, AccessRights, OneSided, RemoteAccess,
};
use roundelay_net::transport::rdma::MemoryExposure;

#[test]
fn algorithms_are_bit_exact_where_devices_write_into_slots() {
    flat(Slots::Direct);
    grids(Slots::Direct);
}

/// Without a queue for it contents go by hosts, one and all.
#[test]
fn algorithms_are_bit_exact_where_no_device_can_write() {
    flat(Slots::WithoutDevices);
    grids(Slots::WithoutDevices);
    many_calls(Slots::WithoutDevices);
    captured(Slots::WithoutDevices);
}

#[test]
fn slots_are_written_again_only_when_they_are_free() {
    many_calls(Slots::Direct);
}

#[test]
fn captured_calls_go_from_slots_to_slots_again_and_again() {
    captured(Slots::Direct);
}

/// Ranks agree on memory of hosts where one has no other, or where other bytes come than were sent.
#[test]
fn all_ranks_have_it_or_none_has() {
    for slots in [Slots::AllBut(1), Slots::SpoiltOn(2)] {
        let world = World { slots, threads: 2, ..World::new(&[0, 1, 2], 2) };
        let jobs = long(&world.hosts);
        all_alike(&world, &jobs, 0);
        let said = everywhere(&world, &jobs, |rank| {
            let has = rank.lanes.connections.iter().all(|c| c.one_sided().is_some());
            has.then(|| rank.lanes.direct().clone())
        });
        let Some(said) = said.into_iter().collect::<Option<Vec<_>>>() else { return };
        for (rank, said) in (0..).zip(said) {
            let GpuDirect::Refused(why) = said else {
                assert_eq!(
                    (said, slots),
                    (GpuDirect::NotAsked, Slots::AllBut(rank)),
                    "rank {rank}"
                );
                continue;
            };
            let blames = match slots {
                Slots::AllBut(other) => format!("rank {other} has it not"),
                Slots::SpoiltOn(other) if other == rank => "other bytes came".into(),
                _ => String::new(),
            };
            assert!(why.contains(&blames), "rank {rank}: {why}");
        }
    }
}

/// The queue for accesses dies in the middle of a call, on one side: contents go by hosts from then on, and none is
/// lost or comes twice.
#[cfg(feature = "rdma")]
#[test]
fn contents_go_by_hosts_while_the_queue_for_them_is_gone() {
    use std::sync::atomic::{AtomicBool, Ordering};

    use roundelay_net::transport::Carrier;

    for breaks in [0, 1] {
        let world = World { slots: Slots::Direct, ..World::new(&[0, 1], 2) };
        let mut jobs = long(&world.hosts);
        jobs[0].count = 20_000;
        let broken = everywhere(&world, &jobs, |rank| {
            rank.launch([(0, 1)].into_iter());
            let own = rank.core.rank();
            let is_over = AtomicBool::new(false);
            let (result, broken) = std::thread::scope(|scope| {
                let far = rank.device.far.clone();
                let connection = rank.lanes.connections[0].clone();
                let is_over = &is_over;
                // In the middle of the call.
                let breaker = scope.spawn(move || {
                    let word = far.proxy_word(roundelay_compiler::device::abi::sent(1 - own, 0, 0));
                    while (word.load(Ordering::Acquire) as u32) < 50 {
                        assert!(!is_over.load(Ordering::Acquire), "too late");
                        std::thread::yield_now();
                    }
                    match connection.carrier() {
                        Some(Carrier::Rdma(stream)) if own == breaks => stream.break_one_sided(),
                        _ => false,
                    }
                });
                let result = rank.run(0, 1, false);
                is_over.store(true, Ordering::Release);
                (result, breaker.join().expect("no panic"))
            });
            assert_eq!(result, Ok(jobs[0].on_host(rank.core)), "{:?}", rank.lanes.failure());
            let has = rank.lanes.connections[0].one_sided().is_some();
            (has && own == breaks) == broken
        });
        assert_eq!(broken, [true, true]);
    }
}

/// A device that follows a test's script.
#[derive(Default)]
struct Script(RefCell<Vec<AccessReport>>);

impl OneSided for Script {
    fn is_up(&self) -> bool {
        true
    }

    fn grant(&self, _: &MemoryExposure, _: &dyn Fn() -> AccessRights) -> Option<AccessGrant> {
        None
    }

    fn lend(&self, _: &Arc<MemoryExposure>) {}

    unsafe fn begin(&self, _: RemoteAccess) {}

    fn hear(&self, each: &mut dyn FnMut(AccessReport)) {
        self.0.borrow_mut().drain(..).for_each(each);
    }
}

/// Returns the messages whose packets may go, and whether their content goes with them.
fn due(placing: &mut DirectWrites) -> Vec<(u32, bool)> {
    let mut due = Vec::new();
    while let Some(DirectWrite { packet, access, .. }) = placing.next() {
        due.push((packet.number, access.is_none()));
    }
    due
}

#[test]
fn packets_go_in_order_and_behind_their_contents() {
    let (mut placing, device) = (DirectWrites::default(), Script::default());
    let message = |number, access| {
        let packet = ProxyPacket::of_pieces(PacketKind::Message, 0, 0, (number, 8));
        DirectWrite { flow: 0, packet, slot: 0, access }
    };
    let hear = |placing: &mut DirectWrites, news: &[AccessReport]| {
        device.0.borrow_mut().extend(news);
        placing.poll(&device);
    };
    // The third has no content that a device would write.
    placing.begun.extend([message(1, Some(1)), message(2, Some(2)), message(3, None)]);
    assert_eq!(due(&mut placing), [], "nothing is written yet");
    hear(&mut placing, &[AccessReport::Moved { id: 1, bytes: 4 }]);
    assert_eq!(due(&mut placing), [], "half of it is");
    hear(&mut placing, &[AccessReport::Done { id: 1 }]);
    assert_eq!(due(&mut placing), [(1, false)], "the third does not overtake the second");
    hear(&mut placing, &[AccessReport::Done { id: 2 }]);
    assert_eq!(due(&mut placing), [(2, false), (3, true)]);
    // What has no end when the queue fails goes by hosts; what was done before does not.
    placing.begun.extend([message(4, Some(3)), message(5, Some(4)), message(6, Some(5))]);
    hear(&mut placing, &[AccessReport::Done { id: 3 }, AccessReport::Failed { refused: false }]);
    assert_eq!(due(&mut placing), [(4, false), (5, true), (6, true)]);
    assert_eq!(placing.failures, 1);
}
