//! The time until the ranks that are left of a job call together again after one was killed: by `reconfigure`, by
//! joining anew in the same processes, and by processes started anew, by turns.
//!
//!     cargo bench -p roundelay --bench reconfigure -- [RANKS] [TURNS] [TRANSPORT]
//!
//! 64 ranks, 5 turns and shared memory by default. Times begin when the killed process has ended and its peers are
//! notified to go on. Three are printed for each turn, in milliseconds: until all ranks have met in a barrier, the
//! processor time of all of them together until then, which says more on a busy machine, and until the last has
//! verified its first `all_reduce`, for which each rank chooses and proves a plan for the new number of ranks. Then
//! come medians and ratios.

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use roundelay::launch::{JobMembership, LauncherKind, StoreAt};
use roundelay::launch::{JobSetup, RankHandles};
use roundelay::{Communicator, Error, Hints, RedOp};

const TIMEOUT: Duration = Duration::from_secs(120);
const RANK: &str = "RECONFIGURE_RANK";
const WAYS: [&str; 3] = ["reconfigure", "join anew", "start anew"];

fn main() {
    if let Ok(hints) = std::env::var(RANK) {
        return rank(&hints).expect("a rank that was not killed");
    }
    // Cargo adds an argument of its own.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let number = |at: usize, default: u32| {
        args.get(at).map_or(default, |text| text.parse().expect("a number"))
    };
    let (ranks, turns) = (number(0, 64), number(1, 5));
    let transport = args.get(2).map_or("shm", String::as_str);
    assert!(ranks >= 3, "one is killed, and two are left at least");
    println!("{ranks} ranks over {transport}, of which one is killed; ms");
    println!("      {}", WAYS.map(|way| format!("{way:^29}")).join("  "));
    let columns = format!("{:>9} {:>9} {:>9}", "met", "processor", "called");
    println!("turn  {}", WAYS.map(|_| columns.clone()).join("  "));
    let mut times = WAYS.map(|_| Vec::new());
    let mut job = Job { hints: format!("transport={transport}"), ranks: Vec::new() };
    for turn in 1..=turns {
        for (way, times) in times.iter_mut().enumerate() {
            times.push(job.lose_one(way, ranks, turn));
        }
        println!("{turn:>4}  {}", row(&times.each_ref().map(|times| times[times.len() - 1])));
    }
    let medians = times.map(|times| {
        std::array::from_fn(|column| {
            let mut all: Vec<f64> = times.iter().map(|times: &Times| times[column]).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        })
    });
    println!("median{}", row(&medians));
    for (way, other) in WAYS.iter().zip(&medians).skip(1) {
        let ratios = std::array::from_fn::<_, 3, _>(|i| format!("{:.2}", medians[0][i] / other[i]));
        println!("{} / {way}: {}", WAYS[0], ratios.join(", "));
    }
}

/// Times until the ranks have met, of processors until then, and until they have called; milliseconds.
type Times = [f64; 3];

fn row(times: &[Times; 3]) -> String {
    let cells = times.map(|t| t.map(|ms| format!("{ms:9.1}")).join(" "));
    cells.join("  ")
}

/// The processes of a job, by rank.
struct Job {
    hints: String,
    ranks: Vec<Rank>,
}

/// A process, and what goes between it and this one.
struct Rank {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Job {
    /// Lets all ranks meet, kills one, and returns the times that the others take to go on that way.
    fn lose_one(&mut self, way: usize, ranks: u32, turn: u32) -> Times {
        while self.ranks.len() < ranks as usize {
            self.ranks.push(Rank::start(&self.hints));
        }
        self.join();
        self.call();
        let mut lost = self.ranks.remove((turn * 7 % ranks) as usize);
        lost.child.kill().and_then(|()| lost.child.wait()).expect("its end");
        let (began, mut before) = (Instant::now(), self.used());
        match way {
            0 => {
                self.all(|_| "handle".into());
                let handles: Vec<String> = self.ranks.iter_mut().map(Rank::hear).collect();
                let order = format!("reconfigure {}", handles.join(" "));
                self.all(|_| order.clone());
                self.done();
            }
            1 => self.join(),
            _ => {
                let left = self.ranks.len();
                self.ranks.clear();
                self.ranks.extend((0..left).map(|_| Rank::start(&self.hints)));
                before = 0.0;
                self.join();
            }
        }
        let ms = || began.elapsed().as_secs_f64() * 1e3;
        let (met, used) = (ms(), self.used() - before);
        self.call();
        [met, used, ms()]
    }

