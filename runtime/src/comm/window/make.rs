//! Makes windows and frees them: all ranks together.

use std::any::Any;
use std::sync::Arc;

use super::element_window::Window;
use super::parts::{PartReach, WindowParts, WindowService};
use crate::comm::communicator::Communicator;
use roundelay_engine::window::{
    ExposedPart, MappedPart, MemorySpan, PartMemory, PartOwners, ServedPart, WindowBlock,
    WindowRights,
};
use roundelay_net::memory::Buffer;
use roundelay_support::dtype::{DType, Element};
use roundelay_support::error::Error;
use roundelay_support::secret::random;

/// The offset of memory that the peers do not map.
const ELSEWHERE: u64 = u64::MAX;
/// The bit of a rank's last word that says that it cannot make its part.
const CANNOT: u64 = 1 << 63;
/// The bit that says that it does not begin at a multiple of 8 bytes.
const ODD: u64 = 1 << 62;

/// The facts of its part that a rank tells the others.
#[derive(Debug, Clone, Copy, Default)]
struct PartReport {
    /// The places of its memory in the heap, and of its words.
    memory: u64,
    words: u64,
    bytes: u64,
    /// Type and rights.
    kind: u64,
    /// The number by which peers name the part that do not map it.
    key: u64,
}

impl Communicator {
    /// Makes a window of a buffer of each rank: memory that the other ranks put to and get from. All ranks call
    /// together; lengths may differ, the type may not. [`Window`] has an example.
    ///
    /// A part that lies in a buffer of [`Communicator::alloc`] is mapped by the ranks of the same machine. All others
    /// reach it through their connections: a thread of this process serves it, whatever its program does, and stays as
    /// long as the window does. So is a buffer that was made [from a vector](Buffer::from), which must begin at a
    /// multiple of 8 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] on all ranks if their types differ, or [`Error::Memory`] on one and `Usage` on the others;
    /// the communicator stays usable. [`Error::Unsupported`] for `bool`. Otherwise the errors of
    /// [`Communicator::run`].
    pub fn window<T: Element>(&mut self, buffer: Buffer<T>) -> Result<Window<T>, Error> {
        self.window_with(buffer, WindowRights::ALL)
    }

    /// Makes a window that gives its peers these rights; they may differ between ranks.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::window`].
    pub fn window_with<T: Element>(
        &mut self,
        mut buffer: Buffer<T>,
        rights: WindowRights,
    ) -> Result<Window<T>, Error> {
        let (memory, bytes) = (buffer.as_mut_ptr().cast::<u8>(), size_of_val(&buffer[..]) as u64);
        self.make_window((memory, bytes), T::DTYPE, rights, Box::new(buffer)).map(Window::of)
    }

    /// Makes the parts of a window of memory that `owner` keeps.
    pub(super) fn make_window(
        &mut self,
        (memory, bytes): (*mut u8, u64),
        dtype: DType,
        rights: WindowRights,
        owner: Box<dyn Any + Send>,
    ) -> Result<WindowParts, Error> {
        if dtype == DType::Bool {
            let text =
                "a window of bool has no meaning: peers may write bytes that are neither; use u8";
            return Err(Error::Unsupported(text.into()));
        }
        let timeout = self.settings.timeout;
        let core = self.core()?;
        let size = core.size();
        let words = core.cut_words();
        let mut mine = PartReport {
            memory: core.arena.find(memory, bytes as usize).unwrap_or(ELSEWHERE),
            bytes,
            kind: dtype as u64 | rights.bits() << 8,
            key: random().map(u64::from_le_bytes)?,
            ..PartReport::default()
        };
        if !(memory as usize).is_multiple_of(8) && bytes > 0 {
            mine.kind |= ODD;
        }
        match &words {
            Ok((_, block)) => {
                mine.words = block.offset();
                block.give(rights);
            }
            Err(_) => mine.kind |= CANNOT,
        }
        let heap = core.group.heap().clone();
        let reports = self.exchange_reports(mine)?;
        let (words, block) = words?;
        agree(&reports, self.rank, dtype)?;
        let core = self.core()?;
        let place = PartMemory::new(MemorySpan::new(memory, bytes), dtype, block);
        let kept = PartOwners { memory: owner, words: Box::new(words) };
        let own = Arc::new(ExposedPart::new(place, kept));
        let rank = core.rank();
        let mut served = Vec::new();
        let reach = |(peer, report): (u32, &PartReport)| {
            let PartReport { memory: at, words, bytes, kind, key } = *report;
            let is_mapped = |at: u64, len: u64| {
                let end = at.checked_add(len).unwrap_or(ELSEWHERE);
                core.group.lies_in_arena(peer, at, end)
            };
            if peer != rank && !(is_mapped(at, bytes) && is_mapped(words, WindowBlock::bytes(size)))
            {
                let rights = WindowRights::of_bits(kind >> 8);
                let remote = Arc::new(ServedPart::new(peer, key, bytes, rights));
                served.push(remote.clone());
                return Ok(PartReach::Served(remote));
            }
            let address = if peer == rank { memory } else { heap.mapped(at, bytes)? };
            let block = WindowBlock::new(heap.clone(), words, size)?;
            let direct = MappedPart::new(
                PartMemory::new(MemorySpan::new(address, bytes), dtype, block),
                rank,
            );
            direct.attach(true);
            Ok(PartReach::Mapped(direct))
        };
        let peers: Result<Vec<PartReach>, Error> = (0..).zip(&reports).map(reach).collect();
        // The others wait for this rank.
        let peers = peers.map_err(|error| core.fail(error))?;
        // Peers that do not map this rank's part: all, if none can.
        let wants = |&peer: &u32| {
            peer != rank && (mine.memory == ELSEWHERE || core.group.local(peer).is_none())
        };
        let serves = (0..size).any(|peer| wants(&peer));
        let reaches = |&peer: &u32| matches!(peers[peer as usize], PartReach::Served(_));
        let linked: Vec<u32> = (0..size).filter(|peer| wants(peer) || reaches(peer)).collect();
        let mut service = None;
        if !linked.is_empty() {
            let messenger = core.messenger();
            let exposed = serves.then(|| own.clone());
            messenger.serve_window(mine.key, exposed, served, &linked)?;
            core.group.set_server(Arc::new(messenger.clone()));
            service = Some(WindowService { messenger, key: mine.key });
        }
        let (group, over) = (core.group.beside_windows(), core.life.flag());
        let parts = WindowParts::new(group, (own, peers, service), over, timeout);
        // No part is used before all are there.
        core.words(0)?;
        Ok(parts)
    }

