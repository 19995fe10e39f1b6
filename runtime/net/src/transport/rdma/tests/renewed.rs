//! Queues that fail, and new ones in their place.

use super::placed::lands_while;
use super::zero_copy::BufferRegistrant;
use super::*;
use crate::transport::rdma::connect::chosen;
use crate::transport::rdma::registrations::BLOCK;
use crate::tunables::RDMA_QUEUE_PAIRS;

/// The pause between tries.
const SOON: Duration = Duration::from_millis(20);

/// Connects two ends over all devices, which make queues anew after so long.
fn renewing(pause: Duration) -> Option<(RailStream, RailStream)> {
    let (mut a, mut b) = pair()?;
    a.renew_after(pause);
    b.renew_after(pause);
    Some((a, b))
}

/// Moves bytes both ways until that number of queues lives on both sides.
fn until_alive(a: &mut RailStream, b: &mut RailStream, count: usize) {
    let deadline = Instant::now() + LIMIT;
    while a.alive().len() != count || a.alive() != b.alive() {
        moves(a, b, 3 * PIECE, odd(1));
        moves(b, a, 3 * PIECE, odd(2));
        let said = (a.alive(), b.alive());
        assert!(Instant::now() < deadline, "{said:?} live");
    }
}

#[test]
fn in_the_place_of_a_queue_that_died_a_new_one_carries() {
    let Some((mut a, mut b)) = renewing(SOON) else { return };
    let count = a.rails();
    a.break_rail(1);
    moves(&mut a, &mut b, 1 << 20, odd(1));
    until_alive(&mut a, &mut b, count);
    assert_eq!((a.dead(), b.dead()), (vec![1], vec![1]), "the old one stays dead");
    let before = [a.delivered(count), b.delivered(count)];
    moves(&mut a, &mut b, 1 << 20, odd(3));
    moves(&mut b, &mut a, 1 << 20, odd(4));
    assert!(a.delivered(count) > before[0] && b.delivered(count) > before[1], "it carries");
    // A new one is no better than an old one.
    b.break_rail(count);
    moves(&mut b, &mut a, 1 << 20, odd(5));
    until_alive(&mut a, &mut b, count);
    assert_eq!((a.dead(), b.dead()), (vec![1, count], vec![1, count]));
}

#[test]
fn without_new_queues_a_dead_one_is_missing() {
    let Some((mut a, mut b)) = renewing(LIMIT) else { return };
    let count = a.rails();
    a.break_rail(1);
    for seed in 0..4 {
        moves(&mut a, &mut b, 1 << 20, odd(seed));
        moves(&mut b, &mut a, 1 << 20, odd(seed));
    }
    assert_eq!((a.rails(), a.alive().len(), b.alive().len()), (count, count - 1, count - 1));
}

/// Lets queues die at random, but never the last one: then the connection is lost.
fn dying(seed: u64) -> impl FnMut(&mut RailStream, &mut RailStream, usize) {
    let (mut random, mut next, mut killed) = (RandomNumbers(seed), 0, Vec::new());
    move |a, b, got| {
        // A death takes a while to be seen.
        let lives = |at: &usize| b.alive().contains(at) && !killed.contains(at);
        let both: Vec<usize> = a.alive().into_iter().filter(lives).collect();
        if got >= next && both.len() > 1 {
            next = got + random.next() % (400 << 10);
            let victim = both[random.next() % both.len()];
            killed.push(victim);
            if random.next().is_multiple_of(2) {
                a.break_rail(victim);
            } else {
                b.break_rail(victim);
            }
        }
    }
}

#[test]
fn queues_that_die_and_come_back_lose_and_repeat_nothing() {
    let mut renewed = 0;
    for seed in 0..6 {
        let Some((mut a, mut b)) = renewing(SOON / 10) else { return };
        let count = a.rails();
        (a.unruly, b.unruly) =
            (Some(CompletionShuffle::new(seed)), Some(CompletionShuffle::new(!seed)));
        moves_while((&mut a, &mut b), 6 << 20, odd(seed), dying(seed));
        renewed += a.rails().min(b.rails()) - count;
        moves(&mut b, &mut a, 1 << 20, odd(seed + 100));
    }
    assert!(renewed >= 12, "{renewed} came back");
}

#[test]
fn nor_does_what_is_sent_and_put_without_a_copy() {
    let (mut renewed, mut placed) = (0, 0);
    for seed in 0..4 {
        let Some((mut a, mut b)) = renewing(SOON / 10) else { return };
        let count = a.rails();
        let registrant = BufferRegistrant::new(4 * BLOCK as u64, u64::MAX);
        let (mut from, mut to) = (registrant.buffer(BLOCK), registrant.buffer(BLOCK));
        a.register(&registrant.registrations);
        b.register(&registrant.registrations);
        (a.unruly, b.unruly) =
            (Some(CompletionShuffle::new(seed)), Some(CompletionShuffle::new(!seed)));
        let (both, buffers) = ((&mut a, &mut b), (&mut from, &mut to));
        placed += lands_while(both, buffers, (6 << 20, seed), dying(seed));
        renewed += a.rails().min(b.rails()) - count;
    }
    assert!(placed > 0, "nothing was written where it was wanted");
    assert!(renewed >= 8, "{renewed} came back");
}

/// Makes both ends; some queues of the first get no answer.
fn half_found(
    lost: impl Fn(usize) -> bool,
) -> Option<Result<(RailStream, RailStream), ConnectionFault>> {
    let devices = chosen(&DeviceChoice::default()).unwrap_or_default();
    if devices.len() < 2 {
        roundelay_tests::skip(roundelay_tests::CheckNeeds::Rdma, "no two devices for RDMA");
        return None;
    }
    let end = || RailStream::new(&devices, (RDMA_QUEUE_PAIRS, false), None, DEPTH).expect("an end");
    let (mut a, mut b) = (end(), end());
    (0..a.rails()).filter(|&at| lost(at)).for_each(|at| a.misplace(at));
    let info = a.info();
    let connected = a.connect(&b.info());
    b.connect(&info).expect("all are found");
    Some(connected.map(|()| (a, b)))
}

#[test]
fn a_queue_that_finds_nobody_at_first_is_made_anew() {
    let Some(made) = half_found(|at| at == 0) else { return };
    let (mut a, mut b) = made.expect("another queue is answered");
    let count = a.rails();
    assert_eq!(a.alive().len(), count - RDMA_QUEUE_PAIRS, "no other queue of that device is tried");
    a.renew_after(SOON);
    b.renew_after(SOON);
    moves(&mut a, &mut b, 1 << 20, odd(1));
    moves(&mut b, &mut a, 1 << 20, odd(2));
    until_alive(&mut a, &mut b, count);
}

#[test]
fn where_no_queue_finds_anybody_there_is_no_connection() {
    let Some(made) = half_found(|_| true) else { return };
    let text = made.err().expect("no queue is answered").to_string();
    assert!(text.contains("connecting a queue pair on"), "{text}");
}
