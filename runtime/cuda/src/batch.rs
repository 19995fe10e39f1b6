//! Messages between single ranks: one kernel for all of them, or a copy where a rank sends to itself. Its protocol
//! stands at [`roundelay_compiler::emit::cuda::batch`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roundelay_compiler::device::abi;
use roundelay_compiler::emit::cuda::KERNEL;
use roundelay_compiler::emit::cuda::batch::{self, ENDS, MESSAGES, PARAMS};
use roundelay_compiler::plan::Dir;

use super::CudaStream;
use super::far::{FarBatch, FarEnd, Mail};
use super::gpu::Gpu;
use super::layout::Layout;
use super::packed::copy_all;
use super::program::{WORDS, word, words};
use super::unplayable::Unplayable;
use crate::backend::{Aside, Kernel, Options};
use roundelay_engine::bind::{Transfer, own_pairs};
use roundelay_engine::{Core, Message, Recent, check_peers};
use roundelay_net::error::{Error, Source};

/// A batch that was made ready: all that a launch needs but the addresses. Batches of the same messages share it.
#[derive(Debug)]
pub(super) struct Arranged {
    transfers: Vec<Transfer>,
    /// The sends and receives of this rank to itself, by their places among the messages: these are copies.
    pairs: Vec<(usize, usize)>,
    /// The places of the others, in the order in which the ends have them.
    order: Vec<usize>,
    far: Vec<FarEnd>,
    blocks: u32,
    /// The words of the kernel's parameter.
    params: Vec<u64>,
}

/// Batches that were made ready, the latest ones.
pub(super) type Batches = Recent<Arranged, 16>;

