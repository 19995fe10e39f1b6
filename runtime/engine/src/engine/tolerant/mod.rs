//! Runs tolerant algorithms: what the compiler proved at every point of failure, as it stands.
//!
//! A rank reads what it sends, queues it, and waits for what the others send in the same round; a message of a rank
//! that has ended is absent (`post`). Places hold a value and the ranks whose contributions it is, or nothing; what is
//! absent moves nothing.
//!
//! After the last round each rank tells the others that it has all it needs, and waits until they say so, or have
//! ended. So a rank that returns knows that all survivors have their results, and may end or fail as it likes. If a
//! rank is not counted the communicator has failed, on all survivors alike; if one ends after its contribution has come
//! to all, the next call finds that out, whatever call it is.
//!
//! **Invariant:** a rank is taken for failed only if it is known to have ended: its process is gone, or it has left, as
//! a rank of its machine sees and tells those elsewhere. One that is silent, or to which a connection has ended, makes
//! the call fail, since it may go on. So no rank that was left out can return a result of this call.

mod post;

use std::collections::BTreeMap;
use std::rc::Rc;

use roundelay_compiler::plan::{PlanBuffer, PlanRegion};
use roundelay_compiler::tolerance::{TolerantHeader, TolerantPart, TolerantPlan, TolerantRound};
use roundelay_dsl::ast::TransferOp;

use super::EngineCore;
use crate::progress::FailedWait;
use crate::progress::peer_failure::bear_witness;
use post::{TolerantCall, TolerantPost};
use roundelay_net::wire::WireMessage;
use roundelay_support::backend::{FoldSource, FoldTarget, HostKernel, kernel};
use roundelay_support::digest::mix;
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::{Error, ErrorLocation};

/// Returns the wire formats of tolerant calls, for tests and fuzzers.
pub fn wires() -> Vec<WireMessage> {
    post::wires()
}

/// The bytes that a chunk of a message has beside its content: its ranks, and its length.
const PER_CHUNK: usize = 16;

/// The sum of the contributions of some ranks.
#[derive(Debug, Clone)]
struct HeldSum {
    ranks: u64,
    bytes: Rc<Vec<u8>>,
}

/// The content of a region: a value a chunk, or nothing.
type Content = Vec<Option<HeldSum>>;

/// A value on its way to a place.
struct TolerantOperand {
    src: u32,
    /// True if it takes the place of what is there.
    copies: bool,
    held: HeldSum,
}

/// The memory of a rank during a call.
struct TolerantMemory<'t> {
    header: &'t TolerantHeader,
    kernel: HostKernel,
    size: usize,
    places: BTreeMap<(PlanBuffer, u32), HeldSum>,
}

impl EngineCore {
    /// Runs a tolerant algorithm in place; returns the ranks whose contributions are in the result, as bits. If a rank
    /// has ended, the communicator cannot be used any more.
    pub fn execute_tolerant(
        &mut self,
        tolerant: &TolerantPlan,
        (dtype, op): (DType, RedOp),
        data: &mut [u8],
    ) -> Result<u64, Error> {
        self.usable()?;
        let header = tolerant.header();
        let part = tolerant.parts().get(self.rank() as usize);
        let part = part.filter(|_| header.ranks == self.size()).ok_or_else(|| {
            Error::Usage(format!(
                "all_reduce.{} is not for {} ranks",
                header.algorithm,
                self.size()
            ))
        })?;
        if op == RedOp::PremulSum {
            let text = "premul_sum is not for tolerant calls: multiply before, and take sum";
            return Err(Error::Unsupported(text.into()));
        }
        let kernel = kernel(dtype, op).map_err(|e| Error::Unsupported(e.to_string()))?;
        post::not_aborted(&self.group, None).map_err(|error| self.fail(error))?;
        let mut word = mix(data.len() as u64, mix(u64::from(dtype as u8), u64::from(op as u8)));
        for half in header.hash.chunks_exact(8) {
            let bytes: [u8; 8] = half.try_into().unwrap_or_default();
            word = mix(word, u64::from_le_bytes(bytes));
        }
        self.current = None;
        let digest = self.enter(word, None);
        let own = 1 << (self.rank() & 63);
        let memory = TolerantMemory::new(header, kernel, dtype.size(), (own, data));
        match self.execute_rounds(header, part, memory, digest) {
            Err(error) => Err(self.fail(error)),
            Ok(TolerantResult { memory, counted, lost }) => {
                memory.give_back(data, (op == RedOp::Avg).then_some(counted));
                // The result stands; the communicator is one that has lost a rank. The alarm carries the cause.
                if let Some(error) = lost {
                    bear_witness(&self.group);
                    drop(self.fail(error));
                }
                Ok(counted)
            }
        }
    }

