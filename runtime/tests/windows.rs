//! Tests refusals and ends of windows, over shared memory, in private memory, over sockets, and over both. What goes
//! through them is for `conformance` to test.

use std::time::{Duration, Instant};

use crate::support::scene::{self, Job, say};
use crate::support::{layout, patiently, refusal, run_ranks, threads};
use roundelay::error::AccessRefusal;
use roundelay::launch::{JobSetup, ProcessEnding, RankHandles, RankLauncher};
use roundelay::transport::TransportSet;
use roundelay::window::{Window, WindowAccess, WindowRights};
use roundelay::{Buffer, Communicator, DType, Error, RedOp};
use roundelay_dsl::diag::codes;
use rustix::process::{Pid, Signal, getpid, kill_process, test_kill_process};

const SLOT: u64 = 64 << 10;
/// No test comes near it unless something hangs.
const LONG: Duration = Duration::from_secs(60);

fn filled<T: roundelay::Element>(
    comm: &Communicator,
    len: usize,
    value: T,
) -> roundelay::Buffer<T> {
    let mut buffer = comm.alloc::<T>(len).expect("memory");
    buffer.fill(value);
    buffer
}

/// The way by which ranks reach each other's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// All map the memory of all.
    Mapped,
    /// They share memory, and the parts do not lie in it.
    Private,
    Tcp,
    /// Ranks r and r + 2 share memory.
    Mixed,
}

impl Way {
    const ALL: [Way; 4] = [Way::Mapped, Way::Private, Way::Tcp, Way::Mixed];

    fn ranks(self, ranks: u32) -> Vec<Communicator> {
        let setup = |rank: u32| match self {
            Way::Mapped | Way::Private => JobSetup::new(),
            Way::Tcp => JobSetup::new().transports(TransportSet::TCP),
            Way::Mixed => JobSetup::new().host_label(format!("machine {}", rank % 2)),
        };
        match self {
            Way::Mapped | Way::Private => roundelay::internal::local_with(layout(ranks, SLOT)),
            _ => Communicator::local_over(ranks, |rank| setup(rank).slot_bytes(SLOT)),
        }
        .expect("the ranks join")
    }

    /// Returns a part.
    fn filled<T: roundelay::Element>(self, comm: &Communicator, len: usize, x: T) -> Buffer<T> {
        match self {
            Way::Private => vec![x; len].into(),
            _ => filled(comm, len, x),
        }
    }

    /// Returns how one rank reaches another's part.
    fn access(self, own: u32, peer: u32) -> WindowAccess {
        let is_mapped = match self {
            Way::Mapped => true,
            Way::Private | Way::Tcp => own == peer,
            Way::Mixed => own % 2 == peer % 2,
        };
        if is_mapped { WindowAccess::Mapped } else { WindowAccess::Served }
    }
}

/// Runs a scene by all ways.
fn by_all_ways<T: Send>(ranks: u32, scene: impl Fn(&mut Communicator, usize, Way) -> T + Sync) {
    for way in Way::ALL {
        run_ranks(way.ranks(ranks), |comm, r| scene(comm, r, way));
    }
}

