//! Tracks the content of every place, and the accesses to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::expression::{ExpressionId, ExpressionTable};
use super::fault::ProgramFault;
use super::shape::chunks;
use crate::device::program::DeviceProgram;
use crate::instance::ProgramInstance;
use crate::num::index;
use crate::places::PlaceNumbers;
use crate::plan::{BufferPlacement, PlanBuffer};
use crate::program::ProgramBuffer;
use crate::ranks::RankSet;
use crate::verify::rounds::class_of;
use crate::verify::value::PlaceValue;

/// The author of an access: a task, between two block barriers of its rank; or a proxy, whose number is behind those
/// of the ranks, with the message that it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AccessAuthor {
    pub(super) rank: u32,
    /// Number of block barriers of the rank before.
    pub(super) section: u32,
    /// Number of the task among those of its rank.
    pub(super) task: u32,
    /// Number of the chunk in the task.
    pub(super) chunk: u32,
}

/// The number of a proxy's task.
pub(super) const PROXY: u32 = u32::MAX;

impl std::fmt::Display for AccessAuthor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.task {
            PROXY => f.write_str("a proxy"),
            _ => write!(f, "rank {}", self.rank),
        }
    }
}

/// The progress of each rank that a task knows of: 0 nothing, 1 it has entered, k + 1 its first k sections
/// are over.
pub(super) type KnownSections = Arc<Vec<u32>>;

/// The content of a place.
#[derive(Debug, Clone, Default)]
pub(super) struct PlaceContent {
    pub(super) value: Option<PlaceValue>,
    /// The expression whose value it is.
    pub(super) expression: Option<ExpressionId>,
    /// The ranks that must have entered the call for this content to exist.
    pub(super) entered: RankSet,
    /// The message in staging memory, by link and number.
    pub(super) message: Option<(u32, u64)>,
}

#[derive(Debug, Clone, Default)]
struct PlaceHistory {
    writer: Option<AccessAuthor>,
    readers: Vec<AccessAuthor>,
    content: PlaceContent,
}

/// A place: of a rank's buffers in a pass, or of its staging memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryPlace {
    Buffer { rank: u32, pass: u32, buf: PlanBuffer, chunk: u32 },
    Staging { rank: u32, chunk: u32 },
    Far { rank: u32, chunk: u32 },
}

/// The memory of all ranks.
pub(super) struct SymbolicMemory {
    places: PlaceNumbers,
    /// By rank: the buffers in each pass.
    buffers: Vec<Vec<PlaceHistory>>,
    staging: BTreeMap<(u32, u32), PlaceHistory>,
    far: BTreeMap<(u32, u32), PlaceHistory>,
}

impl SymbolicMemory {
    pub(super) fn new(
        instance: &ProgramInstance,
        programs: &[DeviceProgram],
        passes: u32,
        table: &mut ExpressionTable,
    ) -> Self {
        let header = &programs[0].header;
        let user =
            [PlanBuffer::Data, PlanBuffer::Input, PlanBuffer::Output].map(|b| chunks(header, b));
        let places = PlaceNumbers::of_sizes(user, header.scratch.iter().copied());
        let (buf, buffer) = match header.placement {
            BufferPlacement::InPlace => (PlanBuffer::Data, ProgramBuffer::Data),
            BufferPlacement::OutOfPlace => (PlanBuffer::Input, ProgramBuffer::Input),
        };
        let mut buffers = Vec::new();
        for p in programs {
            let mut cells = vec![PlaceHistory::default(); places.per_rank];
            for chunk in 0..chunks(header, buf) {
                if let Some((rank, c)) = instance.spec.initial(buffer, p.rank, chunk) {
                    let leaf = PlaceValue::leaf(rank, c, class_of(instance, chunk));
                    let value = Some(leaf.of(&instance.spec));
                    let expression = Some(table.leaf(rank, c));
                    let entered = RankSet::one(p.rank);
                    cells[places.local(buf, chunk)].content =
                        PlaceContent { value, expression, entered, message: None };
                }
            }
            buffers.push(vec![cells; index(passes)].concat());
        }
        SymbolicMemory { places, buffers, staging: BTreeMap::new(), far: BTreeMap::new() }
    }

