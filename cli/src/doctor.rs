//! Implements `roundelay doctor`: says who is at fault, from the flight recorders of the ranks of one or several
//! communicators.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use roundelay::launch::{JobReport, JobSetup, RankReport, gather};
use roundelay::trace::{
    CauseClass, FlightDump, LiveRanks, RankCondition, RankStanding, TraceVerdict, deadlock, delays,
    diagnose, live, merge,
};
use serde::{Deserialize, Serialize};

use crate::args;
use crate::report::{VerbError, VerbReport, VerbResult, fault, refused};
use roundelay_dsl::diag::codes;

/// A file of one rank's recorder, or the one that `--flight` leaves.
#[derive(Deserialize)]
#[serde(untagged)]
enum FlightFile {
    Job { flights: Vec<FlightDump>, ranks: Vec<RankStanding> },
    Rank(Box<FlightDump>),
}

/// The outcome as programs read it.
#[derive(Serialize)]
struct DoctorReport {
    /// The cause; none if no rank waits and nothing is slow.
    verdict: Option<TraceVerdict>,
    communicators: Vec<CommunicatorRanks>,
    /// Why the ranks of a running job have not all joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    joining: Option<String>,
    /// The ranks of a running job that did not answer, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    silent: Vec<SilentRank>,
}

/// A rank that did not answer.
#[derive(Serialize)]
struct SilentRank {
    rank: u32,
    why: String,
}

/// The ranks of a communicator.
#[derive(Serialize)]
struct CommunicatorRanks {
    communicator: String,
    /// The cause as far as the ranks of this communicator show it.
    verdict: Option<TraceVerdict>,
    /// The state of each rank.
    ranks: Vec<RankStanding>,
    /// The ranks of which there is no recorder.
    missing: Vec<u32>,
}

/// Runs the verb.
pub(crate) fn doctor(args: &args::DoctorArgs, report: VerbReport) -> VerbResult {
    let mut silent = Vec::new();
    let jobs = match &args.store {
        Some(store) => {
            // As the ranks were given it.
            let setup = JobSetup::from_env()?;
            match gather(store, &args.job, &setup, args.timeout)? {
                JobReport::Running { communicator, reports: answers } => {
                    ask(communicator, answers, &mut silent)
                }
                JobReport::Joining(why) => {
                    report.line(format!("cause: {why}"));
                    let (verdict, communicators) = (None, Vec::new());
                    report.result(&DoctorReport {
                        verdict,
                        communicators,
                        joining: Some(why),
                        silent,
                    });
                    return Ok(());
                }
            }
        }
        None if args.pid.is_empty() => read(&args.files)?,
        None => watch(&args.pid)?,
    };
    let is_several = jobs.len() > 1;
    let flights: Vec<FlightDump> = jobs.values().flat_map(|job| job.flights.clone()).collect();
    let communicators: Vec<CommunicatorRanks> =
        jobs.into_iter().map(|(name, job)| job.standings(name)).collect();
    for all in &communicators {
        if is_several {
            report.line(format!("communicator {}:", all.communicator));
        }
        for standing in &all.ranks {
            report.line(line(standing, !all.missing.contains(&standing.rank)));
        }
        if let Some(verdict) = all.verdict.as_ref().filter(|_| is_several) {
            report.line(format!("  by itself: {verdict}"));
        }
    }
    for SilentRank { rank, why } in &silent {
        report.line(format!("rank {rank}: {why}"));
    }
    let verdicts = communicators.iter().filter_map(|all| all.verdict.clone());
    let verdict = deadlock(&flights).or_else(|| verdicts.min_by_key(|verdict| verdict.class));
    report.line(match &verdict {
        Some(verdict) => format!("\ncause: {verdict}"),
        None if !silent.is_empty() => {
            "\nno cause is known: see what the ranks do that do not answer".into()
        }
        None => "\nno rank waits for another, and none is lost".into(),
    });
    report.result(&DoctorReport { verdict, communicators, joining: None, silent });
    Ok(())
}

/// The recorders of one communicator.
struct CommunicatorFlights {
    ranks: u32,
    flights: Vec<FlightDump>,
    /// Ranks that do not run, as their launcher or the system sees them.
    lost: Vec<RankStanding>,
}

