//! Implements `run --chaos`: a long job under faults, whose ranks go on without those that are lost and take in others.
//!
//! This process starts ranks (`process`), kills, stops and slows them and cuts their connections (`cut`) at random, and
//! says who is to be in the next generation (`docs/elastic.md`); ranks (`rank`) meet by notes in a folder (`notes`). An
//! *attempt* is a list of members with a number. It has become a generation when all members have made verified calls
//! in it; it is over when a member is lost or says that it failed. Members that are stopped then count as lost: no rank
//! can distinguish a slow rank from one that never comes back.

mod cut;
mod notes;
mod process;
pub(crate) mod rank;
mod resources;

use std::time::{Duration, Instant};

use roundelay_compiler::Shape;
use roundelay_dsl::diag::codes;
use rustix::process::Pid;
use serde::{Serialize, Serializer};

use crate::args::{FaultKind, FaultRates, RunArgs};
use crate::choice;
use crate::hints;
use crate::load::entry;
use crate::random::RandomSource;
use crate::report::{VerbError, VerbReport, VerbResult, fault};
use crate::run;
use crate::tunables::{CHAOS_HANG_TIMEOUT, CHAOS_POLL_INTERVAL, CHAOS_REPLACE_DELAY};
use crate::values::median;
use notes::NoteFolder;
use process::{ProcessState, RankOrder, RankProcess};
use rank::RankTally;
use resources::LeakedResources;

/// The ranks that faults leave running.
const LEFT: usize = 2;

/// The result of a run.
#[derive(Debug, Default, Serialize)]
struct ChaosResult {
    faults: FaultCounts,
    /// Generations in which all members made calls.
    generations: u64,
    /// Calls that ranks made and compared with their reference; of killed ranks those of a short while before.
    calls: u64,
    /// Results that were reported as right and were wrong.
    wrong: u64,
    /// Times that ranks did not end a wait.
    hangs: u64,
    /// The time that a rank is in `reconfigure`, where that succeeds and the rank itself is not stopped meanwhile.
    reconfigure_ms: TimeSummary,
    /// The time from the list of a generation's members to verified calls of all of them.
    recovery_ms: TimeSummary,
    /// The most that a rank held beyond what it began with and what its communicator needs, in any generation and
    /// without the communicator in the end.
    left: LeakedResources,
    /// The threads of a rank that had left something.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    threads: Vec<String>,
    seconds: f64,
    seed: u64,
}

/// Times in milliseconds; 0 if there is none.
#[derive(Debug, Default, Serialize)]
struct TimeSummary {
    median: f64,
    most: f64,
}

impl TimeSummary {
    fn of(times: &[f64]) -> Self {
        let most = times.iter().copied().fold(0.0, f64::max);
        TimeSummary { median: median(times.iter().copied()).unwrap_or(0.0), most }
    }
}

/// The number of faults of each kind.
#[derive(Debug, Default)]
struct FaultCounts([u64; FaultKind::ALL.len()]);

impl Serialize for FaultCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(FaultKind::ALL.map(FaultKind::name).into_iter().zip(&self.0))
    }
}

/// A job under faults.
struct ChaosJob<'a> {
    order: RankOrder,
    size: usize,
    timeout: Duration,
    notes: &'a NoteFolder,
    random: RandomSource,
    ranks: Vec<RankProcess>,
    started: u64,
    /// Times at which ranks take the place of those that were lost.
    due: Vec<Instant>,
    /// The members of the attempt at hand, since when it is tried, and whether it has become a generation.
    members: Vec<String>,
    since: Instant,
    done: bool,
    recovered: Vec<f64>,
    result: ChaosResult,
    /// The machines over which ranks believe to be spread, in turn.
    hosts: u64,
}

