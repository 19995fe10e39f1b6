//! Tests messages with tags: content, order, any source, beside calls, and everything that can be wrong.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::support::{everywhere, layout, patiently, run_ranks, threads};
use roundelay::launch::JobSetup;
use roundelay::message::{ReceiveSource, TaggedMessages};
use roundelay::transport::TransportSet;
use roundelay::{Communicator, Error, RedOp, WorkStatus};
use roundelay_dsl::diag::codes;
use roundelay_tests::{SeededRandom, runs_alone};

/// Returns the byte `i` of the message that one rank sends another.
fn byte(note: &Note, i: usize) -> u8 {
    ((note.from as usize * 31 + note.to as usize * 17 + note.index * 7 + i * 13) % 251) as u8
}

/// A message of the plan that all ranks know.
#[derive(Debug, Clone, Copy)]
struct Note {
    from: u32,
    to: u32,
    tag: u64,
    /// Its number among those of this tag.
    index: usize,
    len: usize,
}

/// Draws messages between all ranks, to themselves too.
fn notes(dice: &mut SeededRandom, ranks: u32, each: usize) -> Vec<Note> {
    let mut all: Vec<Note> = Vec::new();
    for from in 0..ranks {
        for to in 0..ranks {
            for _ in 0..dice.below(each + 1) {
                let tag = dice.below(3) as u64;
                let same = |n: &&Note| (n.from, n.to, n.tag) == (from, to, tag);
                let index = all.iter().filter(same).count();
                let len = [0, 1, 100, 8192, 8193, 65_537, 1_300_000][dice.below(7)];
                all.push(Note { from, to, tag, index, len });
            }
        }
    }
    all
}

fn shuffled<T>(mut list: Vec<T>, dice: &mut SeededRandom) -> Vec<T> {
    for at in (1..list.len()).rev() {
        list.swap(at, dice.below(at + 1));
    }
    list
}

/// Starts all messages of a rank in an order of its own, but for those with the same ends and the same tag, and checks
/// what comes.
fn exchange(messages: &TaggedMessages, rank: u32, notes: &[Note], dice: &mut SeededRandom) {
    let mut own: Vec<(Note, bool)> = Vec::new();
    let sends = notes.iter().filter(|n| n.from == rank).map(|&n| (n, true));
    let receives = notes.iter().filter(|n| n.to == rank).map(|&n| (n, false));
    for (note, is_send) in shuffled(sends.chain(receives).collect(), dice) {
        // Of several with the same ends and tag the first goes first.
        let same = |(n, s): &(Note, bool)| {
            (n.from, n.to, n.tag, *s) == (note.from, note.to, note.tag, is_send)
        };
        let index = own.iter().filter(|other| same(other)).count();
        let first = notes
            .iter()
            .find(|n| (n.from, n.to, n.tag, n.index) == (note.from, note.to, note.tag, index));
        own.push((*first.expect("a message of that number"), is_send));
    }
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for (note, is_send) in own {
        if is_send {
            let data: Vec<u8> = (0..note.len).map(|i| byte(&note, i)).collect();
            sent.push(messages.send_async(data, note.to, note.tag).expect("a send"));
        } else {
            let place = vec![255u8; note.len];
            let receive = messages.recv_async(place, note.from, note.tag).expect("a receive");
            received.push((note, receive));
        }
    }
    for (note, receive) in shuffled(received, dice) {
        let (data, delivered) = receive.wait().unwrap_or_else(|e| panic!("{note:?}: {e}"));
        assert_eq!((delivered.source, delivered.tag), (note.from, note.tag));
        assert_eq!(delivered.bytes, note.len as u64);
        let right = (0..).zip(&data).all(|(i, &x)| x == byte(&note, i));
        assert!(right && data.len() == note.len, "{note:?} has another content");
    }
    for send in sent {
        send.wait().expect("what was received was sent");
    }
}

#[test]
fn messages_arrive_in_whatever_order_they_are_started() {
    for seed in 0..6 {
        everywhere(4, 64 << 10, |comm, r| {
            let notes = notes(&mut SeededRandom(seed), comm.size(), 4);
            let messages = comm.messages().expect("messages");
            exchange(&messages, r as u32, &notes, &mut SeededRandom(1000 * (seed + 1) + r as u64));
            comm.barrier().expect("all have received");
        });
    }
}

