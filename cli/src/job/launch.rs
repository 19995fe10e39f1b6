//! Starting the ranks of a job, and making one story of what they report.

use std::time::Duration;

use roundelay::{Launcher, Layout, Outcome};
use roundelay_compiler::Shape;
use roundelay_dsl::diag::{Code, codes};

use super::{Event, Job};
use crate::report::{Failure, fault, refused};

/// How the ranks of a job are started.
pub(crate) struct Start {
    /// See [`Play`].
    pub(crate) timeout: Duration,
    /// Whether ranks are bound to cores.
    pub(crate) pin: bool,
    /// See [`Play`].
    pub(crate) slot_bytes: Option<u64>,
}

/// What the ranks of a job said.
#[derive(Default)]
struct Heard {
    /// Rank, code, message, and whether it only followed another rank.
    errors: Vec<(u32, String, String, bool)>,
    /// What was wrong in results.
    remarks: Vec<String>,
    /// Wrong elements.
    wrong: u64,
}

/// Starts the ranks and waits for their end. `done` is called with each case that is done: its index,
/// the time of one call in microseconds, and the number of wrong elements.
pub(crate) fn play(
    job: &Job,
    start: &Start,
    mut done: impl FnMut(usize, f64, u64),
) -> Result<(), Failure> {
    let shape: Shape = job.shape.parse().map_err(Failure::Usage)?;
    let ranks = u32::try_from(shape.ranks()).unwrap_or(u32::MAX);
    let text = serde_json::to_string(job).map_err(|e| Failure::Usage(e.to_string()))?;
    let mut layout = Layout::new(ranks);
    layout.slot_bytes = start.slot_bytes.unwrap_or(layout.slot_bytes);
    let launcher = Launcher::new(ranks)
        .layout(layout)
        .args(["rank", &text])
        .timeout(start.timeout)
        .pin(start.pin);
    let mut heard = Heard::default();
    let outcome = launcher.run(|rank, line| match serde_json::from_str(line) {
        Ok(Event::Done { case, time_us, wrong }) => {
            heard.wrong += wrong;
            done(case, time_us, wrong);
        }
        Ok(Event::Wrong(text)) => heard.remarks.push(text),
        Ok(Event::Error { code, message, aborted }) => {
            heard.errors.push((rank, code, message, aborted));
        }
        // Not from this program.
        Err(_) => {}
    });
    heard.verdict(outcome.map_err(|e| failure(e.code(), e.to_string()))?)
}

impl Heard {
    fn verdict(mut self, outcome: Outcome) -> Result<(), Failure> {
        // The rank that saw the cause itself comes first.
        self.errors.sort_by_key(|(rank, _, text, aborted)| {
            (*aborted, !text.contains("is stopped"), *rank)
        });
        if let Some((_, code, message, _)) = self.errors.into_iter().next() {
            let code = codes::find(&code).map_or(codes::LOST_RANK, |(code, _)| code);
            return Err(failure(code, message));
        }
        if !outcome.success() {
            let cause = outcome.cause.unwrap_or_else(|| "a rank ended early".into());
            return Err(failure(codes::LOST_RANK, cause));
        }
        if self.wrong == 0 {
            return Ok(());
        }
        let what = format!("{} elements are wrong", self.wrong);
        let first = fault(codes::WRONG_RESULT, what);
        Err(Failure::Run(self.remarks.into_iter().take(3).fold(first, |d, text| d.note(text))))
    }
}

/// Arguments that do not go together are the user's; everything else is a run that failed.
fn failure(code: Code, message: String) -> Failure {
    match code {
        codes::UNSUPPORTED => refused(fault(code, message)),
        _ => Failure::Run(fault(code, message)),
    }
}
