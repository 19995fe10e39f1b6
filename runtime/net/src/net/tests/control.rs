//! Tests words, alarms, deaths and goodbyes.

use std::sync::atomic::{AtomicBool, Ordering};

use roundelay_dsl::diag::codes;

use super::*;

#[test]
fn another_call_is_told_by_all() {
    for size in [2, 3, 5, 8] {
        let odd = size - 1;
        let found = ranks(size, |mut net| {
            check_words(&mut net, 1);
            let tag = if net.rank == odd { 77 } else { 78 };
            words(&mut net, 0, tag)
        });
        for (rank, found) in (0..).zip(found) {
            let peer = if rank == odd { 0 } else { odd };
            assert_eq!(found, Err(WordMismatch { peer }), "rank {rank} of {size}");
        }
    }
}

#[test]
fn ranks_may_be_a_round_ahead() {
    ranks(5, |mut net| {
        for round in 1..200 {
            if (round + u64::from(net.rank)) % 7 == 0 {
                std::thread::yield_now();
            }
            check_words(&mut net, round);
        }
    });
}

#[test]
fn what_is_missing_is_named() {
    let has_looked = AtomicBool::new(false);
    ranks(2, |mut net| {
        if net.rank == 0 {
            net.begin_words(0, 1);
            assert_eq!(net.poll_words(), None);
            assert_eq!(net.awaited_words(), Some(1));
            has_looked.store(true, Ordering::Relaxed);
            until(&mut net, |net| net.poll_words().map(|all| assert_eq!(all, Ok(&[0, 5][..]))));
            assert_eq!(net.awaited_words(), None);
            return;
        }
        until(&mut net, |_| has_looked.load(Ordering::Relaxed).then_some(()));
        assert_eq!(words(&mut net, 5, 1), Ok(vec![0, 5]));
    });
}

#[test]
fn a_reported_call_is_compared_with_the_own_one_of_that_number() {
    for size in [2, 3, 8] {
        ranks(size, |mut net| {
            check_words(&mut net, 1);
            match net.rank {
                1 => net.report_call(7, 5),
                0 => {
                    let other =
                        |net: &mut RankNetwork| net.other_call(|call| (call == 7).then_some(6));
                    assert_eq!(until(&mut net, other), (1, 7));
                    assert_eq!(net.other_call(|_| Some(5)), None, "it is the same call");
                    assert_eq!(net.other_call(|_| None), None, "this rank has not come there");
                }
                _ => {}
            }
            check_words(&mut net, 2);
        });
    }
}

#[test]
fn an_alarm_reaches_everybody() {
    for size in [2, 3, 8, 11] {
        ranks(size, |mut net| {
            let cause =
                AbortRecord { code: codes::TIMEOUT, rank: 1, text: "out of patience".into() };
            check_words(&mut net, 1);
            if net.rank == 1 {
                let long = AbortRecord { text: format!("{}é", "x".repeat(2047)), ..cause.clone() };
                net.alarm(&cause);
                net.alarm(&long);
            }
            let alarm = until(&mut net, |net| net.alarmed().cloned());
            assert_eq!(alarm, cause);
            // A rank that waits for connections stops too.
            let next = (net.rank + 1) % size;
            let error = open(&mut net, &[(next, 0)]);
            let text = error.expect_err("stopped").to_string();
            assert!(text.contains("rank 1 failed: out of patience"), "{text}");
        });
    }
}

#[test]
fn a_long_text_is_cut() {
    ranks(2, |mut net| {
        let text = "é".repeat(5000);
        net.alarm(&AbortRecord { code: codes::MEMORY, rank: net.rank, text });
        let alarm = until(&mut net, |net| net.alarmed().cloned());
        assert_eq!((alarm.code, alarm.text.len()), (codes::MEMORY, 2048));
    });
}

