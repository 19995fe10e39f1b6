//! Starts the ranks of a job, and makes one story of what they report.

use std::time::Duration;

use roundelay::Hints;
use roundelay::launch::{JobOutcome, RankLauncher};
use roundelay::trace::FlightDump;
use roundelay::transport::SegmentLayout;
use roundelay_compiler::Shape;
use roundelay_dsl::diag::codes;

use super::argument::JobArgument;
use super::cause::{FLIGHT, FailureCause, RankError};
use super::event::{JobEvent, RankEvent};
use super::joined;
use super::order::JobOrder;
use super::refusals::RefusedCases;
use super::traces::JobTraces;
use super::traces::OutputFiles;
use crate::args::JobArgs;
use crate::hints;
use crate::member::ExternalMember;
use crate::peer::InsideLibrary;
use crate::report::{VerbError, fault, usage};

/// The settings with which the ranks of a job are started.
pub(crate) struct StartSettings {
    /// The longest time that a rank waits for another.
    pub(crate) timeout: Duration,
    /// True if ranks are bound to cores, in turn.
    pub(crate) pin: bool,
    /// Bytes of a slot, if an option or a hint gives them.
    pub(crate) slot_bytes: Option<u64>,
    /// The hints that the user gave for the job.
    pub(crate) hints: Hints,
    /// The hosts over which the ranks are spread, as [`JobArgs`] has them.
    hosts: u32,
    /// This process as a rank, if another launcher started it as one.
    member: Option<ExternalMember>,
    /// The destination of traces.
    trace: Option<OutputFiles>,
    /// The destination of dumps.
    flight: Option<OutputFiles>,
}

impl StartSettings {
    /// Merges options and hints; an option takes precedence over its hint.
    pub(crate) fn of(job_args: &JobArgs, pin: bool) -> Result<Self, VerbError> {
        let hints = hints::merged(&hints::texts(job_args))?;
        let member = ExternalMember::of(job_args)?;
        let ours = [
            ("--trace", job_args.trace.is_some()),
            ("--flight", job_args.flight.is_some()),
            ("--hosts", job_args.hosts > 1),
        ];
        if let (Some(_), Some((option, _))) = (&member, ours.iter().find(|(_, given)| *given)) {
            return Err(VerbError::Usage(format!(
                "{option} is for ranks that roundelay starts, and another launcher started these"
            )));
        }
        Ok(StartSettings {
            timeout: hints.timeout().unwrap_or(job_args.timeout),
            pin,
            slot_bytes: job_args.slot_bytes.or(hints.slot_bytes()),
            hints,
            hosts: job_args.hosts,
            member,
            trace: job_args.trace.as_deref().map(|p| OutputFiles::new("trace", p)).transpose()?,
            flight: job_args.flight.as_deref().map(|p| OutputFiles::new(FLIGHT, p)).transpose()?,
        })
    }
}

impl StartSettings {
    /// Returns the hints that matter when ranks join over sockets, from wherever they were given.
    fn joining(&self) -> String {
        let h = &self.hints;
        let [tls_cert, tls_key, tls_ca, tls_name] = h.certificate_files();
        let pairs = [
            ("transport", h.transport().map(|all| all.to_string())),
            ("channels", h.channels().map(|n| n.to_string())),
            ("slot_bytes", self.slot_bytes.map(|n| n.to_string())),
            ("lazy", h.lazy().map(|b| b.to_string())),
            ("doctor", h.doctor().map(|b| b.to_string())),
            ("interface", h.interface().map(String::from)),
            ("ports", h.ports().map(|ports| ports.to_string())),
            ("encryption", h.encryption().map(|mode| mode.to_string())),
            ("tls_cert", tls_cert.map(String::from)),
            ("tls_key", tls_key.map(String::from)),
            ("tls_ca", tls_ca.map(String::from)),
            ("tls_name", tls_name.map(String::from)),
            ("topology", h.topology().map(String::from)),
            ("paths", h.paths().map(|names| names.join(","))),
            ("rdma_gid", h.rdma_gid().map(|n| n.to_string())),
        ];
        let given = pairs.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        given.collect::<Vec<_>>().join(",")
    }
}

