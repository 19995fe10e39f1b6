//! Models the memory of all ranks, as trees of additions, and what one round does to it.

use std::collections::BTreeMap;

use roundelay_dsl::ast::TransferOp;

use super::collective::{CollectiveTask, Leaf, OracleKind};
use super::{EarlyStop, wrong};

/// A tree, by its number; trees that differ by swapped operands have one number.
type Tree = usize;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum RoundNode {
    Leaf(Leaf),
    /// Operands in ascending order of their numbers, or as they are added where their order counts.
    Sum(Tree, Tree),
    Rounded(Tree),
}

/// A transfer of one round.
pub(super) struct RoundMove {
    pub(super) src: usize,
    pub(super) dst: usize,
    pub(super) op: TransferOp,
    pub(super) from: Vec<usize>,
    pub(super) to: Vec<usize>,
    pub(super) rounded: bool,
}

/// The contributions of all sums together after which a program is given up: about 300 MB.
const MOST_TERMS: usize = 20_000_000;

/// The contents of the memory of all ranks.
pub(super) struct OracleMemory {
    places: Vec<Vec<Option<Tree>>>,
    numbers: BTreeMap<RoundNode, Tree>,
    /// The contributions of each tree, as often as they are counted: ascending, or as they are added where their
    /// order counts.
    leaves: Vec<Vec<Leaf>>,
    /// The number of contributions in them all.
    held: usize,
    /// The places of a rank that the caller sees, and pieces of a block: pieces at the same place of
    /// their blocks have the same length, others need not.
    seen: usize,
    block: usize,
    /// True if the order of operands counts.
    ordered: bool,
    /// The places that rank 0 must leave as they are.
    left: std::ops::Range<usize>,
    /// The ranks whose arrival each rank knows of, in a barrier.
    known: Vec<Vec<bool>>,
    pub(super) messages: u64,
    pub(super) sent: Vec<u64>,
    pub(super) received: Vec<u64>,
    /// Copies of the algorithm that run side by side.
    pub(super) channels: u64,
}

impl OracleMemory {
    pub(super) fn new(task: &CollectiveTask) -> OracleMemory {
        let n = task.n;
        OracleMemory {
            seen: task.size(),
            block: task.block(),
            ordered: task.ordered(),
            left: task.left(),
            places: vec![vec![None; task.size()]; n],
            numbers: BTreeMap::new(),
            leaves: Vec::new(),
            held: 0,
            known: (0..n).map(|r| (0..n).map(|q| q == r).collect()).collect(),
            messages: 0,
            sent: vec![0; n],
            received: vec![0; n],
            channels: 1,
        }
    }

    pub(super) fn begin(&mut self, rank: usize, place: usize, leaf: Leaf) {
        let tree = self.number(RoundNode::Leaf(leaf));
        self.places[rank][place] = Some(tree);
    }

    /// Places that hold nothing yet, the same on all ranks.
    pub(super) fn more(&mut self, count: usize) -> Vec<usize> {
        let first = self.places.first().map_or(0, Vec::len);
        for places in &mut self.places {
            places.resize(first + count, None);
        }
        (first..first + count).collect()
    }

    fn number(&mut self, node: RoundNode) -> Tree {
        if let Some(tree) = self.numbers.get(&node) {
            return *tree;
        }
        let leaves = match &node {
            RoundNode::Leaf(leaf) => vec![*leaf],
            RoundNode::Rounded(t) => self.leaves[*t].clone(),
            RoundNode::Sum(a, b) => {
                let mut all = [self.leaves[*a].as_slice(), self.leaves[*b].as_slice()].concat();
                if !self.ordered {
                    all.sort_unstable();
                }
                all
            }
        };
        self.held += leaves.len();
        self.leaves.push(leaves);
        self.numbers.insert(node, self.leaves.len() - 1);
        self.leaves.len() - 1
    }

    /// Returns the tree that adds the second behind the first.
    fn sum(&mut self, a: Tree, b: Tree) -> Tree {
        self.number(if self.ordered {
            RoundNode::Sum(a, b)
        } else {
            RoundNode::Sum(a.min(b), a.max(b))
        })
    }

