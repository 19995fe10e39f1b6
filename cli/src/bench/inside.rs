//! Measures ours and the libraries inside our ranks, on GPUs: all tables at once, by the same processes,
//! which take seconds to start. Every size is measured by turns.

use super::table::{BenchResults, BenchTable};
use super::turns::TurnTimes;
use crate::job::table::head;
use crate::job::{self, JobCase, JobEvent, JobOrder, JobTurn, RefusedCases};
use crate::peer::InsideLibrary;
use crate::progress::WorkProgress;
use crate::report::VerbError;
use crate::values::size_text;

/// The table, the size and the library that a case of the job belongs to.
#[derive(Debug, Clone, Copy)]
struct CaseOrigin {
    /// Index of the table, and of the size in it.
    table: usize,
    size: usize,
    /// The index of the library that is measured, as in [`JobCase`]; `None` for ours.
    who: Option<usize>,
    /// The last one of the size.
    last: bool,
}

/// Fills tables, those of the same ranks by one job.
pub(super) fn fill(
    tables: &[BenchTable<'_>],
    inside: &[InsideLibrary],
    results: &mut BenchResults,
) -> Result<RefusedCases, VerbError> {
    let mut refusals = RefusedCases::default();
    for tables in tables.chunk_by(|a, b| a.shape.ranks() == b.shape.ranks()) {
        let (job, parts) = together(tables, inside);
        let mut filling = TableFiller { tables, inside, parts: &parts, times: Vec::new(), results };
        let mut progress = WorkProgress::new("bench", parts.len());
        if let Some(first) = tables.first() {
            let event = |event| filling.record(event, &mut progress);
            refusals.join(job::execute(&job, first.start, event)?);
        }
    }
    Ok(refusals)
}

/// Makes one job of several tables: every size in turn, ours before the libraries.
fn together(tables: &[BenchTable<'_>], inside: &[InsideLibrary]) -> (JobOrder, Vec<CaseOrigin>) {
    let mut job = tables[0].job.clone();
    (job.entries, job.cases) = (Vec::new(), Vec::new());
    let mut parts = Vec::new();
    for (table, t) in tables.iter().enumerate() {
        let first = job.entries.len();
        job.entries.extend(t.job.entries.iter().cloned());
        for (size, case) in t.job.cases.iter().enumerate() {
            let turns = if inside.is_empty() { 1 } else { t.args.turns };
            for turn in 0..turns {
                for who in std::iter::once(None).chain((0..inside.len()).map(Some)) {
                    let turn = JobTurn { first: turn == 0, last: turn + 1 == turns };
                    let entry = first + case.entry;
                    job.cases.push(JobCase { entry, who, turn, ..*case });
                    let last = turn.last && who.map_or(0, |w| w + 1) == inside.len();
                    parts.push(CaseOrigin { table, size, who, last });
                }
            }
        }
    }
    if let Some(gpu) = &mut job.gpu {
        gpu.inside = inside.to_vec();
    }
    (job, parts)
}

/// Tables that are being filled.
struct TableFiller<'a, 't> {
    tables: &'a [BenchTable<'t>],
    inside: &'a [InsideLibrary],
    parts: &'a [CaseOrigin],
    /// The times of the current size, ours first, then each library's; with the reason if a library lacks the call.
    times: Vec<(TurnTimes, Option<String>)>,
    results: &'a mut BenchResults,
}

impl TableFiller<'_, '_> {
    fn record(&mut self, event: JobEvent, progress: &mut WorkProgress) {
        let (case, why) = match &event {
            JobEvent::Remark(text) => {
                let report = self.tables[0].report;
                return progress.aside(|| report.line(text));
            }
            JobEvent::Now { .. } => return,
            JobEvent::Done { case, .. } => (*case, None),
            JobEvent::Lacks { case, why, .. } => (*case, Some(why.clone())),
        };
        let Some(&part) = self.parts.get(case) else { return };
        if self.times.is_empty() {
            self.times = vec![(TurnTimes::default(), None); self.inside.len() + 1];
            if part.size == 0 {
                progress.aside(|| self.begin(part.table));
            }
        }
        let (times, fault) = &mut self.times[part.who.map_or(0, |w| w + 1)];
        times.record(event);
        *fault = why.or(fault.take());
        progress.step();
        if part.last {
            progress.aside(|| self.end(part));
        }
    }

    fn begin(&self, table: usize) {
        let table = &self.tables[table];
        table.proofs.iter().for_each(|proof| table.report.line(&proof.words));
        head(table.report);
    }

    /// Ends a size, after all of its turns.
    fn end(&mut self, part: CaseOrigin) {
        let table = &self.tables[part.table];
        let case = &table.job.cases[part.size];
        let times = std::mem::take(&mut self.times);
        let Some(((own, refused), others)) = times.split_first() else { return };
        let names = self.inside.iter().map(|i| i.name());
        let peers =
            names.clone().zip(others).map(|(name, (t, _))| (name, table.columns.transport, t));
        let lines = table.lines(case, own, peers);
        let at = format!("{} {}", table.columns.collective, size_text(table.bytes(case)));
        self.results.show(table.report, table.label, lines);
        if let Some(why) = refused {
            table.refused(case, why);
        }
        for (name, (_, fault)) in names.zip(others) {
            if let Some(why) = fault {
                table.report.remark(&format!("{name}, {at}: skipped: {why}"));
            }
        }
    }
}
