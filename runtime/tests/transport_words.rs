//! Tests atomic operations on words of endpoints' regions: their results, refusals, and races of threads and processes.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::scene::{self, Job, say};
use crate::transport::{LONG, bind, connect, forged, leave, meet, pair, refusal, take, two, ways};
use roundelay::Error;
use roundelay::endpoint::{Endpoint, RegisteredRegion, RemoteRegion};
use roundelay::error::AccessRefusal;
use roundelay::transport::TransportSet;
use roundelay::window::WindowRights;

/// Changes of a peer in a race.
const CHANGES: u64 = 2000;

/// Returns the words of a region, as its owner reads them.
fn words<B>(region: &RegisteredRegion<B>) -> Vec<u64> {
    let mut own = vec![0; region.len()];
    region.read(0, &mut own).expect("its own");
    own.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect()
}

#[test]
fn words_are_changed_where_they_may_be() {
    for way in ways() {
        let (_a, b, to_b, _to_a) = pair(way);
        let region = b.register(vec![0u64, 10, 20], WindowRights::ALL).expect("a region");
        let there = to_b.region(&region.key()).expect("the key");
        assert!(there.rights().contains(WindowRights::ATOMICS));
        assert_eq!(there.fetch_add(5, 8), Ok(10));
        assert_eq!(there.fetch_add(u64::MAX, 8), Ok(15));
        assert_eq!(there.compare_swap(20, 21, 16), Ok(20));
        assert_eq!(there.compare_swap(20, 22, 16), Ok(21));
        // They see what this thread has written before, and what it reads afterwards has them.
        there.put(&[7u64], 0).expect("a write");
        assert_eq!(there.fetch_add(1, 0), Ok(7));
        let mut read = [0u64; 3];
        there.get(&mut read, 0).expect("a read");
        assert_eq!(read, [8, 14, 21]);

        let end = AccessRefusal::Bounds { bytes: 24 };
        for (at, refused) in [
            (1, AccessRefusal::Alignment { offset: 1 }),
            (12, AccessRefusal::Alignment { offset: 12 }),
            (17, end.clone()),
            (24, end.clone()),
            (u64::MAX - 7, end.clone()),
        ] {
            assert_eq!(refusal(there.fetch_add(1, at)), refused);
            assert_eq!(refusal(there.compare_swap(8, 9, at)), refused);
        }
        // A key that lies about the length is found out by the target.
        drop(there);
        let longer = forged(&to_b, &region.key(), |key| key[2] = u64::MAX);
        for at in [24, 1 << 62] {
            assert_eq!(refusal(longer.fetch_add(1, at)), end);
        }
        drop(longer);
        let other = forged(&to_b, &region.key(), |key| key[1] ^= 1);
        assert_eq!(refusal(other.compare_swap(8, 9, 0)), AccessRefusal::Gone);
        assert_eq!(words(&region), [8, 14, 21], "something was changed");
        let there = to_b.region(&region.key()).expect("the key");
        assert_eq!(region.revoke(), Ok(vec![8, 14, 21]));
        assert_eq!(refusal(there.fetch_add(1, 0)), AccessRefusal::Gone);
    }
}

#[test]
fn a_region_without_the_right_keeps_its_words() {
    for way in ways() {
        let (_a, b, to_b, _to_a) = pair(way);
        let rights = WindowRights::READ | WindowRights::WRITE;
        let region = b.register(vec![3u64; 4], rights).expect("a region");
        let lacks = AccessRefusal::Rights { needed: "atomics", has: "read + write".into() };
        let honest = to_b.region(&region.key()).expect("the key");
        assert_eq!(refusal(honest.fetch_add(1, 0)), lacks);
        drop(honest);
        let bold = || forged(&to_b, &region.key(), |key| key[3] = 7);
        assert_eq!(refusal(bold().fetch_add(1, 0)), lacks);
        assert_eq!(refusal(bold().compare_swap(3, 1, 8)), lacks);
        assert_eq!(region.revoke(), Ok(vec![3; 4]));
    }
}

#[test]
fn memory_whose_words_are_not_aligned_has_no_atomics() {
    let b = bind(TransportSet::SHM);
    let mut memory = vec![0u64; 4];
    let mut register = |at: usize, bytes: usize, rights| {
        let address = memory.as_mut_ptr().cast::<u8>().wrapping_add(at);
        // SAFETY: the bytes outlive the region, and nothing else accesses them.
        unsafe { b.register_at((address, bytes), rights, Box::new(())) }
    };
    for (at, bytes) in [(4, 8), (4, 16), (1, 20)] {
        let error = register(at, bytes, WindowRights::ALL).expect_err("its words are odd");
        assert!(matches!(error, Error::Usage(_)), "{error}");
        assert!(error.to_string().contains("begins at a multiple of 8 bytes"), "{error}");
    }
    // Memory without words, or without the right, may begin anywhere.
    let rights = WindowRights::READ | WindowRights::WRITE;
    for (at, bytes, rights) in
        [(8, 16, WindowRights::ALL), (4, 7, WindowRights::ALL), (4, 16, rights)]
    {
        register(at, bytes, rights).expect("a region");
    }
}