impl CommunicatorFlights {
    fn standings(mut self, communicator: String) -> CommunicatorRanks {
        let ranks = match self.flights.first_mut() {
            Some(first) => {
                first.seen.append(&mut self.lost);
                merge(self.ranks, &self.flights, &[])
            }
            None => std::mem::take(&mut self.lost),
        };
        let answered = |rank: &u32| self.flights.iter().any(|flight| flight.rank == *rank);
        let missing: Vec<u32> = (0..self.ranks).filter(|rank| !answered(rank)).collect();
        CommunicatorRanks { communicator, verdict: self.verdict(&ranks), ranks, missing }
    }

    /// Returns the cause: as the ranks stand, or, where no rank is lost and none makes another call, by how long they
    /// have waited for whom.
    fn verdict(&self, ranks: &[RankStanding]) -> Option<TraceVerdict> {
        let standing = diagnose(ranks, None);
        let class = standing.as_ref().map(|verdict| verdict.class);
        let delays = match class {
            None | Some(CauseClass::Slow) => delays(&self.flights),
            Some(CauseClass::Cycle) => {
                delays(&self.flights).filter(|v| v.class == CauseClass::Link)
            }
            Some(_) => None,
        };
        delays.or(standing)
    }
}

/// Groups the answers of the ranks of a job by communicator, and notes why silent ranks are silent. Ranks of one host
/// report each other.
fn ask(
    whole: String,
    answers: Vec<RankReport>,
    silent: &mut Vec<SilentRank>,
) -> BTreeMap<String, CommunicatorFlights> {
    let size = answers.len() as u32;
    let none = |ranks| CommunicatorFlights { ranks, flights: Vec::new(), lost: Vec::new() };
    let mut jobs: BTreeMap<String, CommunicatorFlights> = BTreeMap::new();
    let mut gone = Vec::new();
    for (rank, answer) in (0..).zip(answers) {
        let seen = match answer {
            RankReport::Seen(seen) => seen,
            RankReport::Gone(how) => {
                gone.push((rank, RankCondition::Died(how)));
                continue;
            }
            RankReport::Silent(why) => {
                gone.push((rank, RankCondition::Unknown));
                silent.push(SilentRank { rank, why });
                continue;
            }
        };
        for LiveRanks { communicator, ranks, flights, standings } in seen {
            let job = jobs.entry(communicator).or_insert_with(|| none(ranks));
            for flight in flights.into_iter().filter(|f| f.rank < ranks && ranks == job.ranks) {
                if job.flights.iter().all(|known| known.rank != flight.rank) {
                    job.flights.push(flight);
                }
            }
            for standing in standings.into_iter().filter(|s| s.rank < ranks) {
                if job.lost.iter().all(|known| known.rank != standing.rank) {
                    job.lost.push(standing);
                }
            }
        }
    }
    let job = jobs.entry(whole).or_insert_with(|| none(size));
    for (rank, condition) in gone {
        let is_known = job.flights.iter().any(|flight| flight.rank == rank)
            || job.lost.iter().any(|standing| standing.rank == rank);
        if !is_known && condition != RankCondition::Unknown {
            let (pid, calls, recent, waiting) = (None, 0, Vec::new(), None);
            job.lost.push(RankStanding { rank, pid, condition, calls, recent, waiting });
        }
    }
    jobs.retain(|_, job| !job.flights.is_empty() || !job.lost.is_empty());
    jobs
}

/// Looks at the ranks of all communicators of processes, by communicator.
fn watch(pids: &[i32]) -> Result<BTreeMap<String, CommunicatorFlights>, VerbError> {
    let mut jobs = BTreeMap::new();
    for &pid in pids {
        for LiveRanks { communicator, ranks, flights, standings } in live(pid)? {
            jobs.insert(communicator, CommunicatorFlights { ranks, flights, lost: standings });
        }
    }
    Ok(jobs)
}

