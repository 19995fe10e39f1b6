//! Implements `roundelay check`: reports what was proved of an algorithm at each rank count, and how good it is.

use std::cell::{Cell, OnceCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use roundelay_compiler::all_n::{AllRanksProof, NotProved, ProofEffort};
use roundelay_compiler::{CompileOptions, Plan, Program, Shape};
use roundelay_dsl::ast::FileDeclaration;
use roundelay_dsl::diag::Diagnostic;
use roundelay_dsl::diag::render::{DiagnosticJson, json};
use roundelay_dsl::span::SourceMap;
use serde::Serialize;

use crate::all_ranks::report_all_ranks;
use crate::args::CheckArgs;
use crate::badge::{BADGE_EFFORT, BADGE_RANGE, BadgeRange, RankBadge, counts, spans};
use crate::load::{LoadedInput, LoadedPrograms, is_path, load};
use crate::progress::WorkProgress;
use crate::proof::ShapeProof;
use crate::report::{VerbError, VerbReport, VerbResult, WRONG_INPUT, unwritten};
use crate::values::{RankCounts, size_text, time_text};
use crate::verdict::CheckVerdict;
use crate::watch::watch;

/// A result as programs read it. What is not known is left null.
#[derive(Debug, Default, Serialize)]
struct CheckRow {
    algorithm: Option<String>,
    collective: Option<String>,
    ranks: Option<u64>,
    shape: Option<String>,
    verdict: CheckVerdict,
    method: Option<String>,
    /// The rank counts for which it is proved: more than this one where one proof covers all.
    badge: Option<RankBadge>,
    /// The range of a badge for all rank counts.
    badge_ranks: Option<BadgeRange>,
    rounds: Option<u32>,
    /// The number of ports of a rank for which the bound holds.
    rounds_bound: Option<u32>,
    /// Most messages that a rank sends or receives in a round.
    ports: Option<u32>,
    /// Bytes that the busiest rank sends for a vector of `bytes`.
    bytes_per_rank: Option<f64>,
    bytes_per_rank_bound: Option<f64>,
    bytes: Option<u64>,
    slots: Option<u32>,
    bitwise: Option<bool>,
    /// The name of the reduction order.
    order: Option<&'static str>,
    /// True if that order, for every type and operator, does not depend on the place of an element.
    batch_invariant: Option<bool>,
    /// The reason for which it does: two results, and how they are combined.
    order_reason: Option<String>,
    lossy: Option<bool>,
    /// Points at which a rank may fail.
    points: Option<u64>,
    time_us: Option<f64>,
    diagnostics: Vec<DiagnosticJson>,
}

/// Runs the verb.
pub(crate) fn check(args: &CheckArgs, report: VerbReport) -> VerbResult {
    if !args.watch {
        return check_once(args, report, &mut Vec::new());
    }
    watch(report, || {
        let mut files = Vec::new();
        let outcome = check_once(args, report, &mut files);
        files.retain(|file| file.is_file());
        let named = Path::new(&args.target.target);
        // A file that is not there yet, or cannot be read, is waited for too.
        if files.is_empty() && is_path(&args.target.target) {
            files.push(named.to_path_buf());
        }
        (outcome, files)
    })
}

/// Checks once, and adds the names of the texts that it has read.
fn check_once(args: &CheckArgs, report: VerbReport, files: &mut Vec<PathBuf>) -> VerbResult {
    let loaded = match load(&args.target) {
        Ok(LoadedInput::Programs(loaded)) => loaded,
        Ok(LoadedInput::Plan(_)) if args.certificate.is_some() => {
            let why = "a plan has no certificate: name the algorithm that it was made of";
            return Err(VerbError::Usage(why.into()));
        }
        Ok(LoadedInput::Plan(plan)) => return checked_plan(&plan, report),
        Err(failure) => {
            if let VerbError::Input(sources, found) = &failure {
                let diagnostics = found.iter().map(|d| json(sources, d)).collect();
                let verdict = CheckVerdict::of(found);
                report.result(&CheckRow { verdict, diagnostics, ..CheckRow::default() });
            }
            return Err(failure);
        }
    };
    files.extend(loaded.sources.iter().map(|source| PathBuf::from(&source.name)));
    let (mut ends, mut proofs) = (Vec::new(), Vec::new());
    for program in &loaded.programs {
        // `--all-n` without rank counts asks for every one alone, and so does a certificate.
        let is_all_n = args.all_n || args.certificate.is_some();
        if !is_all_n || args.n.is_some() {
            ends.push(ProofTable::new(args, report, &loaded, program).fill());
        }
        if is_all_n {
            let options = args.target.options();
            proofs.push(report_all_ranks(report, &loaded.sources, program, &options));
        }
    }
    let mut all_proved = proofs.iter().all(Option::is_some);
    if let Some(path) = &args.certificate {
        all_proved &= write_certificates(path, &proofs, report)?;
    }
    for end in &ends {
        if let CheckOutcome::Proved(warnings) = end {
            report.diagnostics(&loaded.sources, warnings);
        }
    }
    // Of several algorithms some need not allow the ranks: that is no fault of theirs.
    let passes = ends.iter().any(|end| matches!(end, CheckOutcome::Proved(_)));
    let faults = ends.into_iter().filter_map(|end| match end {
        CheckOutcome::Proved(_) => None,
        CheckOutcome::NotAllowed(_) if passes => None,
        CheckOutcome::NotAllowed(found) | CheckOutcome::Failed(found) => Some(found),
    });
    let faults: Vec<Vec<Diagnostic>> = faults.collect();
    faults.iter().for_each(|found| report.diagnostics(&loaded.sources, found));
    if faults.is_empty() && all_proved { Ok(()) } else { Err(VerbError::Said(WRONG_INPUT)) }
}

/// Writes the certificates of algorithms to one file. Returns false, and writes none, if one is missing.
fn write_certificates(
    path: &Path,
    proofs: &[Option<AllRanksProof>],
    report: VerbReport,
) -> Result<bool, VerbError> {
    let of = |proof: &Option<AllRanksProof>| proof.as_ref()?.certificate.clone();
    let certificates: Vec<String> = proofs.iter().filter_map(of).collect();
    if certificates.len() < proofs.len() {
        let (missing, all) = (proofs.len() - certificates.len(), proofs.len());
        report.line(format!(
            "  no certificate is written: {missing} of {all} algorithms not proved for all n, or in a way that has none"
        ));
        return Ok(false);
    }
    let written = std::fs::write(path, certificates.concat());
    written.map_err(|e| unwritten("certificate", path, &e))?;
    Ok(true)
}

/// Reports a plan that was read. It is checked already: it decoded.
fn checked_plan(plan: &Plan, report: VerbReport) -> VerbResult {
    let h = &plan.header;
    let hash: String = h.hash.iter().map(|b| format!("{b:02x}")).collect();
    let (rank, ranks) = (plan.part.rank, h.ranks);
    report.line(format!(
        "plan of rank {rank} of {ranks} for {}.{}: whole and consistent in itself, hash {hash}",
        h.collective, h.algorithm
    ));
    report.result(&serde_json::json!({
        "algorithm": h.algorithm, "collective": h.collective, "ranks": ranks, "rank": rank,
        "verdict": CheckVerdict::Consistent, "hash": hash, "diagnostics": [],
    }));
    Ok(())
}

/// The results of one algorithm.
struct ProofTable<'a> {
    args: &'a CheckArgs,
    report: VerbReport,
    sources: &'a SourceMap,
    program: &'a Arc<Program>,
    options: CompileOptions,
    /// The warnings of the text itself.
    lints: Vec<Diagnostic>,
    /// True once the reason of a reduction order was printed: it is much the same at every rank count.
    has_reason: Cell<bool>,
    /// The badge for every rank count, or why there is none, once it was asked for.
    badge: OnceCell<Result<RankBadge, NotProved>>,
}

