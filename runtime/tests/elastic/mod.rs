//! Tests communicators that live on with other ranks: threads here, processes that are killed in `kill`.

mod kill;
mod shrink;
use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::support::{contribution, total};
use roundelay::launch::{JobSetup, RankHandles};
use roundelay::transport::TransportSet;
use roundelay::{Algorithm, Communicator, DType, Error, HeldResources, RedOp};

/// No test comes near it unless something hangs.
const FOREVER: Duration = Duration::from_secs(60);

/// The links between the ranks of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    /// In one memory from the start, without a socket.
    Memory,
    /// In one memory, after they joined through sockets.
    Joined,
    Tcp,
    /// Two hosts.
    Mixed,
}

const ALL: [Over; 4] = [Over::Memory, Over::Joined, Over::Tcp, Over::Mixed];

impl Over {
    fn setup(self, rank: u32) -> JobSetup {
        match self {
            Over::Memory | Over::Joined => JobSetup::new(),
            Over::Tcp => JobSetup::new().transports(TransportSet::TCP),
            Over::Mixed => JobSetup::new().host_label(format!("host {}", rank % 2)),
        }
    }

    fn ranks(self, ranks: u32) -> Vec<Communicator> {
        let made = match self {
            Over::Memory => Communicator::local(ranks),
            _ => Communicator::local_over(ranks, |rank| self.setup(rank)),
        };
        made.expect("the ranks join")
    }

    fn newcomer(self, rank: u32) -> Communicator {
        Communicator::alone(&self.setup(rank)).expect("a rank alone")
    }
}

/// Has every rank do something at the same time.
fn each<T: Send>(
    ranks: &mut [Communicator],
    body: impl Fn(&mut Communicator, usize) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let ranks = ranks.iter_mut().enumerate();
        let threads: Vec<_> = ranks.map(|(at, comm)| scope.spawn(move || body(comm, at))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a rank")).collect()
    })
}

fn handles(ranks: &mut [Communicator]) -> Vec<String> {
    ranks.iter_mut().map(|comm| comm.handle().expect("a handle")).collect()
}

/// Makes these ranks a generation, in this order.
fn list(id: &str, ranks: &mut [Communicator]) {
    let handles = handles(ranks);
    for (at, made) in
        each(ranks, |comm, _| comm.reconfigure(id, RankHandles::List(&handles), FOREVER))
            .into_iter()
            .enumerate()
    {
        made.unwrap_or_else(|error| panic!("rank {at}: {error}"));
    }
    for (rank, comm) in ranks.iter().enumerate() {
        assert_eq!((comm.rank() as usize, comm.size() as usize), (rank, handles.len()));
    }
    calls(ranks);
}

/// Compares calls of all kinds with what they must give.
fn calls(ranks: &mut [Communicator]) {
    let n = ranks.len();
    each(ranks, |comm, _| {
        let rank = comm.rank() as usize;
        for (salt, count) in [1, 2, 1000, 300_000].into_iter().enumerate() {
            let fill = |x: &mut [f32]| {
                (0..count).for_each(|i| x[i] = contribution(rank, i, salt));
            };
            let is_sum = |x: &[f32]| (0..count).all(|i| x[i] == total(n, i, salt));
            let mut private = vec![f32::NAN; count];
            fill(&mut private);
            comm.all_reduce(&mut private, RedOp::Sum).expect("a sum");
            assert!(is_sum(&private), "rank {rank} of {n}, {count} elements");
            let mut shared = comm.alloc::<f32>(count).expect("a buffer");
            fill(&mut shared);
            let work = comm.start(move |comm| {
                comm.all_reduce(&mut shared, RedOp::Sum)?;
                Ok(shared)
            });
            assert!(is_sum(&work.wait().expect("a sum in the background")), "{count} elements");
        }
        let mut all = vec![u32::MAX; n];
        comm.all_gather(&mut all, &[rank as u32 * 3]).expect("a gather");
        assert!(all.iter().zip(0u32..).all(|(&x, r)| x == r * 3), "{all:?}");
        let messages = comm.messages().expect("messages");
        let (next, before) = ((rank + 1) % n, (rank + n - 1) % n);
        let pending = messages.recv_async(vec![0u64; 5], before as u32, 1).expect("a receive");
        messages.send(&[rank as u64; 5], next as u32, 1).expect("a send");
        assert_eq!(pending.wait().expect("a message").0, [before as u64; 5]);
        comm.barrier().expect("a barrier");
    });
}