#[test]
fn connections_are_made_when_messages_need_them_and_only_then() {
    let lazy = |_| JobSetup::new().transports(TransportSet::TCP).lazy(true).slot_bytes(64 << 10);
    let ranks = Communicator::local_over(4, lazy).expect("the ranks join");
    run_ranks(ranks, |comm, r| {
        let before = comm.resources().expect("figures").made;
        let messages = comm.messages().expect("messages");
        match r {
            0 => messages.send(&[1u8], 3, 0).expect("a send"),
            3 => assert_eq!(messages.recv(&mut [0u8], 0, 0).expect("a receive").source, 0),
            _ => {}
        }
        let made = comm.resources().expect("figures").made - before;
        assert_eq!(made, u64::from(r == 0), "rank {r}: the lower rank connects");
        let notes = notes(&mut SeededRandom(5), comm.size(), 3);
        exchange(&messages, r as u32, &notes, &mut SeededRandom(r as u64));
        comm.barrier().expect("all have received");
    });
}

#[test]
fn a_receive_from_any_rank_takes_one_message_of_each() {
    everywhere(4, 64 << 10, |comm, r| {
        let (n, messages) = (comm.size(), comm.messages().expect("messages"));
        for round in 0..20u64 {
            let len = if round % 2 == 0 { 4 } else { 60_000 };
            if r == 0 {
                let mut seen = vec![false; n as usize];
                for _ in 1..n {
                    let mut data = vec![u32::MAX; len];
                    let got =
                        messages.recv(&mut data, ReceiveSource::Any, round).expect("a message");
                    assert!(data.iter().all(|&x| x == got.source), "round {round}: {got:?}");
                    assert!(!std::mem::replace(&mut seen[got.source as usize], true));
                }
                assert_eq!(seen, [false, true, true, true]);
            } else {
                messages.send(&vec![r as u32; len], 0, round).expect("a send");
            }
        }
    });
}

#[test]
fn messages_move_beside_calls_and_between_threads() {
    everywhere(3, 64 << 10, |comm, r| {
        let (n, messages) = (comm.size(), comm.messages().expect("messages"));
        let (left, right) = ((r as u32 + n - 1) % n, (r as u32 + 1) % n);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let messages = messages.clone();
                scope.spawn(move || {
                    for round in 0..30u64 {
                        let tag = 100 * thread + round % 7;
                        let len = [3, 5000, 50_000][(round % 3) as usize];
                        let place = vec![0u64; len];
                        let receive = messages.recv_async(place, left, tag).expect("a receive");
                        let data = vec![tag + round; len];
                        messages.send(&data, right, tag).expect("a send");
                        let (data, _) = receive.wait().expect("a message");
                        assert!(data.iter().all(|&x| x == tag + round));
                    }
                });
            }
            for _ in 0..100 {
                let mut data = [1.0f32; 1000];
                comm.all_reduce(&mut data, RedOp::Sum).expect("a call");
                assert_eq!(data, [3.0; 1000]);
            }
        });
    });
}

#[test]
fn a_long_send_ends_while_its_rank_makes_calls() {
    everywhere(2, 64 << 10, |comm, r| {
        let messages = comm.messages().expect("messages");
        // Rank 1 comes to the call only when it has received.
        let pending = match r {
            0 => Some(messages.send_async(vec![7u8; 3 << 20], 1, 0).expect("a send")),
            _ => {
                let mut data = vec![0u8; 3 << 20];
                messages.recv(&mut data, 0, 0).expect("it comes while rank 0 waits in a call");
                assert!(data.iter().all(|&x| x == 7));
                None
            }
        };
        comm.barrier().expect("a call");
        pending.map(|send| send.wait().expect("it was received"));
    });
}

#[test]
fn callbacks_are_called_once_and_see_the_end() {
    everywhere(2, 64 << 10, |comm, r| {
        let messages = comm.messages().expect("messages");
        let (notify, notified) = channel();
        let other = 1 - r as u32;
        let receive = messages.recv_async(vec![0u8; 200_000], other, 9).expect("a receive");
        receive.on_completion(move |status| notify.send(status).expect("a receiver"));
        assert_eq!(receive.status(), WorkStatus::InProgress);
        comm.barrier().expect("no message before it");
        let send = messages.send_async(vec![1u8; 200_000], other, 9).expect("a send");
        // No thread waits for either: the progress thread drives them.
        let status =
            notified.recv_timeout(Duration::from_secs(20)).expect("a call of the callback");
        assert_eq!(status, WorkStatus::Completed);
        assert!(notified.try_recv().is_err(), "it was called once");
        let (late, was) = channel();
        receive.on_completion(move |status| late.send(status).expect("a receiver"));
        assert_eq!(was.try_recv(), Ok(WorkStatus::Completed), "at once, on this thread");
        send.wait().expect("it was received");
    });
}