    fn execute_rounds<'t>(
        &mut self,
        header: &'t TolerantHeader,
        part: &TolerantPart,
        mut memory: TolerantMemory<'t>,
        digest: u32,
    ) -> Result<TolerantResult<'t>, Error> {
        let name = format!("all_reduce.{}", header.algorithm);
        let at = |round: u32, site: u32| {
            let site = header.sites.get(site as usize);
            ErrorLocation {
                rank: self.group.rank(),
                name: name.clone(),
                step: round,
                site: site
                    .map(|s| format!("{}:{}:{}", s.file, s.line, s.column))
                    .unwrap_or_default(),
                text: site.map(|s| s.text.clone()).unwrap_or_default(),
            }
        };
        let rank = self.group.rank();
        let end = at(part.rounds.last().map_or(0, |round| round.number), u32::MAX);
        let places: Vec<Vec<ErrorLocation>> = part
            .rounds
            .iter()
            .map(|round| round.takes.iter().map(|take| at(round.number, take.site)).collect())
            .collect();
        let most = memory.longest(part);
        let call =
            TolerantCall { name: &name, number: self.calls, digest, timeout: self.timeout, most };
        let peers = (&mut self.group, &mut self.endpoints);
        let mut post = TolerantPost::open(peers, &mut self.recorder, call)?;
        for (round, places) in part.rounds.iter().zip(&places) {
            memory.round(rank, round, &mut post, places)?;
            post.not_stopped()?;
        }
        let counted = memory.counted()?;
        // From here on nothing can change the result any more.
        let mut lost = None;
        for peer in (0..header.ranks).filter(|&peer| peer != rank) {
            lost = lost.or(post.send(peer, &[]).err());
        }
        for peer in (0..header.ranks).filter(|&peer| peer != rank) {
            lost = lost.or(post.next(peer, &end).err());
        }
        post.not_stopped()?;
        // Where all are counted, a rank that ended afterwards is not noticed before the next call.
        let whole = counted.count_ones() == header.ranks;
        let ended = post.lost().filter(|_| !whole).map(|(peer, gone)| {
            let awaited = "its part of a call that went on without it".into();
            FailedWait { location: end.clone(), peer, awaited }.lost(gone.clone())
        });
        Ok(TolerantResult { memory, counted, lost: ended.or(lost) })
    }
}

/// The result of a rank.
struct TolerantResult<'t> {
    memory: TolerantMemory<'t>,
    counted: u64,
    /// The reason for which the communicator cannot be used any more, if it cannot.
    lost: Option<Error>,
}

impl<'t> TolerantMemory<'t> {
    fn new(
        header: &'t TolerantHeader,
        kernel: HostKernel,
        size: usize,
        (own, data): (u64, &[u8]),
    ) -> Self {
        let mut memory = TolerantMemory { header, kernel, size, places: BTreeMap::new() };
        for chunk in 0..header.chunks {
            let bytes = Rc::new(data[memory.range(chunk, data.len())].to_vec());
            memory.places.insert((header.input, chunk), HeldSum { ranks: own, bytes });
        }
        memory
    }

    /// Returns the bytes of a chunk of the vector.
    fn range(&self, chunk: u32, len: usize) -> std::ops::Range<usize> {
        let (count, chunks) = ((len / self.size) as u128, u128::from(self.header.chunks.max(1)));
        let at = |c: u32| (u128::from(c) * count / chunks) as usize * self.size;
        at(chunk)..at(chunk + 1)
    }

    /// Returns the bytes of the longest message that this rank takes.
    fn longest(&self, part: &TolerantPart) -> usize {
        let chunk = self.places.values().map(|held| held.bytes.len()).max().unwrap_or(0);
        let takes = part.rounds.iter().flat_map(|round| &round.takes);
        let chunks = takes.map(|take| take.to.chunks()).max().unwrap_or(0);
        (chunks as usize).saturating_mul(chunk + PER_CHUNK)
    }

    fn read(&self, region: &PlanRegion) -> Content {
        region.iter().map(|place| self.places.get(&place).cloned()).collect()
    }

