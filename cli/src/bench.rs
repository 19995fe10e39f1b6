//! `roundelay bench`: how fast algorithms are, and other libraries beside them.

use roundelay_compiler::Shape;

use crate::args::{Bench, Target};
use crate::job::table::{Columns, Line, head, row};
use crate::job::{self, Case, Job, Proof, Start};
use crate::peer::{Peers, Ready};
use crate::progress::Progress;
use crate::report::{Outcome, Report};
use crate::run::{plan_job, seed, shapes};
use crate::values::steps;

/// Seconds for the timed calls of a size, in each turn.
const BUDGET: f64 = 0.4;

/// Runs the verb.
pub(crate) fn bench(args: &Bench, report: Report) -> Outcome {
    let sizes = match &args.bytes {
        Some(sizes) => sizes.list(args.factor),
        None => {
            let mut sizes = Vec::new();
            steps(args.min, args.max.max(args.min), args.factor, &mut sizes);
            sizes
        }
    };
    let peers = Peers::new(&args.vs);
    for why in &peers.missing {
        report.remark(&format!("skipped {why}"));
    }
    let seed = seed(&args.play);
    for name in &args.names {
        let target = Target { target: name.clone(), algorithm: None, root: args.root };
        for shape in shapes(&args.play, &target, report)? {
            let (job, proofs) = plan_job(&target, &args.play, &shape, &sizes, seed, BUDGET)?;
            let table = Table { args, report, shape, job, proofs };
            table.fill(&peers)?;
        }
    }
    Ok(())
}

/// The results of one name at one shape.
struct Table<'a> {
    args: &'a Bench,
    report: Report,
    shape: Shape,
    job: Job,
    proofs: Vec<Proof>,
}

impl Table<'_> {
    fn fill(&self, peers: &Peers) -> Outcome {
        let Some(first) = self.proofs.first() else { return Ok(()) };
        let play = &self.args.play;
        let columns = Columns {
            collective: first.collective.clone(),
            ranks: self.shape.ranks(),
            dtype: play.dtype,
            op: play.op,
            reduces: first.reduces,
            root: self.args.root,
        };
        for proof in &self.proofs {
            self.report.line(&proof.words);
        }
        head(self.report);
        let mut progress = Progress::new("bench", self.job.cases.len());
        if peers.ready.is_empty() {
            return self.ours(&self.job, |case, time_us, wrong| {
                let line = self.line(&columns, &self.job.cases[case], time_us, wrong);
                progress.aside(|| row(self.report, &line));
                progress.step();
            });
        }
        for case in &self.job.cases {
            let lines = self.in_turn(&columns, case, peers)?;
            progress.aside(|| lines.iter().for_each(|line| row(self.report, line)));
            progress.step();
        }
        Ok(())
    }

    fn line(&self, columns: &Columns, case: &Case, time_us: f64, wrong: u64) -> Line {
        let proof = &self.proofs[case.piece];
        columns.line(&proof.algorithm, case.count, proof.blocks, time_us, wrong)
    }

    fn ours(&self, job: &Job, done: impl FnMut(usize, f64, u64)) -> Outcome {
        let play = &self.args.play;
        job::play(
            job,
            &Start { timeout: play.timeout, pin: true, slot_bytes: play.slot_bytes },
            done,
        )
    }

    /// Measures one size, ours and every peer's by turns; medians of the turns.
    fn in_turn(
        &self,
        columns: &Columns,
        case: &Case,
        peers: &Peers,
    ) -> Result<Vec<Line>, crate::report::Failure> {
        let job = Job { cases: vec![*case], ..self.job.clone() };
        let mut own = Times::default();
        let mut others: Vec<(&Ready, Times)> =
            peers.ready.iter().map(|p| (p, Times::default())).collect();
        for _ in 0..self.args.turns {
            self.ours(&job, |_, time, wrong| own.add(time, wrong))?;
            for (peer, times) in others.iter_mut().filter(|(_, t)| t.fault.is_none()) {
                match peer.measure(&job, &self.proofs[case.piece], case, self.shape.ranks()) {
                    Ok((time, wrong)) => times.add(time, wrong),
                    Err(why) => times.fault = Some(why),
                }
            }
        }
        let time = own.median();
        let mut lines = vec![self.line(columns, case, time, own.wrong)];
        for (peer, times) in others {
            if let Some(why) = &times.fault {
                self.report.remark(&format!("{}: no result: {why}", peer.name()));
                continue;
            }
            let mut line = self.line(columns, case, times.median(), times.wrong);
            line.algorithm = "default".into();
            line.peer = Some(peer.name().into());
            line.ratio = (time > 0.0).then(|| times.median() / time);
            lines.push(line);
        }
        Ok(lines)
    }
}

/// What was measured by turns.
#[derive(Default)]
struct Times {
    times: Vec<f64>,
    wrong: u64,
    fault: Option<String>,
}

impl Times {
    fn add(&mut self, time_us: f64, wrong: u64) {
        self.times.push(time_us);
        self.wrong += wrong;
    }

    fn median(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(0.0)
    }
}