#[test]
fn what_was_sent_is_there_after_its_sender_has_left() {
    let kinds: [fn(u32) -> JobSetup; 2] =
        [|_| JobSetup::new(), |_| JobSetup::new().transports(TransportSet::TCP)];
    for setup in kinds {
        let ranks = Communicator::local_over(2, setup).expect("the ranks join");
        let (left, has_left) = channel();
        let (left, has_left) = (std::sync::Mutex::new(left), std::sync::Mutex::new(has_left));
        std::thread::scope(|scope| {
            for mut comm in ranks {
                let (left, has_left) = (&left, &has_left);
                scope.spawn(move || {
                    let messages = comm.messages().expect("messages");
                    // Connections are made when both ranks want one.
                    match comm.rank() {
                        0 => messages.send(&[0u8], 1, 50).expect("a send"),
                        _ => drop(messages.recv(&mut [1u8], 0, 50).expect("a receive")),
                    }
                    if comm.rank() == 0 {
                        for tag in 0..3 {
                            let sent = messages.send_async(vec![tag as u8; 1000], 1, tag);
                            drop(sent.expect("a send"));
                        }
                        drop(comm);
                        left.lock().expect("one").send(()).expect("a receiver");
                        let refused = messages.send(&[1u8], 1, 0).expect_err("it has ended");
                        assert!(matches!(refused, Error::Usage(_)), "{refused}");
                        return;
                    }
                    has_left.lock().expect("one").recv().expect("rank 0 leaves");
                    for tag in (0..3).rev() {
                        let mut data = [255u8; 1000];
                        messages.recv(&mut data, 0, tag).expect("it was sent");
                        assert_eq!(data, [tag as u8; 1000]);
                    }
                    let began = Instant::now();
                    let lost = messages.recv(&mut [0u8], 0, 99).expect_err("no rank sends it");
                    assert_eq!(lost.code(), codes::LOST_RANK, "{lost}");
                    assert!(lost.to_string().contains("rank 0 with tag 99"), "{lost}");
                    assert!(began.elapsed() < Duration::from_secs(10));
                });
            }
        });
    }
}

#[test]
fn a_receive_of_another_length_or_type_is_an_error_on_both_ranks() {
    let outcomes = everywhere(2, 64 << 10, |comm, r| {
        let messages = comm.messages().expect("messages");
        match r {
            0 => {
                messages.send(&[1.0f32; 50_000], 1, 3).expect_err("rank 1 asks for something else")
            }
            _ => {
                messages.recv(&mut [0u32; 50_000], 0, 3).map(drop).expect_err("rank 0 sends floats")
            }
        }
    });
    for outcome in outcomes {
        assert_eq!(outcome[1].code(), codes::PLAN_MISMATCH);
        for error in outcome {
            let text = error.to_string();
            assert!(text.contains("f32") && text.contains("u32"), "{text}");
            assert!(text.contains("tag 3"), "{text}");
        }
    }
}

#[test]
fn a_timeout_names_the_tag_and_what_is_there_instead() {
    patiently(|timeout| {
        let wrong = everywhere(2, 64 << 10, |comm, r| {
            comm.set_timeout(timeout);
            let messages = comm.messages().expect("messages");
            if r == 0 {
                messages.send(&[1u8], 1, 4).expect("short messages need no receive");
                let mut data = [0u8];
                let error = messages.recv(&mut data, 1, 1).expect_err("no rank sends it");
                return matches!(error, Error::Timeout { .. } | Error::Aborted { .. })
                    .then_some(String::new())
                    .unwrap_or(error.to_string());
            }
            let error = messages.recv(&mut [0u8], 0, 5).expect_err("the tag is another");
            let text = error.to_string();
            let expected = match &error {
                Error::Timeout { peer: 0, after, .. } => {
                    *after == timeout
                        && text.contains("a message from rank 0 with tag 5")
                        && text.contains("there are messages with tag 4 from rank 0")
                }
                // Rank 0 gave up first.
                Error::Aborted { .. } => text.contains("from rank 1 with tag 1"),
                _ => false,
            };
            if expected { String::new() } else { text }
        });
        match wrong.into_iter().flatten().find(|text| !text.is_empty()) {
            None => Ok(()),
            Some(text) => Err(text),
        }
    });
}