#[test]
fn what_is_not_allowed_is_refused_and_nothing_is_written() {
    by_all_ways(2, |comm, r, way| {
        let (own, other) = (r as u32, 1 - r as u32);
        let mine = if r == 0 { WindowRights::ALL } else { WindowRights::READ };
        let window = comm.window_with(way.filled(comm, 8 + r, 5.0f32), mine).expect("a window");
        let known = window.attributes(other).expect("attributes");
        assert_eq!((known.access, known.len), (way.access(own, other), 8 + other as usize));
        let maps = known.access == WindowAccess::Mapped;
        if !maps {
            assert_eq!(refusal(window.map_remote(other)), AccessRefusal::NotMapped);
        }
        let end = AccessRefusal::Bounds { bytes: 4 * (8 + u64::from(other)) };
        for (at, len) in [(8 + other as usize, 1), (0, 10), (usize::MAX, 2), (usize::MAX / 4, 9)] {
            assert_eq!(refusal(window.put(&vec![1.0; len], other, at)), end, "{at}, {len}");
            assert_eq!(refusal(window.get(&mut vec![1.0; len], other, at)), end);
        }
        assert_eq!(refusal(window.fetch_add(1, 0, 1)), AccessRefusal::Alignment { offset: 4 });
        assert!(matches!(refusal(window.fetch_add(1, 0, 8)), AccessRefusal::Bounds { .. }));
        if r == 0 {
            let needs = |needed| AccessRefusal::Rights { needed, has: "read".into() };
            assert_eq!(refusal(window.put(&[1.0], 1, 0)), needs("write"));
            assert_eq!(refusal(window.fetch_add(1, 1, 0)), needs("atomics"));
            assert_eq!(refusal(window.accumulate(&[1.0], RedOp::Sum, 1, 0)), needs("atomics"));
            if maps {
                assert!(window.map_remote(1).expect("it may be read").as_mut_ptr().is_none());
            }
        } else {
            for op in [RedOp::Avg, RedOp::PremulSum, RedOp::Xor] {
                let refused = refusal(window.accumulate(&[1.0], op, 0, 0));
                assert!(matches!(refused, AccessRefusal::Elements(_)), "{op}: {refused}");
            }
            if maps {
                let mapped = window.map_remote(0).expect("it may be written");
                assert!(mapped.as_mut_ptr().is_some() && mapped.len() == 8);
            }
        }
        let missing = window.put(&[1.0], 2, 0).expect_err("no such rank");
        assert_eq!(missing.code(), codes::USAGE);
        assert!(window.free(comm).expect("the buffer").iter().all(|&x| x == 5.0));
    });
}

#[test]
fn nothing_is_written_once_the_right_was_withdrawn() {
    const LEN: usize = 100_000;
    by_all_ways(2, |comm, r, way| {
        for _ in 0..if way == Way::Mapped { 20 } else { 5 } {
            let window = comm.window(way.filled(comm, LEN, 0u32)).expect("a window");
            comm.barrier().expect("both begin");
            if r == 0 {
                let put = |i| window.put(&vec![i; LEN], 1, 0).and_then(|()| window.flush(1));
                let refused = (1..).find_map(|i| put(i).err());
                let refused = refusal(Err::<(), _>(refused.expect("it ends")));
                assert_eq!(
                    refused,
                    AccessRefusal::Rights { needed: "write", has: "read + atomics".into() }
                );
                window.get(&mut [0], 1, 0).expect("it may still read");
                comm.barrier().expect("its last put is over");
            } else {
                while window.fetch_add(0, 1, LEN / 2).expect("its own word") == 0 {
                    std::thread::yield_now();
                }
                window.withdraw(WindowRights::WRITE).expect("no rank writes any more");
                window.write(0, &vec![9; LEN]).expect("its own part");
                comm.barrier().expect("the last put is over");
                let mut mine = vec![0; LEN];
                window.read(0, &mut mine).expect("its own part");
                assert!(mine.iter().all(|&x| x == 9), "it was written after the withdrawal");
            }
            window.free(comm).expect("the buffer");
        }
    });
}

#[test]
fn a_withdrawal_waits_for_what_is_mapped_and_does_not_hang() {
    threads(layout(2, SLOT), |comm, r| {
        let window = comm.window(filled(comm, 8, 0u32)).expect("a window");
        if r == 0 {
            let mapped = window.map_remote(1).expect("it is mapped");
            comm.barrier().expect("it is mapped");
            comm.barrier().expect("rank 1 has waited in vain");
            drop(mapped);
        } else {
            comm.barrier().expect("it is mapped");
            window.set_timeout(Duration::from_millis(30));
            let error = window.withdraw(WindowRights::WRITE).expect_err("rank 0 holds it");
            assert!(matches!(error, Error::Timeout { peer: 0, .. }), "{error}");
            window.set_timeout(Duration::from_secs(30));
            comm.barrier().expect("the job goes on");
            window.withdraw(WindowRights::WRITE).expect("rank 0 lets go");
        }
        window.free(comm).expect("the buffer");
    });
}

