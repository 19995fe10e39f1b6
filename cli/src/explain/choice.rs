//! Explains which algorithm is chosen for a collective, and why no other.

use roundelay::choose::{AlgorithmChoice, ChoiceRequest};
use roundelay::choose::{CallDivision, RejectedCandidate, RejectionReason};
use roundelay::launch::EncryptionMode;
use serde::Serialize;

use crate::args::ExplainArgs;
use crate::badge::{BADGE_RANGE, BadgeRange, RankBadge};
use crate::choice::{of_explain, usual};
use crate::report::{VerbReport, VerbResult};
use crate::values::{size_text, time_text};

/// A choice as programs read it.
#[derive(Serialize)]
struct ExplainedChoice<'a> {
    collective: &'a str,
    ranks: u32,
    hosts: u32,
    bytes: u64,
    dtype: &'static str,
    op: &'static str,
    algorithm: &'static str,
    shape: String,
    source: String,
    /// The badge of the algorithm, if one proof covers every rank count; else it is proved at this one when a plan is
    /// made.
    badge: Option<RankBadge>,
    /// The range of that badge.
    badge_ranks: Option<BadgeRange>,
    predicted_us: f64,
    measured_us: Option<f64>,
    /// The protocol and the number of blocks with which GPUs run it, as measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    how: Option<String>,
    /// The division of the vector over the paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    division: Option<&'a CallDivision>,
    /// The encryption of connections that carry the call: `required` or `off`.
    encryption: String,
    lost: Vec<LosingCandidate>,
    remarks: &'a [String],
}

/// Shares, what they follow from, and from which size on there are several.
fn divided(division: &CallDivision, report: VerbReport) {
    report.line(format!(
        "  {:20}  {:>7}  {:>9}  {:>10}  its part takes",
        "path", "share", "latency", "bandwidth"
    ));
    for p in &division.parts {
        let (latency, bandwidth) = (time_text(p.latency_us), format!("{:.3} GB/s", p.gbs));
        let (us, mib) = (time_text(p.us), time_text(p.us_per_mib));
        let share = format!("{:.1} %", p.share * 100.0);
        report.line(format!(
            "  {:20}  {share:>7}  {latency:>9}  {bandwidth:>10}  {us} and {mib} a MiB",
            p.path
        ));
    }
    let alone = time_text(division.alone_us);
    report.line(match division.threshold {
        Some(bytes) => format!(
            "  several paths from {} on; this call on the best path alone: {alone}",
            size_text(bytes)
        ),
        None => format!("  no size for which several paths pay; on the best path alone: {alone}"),
    });
}

/// A candidate that lost.
#[derive(Serialize)]
struct LosingCandidate {
    algorithm: &'static str,
    predicted_us: Option<f64>,
    measured_us: Option<f64>,
    /// The code of a precondition that is violated.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    why: String,
}

/// Runs `roundelay explain COLLECTIVE`.
pub(super) fn explain(args: &ExplainArgs, collective: &str, report: VerbReport) -> VerbResult {
    let shapes = match &args.n {
        Some(ranks) => ranks.shapes.clone(),
        None => vec![usual(collective)],
    };
    let mut first = true;
    for shape in &shapes {
        for bytes in args.bytes.list(2) {
            if !std::mem::take(&mut first) {
                report.line("");
            }
            of_explain(args, collective, shape, bytes, |request, choice, is_encrypted| {
                print(request, choice, is_encrypted, report);
            })?;
        }
    }
    Ok(())
}

fn print(
    request: &ChoiceRequest<'_>,
    choice: &AlgorithmChoice,
    is_encrypted: bool,
    report: VerbReport,
) {
    let loser = |lost: &RejectedCandidate| LosingCandidate {
        algorithm: lost.name,
        predicted_us: lost.predicted_us,
        measured_us: lost.measured_us,
        code: match lost.why {
            RejectionReason::Refused(code, _) => Some(code.0),
            _ => None,
        },
        why: lost.why.to_string(),
    };
    let (ranks, hosts) = (request.topology.ranks(), request.topology.hosts());
    let lost: Vec<LosingCandidate> = choice.lost.iter().map(loser).collect();
    let over = if hosts > 1 { format!(" over {hosts} hosts") } else { String::new() };
    let (collective, size) = (request.collective, size_text(request.bytes));
    report.line(format!(
        "{collective} of {size} on {ranks} ranks{over}: {}{} ({})",
        choice.entry.name,
        choice.how.map_or(String::new(), |how| format!(" {how}")),
        choice.source
    ));
    let badge = RankBadge::of_library(choice.entry);
    report.line(match badge {
        Some(badge) => format!("  proved for {}: {BADGE_RANGE}", badge.words("")),
        None => "  proved for this n, when a plan is made".into(),
    });
    let time = |us: Option<f64>| us.map_or("-".to_string(), time_text);
    let row = |name: &str, predicted: Option<f64>, measured: Option<f64>, why: &str| {
        let (predicted, measured) = (time(predicted), time(measured));
        report.line(format!("  {name:20}  {predicted:>9}  {measured:>9}  {why}"));
    };
    report.line(format!(
        "  {:20}  {:>9}  {:>9}  {}",
        "algorithm", "predicted", "measured", "why not"
    ));
    row(choice.entry.name, Some(choice.predicted_us), choice.measured_us, "chosen");
    for l in &lost {
        row(l.algorithm, l.predicted_us, l.measured_us, &l.why);
    }
    if let Some(division) = &choice.division {
        divided(division, report);
    }
    let encryption = match is_encrypted {
        true => EncryptionMode::Required,
        false => EncryptionMode::Off,
    };
    if is_encrypted {
        report.line("note: the connections that carry it are encrypted; the model does not count what that costs");
    }
    for remark in &choice.remarks {
        report.line(format!("note: {remark}"));
    }
    report.result(&ExplainedChoice {
        collective,
        ranks,
        hosts,
        bytes: request.bytes,
        dtype: request.dtype.name(),
        op: request.op.name(),
        algorithm: choice.entry.name,
        shape: choice.shape.to_string(),
        source: choice.source.to_string(),
        badge,
        badge_ranks: badge.map(|_| BADGE_RANGE),
        predicted_us: choice.predicted_us,
        measured_us: choice.measured_us,
        how: choice.how.map(|how| how.to_string()),
        division: choice.division.as_ref(),
        encryption: encryption.to_string(),
        lost,
        remarks: &choice.remarks,
    });
}
