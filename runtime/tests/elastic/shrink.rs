//! Ranks that go on with those that are left, without a list of them.

use std::time::Duration;

use roundelay::{Communicator, Error, Hints, RedOp};

use crate::elastic::{ALL, FOREVER, Over, calls, each, said};

/// The longest wait for a rank that is gone without a sign of it.
const SHORT: Duration = Duration::from_secs(2);

fn sum(comm: &mut Communicator) -> Result<u32, Error> {
    let mut x = [1u32 << comm.rank()];
    comm.all_reduce(&mut x, RedOp::Sum).map(|()| x[0])
}

/// Has all ranks fail, since some are no longer there.
fn fail(ranks: &mut [Communicator]) {
    for error in each(ranks, |comm, _| sum(comm)) {
        error.expect_err("a rank is gone");
    }
}

/// Takes away the ranks for which `ends` is true.
fn without(ranks: Vec<Communicator>, ends: impl Fn(u32) -> bool) -> Vec<Communicator> {
    ranks.into_iter().filter(|comm| !ends(comm.rank())).collect()
}

#[test]
fn the_ranks_that_are_left_go_on() {
    for over in ALL {
        // The first ends, and then another: 4 of 5 and 3 of 4 are more than half, whatever is known.
        let mut ranks = without(over.ranks(5), |rank| rank == 0);
        fail(&mut ranks);
        for made in each(&mut ranks, |comm, _| comm.shrink(FOREVER)) {
            made.unwrap_or_else(|error| panic!("{over:?}: {error}"));
        }
        let sizes: Vec<_> = ranks.iter().map(|comm| (comm.rank(), comm.size())).collect();
        assert_eq!(sizes, [(0, 4), (1, 4), (2, 4), (3, 4)], "{over:?}");
        calls(&mut ranks);
        let mut ranks = without(ranks, |rank| rank == 2);
        fail(&mut ranks);
        for made in each(&mut ranks, |comm, _| comm.shrink(FOREVER)) {
            made.unwrap_or_else(|error| panic!("{over:?}: {error}"));
        }
        calls(&mut ranks);
    }
}

#[test]
fn a_hint_has_the_next_call_go_on() {
    for over in ALL {
        let mut ranks = over.ranks(4);
        for comm in &mut ranks {
            comm.set_hints(Hints::from_pairs([("on_failure", "shrink")]).expect("a hint"))
                .expect("hints");
        }
        let mut ranks = without(ranks, |rank| rank == 1);
        fail(&mut ranks);
        for made in each(&mut ranks, |comm, _| sum(comm)) {
            // The call began when there were four, and each gave the bit of its number then.
            assert_eq!(
                made.unwrap_or_else(|error| panic!("{over:?}: {error}")),
                0b1101,
                "{over:?}"
            );
        }
        for made in each(&mut ranks, |comm, _| sum(comm)) {
            assert_eq!(made.expect("a sum"), 0b111);
        }
        assert!(ranks.iter_mut().all(|comm| comm.generation() == 1));
    }
}

#[test]
fn an_error_stays_one_without_the_hint() {
    let mut ranks = without(Over::Memory.ranks(3), |rank| rank == 1);
    fail(&mut ranks);
    for again in each(&mut ranks, |comm, _| sum(comm)) {
        assert!(said(again).contains("cannot be used after an error"));
    }
}

#[test]
fn nobody_goes_on_after_an_abort_on_purpose() {
    let mut ranks = Over::Memory.ranks(2);
    for comm in &mut ranks {
        comm.set_hints(Hints::from_pairs([("on_failure", "shrink")]).expect("a hint"))
            .expect("hints");
    }
    ranks[0].abort_handle().abort("the user said so");
    fail(&mut ranks);
    for again in each(&mut ranks, |comm, _| sum(comm)) {
        assert!(said(again).contains("cannot be used after an error"));
    }
}

#[test]
fn in_memory_one_of_two_goes_on_and_through_sockets_it_does_not() {
    for (over, ends) in [(Over::Memory, 0), (Over::Memory, 1), (Over::Joined, 0), (Over::Joined, 1)]
    {
        let mut ranks = without(over.ranks(2), |rank| rank == ends);
        fail(&mut ranks);
        ranks[0].shrink(FOREVER).unwrap_or_else(|error| panic!("{over:?}: {error}"));
        assert_eq!((ranks[0].rank(), ranks[0].size()), (0, 1), "{over:?}");
        assert_eq!(sum(&mut ranks[0]).expect("a sum"), 1);
    }
    // It cannot know whether the lowest has ended, or goes on without it.
    let mut ranks = without(Over::Tcp.ranks(2), |rank| rank == 0);
    fail(&mut ranks);
    let text = said(ranks[0].shrink(SHORT));
    assert!(text.contains("[1] came") && text.contains("[0] neither came"), "{text}");
}

#[test]
fn half_of_the_ranks_go_on_only_with_the_lowest() {
    let mut halves = [Over::Tcp.ranks(4), Over::Tcp.ranks(4)];
    for (at, ranks) in halves.iter_mut().enumerate() {
        let mut left = without(std::mem::take(ranks), |rank| (rank < 2) == (at == 1));
        fail(&mut left);
        let made = each(&mut left, |comm, _| comm.shrink(SHORT));
        match at {
            0 => made.into_iter().for_each(|made| made.expect("with rank 0")),
            _ => made.into_iter().for_each(|made| {
                let text = said(made);
                assert!(text.contains("cannot go on with those that are left"), "{text}");
            }),
        }
    }
}

#[test]
fn a_rank_that_comes_too_late_is_left_out() {
    for over in ALL {
        let mut ranks = over.ranks(4);
        // It is there, and does not call for a while.
        let mut late = ranks.pop().expect("a rank");
        for comm in &mut ranks {
            comm.set_timeout(SHORT);
        }
        fail(&mut ranks);
        for made in each(&mut ranks, |comm, _| comm.shrink(SHORT)) {
            made.unwrap_or_else(|error| panic!("{over:?}: {error}"));
        }
        ranks.iter_mut().for_each(|comm| comm.set_timeout(FOREVER));
        assert_eq!(ranks[0].size(), 3, "{over:?}");
        let text = said(late.shrink(SHORT));
        assert!(text.contains("was left out") || text.contains("[3] came"), "{over:?}: {text}");
        calls(&mut ranks);
    }
}