/// Runs the job.
pub(crate) fn chaos(args: &RunArgs, rates: FaultRates, report: VerbReport) -> VerbResult {
    let size = size(args)?;
    let order = order(args, size)?;
    if rates.of(FaultKind::Cut) > 0.0 {
        cut::possible(&args.job_args)?;
    }
    let seed = run::seed(&args.job_args);
    report.line(format!("{size} ranks for {:?}, {rates}, seed {seed}", args.time));
    let notes = NoteFolder::new().map_err(|e| {
        VerbError::Run(fault(codes::WRITE, format!("the folder in which ranks meet: {e}")))
    })?;
    let mut job = ChaosJob {
        order,
        size,
        timeout: args.job_args.timeout,
        notes: &notes,
        random: RandomSource::new(seed),
        ranks: Vec::new(),
        started: 0,
        due: Vec::new(),
        members: Vec::new(),
        since: Instant::now(),
        done: false,
        recovered: Vec::new(),
        result: ChaosResult { seed, ..ChaosResult::default() },
        hosts: args.job_args.hosts.into(),
    };
    let began = Instant::now();
    let failed = job.execute(rates, began + args.time);
    let unexpected = job.end();
    job.result.seconds = began.elapsed().as_secs_f64();
    let result = &job.result;
    let [kill, stop, slow, late, cut] = result.faults.0;
    report.line(format!(
        "{kill} killed, {stop} stopped, {slow} slowed, {late} late, {cut} cut; {} generations, {} calls, {} wrong, {} hangs; a generation takes {:.1} ms, at \
         most {:.0} ms, and {:.1} ms until all have made calls; left behind: {}",
        result.generations,
        result.calls,
        result.wrong,
        result.hangs,
        result.reconfigure_ms.median,
        result.reconfigure_ms.most,
        result.recovery_ms.median,
        result.left,
    ));
    if !result.threads.is_empty() {
        report.line(format!("threads of ranks that left something: {}", result.threads.join(", ")));
    }
    report.result(result);
    let (code, why) = match failed.and(unexpected) {
        _ if result.wrong > 0 => {
            (codes::WRONG_RESULT, format!("{} results were wrong", result.wrong))
        }
        Ok(()) if result.hangs == 0 => return Ok(()),
        Ok(()) => (codes::TIMEOUT, format!("{} ranks did not end", result.hangs)),
        Err(why) if result.hangs > 0 => (codes::TIMEOUT, why),
        Err(why) => (codes::LOST_RANK, why),
    };
    Err(VerbError::Run(fault(code, why)))
}

/// Returns the number of ranks.
fn size(args: &RunArgs) -> Result<usize, VerbError> {
    let Some(ranks) = &args.job_args.n else { return Ok(4) };
    match ranks.shapes.as_slice() {
        [shape] if shape.axes.len() == 1 && shape.ranks() > LEFT as u64 => {
            Ok(shape.ranks() as usize)
        }
        _ => {
            let text = "--chaos takes one number of ranks, three at least, of which faults leave two: -n 4";
            Err(VerbError::Usage(text.into()))
        }
    }
}

/// Returns what the ranks do.
fn order(args: &RunArgs, size: usize) -> Result<RankOrder, VerbError> {
    let (job_args, target) = (&args.job_args, &args.target.target);
    if job_args.trace.is_some() || job_args.flight.is_some() {
        return Err(VerbError::Usage("--trace and --flight are for jobs without --chaos".into()));
    }
    let usual = job_args.dtype == roundelay::DType::F32 && job_args.op == roundelay::RedOp::Sum;
    let algorithm = match entry(target) {
        _ if !usual || job_args.rank.is_some() || job_args.on.gpus() => None,
        None if target == "all_reduce" => Some(args.target.algorithm.as_deref()),
        Some(("all_reduce", name)) => Some(Some(name)),
        _ => None,
    };
    let Some(algorithm) = algorithm else {
        return Err(VerbError::Usage(
            "--chaos runs all_reduce or all_reduce.NAME, sums of f32, between processes that it starts itself".into(),
        ));
    };
    if let Some(name) = algorithm {
        choice::idle(job_args, "all_reduce", name)?;
    }
    let mut job_args = job_args.clone();
    // Ranks come and go: there is no number of them that each host has.
    job_args.hosts = 1;
    job_args.hints.extend(algorithm.map(|name| format!("algorithm=all_reduce.{name}")));
    let sizes = args.bytes.list(args.factor);
    // What cannot run by all ranks, or by those that faults leave, is said here, and not by each rank.
    for ranks in LEFT..=size {
        let shape = Shape::flat(ranks as u32);
        for &bytes in &sizes {
            choice::of_call("all_reduce", 0, Some(&shape), bytes, &job_args)?;
        }
    }
    Ok(RankOrder {
        parent: std::process::id(),
        hints: hints::texts(&job_args).join(","),
        timeout_ms: job_args.timeout.as_millis() as u64,
        counts: sizes.iter().map(|bytes| bytes / 4).collect(),
        ..RankOrder::default()
    })
}

