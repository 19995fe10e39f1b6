//! Messages between single ranks: one kernel for all of them, or a copy where a rank sends to itself. Its protocol
//! stands at [`roundelay_emit::cuda::batch`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roundelay_compiler::device::abi;
use roundelay_compiler::plan::MessageDirection;
use roundelay_emit::cuda::batch::{self, ENDS, MESSAGES, PARAMS};

use super::calls::UnsupportedCall;
use super::device::RankDevice;
use super::layout::ArenaLayout;
use super::params::{WORDS, word, words};
use super::proxy::{BatchEnd, PeerSlots, ProxyBatch};
use super::rank::GpuRank;
use crate::backend::{CudaStream, LoadedKernel, RelaxedCapture};
use roundelay_engine::bind::{BatchTransfer, own_pairs};
use roundelay_engine::{CallMessage, EngineCore, RecentList, check_peers};
use roundelay_support::error::Error;

/// A batch that was made ready: all that a launch needs but the addresses. Batches of the same messages share it.
#[derive(Debug)]
struct ReadyBatch {
    transfers: Vec<BatchTransfer>,
    /// The sends and receives of this rank to itself, by their places among the messages: these are copies.
    pairs: Vec<(usize, usize)>,
    /// The places of the others, in the order in which the ends have them.
    order: Vec<usize>,
    far: Vec<BatchEnd>,
    blocks: u32,
    /// The words of the kernel's parameter.
    params: Vec<u64>,
}

/// The messages between single ranks: their kernel, and the batches that were made ready, the latest ones.
#[derive(Debug, Default)]
pub(super) struct BatchTable {
    kernel: Option<Arc<LoadedKernel>>,
    batches: RecentList<ReadyBatch, 16>,
}

