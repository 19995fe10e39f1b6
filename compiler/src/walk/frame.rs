//! A program being executed, on groups of ranks: variables, groups, views of buffers.

use roundelay_dsl::diag::{Diagnostic, codes};

use super::view::BufferView;
use crate::advice::IndexedBuffer;
use crate::budget::BoxedDiagnostic;
use crate::chunks::ChunkSet;
use crate::collective::CollectiveSpec;
use crate::eval::eval;
use crate::num::{count, index};
use crate::plan::{MAX_CHUNKS, PlanBuffer, RegionPiece};
use crate::program::{BufferStyle, Program, ProgramBuffer, Slot, SlotExpr};
use crate::scope::{index_set, parent_buffer, sub_regions};

/// Values that a message shows at most.
const MOST_VALUES: usize = 16;

/// A program being executed, on groups of ranks.
pub(super) struct ProgramFrame<'a> {
    pub(super) program: &'a Program,
    pub(super) axes: Vec<u32>,
    pub(super) env: Vec<i64>,
    /// Slots that are set and that users know.
    pub(super) live: Vec<Slot>,
    /// Ranks a group.
    pub(super) size: u32,
    /// Distance between the ranks of a group.
    pub(super) stride: u32,
    /// All ranks.
    pub(super) ranks: u32,
    pub(super) ride: FrameRoute,
    pub(super) spec: CollectiveSpec,
    pub(super) views: FrameViews<'a>,
    /// True if the regions of different groups may be of different lengths.
    pub(super) varied: bool,
}

/// The route of the messages of a frame.
#[derive(Debug, Clone, Copy, Default)]
pub struct FrameRoute {
    /// The lane that runs it.
    pub lane: u16,
    /// The path between hosts.
    pub path: u16,
    /// The part of a split by bandwidth that it is of.
    pub part: Option<u16>,
}