impl ChaosJob<'_> {
    /// Runs until then.
    fn execute(&mut self, rates: FaultRates, until: Instant) -> Result<(), String> {
        for _ in 0..self.size {
            self.start()?;
        }
        self.attempt();
        let mut next = FaultKind::ALL.map(|fault| self.soon(rates, fault));
        while Instant::now() < until {
            std::thread::sleep(CHAOS_POLL_INTERVAL);
            let now = Instant::now();
            self.reap()?;
            for (fault, next) in FaultKind::ALL.into_iter().zip(&mut next) {
                if now >= *next {
                    *next = self.soon(rates, fault);
                    self.strike(fault)?;
                }
            }
            for rank in &mut self.ranks {
                rank.go_on(now, self.notes);
            }
            let due = self.due.len();
            self.due.retain(|&at| at > now);
            for _ in self.due.len()..due {
                self.start()?;
            }
            self.look()?;
        }
        Ok(())
    }

    /// Returns the time of the next fault of this kind.
    fn soon(&mut self, rates: FaultRates, fault: FaultKind) -> Instant {
        Instant::now() + self.random.after(rates.of(fault))
    }

    fn start(&mut self) -> Result<(), String> {
        let name = format!("r{}", self.started);
        let host = (self.hosts > 1).then(|| format!("host {}", self.started % self.hosts));
        self.started += 1;
        let folder = self.notes.folder().display().to_string();
        let order = RankOrder {
            name: name.clone(),
            folder,
            host,
            attempt: self.order.attempt + 1,
            ..self.order.clone()
        };
        self.ranks.push(RankProcess::start(&order)?);
        Ok(())
    }

    /// Takes in the ends of ranks. One that was left out ends by itself.
    fn reap(&mut self) -> Result<(), String> {
        let mut at = 0;
        while at < self.ranks.len() {
            match self.ranks[at].child.try_wait() {
                Ok(None) => at += 1,
                Ok(Some(status)) if status.success() => self.lost(at),
                Ok(Some(status)) => return Err(format!("{} ended: {status}", self.ranks[at].name)),
                Err(e) => return Err(format!("{} cannot be waited for: {e}", self.ranks[at].name)),
            }
        }
        Ok(())
    }

    fn lost(&mut self, at: usize) {
        self.ranks.remove(at);
        self.due.push(Instant::now() + CHAOS_REPLACE_DELAY);
    }

    /// Has a fault happen, if there is a rank for it. One that is lost or stopped leaves some that run.
    fn strike(&mut self, fault: FaultKind) -> Result<(), String> {
        let left = match fault {
            FaultKind::Kill | FaultKind::Stop => LEFT,
            FaultKind::Slow | FaultKind::Late | FaultKind::Cut => 0,
        };
        let running = |at: &usize| self.ranks[*at].state != ProcessState::Stopped;
        if (0..self.ranks.len()).filter(running).count() <= left {
            return Ok(());
        }
        let well = (0..self.ranks.len()).filter(|&at| self.ranks[at].state == ProcessState::Runs);
        let well: Vec<usize> = well.collect();
        let Some(at) = self.random.of(&well) else { return Ok(()) };
        // From a time that no rank notices to one that others take for its end.
        let time = self.timeout.mul_f64(2.0 * self.random.share());
        match fault {
            FaultKind::Kill => {
                self.ranks[at].kill();
                self.lost(at);
            }
            FaultKind::Stop => self.ranks[at].disturb(ProcessState::Stopped, time, self.notes),
            FaultKind::Slow => self.ranks[at].disturb(ProcessState::Slow, time, self.notes),
            FaultKind::Late => {
                self.notes.put(&self.ranks[at].late(), &time.as_millis().to_string());
            }
            // There may be none, between two generations.
            FaultKind::Cut if !self.cut(at)? => return Ok(()),
            FaultKind::Cut => {}
        }
        self.result.faults.0[fault as usize] += 1;
        Ok(())
    }

    /// Cuts a connection of a rank, which both its ends lose. Returns false if there is none.
    fn cut(&mut self, at: usize) -> Result<bool, String> {
        let rank = &self.ranks[at];
        cut::cut(Pid::from_child(&rank.child), &mut self.random)
            .map_err(|e| format!("a connection of {} cannot be cut: {e}", rank.name))
    }

    /// Begins another attempt if this one is over, or can take in the ranks that wait for it.
    fn look(&mut self) -> Result<(), String> {
        let number = self.order.attempt;
        let said =
            |what: &str, name: &str| self.notes.find(&format!("{number}-{what}-{name}")).is_some();
        let is_there = |name: &String| self.ranks.iter().any(|rank| rank.name == *name);
        if !self.done && self.members.iter().all(|name| said("done", name)) {
            self.done = true;
            self.result.generations += 1;
            self.recovered.push(self.since.elapsed().as_secs_f64() * 1e3);
        }
        let is_over = self.members.iter().any(|name| !is_there(name) || said("failed", name));
        let waits = self.ranks.iter().any(|rank| !self.members.contains(&rank.name));
        let stopped = self.ranks.iter().any(|rank| rank.state == ProcessState::Stopped);
        if is_over && self.ranks.iter().any(|rank| rank.state != ProcessState::Stopped)
            || self.done && waits && !stopped
        {
            self.attempt();
        } else if !self.done
            && !stopped
            && self.since.elapsed() > 3 * self.timeout + CHAOS_HANG_TIMEOUT
        {
            self.result.hangs += 1;
            return Err(format!("attempt {number} of {} does not end", self.members.join(", ")));
        }
        Ok(())
    }

    fn attempt(&mut self) {
        self.order.attempt += 1;
        let running = self.ranks.iter().filter(|rank| rank.state != ProcessState::Stopped);
        self.members = running.map(|rank| rank.name.clone()).collect();
        (self.since, self.done) = (Instant::now(), false);
        self.notes.put(&format!("{}-members", self.order.attempt), &self.members.join(" "));
    }

    /// Has all ranks end, and counts what they have done.
    fn end(&mut self) -> Result<(), String> {
        self.notes.put("end", "");
        let until = Instant::now() + 3 * self.timeout + CHAOS_HANG_TIMEOUT;
        let mut failed = Ok(());
        self.ranks.iter().for_each(RankProcess::go);
        for rank in &mut self.ranks {
            loop {
                match rank.child.try_wait() {
                    Ok(Some(status)) if status.success() => break,
                    Ok(None) if Instant::now() < until => std::thread::sleep(CHAOS_POLL_INTERVAL),
                    Ok(None) => {
                        self.result.hangs += 1;
                        rank.kill();
                        break;
                    }
                    ended => {
                        failed = Err(format!("{} ended: {ended:?}", rank.name));
                        break;
                    }
                }
            }
        }
        let mut reconfigured = Vec::new();
        for number in 0..self.started {
            let tally = self.notes.find(&format!("tally-r{number}"));
            let tally: RankTally =
                tally.and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default();
            self.result.calls += tally.calls;
            self.result.wrong += tally.wrong;
            self.result.left = self.result.left.most(tally.left);
            self.result.threads.extend(tally.threads);
            reconfigured.extend(tally.reconfigured);
        }
        self.result.reconfigure_ms = TimeSummary::of(&reconfigured);
        self.result.recovery_ms = TimeSummary::of(&self.recovered);
        failed
    }
}
