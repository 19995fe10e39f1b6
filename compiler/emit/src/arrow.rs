//! Lays out the arrows of a drawing. Rows are ranks, columns are rounds; lengths are CSS pixels.
//!
//! An arrow leads from its source's row at the left of its column to its target's row at the right.
//! It has a strand for each chunk up to [`STRANDS`]; a longer region is sampled at even distances.
//! Transfers between the same ranks in the same round lie side by side.

use std::collections::BTreeMap;
use std::fmt::Write;

use roundelay_compiler::graph::{ChunkTransfer, StepGraph};
use roundelay_compiler::num::{count, float, index};
use roundelay_compiler::plan::PlanRegion;

/// Most strands of one arrow.
pub(super) const STRANDS: u32 = 4;
/// Distance between the axes of two strands.
const PITCH: f64 = 3.2;
/// Distance from the edge of a column to the ends of its arrows.
const MARGIN: f64 = 13.0;
/// Space above the first row and below the last.
const PAD: f64 = 34.0;
/// Length of an arrow's head.
const HEAD: f64 = 9.0;

/// A transfer that is drawn.
pub(super) struct DrawnTransfer<'a> {
    /// Its index in the graph.
    pub(super) id: usize,
    /// The transfer.
    pub(super) transfer: &'a ChunkTransfer,
    /// Its number among the transfers of the round from the same source to the same target.
    twin: u32,
}

/// The lines of one arrow, as SVG paths.
pub(super) struct ArrowPaths {
    /// Each strand, with the chunk that gives its colour.
    pub(super) strands: Vec<(String, u32)>,
    /// The head.
    pub(super) head: String,
    /// The area that reacts to the pointer.
    pub(super) hit: String,
}

/// The rows and columns of a drawing.
pub(super) struct DrawingLayout {
    /// Left edge and width, by round.
    pub(super) columns: Vec<(f64, f64)>,
    /// Number of transfers, by round, source and target.
    twins: BTreeMap<(u32, u32, u32), u32>,
    ranks: u32,
    row: f64,
}

/// Returns the first `cap` transfers by round, and the rows and columns that they need.
pub(super) fn lay_out(graph: &StepGraph, cap: usize) -> (Vec<DrawnTransfer<'_>>, DrawingLayout) {
    let mut order: Vec<_> = graph.graph.node_indices().collect();
    order.sort_by_key(|&id| (graph.graph[id].round, id));
    let mut twins = BTreeMap::new();
    let mut shown = Vec::new();
    for &id in order.iter().take(cap) {
        let transfer = &graph.graph[id];
        let count: &mut u32 =
            twins.entry((transfer.round, transfer.src, transfer.dst)).or_default();
        shown.push(DrawnTransfer { id: id.index(), transfer, twin: *count });
        *count += 1;
    }
    let rounds = match shown.last() {
        Some(last) if shown.len() < order.len() => last.transfer.round + 1,
        _ => graph.rounds,
    };
    let ranks = graph.instance.ranks();
    let widths = widths(&twins, index(rounds), ranks);
    let mut at = 0.0;
    let mut columns = Vec::with_capacity(widths.len());
    for width in widths {
        columns.push((at, width));
        at += width;
    }
    let row = if ranks <= 32 { 44.0 } else { 34.0 };
    (shown, DrawingLayout { columns, twins, ranks, row })
}

/// Returns the widths of the columns: room for the loops of a rank side by side, and for arrows that are
/// neither too steep nor too dense on average.
fn widths(twins: &BTreeMap<(u32, u32, u32), u32>, rounds: usize, ranks: u32) -> Vec<f64> {
    // By round: most loops of one rank, arrows, and rows that they cross together.
    let mut needs = vec![(0u32, 0u32, 0.0f64); rounds];
    for (&(round, src, dst), &count) in twins {
        let need = &mut needs[index(round)];
        if src == dst {
            need.0 = need.0.max(count);
        } else {
            need.1 += 1;
            need.2 += f64::from(src.abs_diff(dst));
        }
    }
    let width = |&(loops, arrows, rows): &(u32, u32, f64)| {
        let curls = 24.0 * f64::from(loops);
        if arrows == 0 {
            return if loops == 0 { 30.0 } else { (2.0 * MARGIN + curls).clamp(76.0, 760.0) };
        }
        let slope = (8.0 * rows / f64::from(arrows)).min(180.0);
        let fan = (22.0 * (f64::from(arrows) / f64::from(ranks) - 1.0)).clamp(0.0, 400.0);
        (84.0 + slope + fan).max(2.0 * MARGIN + curls).clamp(96.0, 760.0).round()
    };
    needs.iter().map(width).collect()
}

impl DrawingLayout {
    /// Returns the width of all columns.
    pub(super) fn width(&self) -> f64 {
        self.columns.last().map_or(120.0, |(x, w)| x + w)
    }

