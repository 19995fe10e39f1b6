//! Collectives: what every rank holds before, and must hold after. The specification that algorithms
//! are judged by.
//!
//! The whole vector has C chunks. A contribution is named by the rank it comes from and the chunk of
//! the whole vector (or, for declared collectives, of the input) that it is.

use std::sync::Arc;

use crate::chunks::ChunkSet;
use crate::program::{BufferStyle, CollectiveKind, ProgramBuffer};
use crate::ranks::RankSet;

/// A collective on a number of ranks and chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveSpec {
    /// The kind of collective.
    pub kind: CollectiveKind,
    /// Ranks.
    pub ranks: u32,
    /// C: chunks of the whole vector.
    pub chunks: u32,
    /// The root, 0 where there is none.
    pub root: u32,
    /// The results that a declared collective asks of each rank, in chunks of the declaration. Each
    /// of these is a block of the whole vector, cut into as many chunks as the instance needs.
    pub custom: Option<Arc<CustomSpec>>,
}

/// A declared collective at one rank count.
///
/// Memory is a few words for each place and for each run of contributions, however many they are.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CustomSpec {
    /// Chunks of every input.
    pub input: u32,
    /// Chunks of every output.
    pub output: u32,
    /// One more than the number of what is asked of each place, 0 where nothing is: of output chunk c of
    /// rank r at `r * output + c`.
    pub(crate) cells: Vec<u32>,
    /// The ends of the runs of each number; they begin where those of the one before it end.
    pub(crate) ends: Vec<u32>,
    /// Runs of contributions, those of one number ascending and disjoint.
    pub(crate) runs: Vec<ChunkRun>,
    /// Tells whether some sum is of different chunks.
    pub(crate) mixed: bool,
}

/// A chunk of the inputs of the ranks from the second number to before the third.
pub(crate) type ChunkRun = (u32, u32, u32);

impl CustomSpec {
    /// Returns the number of blocks of the whole vector: a chunk of the declaration each.
    fn blocks(&self) -> u32 {
        self.input.max(self.output).max(1)
    }

    /// Returns the index of a place in the table.
    pub(crate) fn cell(&self, rank: u32, chunk: u32) -> usize {
        let cell = u64::from(rank) * u64::from(self.output) + u64::from(chunk);
        usize::try_from(cell).unwrap_or(usize::MAX)
    }

    /// Returns the runs of contributions that are asked of a place; none where nothing is asked.
    fn asked(&self, rank: u32, chunk: u32) -> &[ChunkRun] {
        let number = self.cells.get(self.cell(rank, chunk)).copied().unwrap_or(0);
        let Some(at) = usize::try_from(number).ok().and_then(|n| n.checked_sub(1)) else {
            return &[];
        };
        let end = |i: usize| self.ends.get(i).and_then(|&e| usize::try_from(e).ok()).unwrap_or(0);
        let first = if at == 0 { 0 } else { end(at - 1) };
        self.runs.get(first..end(at)).unwrap_or(&[])
    }

    /// Returns the required content of a place at the end, where each declared chunk is cut into `per`.
    fn expected(&self, rank: u32, chunk: u32, per: u32) -> Option<ExpectedContent> {
        let runs = self.asked(rank, chunk / per);
        let fine = |c: u32| c * per + chunk % per;
        let first = fine(runs.first()?.0);
        let mut parts: Vec<(u32, RankSet)> = Vec::new();
        for of in runs.chunk_by(|a, b| a.0 == b.0) {
            let ranks: RankSet = of.iter().map(|r| (r.1, r.2)).collect();
            parts.push((fine(of[0].0), ranks));
        }
        let ranks = match parts.as_slice() {
            [(_, ranks)] => match ranks.intervals() {
                [(a, b)] if b - a == 1 => SpecRanks::One(*a),
                _ => SpecRanks::These(ranks.clone()),
            },
            _ => SpecRanks::Mixed(parts.into()),
        };
        Some(ExpectedContent { chunk: first, ranks })
    }
}

/// The required content of a place at the end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectedContent {
    /// The chunk; the lowest one of a sum of different chunks.
    pub chunk: u32,
    /// The ranks that contribute.
    pub ranks: SpecRanks,
}

/// A set of ranks as specifications need it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpecRanks {
    /// All.
    All,
    /// One.
    One(u32),
    /// These.
    These(RankSet),
    /// A sum of different chunks, ascending, each with the ranks that contribute to it.
    Mixed(Arc<[(u32, RankSet)]>),
}

/// The rule for which values may be added to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SumRule {
    /// Those of one chunk.
    OneChunk,
    /// Those of one chunk, where the ranks of the second begin behind those of the first.
    OrderedRanks,
    /// Those of any chunks, which only a declared collective can ask for.
    AnyChunks,
}

