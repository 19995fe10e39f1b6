//! Measures one size after the other, ours and every peer's by turns, so that what else the machine does hits
//! all alike.

use super::table::{BenchResults, BenchTable};
use crate::args::VerifyScope;
use crate::job::measure::checks;
use crate::job::table::{ResultRow, TableColumns};
use crate::job::{JobCase, JobEvent, JobOrder, KernelChoice, RefusedCases};
use crate::load::rooted;
use crate::peer::{PeerOrder, ReadyPeer, SessionAnswer};
use crate::progress::WorkProgress;
use crate::report::VerbError;
use crate::values::{median, size_text};

/// Number of sizes in a row without a result after which a peer is left out of the rest of a table.
const GIVE_UP: u32 = 2;

/// A peer in a table.
struct TablePeer<'a> {
    peer: &'a mut ReadyPeer,
    times: TurnTimes,
    /// The reason why there is no result for this size.
    fault: Option<String>,
    /// Sizes in a row that it broke down at.
    broken: u32,
    /// It is not asked any more.
    out: bool,
}

impl BenchTable<'_> {
    /// Measures all sizes.
    pub(super) fn in_turn(
        &self,
        peers: Vec<&mut ReadyPeer>,
        results: &mut BenchResults,
    ) -> Result<RefusedCases, VerbError> {
        let rival = |peer| TablePeer {
            peer,
            times: TurnTimes::default(),
            fault: None,
            broken: 0,
            out: false,
        };
        let mut rivals: Vec<TablePeer<'_>> = peers.into_iter().map(rival).collect();
        let parts = self.job.cases.len() * self.args.turns as usize * (rivals.len() + 1);
        let mut progress = WorkProgress::new("bench", parts);
        let mut refusals = RefusedCases::default();
        for case in &self.job.cases {
            let (own, refused) = self.one_size(case, &mut rivals, &mut progress)?;
            refusals.join(refused);
            let peers = rivals.iter().map(|r| (r.peer.name(), r.peer.transport(), &r.times));
            let lines = self.lines(case, &own, peers);
            progress.aside(|| results.show(self.report, self.label, lines));
        }
        Ok(refusals)
    }

    /// Measures a size. If ours is refused, its peers are not asked either: there is nothing to compare them with.
    fn one_size(
        &self,
        case: &JobCase,
        rivals: &mut [TablePeer<'_>],
        progress: &mut WorkProgress,
    ) -> Result<(TurnTimes, RefusedCases), VerbError> {
        let mut job = JobOrder { cases: vec![*case], ..self.job.clone() };
        let order = self.order(case);
        let at = format!("{} {}", self.columns.collective, size_text(self.bytes(case)));
        let mut own = TurnTimes::default();
        for rival in rivals.iter_mut() {
            (rival.times, rival.fault) = (TurnTimes::default(), None);
        }
        let mut refusals = RefusedCases::default();
        for _ in 0..self.args.turns {
            progress.now(&format!("{at}: ours"));
            refusals = self.ours(&job, |event| match event {
                JobEvent::Lacks { why, .. } => progress.aside(|| self.refused(case, &why)),
                event => own.record(event),
            })?;
            if refusals.any() {
                return Ok((TurnTimes::default(), refusals));
            }
            job.trace = false;
            progress.step();
            for rival in rivals.iter_mut() {
                progress.now(&format!("{at}: {}", rival.peer.name()));
                if !rival.out && rival.fault.is_none() {
                    rival.turn(&order);
                }
                progress.step();
            }
        }
        for rival in rivals.iter_mut().filter(|r| !r.out) {
            let Some(why) = &rival.fault else { continue };
            progress.aside(|| self.report.remark(&format!("{}, {at}: {why}", rival.peer.name())));
            if rival.broken >= GIVE_UP {
                rival.out = true;
                let name = rival.peer.name();
                progress.aside(|| {
                    self.report.remark(&format!("{name}: left out of the rest of the table"));
                });
            }
        }
        Ok((own, refusals))
    }

    fn order(&self, case: &JobCase) -> PeerOrder {
        let (job, proof) = (&self.job, &self.proofs[case.entry]);
        let ranks = self.shape.ranks();
        let turns = job.root.is_none() && rooted(&proof.collective);
        let roots = if turns { ranks as u32 } else { 1 };
        let bytes = case.count * u64::from(proof.blocks) * job.dtype.size() as u64;
        PeerOrder {
            collective: proof.collective.clone(),
            dtype: job.dtype.name(),
            op: job.op.name(),
            count: case.count,
            root: if turns { None } else { Some(job.root.unwrap_or(0)) },
            in_place: proof.entry.in_place(),
            warmup: job.warmup,
            iters: job.iters,
            budget: job.budget,
            checks: match job.verify {
                VerifyScope::Off => 0,
                _ => checks(usize::try_from(bytes).unwrap_or(usize::MAX), roots),
            },
            ranks,
        }
    }

    /// Returns the rows of a size: ours, and those of the peers that have a result.
    pub(super) fn lines<'a>(
        &self,
        case: &JobCase,
        own: &TurnTimes,
        peers: impl Iterator<Item = (&'a str, &'static str, &'a TurnTimes)>,
    ) -> Vec<ResultRow> {
        let proof = &self.proofs[case.entry];
        let time = own.median();
        let mut lines = Vec::new();
        if !own.times.is_empty() {
            let columns = &self.columns;
            let line = columns.line(&proof.algorithm, case.count, proof.blocks, time, own.wrong);
            lines.push(ResultRow { how: own.how.clone(), ..line });
        }
        for (name, transport, times) in peers.filter(|(.., times)| !times.times.is_empty()) {
            // Its data may take another transport.
            let columns = TableColumns { transport, ..self.columns.clone() };
            let (median, wrong) = (times.median(), times.wrong);
            let mut line = columns.line("default", case.count, proof.blocks, median, wrong);
            line.peer = Some(name.into());
            (line.file, line.chosen) = (None, false);
            // A wrong result in no time is no rival.
            line.ratio = (time > 0.0 && wrong == 0).then(|| median / time);
            lines.push(line);
        }
        lines
    }
}

impl TablePeer<'_> {
    fn turn(&mut self, order: &PeerOrder) {
        match self.peer.measure(order) {
            SessionAnswer::Measured(time, wrong) => {
                self.times.add(time, wrong);
                self.broken = 0;
            }
            SessionAnswer::Lacks(why) => self.fault = Some(format!("skipped: {why}")),
            SessionAnswer::Broken(why) => {
                // One turn without a result is a size without: the median would be of others.
                self.times = TurnTimes::default();
                self.fault = Some(format!("no result: {why}"));
                self.broken += 1;
            }
        }
    }
}

/// The times that were measured by turns.
#[derive(Debug, Clone, Default)]
pub(super) struct TurnTimes {
    times: Vec<f64>,
    wrong: u64,
    how: Option<KernelChoice>,
}

impl TurnTimes {
    /// Adds what a job says of a case.
    pub(super) fn record(&mut self, event: JobEvent) {
        if let JobEvent::Done { time_us, wrong, how, .. } = event {
            self.add(time_us, wrong);
            self.how = how.or(self.how.take());
        }
    }

    fn add(&mut self, time_us: f64, wrong: u64) {
        self.times.push(time_us);
        self.wrong += wrong;
    }

    fn median(&self) -> f64 {
        median(self.times.iter().copied()).unwrap_or(0.0)
    }
}
