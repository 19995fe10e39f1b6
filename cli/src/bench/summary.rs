//! Compares ours with the peers over all sizes: geometric means of the ratios, and the worst points.

use serde::Serialize;

use crate::job::table::ResultRow;
use crate::report::VerbReport;
use crate::values::size_text;

/// One size of one algorithm, and the peers' times over ours.
#[derive(Debug, Clone)]
pub(super) struct ComparedPoint {
    pub(super) collective: String,
    pub(super) algorithm: String,
    pub(super) ranks: u64,
    pub(super) bytes: u64,
    /// The peer's time over ours, by peer, in their order.
    pub(super) ratios: Vec<(String, f64)>,
}

impl ComparedPoint {
    /// Makes a point of the rows of a size: ours first, then the peers'.
    pub(super) fn of(lines: &[ResultRow]) -> Option<Self> {
        let ours = lines.first().filter(|line| line.peer.is_none())?;
        let ratio = |l: &ResultRow| Some((l.peer.clone()?, l.ratio?));
        Some(ComparedPoint {
            collective: ours.collective.clone(),
            algorithm: ours.algorithm.clone(),
            ranks: ours.ranks,
            bytes: ours.bytes,
            ratios: lines.iter().filter_map(ratio).collect(),
        })
    }

    /// Returns the peer that is fastest here.
    fn best(&self) -> Option<(&str, f64)> {
        let best = self.ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1));
        best.map(|(peer, ratio)| (peer.as_str(), *ratio))
    }
}

/// All points of a bench.
#[derive(Debug, Default)]
pub(super) struct BenchSummary {
    points: Vec<ComparedPoint>,
}

/// The comparison of ours with one peer, or with the best one at each point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PeerComparison {
    /// The peer; `best` for the fastest one at each point.
    peer: String,
    /// The collective; `all` if there were several.
    collective: String,
    /// Number of points.
    pub(super) points: usize,
    /// Geometric mean of the ratios, the peer's time over ours.
    pub(super) geomean: f64,
    /// The point at which ours does worst.
    pub(super) worst: WorstPoint,
    /// Points at which ours is slower.
    pub(super) slower: Vec<WorstPoint>,
}

impl PeerComparison {
    /// Returns the comparison as a sentence of a document.
    pub(super) fn sentence(&self) -> String {
        let PeerComparison { points, geomean, worst, slower, .. } = self;
        let point = |w: &WorstPoint| {
            let WorstPoint { collective, peer, ratio, .. } = w;
            format!("{collective} {} ({ratio:.2}, {peer})", size_text(w.bytes))
        };
        let slower = match slower.len() {
            0 => "ours is slower at none of them".into(),
            n => {
                let all: Vec<String> = slower.iter().map(point).collect();
                format!("ours is slower at {n}: {}", all.join(", "))
            }
        };
        let (least, unit) = (worst.ratio, if *points == 1 { "point" } else { "points" });
        format!(
            "The time of the best peer over ours is {geomean:.2} in the geometric mean of {points} {unit} \
             and {least:.2} at the least; {slower}."
        )
    }
}

/// A point, and the ratio there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct WorstPoint {
    collective: String,
    algorithm: String,
    ranks: u64,
    bytes: u64,
    /// The peer that the ratio is about.
    peer: String,
    /// The peer's time over ours.
    pub(super) ratio: f64,
}

impl std::fmt::Display for WorstPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let WorstPoint { collective, algorithm, ranks, peer, ratio, .. } = self;
        let size = size_text(self.bytes);
        write!(f, "{ratio:.2} at {collective}.{algorithm} {size} on {ranks} ranks ({peer})")
    }
}

/// A line of results as programs read it.
#[derive(Serialize)]
struct ComparisonRow<'a> {
    summary: &'a PeerComparison,
}

impl BenchSummary {
    /// Makes the summary of sizes.
    pub(super) fn of(sizes: &[Vec<ResultRow>]) -> Self {
        let mut summary = BenchSummary::default();
        sizes
            .iter()
            .filter_map(|lines| ComparedPoint::of(lines))
            .for_each(|point| summary.add(point));
        summary
    }

    /// Returns the comparison of ours with the best peer at each point, if there is any.
    pub(super) fn best(&self) -> Option<PeerComparison> {
        self.against().pop()
    }

    /// Returns each peer, and the geometric mean of its times over ours.
    pub(super) fn peers(&self) -> impl Iterator<Item = (String, f64)> {
        self.against().into_iter().filter(|a| a.peer != "best").map(|a| (a.peer, a.geomean))
    }

    /// Adds a point; one without peers says nothing.
    pub(super) fn add(&mut self, point: ComparedPoint) {
        if !point.ratios.is_empty() {
            self.points.push(point);
        }
    }