impl SpecRanks {
    /// Returns the ranks below `end`, of which there is one at least.
    fn first(end: u32) -> SpecRanks {
        match end {
            1 => SpecRanks::One(0),
            _ => SpecRanks::These(std::iter::once((0, end)).collect()),
        }
    }
}

impl ExpectedContent {
    /// Returns every contribution, as rank and chunk, in ascending order of ranks.
    pub fn contributions(&self, n: u32) -> Vec<(u32, u32)> {
        match &self.ranks {
            SpecRanks::All => (0..n).map(|r| (r, self.chunk)).collect(),
            SpecRanks::One(r) => vec![(*r, self.chunk)],
            SpecRanks::These(ranks) => ranks.iter().map(|r| (r, self.chunk)).collect(),
            SpecRanks::Mixed(parts) => {
                let one =
                    |(c, ranks): &(u32, RankSet)| ranks.iter().map(|r| (r, *c)).collect::<Vec<_>>();
                let mut all: Vec<(u32, u32)> = parts.iter().flat_map(one).collect();
                all.sort_unstable();
                all
            }
        }
    }
}

impl CollectiveSpec {
    /// Returns N divided by the count that callers give.
    pub fn blocks(&self) -> u32 {
        match &self.custom {
            Some(custom) => custom.blocks(),
            None if self.kind.blocked() => self.ranks,
            None => 1,
        }
    }

    /// Returns the number of chunks of a block.
    pub fn per_block(&self) -> u32 {
        self.chunks / self.blocks().max(1)
    }

    /// Returns the number of chunks of a buffer that users see.
    pub fn size(&self, buffer: ProgramBuffer) -> u32 {
        let short = self.per_block();
        if let Some(c) = &self.custom {
            return match buffer {
                ProgramBuffer::Input => c.input * short,
                ProgramBuffer::Output => c.output * short,
                _ => 0,
            };
        }
        match (buffer, &self.kind) {
            (ProgramBuffer::Input, CollectiveKind::AllGather | CollectiveKind::Gather) => short,
            (ProgramBuffer::Output, CollectiveKind::ReduceScatter | CollectiveKind::Scatter) => {
                short
            }
            (ProgramBuffer::Scratch(_), _) => 0,
            _ => self.chunks,
        }
    }

    /// Returns an upper bound of a rank's places beside scratch memories: a plan may have the vector in two buffers
    /// and in a scratch memory of its own.
    pub(crate) fn most_places(&self) -> u64 {
        let ends = [ProgramBuffer::Input, ProgramBuffer::Output]
            .map(|buffer| u64::from(self.size(buffer)));
        ends.iter().sum::<u64>() + 2 * u64::from(self.chunks)
    }

    /// Returns the number of blocks in a buffer that users see.
    pub fn blocks_of(&self, buffer: ProgramBuffer) -> u32 {
        let per = self.per_block().max(1);
        if self.blocks() == 1 { 1 } else { (self.size(buffer) / per).max(1) }
    }

    /// Returns the rule for sums.
    pub(crate) fn sum_rule(&self) -> SumRule {
        match &self.custom {
            Some(custom) if custom.mixed => SumRule::AnyChunks,
            _ if self.kind.is_ordered() => SumRule::OrderedRanks,
            _ => SumRule::OneChunk,
        }
    }

    /// Returns the initial content of a place, as the rank and chunk of the contribution; `None` if it is
    /// empty.
    pub fn initial(&self, buffer: ProgramBuffer, rank: u32, chunk: u32) -> Option<(u32, u32)> {
        let per = self.per_block();
        if self.custom.is_some() {
            return (buffer == ProgramBuffer::Input).then_some((rank, chunk));
        }
        match (buffer, &self.kind) {
            (ProgramBuffer::Output | ProgramBuffer::Scratch(_), _) => None,
            (ProgramBuffer::Input, CollectiveKind::AllGather | CollectiveKind::Gather) => {
                Some((rank, rank * per + chunk))
            }
            (_, CollectiveKind::AllGather | CollectiveKind::Gather) => {
                (chunk / per == rank).then_some((rank, chunk))
            }
            (_, CollectiveKind::Broadcast | CollectiveKind::Scatter) => {
                (rank == self.root).then_some((rank, chunk))
            }
            (_, CollectiveKind::SendRecv) => (rank == 0).then_some((rank, chunk)),
            _ => Some((rank, chunk)),
        }
    }

