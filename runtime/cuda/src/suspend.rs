//! Suspends a rank's GPU: the memory that kernels use between ranks goes back to the device, and its addresses stay.
//!
//! Calls that are bound, graphs and handles of functions have addresses in the arena and in staging memory. So only the
//! memory behind the addresses goes, and other memory comes to the same addresses when the ranks resume, by
//! [`MemorySharing::extend`](super::share::MemorySharing::extend) as when they were opened. The words by which kernels
//! know how far ranks have come are kept on the host meanwhile, some kilobytes; all else in the arena is staging memory,
//! in which nothing lies between calls, as in the slots of the proxies on the host, which go as well. Buffers of users,
//! and windows, stay, and so does the memory in which messages between single ranks of several hosts may lie.

use std::ops::Range;

use roundelay_emit::cuda::batch;

use super::control::agree;
use super::layout::ArenaLayout;
use super::memory::SharedMemory;
use super::rank::GpuRank;
use super::region::MappedRegion;
use crate::backend::{DeviceAllocation, DriverFault, RelaxedCapture};
use crate::tunables::SETUP_COPY_TIMEOUT;
use roundelay_engine::EngineCore;
use roundelay_support::error::Error;

/// The memory of a rank's GPU, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GpuMemory {
    /// On the device, given back while the ranks are suspended: the arena, and the staging memory of calls.
    pub staging_bytes: u64,
    /// On the device, of buffers that the communicator allocated.
    pub buffer_bytes: u64,
    /// On the host, in place for kernels.
    pub pinned_bytes: u64,
}

/// Words of an arena, by offset.
type SavedWords = Vec<(u64, Vec<u8>)>;

/// The contents and sizes that are made again when the ranks resume.
#[derive(Debug, Default)]
pub(crate) struct SuspendedMemory {
    words: SavedWords,
    /// Bytes of the pieces of the arena, and of each range of staging memory.
    arena: Vec<u64>,
    staging: Vec<Vec<u64>>,
}

impl ArenaLayout {
    /// Returns the parts of an arena whose content counts between calls: words, states and counts.
    fn lasting(&self) -> [Range<u64>; 2] {
        [0..self.packets, self.batch..self.inbox(0)]
    }