    /// Runs the transfers of one round at once.
    pub(super) fn round(&mut self, moves: &[RoundMove]) -> Result<(), EarlyStop> {
        let known = self.known.clone();
        let mut writes: BTreeMap<(usize, usize), Vec<(&RoundMove, Tree)>> = BTreeMap::new();
        for m in moves {
            if m.from.len() != m.to.len() {
                return Err(wrong("RL0406 regions of different lengths"));
            }
            let chunks = u64::try_from(m.from.len()).unwrap_or(0);
            if m.src != m.dst && chunks > 0 {
                self.messages += 1;
                self.sent[m.src] += chunks;
                self.received[m.dst] += chunks;
            }
            // A region of no chunks sends nothing, in a barrier neither.
            for (q, knows) in known[m.src].iter().enumerate().filter(|_| chunks > 0) {
                self.known[m.dst][q] |= knows;
            }
            for (from, to) in m.from.iter().zip(&m.to) {
                let tree = self.places[m.src][*from];
                let tree = tree.ok_or_else(|| wrong("RL0404 read before it was stored"))?;
                let rounded = m.rounded && m.src != m.dst;
                let tree = if rounded { self.number(RoundNode::Rounded(tree)) } else { tree };
                writes.entry((m.dst, *to)).or_default().push((m, tree));
            }
        }
        let mut after = Vec::new();
        for ((rank, place), list) in &writes {
            after.push((*rank, *place, self.fold(*rank, *place, list)?));
        }
        for (rank, place, tree) in after {
            self.places[rank][place] = Some(tree);
        }
        Ok(())
    }

    /// Returns what a place holds after all that is written to it in a round.
    fn fold(
        &mut self,
        rank: usize,
        place: usize,
        list: &[(&RoundMove, Tree)],
    ) -> Result<Tree, EarlyStop> {
        let copies = list.iter().filter(|(m, _)| m.op == TransferOp::Copy).count();
        if copies > 1 {
            return Err(wrong("RL0403 two copies into one place"));
        }
        if rank == 0 && self.left.contains(&place) {
            return Err(wrong("RL0503 a write into what must be left"));
        }
        let chunks = |m: &RoundMove| {
            let mut all = m.to.clone();
            all.sort_unstable();
            all
        };
        if list.iter().any(|(m, _)| chunks(m) != chunks(list[0].0)) {
            return Err(wrong("RL0405 regions overlap in part"));
        }
        // Within one rank, what the place holds comes first, then what is added, as it is written.
        let mut operands: Vec<(usize, bool, Tree)> =
            list.iter().map(|(m, tree)| (m.src, true, *tree)).collect();
        if copies == 0 {
            let own = self.places[rank][place];
            let own = own.ok_or_else(|| wrong("RL0404 added to before it was stored"))?;
            operands.push((rank, false, own));
        }
        operands.sort_by_key(|o| (o.0, o.1));
        let mut trees = operands.into_iter().map(|o| o.2);
        let first = trees.next().ok_or_else(|| wrong("nothing arrives"))?;
        let length = self.length(first);
        let mut sum = first;
        for tree in trees {
            if self.length(tree) != length {
                return Err(wrong("RL0407 pieces of different lengths are added"));
            }
            // Sums that are added to themselves double with every round.
            let terms = self.leaves[sum].len() + self.leaves[tree].len();
            if self.held + terms > MOST_TERMS {
                return Err(EarlyStop::Unsupported("very long sums"));
            }
            sum = self.sum(sum, tree);
        }
        // Both buffers consist of blocks, so that places count on from one to the other.
        if place < self.seen && place % self.block != length {
            return Err(wrong("RL0407 a piece at a place of another length"));
        }
        Ok(sum)
    }

    /// Returns the place in its block of the pieces that a tree adds, which says how long they are.
    fn length(&self, tree: Tree) -> usize {
        self.leaves[tree].first().map_or(0, |leaf| leaf.1 % self.block)
    }

    /// Fails unless every rank holds what is asked for. Returns whether those that hold one sum hold one
    /// tree, and whether that one adds the ranks one after the other; `None` for a barrier, or if nothing is
    /// summed.
    pub(super) fn judge(
        &mut self,
        task: &CollectiveTask,
    ) -> Result<Option<(bool, bool)>, EarlyStop> {
        if task.kind == OracleKind::Barrier {
            let all = self.known.iter().flatten().all(|h| *h);
            return if all {
                Ok(None)
            } else {
                Err(wrong("RL0501 a rank does not know of all arrivals"))
            };
        }
        let mut sums: BTreeMap<Vec<Leaf>, Tree> = BTreeMap::new();
        let (mut equal, mut ordered) = (true, true);
        for rank in 0..task.n {
            for place in 0..task.size() {
                let Some(asked) = task.ends(rank, place) else { continue };
                match self.places[rank][place] {
                    Some(tree) if self.leaves[tree] == asked => {
                        ordered &= self.in_order(&asked) == Some(tree);
                        equal &= *sums.entry(asked).or_insert(tree) == tree;
                    }
                    _ => return Err(wrong(format!("RL05 rank {rank} place {place}"))),
                }
            }
        }
        Ok(task.sums().then_some((equal, equal && ordered)))
    }

    /// Returns the sum of contributions, one after the other.
    fn in_order(&mut self, leaves: &[Leaf]) -> Option<Tree> {
        let trees: Vec<Tree> = leaves.iter().map(|l| self.number(RoundNode::Leaf(*l))).collect();
        trees.into_iter().reduce(|a, b| self.sum(a, b))
    }
}