    /// Returns the chunks of a buffer that may hold something at the start: [`CollectiveSpec::initial`] of all others
    /// is `None`.
    pub(crate) fn initial_chunks(&self, buffer: ProgramBuffer, rank: u32) -> Option<ChunkSet> {
        let (size, per) = (self.size(buffer), self.per_block());
        let all = (size > 0).then(|| ChunkSet::all(size));
        match (buffer, &self.kind) {
            (ProgramBuffer::Output | ProgramBuffer::Scratch(_), _) => None,
            (ProgramBuffer::Data, CollectiveKind::AllGather | CollectiveKind::Gather) => {
                all.map(|_| ChunkSet::interval(rank * per, per, size))
            }
            (_, CollectiveKind::Broadcast | CollectiveKind::Scatter) => {
                all.filter(|_| rank == self.root)
            }
            (_, CollectiveKind::SendRecv) => all.filter(|_| rank == 0),
            _ => all,
        }
    }

    /// Returns the required content of a place at the end; `None` if any will do.
    pub fn expected(
        &self,
        buffer: ProgramBuffer,
        rank: u32,
        chunk: u32,
    ) -> Option<ExpectedContent> {
        let per = self.per_block();
        if let Some(c) = &self.custom {
            if buffer != ProgramBuffer::Output {
                return None;
            }
            return c.expected(rank, chunk, per.max(1));
        }
        if matches!(buffer, ProgramBuffer::Input | ProgramBuffer::Scratch(_)) {
            return None;
        }
        let whole = |ranks| Some(ExpectedContent { chunk, ranks });
        let own = |ranks: fn(&CollectiveSpec) -> SpecRanks| match buffer {
            ProgramBuffer::Output => {
                Some(ExpectedContent { chunk: rank * per + chunk, ranks: ranks(self) })
            }
            _ if chunk / per == rank => Some(ExpectedContent { chunk, ranks: ranks(self) }),
            _ => None,
        };
        match &self.kind {
            CollectiveKind::AllReduce => whole(SpecRanks::All),
            CollectiveKind::ReduceScatter => own(|_| SpecRanks::All),
            CollectiveKind::AllGather => whole(SpecRanks::One(chunk / per)),
            CollectiveKind::Broadcast => whole(SpecRanks::One(self.root)),
            CollectiveKind::Reduce if rank == self.root => whole(SpecRanks::All),
            CollectiveKind::Gather if rank == self.root => whole(SpecRanks::One(chunk / per)),
            CollectiveKind::Scatter => own(|s| SpecRanks::One(s.root)),
            CollectiveKind::AllToAll => Some(ExpectedContent {
                chunk: rank * per + chunk % per,
                ranks: SpecRanks::One(chunk / per),
            }),
            CollectiveKind::SendRecv if rank == 1 => whole(SpecRanks::One(0)),
            CollectiveKind::Scan => whole(SpecRanks::first(rank + 1)),
            CollectiveKind::ExScan if rank > 0 => whole(SpecRanks::first(rank)),
            _ => None,
        }
    }

    /// Returns the places of a rank that have a required content at the end.
    pub fn result(&self, style: BufferStyle, rank: u32) -> Option<(ProgramBuffer, ChunkSet)> {
        let per = self.per_block();
        let buffer = match style {
            BufferStyle::Data => ProgramBuffer::Data,
            BufferStyle::InputOutput => ProgramBuffer::Output,
        };
        let all = ChunkSet::all(self.size(buffer));
        match &self.kind {
            CollectiveKind::Barrier => None,
            CollectiveKind::ReduceScatter | CollectiveKind::Scatter
                if style == BufferStyle::Data =>
            {
                Some((buffer, ChunkSet::interval(rank * per, per, self.chunks)))
            }
            CollectiveKind::Reduce | CollectiveKind::Gather => {
                (rank == self.root).then_some((buffer, all))
            }
            CollectiveKind::SendRecv => (rank == 1).then_some((buffer, all)),
            CollectiveKind::ExScan => (rank > 0).then_some((buffer, all)),
            _ => Some((buffer, all)),
        }
    }

    /// Returns the fewest rounds if ranks send and receive at most `ports` messages at once: what a rank
    /// knows can reach `ports` more for each that it has reached. `None` if unknown.
    pub fn fewest_rounds(&self, ports: u32) -> Option<u32> {
        let (one, _) = self.lower_bounds()?;
        if self.kind == CollectiveKind::SendRecv || ports <= 1 {
            return Some(one);
        }
        let (mut reached, mut rounds) = (1u64, 0);
        while reached < u64::from(self.ranks) {
            reached *= u64::from(ports) + 1;
            rounds += 1;
        }
        Some(rounds)
    }

