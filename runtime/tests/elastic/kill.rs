//! Processes that are killed, stopped and replaced, while the others go on.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use roundelay::launch::{JobSetup, RankHandles};
use roundelay::transport::{Transport, TransportSet};
use roundelay::{Communicator, Error, Hints, RedOp};
use roundelay_tests::{CheckNeeds, end, skip, test_arguments, until};

use crate::support::{contribution, scene, total};

/// No test comes near it unless something hangs.
const FOREVER: Duration = Duration::from_secs(100);
/// The longest that a call waits, and that a generation takes to be made.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Verified calls before a rank says that its generation works.
const CALLS: usize = 5;

/// Notes in a folder: any store will do.
struct Board(PathBuf);

impl Board {
    fn put(&self, key: &str, text: &str) {
        let draft = self.0.join(format!("{key}.{}", std::process::id()));
        std::fs::write(&draft, text).expect("a note");
        std::fs::rename(draft, self.0.join(key)).expect("a note");
    }

    fn find(&self, key: &str) -> Option<String> {
        std::fs::read_to_string(self.0.join(key)).ok()
    }

    fn get(&self, key: &str) -> String {
        let mut found = None;
        until(
            FOREVER,
            || format!("no process wrote {key}"),
            || {
                found = self.find(key);
                found.is_some()
            },
        );
        found.expect("a note")
    }
}

/// Returns what joins ranks here: RDMA too, alone and beside shared memory, where there is a device.
/// `TEST_WAY=rdma` leaves out the others.
fn ways() -> Vec<&'static str> {
    static RDMA: LazyLock<bool> = LazyLock::new(|| {
        let probed = Transport::Rdma.probe();
        probed.inspect_err(|why| skip(CheckNeeds::Rdma, format!("no RDMA: {why}"))).is_ok()
    });
    let only = std::env::var("TEST_WAY").is_ok_and(|way| way == "rdma");
    let is_wanted = |way: &&str| match *way {
        "shm" | "tcp" => !only,
        _ => *RDMA,
    };
    ["shm", "tcp", "rdma", "mixed"].into_iter().filter(is_wanted).collect()
}

/// Runs a rank; not a test by itself.
#[test]
fn rank_process() {
    scene::rank(run);
}

/// The resources that this process holds.
fn held() -> String {
    let count = |what: &str| std::fs::read_dir(what).expect("a folder").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("its memory").lines().count();
    let memory = std::fs::read_to_string("/proc/self/statm").expect("its memory");
    let pages = memory.split(' ').nth(1).expect("resident pages").to_owned();
    format!("{} {} {maps} {pages}", count("/proc/self/fd"), count("/proc/self/task"))
}

fn run(scene: &str) -> Result<(), Error> {
    let name = std::env::var("TEST_NAME").expect("a name");
    let board = Board(std::env::var("TEST_BOARD").expect("a board").into());
    let setup = match scene.split(' ').next() {
        Some("tcp") => JobSetup::new().transports(TransportSet::TCP),
        Some("rdma") => JobSetup::new().transports(TransportSet::RDMA),
        Some("mixed") => {
            // The first process is on a host of its own.
            let host = if name == "r0" { "host 0" } else { "host 1" };
            JobSetup::new().transports(TransportSet::SHM.or(TransportSet::RDMA)).host_label(host)
        }
        _ => JobSetup::new(),
    };
    let mut comm = Communicator::alone(&setup)?;
    let (mut generation, mut step) = (std::env::var("TEST_FROM").expect("a number"), 0);
    loop {
        // The members, as the supervisor of the processes names them. It may have stopped waiting for this one.
        let members = board.get(&format!("{generation}-members"));
        let members: Vec<&str> = members.split(' ').collect();
        if !members.contains(&&*name) {
            return Ok(());
        }
        board.put(&format!("{generation}-handle-{name}"), &comm.handle()?);
        let handle = |member: &&str| board.get(&format!("{generation}-handle-{member}"));
        let handles: Vec<String> = members.iter().map(handle).collect();
        let error = match comm.reconfigure(&generation, RankHandles::List(&handles), TIMEOUT) {
            Ok(()) if scene.ends_with("shrinks") => return shrinks(comm, &board, &name),
            Ok(()) => {
                comm.set_timeout(TIMEOUT);
                calls(&mut comm, &board, &format!("{generation}-done-{name}"), &mut step)
            }
            Err(error) => error,
        };
        if matches!(error, Error::Usage(_)) {
            return Err(error);
        }
        board.put(&format!("{generation}-held-{name}"), &held());
        generation = (generation.parse::<u32>().expect("a number") + 1).to_string();
    }
}