/// The places of a frame's buffers in those of the instance.
pub(super) enum FrameViews<'a> {
    /// They are those of the instance.
    Whole { spec: &'a CollectiveSpec, scratch: u16 },
    /// A part of a split of the frame.
    Part { outer: &'a ProgramFrame<'a>, part: u32, parts: u32, scratch: u16 },
    /// Regions handed down by a `use`.
    Used { outer: &'a ProgramFrame<'a>, stmt: &'a crate::program::AlgorithmUse, scratch: u16 },
}

impl ProgramFrame<'_> {
    pub(super) fn value(&mut self, e: &SlotExpr) -> Result<i64, BoxedDiagnostic> {
        eval(e, &mut self.env).map_err(|e| self.note(e.diagnostic(), &self.env, &[]))
    }

    /// Adds the values of the variables.
    pub(super) fn note(&self, d: Diagnostic, env: &[i64], more: &[Slot]) -> BoxedDiagnostic {
        let mut parts: Vec<String> = Vec::new();
        let slots: Vec<Slot> = self.live.iter().chain(more).copied().collect();
        // The innermost variables say most, and a longer note is not read.
        for &slot in &slots[slots.len().saturating_sub(MOST_VALUES)..] {
            let name = &self.program.slots[index(slot)];
            if !name.is_empty() {
                let value = format!("{name} = {}", env[index(slot)]);
                if !parts.contains(&value) {
                    parts.push(value);
                }
            }
        }
        Box::new(if parts.is_empty() { d } else { d.note(format!("with {}", parts.join(", "))) })
    }

    /// Returns the number of chunks of the instance in one chunk of the frame, for the group of this base; 0
    /// where the group's region is empty.
    pub(super) fn fine(&self, base: u32) -> Result<u32, BoxedDiagnostic> {
        let buffer = match self.program.style {
            BufferStyle::Data => ProgramBuffer::Data,
            BufferStyle::InputOutput => ProgramBuffer::Output,
        };
        let view = self.view(buffer, base)?;
        Ok(match view.total() {
            0 if view.units > 0 => 0,
            total => (total / view.units.max(1)).max(1),
        })
    }

    /// Returns the greatest result of [`Self::fine`] over all groups.
    pub(super) fn finest(&self) -> Result<u32, BoxedDiagnostic> {
        if !self.varied {
            return Ok(self.fine(0)?.max(1));
        }
        self.bases().try_fold(1, |most, base| Ok(self.fine(base)?.max(most)))
    }

    /// Returns true if a buffer of the frame lies in scratch.
    pub(super) fn in_scratch(&self, buffer: ProgramBuffer) -> bool {
        match (&self.views, buffer) {
            (_, ProgramBuffer::Scratch(_)) => true,
            (FrameViews::Whole { .. }, _) => false,
            (FrameViews::Part { outer, .. }, _) => outer.in_scratch(buffer),
            (FrameViews::Used { outer, stmt, .. }, _) => {
                let region = sub_regions(stmt).into_iter().find(|(_, b)| *b == buffer);
                let (region, buffer) = region.unwrap_or((stmt.on.as_ref(), buffer));
                let given = region.map(|r| r.buf);
                outer.in_scratch(given.unwrap_or_else(|| parent_buffer(outer.program, buffer)))
            }
        }
    }

    /// Returns the lowest ranks of all groups.
    pub(super) fn bases(&self) -> impl Iterator<Item = u32> + '_ {
        let span = self.size * self.stride;
        (0..self.ranks)
            .step_by(index(span.max(1)))
            .flat_map(move |hi| (0..self.stride).map(move |lo| hi + lo))
    }

    /// Returns the group of a rank and its place in it.
    pub(super) fn locate(&self, rank: u32) -> (u32, u32) {
        let place = rank / self.stride % self.size;
        (rank - place * self.stride, place)
    }

    /// Returns the place of a buffer of the frame, for the group of this base.
    pub(super) fn view(
        &self,
        buffer: ProgramBuffer,
        base: u32,
    ) -> Result<BufferView, BoxedDiagnostic> {
        let size = self.spec.size(buffer);
        if let ProgramBuffer::Scratch(i) = buffer {
            let first = match &self.views {
                FrameViews::Whole { scratch, .. }
                | FrameViews::Part { scratch, .. }
                | FrameViews::Used { scratch, .. } => *scratch,
            };
            let mut env = self.env.clone();
            let e = &self.program.scratch[index(i)].1;
            let units = eval(e, &mut env).map_err(|e| Box::new(e.diagnostic()))?.max(0);
            let fine = self.fine(base)?;
            let all = units.checked_mul(fine.into()).filter(|&all| all < MAX_CHUNKS.into());
            let (Some(fine), units) = (all.map(count), count(units)) else {
                let text =
                    format!("{units} chunks of scratch, cut into {fine} each, are out of range");
                return Err(Box::new(Diagnostic::error(codes::CHUNKS, text).label(e.span, "here")));
            };
            let set = ChunkSet::interval(0, fine, fine.max(1));
            return Ok(BufferView {
                pieces: vec![RegionPiece { buf: PlanBuffer::Scratch(first + i), set }],
                units,
            });
        }
        match &self.views {
            FrameViews::Whole { spec, .. } => {
                let buf = match buffer {
                    ProgramBuffer::Input => PlanBuffer::Input,
                    ProgramBuffer::Output => PlanBuffer::Output,
                    _ => PlanBuffer::Data,
                };
                let set = ChunkSet::all(spec.size(buffer));
                Ok(BufferView { pieces: vec![RegionPiece { buf, set }], units: size })
            }
            FrameViews::Part { outer, part, parts, .. } => {
                let whole = outer.view(buffer, base)?;
                let blocks = self.spec.blocks_of(buffer).max(1);
                let per_block = whole.total() / blocks;
                let share = per_block / parts;
                let mut pieces = Vec::new();
                if let [RegionPiece { buf, set }] = whole.pieces.as_slice()
                    && set.is_interval()
                {
                    let start = set.nth(part * share);
                    let set =
                        ChunkSet::periodic(start, share, per_block, share * blocks, set.modulus);
                    pieces.push(RegionPiece { buf: *buf, set });
                } else {
                    for b in 0..blocks {
                        let from = b * per_block + part * share;
                        whole.slice(from, from + share, &mut pieces);
                    }
                }
                Ok(BufferView { pieces, units: size })
            }
            FrameViews::Used { outer, stmt, .. } => {
                let region = sub_regions(stmt).into_iter().find(|(_, b)| *b == buffer);
                let (region, buffer) = region.unwrap_or((stmt.on.as_ref(), buffer));
                let outer_base = outer.locate(base).0;
                let pieces = match region {
                    None => outer.view(parent_buffer(outer.program, buffer), outer_base)?.pieces,
                    Some(r) => {
                        let mut env = outer.env.clone();
                        outer.coordinates(base, &mut env);
                        let view = outer.view(r.buf, outer_base)?;
                        let of = IndexedBuffer::new(outer.program, r.buf, view.units, &[]);
                        let set = index_set(&r.index, &mut env, &of, r.span)
                            .map_err(|d| outer.note(*d, &env, &outer.program.coordinates))?;
                        view.map(&set, r.span)?.pieces
                    }
                };
                Ok(BufferView { pieces, units: size })
            }
        }
    }

    /// Sets the coordinates of the rank in this frame's axes.
    pub(super) fn coordinates(&self, rank: u32, env: &mut [i64]) {
        let mut place = self.locate(rank).1;
        for (axis, &slot) in self.program.coordinates.iter().enumerate().rev() {
            env[index(slot)] = i64::from(place % self.axes[axis]);
            place /= self.axes[axis];
        }
    }
}