    /// Ends the parts of a window on all ranks; returns what owns this rank's memory.
    pub(super) fn free_window(
        &mut self,
        parts: &mut WindowParts,
    ) -> Result<Option<Box<dyn Any + Send>>, Error> {
        let core = self.core()?;
        if !Arc::ptr_eq(&core.life.flag(), &parts.over) {
            let text = "a window is freed with the communicator that made it, and in its generation: drop it";
            return Err(Error::Usage(text.into()));
        }
        // Every rank has what it began behind it, and reads no peer's words any more.
        parts.settle()?;
        parts.release();
        parts.detach();
        core.words(0)?;
        parts.withdraw(WindowRights::ALL)?;
        parts.end_service(true);
        parts.is_freed = true;
        Ok(parts.own.take().map(|kept| kept.memory))
    }

    /// Tells every rank of this one's part.
    fn exchange_reports(&mut self, mine: PartReport) -> Result<Vec<PartReport>, Error> {
        let mut reports = vec![PartReport::default(); self.size as usize];
        let core = self.core()?;
        core.control_all_gather(mine.memory, |rank, word| reports[rank as usize].memory = word)?;
        core.control_all_gather(mine.words, |rank, word| reports[rank as usize].words = word)?;
        core.control_all_gather(mine.bytes, |rank, word| reports[rank as usize].bytes = word)?;
        core.control_all_gather(mine.kind, |rank, word| reports[rank as usize].kind = word)?;
        core.control_all_gather(mine.key, |rank, word| reports[rank as usize].key = word)?;
        Ok(reports)
    }
}

impl<T: Element> Window<T> {
    /// Ends the window on all ranks, which call together, and gives this rank's buffer back, which is not written any
    /// more. What was put before is there. Other calls on the communicator may come before and after.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the communicator is another one or has gone on to another generation: drop the window
    /// then. Otherwise the errors of [`Communicator::run`]. The buffer is lost then, as when a window is dropped.
    pub fn free(mut self, comm: &mut Communicator) -> Result<Buffer<T>, Error> {
        let memory = comm.free_window(&mut self.parts)?.and_then(|memory| memory.downcast().ok());
        memory
            .map(|buffer: Box<Buffer<T>>| *buffer)
            .ok_or_else(|| Error::Work("the buffer of a window is gone".into()))
    }
}

/// Fails if the parts do not make a window: on all ranks alike.
fn agree(reports: &[PartReport], own: u32, dtype: DType) -> Result<(), Error> {
    if let Some(rank) = reports.iter().position(|report| report.kind & CANNOT != 0) {
        return Err(Error::Usage(format!("rank {rank} has no memory for its part of a window")));
    }
    if let Some(rank) = reports.iter().position(|report| report.kind & ODD != 0) {
        let text = "does not begin at a multiple of 8 bytes: take memory of `alloc`, or align it";
        return Err(Error::Usage(format!("the part of rank {rank} of a window {text}")));
    }
    let is_other = |report: &&PartReport| report.kind & 0xff != dtype as u64;
    let Some(other) = reports.iter().find(is_other) else { return Ok(()) };
    let rank = reports.iter().position(|report| report.kind & 0xff != dtype as u64).unwrap_or(0);
    let its = DType::ALL.get((other.kind & 0xff) as usize);
    let its = its.map_or("another type".into(), |dtype| dtype.to_string());
    Err(Error::Usage(format!(
        "rank {own} makes a window of {dtype}, and rank {rank} one of {its}: all ranks must make it of one type"
    )))
}