/// Goes on with the ranks that are left whenever a call fails, without the supervisor naming them.
fn shrinks(mut comm: Communicator, board: &Board, name: &str) -> Result<(), Error> {
    comm.set_timeout(TIMEOUT);
    comm.set_hints(Hints::from_pairs([("on_failure", "shrink")])?)?;
    let mut step = 0;
    loop {
        // The first call of a generation is the one that makes it.
        comm.barrier()?;
        let size = comm.size();
        let error = calls(&mut comm, board, &format!("{size}-done-{name}"), &mut step);
        assert!(!matches!(error, Error::Usage(_)), "{error}");
    }
}

/// Makes calls until one fails. A wrong result ends the process.
fn calls(comm: &mut Communicator, board: &Board, done: &str, step: &mut u64) -> Error {
    let (rank, n) = (comm.rank() as usize, comm.size() as usize);
    // Newcomers learn where the job is.
    let mut steps = [*step];
    if let Err(error) = comm.all_reduce(&mut steps, RedOp::Max) {
        return error;
    }
    *step = steps[0];
    for round in 0.. {
        let salt = *step as usize;
        let count = [1, 2000, 200_000][salt % 3];
        let mut x: Vec<f32> = (0..count).map(|i| contribution(rank, i, salt)).collect();
        if let Err(error) = comm.all_reduce(&mut x, RedOp::Sum) {
            return error;
        }
        assert!((0..count).all(|i| x[i] == total(n, i, salt)), "a wrong result");
        *step += 1;
        if round == CALLS {
            board.put(done, "");
        }
    }
    unreachable!("it goes on until a call fails")
}

/// A job under faults.
struct Job {
    over: &'static str,
    board: Board,
    ranks: Vec<(String, Child)>,
    started: usize,
    generation: usize,
}