/// The outcome of all rank counts of an algorithm; the first that did not go well says why.
enum CheckOutcome {
    /// The algorithm is proved; with the warnings of the first rank count that has some.
    Proved(Vec<Diagnostic>),
    /// It allows none of them.
    NotAllowed(Vec<Diagnostic>),
    Failed(Vec<Diagnostic>),
}

/// One rank count.
enum ShapeResult {
    Proved(Box<ShapeProof>),
    Failed(Vec<Diagnostic>),
}

impl<'a> ProofTable<'a> {
    fn new(
        args: &'a CheckArgs,
        report: VerbReport,
        loaded: &'a LoadedPrograms,
        program: &'a Arc<Program>,
    ) -> Self {
        let options = args.target.options();
        let lints = lints(&loaded.sources, program);
        ProofTable {
            args,
            report,
            sources: &loaded.sources,
            program,
            options,
            lints,
            has_reason: Cell::new(false),
            badge: OnceCell::new(),
        }
    }

    /// Proves all rank counts.
    fn fill(&self) -> CheckOutcome {
        let ranks = self.args.n.clone().unwrap_or_else(|| usual_ranks(self.program));
        let name = format!("{}.{}", self.program.kind.name(), self.program.name);
        self.head(&name);
        let progress = WorkProgress::new(&name, ranks.shapes.len());
        let (mut skipped, mut shown) = (Vec::new(), 0);
        let (mut warnings, mut proved) = (self.lints.clone(), Vec::new());
        let mut failed: Option<Vec<Diagnostic>> = None;
        for shape in &ranks.shapes {
            let found = self.one(shape);
            match found {
                ShapeResult::Failed(found) if ranks.range && not_allowed(&found) => {
                    skipped.push((shape.clone(), found));
                }
                found => {
                    shown += 1;
                    progress.aside(|| self.row(shape, &found));
                    if let ShapeResult::Proved(proof) = &found {
                        proved.push((shape, RankBadge::of_method(proof.checked.method)));
                        if warnings.len() == self.lints.len() {
                            warnings.extend_from_slice(&proof.checked.warnings);
                        }
                    }
                    if let ShapeResult::Failed(found) = found
                        && failed.as_ref().is_none_or(|f| not_allowed(f) && !not_allowed(&found))
                    {
                        failed = Some(found);
                    }
                }
            }
            progress.step();
        }
        drop(progress);
        if shown == 0
            && let Some((shape, found)) = skipped.first()
        {
            self.row(shape, &ShapeResult::Failed(found.clone()));
            failed = Some(found.clone());
        } else if !skipped.is_empty() {
            self.name_skipped(&name, &skipped);
        }
        if !self.report.json && !self.args.all_n && failed.is_none() {
            self.badge_line(&proved, &skipped);
        }
        match failed {
            None => CheckOutcome::Proved(warnings),
            // A refutation may have its cause in what is warned of.
            Some(found) if not_allowed(&found) => CheckOutcome::NotAllowed(found),
            Some(mut found) => {
                // What is warned of may be the cause.
                found.extend_from_slice(&self.lints);
                CheckOutcome::Failed(found)
            }
        }
    }