/// Adds to a word, and swaps another one from each value to the next; returns the values that it added to, and those
/// that it swapped.
fn race(there: &RemoteRegion) -> (Vec<u64>, Vec<u64>) {
    let (mut added, mut swapped) = (Vec::new(), Vec::new());
    for value in 0..CHANGES {
        added.push(there.fetch_add(1, 0).expect("an addition"));
        if there.compare_swap(value, value + 1, 8).expect("a swap") == value {
            swapped.push(value);
        }
    }
    (added, swapped)
}

#[test]
fn changes_of_several_peers_are_each_one_step() {
    /// The number that the owner adds, above the bits of all additions of the others.
    const OF_OWNER: u64 = 1 << 32;
    for way in ways() {
        let hub = bind(way);
        let region = hub.register(vec![0u64; 2], WindowRights::ALL).expect("a region");
        let peers: Vec<Endpoint> = (0..2).map(|_| bind(way)).collect();
        let links: Vec<_> = peers.iter().map(|peer| connect(peer, &hub)).collect();
        // Two threads of each of two peers, and the owner.
        let seen: Vec<_> = std::thread::scope(|scope| {
            let racers = links.iter().cycle().take(4).map(|(link, _)| {
                let there = link.region(&region.key()).expect("the key");
                scope.spawn(move || race(&there))
            });
            let racers: Vec<_> = racers.collect();
            // SAFETY: an aligned word of the region, which is accessed atomically alone.
            let word = unsafe { AtomicU64::from_ptr(region.as_mut_ptr().cast()) };
            (0..CHANGES).for_each(|_| {
                word.fetch_add(OF_OWNER, Ordering::Relaxed);
            });
            racers.into_iter().map(|racer| racer.join().expect("a thread")).collect()
        });
        let mut added: Vec<u64> =
            seen.iter().flat_map(|seen| &seen.0).map(|x| x % OF_OWNER).collect();
        added.sort_unstable();
        assert!(added.into_iter().eq(0..4 * CHANGES), "an addition was lost, or seen twice");
        let mut swapped: Vec<u64> = seen.iter().flat_map(|seen| &seen.1).copied().collect();
        swapped.sort_unstable();
        assert!(swapped.iter().copied().eq(0..swapped.len() as u64), "a swap has two winners");
        assert_eq!(words(&region), [4 * CHANGES + CHANGES * OF_OWNER, swapped.len() as u64]);
    }
}

// Two processes: one adds to its own word while the other one does.

fn run(scene: &str) -> Result<(), Error> {
    let (way, side) = (scene, std::env::var("ROUNDELAY_RANK").expect("a rank"));
    let way = ways().into_iter().find(|known| known.to_string() == way).expect("a way");
    let side: usize = side.parse().expect("a number");
    let (endpoint, link) = meet(side, way)?;
    let added = if side == 0 {
        let there = link.region(&take("key"))?;
        link.signal(1)?;
        let (added, swapped) = race(&there);
        assert!(swapped.into_iter().eq(0..CHANGES), "the owner does not swap");
        link.signal(2)?;
        assert_eq!(link.wait_signal(LONG)?, Some(3));
        added
    } else {
        let region = endpoint.register(vec![0u64; 2], WindowRights::ALL)?;
        leave("key", &region.key());
        assert_eq!(link.wait_signal(LONG)?, Some(1));
        // SAFETY: an aligned word of the region, which is accessed atomically alone.
        let word = unsafe { AtomicU64::from_ptr(region.as_mut_ptr().cast()) };
        let add = |_| word.fetch_add(1, Ordering::Relaxed);
        let added: Vec<u64> = (0..CHANGES).map(add).collect();
        assert_eq!(link.wait_signal(LONG)?, Some(2));
        link.signal(3)?;
        assert_eq!(region.revoke()?, [2 * CHANGES, CHANGES]);
        added
    };
    assert!(added.is_sorted_by(|before, after| before < after), "the word went back");
    say("each change was one step");
    Ok(())
}

#[test]
fn rank_process() {
    scene::rank(run);
}

#[test]
fn two_processes_change_a_word_at_once() {
    for way in ways() {
        let Job { outcome, said, .. } =
            two(module_path!(), &format!("words-{way}"), &way.to_string());
        assert!(outcome.cause.is_none(), "{way}: {outcome:?} {said:?}");
        assert!(said.iter().all(|said| said.iter().any(|s| s.contains("one step"))), "{said:?}");
    }
}