    /// Returns the height of all rows.
    pub(super) fn height(&self) -> f64 {
        2.0 * PAD + self.row * f64::from(self.ranks.saturating_sub(1))
    }

    /// Returns the height of a rank's line.
    pub(super) fn y(&self, rank: u32) -> f64 {
        PAD + self.row * f64::from(rank)
    }

    /// Returns the top and the height of the rows of `count` ranks.
    pub(super) fn rows(&self, first: u32, count: u32) -> (f64, f64) {
        (self.y(first) - self.row / 2.0, self.row * f64::from(count))
    }

    /// Returns the horizontal positions at which the arrows of a column start and end.
    pub(super) fn ends(column: (f64, f64)) -> (f64, f64) {
        (column.0 + MARGIN, column.0 + column.1 - MARGIN)
    }

    /// Returns the lines of a transfer.
    pub(super) fn arrow(&self, shown: &DrawnTransfer<'_>) -> ArrowPaths {
        let t = shown.transfer;
        let count = t.to.chunks().min(STRANDS);
        let chunks: Vec<u32> = (0..count)
            .map(|i| nth(&t.to, u64::from(i) * u64::from(t.to.chunks()) / u64::from(count)))
            .collect();
        let twins = self.twins.get(&(t.round, t.src, t.dst)).copied().unwrap_or(1);
        let beside = f64::from(shown.twin) - f64::from(twins - 1) / 2.0;
        let column = self.columns[index(t.round)];
        if t.src == t.dst {
            let step =
                (12.0 + 6.0 * f64::from(count)).min((column.1 - 2.0 * MARGIN) / f64::from(twins));
            curl(column.0 + column.1 / 2.0 + beside * step, self.y(t.src), &chunks)
        } else {
            let step = (PITCH * f64::from(count) + 4.0).min(26.0 / f64::from(twins));
            let (left, right) = Self::ends(column);
            straight((left, self.y(t.src)), (right, self.y(t.dst)), beside * step, &chunks)
        }
    }
}

/// Draws an arrow from rank to rank, moved sideways by `shift`.
fn straight(from: (f64, f64), to: (f64, f64), shift: f64, chunks: &[u32]) -> ArrowPaths {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = (dx * dx + dy * dy).sqrt();
    let (ux, uy) = (dx / length, dy / length);
    // `along` from the start, `side` to the right.
    let point = |along: f64, side: f64| {
        format!("{:.1} {:.1}", from.0 + ux * along - uy * side, from.1 + uy * along + ux * side)
    };
    let half = (float(chunks.len()) - 1.0) / 2.0;
    let strand = |i: usize| shift + (float(i) - half) * PITCH;
    let neck = length - HEAD + 1.0;
    let line = |side: f64, end: f64| format!("M{}L{}", point(0.0, side), point(end, side));
    let wide = 4.4 + half * PITCH;
    ArrowPaths {
        strands: chunks.iter().enumerate().map(|(i, &c)| (line(strand(i), neck), c)).collect(),
        head: format!(
            "M{}L{}L{}z",
            point(length, shift),
            point(length - HEAD, shift - wide),
            point(length - HEAD, shift + wide)
        ),
        hit: line(shift, length),
    }
}

/// Draws an arrow from a rank to itself: a loop above its line.
fn curl(x: f64, y: f64, chunks: &[u32]) -> ArrowPaths {
    let arc = |i: usize| {
        let (half, top) = (4.0 + 2.8 * float(i), 17.0 + 4.4 * float(i));
        let mut path = format!("M{:.1} {:.1}", x - half, y);
        let (y1, y2) = (y - top, y - 4.0);
        let _ = write!(
            path,
            "C{:.1} {y1:.1} {:.1} {y1:.1} {:.1} {y2:.1}",
            x - 1.6 * half,
            x + 1.6 * half,
            x + half
        );
        path
    };
    let reach = 4.0 + 2.8 * (float(chunks.len()) - 1.0);
    ArrowPaths {
        strands: chunks.iter().enumerate().map(|(i, &c)| (arc(i), c)).collect(),
        head: format!(
            "M{:.1} {:.1}L{:.1} {:.1}L{:.1} {:.1}z",
            x + (4.0 + reach) / 2.0,
            y,
            x + 0.4,
            y - 7.0,
            x + reach + 3.6,
            y - 7.0
        ),
        hit: arc(chunks.len().saturating_sub(1)),
    }
}

/// Returns the k-th chunk of a region.
fn nth(region: &PlanRegion, mut k: u64) -> u32 {
    for piece in &region.pieces {
        if k < u64::from(piece.set.total) {
            return piece.set.nth(count(k));
        }
        k -= u64::from(piece.set.total);
    }
    0
}
