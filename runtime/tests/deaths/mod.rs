//! Tests ranks that are killed or stopped at random moments: whatever they were doing, the others end with an
//! error that names them, in bounded time, and nothing is left behind. In some jobs they also work in parts:
//! who fails there fails the whole.
//!
//! The moments are random; the jobs are not: `SEED` repeats one. `ROUNDS` sets how many are run.

mod left;
mod rank;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::support::scene::{self, say};
use left::Before;
use roundelay::launch::{JobOutcome, ProcessEnding, RankLauncher};
use roundelay_tests::runs_alone;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Tells a rank that it is in a job with parts.
const SPLITS: &str = "TEST_DEATHS_SPLITS";
/// The variable that names the file in which ranks say how far they have come.
const WORDS: &str = "TEST_DEATHS_WORDS";

/// The time after a job's first call at which its rank is hit, even if it has not made as many calls as it should.
const SLOW: Duration = Duration::from_millis(800);
/// The longest time that ranks would wait for a killed one, if they had to.
const PATIENCE: Duration = Duration::from_secs(30);
/// Times that a job is begun anew that found the machine too busy to begin within the timeout.
const TRIES: u32 = 3;
/// A job that takes so long hangs.
const HANGS: Duration = Duration::from_secs(120);

/// Returns the time that the others may take beyond the timeout; of a rank that was killed, altogether. It is
/// a second where little else runs, as `SLACK_MS=1000` demands.
fn slack() -> Duration {
    Duration::from_millis(number("SLACK_MS").unwrap_or(20_000))
}

/// Returns the time that ranks wait for a stopped one. All ranks must come to begin within it, however busy
/// the machine is; a shorter one, of `TIMEOUT_MS`, makes more rounds in less time.
fn timeout() -> Duration {
    let default = if number("SLACK_MS").is_some() { 800 } else { 2500 };
    Duration::from_millis(number("TIMEOUT_MS").unwrap_or(default))
}

/// Numbers that look random, the same ones for the same seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Over {
    Shm,
    Tcp,
    Mixed,
}

/// The moment at which a rank is hit.
#[derive(Debug, Clone, Copy)]
struct Moment {
    /// Number of calls after which it comes; 0 is while the ranks join.
    calls: u64,
    /// The time after these calls at which it comes.
    later: Duration,
}

/// A job, and what becomes of it.
#[derive(Debug)]
struct Job {
    seed: u64,
    over: Over,
    ranks: u32,
    victim: usize,
    signal: Signal,
    moment: Moment,
    /// True if every other call is made in parts that are split off for it.
    splits: bool,
}

/// The observations of a job.
struct Seen {
    outcome: JobOutcome,
    /// The lines that each rank printed, and their times.
    said: Vec<Vec<(Instant, String)>>,
    /// The time at which the rank was hit; nothing if the job hung then, or ended before.
    hit: Option<Instant>,
    ended: Instant,
    /// Calls that each rank began and, of those that need all ranks, completed.
    tally: Vec<(u64, u64)>,
}

impl Job {
    fn any(round: u64, seed: u64) -> Job {
        let mut random = Random::new(seed);
        let over = [Over::Shm, Over::Tcp, Over::Mixed][(round % 3) as usize];
        let signal = if (round / 3).is_multiple_of(2) { Signal::KILL } else { Signal::STOP };
        let ranks = 3 + random.below(2) as u32;
        let victim = random.below(ranks.into()) as usize;
        let (calls, most) = match random.below(4) {
            0 => (0, 60_000),
            _ => (1 << random.below(7), 40_000),
        };
        let later = Duration::from_micros(random.below(most));
        let splits = random.below(3) == 0;
        Job { seed, over, ranks, victim, signal, moment: Moment { calls, later }, splits }
    }

    fn timeout(&self) -> Duration {
        if self.takes_the_timeout() { timeout() } else { PATIENCE }
    }

    /// Returns true if no rank can know before the timeout: a rank that never came may still come.
    fn takes_the_timeout(&self) -> bool {
        self.signal == Signal::STOP || self.moment.calls == 0
    }

    /// Returns how long the launcher lets the others go on after the first end that it sees.
    fn grace(&self) -> Duration {
        if self.signal == Signal::STOP { slack() } else { self.bound() }
    }

    /// Returns the longest time that the others may take.
    fn bound(&self) -> Duration {
        if self.takes_the_timeout() { timeout() + slack() } else { slack() }
    }

    fn run(&self) -> Seen {
        let words = Words::new(self.ranks);
        let launcher = match self.over {
            Over::Shm => RankLauncher::new(self.ranks),
            Over::Tcp => RankLauncher::new(self.ranks).hints("transport=tcp"),
            Over::Mixed => RankLauncher::new(self.ranks).hosts(2),
        };
        let launcher = scene::scene(launcher, rank::MODULE, &self.seed.to_string())
            .env(WORDS, &words.path)
            .timeout(self.timeout())
            .grace(self.grace());
        let launcher = if self.splits { launcher.env(SPLITS, "1") } else { launcher };
        let mut said = vec![Vec::new(); self.ranks as usize];
        let (lines, received) = channel();
        let (outcome, hit) = std::thread::scope(|scope| {
            let hand = scope.spawn(move || self.strike(&received));
            let outcome = launcher.run(|rank, line| hear(rank, line, &mut said, &lines));
            drop(lines);
            (outcome.expect("a launch"), hand.join().expect("the hand that strikes"))
        });
        Seen { outcome, said, hit, ended: Instant::now(), tally: words.read(self.ranks) }
    }