    fn cell(&mut self, at: MemoryPlace) -> &mut PlaceHistory {
        match at {
            MemoryPlace::Buffer { rank, pass, buf, chunk } => {
                let first = index(pass) * self.places.per_rank;
                &mut self.buffers[index(rank)][first + self.places.local(buf, chunk)]
            }
            MemoryPlace::Staging { rank, chunk } => self.staging.entry((rank, chunk)).or_default(),
            MemoryPlace::Far { rank, chunk } => self.far.entry((rank, chunk)).or_default(),
        }
    }

    /// Returns the content of a place.
    pub(super) fn content(&mut self, at: MemoryPlace) -> &PlaceContent {
        &self.cell(at).content
    }

    /// Reads a place.
    pub(super) fn read(
        &mut self,
        at: MemoryPlace,
        who: AccessAuthor,
        known: &KnownSections,
    ) -> Result<PlaceContent, ProgramFault> {
        entered(at, who, known)?;
        let cell = self.cell(at);
        behind(at, who, known, cell.writer.as_ref(), "reads", "is written")?;
        cell.readers.push(who);
        Ok(cell.content.clone())
    }

    /// Writes a place.
    pub(super) fn write(
        &mut self,
        at: MemoryPlace,
        who: AccessAuthor,
        known: &KnownSections,
        content: PlaceContent,
    ) -> Result<(), ProgramFault> {
        entered(at, who, known)?;
        let cell = self.cell(at);
        behind(at, who, known, cell.writer.as_ref(), "writes", "is written")?;
        for reader in &cell.readers {
            behind(at, who, known, Some(reader), "writes", "is read")?;
        }
        cell.readers.clear();
        cell.writer = Some(who);
        cell.content = content;
        Ok(())
    }

    /// Checks that the accesses of peers to a rank's buffers are over when it ends, and that it knows.
    pub(super) fn left(&self, rank: u32, known: &KnownSections) -> Result<(), ProgramFault> {
        // The next call may write into its far memory at once.
        let taken = self.far.range((rank, 0)..(rank + 1, 0)).flat_map(|(_, cell)| &cell.readers);
        for who in taken.filter(|who| who.rank != rank) {
            if known[index(who.rank)] <= who.section + 1 {
                return Err(ProgramFault(format!(
                    "rank {rank} ends while its proxy may read a message that it sends"
                )));
            }
        }
        for cell in &self.buffers[index(rank)] {
            let peers = cell.writer.iter().chain(&cell.readers).filter(|w| w.rank != rank);
            for who in peers {
                if known[index(who.rank)] <= who.section + 1 {
                    return Err(ProgramFault(format!(
                        "rank {rank} ends while rank {} may be at work in its buffers",
                        who.rank
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Checks that a peer's buffers are touched only once it has entered.
fn entered(at: MemoryPlace, who: AccessAuthor, known: &KnownSections) -> Result<(), ProgramFault> {
    match at {
        MemoryPlace::Buffer { rank, .. } if rank != who.rank && known[index(rank)] == 0 => {
            Err(ProgramFault(format!(
                "rank {} is at work in the buffers of rank {rank}, which may not have entered",
                who.rank
            )))
        }
        _ => Ok(()),
    }
}

/// Checks that the access by `before` is over, and that the present one knows.
fn behind(
    at: MemoryPlace,
    who: AccessAuthor,
    known: &KnownSections,
    before: Option<&AccessAuthor>,
    does: &str,
    done: &str,
) -> Result<(), ProgramFault> {
    let Some(before) = before else { return Ok(()) };
    let same = before.rank == who.rank && before.task == who.task && before.chunk == who.chunk;
    if same || known[index(before.rank)] > before.section + 1 {
        return Ok(());
    }
    let place = match at {
        MemoryPlace::Buffer { rank, buf, chunk, .. } => {
            format!("chunk {chunk} of {buf:?} of rank {rank}")
        }
        MemoryPlace::Staging { rank, chunk } => {
            format!("chunk {chunk} of the staging memory of rank {rank}")
        }
        MemoryPlace::Far { rank, chunk } => {
            format!("chunk {chunk} of the far memory of rank {rank}")
        }
    };
    Err(ProgramFault(format!("{who} {does} {place}, which {done} by {before} at that time")))
}