#[test]
fn after_an_error_and_of_nobody_there_are_no_messages() {
    let both_wait = std::sync::Barrier::new(2);
    threads(layout(2, 4096), |comm, r| {
        let messages = comm.messages().expect("messages");
        let refused = messages.send(&[0u8], 2, 0).expect_err("there is no rank 2");
        assert!(refused.to_string().contains("the ranks are 0 to 1"), "{refused}");
        let never = messages.clone().with_timeout(Duration::ZERO);
        assert!(never.recv(&mut [0u8], 0, 0).is_err(), "no time at all");
        comm.barrier().expect("these were no errors that end a job");
        let abort = comm.abort_handle();
        let pending = messages.recv_async(vec![0u8], 1 - r as u32, 0).expect("a receive");
        both_wait.wait();
        if r == 0 {
            abort.abort("enough");
        }
        let error = pending.wait().expect_err("rank 0 ended it");
        assert!(error.to_string().contains("enough"), "{error}");
        let refused = messages.send(&[0u8], 1 - r as u32, 0).expect_err("it has failed");
        assert!(matches!(refused, Error::Usage(_) | Error::Aborted { .. }), "{refused}");
    });
}

#[test]
fn the_thread_of_messages_ends_when_it_has_nothing_to_do() {
    // Threads of this process are counted by name.
    if !runs_alone(module_path!(), "the_thread_of_messages_ends_when_it_has_nothing_to_do") {
        return;
    }
    threads(layout(9, 4096), |comm, r| {
        if r < 8 {
            return;
        }
        let messages = comm.messages().expect("messages");
        let pending = messages.recv_async(vec![0u8; 3], 8, 0).expect("a receive");
        let named = || {
            let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
            let names =
                tasks.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
            names.filter(|name| name.starts_with("roundelay-m8")).count()
        };
        let limit = Duration::from_secs(20);
        roundelay_tests::until(limit, || "no thread".into(), || named() > 0);
        messages.send(&[1u8, 2, 3], 8, 0).expect("a send to itself");
        assert_eq!(pending.wait().expect("it came").0, [1, 2, 3]);
        roundelay_tests::until(limit, || "the thread stays".into(), || named() == 0);
    });
}

/// Messages by the ten thousand wait for their receives, more than may be offered in a row once were.
#[test]
fn many_messages_wait_at_once() {
    const COUNT: u64 = 70_000;
    threads(layout(2, 64 << 10), |comm, r| {
        let messages = comm.messages().expect("messages");
        if r == 0 {
            let start = |tag| messages.send_async(vec![tag as u32], 1, tag).expect("a send");
            let sends: Vec<_> = (0..COUNT).map(start).collect();
            comm.barrier().expect("a barrier");
            for send in sends {
                send.wait().expect("its end");
            }
            return;
        }
        // All are there before one is received.
        comm.barrier().expect("a barrier");
        for tag in (0..COUNT).rev() {
            let mut data = [0u32];
            messages.recv(&mut data, 0, tag).expect("a message");
            assert_eq!(u64::from(data[0]), tag);
        }
    });
}

#[test]
fn a_receive_does_not_time_out_while_its_connection_moves() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    everywhere(2, 64 << 10, |comm, r| {
        comm.set_timeout(TIMEOUT);
        let messages = comm.messages().expect("messages");
        if r == 0 {
            let last = messages.recv_async(vec![0u8], 1, 1000).expect("a receive");
            let mut goes_on = [1u8];
            while goes_on == [1] {
                messages.recv(&mut goes_on, 1, 1).expect("a message");
                messages.send(&[0u8], 1, 2).expect("an answer");
            }
            assert_eq!(last.wait().expect("the last one").0, [9]);
            return;
        }
        // One after the other, for twice the timeout.
        let start = Instant::now();
        let mut goes_on = true;
        while goes_on {
            goes_on = start.elapsed() < 2 * TIMEOUT;
            messages.send(&[u8::from(goes_on)], 0, 1).expect("a send");
            messages.recv(&mut [0u8], 0, 2).expect("an answer");
        }
        messages.send(&[9u8], 0, 1000).expect("a send");
    });
}