    /// Compares every peer over everything, then the best peer for each collective and over everything.
    fn against(&self) -> Vec<PeerComparison> {
        let mut peers: Vec<&str> = Vec::new();
        let mut collectives: Vec<&str> = Vec::new();
        for point in &self.points {
            for (peer, _) in &point.ratios {
                if !peers.contains(&peer.as_str()) {
                    peers.push(peer);
                }
            }
            if !collectives.contains(&point.collective.as_str()) {
                collectives.push(&point.collective);
            }
        }
        let over = match collectives[..] {
            [one] => one,
            _ => "all",
        };
        let one = |peer: &str| {
            let ratio =
                |p: &ComparedPoint| p.ratios.iter().find(|(name, _)| name == peer).map(|r| r.1);
            self.over(peer, over, |p| ratio(p).map(|ratio| (peer.to_owned(), ratio)))
        };
        let best = |p: &ComparedPoint| p.best().map(|(peer, ratio)| (peer.to_owned(), ratio));
        let mut all: Vec<PeerComparison> = peers.iter().filter_map(|peer| one(peer)).collect();
        if collectives.len() > 1 {
            let of = |c: &&str| self.over("best", c, |p| best(p).filter(|_| p.collective == *c));
            all.extend(collectives.iter().filter_map(of));
        }
        all.extend(self.over("best", over, best));
        all
    }

    fn over(
        &self,
        peer: &str,
        collective: &str,
        ratio: impl Fn(&ComparedPoint) -> Option<(String, f64)>,
    ) -> Option<PeerComparison> {
        let at = |p: &ComparedPoint| {
            let (peer, ratio) = ratio(p)?;
            let ComparedPoint { collective, algorithm, ranks, bytes, .. } = p.clone();
            Some(WorstPoint { collective, algorithm, ranks, bytes, peer, ratio })
        };
        let points: Vec<WorstPoint> = self.points.iter().filter_map(at).collect();
        let worst = points.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio))?.clone();
        let logs: f64 = points.iter().map(|p| p.ratio.ln()).sum();
        Some(PeerComparison {
            peer: peer.into(),
            collective: collective.into(),
            points: points.len(),
            geomean: (logs / points.len() as f64).exp(),
            worst,
            slower: points.into_iter().filter(|p| p.ratio < 1.0).collect(),
        })
    }

    /// Prints the summary, for people and for programs.
    pub(super) fn show(&self, report: VerbReport) {
        let all = self.against();
        let Some(last) = all.last() else { return };
        report.line("");
        report.line("time of the peer over ours:");
        report.line(format!(
            "{:>8} {:15} {:>6} {:>9}  worst",
            "peer", "collective", "points", "mean"
        ));
        for against in &all {
            report.result(&ComparisonRow { summary: against });
            let PeerComparison { peer, collective, points, geomean, worst, .. } = against;
            report.line(format!("{peer:>8} {collective:15} {points:>6} {geomean:>9.2}  {worst}"));
        }
        report.line(match last.slower.len() {
            0 => "nowhere slower than the best peer".into(),
            n => format!("slower than the best peer at {n} of {} points:", last.points),
        });
        for worst in &last.slower {
            report.line(format!("  {worst}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(collective: &str, bytes: u64, ratios: &[(&str, f64)]) -> ComparedPoint {
        ComparedPoint {
            collective: collective.into(),
            algorithm: "x".into(),
            ranks: 2,
            bytes,
            ratios: ratios.iter().map(|(p, r)| ((*p).into(), *r)).collect(),
        }
    }

    #[test]
    fn means_are_geometric_and_the_best_peer_is_chosen_at_each_point() {
        let mut summary = BenchSummary::default();
        summary.add(point("all_reduce", 8, &[("a", 4.0), ("b", 2.0)]));
        summary.add(point("all_reduce", 64, &[("a", 0.5), ("b", 8.0)]));
        summary.add(point("broadcast", 8, &[("a", 4.0)]));
        summary.add(point("broadcast", 64, &[]));
        let all = summary.against();
        let seen: Vec<_> = all
            .iter()
            .map(|a| {
                (a.peer.as_str(), a.collective.as_str(), a.points, (a.geomean * 1e6).round() / 1e6)
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("a", "all", 3, 2.0),
                ("b", "all", 2, 4.0),
                ("best", "all_reduce", 2, 1.0),
                ("best", "broadcast", 1, 4.0),
                ("best", "all", 3, 1.587401),
            ]
        );
        let last = &all[4];
        assert_eq!((last.worst.bytes, last.worst.peer.as_str(), last.worst.ratio), (64, "a", 0.5));
        assert_eq!(last.slower, std::slice::from_ref(&last.worst));
        assert!(all[1].slower.is_empty());
    }

    #[test]
    fn one_collective_is_named_and_no_point_is_no_summary() {
        let mut summary = BenchSummary::default();
        assert!(summary.against().is_empty());
        summary.add(point("all_gather", 8, &[("a", 3.0)]));
        let all = summary.against();
        assert_eq!(
            all.iter().map(|a| a.collective.as_str()).collect::<Vec<_>>(),
            ["all_gather"; 2]
        );
    }
}