impl Gpu {
    /// Puts a batch of messages into a stream: all of them side by side. `is_collective` is true if all ranks make
    /// this call.
    pub fn exchange(
        &mut self,
        core: &mut Core,
        name: &'static str,
        messages: &[Message<'_>],
        is_collective: bool,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        self.listen(core)?;
        let at = match self.batches.position(|known| known.is_of(messages)) {
            Some(at) => at,
            None => {
                check_peers(if is_collective { "exchange" } else { name }, messages, self.ranks)?;
                let arranged =
                    self.arrange(name, messages.iter().map(Message::transfer).collect())?;
                self.batches.keep(arranged)
            }
        };
        if let Some(null) = messages.iter().position(|m| m.transfer().bytes > 0 && m.address() == 0)
        {
            return Err(Error::Usage(format!("{name}: the memory of message {null} is null")));
        }
        let kernel = match self.batches[at].blocks {
            0 => None,
            _ => match self.batch_kernel() {
                Ok(kernel) => Some(kernel),
                // The peers must not wait for a rank that cannot play it.
                Err(error) => return Err(self.end(core, error)),
            },
        };
        let timeout = core.timeout();
        let arranged = &mut self.batches[at];
        if let Some(lanes) = self.far.as_ref().filter(|_| !arranged.far.is_empty()) {
            let captured = stream.is_captured();
            let is_captured = captured.map_err(|fault| self.sharing.fault(&fault))?;
            lanes.exchange(&Arc::new(FarBatch {
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
        // SAFETY: the words are those of the kernel's parameter. The arena and the mailbox live as long as `self`; the
        // caller's memory is good as whoever made its address promised.
        let launched = self.journal.put(stream, || unsafe {
            copy_all(stream, copies)?;
            match &kernel {
                Some(kernel) => {
                    kernel.launch(stream, (arranged.blocks, abi::THREADS), &arranged.params)
                }
                None => Ok(()),
            }
        });
        launched.map_err(|fault| {
            let error = self.fault(&fault);
            self.end(core, error)
        })
    }

    /// Makes a batch arranged.
    fn arrange(&mut self, name: &str, transfers: Vec<Transfer>) -> Result<Arranged, Error> {
        let mail = self.mail(&transfers)?;
        let pairs = own_pairs(self.rank, &transfers)?;
        let place = Place { rank: self.rank, layout: &self.layout };
        let refused = |why: Unplayable| Error::Unsupported(format!("{name}: {why}"));
        let (ends, order) =
            ends(&place, &transfers, &mail, |rank| self.arena.base(rank)).map_err(refused)?;
        let (lanes, sms) = (batch::lanes(self.ranks), self.sms);
        let count = ends.len() as u32;
        let of_each = |t: &Transfer| batch::parts(t.bytes, lanes, mail.contains_key(&t.peer));
        let others = transfers.iter().filter(|t| t.peer != self.rank);
        let lanes = others.map(of_each).max().unwrap_or(1);
        let each = batch::blocks(count, lanes, sms);
        if each == 0 {
            return Err(refused(Unplayable::Blocks { ends: ends.len(), blocks: count, sms }));
        }
        let far = far_ends(&ends, &order, &transfers, &mail);
        let params = self.batch_params(each, lanes, &ends);
        let blocks = each * count;
        Ok(Arranged { transfers, pairs, order, far, blocks, params })
    }

    /// Returns the memory for messages with each rank on another host that the transfers name.
    fn mail(&mut self, transfers: &[Transfer]) -> Result<BTreeMap<u32, Arc<Mail>>, Error> {
        let Some(lanes) = &mut self.far else { return Ok(BTreeMap::new()) };
        let near = &self.sharing.near;
        let is_far = |peer: &u32| near.get(*peer as usize) == Some(&false);
        let peers: BTreeSet<u32> = transfers.iter().map(|t| t.peer).filter(is_far).collect();
        let (context, ranks, sharing) = (&self.context, self.ranks, &self.sharing);
        peers
            .into_iter()
            .map(|peer| {
                let mail = lanes.mail(peer, || {
                    // A stream that is being captured would not let this thread allocate memory.
                    let _aside = Aside::step()?;
                    Mail::pinned(context, ranks)
                });
                Ok((peer, mail.map_err(|fault| sharing.fault(&fault))?))
            })
            .collect()
    }

    fn batch_kernel(&mut self) -> Result<Arc<Kernel>, Error> {
        if let Some(kernel) = &self.batch {
            return Ok(kernel.clone());
        }
        // A stream that is being captured would not let this thread load code.
        let _aside = Aside::step().map_err(|fault| self.fault(&fault))?;
        let text = batch::batch(self.ranks);
        let kernel = self.kernels.get(&text, KERNEL, abi::THREADS, Options::Exact);
        let kernel = kernel.map_err(|error| {
            self.failed(format!("the kernel of messages: {error}"), Some(Source::new(error)))
        })?;
        self.batch = Some(kernel.clone());
        Ok(kernel)
    }

    /// Returns the words of the kernel's parameter, without messages.
    fn batch_params(&self, blocks: u32, lanes: u32, ends: &[batch::End]) -> Vec<u64> {
        let (abort, report) = self.mailbox.addresses();
        let state = self.arena.base(self.rank) + self.layout.states;
        let fixed = abi::Params { state, abort, report, ..abi::Params::default() };
        let mut params = vec![0; PARAMS / 8];
        params[..WORDS].copy_from_slice(&words(&fixed));
        params[FIRST_END - 1] = pair(blocks, lanes);
        for (at, end) in params[FIRST_END..].chunks_exact_mut(END).zip(ends) {
            at.copy_from_slice(&end_words(end));
        }
        params
    }
}

impl Arranged {
    /// Returns true if these are its messages, wherever they lie.
    fn is_of(&self, messages: &[Message<'_>]) -> bool {
        let alike = |(known, message): (&Transfer, &Message<'_>)| *known == message.transfer();
        self.transfers.len() == messages.len() && self.transfers.iter().zip(messages).all(alike)
    }

    /// Writes where messages lie into the words of the kernel's parameter.
    fn fill(&mut self, messages: &[Message<'_>], timeout: u64) {
        self.params[word!(timeout)] = timeout;
        let listed = self.params[FIRST_END + END * ENDS..].chunks_exact_mut(3);
        for (words, &at) in listed.zip(&self.order) {
            let transfer = &self.transfers[at];
            words.copy_from_slice(&[messages[at].address(), transfer.bytes, transfer.tag().into()]);
        }
    }
}

/// The word of the first end: behind an address a rank of four kinds, for which this kernel has no use, and the blocks and
/// the lanes of an end.
const FIRST_END: usize = WORDS + 5;
/// Words of an end.
pub(super) const END: usize = size_of::<batch::End>() / 8;

/// A rank in a layout.
pub(super) struct Place<'a> {
    pub(super) rank: u32,
    pub(super) layout: &'a Layout,
}

impl Place<'_> {
    /// Returns the offset of this rank's own counts of a direction of a peer.
    fn counts(&self, (peer, dir): (u32, Dir)) -> u64 {
        match dir {
            Dir::Send => self.layout.sent(peer),
            Dir::Recv => self.layout.received(peer),
        }
    }

    /// Returns the end of a direction of a peer, without messages; `own` and `theirs` are where the arenas are mapped.
    pub(super) fn end(&self, (peer, dir): (u32, Dir), own: u64, theirs: u64) -> batch::End {
        let (rank, layout) = (self.rank, self.layout);
        match dir {
            Dir::Send => batch::End {
                slots: theirs + layout.inbox(rank),
                freed: own + layout.freed(peer),
                count: own + self.counts((peer, dir)),
                peer,
                ..batch::End::default()
            },
            Dir::Recv => batch::End {
                slots: own + layout.inbox(peer),
                freed: theirs + layout.freed(rank),
                count: own + self.counts((peer, dir)),
                peer,
                how: batch::RECEIVES,
                ..batch::End::default()
            },
        }
    }
}

/// Returns what lanes have to carry of the ends.
fn far_ends(
    ends: &[batch::End],
    order: &[usize],
    transfers: &[Transfer],
    mail: &BTreeMap<u32, Arc<Mail>>,
) -> Vec<FarEnd> {
    let of = |end: &batch::End| {
        let mail = mail.get(&end.peer)?.clone();
        let dir = if end.how & batch::RECEIVES != 0 { Dir::Recv } else { Dir::Send };
        let listed = order.iter().skip(end.first as usize).take(end.messages as usize);
        let messages = listed.map(|&i| transfers[i].bytes).collect();
        Some(FarEnd { peer: end.peer, dir, mail, messages })
    };
    ends.iter().filter_map(of).collect()
}

/// Returns an end as words of the kernel's structure.
pub(super) fn end_words(end: &batch::End) -> [u64; END] {
    [end.slots, end.freed, end.count, pair(end.peer, end.how), pair(end.first, end.messages)]
}

/// Returns two numbers as the word in which they lie.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Returns the ends of messages with other ranks, and the order in which the ends have the messages; `base` is where
/// the arena of a rank of this host is mapped, and `mail` has the ranks on other hosts.
fn ends(
    place: &Place<'_>,
    transfers: &[Transfer],
    mail: &BTreeMap<u32, Arc<Mail>>,
    base: impl Fn(u32) -> u64,
) -> Result<(Vec<batch::End>, Vec<usize>), Unplayable> {
    let rank = place.rank;
    let mut found: Vec<(u32, Dir)> = Vec::new();
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
        let end = match mail.get(&peer) {
            Some(mail) => mail.end((peer, dir), own + place.counts((peer, dir))),
            None => place.end((peer, dir), own, base(peer)),
        };
        ends.push(batch::End { first, messages, ..end });
    }
    match (ends.len() <= ENDS, order.len() <= MESSAGES) {
        (true, true) => Ok((ends, order)),
        (false, _) => Err(Unplayable::Ends(ends.len())),
        (_, false) => Err(Unplayable::Messages(order.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CudaOptions;
    use roundelay_net::dtype::DType;

    fn transfer(peer: u32, dir: Dir, bytes: u64) -> Transfer {
        Transfer { peer, dir, dtype: DType::U8, bytes }
    }

    #[test]
    fn both_ends_of_a_message_meet() {
        let layout = Layout::new(3, &CudaOptions::default()).expect("a layout");
        let base = |rank: u32| u64::from(rank) << 40;
        let of = |rank, transfers: &[Transfer]| {
            ends(&Place { rank, layout: &layout }, transfers, &BTreeMap::new(), base).expect("few")
        };
        let (sends, order) = of(
            0,
            &[
                transfer(1, Dir::Send, 5),
                transfer(2, Dir::Recv, 7),
                transfer(0, Dir::Send, 9),
                transfer(1, Dir::Send, 6),
            ],
        );
        assert_eq!(order, [0, 3, 1], "an end has its messages one after the other");
        let (receives, _) = of(1, &[transfer(0, Dir::Recv, 5)]);
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
        let layout = Layout::new(40, &CudaOptions::default()).expect("a layout");
        let place = Place { rank: 0, layout: &layout };
        let many: Vec<Transfer> = (1..40).map(|peer| transfer(peer, Dir::Send, 1)).collect();
        assert!(ends(&place, &many, &BTreeMap::new(), |_| 0) == Err(Unplayable::Ends(39)));
        let long = vec![transfer(1, Dir::Send, 1); MESSAGES + 1];
        assert!(ends(&place, &long, &BTreeMap::new(), |_| 0) == Err(Unplayable::Messages(89)));
    }
}