/// A part that was mapped for as long as the window is holds rights back until then, and its memory stays.
#[test]
fn what_is_mapped_as_long_as_the_window_ends_with_it() {
    threads(layout(2, SLOT), |comm, r| {
        let mut buffer = filled(comm, 8, 7u32);
        let memory = (buffer.as_mut_ptr().cast(), buffer.len());
        let kept = Box::new(buffer);
        // SAFETY: the buffer lives as long as the window, and nothing else uses it.
        let made = unsafe { comm.window_at(memory, DType::U32, WindowRights::ALL, kept) };
        let window = made.expect("a window");
        let mapped = (r == 0).then(|| {
            let twice = window.map_remote(1).and_then(|_| window.map_remote(1));
            twice.expect("it is mapped")
        });
        comm.barrier().expect("it is mapped");
        if r == 1 {
            window.set_timeout(Duration::from_millis(30));
            let error = window.withdraw(WindowRights::WRITE).expect_err("rank 0 holds it");
            assert!(matches!(error, Error::Timeout { peer: 0, .. }), "{error}");
            window.set_timeout(LONG);
        }
        comm.barrier().expect("rank 1 has waited in vain");
        window.free(comm).expect("rank 0 lets go");
        if let Some(mapped) = mapped {
            assert!(mapped.is_writable() && mapped.bytes() == 32);
            // SAFETY: no rank writes there after the window.
            assert_eq!(unsafe { mapped.as_ptr().cast::<u32>().read() }, 7);
        }
    });
}

/// Waits for a signal that never comes, while `ends` brings the wait to its end.
fn in_vain(way: Way, ends: impl Fn(&mut Communicator, Window<u32>) + Sync) -> Error {
    let made = std::sync::Barrier::new(2);
    let mut errors = run_ranks(way.ranks(2), |comm, r| {
        let buffer = way.filled(comm, 8, 0u32);
        let window = comm.window(buffer).expect("a window");
        made.wait();
        if r == 0 {
            return Some(window.wait_signal(1).expect_err("no rank signals"));
        }
        ends(comm, window);
        None
    });
    errors.swap_remove(0).expect("rank 0 waited")
}

#[test]
fn a_wait_for_a_signal_ends_with_the_job_or_the_peer() {
    for way in [Way::Mapped, Way::Private, Way::Tcp] {
        wait_ends(way);
    }
}

fn wait_ends(way: Way) {
    let error = in_vain(way, |comm, _window| {
        comm.abort_handle().abort("the test says so");
    });
    assert_eq!(error.code(), codes::ABORTED, "{way:?}: {error}");
    let mut leaves = way.ranks(2);
    leaves[0].set_timeout(Duration::from_secs(30));
    let last = leaves.pop().expect("rank 1");
    let first = leaves.pop().expect("rank 0");
    let error = std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let mut comm = first;
            let buffer = way.filled(&comm, 8, 0u32);
            let window = comm.window(buffer)?;
            comm.barrier()?;
            window.wait_signal(1)
        });
        scope.spawn(move || {
            let mut comm = last;
            let buffer = way.filled(&comm, 8, 0u32);
            let window = comm.window(buffer).expect("a window");
            comm.barrier().expect("both are there");
            drop((window, comm));
        });
        waits.join().expect("a rank").expect_err("no rank signals")
    });
    assert!(matches!(error, Error::LostRank { lost: 1, .. }), "{way:?}: {error}");
    patiently(|timeout| {
        let began = Instant::now();
        let mut ranks = way.ranks(2);
        ranks.iter_mut().for_each(|comm| comm.set_timeout(Duration::from_secs(30)));
        let errors = run_ranks(ranks, |comm, r| {
            let buffer = way.filled(comm, 8, 0u32);
            let window = comm.window(buffer).expect("a window");
            if r == 1 {
                return comm.barrier().map_err(|error| (error.code(), error.to_string()));
            }
            window.set_timeout(timeout);
            window.wait_signal(1).map_err(|error| (error.code(), error.to_string()))
        });
        for error in errors {
            let (code, text) = error.expect_err("no rank signals");
            assert_eq!(code, codes::TIMEOUT, "{text}");
            assert!(text.contains("signal from rank 1"), "{text}");
        }
        match began.elapsed() < timeout + Duration::from_secs(10) {
            true => Ok(()),
            false => Err("too long".into()),
        }
    });
}

#[test]
fn a_window_ends_with_its_generation() {
    ends_with_its_generation(|_| JobSetup::new().slot_bytes(SLOT));
    ends_with_its_generation(|_| JobSetup::new().slot_bytes(SLOT).transports(TransportSet::TCP));
}