fn said<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.expect_err("it cannot succeed").to_string()
}

#[test]
fn ranks_stay_leave_and_come() {
    for over in ALL {
        let mut ranks = over.ranks(4);
        calls(&mut ranks);
        list("the same again", &mut ranks);
        // One leaves, and the others are numbered anew.
        drop(ranks.remove(1));
        ranks.rotate_right(1);
        list("three", &mut ranks);
        // Two come, one before the survivors.
        ranks.insert(0, over.newcomer(5));
        ranks.push(over.newcomer(6));
        list("five", &mut ranks);
        // Two leave and one comes, again and again.
        for round in 0..3 {
            ranks.truncate(3);
            ranks.insert(round, over.newcomer(round as u32));
            list(&format!("round {round}"), &mut ranks);
        }
        assert_eq!(ranks[3].generation(), 6, "{over:?}");
        ranks.truncate(1);
        list("alone", &mut ranks);
    }
}

/// Ranks that share memory agree there; connections are for newcomers, and for ranks of other hosts.
#[test]
fn survivors_of_one_memory_make_no_connections() {
    let counts = |ranks: &mut [Communicator], of: fn(&HeldResources) -> u64| {
        each(ranks, |comm, _| of(&comm.resources().expect("resources")))
    };
    let connections = |r: &HeldResources| r.made + r.accepted;
    for over in [Over::Memory, Over::Joined] {
        let mut ranks = over.ranks(5);
        list("the same again", &mut ranks);
        assert_eq!(counts(&mut ranks, connections), [0; 5], "{over:?}");
        drop(ranks.remove(2));
        ranks.rotate_left(1);
        list("without one", &mut ranks);
        assert_eq!(counts(&mut ranks, connections), [0; 4], "{over:?}");
        assert!(counts(&mut ranks, |r| r.control_bytes).iter().all(|&bytes| bytes > 0));
        ranks.push(over.newcomer(5));
        list("with a newcomer", &mut ranks);
        assert_eq!(counts(&mut ranks, connections), [1, 1, 1, 1, 4], "{over:?}");
        list("it is one of them", &mut ranks);
        assert_eq!(counts(&mut ranks, connections), [0; 5], "{over:?}");
    }
    let mut ranks = Over::Mixed.ranks(4);
    assert_eq!(counts(&mut ranks, |r| r.control_links), [3; 4]);
    for round in 0..3 {
        list(&format!("round {round}"), &mut ranks);
        assert_eq!(counts(&mut ranks, |r| r.control_links), [2; 4], "one shares its memory");
    }
    // Who ends is missed by all, over whichever links.
    drop(ranks.remove(0));
    for error in each(&mut ranks, |comm, _| said(comm.barrier())) {
        assert!(error.contains("rank 0"), "{error}");
    }
}

#[test]
fn a_set_is_numbered_alike_by_all() {
    for over in [Over::Memory, Over::Tcp] {
        let mut old = over.ranks(3);
        list("older", &mut old);
        let handles_of = handles(&mut old);
        let mut ranks = vec![over.newcomer(0), old.remove(2), old.remove(0), over.newcomer(1)];
        let mut handles = handles(&mut ranks);
        assert_eq!(handles[2], handles_of[0], "a handle stays until it is used");
        let turns = |comm: &mut Communicator, at: usize| {
            let mut mine = handles.clone();
            mine.rotate_left(at);
            comm.reconfigure("a set", RankHandles::Set(&mine), FOREVER)
        };
        each(&mut ranks, turns).into_iter().for_each(|made| made.expect("a generation"));
        // Survivors first, in their order.
        assert_eq!((ranks[2].rank(), ranks[1].rank()), (0, 1));
        ranks.sort_by_key(Communicator::rank);
        assert!(ranks.iter().zip(0..).all(|(comm, rank)| comm.rank() == rank));
        calls(&mut ranks);
        handles.clear();
        // The one that is left out hears of it, and does not wait for its deadline.
        let error = said(old[0].barrier());
        assert!(error.contains("went on to a new generation"), "{error}");
    }
}