impl BatchTable {
    /// Puts a batch of messages into a stream: all of them side by side. `is_collective` is true if all ranks make
    /// this call.
    pub(super) fn exchange(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        name: &'static str,
        messages: &[CallMessage<'_>],
        is_collective: bool,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        rank.listen(core)?;
        let at = match self.batches.position(|known| known.is_of(messages)) {
            Some(at) => at,
            None => {
                check_peers(
                    if is_collective { "exchange" } else { name },
                    messages,
                    rank.device.ranks,
                )?;
                let arranged =
                    arrange(rank, name, messages.iter().map(CallMessage::transfer).collect())?;
                self.batches.keep(arranged)
            }
        };
        if let Some(null) = messages.iter().position(|m| m.transfer().bytes > 0 && m.address() == 0)
        {
            return Err(Error::Usage(format!("{name}: the memory of message {null} is null")));
        }
        let kernel = match self.batches[at].blocks {
            0 => None,
            _ => match self.kernel(&mut rank.device) {
                Ok(kernel) => Some(kernel),
                // The peers must not wait for a rank that cannot run it.
                Err(error) => return Err(rank.end(core, error)),
            },
        };
        let timeout = core.timeout();
        let arranged = &mut self.batches[at];
        if let Some(lanes) = rank.proxies.as_ref().filter(|_| !arranged.far.is_empty()) {
            let captured = stream.is_captured();
            let is_captured = captured.map_err(|fault| rank.device.fault(&fault))?;
            lanes.order_batch(&Arc::new(ProxyBatch {
                ends: arranged.far.clone(),
                is_captured,
                timeout,
            }));
        }
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        arranged.fill(messages, nanoseconds);
        let arranged = &*arranged;
        let copies = arranged.pairs.iter().map(|&(from, to)| {
            (messages[to].address(), messages[from].address(), messages[from].transfer().bytes)
        });
        // SAFETY: the words are those of the kernel's parameter. The arena and the mailbox live as long as `rank`; the
        // caller's memory is good by the promise with which its address was made.
        rank.put(core, stream, || unsafe {
            stream.copy_all(copies)?;
            match &kernel {
                Some(kernel) => {
                    kernel.launch(stream, (arranged.blocks, abi::THREADS), &arranged.params)
                }
                None => Ok(()),
            }
        })
    }

    fn kernel(&mut self, device: &mut RankDevice) -> Result<Arc<LoadedKernel>, Error> {
        if let Some(kernel) = &self.kernel {
            return Ok(kernel.clone());
        }
        // A stream that is being captured would not let this thread load code.
        let _aside = RelaxedCapture::begin().map_err(|fault| device.fault(&fault))?;
        let kernel = device.load(&batch::batch(device.ranks), "messages")?;
        self.kernel = Some(kernel.clone());
        Ok(kernel)
    }

    /// Leaves the kernel loaded until the process ends.
    pub(super) fn abandon(&self) {
        self.kernel.iter().cloned().for_each(std::mem::forget);
    }
}

/// Makes a batch ready, but for the addresses.
fn arrange(
    rank: &mut GpuRank,
    name: &str,
    transfers: Vec<BatchTransfer>,
) -> Result<ReadyBatch, Error> {
    let slots = peer_slots(rank, &transfers)?;
    let own = rank.device.rank;
    let pairs = own_pairs(own, &transfers)?;
    let place = RankLayout { rank: own, layout: &rank.memory.layout };
    let refused = |why: UnsupportedCall| Error::Unsupported(format!("{name}: {why}"));
    let (ends, order) =
        ends(&place, &transfers, &slots, |peer| rank.memory.arena.base(peer)).map_err(refused)?;
    let (lanes, sms) = (batch::lanes(rank.device.ranks), rank.device.sms);
    let count = ends.len() as u32;
    let of_each = |t: &BatchTransfer| batch::parts(t.bytes, lanes, slots.contains_key(&t.peer));
    let others = transfers.iter().filter(|t| t.peer != own);
    let lanes = others.map(of_each).max().unwrap_or(1);
    let each = batch::blocks(count, lanes, sms);
    if each == 0 {
        return Err(refused(UnsupportedCall::Blocks { ends: ends.len(), blocks: count, sms }));
    }
    let far = far_ends(&ends, &order, &transfers, &slots);
    let params = batch_params(rank, each, lanes, &ends);
    let blocks = each * count;
    Ok(ReadyBatch { transfers, pairs, order, far, blocks, params })
}

/// Returns the memory for messages with each rank on another host that the transfers name.
fn peer_slots(
    rank: &mut GpuRank,
    transfers: &[BatchTransfer],
) -> Result<BTreeMap<u32, Arc<PeerSlots>>, Error> {
    let GpuRank { proxies, memory, device, .. } = rank;
    let Some(lanes) = proxies else { return Ok(BTreeMap::new()) };
    let near = &memory.sharing.near;
    let is_far = |peer: &u32| near.get(*peer as usize) == Some(&false);
    let peers: BTreeSet<u32> = transfers.iter().map(|t| t.peer).filter(is_far).collect();
    peers
        .into_iter()
        .map(|peer| {
            let slots = lanes.peer_slots(peer, || {
                // A stream that is being captured would not let this thread allocate memory.
                let _aside = RelaxedCapture::begin()?;
                PeerSlots::pinned(&device.context, device.ranks)
            });
            Ok((peer, slots.map_err(|fault| device.fault(&fault))?))
        })
        .collect()
}

/// Returns the words of the kernel's parameter, without messages.
fn batch_params(rank: &GpuRank, blocks: u32, lanes: u32, ends: &[batch::BatchEnd]) -> Vec<u64> {
    let (abort, report) = rank.device.mailbox.addresses();
    let state = rank.memory.arena.base(rank.device.rank) + rank.memory.layout.states;
    let fixed = abi::KernelParams { state, abort, report, ..abi::KernelParams::default() };
    let mut params = vec![0; PARAMS / 8];
    params[..WORDS].copy_from_slice(&words(&fixed));
    params[FIRST_END - 1] = pair(blocks, lanes);
    for (at, end) in params[FIRST_END..].chunks_exact_mut(END).zip(ends) {
        at.copy_from_slice(&end_words(end));
    }
    params
}

impl ReadyBatch {
    /// Returns true if these are its messages, wherever they lie.
    fn is_of(&self, messages: &[CallMessage<'_>]) -> bool {
        let alike =
            |(known, message): (&BatchTransfer, &CallMessage<'_>)| *known == message.transfer();
        self.transfers.len() == messages.len() && self.transfers.iter().zip(messages).all(alike)
    }

    /// Writes where messages lie into the words of the kernel's parameter.
    fn fill(&mut self, messages: &[CallMessage<'_>], timeout: u64) {
        self.params[word!(timeout)] = timeout;
        let listed = self.params[FIRST_END + END * ENDS..].chunks_exact_mut(3);
        for (words, &at) in listed.zip(&self.order) {
            let transfer = &self.transfers[at];
            words.copy_from_slice(&[messages[at].address(), transfer.bytes, transfer.tag().into()]);
        }
    }
}

/// The word of the first end: behind an address a rank of four kinds, for which this kernel has no use, and the blocks
/// and the lanes of an end.
const FIRST_END: usize = WORDS + 5;
/// Words of an end.
pub(super) const END: usize = size_of::<batch::BatchEnd>() / 8;

/// A rank in a layout.
pub(super) struct RankLayout<'a> {
    pub(super) rank: u32,
    pub(super) layout: &'a ArenaLayout,
}

impl RankLayout<'_> {
    /// Returns the offset of this rank's own counts of a direction of a peer.
    fn counts(&self, (peer, dir): (u32, MessageDirection)) -> u64 {
        match dir {
            MessageDirection::Send => self.layout.sent(peer),
            MessageDirection::Recv => self.layout.received(peer),
        }
    }

    /// Returns the end of a direction of a peer, without messages; `own` and `theirs` are where the arenas are mapped.
    pub(super) fn end(
        &self,
        (peer, dir): (u32, MessageDirection),
        own: u64,
        theirs: u64,
    ) -> batch::BatchEnd {
        let (rank, layout) = (self.rank, self.layout);
        match dir {
            MessageDirection::Send => batch::BatchEnd {
                slots: theirs + layout.inbox(rank),
                freed: own + layout.freed(peer),
                count: own + self.counts((peer, dir)),
                peer,
                ..batch::BatchEnd::default()
            },
            MessageDirection::Recv => batch::BatchEnd {
                slots: own + layout.inbox(peer),
                freed: theirs + layout.freed(rank),
                count: own + self.counts((peer, dir)),
                peer,
                how: batch::RECEIVES,
                ..batch::BatchEnd::default()
            },
        }
    }
}

/// Returns the ends that proxies carry.
fn far_ends(
    ends: &[batch::BatchEnd],
    order: &[usize],
    transfers: &[BatchTransfer],
    slots: &BTreeMap<u32, Arc<PeerSlots>>,
) -> Vec<BatchEnd> {
    let of = |end: &batch::BatchEnd| {
        let slots = slots.get(&end.peer)?.clone();
        let dir = if end.how & batch::RECEIVES != 0 {
            MessageDirection::Recv
        } else {
            MessageDirection::Send
        };
        let listed = order.iter().skip(end.first as usize).take(end.messages as usize);
        let messages = listed.map(|&i| transfers[i].bytes).collect();
        Some(BatchEnd { peer: end.peer, dir, slots, messages })
    };
    ends.iter().filter_map(of).collect()
}

/// Returns an end as words of the kernel's structure.
pub(super) fn end_words(end: &batch::BatchEnd) -> [u64; END] {
    [end.slots, end.freed, end.count, pair(end.peer, end.how), pair(end.first, end.messages)]
}

/// Returns two numbers as the word in which they lie.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Returns the ends of messages with other ranks, and the order in which the ends have the messages; `base` is where
/// the arena of a rank of this host is mapped, and `slots` has the ranks on other hosts.
fn ends(
    place: &RankLayout<'_>,
    transfers: &[BatchTransfer],
    slots: &BTreeMap<u32, Arc<PeerSlots>>,
    base: impl Fn(u32) -> u64,
) -> Result<(Vec<batch::BatchEnd>, Vec<usize>), UnsupportedCall> {
    let rank = place.rank;
    let mut found: Vec<(u32, MessageDirection)> = Vec::new();
    for transfer in transfers.iter().filter(|t| t.peer != rank) {
        if !found.contains(&(transfer.peer, transfer.dir)) {
            found.push((transfer.peer, transfer.dir));
        }
    }
    let (mut ends, mut order) = (Vec::new(), Vec::new());
    for (peer, dir) in found {
        let first = order.len() as u32;
        let listed =
            (0..transfers.len()).filter(|&i| (transfers[i].peer, transfers[i].dir) == (peer, dir));
        order.extend(listed);
        let messages = order.len() as u32 - first;
        let own = base(rank);
        let end = match slots.get(&peer) {
            Some(slots) => slots.end((peer, dir), own + place.counts((peer, dir))),
            None => place.end((peer, dir), own, base(peer)),
        };
        ends.push(batch::BatchEnd { first, messages, ..end });
    }
    match (ends.len() <= ENDS, order.len() <= MESSAGES) {
        (true, true) => Ok((ends, order)),
        (false, _) => Err(UnsupportedCall::Ends(ends.len())),
        (_, false) => Err(UnsupportedCall::Messages(order.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CudaOptions;
    use roundelay_support::dtype::DType;

    fn transfer(peer: u32, dir: MessageDirection, bytes: u64) -> BatchTransfer {
        BatchTransfer { peer, dir, dtype: DType::U8, bytes }
    }

    #[test]
    fn both_ends_of_a_message_meet() {
        let layout = ArenaLayout::new(3, &CudaOptions::default()).expect("a layout");
        let base = |rank: u32| u64::from(rank) << 40;
        let of = |rank, transfers: &[BatchTransfer]| {
            ends(&RankLayout { rank, layout: &layout }, transfers, &BTreeMap::new(), base)
                .expect("few")
        };
        let (sends, order) = of(
            0,
            &[
                transfer(1, MessageDirection::Send, 5),
                transfer(2, MessageDirection::Recv, 7),
                transfer(0, MessageDirection::Send, 9),
                transfer(1, MessageDirection::Send, 6),
            ],
        );
        assert_eq!(order, [0, 3, 1], "an end has its messages one after the other");
        let (receives, _) = of(1, &[transfer(0, MessageDirection::Recv, 5)]);
        let (send, receive) = (sends[0], receives[0]);
        assert_eq!((send.peer, send.how, send.first, send.messages), (1, 0, 0, 2));
        assert_eq!((receive.peer, receive.how), (0, 1));
        assert_eq!((send.slots, send.freed), (receive.slots, receive.freed));
        assert_ne!(send.count, sends[1].count);
        let spans = [
            layout.freed(0),
            layout.sent(0),
            layout.received(0),
            layout.inbox(0),
            layout.inbox(1),
            layout.inbox(2),
            layout.scratch,
        ];
        assert!(spans.is_sorted_by(|a, b| a < b), "{spans:?}");
        assert_eq!(layout.inbox(2) + batch::inbox(3), layout.scratch);
    }

    #[test]
    fn what_has_no_room_in_the_parameters_is_refused() {
        let layout = ArenaLayout::new(40, &CudaOptions::default()).expect("a layout");
        let place = RankLayout { rank: 0, layout: &layout };
        let many: Vec<BatchTransfer> =
            (1..40).map(|peer| transfer(peer, MessageDirection::Send, 1)).collect();
        assert!(ends(&place, &many, &BTreeMap::new(), |_| 0) == Err(UnsupportedCall::Ends(39)));
        let long = vec![transfer(1, MessageDirection::Send, 1); MESSAGES + 1];
        assert!(ends(&place, &long, &BTreeMap::new(), |_| 0) == Err(UnsupportedCall::Messages(89)));
    }
}