fn ends_with_its_generation(setup: impl Fn(u32) -> JobSetup + Sync) {
    let ranks = Communicator::local_over(2, setup).expect("two ranks");
    let handles = std::sync::Mutex::new(vec![String::new(); 2]);
    let both = std::sync::Barrier::new(2);
    run_ranks(ranks, |comm, r| {
        let buffer = filled(comm, 8, 0u32);
        let window = comm.window(buffer).expect("a window");
        handles.lock().expect("handles")[r] = comm.handle().expect("a handle");
        both.wait();
        let all = handles.lock().expect("handles").clone();
        let error = std::thread::scope(|scope| {
            let waits = scope.spawn(|| window.wait_signal(1 - r as u32));
            comm.reconfigure("next", RankHandles::List(&all), Duration::from_secs(30))
                .expect("the next generation");
            waits.join().expect("a thread").expect_err("no rank signals")
        });
        let is_typed = matches!(
            error,
            Error::Window { refusal: AccessRefusal::Over, .. } | Error::Aborted { .. }
        );
        // The wait may begin only when the generation has ended.
        assert!(is_typed || error.to_string().contains("has ended"), "{error}");
        assert_eq!(refusal(window.put(&[1], 0, 0)), AccessRefusal::Over);
        assert_eq!(refusal(window.signal(0)), AccessRefusal::Over);
        assert_eq!(window.free(comm).expect_err("another generation").code(), codes::USAGE);
        let again = comm.window(filled(comm, 8, 1u32)).expect("a window of this generation");
        again.put(&[2], 1 - r as u32, 0).expect("a put");
        again.flush(1 - r as u32).expect("a flush");
        assert_eq!(again.free(comm).expect("the buffer")[..2], [2, 1]);
    });
}

#[test]
fn a_dropped_window_refuses_and_its_memory_serves_others() {
    by_all_ways(2, |comm, r, way| {
        let window = comm.window(filled(comm, 1000, 0u32)).expect("a window");
        let maps = window.attributes(1).expect("attributes").access == WindowAccess::Mapped;
        if r == 0 {
            comm.barrier().expect("rank 1 has dropped it");
            let put = window.put(&[1; 1000], 1, 0).and_then(|()| window.flush(1));
            let none = AccessRefusal::Rights { needed: "write", has: "none".into() };
            assert_eq!(refusal(put), if maps { none } else { AccessRefusal::Gone }, "{way:?}");
            comm.barrier().expect("it was refused");
        } else {
            let before = window.as_mut_ptr();
            drop(window);
            let buffer = filled(comm, 1000, 3u32);
            assert!(std::ptr::eq(before, buffer.as_ptr()), "the same memory");
            comm.barrier().expect("it was dropped");
            comm.barrier().expect("rank 0 was refused");
            assert!(buffer.iter().all(|&x| x == 3));
        }
    });
}

/// A rank waits for the others' first barrier, longer than it polls, and they use its window before they come.
#[test]
fn a_rank_that_waits_long_serves_its_window() {
    by_all_ways(2, |comm, rank, way| {
        let window = comm.window(way.filled(comm, 4, 0u32)).expect("a window");
        if rank == 1 {
            let since = Instant::now();
            while since.elapsed() < Duration::from_millis(200) {
                std::thread::yield_now();
            }
            window.set_timeout(Duration::from_secs(10));
            let put = window.put(&[7], 0, 1).and_then(|()| window.flush(0));
            put.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        }
        comm.barrier().expect("all come");
        let wanted = if rank == 0 { [0, 7, 0, 0] } else { [0; 4] };
        assert_eq!(window.free(comm).expect("the buffer")[..], wanted, "{way:?}");
    });
}

#[test]
fn windows_that_cannot_be_made_fail_on_all_ranks() {
    threads(layout(2, SLOT), |comm, r| {
        let made = match r {
            0 => comm.window(filled(comm, 8, 0u32)).map(drop),
            _ => comm.window(filled(comm, 8, 0.0f64)).map(drop),
        };
        assert_eq!(made.expect_err("two types").code(), codes::USAGE);
        assert_eq!(
            comm.window(filled(comm, 8, roundelay::memory::MemoryBool::FALSE))
                .expect_err("bool")
                .code(),
            codes::UNSUPPORTED
        );
        comm.barrier().expect("the communicator stays usable");
    });
    threads(layout(2, SLOT), |comm, r| {
        let mut odd = vec![0u8; 64];
        let odd = match r {
            0 => vec![0u8; 64].into(),
            // SAFETY: they lie in the vector, which the owner keeps.
            _ => unsafe { Buffer::of_process(odd.as_mut_ptr().add(1), 63, Box::new(odd)) },
        };
        let error = comm.window(odd).expect_err("it does not begin at a word");
        assert_eq!(error.code(), codes::USAGE, "{error}");
        comm.barrier().expect("the communicator stays usable");
    });
}