#[test]
fn communicators_merge_and_parts_live_on() {
    for over in [Over::Joined, Over::Tcp, Over::Mixed] {
        let (mut ranks, mut others) = (over.ranks(3), over.ranks(2));
        ranks.append(&mut others);
        list("merged", &mut ranks);
        // A part, which the whole outlives.
        let parts = each(&mut ranks, |comm, at| {
            let part = if at % 2 == 0 { vec![4, 0, 2] } else { vec![1, 3] };
            comm.split(&part).expect("a split").expect("a part")
        });
        let (mut even, mut odd) = (Vec::new(), Vec::new());
        for (at, part) in parts.into_iter().enumerate() {
            if at % 2 == 0 { even.push(part) } else { odd.push(part) }
        }
        even.push(over.newcomer(0));
        list("the part and one more", &mut even);
        even.append(&mut odd);
        list("all parts", &mut even);
        calls(&mut ranks);
    }
}

#[test]
fn a_communicator_lives_on_after_an_abort() {
    for over in ALL {
        let mut ranks = over.ranks(3);
        let abort = ranks[0].abort_handle();
        each(&mut ranks, |comm, at| {
            let waits = comm.start(|comm| comm.barrier());
            if at == 0 {
                abort.abort("the test wishes so");
            }
            let _ = waits.wait();
        });
        assert!(each(&mut ranks, |comm, _| comm.barrier()).iter().all(Result::is_err), "{over:?}");
        list("after the abort", &mut ranks);
        assert!(abort.is_aborted() && !ranks[0].abort_handle().is_aborted());
        // What aborts a generation does nothing to the next.
        abort.abort("once more");
        calls(&mut ranks);
    }
}