    fn one(&self, shape: &Shape) -> ShapeResult {
        match ShapeProof::new(self.program, self.sources, shape, &self.options, self.args.bytes) {
            Ok(proof) => ShapeResult::Proved(Box::new(proof)),
            Err(found) => ShapeResult::Failed(found),
        }
    }

    /// Returns the badge for every rank count, or why there is none. What is asked for takes more work.
    fn badge(&self) -> &Result<RankBadge, NotProved> {
        let effort = if self.args.all_n { ProofEffort::FULL } else { BADGE_EFFORT };
        self.badge.get_or_init(|| RankBadge::find(self.program, effort))
    }

    /// Prints the badge of the algorithm, of which these shapes were proved and those are not allowed.
    fn badge_line(&self, proved: &[(&Shape, RankBadge)], skipped: &[(Shape, Vec<Diagnostic>)]) {
        let mut parts: Vec<String> = Vec::new();
        let mut more = String::new();
        match self.badge() {
            Ok(badge) => parts.push(format!("{}: {BADGE_RANGE}", badge.words(""))),
            Err(why) => {
                for method in [RankBadge::Unrolled, RankBadge::Symmetry] {
                    let of = |(shape, badge): &(&Shape, RankBadge)| {
                        (*badge == method).then(|| (*shape).clone())
                    };
                    let shapes: Vec<Shape> = proved.iter().filter_map(of).collect();
                    let fill = skipped.iter().map(|(shape, _)| shape);
                    parts.extend(counts(&shapes, fill).map(|counts| method.words(&counts)));
                }
                if let Some(n) = why.ranks {
                    more = format!("; perhaps wrong at n = {n}: try `--all-n`");
                }
            }
        }
        self.report.line(format!("  {:>9}  {}{more}", "badge", parts.join(", ")));
    }

    fn name_skipped(&self, name: &str, skipped: &[(Shape, Vec<Diagnostic>)]) {
        let all: Vec<u32> = skipped.iter().filter_map(|(s, _)| s.axes.first().copied()).collect();
        let text = format!("{name} does not allow n = {}", spans(&all));
        if self.report.json {
            self.report.remark(&text);
        } else {
            self.report.line(format!("  {text}"));
        }
    }

    fn head(&self, name: &str) {
        let file = &self.sources.get(self.program.header.source).name;
        self.report.line(format!("{name} ({file})"));
        self.report.line(format!(
            "  {:>9}  {:11}  {:16}  {:>16}  {:>17}  {:>6}  {:>5}  {:28}  {:>10}",
            "ranks",
            "verdict",
            "method",
            "rounds (bound)",
            "sent/size (bound)",
            "gap",
            "slots",
            "reduction order",
            format!("time of {}", size_text(self.args.bytes)),
        ));
    }