    /// Returns the processor time of the threads that are ranks, in milliseconds.
    fn used(&self) -> f64 {
        let used = |rank: &Rank| {
            let text = std::fs::read_to_string(format!("/proc/{}/schedstat", rank.child.id()));
            let text = text.expect("the statistics of a process");
            text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("a time") / 1e6
        };
        self.ranks.iter().map(used).sum()
    }

    /// Lets all processes join a job of their own.
    fn join(&mut self) {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
        let (port, size) = (port.expect("a port").port(), self.ranks.len());
        self.all(|rank| format!("join {port} {rank} {size}"));
        self.done();
    }

    /// Lets all ranks make a call.
    fn call(&mut self) {
        self.all(|_| "call".into());
        self.done();
    }

    fn all(&mut self, order: impl Fn(usize) -> String) {
        for (number, rank) in self.ranks.iter_mut().enumerate() {
            writeln!(rank.to, "{}", order(number)).expect("a rank that listens");
        }
    }

    fn done(&mut self) {
        self.ranks.iter_mut().for_each(|rank| assert_eq!(rank.hear(), "done"));
    }
}

impl Rank {
    fn start(hints: &str) -> Rank {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .env(RANK, hints)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let (to, from) =
            (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Rank { child, to, from: BufReader::new(from) }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("a rank that speaks");
        line.trim_end().to_owned()
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does what the parent says, a line at a time.
fn rank(hints: &str) -> Result<(), Error> {
    let setup = JobSetup::new().hints(&hints.parse::<Hints>()?).timeout(TIMEOUT);
    let mut comm: Option<Communicator> = None;
    for line in std::io::stdin().lines() {
        let line = line.map_err(|e| Error::Start(e.to_string()))?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match (&words[..], &mut comm) {
            (["join", port, rank, size], _) => {
                // What is left of the old job is not waited for.
                drop(comm.take());
                let number = |text: &str| text.parse::<u32>().expect("a number");
                let store = StoreAt::Address {
                    host: "127.0.0.1".into(),
                    port: number(port) as u16,
                    job: String::new(),
                };
                let (rank, size) = (number(rank), number(size));
                let membership =
                    JobMembership { rank, size, launcher: LauncherKind::ByHand, store };
                comm.insert(Communicator::join(&membership, &setup)?).barrier()?;
                "done".into()
            }
            (["handle"], Some(comm)) => comm.handle()?,
            (["reconfigure", handles @ ..], Some(comm)) => {
                let handles: Vec<String> = handles.iter().map(|&h| h.to_owned()).collect();
                comm.reconfigure("after a kill", RankHandles::List(&handles), TIMEOUT)?;
                comm.barrier()?;
                "done".into()
            }
            (["call"], Some(comm)) => {
                verify(comm)?;
                "done".into()
            }
            _ => return Err(Error::Usage(format!("`{line}` is no order"))),
        };
        println!("{answer}");
    }
    Ok(())
}

/// Calls with the others, and checks the result.
fn verify(comm: &mut Communicator) -> Result<(), Error> {
    let mut sum = [u64::from(comm.rank()) + 1; 16];
    comm.all_reduce(&mut sum, RedOp::Sum)?;
    let n = u64::from(comm.size());
    assert_eq!(sum, [n * (n + 1) / 2; 16]);
    Ok(())
}