/// Reads the recorders, by communicator.
fn read(files: &[PathBuf]) -> Result<BTreeMap<String, CommunicatorFlights>, VerbError> {
    type FlightsByRank<'a> = BTreeMap<u32, (&'a Path, FlightDump)>;
    let mut jobs: BTreeMap<String, (FlightsByRank<'_>, Vec<RankStanding>)> = BTreeMap::new();
    for path in files {
        let (here, others) = match dump(path)? {
            FlightFile::Rank(flight) => (vec![*flight], Vec::new()),
            FlightFile::Job { flights, ranks } => (flights, ranks),
        };
        // What the launcher has seen of ranks that could not report it themselves.
        if let Some(flight) = here.first() {
            let lost = others.into_iter().filter(|s| s.condition != RankCondition::Running);
            jobs.entry(flight.communicator.clone()).or_default().1.extend(lost);
        }
        for flight in here {
            let (flights, _) = jobs.entry(flight.communicator.clone()).or_default();
            add(flights, path, flight)?;
        }
    }
    if jobs.is_empty() {
        let none = files.first().map(PathBuf::as_path).unwrap_or(Path::new(""));
        return Err(wrong(none, "it has the flight recorder of no rank"));
    }
    let job = |(name, (flights, lost)): (String, (FlightsByRank<'_>, Vec<RankStanding>))| {
        let flights: Vec<FlightDump> = flights.into_values().map(|(_, flight)| flight).collect();
        let ranks = flights.first().map_or(0, |flight| flight.ranks);
        (name, CommunicatorFlights { ranks, flights, lost })
    };
    Ok(jobs.into_iter().map(job).collect())
}

/// Adds the recorder of a rank to those of its communicator.
fn add<'a>(
    flights: &mut BTreeMap<u32, (&'a Path, FlightDump)>,
    path: &'a Path,
    flight: FlightDump,
) -> Result<(), VerbError> {
    let (rank, n) = (flight.rank, flight.ranks);
    if let Some((first, other)) = flights.values().next()
        && other.ranks != n
    {
        let first = first.display();
        let why = format!("it is of a job of {n} ranks, {first} of {}", other.ranks);
        return Err(wrong(path, &why));
    }
    if n as usize > MOST {
        return Err(wrong(path, &format!("it is of a job of {n} ranks, more than {MOST}")));
    }
    if rank >= n {
        return Err(wrong(path, &format!("it is of rank {rank} of {n}")));
    }
    if let Some((other, flight)) = flights.insert(rank, (path, flight)) {
        let why = format!("{} is of rank {} too", other.display(), flight.rank);
        return Err(wrong(path, &why));
    }
    Ok(())
}

/// Ranks that a job may have: as many as have been modelled.
const MOST: usize = 1 << 20;

fn dump(path: &Path) -> Result<FlightFile, VerbError> {
    let text = std::fs::read_to_string(path).map_err(|e| wrong(path, &e.to_string()))?;
    let read = serde_json::from_str(&text);
    read.map_err(|_| {
        wrong(
            path,
            "it is no flight recorder: give what `run --flight FILE` has left, or the JSON of \
             `Communicator::flight` of each rank",
        )
    })
}

fn wrong(path: &Path, why: &str) -> VerbError {
    refused(fault(codes::FILE, format!("{}: {why}", path.display())))
}

/// Describes a rank: its condition, its last call, and the wait it is in.
fn line(standing: &RankStanding, answered: bool) -> String {
    let calls = format!("{} calls", standing.calls);
    let condition = match &standing.condition {
        RankCondition::Running => calls,
        RankCondition::Died(how) => format!("dead ({how}), {calls}"),
        RankCondition::Stopped => format!("stopped, {calls}"),
        RankCondition::Absent => "has not joined".into(),
        RankCondition::Left => format!("has left, {calls}"),
        RankCondition::Unknown => "nothing is known".into(),
    };
    let last = standing.recent.last().and_then(|seen| seen.what.as_deref());
    let last = last.map_or(String::new(), |what| format!(" ({what})"));
    let wait = standing.waiting.as_ref().map_or(String::new(), |wait| {
        let place = if wait.site.is_empty() { String::new() } else { format!(" at {}", wait.site) };
        format!(", waits for rank {} in step {}{place}", wait.peer, wait.step)
    });
    let recorder = if answered { "" } else { ", no recorder" };
    format!("rank {}: {condition}{last}{wait}{recorder}", standing.rank)
}
