//! Tests joining, splitting and opening connections.

use std::os::fd::AsFd;

use rustix::fs::OFlags;
use rustix::io::FdFlags;

use super::*;
use crate::tunables::ENDPOINT_NOTE_BYTES;

#[test]
fn all_join_and_know_each_other() {
    for size in [1, 2, 3, 5, 8, 13] {
        ranks(size, |mut net| {
            let rank = net.rank;
            let notes: Vec<String> = net
                .endpoints()
                .iter()
                .map(|endpoint| String::from_utf8_lossy(&endpoint.note).into_owned())
                .collect();
            let expected: Vec<String> = (0..size).map(|rank| format!("note {rank}")).collect();
            assert_eq!(notes, expected);
            let endpoint = &net.endpoints()[rank as usize];
            assert_eq!(endpoint.pid, std::process::id());
            assert_eq!(endpoint.addresses, [net.listener.address()]);
            assert!(endpoint.addresses.iter().all(|a| a.ip().is_loopback()));
            assert!(net.endpoints().iter().all(|other| other.host == endpoint.host));
            for round in 1..30 {
                check_words(&mut net, round);
            }
            let counts = net.counts();
            assert_eq!(counts.store, if size == 1 { 0 } else { 3 });
            assert_eq!(counts.links, overlay::neighbours(rank, size).len() as u64);
            assert_eq!(counts.made + counts.accepted, counts.links);
            assert_eq!((counts.refused, size == 1), (0, counts.bytes_in == 0));
            net.leave();
        });
    }
}

