//! Accesses to memory of the other end, which does nothing meanwhile.

use super::*;
use crate::transport::one_sided::{AccessGrant, AccessReport, AccessRights, RemoteAccess};
use crate::transport::rdma::exposure::MemoryExposure;

const ALL: AccessRights = AccessRights { read: true, write: true };

/// Memory that the other end exposes.
struct ExposedMemory {
    bytes: Vec<u8>,
    exposure: MemoryExposure,
}

impl ExposedMemory {
    fn new(len: usize) -> ExposedMemory {
        let mut bytes = vec![0xee; len];
        // SAFETY: the bytes stay where they are, and are dropped after the exposure was cleared.
        let exposure = unsafe { MemoryExposure::new(bytes.as_mut_ptr(), len as u64) };
        ExposedMemory { bytes, exposure }
    }

    fn grant(&self, by: &RailStream, may: AccessRights) -> AccessGrant {
        by.grant(&self.exposure, &|| may).expect("a device registers the memory")
    }

    /// Returns a part of what is there, which devices may have written.
    fn seen(&self, at: usize, len: usize) -> Vec<u8> {
        let from = std::hint::black_box(self.bytes.as_ptr()).wrapping_add(at);
        // SAFETY: inside, and nothing is written now.
        unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
    }
}

impl Drop for ExposedMemory {
    fn drop(&mut self) {
        self.exposure.clear();
    }
}

fn pair() -> Option<(RailStream, RailStream)> {
    pair_of(usize::MAX, true, DEPTH)
}

/// Begins to put, or to get, at an offset of what was granted.
fn begin(
    a: &mut RailStream,
    (id, reads): (u64, bool),
    grant: AccessGrant,
    at: u64,
    memory: &mut [u8],
) {
    let (there, len) = (grant.address + at, memory.len() as u64);
    let access = RemoteAccess { id, reads, here: memory.as_mut_ptr(), there, key: grant.key, len };
    // SAFETY: the memory is kept until the completion was reported, below.
    unsafe { a.begin_access(access) };
}

/// Waits for the end of an access, or for the failure of all: then the other end must look after the stream too.
fn end(a: &mut RailStream, id: u64, mut other: Option<&mut RailStream>) -> AccessReport {
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut last = None;
        a.report_accesses(&mut |news| {
            let is_end = match news {
                AccessReport::Moved { .. } => false,
                AccessReport::Done { id: its } => its == id,
                AccessReport::Failed { .. } => true,
            };
            last = last.or(Some(news).filter(|_| is_end));
        });
        if let Some(news) = last {
            return news;
        }
        other.iter_mut().for_each(|other| {
            other.settle();
        });
        assert!(Instant::now() < deadline, "no end: {}", a.state());
    }
}

#[test]
fn puts_and_gets_need_nothing_of_the_other_end() {
    let Some((mut a, b)) = pair() else { return };
    let exposed = ExposedMemory::new(3 << 20);
    let grant = exposed.grant(&b, ALL);
    let mut id = 0;
    for len in [1, 7, 8, 192, 193, 4096, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, (1 << 20) + 5] {
        for at in [0, 3, (1 << 20) + 8] {
            let mut data = bytes(len as u64 + at, len);
            let behind = exposed.seen(at as usize + len, 1);
            begin(&mut a, (id + 1, false), grant, at, &mut data);
            let mut got = vec![0; len];
            // Sees what was put just before.
            begin(&mut a, (id + 2, true), grant, at, &mut got);
            id += 2;
            assert_eq!(end(&mut a, id, None), AccessReport::Done { id });
            assert_eq!(got, data, "{len} bytes at {at}");
            assert_eq!(exposed.seen(at as usize, len), data, "{len} bytes at {at}");
            assert_eq!(exposed.seen(at as usize + len, 1), behind, "and nothing else");
        }
    }
    assert_eq!((a.trouble(), b.trouble()), (None, None));
}

#[test]
fn accesses_take_effect_in_their_order() {
    let Some((mut a, b)) = pair() else { return };
    let exposed = ExposedMemory::new(1 << 20);
    let grant = exposed.grant(&b, ALL);
    let mut puts: Vec<Vec<u8>> = (0..40u8).map(|i| vec![i; 100_000]).collect();
    let mut gets: Vec<Vec<u8>> = vec![vec![99; 100_000]; 40];
    for (i, (put, get)) in (0u64..).zip(puts.iter_mut().zip(&mut gets)) {
        begin(&mut a, (2 * i, false), grant, 500, put);
        // A put that comes later is not to be seen.
        begin(&mut a, (2 * i + 1, true), grant, 500, get);
    }
    assert_eq!(end(&mut a, 79, None), AccessReport::Done { id: 79 });
    for (i, get) in (0..).zip(&gets) {
        assert!(get.iter().all(|&byte| byte == i), "put {i}");
    }
}

