//! Groups that act on ranks and chunks: rotations of ranges, and xor.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::owners::ChunkOwners;
use crate::plan::PlanBuffer;
use crate::ranks::RankSet;

/// Every number moves by `by` inside its aligned range of `modulus` numbers. Ranks and chunks alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RangeRotation {
    pub(super) modulus: u32,
    pub(super) by: u32,
}

impl RangeRotation {
    /// All numbers stay.
    pub(super) const STILL: RangeRotation = RangeRotation { modulus: 1, by: 0 };

    pub(super) fn apply(self, x: u32) -> u32 {
        let (inside, by) = (u64::from(x % self.modulus), u64::from(self.by));
        // Less than the modulus, which fits.
        let turned = u32::try_from((inside + by) % u64::from(self.modulus)).unwrap_or(0);
        x - x % self.modulus + turned
    }

    /// Returns the rotation done `times` times.
    pub(super) fn times(self, times: u32) -> RangeRotation {
        let by = u64::from(self.by) * u64::from(times) % u64::from(self.modulus);
        RangeRotation { by: u32::try_from(by).unwrap_or(0), ..self }
    }

    /// Returns true if both rotations may be done in either order.
    pub(super) fn commutes(self, other: RangeRotation) -> bool {
        let still = self.by == 0 || other.by == 0;
        let apart = |a: RangeRotation, b: RangeRotation| b.by.is_multiple_of(a.modulus);
        still || self.modulus == other.modulus || apart(self, other) || apart(other, self)
    }

    /// Returns the number of times after which the rotation is the identity.
    pub(super) fn order(self) -> u32 {
        self.modulus.checked_div(self.by).unwrap_or(1)
    }

    /// Returns the least number that can be turned to `x`, and the number of turns.
    fn split(self, x: u32) -> (u32, u32) {
        if self.by == 0 {
            return (x, 0);
        }
        let inside = x % self.modulus;
        (x - inside + inside % self.by, inside / self.by)
    }
}

/// Rotations, one a generator: of a grid seldom more than four.
pub(super) type RotationList = SmallVec<[RangeRotation; 2]>;

/// A group that acts on ranks such that no element but the neutral one leaves a rank where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SymmetryGroup {
    /// The group that these rotations generate, which do not get in each other's way.
    Turns(RotationList),
    /// r becomes r xor g, for n a power of two.
    Xor,
}

/// The number of times that each rotation is done, or the number that is xored.
pub(super) type GroupElement = SmallVec<[u32; 4]>;

impl SymmetryGroup {
    /// Returns the rank that stands for this one, and the element that takes it there.
    pub(super) fn split(&self, rank: u32) -> (u32, GroupElement) {
        match self {
            SymmetryGroup::Xor => (0, smallvec![rank]),
            SymmetryGroup::Turns(list) => {
                let mut at = rank;
                let times = list.iter().map(|r| {
                    let (least, times) = r.split(at);
                    at = least;
                    times
                });
                let times = times.collect();
                (at, times)
            }
        }
    }

    /// Returns the ranks that stand for all, ascending.
    pub(super) fn least(&self, n: u32) -> Vec<u32> {
        (0..n).filter(|&rank| self.split(rank).0 == rank).collect()
    }

    pub(super) fn apply(&self, rank: u32, g: &GroupElement) -> u32 {
        match self {
            SymmetryGroup::Xor => rank ^ g[0],
            SymmetryGroup::Turns(list) => {
                list.iter().zip(g).fold(rank, |at, (r, &times)| r.times(times).apply(at))
            }
        }
    }

    pub(super) fn inverse(&self, g: &GroupElement) -> GroupElement {
        match self {
            SymmetryGroup::Xor => g.clone(),
            SymmetryGroup::Turns(list) => {
                list.iter().zip(g).map(|(r, &times)| (r.order() - times) % r.order()).collect()
            }
        }
    }

    /// Returns the image of a set of ranks among n.
    pub(super) fn ranks(&self, set: &RankSet, g: &GroupElement, n: u32) -> RankSet {
        match self {
            SymmetryGroup::Xor => set.xored(g[0], n),
            SymmetryGroup::Turns(list) => {
                list.iter().zip(g).fold(set.clone(), |set, (r, &times)| {
                    let r = r.times(times);
                    if r.modulus == n { set.shifted(r.by, n) } else { set.rotated(r.modulus, r.by) }
                })
            }
        }
    }