/// The reports of the ranks of a job.
#[derive(Default)]
struct RankReports {
    errors: Vec<RankError>,
    /// The flight recorders of those ranks.
    flights: Vec<FlightDump>,
    /// The faults found in results, in words.
    remarks: Vec<String>,
    /// Wrong elements.
    wrong: u64,
    traces: JobTraces,
}

/// Starts the ranks and waits for their end. `on_event` is called with their events, as they come. Returns the cases
/// that were refused.
pub(crate) fn execute(
    job: &JobOrder,
    start: &StartSettings,
    mut on_event: impl FnMut(JobEvent),
) -> Result<RefusedCases, VerbError> {
    if let Some(member) = &start.member {
        return joined::execute(job, member, on_event);
    }
    let shape: Shape = job.shape.parse().map_err(usage)?;
    let ranks = u32::try_from(shape.ranks()).unwrap_or(u32::MAX);
    let argument = JobArgument::new(job)?;
    let mut layout = SegmentLayout::new(ranks);
    layout.slot_bytes = start.slot_bytes.unwrap_or(layout.slot_bytes);
    let launcher = RankLauncher::new(ranks)
        .layout(layout)
        .args(["rank", argument.argument()])
        .timeout(start.timeout)
        .hosts(start.hosts)
        .pin(start.pin && job.gpu.is_none());
    let launcher = match job.gpu.as_ref().filter(|gpu| !gpu.inside.is_empty()) {
        Some(_) => InsideLibrary::variables().into_iter().fold(launcher, |l, (k, v)| l.env(k, v)),
        None => launcher,
    };
    // Sockets are tuned by hints, which ranks that inherit memory have no use for.
    let launcher = match start.hosts > 1 || start.hints.transport().is_some() {
        true => launcher.hints(start.joining()),
        false => launcher,
    };
    let mut reports = RankReports::default();
    let mut refusals = RefusedCases::of(job);
    let outcome = launcher.run(|rank, line| match serde_json::from_str(line) {
        // All ranks report a case that they refuse.
        Ok(RankEvent::Job(JobEvent::Lacks { .. })) if rank != 0 => {}
        Ok(RankEvent::Job(event)) => {
            reports.wrong += job.wrong(&event);
            refusals.add(job, &event);
            on_event(event);
        }
        Ok(RankEvent::Wrong(text)) => reports.remarks.push(text),
        Ok(RankEvent::Error { code, message, aborted, lost, flight }) => {
            reports.errors.push(RankError { rank, code, message, aborted, lost });
            reports.flights.extend(flight.map(|flight| *flight));
        }
        Ok(RankEvent::Trace(trace)) => reports.traces.add(*trace),
        // Not from this program.
        Err(_) => {}
    });
    if let Some(output) = &start.trace {
        std::mem::take(&mut reports.traces).save(output)?;
    }
    reports.verdict(outcome?, start, ranks)?;
    Ok(refusals)
}

impl RankReports {
    fn verdict(
        self,
        outcome: JobOutcome,
        start: &StartSettings,
        ranks: u32,
    ) -> Result<(), VerbError> {
        if let Some(first) = RankError::first(&self.errors) {
            let RankError { rank, code, message, .. } = first.clone();
            let code = codes::find(&code).map_or(codes::LOST_RANK, |(code, _)| code);
            let reporters: Vec<u32> = self.errors.iter().map(|error| error.rank).collect();
            let cause = FailureCause::new(ranks, self.flights, &outcome.endings, rank, &reporters);
            if let Some(output) = &start.flight {
                cause.save(output)?;
            }
            let note = cause.note(&message);
            let finding = note.into_iter().fold(fault(code, message), |f, note| f.note(note));
            return Err(VerbError::of_run(code, finding));
        }
        if !outcome.success() {
            let cause = outcome.cause.unwrap_or_else(|| "a rank ended early".into());
            return Err(VerbError::Run(fault(codes::LOST_RANK, cause)));
        }
        match self.wrong {
            0 => Ok(()),
            wrong => Err(joined::wrong_results(wrong, self.remarks)),
        }
    }
}