    /// Returns the pieces of messages that this rank has sent to others of its host, less those that it has received of
    /// them, wrapping: by its counts, which lie from `batch` on.
    fn pieces_sent_less_received(&self, own: u32, ranks: u32, counts: &[u8]) -> u64 {
        let lanes = u64::from(batch::lanes(ranks));
        let word = |offset: u64| {
            let at = (offset - self.batch) as usize;
            let word = counts.get(at..at + 8).and_then(|word| word.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        let peers = (0..ranks).filter(|&peer| peer != own);
        let words = peers.flat_map(|peer| (0..lanes).map(move |lane| (peer, 8 * lane)));
        words.fold(0u64, |sum, (peer, at)| {
            sum.wrapping_add(word(self.sent(peer) + at))
                .wrapping_sub(word(self.received(peer) + at))
        })
    }
}

/// Gives the memory of a rank's GPU back: all ranks together, after all calls.
///
/// # Errors
///
/// [`Error::Usage`] on all ranks if a message was sent and not received: nothing has changed then. Errors of the driver
/// end the communicator.
pub(crate) fn suspend(rank: &mut GpuRank, core: &mut EngineCore) -> Result<SuspendedMemory, Error> {
    rank.finish(core)?;
    // What kernels of peers write into this rank's arena is there, once they are done as well.
    core.words(0)?;
    let (words, pieces) = agree(core, save(rank))?;
    // Receivers report packets late, so a sender cannot know alone. No rank has received more of another than that has
    // sent, so the sum is 0 if no piece is under way.
    let under_way = core.words(pieces)?.into_iter().fold(0u64, u64::wrapping_add);
    if under_way != 0 {
        return Err(Error::Usage(format!(
            "messages between GPUs, of {under_way} pieces, were sent and not received: receive them before the ranks \
             suspend"
        )));
    }
    let unmapped = unmap(rank).map_err(|fault| rank.device.fault(&fault));
    // Ranks return when the memory is free.
    match agree(core, unmapped) {
        Ok((arena, staging)) => Ok(SuspendedMemory { words, arena, staging }),
        Err(error) => Err(rank.end(core, error)),
    }
}

/// Reads the words that last, and counts the pieces of messages that are under way as far as this rank knows.
fn save(rank: &GpuRank) -> Result<(SavedWords, u64), Error> {
    let GpuRank { memory, device, .. } = rank;
    let base = memory.arena.base(device.rank);
    let mut saved = Vec::new();
    for part in memory.layout.lasting() {
        let mut bytes = vec![0; (part.end - part.start) as usize];
        // SAFETY: it lies in the arena, which is mapped as far as the layout goes; it is waited for.
        let read = unsafe { device.aside.read(&mut bytes, base + part.start) };
        let read = read.and_then(|()| device.aside.drain(SETUP_COPY_TIMEOUT));
        read.map_err(|fault| device.fault(&fault))?;
        saved.push((part.start, bytes));
    }
    let counts = saved.last().map(|(_, bytes)| &bytes[..]).unwrap_or_default();
    let pieces = memory.layout.pieces_sent_less_received(device.rank, device.ranks, counts);
    Ok((saved, pieces))
}

type PieceLists = (Vec<u64>, Vec<Vec<u64>>);

fn unmap(rank: &mut GpuRank) -> Result<PieceLists, DriverFault> {
    let GpuRank { memory, proxies, .. } = rank;
    // A stream that is being captured would not let this thread unmap memory.
    let _aside = RelaxedCapture::begin()?;
    proxies.as_ref().map_or(Ok(()), |proxies| proxies.memory().release())?;
    let arena = memory.arena.unmap()?;
    let staging = memory.staging.iter_mut().map(|piece| piece.unmap());
    Ok((arena, staging.collect::<Result<_, _>>()?))
}

/// Makes the memory again, at the addresses where it was: all ranks together.
///
/// # Errors
///
/// [`Error::Cuda`] on all ranks if it is not there on one: they are suspended still.
pub(crate) fn resume(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    suspended: &SuspendedMemory,
) -> Result<(), Error> {
    let made = remake(rank, core, suspended);
    if made.is_err() && core.usable().is_ok() {
        // All ranks have the error, and take back what they have made.
        let unmapped = unmap(rank).map(drop);
        let unmapped = unmapped.map_err(|fault| rank.device.fault(&fault));
        agree(core, unmapped).map_err(|error| rank.end(core, error))?;
    }
    made
}

fn remake(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    suspended: &SuspendedMemory,
) -> Result<(), Error> {
    let aside = RelaxedCapture::begin().map_err(|fault| rank.device.fault(&fault));
    let _aside = agree(core, aside)?;
    let SharedMemory { sharing, arena, staging, .. } = &mut rank.memory;
    for &bytes in &suspended.arena {
        sharing.extend(core, arena, bytes)?;
    }
    let staged = staging.iter_mut().zip(&suspended.staging).try_for_each(|(range, pieces)| {
        pieces
            .iter()
            .try_for_each(|&bytes| range.put(DeviceAllocation::create(&sharing.context, bytes)?))
    });
    agree(core, staged.map_err(|fault| sharing.fault(&fault)))?;
    let slots = rank.proxies.as_ref().map_or(Ok(()), |proxies| proxies.memory().restore());
    agree(core, slots.map_err(|fault| rank.device.fault(&fault)))?;
    let restored = restore(rank, suspended).map_err(|fault| rank.device.fault(&fault));
    agree(core, restored)
}

fn restore(rank: &GpuRank, suspended: &SuspendedMemory) -> Result<(), DriverFault> {
    let base = rank.memory.arena.base(rank.device.rank);
    for (offset, bytes) in &suspended.words {
        // SAFETY: as in `save`.
        unsafe { rank.device.aside.write(base + offset, bytes) }?;
        rank.device.aside.drain(SETUP_COPY_TIMEOUT)?;
    }
    Ok(())
}

/// Returns the memory of a rank's GPU, but for the windows'.
pub(crate) fn memory(rank: &GpuRank) -> GpuMemory {
    let GpuRank { memory, device, proxies, .. } = rank;
    let staging = memory.staging.iter().map(|piece| piece.bytes()).sum::<u64>();
    let all = memory.regions.all().chain(&memory.retired);
    let owned = all.filter(|region| matches!(&***region, MappedRegion::Own(_)));
    let proxied = proxies.as_ref().map_or(0, |proxies| proxies.pinned_bytes());
    GpuMemory {
        staging_bytes: memory.arena.bytes() + staging,
        buffer_bytes: owned.map(|region| region.bytes()).sum(),
        pinned_bytes: device.mailbox.bytes() + proxied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::CudaOptions;
    use roundelay_compiler::device::abi;

    #[test]
    fn what_lasts_is_small_and_has_all_words() {
        for ranks in [1, 2, 8, 72] {
            let layout = ArenaLayout::new(ranks, &CudaOptions::default()).expect("a layout");
            let [words, counts] = layout.lasting();
            assert!(words.contains(&layout.states) && words.contains(&layout.barrier));
            assert!(words.end >= layout.states + 16 * u64::from(abi::BLOCKS));
            for offset in [layout.freed(0), layout.sent(0), layout.received(ranks - 1)] {
                assert!(counts.contains(&offset), "{ranks} ranks");
            }
            assert!(counts.contains(&layout.turns()) && counts.contains(&layout.reported()));
            let bytes = words.end - words.start + counts.end - counts.start;
            assert!(bytes < layout.slots - layout.packets, "{bytes} bytes of {ranks} ranks");
        }
    }

    #[test]
    fn pieces_under_way_are_those_of_all_lanes_and_peers() {
        let (own, ranks) = (1, 3);
        let layout = ArenaLayout::new(ranks, &CudaOptions::default()).expect("a layout");
        let mut counts = vec![0; (layout.inbox(0) - layout.batch) as usize];
        assert_eq!(layout.pieces_sent_less_received(own, ranks, &counts), 0);
        let last = 8 * u64::from(batch::lanes(ranks) - 1);
        let mut set = |offset: u64, value: u8| counts[(offset - layout.batch) as usize] = value;
        set(layout.sent(2) + last, 3);
        set(layout.sent(0), 4);
        set(layout.received(0), 9);
        // Neither this rank's own, nor what a receiver has reported.
        set(layout.sent(1), 5);
        set(layout.freed(2), 6);
        let pieces = layout.pieces_sent_less_received(own, ranks, &counts);
        assert_eq!(pieces, 7u64.wrapping_sub(9));
    }
}
