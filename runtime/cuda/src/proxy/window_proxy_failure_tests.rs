//! Windows of device memory between hosts fail: parts, devices, ranks and kernels go wrong, and each rank learns why.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use roundelay_dsl::diag::codes;
use roundelay_engine::tunables::DEVICE_GET_BYTES;

use super::emulated::KernelExit;
use super::tests::{PATIENCE, sees_the_end};
use super::window_proxy::WindowTarget;
use super::window_proxy_tests::{BYTES, hosts};
use roundelay_engine::messages::{MessageBuffer as Memory, MessageShape, TransferKind};
use roundelay_engine::window::{AtomicFetch, ServedPart, WindowRights};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::{AccessRefusal, Error};

/// Operations that pass by the checks of the origin are refused where the part is, and nothing is written.
#[test]
fn a_part_on_a_device_is_checked_by_its_own_process() {
    type Lie = (&'static str, fn(&ServedPart) -> ServedPart, u64, usize);
    let longer: fn(&ServedPart) -> ServedPart =
        |remote| ServedPart::new(remote.peer(), remote.key(), u64::MAX, WindowRights::ALL);
    let other: fn(&ServedPart) -> ServedPart =
        |remote| ServedPart::new(remote.peer(), remote.key() ^ 1, u64::MAX, WindowRights::ALL);
    let same: fn(&ServedPart) -> ServedPart =
        |remote| ServedPart::new(remote.peer(), remote.key(), BYTES as u64, WindowRights::ALL);
    let end = BYTES as u64;
    let lies: [Lie; 8] = [
        ("put", longer, end - 8, 16),
        ("put", longer, end - 8, 1 << 20),
        ("put", longer, u64::MAX - 7, 8),
        ("put", other, 0, 16),
        ("get", longer, end - 8, 16),
        ("get", other, 0, 16),
        ("add", longer, end, 8),
        ("add", same, 4, 8),
    ];
    for (what, lie, offset, len) in lies {
        let ends = hosts(2, |executor| {
            if executor.rank.core.rank() == 1 {
                sees_the_end(executor.rank.core);
                assert!(executor.content().iter().all(|&byte| byte == 0), "something was written");
                return None;
            }
            let to = executor.to(1);
            let to = WindowTarget { remote: Arc::new(lie(&to.remote)), ..to };
            // The messages of a rank know parts by their keys.
            executor
                .rank
                .core
                .messenger()
                .serve_window(0, None, vec![to.remote.clone()], &[1])
                .expect("a connection");
            let mut data = vec![7u8; len];
            let at = data.as_mut_ptr().expose_provenance() as u64;
            let ordered = executor.order(|courier, steps| match what {
                "put" => {
                    courier.put(steps, &to, (offset, at, len as u64))?;
                    courier.flush(steps, &to)
                }
                "get" => courier.get(steps, &to, (offset, at, len as u64)),
                _ => courier.fetch(steps, &to, (offset, at, AtomicFetch::Add(1))),
            });
            ordered.expect("in the stream");
            assert_eq!(executor.run(), Err(KernelExit::Aborted), "{what} at {offset}");
            assert!(data.iter().all(|&byte| byte == 7), "something was got");
            executor.rank.lanes.failure()
        });
        let Some(Error::Window { rank: 0, what: said, refusal }) = &ends[0] else {
            panic!("{what} at {offset}: {:?}", ends[0]);
        };
        assert!(said.contains("rank 1"), "{said}");
        match offset {
            0 => assert_eq!(*refusal, AccessRefusal::Gone),
            4 => assert_eq!(*refusal, AccessRefusal::Alignment { offset }),
            _ => assert_eq!(*refusal, AccessRefusal::Bounds { bytes: end }),
        }
    }
}

/// A device refuses what no stream asks for too: more than is kept at once, and accumulates.
#[test]
fn what_a_device_does_not_do_is_refused() {
    hosts(2, |executor| {
        if executor.rank.core.rank() == 0 {
            let (messenger, remote) = (executor.rank.core.messenger(), executor.to(1).remote);
            let forged = |what: TransferKind, bytes: u64| {
                let mut data = vec![7u8; bytes as usize];
                let shape = MessageShape { dtype: DType::U8, bytes };
                let place = Memory { address: data.as_mut_ptr(), shape };
                // SAFETY: the bytes are there until it has ended.
                let operation = unsafe { messenger.operate(what, place, 1, (0, PATIENCE), None) }
                    .expect("begun");
                assert!(messenger.wait(&operation, None));
                operation.result().expect("it has ended").map(drop)
            };
            let long = forged(TransferKind::Get(remote.key()), DEVICE_GET_BYTES + 8);
            let bounds = AccessRefusal::Bounds { bytes: DEVICE_GET_BYTES };
            assert!(matches!(long, Err(Error::Window { refusal, .. }) if refusal == bounds));
            forged(TransferKind::Get(remote.key()), DEVICE_GET_BYTES)
                .expect("as much as is kept at once");
            forged(TransferKind::Accumulate(remote.key(), RedOp::Sum), 8).expect("handed over");
            forged(TransferKind::Flush(remote.key()), 0).expect("an answer");
            assert!(matches!(remote.take_refusal(), Some((0, AccessRefusal::Elements(_)))));
        }
        executor.all_here();
        assert!(executor.content().iter().all(|&byte| byte == 0), "something was written");
    });
}

#[test]
fn a_device_that_hangs_is_named_in_time() {
    let ends = hosts(2, |executor| {
        if executor.rank.core.rank() == 1 {
            executor.hangs.store(true, Ordering::Release);
            executor.all_here();
            // The thread that serves waits for the device.
            let since = Instant::now();
            while executor.rank.core.hear(None).is_ok() && since.elapsed() < PATIENCE {}
            executor.hangs.store(false, Ordering::Release);
            return None;
        }
        executor.all_here();
        executor.timeout = Duration::from_millis(200);
        let since = Instant::now();
        let mut result = 5;
        executor.fetch(1, 0, AtomicFetch::Add(1), &mut result);
        assert_eq!(executor.run(), Err(KernelExit::Aborted));
        assert_eq!(result, 5);
        assert!(since.elapsed() < PATIENCE / 4, "{:?}", since.elapsed());
        executor.rank.lanes.failure()
    });
    let Some(Error::Timeout { location, awaited, peer: 1, .. }) = &ends[0] else {
        panic!("{:?}", ends[0]);
    };
    assert_eq!(awaited, "rank 1 to serve its window (fetch_add)");
    assert!(location.text.contains("of the part of rank 1"), "{location:?}");
}

/// A rank that has left serves nothing; a rank that waits for it fails with its loss.
#[test]
fn a_rank_that_is_gone_is_named() {
    let ends = hosts(2, |executor| {
        executor.all_here();
        if executor.rank.core.rank() == 1 {
            return None;
        }
        // Until it has left.
        let mut result = 5;
        let failed = (0..).find_map(|_| {
            executor.fetch(1, 0, AtomicFetch::Add(0), &mut result);
            executor.run().err()
        });
        assert_eq!(failed, Some(KernelExit::Aborted));
        // The group may see it before the lanes do.
        let own = executor.rank.lanes.failure();
        Some(own.unwrap_or_else(|| executor.rank.core.group.aborted(None)))
    });
    let code = ends[0].as_ref().map(Error::code);
    let text = ends[0].as_ref().map(Error::to_string).unwrap_or_default();
    assert!(code == Some(codes::LOST_RANK) && text.contains("rank 1"), "{text}");
}

/// A peer that has ended its window refuses what is yet put there.
#[test]
fn a_window_that_its_owner_has_ended_is_gone() {
    let ends = hosts(2, |executor| {
        if executor.rank.core.rank() == 1 {
            executor.beyond.end(false);
            executor.all_here();
            sees_the_end(executor.rank.core);
            return None;
        }
        executor.all_here();
        executor.put(1, 0, &[7; 100]);
        executor.flush(1);
        assert_eq!(executor.run(), Err(KernelExit::Aborted));
        executor.rank.lanes.failure()
    });
    let gone = matches!(&ends[0], Some(Error::Window { refusal: AccessRefusal::Gone, .. }));
    assert!(gone, "{:?}", ends[0]);
}

/// Nothing of what stands behind a kernel that has given up reaches a peer.
#[test]
fn nothing_goes_behind_a_kernel_that_gave_up() {
    let signalled = |gives_up: bool| {
        let ends = hosts(2, |executor| {
            if executor.rank.core.rank() == 0 {
                executor.gave_up.store(gives_up, Ordering::Release);
                executor.put(1, 0, &[7; 100]);
                executor.signal(1);
                executor.run().expect("nothing to wait for");
            }
            let until = Instant::now() + Duration::from_millis(if gives_up { 300 } else { 60_000 });
            let came = &executor.state.1[0];
            while executor.rank.core.rank() == 1
                && came.load(Ordering::Acquire) == 0
                && Instant::now() < until
            {
                std::thread::yield_now();
            }
            let is_signalled = came.load(Ordering::Acquire) > 0;
            executor.all_here();
            executor.rank.lanes.stop();
            is_signalled
        });
        ends[1]
    };
    assert!(signalled(false));
    assert!(!signalled(true));
}