/// Runs a rank of a launched job; not a test by itself.
#[test]
fn rank_process() {
    scene::rank(is_killed);
}

/// Rank 1 is killed while it works on rank 0's part; rank 2 works there too, and rank 0 waits.
fn is_killed(scene: &str) -> Result<(), Error> {
    if scene == "serves" {
        return is_killed_while_it_serves();
    }
    const LEN: usize = 300_000;
    let mut comm = Communicator::from_env()?;
    say(&format!("pid {}", getpid().as_raw_nonzero()));
    let pids = comm.all_gather_u64(getpid().as_raw_nonzero().get() as u64)?;
    let window = comm.window(filled(&comm, LEN, 0f32))?;
    let data = vec![1f32; LEN];
    let work = |window: &Window<f32>| match scene {
        "puts" => window.put(&data, 0, 0),
        _ => window.accumulate(&data, RedOp::Sum, 0, 0),
    };
    if comm.rank() == 1 {
        let (began, moment) = (Instant::now(), Duration::from_micros(200 * pids[1] % 3000));
        std::thread::spawn(move || {
            // Where cores are busy each turn of the others takes long.
            while began.elapsed() < moment {
                std::thread::yield_now();
            }
            kill_process(getpid(), Signal::KILL)
        });
        loop {
            work(&window)?;
        }
    }
    if comm.rank() == 2 {
        // A lock that a rank has died with is an error; where it died without one, the others go on.
        let pid = Pid::from_raw(pids[1] as i32).expect("a process");
        while test_kill_process(pid).is_ok() {
            work(&window)?;
        }
        for _ in 0..3 {
            work(&window)?;
        }
    }
    window.wait_signal(1)
}

/// Rank 1 is killed while the others work on its part, which its process serves.
fn is_killed_while_it_serves() -> Result<(), Error> {
    const LEN: usize = 300_000;
    let mut comm = Communicator::from_env()?;
    say(&format!("pid {}", getpid().as_raw_nonzero()));
    let window = comm.window(Buffer::from(vec![0f32; LEN + 2]))?;
    comm.barrier()?;
    let mut data = vec![1f32; LEN];
    if comm.rank() == 1 {
        // It works meanwhile.
        while window.fetch_add(0, 1, 0)? < 100 {
            std::thread::yield_now();
        }
        kill_process(getpid(), Signal::KILL).expect("a signal");
    }
    loop {
        match comm.rank() {
            0 => window.put(&data, 1, 2)?,
            _ => window.get(&mut data, 1, 2)?,
        }
        window.fetch_add(1, 1, 0)?;
    }
}

#[test]
fn a_rank_that_is_killed_while_it_serves_ends_operations_by_its_name() {
    for way in ["tcp", "shm,tcp"] {
        let launcher = RankLauncher::new(3).timeout(LONG).grace(LONG);
        let launcher = launcher.hints(format!("transport={way}"));
        let job = Job::run(scene::scene(launcher, module_path!(), "serves"));
        assert_eq!(job.outcome.endings[1], ProcessEnding::Signalled(9), "{way}");
        for rank in [0, 2] {
            let said = job.said[rank].last().expect("an error");
            let lost = said.starts_with("RL0704") && said.contains("rank 1 is gone");
            assert!(lost, "{way}, rank {rank}: {said}");
        }
        assert!(job.took < LONG / 2, "{way}: {:?}", job.took);
    }
}

#[test]
fn a_rank_that_is_killed_ends_the_waits_for_it_by_its_name() {
    for scene in ["puts", "accumulates"] {
        for _ in 0..5 {
            let launcher = RankLauncher::new(3).timeout(LONG).grace(LONG);
            let job = Job::run(scene::scene(launcher, module_path!(), scene));
            assert_eq!(job.outcome.endings[1], ProcessEnding::Signalled(9), "{scene}");
            for rank in [0, 2] {
                let said = job.said[rank].last().expect("an error");
                let lost = said.starts_with("RL0704") && said.contains("rank 1 is gone");
                assert!(lost, "{scene}, rank {rank}: {said}");
            }
            assert!(job.took < LONG / 2, "{scene}: {:?}", job.took);
        }
    }
}