#[test]
fn ipv6_is_as_good() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return; // This host has no IPv6.
    }
    let store = InProcessStore::at("::1".parse().expect("an address"));
    let all = each_rank(
        3,
        &store,
        |_| with_secret("swordfish"),
        |mut net| {
            assert!(net.endpoints().iter().all(|endpoint| endpoint.addresses[0].is_ipv6()));
            let mut streams = open_all(&mut net, 2);
            check_streams(net.rank, &mut streams);
            check_words(&mut net, 1);
        },
    );
    assert_eq!(all, [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn an_interface_can_be_chosen() {
    let choices = ["lo", "127.0.0.0/8", "127.0.0.1"];
    let options = |rank: u32| PathOptions {
        interface: Some(choices[rank as usize].into()),
        host_label: Some(format!("host {}", rank / 2)),
        ..options()
    };
    // The store sees another address than the one that is asked for.
    let store = InProcessStore::at("192.0.2.1".parse().expect("an address"));
    let all = each_rank(3, &store, options, |net| {
        let at: Vec<IpAddr> =
            net.endpoints().iter().map(|endpoint| endpoint.addresses[0].ip()).collect();
        assert!(at.iter().all(IpAddr::is_loopback), "{at:?}");
        let host = |rank: usize| net.endpoints()[rank].host;
        assert!(host(0) == host(1) && host(1) != host(2));
    });
    assert_eq!(all, [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn an_address_of_another_host_is_an_error() {
    let error = RankListener::open(options(), "192.0.2.1".parse().expect("an address")).err();
    let text = error.expect("not ours").to_string();
    assert!(text.contains("192.0.2.1") && text.contains("interface"), "{text}");
}

#[test]
fn connections_lead_where_they_say() {
    for size in [2, 3, 5] {
        ranks(size, |mut net| {
            let mut streams = open_all(&mut net, 3);
            for (_, _, stream) in &streams {
                let fd = stream.as_fd();
                assert!(rustix::fs::fcntl_getfl(fd).expect("flags").contains(OFlags::NONBLOCK));
                assert!(rustix::io::fcntl_getfd(fd).expect("flags").contains(FdFlags::CLOEXEC));
                assert!(stream.nodelay().expect("an option"));
                assert!(rustix::net::sockopt::socket_keepalive(fd).expect("an option"));
            }
            check_streams(net.rank, &mut streams);
            // Others can follow at any time.
            let peer = (net.rank + 1) % size;
            let last = (net.rank + size - 1) % size;
            let both = if peer == last { vec![(peer, 9)] } else { vec![(peer, 9), (last, 9)] };
            let made = open(&mut net, &both).expect("opened");
            assert_eq!(made.len(), both.len());
            check_words(&mut net, 1);
        });
    }
}

#[test]
fn no_order_of_calls_blocks() {
    ranks(5, |mut net| {
        let (rank, size) = (net.rank, 5);
        let mut streams = Vec::new();
        // Each rank begins with another peer, and waits for each alone.
        for step in 1..size {
            let peer = (rank + step) % size;
            let made = open(&mut net, &[(peer, 0)]).expect("opened");
            streams.extend(made.into_iter().map(|fd| (peer, 0, fd.into())));
        }
        check_words(&mut net, 1);
        check_streams(rank, &mut streams);
    });
}

#[test]
fn wrong_arguments_are_told() {
    let mut store = memory();
    let listener = Arc::new(RankListener::open(options(), store.address()).expect("opened"));
    let mut join = |rank, size, note| {
        let error = RankNetwork::join(rank, size, 7, listener.clone(), &mut store, note).err();
        error.expect("refused").to_string()
    };
    assert!(join(2, 2, vec![]).contains("rank 2 does not exist"));
    assert!(join(0, 0, vec![]).contains("rank 0 does not exist"));
    assert!(join(0, 2, vec![0; ENDPOINT_NOTE_BYTES + 1]).contains("4097 bytes"));
    ranks(2, |mut net| {
        let (rank, peer) = (net.rank, 1 - net.rank);
        let mut open =
            |wanted: &[(u32, u16)]| open(&mut net, wanted).expect_err("refused").to_string();
        assert!(open(&[(rank, 0)]).contains("cannot connect to rank"));
        assert!(open(&[(2, 0)]).contains("cannot connect to rank 2 of 2"));
        assert!(open(&[(peer, 4), (peer, 4)]).contains("asks twice"));
        let split =
            |members: &[u32], at| net.part(8, members, at).err().expect("refused").to_string();
        assert!(split(&[0, 1, 0], 0).contains("rank 0 is named twice"));
        assert!(split(&[0, 1, 2], rank).contains("rank 2 does not exist"));
        assert!(split(&[peer], 0).contains("is not the member at place 0"));
        assert!(split(&[], 0).contains("is not the member at place 0"));
    });
}

#[test]
fn who_does_not_come_is_named() {
    // Rank 1 is the first to give up, however late it begins.
    let short = Duration::from_millis(400);
    let options = |rank| match rank {
        1 => PathOptions { timeout: short, ..options() },
        _ => options(),
    };
    let store = memory();
    let errors: Vec<String> = std::thread::scope(|scope| {
        let spawn = |rank| {
            let mut store = store.of(rank);
            scope.spawn(move || {
                let listener = RankListener::open(options(rank), store.address()).expect("opened");
                let net = RankNetwork::join(rank, 3, 7, Arc::new(listener), &mut store, vec![]);
                net.err().expect("rank 2 is missing").to_string()
            })
        };
        let threads = [spawn(0), spawn(1)];
        threads.into_iter().map(|t| t.join().expect("a rank panicked")).collect()
    });
    assert!(errors[1].contains("rank 1 waited for rank 2 to join"), "{errors:?}");
    // Rank 0 gets it from the store.
    let is_notified =
        errors[0].starts_with("rank 0 stopped because rank 1 failed: rank 1 waited for rank 2");
    assert!(is_notified, "{errors:?}");
}

#[test]
fn an_expected_connection_that_does_not_come_is_named() {
    ranks(2, |mut net| {
        let moment = Duration::from_millis(100);
        if net.rank == 1 {
            let deadline = |watch| WaitPolicy { timeout: moment, watch, members: &[] };
            let error = net
                .open(&[ConnectionId { peer: 0, channel: 3, path: 0 }], deadline(&mut |_| None))
                .expect_err("no rank connects");
            let text = error.to_string();
            assert!(text.contains("a connection from rank 0 to 127.0.0.1"), "{text}");
            assert!(matches!(error, Error::Timeout { peer: 0, .. }), "{error:?}");
            let enough = |peer| Error::Usage(format!("enough of rank {peer}"));
            let deadline = WaitPolicy {
                timeout: PATIENCE,
                watch: &mut |peer| Some(enough(peer)),
                members: &[70, 71],
            };
            let error = net
                .open(&[ConnectionId { peer: 0, channel: 3, path: 0 }], deadline)
                .expect_err("stopped");
            assert_eq!(error, enough(70));
        }
        check_words(&mut net, 1);
    });
}

#[test]
fn a_split_is_a_job_of_its_own() {
    ranks(6, |mut net| {
        let rank = net.rank;
        // Odd and even ranks; the odd ones in descending order.
        let members = if rank % 2 == 0 { [0, 2, 4] } else { [5, 3, 1] };
        let at = members.iter().position(|m| *m == rank).expect("a member") as u32;
        let mut half = split(&net, 20 + u64::from(rank % 2), &members, at).expect("split");
        assert_eq!((half.rank, half.endpoints().len()), (at, 3));
        for (endpoint, member) in half.endpoints().iter().zip(members) {
            assert_eq!(endpoint, &net.endpoints()[member as usize]);
        }
        check_words(&mut half, 1);
        check_words(&mut net, 1);
        // And again, inside it: two of three.
        if at < 2 {
            let mut pair = split(&half, 30 + u64::from(rank % 2), &[1, 0], 1 - at).expect("split");
            check_words(&mut pair, 5);
            let mut streams = open_all(&mut pair, 2);
            check_streams(pair.rank, &mut streams);
            let mut alone = split(&pair, 1000 + u64::from(rank), &[1 - at], 0).expect("split");
            check_words(&mut alone, 1);
            pair.leave();
        }
        let mut streams = open_all(&mut half, 1);
        check_streams(half.rank, &mut streams);
        check_words(&mut half, 2);
        // Two at a time, with the same members.
        let mut again = split(&net, 40, &[0, 1, 2, 3, 4, 5], rank).expect("split");
        check_words(&mut again, 9);
        check_words(&mut net, 2);
        assert_eq!(net.counts().store, 3);
    });
}

#[test]
fn threads_share_a_door() {
    ranks(3, |net| {
        let all = [2, 0, 1];
        let at = all.iter().position(|m| *m == net.rank).expect("a member") as u32;
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let part = |id| net.part(100 * thread + id, &all, at).expect("a part");
                let parts: Vec<RankNetwork> = (0..10).map(part).collect();
                scope.spawn(move || {
                    for part in parts {
                        let mut part = meet(part, &all, at).expect("split");
                        let mut streams = open_all(&mut part, 2);
                        check_streams(part.rank, &mut streams);
                        check_words(&mut part, 1);
                        part.leave();
                    }
                });
            }
        });
    });
}

#[test]
fn a_part_opens_no_connection_that_the_whole_has() {
    ranks(12, |mut net| {
        let whole = overlay::neighbours(net.rank, 12);
        for (id, members) in
            [(5, vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]), (6, vec![3, 6, 0, 9, 7])]
        {
            let Some(at) = members.iter().position(|m| *m == net.rank) else { continue };
            let mut part = split(&net, id, &members, at as u32).expect("split");
            let peers = overlay::neighbours(part.rank, part.size).into_iter();
            let new = peers.filter(|&peer| !whole.contains(&members[peer as usize])).count() as u64;
            assert!(id == 6 || new == 0);
            let counts = part.counts();
            assert_eq!((counts.made + counts.accepted, counts.links), (new, new), "{members:?}");
            // A part of a part has the links of both.
            let mut inner = split(&part, id + 10, &[0, 1], at as u32);
            if let Ok(inner) = &mut inner {
                assert_eq!((inner.counts().made + inner.counts().accepted, at < 2), (0, true));
                check_words(inner, 3);
            }
            check_words(&mut part, 1);
            part.leave();
            // One that goes on without the part that it is of.
            if let Ok(inner) = &mut inner {
                check_words(inner, 4);
            }
        }
        check_words(&mut net, 2);
    });
}

#[test]
fn members_of_a_split_must_agree() {
    ranks(3, |mut net| {
        let rank = net.rank;
        if rank < 2 {
            let members = [rank, 1 - rank];
            let text = split(&net, 8, &members, 0).err().expect("refused").to_string();
            assert!(text.contains("do not split alike"), "{text}");
        }
        check_words(&mut net, 1);
    });
}

/// Runs in a process of its own, where no other test opens descriptors.
#[test]
fn splits_leave_no_descriptors() {
    if !roundelay_tests::runs_alone(module_path!(), "splits_leave_no_descriptors") {
        return;
    }
    let held = || std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    let before = held();
    ranks(3, |mut net| {
        let all: Vec<u32> = (0..3).collect();
        check_words(&mut net, 1);
        let joined = held();
        for id in 100..300 {
            let mut part = split(&net, id, &all, net.rank).expect("split");
            let made = open(&mut part, &[((net.rank + 1) % 3, 0), ((net.rank + 2) % 3, 0)]);
            assert_eq!(made.expect("opened").len(), 2);
            check_words(&mut part, 1);
            part.leave();
        }
        check_words(&mut net, 2);
        if net.rank == 0 {
            assert!(held() <= joined, "{} descriptors, {joined} before", held());
        }
        check_words(&mut net, 3);
    });
    assert_eq!(held(), before);
}
