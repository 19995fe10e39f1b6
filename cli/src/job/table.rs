//! Prints the result lines of `run` and `bench`: the columns and definitions of nccl-tests.

use roundelay::{DType, RedOp};
use serde::{Deserialize, Serialize};

use super::KernelChoice;
use crate::args::VerifyScope;
use crate::load::rooted;
use crate::report::VerbReport;

/// A result as programs read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResultRow {
    /// Name of the algorithm; of the peer's, what it chose itself.
    pub(crate) algorithm: String,
    /// Collective.
    pub(crate) collective: String,
    /// Number of ranks.
    pub(crate) ranks: u64,
    /// Size: the larger of one rank's input and output.
    pub(crate) bytes: u64,
    /// Elements, in the unit of the collective.
    pub(crate) count: u64,
    /// Type of the elements.
    pub(crate) dtype: String,
    /// Operator, `none` where nothing is reduced.
    pub(crate) op: String,
    /// Root; -1 if there is none, or it turns with every call.
    pub(crate) root: i64,
    /// The transport of the data.
    pub(crate) transport: String,
    /// Time of a call.
    pub(crate) time_us: f64,
    /// Size over time. Rows that are kept may leave both bandwidths out.
    #[serde(default)]
    pub(crate) algbw_gbs: f64,
    /// The algorithm's bandwidth (`algbw_gbs`) times the factor of what the collective must move.
    #[serde(default)]
    pub(crate) busbw_gbs: f64,
    /// Wrong elements on all ranks; nothing where nothing was verified.
    pub(crate) wrong: Option<u64>,
    /// The part of the results that was verified.
    #[serde(default)]
    pub(crate) verify: VerifyScope,
    /// The protocol of messages between GPUs, and the number of blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) how: Option<KernelChoice>,
    /// The file that the algorithm comes from, if it is not the algorithm library's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// True if the algorithm was chosen for this size.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) chosen: bool,
    /// The ranks as a grid, if they are one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shape: Option<String>,
    /// Calls in a CUDA graph that was replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) graph: Option<u32>,
    /// Busy programs that ran beside the ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beside: Option<BusyPrograms>,
    /// The name of another library, if this is its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<String>,
    /// Its time over ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
}

impl ResultRow {
    /// Returns the row with another time, and the bandwidths of that.
    pub(crate) fn timed(self, time_us: f64) -> ResultRow {
        let algbw_gbs = if time_us > 0.0 { self.bytes as f64 / time_us / 1e3 } else { 0.0 };
        let busbw_gbs = algbw_gbs * bus_factor(&self.collective, self.ranks);
        ResultRow { time_us, algbw_gbs, busbw_gbs, ..self }
    }
}

/// Busy programs beside the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct BusyPrograms {
    /// Number of them.
    pub(crate) neighbours: u32,
    /// Their niceness.
    pub(crate) nice: i32,
}

impl std::fmt::Display for BusyPrograms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "beside {} busy programs of niceness {}", self.neighbours, self.nice)
    }
}

/// The values that all lines of a table share.
#[derive(Debug, Clone)]
pub(crate) struct TableColumns {
    /// Collective.
    pub(crate) collective: String,
    /// Number of ranks.
    pub(crate) ranks: u64,
    /// Type of the elements.
    pub(crate) dtype: DType,
    /// Operator.
    pub(crate) op: RedOp,
    /// True if the collective sums at all.
    pub(crate) reduces: bool,
    /// Root; if there is none, it turns with every call.
    pub(crate) root: Option<u32>,
    /// The transport of the data.
    pub(crate) transport: &'static str,
    /// Calls in a CUDA graph.
    pub(crate) graph: Option<u32>,
    /// Busy programs beside the ranks.
    pub(crate) beside: Option<BusyPrograms>,
    /// The file that the algorithm comes from.
    pub(crate) file: Option<String>,
    /// True if an algorithm is chosen for each size.
    pub(crate) chosen: bool,
    /// The ranks as a grid, if they are one.
    pub(crate) shape: Option<String>,
    /// The part of the results that is verified.
    pub(crate) verify: VerifyScope,
}