    /// Returns the elements that generate the group: one a rotation, or one a bit of xor.
    pub(super) fn generators(&self, n: u32) -> Vec<GroupElement> {
        match self {
            SymmetryGroup::Xor => (0..n.max(1).ilog2()).map(|bit| smallvec![1 << bit]).collect(),
            SymmetryGroup::Turns(list) => (0..list.len())
                .map(|i| (0..list.len()).map(|j| u32::from(i == j)).collect())
                .collect(),
        }
    }

    /// Returns the number of elements.
    pub(super) fn order(&self, n: u32) -> u32 {
        match self {
            SymmetryGroup::Xor => n,
            SymmetryGroup::Turns(list) => list.iter().map(|r| r.order()).product(),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            SymmetryGroup::Xor => "xor",
            SymmetryGroup::Turns(list) if list.len() > 1 => "shifts",
            SymmetryGroup::Turns(_) => "shift",
        }
    }
}

/// The movement of ranks and of the chunks of every buffer.
#[derive(Debug, Clone)]
pub(super) struct GroupAction {
    pub(super) group: SymmetryGroup,
    pub(super) n: u32,
    /// The movement of each buffer with each rotation, or, with xor, the chunks a rank in `by`: 0 if they
    /// stay. The vector is the first, then input, output and scratch.
    pub(super) buffers: Vec<RotationList>,
    /// The owners of the chunks of the vector, if chunks move with their ranks in an order of the program's own.
    pub(super) owners: Option<Arc<ChunkOwners>>,
    /// True if chunks of different index differ in size, so that classes move like chunks.
    pub(super) classes: bool,
    /// True if all contributions are the root's, and stay so.
    pub(super) rooted: bool,
}

impl GroupAction {
    fn of(&self, buf: PlanBuffer) -> &[RangeRotation] {
        let at = match buf {
            PlanBuffer::Data => 0,
            PlanBuffer::Input => 1,
            PlanBuffer::Output => 2,
            PlanBuffer::Scratch(i) => 3 + usize::from(i),
        };
        self.buffers.get(at).map_or(&[], |b| b.as_slice())
    }

    /// Returns the order in which the chunks of a buffer belong to ranks, if it is one of the program's own.
    pub(super) fn owned(&self, buf: PlanBuffer) -> Option<&ChunkOwners> {
        self.owners.as_deref().filter(|_| buf == PlanBuffer::Data)
    }

    /// Returns the movement of a buffer with a rotation of the group, or with the bits of xor.
    pub(super) fn moves(&self, buf: PlanBuffer, generator: usize) -> RangeRotation {
        self.of(buf).get(generator).copied().unwrap_or(RangeRotation::STILL)
    }

    /// Returns the image of a chunk of a buffer.
    pub(super) fn chunk(&self, buf: PlanBuffer, chunk: u32, g: &GroupElement) -> u32 {
        if let Some(owners) = self.owned(buf) {
            return owners.chunk(self.group.apply(owners.rank(chunk), g));
        }
        match self.group {
            SymmetryGroup::Xor => chunk ^ (g[0] * self.moves(buf, 0).by),
            SymmetryGroup::Turns(_) => {
                let list = self.of(buf).iter().zip(g);
                list.fold(chunk, |at, (r, &times)| r.times(times).apply(at))
            }
        }
    }

    /// Returns the chunk of the vector that stands for this one, and the element that takes it there; `None`
    /// where several elements do.
    pub(super) fn chunk_split(&self, chunk: u32) -> Option<(u32, GroupElement)> {
        if let Some(owners) = &self.owners {
            let (least, g) = self.group.split(owners.rank(chunk));
            return Some((owners.chunk(least), g));
        }
        match &self.group {
            SymmetryGroup::Xor => {
                let per = self.moves(PlanBuffer::Data, 0).by;
                (per > 0).then(|| (chunk % per, smallvec![chunk / per]))
            }
            SymmetryGroup::Turns(list) => {
                let own = self.of(PlanBuffer::Data);
                let alike = own.iter().zip(list).all(|(a, b)| a.order() == b.order());
                let nested = |a: &RangeRotation, b: &RangeRotation| b.by.is_multiple_of(a.modulus);
                let apart = own
                    .iter()
                    .enumerate()
                    .all(|(i, a)| own[i + 1..].iter().all(|b| nested(a, b) || nested(b, a)));
                if own.is_empty() || !alike || !apart {
                    return None;
                }
                let mut at = chunk;
                let times = own.iter().map(|r| {
                    let (least, times) = r.split(at);
                    at = least;
                    times
                });
                let times = times.collect();
                Some((at, times))
            }
        }
    }
}