    fn row(&self, shape: &Shape, found: &ShapeResult) {
        let line = self.result(shape, found);
        self.report.result(&line);
        let ShapeResult::Proved(proved) = found else {
            let code = line.diagnostics.first().map_or("", |d| d.code.as_str());
            let verdict = line.verdict.words();
            self.report.line(format!("  {:>9}  {verdict:11}  {code}", shape.to_string()));
            return;
        };
        let checked = &proved.checked;
        let rounds = proved.rounds_bound().map(|(rounds, ports)| match ports {
            1 => rounds.to_string(),
            _ => format!("{rounds}, {ports} ports"),
        });
        let (sent, bound) = (proved.sent(), proved.sent_bound());
        let gap = proved.gap().map_or("-".into(), |gap| format!("{:+.0}%", gap * 100.0));
        let with = |x: String, bound: Option<String>| match bound {
            Some(b) => format!("{x} ({b})"),
            None => x,
        };
        let slots = checked.least_slots.map_or("-".into(), |s| s.to_string());
        self.report.line(format!(
            "  {:>9}  {:11}  {:16}  {:>16}  {:>17}  {gap:>6}  {slots:>5}  {:28}  {:>10}",
            shape.to_string(),
            line.verdict.words(),
            checked.method.to_string(),
            with(checked.facts.depth.to_string(), rounds),
            with(
                sent.map_or("-".into(), |sent| format!("{sent:.3}")),
                bound.map(|b| format!("{b:.3}"))
            ),
            proved.order(),
            line.time_us.map_or("-".into(), time_text),
        ));
        if let Some(reason) =
            proved.order_reason.as_ref().filter(|_| !self.has_reason.replace(true))
        {
            self.report.line(format!("  {:>9}  not batch-invariant: {reason}", ""));
        }
        if let Some(points) = checked.points {
            let text = "goes on without any one rank, wherever it fails";
            self.report.line(format!("  {:>9}  {text}: {points} points", ""));
        }
    }

    fn result(&self, shape: &Shape, found: &ShapeResult) -> CheckRow {
        let mut line = CheckRow {
            algorithm: Some(self.program.name.clone()),
            collective: Some(self.program.kind.name().into()),
            ranks: Some(shape.ranks()),
            shape: Some(shape.to_string()),
            bytes: Some(self.args.bytes),
            ..CheckRow::default()
        };
        match found {
            ShapeResult::Failed(found) => {
                line.verdict = CheckVerdict::of(found);
                line.diagnostics = found.iter().map(|d| json(self.sources, d)).collect();
            }
            ShapeResult::Proved(proved) => {
                let ShapeProof { checked, spec, time_us, ports, order_reason, .. } = &**proved;
                let bytes = self.args.bytes as f64;
                line.verdict = CheckVerdict::Proved;
                if self.report.json {
                    let method = RankBadge::of_method(checked.method);
                    let badge = self.badge().as_ref().copied().unwrap_or(method);
                    line.badge = Some(badge);
                    line.badge_ranks = badge.is_all_n().then_some(BADGE_RANGE);
                }
                line.method = Some(checked.method.to_string());
                line.rounds = Some(checked.facts.depth);
                line.bytes_per_rank = Some(proved.sent().unwrap_or(0.0) * bytes);
                line.rounds_bound = proved.rounds_bound().map(|(rounds, _)| rounds);
                line.ports = *ports;
                if let Some((_, (num, den))) = spec.lower_bounds() {
                    line.bytes_per_rank_bound = Some(bytes * num as f64 / den.max(1) as f64);
                }
                line.slots = checked.least_slots;
                line.bitwise = checked.facts.bitwise;
                line.order = checked.facts.order.map(|order| order.name());
                line.batch_invariant = checked.facts.is_invariant(true);
                line.order_reason = order_reason.clone();
                line.lossy = Some(checked.facts.lossy);
                line.points = checked.points;
                line.time_us = *time_us;
                let warnings = self.lints.iter().chain(&checked.warnings);
                line.diagnostics = warnings.map(|d| json(self.sources, d)).collect();
            }
        }
        line
    }
}

/// Returns the warnings of the text itself; none of one in another language.
fn lints(sources: &SourceMap, program: &Program) -> Vec<Diagnostic> {
    let file = roundelay_dsl::parse(sources, program.header.source).ok();
    let declared = file.iter().flat_map(|file| &file.items).find_map(|item| match item {
        FileDeclaration::Algorithm(a) if a.header == program.header => Some(a),
        _ => None,
    });
    declared.map(roundelay_dsl::lint_algorithm).unwrap_or_default()
}

/// Returns true if all diagnostics blame the rank count, the shape or the root, and not the algorithm.
fn not_allowed(found: &[Diagnostic]) -> bool {
    CheckVerdict::of(found) == CheckVerdict::NotAllowed
}

/// Returns small counts, even and odd, powers of two and others.
fn usual_ranks(program: &Program) -> RankCounts {
    let grid = |a: u32, b: u32| {
        let mut axes = vec![1; program.axes.names.len().saturating_sub(2)];
        axes.extend([a, b]);
        Shape { axes }
    };
    match program.axes.names.len() {
        0 | 1 => RankCounts { shapes: (2..=9).map(Shape::flat).collect(), range: true },
        _ => {
            RankCounts { shapes: vec![grid(2, 2), grid(2, 3), grid(3, 2), grid(2, 4)], range: true }
        }
    }
}