impl Job {
    fn new(over: &'static str, name: &str) -> Job {
        let folder = format!("elastic-{}-{over}-{name}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Job { over, board: Board(folder), ranks: Vec::new(), started: 0, generation: 1 }
    }

    /// Starts a process that comes with the next generation.
    fn start(&mut self) {
        let name = format!("r{}", self.started);
        self.started += 1;
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(test_arguments(module_path!(), "rank_process"))
            .env("TEST_SCENE", self.over)
            .env("TEST_NAME", &name)
            .env("TEST_BOARD", &self.board.0)
            .env("TEST_FROM", self.generation.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        self.ranks.push((name, child));
    }

    /// Has the ranks make a generation, and waits until all of them have made calls there.
    fn generation(&mut self) {
        let (board, generation) = (&self.board, self.generation);
        let names: Vec<&str> = self.ranks.iter().map(|(name, _)| &**name).collect();
        board.put(&format!("{generation}-members"), &names.join(" "));
        for (name, child) in &mut self.ranks {
            let done = format!("{generation}-done-{name}");
            until(
                FOREVER,
                || format!("{name} hangs in generation {generation}"),
                || {
                    let ended = child.try_wait().expect("a child");
                    assert!(ended.is_none(), "{name} ended in generation {generation}: {ended:?}");
                    board.find(&done).is_some()
                },
            );
        }
        self.generation += 1;
    }

    /// Has the ranks begin to make a generation, and kills one in the middle of that.
    fn disturbed(&mut self, at: usize, moment: usize) {
        let (board, generation) = (&self.board, self.generation);
        let names: Vec<&str> = self.ranks.iter().map(|(name, _)| &**name).collect();
        board.put(&format!("{generation}-members"), &names.join(" "));
        for name in names {
            board.get(&format!("{generation}-handle-{name}"));
        }
        (0..moment).for_each(|_| std::thread::yield_now());
        self.generation += 1;
        self.kill(at);
    }

    /// Kills a rank in the middle of whatever it does.
    fn kill(&mut self, at: usize) {
        let (_, mut child) = self.ranks.remove(at);
        child.kill().expect("a signal");
        child.wait().expect("its end");
    }

    fn held(&self, name: &str, generation: usize) -> Vec<u64> {
        let held = self.board.get(&format!("{generation}-held-{name}"));
        held.split(' ').map(|n| n.parse().expect("a number")).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for (_, child) in &mut self.ranks {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.board.0);
    }
}

#[test]
fn killed_ranks_are_replaced() {
    for over in ways() {
        let mut job = Job::new(over, "replaced");
        (0..3).for_each(|_| job.start());
        job.generation();
        // Another rank each time, without and with another in its place; two at once.
        job.kill(0);
        job.generation();
        job.start();
        job.kill(1);
        job.generation();
        job.start();
        job.start();
        job.kill(0);
        job.kill(0);
        job.generation();
        assert_eq!(job.ranks.len(), 2);
    }
}

#[test]
fn ranks_shrink_by_themselves_when_others_are_killed() {
    for (over, last) in [("shm shrinks", 1), ("tcp shrinks", 2), ("rdma shrinks", 2)] {
        if !ways().iter().any(|way| over.starts_with(way)) {
            continue;
        }
        let mut job = Job::new(over, "shrinks");
        (0..4).for_each(|_| job.start());
        let names: Vec<&str> = job.ranks.iter().map(|(name, _)| &**name).collect();
        job.board.put("1-members", &names.join(" "));
        loop {
            let size = job.ranks.len();
            job.ranks.iter().for_each(|(name, _)| {
                job.board.get(&format!("{size}-done-{name}"));
            });
            if size == last {
                break;
            }
            // The lowest, and in between another: through sockets two of four would be half without the lowest.
            job.kill(if size == 4 { 0 } else { size - 1 });
        }
    }
}

/// The others give the attempt up, or lose the rank in the generation that they made: both ways they go on, newcomers
/// and those that were together before.
#[test]
fn a_rank_may_die_while_a_generation_is_made() {
    let settled = |over| [(over, false), (over, true)];
    for (over, settled) in ways().into_iter().flat_map(settled) {
        let mut job = Job::new(over, if settled { "settled" } else { "disturbed" });
        (0..4).for_each(|_| job.start());
        if settled {
            job.generation();
            job.kill(3);
            job.start();
        }
        for round in 0..3 {
            job.disturbed(round % 4, 400 * round);
            job.start();
        }
        job.generation();
        assert_eq!(job.ranks.len(), 4);
    }
}

/// The first rank lives through it all: what it holds in the end is what it held in the beginning.
#[test]
fn many_cycles_leave_nothing_behind() {
    for over in ways() {
        // Devices are emulated.
        let (settled, cycles) = if ["shm", "tcp"].contains(&over) { (10, 100) } else { (4, 16) };
        let mut job = Job::new(over, "cycles");
        (0..3).for_each(|_| job.start());
        job.generation();
        let began = Instant::now();
        for cycle in 0..cycles {
            job.kill(1 + cycle % 2);
            job.start();
            job.generation();
        }
        job.kill(1);
        let (first, last) = (job.held("r0", settled), job.held("r0", cycles + 1));
        // Descriptors, threads, mappings; pages of memory may vary by a few MiB.
        for (at, (first, last)) in first.iter().zip(&last).enumerate() {
            let most = if at == 3 { first + 2048 } else { first + 2 };
            assert!(*last <= most, "{over}: number {at} went from {first} to {last}");
        }
        assert!(began.elapsed() < FOREVER * 10);
    }
}

/// A rank that was believed dead comes back, and finds itself left out: it can do no harm.
#[test]
fn a_rank_that_was_stopped_is_left_out() {
    use rustix::process::{Pid, Signal, kill_process};
    for over in ways() {
        let mut job = Job::new(over, "stopped");
        (0..3).for_each(|_| job.start());
        job.generation();
        let (_, mut stopped) = job.ranks.remove(1);
        let pid = Pid::from_child(&stopped);
        kill_process(pid, Signal::STOP).expect("a signal");
        // The supervisor knows, and need not wait for the deadline: another rank leaves too.
        job.kill(1);
        job.start();
        job.generation();
        kill_process(pid, Signal::CONT).expect("a signal");
        let ended = end(&mut stopped, FOREVER).expect("it ends");
        assert!(ended.success(), "it is not among the members any more: {ended}");
        job.start();
        job.kill(0);
        job.generation();
    }
}