    /// Runs one round: all reads first, then all writes.
    fn round(
        &mut self,
        rank: u32,
        round: &TolerantRound,
        post: &mut TolerantPost<'_>,
        places: &[ErrorLocation],
    ) -> Result<(), Error> {
        let mut taken: Vec<Option<Content>> =
            round.takes.iter().map(|take| Some(self.read(take.from.as_ref()?))).collect();
        for send in &round.sends {
            post.send(send.peer, &encoded(&self.read(&send.from)))?;
        }
        for ((take, content), at) in round.takes.iter().zip(&mut taken).zip(places) {
            if content.is_none() {
                let chunks = take.to.chunks() as usize;
                *content = Some(match post.next(take.src, at)? {
                    Some(message) => decoded(&message, chunks).ok_or_else(|| {
                        Error::Plan(format!("rank {} sends a message of another form", take.src))
                    })?,
                    None => vec![None; chunks],
                });
            }
        }
        let mut folds: BTreeMap<(PlanBuffer, u32), Vec<TolerantOperand>> = BTreeMap::new();
        for (take, content) in round.takes.iter().zip(taken) {
            for (place, held) in take.to.iter().zip(content.into_iter().flatten()) {
                let copies = take.op == TransferOp::Copy;
                let operand = held.map(|held| TolerantOperand { src: take.src, copies, held });
                folds.entry(place).or_default().extend(operand);
            }
        }
        for (place, operands) in folds.into_iter().filter(|(_, operands)| !operands.is_empty()) {
            let stays = operands.iter().all(|operand| !operand.copies);
            let old = self.places.get(&place).filter(|_| stays).cloned();
            let before = operands.partition_point(|operand| operand.src < rank);
            let mut inputs: Vec<HeldSum> =
                operands.into_iter().map(|operand| operand.held).collect();
            old.into_iter().for_each(|old| inputs.insert(before, old));
            let sum = self.fold(inputs)?;
            self.places.insert(place, sum);
        }
        Ok(())
    }

    /// Returns the sum of some values, first to last.
    fn fold(&self, mut inputs: Vec<HeldSum>) -> Result<HeldSum, Error> {
        if let [_] = inputs.as_slice()
            && let Some(only) = inputs.pop()
        {
            return Ok(only);
        }
        let len = inputs.first().map_or(0, |held| held.bytes.len());
        let mut ranks = 0;
        for held in &inputs {
            if ranks & held.ranks != 0 || held.bytes.len() != len {
                return Err(Error::Plan("a proved sum has a contribution twice".into()));
            }
            ranks |= held.ranks;
        }
        let mut bytes = vec![0; len];
        let sources: Vec<FoldSource> =
            inputs.iter().map(|held| FoldSource { ptr: held.bytes.as_ptr(), wire: None }).collect();
        let target = FoldTarget { ptr: bytes.as_mut_ptr(), wire: None, stream: false };
        // SAFETY: all of them have `len` bytes, which are that many elements; the target is memory of its own.
        unsafe { self.kernel.fold(&sources, &[target], len / self.size) };
        Ok(HeldSum { ranks, bytes: Rc::new(bytes) })
    }

    /// Returns the ranks whose contributions the result has.
    fn counted(&self) -> Result<u64, Error> {
        let held = |chunk| self.places.get(&(self.header.output, chunk)).map(|held| held.ranks);
        let first = held(0).unwrap_or(0);
        match (1..self.header.chunks).all(|chunk| held(chunk) == Some(first)) {
            true => Ok(first),
            false => Err(Error::Plan("chunks of a proved result count different ranks".into())),
        }
    }

    /// Copies the result to the caller's memory, divided by the number of ranks in a set if there is one.
    fn give_back(&self, data: &mut [u8], divides: Option<u64>) {
        let len = data.len();
        for chunk in 0..self.header.chunks {
            if let Some(held) = self.places.get(&(self.header.output, chunk)) {
                data[self.range(chunk, len)].copy_from_slice(&held.bytes);
            }
        }
        if let Some(ranks) = divides.filter(|ranks| *ranks != 0) {
            let (count, ranks) = (len / self.size, u64::from(ranks.count_ones()));
            // SAFETY: the caller's memory, of that many elements.
            unsafe { self.kernel.divide(data.as_mut_ptr(), count, ranks) };
        }
    }
}

/// Returns the message of a region: for each chunk its ranks, none if it holds nothing, and its length; then content.
fn encoded(content: &Content) -> Vec<u8> {
    let len = content.iter().flatten().map(|held| held.bytes.len()).sum::<usize>();
    let mut message = Vec::with_capacity(content.len() * PER_CHUNK + len);
    for held in content {
        let (ranks, len) = held.as_ref().map_or((0, 0), |held| (held.ranks, held.bytes.len()));
        message.extend_from_slice(&ranks.to_ne_bytes());
        message.extend_from_slice(&(len as u64).to_ne_bytes());
    }
    content.iter().flatten().for_each(|held| message.extend_from_slice(&held.bytes));
    message
}

/// Returns the content of a message with that many chunks; `None` if it is no such message.
fn decoded(message: &[u8], chunks: usize) -> Option<Content> {
    let (heads, mut rest) = message.split_at_checked(chunks.checked_mul(PER_CHUNK)?)?;
    let word = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.try_into().ok()?));
    let mut content = Vec::with_capacity(chunks);
    for head in heads.chunks_exact(PER_CHUNK) {
        let (ranks, len) = (word(&head[..8])?, usize::try_from(word(&head[8..])?).ok()?);
        let (bytes, after) = rest.split_at_checked(len)?;
        rest = after;
        content.push((ranks != 0).then(|| HeldSum { ranks, bytes: Rc::new(bytes.to_vec()) }));
    }
    rest.is_empty().then_some(content)
}