#[test]
fn a_death_is_known_to_everybody() {
    ranks(11, |mut net| {
        check_words(&mut net, 1);
        if net.rank == 4 {
            return; // Closes everything, without a goodbye.
        }
        let how = until(&mut net, |net| net.gone(4).map(str::to_owned));
        assert!(
            ["it closed its connection", "its connection was reset"].contains(&how.as_str()),
            "{how}"
        );
        assert_eq!(net.gone(net.rank), None);
        let error = open(&mut net, &[(4, 0)]).expect_err("gone");
        assert!(matches!(error, Error::LostRank { lost: 4, .. }), "{error}");
        // No rank goes before all have seen it.
        net.leave();
    });
}

/// An end that one rank saw reaches all ranks, before an alarm for it.
#[test]
fn an_end_that_one_rank_saw_is_known_to_everybody() {
    for size in [2, 3, 8, 11] {
        ranks(size, |mut net| {
            check_words(&mut net, 1);
            if net.rank == 0 {
                return;
            }
            if net.rank == 1 {
                // It passes nothing on any more.
                until(&mut net, |net| net.gone(0).map(drop));
                net.report_ended(0, "its process 17 no longer exists");
                net.report_ended(0, "again");
                net.alarm(&AbortRecord { code: codes::LOST_RANK, rank: 0, text: "lost".into() });
            }
            let known = until(&mut net, |net| {
                net.alarmed().map(|_| (net.ended(0).is_some(), net.gone(0).is_some()))
            });
            assert_eq!(known, (true, true), "rank {} of {size}", net.rank);
            assert!(net.ended(0).is_some_and(|how| how.ends_with("17 no longer exists")));
            assert_eq!((net.ended(1), net.ended(net.rank)), (None, None));
            net.leave();
        });
    }
}

#[test]
fn a_goodbye_is_no_death() {
    ranks(3, |mut net| {
        check_words(&mut net, 1);
        if net.rank == 2 {
            net.leave();
            return;
        }
        let how = until(&mut net, |net| net.gone(2).map(str::to_owned));
        assert_eq!(how, "it left the job");
        assert_eq!(net.alarmed(), None);
        let error = open(&mut net, &[(2, 0)]).expect_err("gone");
        assert_eq!(error.to_string(), "rank 2 is gone: it left the job");
        // The others go on with each other.
        let mut streams: Vec<(u32, u16, std::net::TcpStream)> = vec![];
        let peer = 1 - net.rank;
        let made = open(&mut net, &[(peer, 1)]).expect("opened");
        streams.extend(made.into_iter().map(|fd| (peer, 1, fd.into())));
        check_streams(net.rank, &mut streams);
    });
}

#[test]
fn words_before_a_goodbye_count() {
    for _ in 0..20 {
        ranks(5, |mut net| {
            check_words(&mut net, 1);
            net.leave();
            assert_eq!(net.counts().links, 0);
        });
    }
}

#[test]
fn a_rank_that_dies_while_joining_is_told() {
    // Rank 3 leaves its endpoint and is never seen again.
    let store = memory();
    let errors: Vec<String> = std::thread::scope(|scope| {
        let spawn = |rank: u32| {
            let mut store = store.of(rank);
            scope.spawn(move || {
                let options = PathOptions { timeout: Duration::from_secs(12), ..options() };
                let listener =
                    Arc::new(RankListener::open(options, store.address()).expect("opened"));
                if rank == 3 {
                    store.get("net/7/job", soon()).expect("the job");
                    let endpoint = EndpointAddress {
                        addresses: vec![listener.address()],
                        host: 1,
                        pid: 1,
                        note: Vec::new(),
                    };
                    let endpoint = postcard::to_stdvec(&endpoint).expect("encoded");
                    store.set("net/7/endpoint/3", &endpoint).expect("left");
                    return String::new();
                }
                let net = RankNetwork::join(rank, 4, 7, listener, &mut store, vec![]);
                net.err().expect("rank 3 is gone").to_string()
            })
        };
        let threads: Vec<_> = (0..4).map(spawn).collect();
        threads.into_iter().map(|t| t.join().expect("a rank panicked")).collect()
    });
    for error in &errors[..3] {
        assert!(error.contains("cannot connect to rank 3 at 127.0.0.1"), "{errors:?}");
    }
}