/// Has an access refused, and sees that nothing was written, and that the stream carries on.
fn refused(
    a: &mut RailStream,
    b: &mut RailStream,
    exposed: &ExposedMemory,
    (grant, at): (AccessGrant, u64),
    reads: bool,
) {
    let before = exposed.seen(0, exposed.bytes.len());
    let mut data = vec![7; 5000];
    let mut more = vec![7; 100];
    begin(a, (1, reads), grant, at, &mut data);
    begin(a, (2, false), exposed.grant(b, ALL), 0, &mut more);
    assert_eq!(end(a, 2, Some(&mut *b)), AccessReport::Failed { refused: true });
    assert!(data.iter().all(|&byte| byte == 7), "nothing was read");
    assert_eq!(
        exposed.seen(0, before.len()),
        before,
        "nothing was written, nor by what came later"
    );
    moves(a, b, 1 << 20, odd(at));
    assert_eq!((a.trouble(), b.trouble()), (None, None));
}

#[test]
fn what_was_not_granted_is_refused_and_costs_no_message() {
    let reader = AccessRights { read: true, write: false };
    let writer = AccessRights { read: false, write: true };
    for case in 0..6 {
        let Some((mut a, mut b)) = pair() else { return };
        let exposed = ExposedMemory::new(10_000);
        let grant = exposed.grant(&b, ALL);
        let (access, reads) = match case {
            // A key that was never granted, and places before and behind the memory.
            0 => ((AccessGrant { key: grant.key ^ 0x5a00, ..grant }, 0), false),
            1 => ((AccessGrant { address: grant.address - 8, ..grant }, 0), false),
            2 => ((grant, 5001), true),
            3 => ((exposed.grant(&b, reader), 0), false),
            4 => ((exposed.grant(&b, writer), 0), true),
            // One that was taken back.
            _ => {
                exposed.exposure.clear();
                ((grant, 0), false)
            }
        };
        refused(&mut a, &mut b, &exposed, access, reads);
    }
}

#[test]
fn after_a_refusal_a_new_queue_is_made() {
    let Some((mut a, mut b)) = pair() else { return };
    [&mut a, &mut b].into_iter().for_each(|end| end.renew_after(Duration::from_millis(10)));
    let exposed = ExposedMemory::new(10_000);
    let grant = exposed.grant(&b, ALL);
    let count = a.rails();
    refused(&mut a, &mut b, &exposed, (AccessGrant { key: grant.key ^ 0x5a00, ..grant }, 0), false);
    let deadline = Instant::now() + LIMIT;
    while !(a.rails() > count && a.takes_accesses() && b.takes_accesses()) {
        a.settle();
        b.settle();
        assert!(Instant::now() < deadline, "no new queue: {}\n{}", a.state(), b.state());
    }
    let mut data = bytes(5, 5000);
    begin(&mut a, (9, false), grant, 100, &mut data);
    assert_eq!(end(&mut a, 9, None), AccessReport::Done { id: 9 });
    assert_eq!(exposed.seen(100, 5000), data);
}

#[test]
fn what_a_queue_has_not_done_when_it_dies_has_failed() {
    for turn in 0..4 {
        let Some((mut a, mut b)) = pair() else { return };
        [&mut a, &mut b].into_iter().for_each(|end| end.renew_after(LIMIT));
        // More than can be on its way at once, many times over.
        const LEN: usize = 24 << 20;
        let exposed = ExposedMemory::new(LEN);
        let grant = exposed.grant(&b, ALL);
        let mut data = vec![1; LEN];
        begin(&mut a, (1, turn % 2 == 1), grant, 0, &mut data);
        for _ in 0..turn {
            a.report_accesses(&mut |news| {
                assert!(matches!(news, AccessReport::Moved { .. }), "too soon");
            });
        }
        let last = a.rails() - 1;
        let breaks = if turn < 2 { &mut a } else { &mut b };
        breaks.break_rail(last);
        let ended = end(&mut a, 1, Some(&mut b));
        let failed = AccessReport::Failed { refused: false };
        assert_eq!(ended, failed);
        assert!(!a.takes_accesses(), "its queue is gone");
        // At once, since nothing could move it.
        let mut more = vec![1; 10];
        begin(&mut a, (2, false), grant, 0, &mut more);
        assert_eq!(end(&mut a, 2, None), failed);
        moves(&mut a, &mut b, 1 << 20, odd(turn));
    }
}