    /// Waits for the moment and hits the rank; then sees to it that the job ends. Nothing, if it did
    /// not by itself, or too early.
    fn strike(&self, lines: &Receiver<(usize, String)>) -> Option<Instant> {
        let mut processes: Vec<Option<OwnedFd>> = (0..self.ranks).map(|_| None).collect();
        let until = Instant::now() + HANGS;
        let mut hear = |until: Instant| {
            let left = until.saturating_duration_since(Instant::now());
            let line = lines.recv_timeout(left);
            if let Ok((rank, text)) = &line
                && let Some(pid) = text.strip_prefix("pid ").and_then(|pid| pid.parse().ok())
            {
                let pid = Pid::from_raw(pid).expect("a process");
                processes[*rank] = pidfd_open(pid, PidfdFlags::empty()).ok();
            }
            line
        };
        let wanted = match self.moment.calls {
            0 => "pid ".to_owned(),
            calls => format!("at {calls}"),
        };
        let mut first = None;
        loop {
            // Where calls are slow, the moment comes before that number.
            match hear(first.map_or(until, |first: Instant| first + SLOW)) {
                Ok((rank, text)) if rank == self.victim && text.starts_with(&wanted) => break,
                Ok((_, text)) if text == "at 1" => {
                    first.get_or_insert_with(Instant::now);
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if first.is_some() => break,
                Err(_) => break,
            }
        }
        let moment = Instant::now() + self.moment.later;
        while Instant::now() < moment {
            std::hint::spin_loop();
        }
        let hit = Instant::now();
        let process = processes[self.victim].as_ref()?;
        pidfd_send_signal(process, self.signal).ok()?;
        let hear =
            |until: Instant| lines.recv_timeout(until.saturating_duration_since(Instant::now()));
        let mut others: BTreeSet<usize> = (0..self.ranks as usize).collect();
        others.remove(&self.victim);
        loop {
            match hear(hit + HANGS) {
                Ok((rank, text)) => {
                    // A stopped one ends when all others have: the launcher would give them its whole grace.
                    if text.starts_with("RL") && others.remove(&rank) && others.is_empty() {
                        let _ = pidfd_send_signal(process, Signal::KILL);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Some(hit),
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        for process in processes.iter().flatten() {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        None
    }

    /// Returns true if a rank found, before anything was done to anybody, that another did not answer in time.
    fn is_too_early(&self, seen: &Seen) -> bool {
        let late = |text: &str| text.starts_with("RL0703 ") || text.starts_with("RL0709 ");
        let mut last = seen.said.iter().filter_map(|said| said.last());
        last.any(|(at, text)| late(text) && seen.hit.is_none_or(|hit| *at < hit))
    }

    /// Checks that all went as it must; returns the time that the last survivor took.
    fn check(&self, seen: &Seen) -> Result<Duration, String> {
        let Seen { outcome, said, hit, ended, tally } = seen;
        let bound = self.bound();
        let Some(hit) = hit else { return Err("it hangs, or failed before it was hit".into()) };
        let ending = outcome.endings[self.victim];
        let by_launcher = self.signal == Signal::STOP && ending == ProcessEnding::Killed;
        if ending != ProcessEnding::Signalled(9) && !by_launcher {
            return Err(format!("rank {} ended otherwise", self.victim));
        }
        let mut last = Duration::ZERO;
        for rank in (0..self.ranks as usize).filter(|&rank| rank != self.victim) {
            let Some((at, text)) = said[rank].last() else {
                return Err(format!("rank {rank} said nothing"));
            };
            if outcome.endings[rank] != ProcessEnding::Exited(3) {
                return Err(format!("rank {rank} did not end with an error"));
            }
            if said[rank].iter().any(|(_, text)| text.starts_with("wrong")) {
                return Err(format!("rank {rank} was given a wrong result"));
            }
            if at < hit {
                return Err(format!("rank {rank} failed before anything had happened"));
            }
            if !self.names(text) {
                return Err(format!("rank {rank} names another rank"));
            }
            if tally[rank].1 > tally[self.victim].0 {
                return Err(format!("rank {rank} completed a call that the victim never began"));
            }
            last = last.max(*at - *hit);
        }
        if last > bound {
            return Err(format!("the last one failed after {last:?}"));
        }
        let all = *ended - *hit;
        if all > bound + self.grace() {
            return Err(format!("the job ended after {all:?}"));
        }
        Ok(last)
    }

    /// Returns true if an error is about the rank that was hit.
    fn names(&self, text: &str) -> bool {
        let joined = self.moment.calls > 0;
        let Some((code, text)) = text.split_once(' ') else { return false };
        // A part may speak of it, by its own numbers.
        let victim = match text.split_once("in a part, whose ranks are [") {
            Some((_, list)) => {
                let list = list.split([',', ']']).map(|rank| rank.trim().parse());
                list.take_while(Result::is_ok).position(|r| r == Ok(self.victim)).unwrap_or(99)
            }
            None => self.victim,
        };
        match self.signal {
            Signal::KILL if joined => {
                code == "RL0704" && text.starts_with(&format!("rank {} is gone: ", self.victim))
            }
            // No rank of another machine can see why a process is silent.
            Signal::STOP if joined && self.over != Over::Mixed => {
                code == "RL0703" && text.contains(&format!("rank {victim} is stopped"))
            }
            Signal::STOP if joined => code == "RL0703" && text.contains(&format!("rank {victim}")),
            // Who is gone is called as in the whole, whatever follows.
            _ => {
                text.starts_with(&format!("rank {} is gone: ", self.victim)) || blames(text, victim)
            }
        }
    }
}

/// Returns true if an error says that a rank is missing, gone or silent: it or several, among them it.
fn blames(text: &str, rank: usize) -> bool {
    const ONE: [&str; 9] = [
        "is gone",
        "is stopped",
        "has left",
        "has not come",
        "has not joined",
        "has not reported what it does",
        "has not made call",
        "does not answer",
        // Only of rank 0.
        ", which serves the store, does not answer",
    ];
    let store = rank == 0 && text.contains("to get into the store of rank 0");
    let is_one = |after: &str| ONE.iter().any(|what| after.trim_start().starts_with(what));
    let mut lists = text.split("ranks ").skip(1).filter(|rest| {
        let (list, rest) = rest.split_at(rest.find(|c: char| c.is_alphabetic()).unwrap_or(0));
        let has = |what: &str| rest.starts_with(what);
        list.split(", ").any(|one| one.trim().parse() == Ok(rank))
            && (has("do not answer") || has("have not come") || has("have left"))
    });
    store || text.split(&format!("rank {rank}")).skip(1).any(is_one) || lists.next().is_some()
}

/// Keeps what a rank said.
fn hear(
    rank: u32,
    line: &str,
    said: &mut [Vec<(Instant, String)>],
    lines: &Sender<(usize, String)>,
) {
    if let Some(text) = line.strip_prefix("> ") {
        said[rank as usize].push((Instant::now(), text.to_owned()));
        // The receiver is gone once the job is known to hang.
        let _ = lines.send((rank as usize, text.to_owned()));
    }
}

/// Returns the path of the file of this process.
fn words() -> PathBuf {
    let name = format!("deaths-{}", std::process::id());
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A file with two words a rank.
struct Words {
    path: PathBuf,
}

impl Words {
    fn new(ranks: u32) -> Words {
        let path = words();
        std::fs::write(&path, vec![0; 16 * ranks as usize]).expect("a file");
        Words { path }
    }

    fn read(&self, ranks: u32) -> Vec<(u64, u64)> {
        let bytes = std::fs::read(&self.path).expect("a file");
        let word = |i: usize| u64::from_le_bytes(bytes[8 * i..][..8].try_into().expect("a word"));
        (0..ranks as usize).map(|rank| (word(2 * rank), word(2 * rank + 1))).collect()
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn a_rank_that_is_killed_or_stopped_at_any_moment_is_named_in_time() {
    // What a job leaves behind is looked for in this process, and so are children.
    let test = "a_rank_that_is_killed_or_stopped_at_any_moment_is_named_in_time";
    if !runs_alone(module_path!(), test) {
        return;
    }
    let rounds = number("ROUNDS").unwrap_or(8);
    let first = number("FIRST").unwrap_or(0);
    let mut figures = Vec::new();
    let mut failures = Vec::new();
    for round in first..first + rounds {
        let job = Job::any(round, number("SEED").unwrap_or(round));
        let before = Before::now();
        let seen = (1..TRIES).map(|_| job.run()).find(|seen| !job.is_too_early(seen));
        let seen = seen.unwrap_or_else(|| job.run());
        let verdict = job.check(&seen).and_then(|took| before.compare().map(|()| took));
        match verdict {
            Ok(took) => figures.push((job.over, job.splits, job.signal.as_raw(), took)),
            Err(why) => {
                let said: Vec<_> = seen.said.iter().map(|s| s.last().map(|(_, t)| t)).collect();
                let (outcome, tally) = (&seen.outcome, &seen.tally);
                failures.push(format!(
                    "round {round}: {why}\n{job:?}\n{outcome:?}\n{tally:?}\n{said:#?}"
                ));
            }
        }
    }
    figures.sort();
    for group in figures.chunk_by(|a, b| (a.0, a.1, a.2) == (b.0, b.1, b.2)) {
        let (over, splits, signal, _) = group[0];
        let (median, most) = (group[group.len() / 2].3, group[group.len() - 1].3);
        let (n, parts) = (group.len(), if splits { " with parts" } else { "" });
        say(&format!(
            "{over:?}{parts}, signal {signal}: {n} rounds, median {median:?}, most {most:?}"
        ));
    }
    assert!(
        failures.is_empty(),
        "{} of {rounds} failed\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}
