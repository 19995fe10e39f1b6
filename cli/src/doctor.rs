//! Implements `roundelay doctor`: says who is at fault, from the flight recorders of the ranks of a job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use roundelay::trace::{Condition, Flight, Standing, Verdict, diagnose, merge};
use serde::{Deserialize, Serialize};

use crate::args;
use crate::report::{Failure, Outcome, Report, fault, refused};
use roundelay_dsl::diag::codes;

/// What a file holds: one rank's recorder, or the file that `--flight` leaves.
#[derive(Deserialize)]
#[serde(untagged)]
enum Dump {
    Job { flights: Vec<Flight>, ranks: Vec<Standing> },
    Rank(Box<Flight>),
}

/// The outcome as programs read it.
#[derive(Serialize)]
struct Diagnosis {
    /// The cause; none if no rank waits.
    verdict: Option<Verdict>,
    /// The state of each rank.
    ranks: Vec<Standing>,
    /// The ranks of which there is no recorder.
    missing: Vec<u32>,
}

/// Runs the verb.
pub(crate) fn doctor(args: &args::Doctor, report: Report) -> Outcome {
    let job = Job::read(&args.files)?;
    let standings = merge(job.ranks, &job.flights, &[]);
    let told = |rank: &u32| job.flights.iter().any(|flight| flight.rank == *rank);
    let missing: Vec<u32> = (0..job.ranks).filter(|rank| !told(rank)).collect();
    let verdict = diagnose(&standings, None);
    for standing in &standings {
        report.line(line(standing, told(&standing.rank)));
    }
    report.line(match &verdict {
        Some(verdict) => format!("\ncause: {verdict}"),
        None => "\nno rank waits for another, and none is lost".into(),
    });
    report.result(&Diagnosis { verdict, ranks: standings, missing });
    Ok(())
}

/// The recorders of one job.
struct Job {
    ranks: u32,
    flights: Vec<Flight>,
}

impl Job {
    fn read(files: &[PathBuf]) -> Result<Self, Failure> {
        let mut flights: BTreeMap<u32, (&Path, Flight)> = BTreeMap::new();
        let mut seen: Vec<Standing> = Vec::new();
        let mut ranks = None;
        for path in files {
            let (here, others) = match dump(path)? {
                Dump::Rank(flight) => (vec![*flight], Vec::new()),
                Dump::Job { flights, ranks } => (flights, ranks),
            };
            seen.extend(others);
            for flight in here {
                let (first, n) = *ranks.get_or_insert((path, flight.ranks));
                if flight.ranks != n {
                    let first = first.display();
                    let why = format!("it is of a job of {} ranks, {first} of {n}", flight.ranks);
                    return Err(wrong(path, &why));
                }
                if flight.rank >= n {
                    return Err(wrong(path, &format!("it is of rank {} of {n}", flight.rank)));
                }
                if let Some((other, flight)) = flights.insert(flight.rank, (path, flight)) {
                    let why = format!("{} is of rank {} too", other.display(), flight.rank);
                    return Err(wrong(path, &why));
                }
            }
        }
        let mut flights: Vec<Flight> = flights.into_values().map(|(_, flight)| flight).collect();
        let Some((first, (path, ranks))) = flights.first_mut().zip(ranks) else {
            let none = files.first().map(PathBuf::as_path).unwrap_or(Path::new(""));
            return Err(wrong(none, "it has the flight recorder of no rank"));
        };
        if ranks as usize > MOST {
            return Err(wrong(path, &format!("it is of a job of {ranks} ranks, more than {MOST}")));
        }
        // What the launcher has seen of ranks that could not tell it themselves.
        first.seen.extend(seen.into_iter().filter(|s| s.condition != Condition::Running));
        Ok(Job { ranks, flights })
    }
}

/// Ranks that a job may have: as many as have been modelled.
const MOST: usize = 1 << 20;

fn dump(path: &Path) -> Result<Dump, Failure> {
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

fn wrong(path: &Path, why: &str) -> Failure {
    refused(fault(codes::FILE, format!("{}: {why}", path.display())))
}

/// Describes a rank: its condition, its last call, and the wait it is in.
fn line(standing: &Standing, told: bool) -> String {
    let calls = format!("{} calls", standing.calls);
    let condition = match &standing.condition {
        Condition::Running => calls,
        Condition::Died(how) => format!("dead ({how}), {calls}"),
        Condition::Stopped => format!("stopped, {calls}"),
        Condition::Absent => "has not joined".into(),
        Condition::Left => format!("has left, {calls}"),
        Condition::Unknown => "nothing is known".into(),
    };
    let last = standing.recent.last().and_then(|seen| seen.what.as_deref());
    let last = last.map_or(String::new(), |what| format!(" ({what})"));
    let wait = standing.waiting.as_ref().map_or(String::new(), |wait| {
        let place = if wait.site.is_empty() { String::new() } else { format!(" at {}", wait.site) };
        format!(", waits for rank {} in step {}{place}", wait.peer, wait.step)
    });
    let recorder = if told { "" } else { ", no recorder" };
    format!("rank {}: {condition}{last}{wait}{recorder}", standing.rank)
}