#[test]
fn settings_buffers_and_algorithms_stay() {
    let mut ranks = Over::Joined.ranks(4);
    let name = "all_reduce/halving_doubling.algo";
    let text = include_str!("../../../algorithms/all_reduce/halving_doubling.algo");
    let timeout = Duration::from_millis(1234);
    let mut buffers = each(&mut ranks, |comm, at| {
        let algorithm = Algorithm::parse(name, text).expect("an algorithm");
        comm.install(&algorithm).expect("installed");
        comm.set_hints("algorithm=all_reduce.ring".parse().expect("a hint")).expect("hints");
        comm.set_timeout(timeout);
        let mut buffer = comm.alloc::<u32>(1000).expect("a buffer");
        buffer.fill(at as u32);
        buffer
    });
    let explained = |ranks: &mut [Communicator]| {
        let all = each(ranks, |comm, _| {
            let choice =
                comm.explain("all_reduce", 4000, DType::U32, RedOp::Sum).expect("a choice");
            let source = choice.source.to_string();
            (choice.name().to_owned(), source, choice.remarks.join("\n"))
        });
        assert!(all.iter().all(|one| one == &all[0]), "all ranks say the same: {all:?}");
        all[0].clone()
    };
    let installed: (String, String, String) =
        ["halving_doubling", "its installation", ""].map(String::from).into();
    assert_eq!(explained(&mut ranks), installed);
    let left = ranks.pop().expect("four ranks");
    list("three cannot run what is installed", &mut ranks);
    let (algorithm, source, remarks) = explained(&mut ranks);
    assert_eq!(algorithm, "ring");
    assert!(source.contains("hint"), "{source}");
    assert!(remarks.contains("halving_doubling") && remarks.contains("rests"), "{remarks}");
    // Memory that all of them had is kept: what is read in place is not copied.
    let copied = each(&mut ranks, |comm, at| {
        let mut output = comm.alloc::<u32>(1000).expect("a buffer");
        output.fill(7);
        (comm.resources().expect("resources").memory.arena_bytes, at).0
    });
    assert!(copied.iter().all(|&bytes| bytes >= 8192), "the old buffer counts too: {copied:?}");
    ranks.push(left);
    list("four again", &mut ranks);
    assert_eq!(explained(&mut ranks), installed);
    for (at, buffer) in buffers.iter_mut().enumerate() {
        assert!(buffer.iter().all(|&x| x == at as u32));
    }
    let error = said(ranks[0].barrier());
    assert!(error.contains("waited 1.234s"), "{error}");
    ranks.truncate(3);
    let mut newcomer = Over::Joined.newcomer(3);
    newcomer.set_hints("algorithm=all_reduce.ring".parse().expect("a hint")).expect("hints");
    ranks.push(newcomer);
    each(&mut ranks[..3], |comm, _| comm.set_timeout(FOREVER));
    list("a newcomer has nothing installed", &mut ranks);
    let remarks = each(&mut ranks[..3], |comm, _| {
        let choice = comm.explain("all_reduce", 4000, DType::U32, RedOp::Sum).expect("a choice");
        choice.remarks.join("\n")
    });
    assert!(
        remarks.iter().all(|r| r.contains("no algorithm is installed any more")),
        "{remarks:?}"
    );
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    for over in [Over::Memory, Over::Tcp] {
        let mut ranks = over.ranks(2);
        let handles = handles(&mut ranks);
        let (a, b) = (handles[0].clone(), handles[1].clone());
        let mut refused = |handles: &[String], timeout| {
            said(ranks[0].reconfigure("id", RankHandles::List(handles), timeout))
        };
        assert!(refused(&[], FOREVER).contains("is not among the handles"));
        assert!(refused(std::slice::from_ref(&b), FOREVER).contains("is not among the handles"));
        assert!(refused(&[a.clone(), b.clone(), b.clone()], FOREVER).contains("named twice"));
        assert!(
            refused(&[a.clone(), "rank 7".into()], FOREVER).contains("`rank 7` is not the handle")
        );
        assert!(refused(&[a.clone(), b.clone()], Duration::ZERO).contains("zero"));
        calls(&mut ranks);
        // These handles still serve: nothing was tried.
        let made = each(&mut ranks, |comm, _| {
            comm.reconfigure("id", RankHandles::List(&[a.clone(), b.clone()]), FOREVER)
        });
        made.into_iter().for_each(|made| made.expect("a generation"));
        let again = said(ranks[0].reconfigure("id", RankHandles::List(&[a, b]), FOREVER));
        assert!(again.contains("that this rank had before"), "{again}");
        calls(&mut ranks);
    }
}

#[test]
fn without_all_ranks_there_is_no_generation_and_the_last_one_lives() {
    for over in ALL {
        let mut ranks = over.ranks(3);
        let mut never = over.newcomer(3);
        let mut all = handles(&mut ranks);
        all.push(never.handle().expect("a handle"));
        let short = Duration::from_millis(300);
        let made =
            each(&mut ranks, |comm, _| comm.reconfigure("id", RankHandles::List(&all), short));
        for error in made.into_iter().map(said) {
            assert!(!error.contains("RL0704"), "{error}");
        }
        // Nothing has changed, and the next attempt succeeds.
        calls(&mut ranks);
        let late = std::thread::spawn(move || {
            let handles = [never.handle().expect("a handle")];
            never.reconfigure("by itself", RankHandles::List(&handles), FOREVER).expect("alone");
            never
        });
        ranks.push(late.join().expect("the newcomer"));
        list("now", &mut ranks);
    }
}