    /// Returns the fewest rounds with one port, and the fewest whole vectors that some rank must send or
    /// receive, as a fraction (numerator, denominator). From the usual counting arguments; `None` if unknown.
    pub fn lower_bounds(&self) -> Option<(u32, (u64, u64))> {
        let n = u64::from(self.ranks);
        let q = self.ranks.next_power_of_two().trailing_zeros();
        match self.kind {
            CollectiveKind::AllReduce => Some((q, (2 * (n - 1), n))),
            CollectiveKind::ReduceScatter
            | CollectiveKind::AllGather
            | CollectiveKind::AllToAll => Some((q, (n - 1, n))),
            CollectiveKind::Gather | CollectiveKind::Scatter => Some((q, (n - 1, n))),
            CollectiveKind::Broadcast | CollectiveKind::Reduce => Some((q, (u64::from(n > 1), 1))),
            CollectiveKind::SendRecv => Some((1, (1, 1))),
            CollectiveKind::Scan => Some((q, (u64::from(n > 1), 1))),
            CollectiveKind::ExScan => {
                Some(((self.ranks - 1).next_power_of_two().trailing_zeros(), (u64::from(n > 1), 1)))
            }
            CollectiveKind::Barrier => Some((q, (0, 1))),
            CollectiveKind::Custom(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use roundelay_dsl::span::SourceMap;

    use super::*;
    use crate::program::COLLECTIVES;
    use crate::{CompileOptions, NoLibrary, ProgramInstance, Shape, resolve};

    const DECLARED: &str = "collective own on n ranks { input 3 output 2
        each r { output[0] = input[2] at (r + 1) % n
                 if r > 0 { output[1] = reduce p in 0..r : input[p % 3] at p } } }
    algorithm main implements own on n ranks { each r { r -> r : copy input[0] -> output[0] } }";

    /// Returns specifications of all collectives on n ranks, of all roots, and of several numbers of chunks.
    fn specs(n: u32) -> Vec<CollectiveSpec> {
        let mut all = Vec::new();
        for (_, kind) in COLLECTIVES {
            for root in (0..n).take(if kind.rooted() { 9 } else { 1 }) {
                for per in 1..=4 {
                    let chunks = if kind.blocked() { n * per } else { per };
                    all.push(CollectiveSpec {
                        kind: kind.clone(),
                        ranks: n,
                        chunks,
                        root,
                        custom: None,
                    });
                }
            }
        }
        let mut sources = SourceMap::new();
        let id = sources.add("here.algo", DECLARED);
        let programs = resolve(&mut sources, id, &NoLibrary).expect("the text resolves");
        let instance =
            ProgramInstance::new(&programs[0], &Shape::flat(n), &CompileOptions::default());
        let own = instance.expect("the shape fits").spec.clone();
        all.extend((1..=3).map(|per| CollectiveSpec { chunks: own.chunks * per, ..own.clone() }));
        all
    }

    /// Proofs visit the chunks that these sets name, and no other: so all that is held at the start or asked
    /// for at the end must be in them.
    #[test]
    fn chunks_that_are_visited_are_all_that_count() {
        let (mut held, mut asked) = (0, 0);
        for spec in (1..=9).flat_map(specs) {
            for rank in 0..spec.ranks {
                let at = || format!("{spec:?}, rank {rank}");
                for buffer in [
                    ProgramBuffer::Data,
                    ProgramBuffer::Input,
                    ProgramBuffer::Output,
                    ProgramBuffer::Scratch(0),
                ] {
                    let visited = spec.initial_chunks(buffer, rank);
                    let visited: Vec<u32> = visited.iter().flat_map(|set| set.iter()).collect();
                    let size = spec.size(buffer);
                    assert!(visited.iter().all(|&c| c < size), "{}", at());
                    for chunk in (0..size).filter(|&c| spec.initial(buffer, rank, c).is_some()) {
                        assert!(visited.contains(&chunk), "{}: {buffer:?} {chunk}", at());
                        held += 1;
                    }
                }
                for (style, buffer) in [
                    (BufferStyle::Data, ProgramBuffer::Data),
                    (BufferStyle::InputOutput, ProgramBuffer::Output),
                ] {
                    let result = spec.result(style, rank);
                    assert!(result.iter().all(|(own, _)| *own == buffer), "{}", at());
                    let visited: Vec<u32> = result.iter().flat_map(|(_, s)| s.iter()).collect();
                    let size = spec.size(buffer);
                    for chunk in (0..size).filter(|&c| spec.expected(buffer, rank, c).is_some()) {
                        // A barrier has messages without content.
                        let barrier = spec.kind == CollectiveKind::Barrier;
                        assert!(barrier || visited.contains(&chunk), "{}: {chunk}", at());
                        asked += 1;
                    }
                }
            }
        }
        assert!(held > 10_000 && asked > 10_000, "{held} held, {asked} asked for");
    }
}