impl TableColumns {
    /// Returns a result; `blocks * count` elements took `time_us`.
    pub(crate) fn line(
        &self,
        algorithm: &str,
        count: u64,
        blocks: u32,
        time_us: f64,
        wrong: u64,
    ) -> ResultRow {
        let bytes = count * u64::from(blocks) * self.dtype.size() as u64;
        let rooted = rooted(&self.collective);
        let row = ResultRow {
            algorithm: algorithm.into(),
            collective: self.collective.clone(),
            ranks: self.ranks,
            bytes,
            count,
            dtype: self.dtype.name().into(),
            op: if self.reduces { self.op.name() } else { "none" }.into(),
            root: self.root.filter(|_| rooted).map_or(-1, i64::from),
            transport: self.transport.into(),
            time_us,
            algbw_gbs: 0.0,
            busbw_gbs: 0.0,
            wrong: (self.verify != VerifyScope::Off).then_some(wrong),
            verify: self.verify,
            how: None,
            file: self.file.clone(),
            chosen: self.chosen,
            shape: self.shape.clone(),
            graph: self.graph,
            beside: self.beside,
            peer: None,
            ratio: None,
        };
        row.timed(time_us)
    }
}

/// Returns what each rank must send for a vector of one, by nccl-tests' definitions.
pub(crate) fn bus_factor(collective: &str, ranks: u64) -> f64 {
    let n = ranks as f64;
    match collective {
        "all_reduce" => 2.0 * (n - 1.0) / n,
        "all_gather" | "reduce_scatter" | "all_to_all" => (n - 1.0) / n,
        _ => 1.0,
    }
}

/// Prints the titles of the columns.
pub(crate) fn head(report: VerbReport) {
    report.line(format!(
        "{:>12} {:>12} {:>6} {:>10} {:>5} {:>11} {:>9} {:>9} {:>7}  {:9}  {}",
        "size",
        "count",
        "type",
        "redop",
        "root",
        "time",
        "algbw",
        "busbw",
        "#wrong",
        "transport",
        "algorithm"
    ));
    report.line(format!(
        "{:>12} {:>12} {:>6} {:>10} {:>5} {:>11} {:>9} {:>9}",
        "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)"
    ));
}

/// Prints one result, for people and for programs.
pub(crate) fn row(report: VerbReport, line: &ResultRow) {
    report.result(line);
    let who = match (&line.peer, line.ratio) {
        (Some(peer), Some(ratio)) => format!("{peer} (ratio {ratio:.2})"),
        (Some(peer), None) => peer.clone(),
        (None, _) => format!("{}.{}", line.collective, line.algorithm),
    };
    let who = match &line.file {
        Some(file) if line.peer.is_none() => format!("{who} ({file})"),
        _ => who,
    };
    let who = match &line.how {
        Some(how) => format!("{who} {} x{}", how.protocol, how.blocks),
        None => who,
    };
    let turns = line.root < 0 && rooted(&line.collective);
    let root = if turns { "turns".into() } else { line.root.to_string() };
    report.line(format!(
        "{:>12} {:>12} {:>6} {:>10} {:>5} {:>11} {:>9.3} {:>9.3} {:>7}  {:9}  {who}",
        line.bytes,
        line.count,
        line.dtype,
        line.op,
        root,
        time_text(line.time_us),
        line.algbw_gbs,
        line.busbw_gbs,
        wrong_text(line),
        line.transport,
    ));
}

/// Returns the number of wrong elements as text; `-` if they were not counted.
fn wrong_text(line: &ResultRow) -> String {
    line.wrong.map_or("-".into(), |wrong| wrong.to_string())
}

/// Prints microseconds with as many decimals as mean something.
pub(crate) fn time_text(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.3}"),
        us if us < 100.0 => format!("{us:.2}"),
        us if us < 1e5 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_those_of_nccl_tests() {
        let columns = |collective: &str| TableColumns {
            beside: None,
            collective: collective.into(),
            ranks: 4,
            dtype: DType::F32,
            op: RedOp::Sum,
            reduces: collective == "all_reduce",
            root: Some(0),
            transport: "shm",
            graph: None,
            file: None,
            chosen: false,
            shape: None,
            verify: VerifyScope::Full,
        };
        let line = columns("all_reduce").line("ring", 1_000_000, 1, 1000.0, 0);
        assert_eq!((line.bytes, line.algbw_gbs, line.busbw_gbs), (4_000_000, 4.0, 6.0));
        let line = columns("all_gather").line("ring", 250_000, 4, 1000.0, 0);
        assert_eq!((line.bytes, line.algbw_gbs, line.busbw_gbs), (4_000_000, 4.0, 3.0));
        assert_eq!((line.op.as_str(), line.root), ("none", -1));
    }
}