#[test]
fn lists_that_differ_never_meet() {
    for over in [Over::Memory, Over::Tcp] {
        let mut ranks = over.ranks(4);
        let all = handles(&mut ranks);
        let short = Duration::from_millis(500);
        // Ranks 0 and 1 name 2 as well, and 2 and 3 name 1: a rank is in one attempt, and all fail.
        let made = each(&mut ranks, |comm, at| {
            let members = if at < 2 { &all[..3] } else { &all[1..] };
            comm.reconfigure("k + 1", RankHandles::List(members), short)
        });
        assert!(made.iter().all(Result::is_err), "{made:?}");
        // The same list in another order, or as a set, or under another name.
        let all = handles(&mut ranks);
        let made = each(&mut ranks, |comm, at| {
            let mut mine = all.clone();
            match at {
                0 => comm.reconfigure("id", RankHandles::List(&mine), short),
                1 => comm.reconfigure("another", RankHandles::List(&mine), short),
                2 => comm.reconfigure("id", RankHandles::Set(&mine), short),
                _ => {
                    mine.rotate_left(1);
                    comm.reconfigure("id", RankHandles::List(&mine), short)
                }
            }
        });
        assert!(made.iter().all(Result::is_err), "{made:?}");
        calls(&mut ranks);
        // Two halves that name only themselves are two communicators.
        let mut odd = ranks.split_off(2);
        std::thread::scope(|scope| {
            scope.spawn(|| list("half", &mut ranks));
            list("half", &mut odd);
        });
    }
}

#[test]
fn ranks_with_other_settings_or_secrets_are_told() {
    let setup = |channels| JobSetup::new().transports(TransportSet::TCP).channels(channels);
    let alone = |setup| Communicator::alone(&setup).expect("a rank alone");
    let mut ranks = [alone(setup(2)), alone(setup(3))];
    let all = handles(&mut ranks);
    let short = Duration::from_secs(10);
    let made = each(&mut ranks, |comm, _| comm.reconfigure("id", RankHandles::List(&all), short));
    let texts: Vec<String> = made.into_iter().map(said).collect();
    assert!(texts.iter().any(|text| text.contains("different hints: channels is")), "{texts:?}");
    let secret = |secret: &str| alone(JobSetup::new().secret(secret));
    let mut ranks = [secret("one"), secret("two")];
    let all = handles(&mut ranks);
    let made = each(&mut ranks, |comm, _| comm.reconfigure("id", RankHandles::List(&all), short));
    let texts: Vec<String> = made.into_iter().map(said).collect();
    assert!(texts.iter().any(|text| text.contains("the secrets differ")), "{texts:?}");
    let mut ranks = [secret("same"), secret("same"), secret("same")];
    list("with a secret", &mut ranks);
}

/// Returns when a thread of this process has slept several times from now on.
fn sleeps(thread: rustix::process::Pid) {
    let path = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
    let slept = || {
        let status = std::fs::read_to_string(&path).expect("a thread that lives");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).expect("a number")
    };
    let (before, until) = (slept(), Instant::now() + FOREVER);
    while slept() < before + 10 {
        assert!(Instant::now() < until, "the thread does not wait");
        std::thread::yield_now();
    }
}

#[test]
fn ranks_come_when_they_can() {
    let mut ranks = Over::Joined.ranks(3);
    let all = handles(&mut ranks);
    // Each comes when the one before it is waiting.
    let turns: Vec<Barrier> = (0..3).map(|_| Barrier::new(2)).collect();
    let (started, threads) = channel();
    std::thread::scope(|scope| {
        for (at, comm) in ranks.iter_mut().enumerate() {
            let (all, turns, started) = (&all, &turns, started.clone());
            scope.spawn(move || {
                turns[at].wait();
                started.send(rustix::thread::gettid()).expect("who waits for it");
                comm.reconfigure("late", RankHandles::List(all), FOREVER).expect("a generation");
            });
        }
        for turn in turns[1..].iter().rev() {
            turn.wait();
            sleeps(threads.recv().expect("a thread"));
        }
        turns[0].wait();
    });
    calls(&mut ranks);
    assert!(ranks[0].routes().iter().all(|route| route.transports != TransportSet::TCP));
}
