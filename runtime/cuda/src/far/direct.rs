//! Slots on the GPU, which devices of the network read and write by themselves.
//!
//! Words stay in memory of the host, so kernels and proxies speak as ever. What differs is what a lane does with a
//! message: it has the device write the content from its slot here into the slot of the receiver, and sends a packet
//! without content ([`Kind::Placed`]) when that is done. So there must be room before anything is written: no message
//! goes without credit, and credit says where the block's slots lie at the receiver.
//!
//! While no queue is there for that, since one has failed or the peer's device has refused, contents go through memory
//! of the host: copied out of the slot here, and into the slot there. A write that has failed moves nothing any more
//! ([`OneSided`]), and no kernel was told of it.
//!
//! Ranks agree on it when lanes are made ([`agree`]): the hint `gpu_direct` asks for it, the driver must export memory
//! of the GPU and the devices of all lanes take it, and a probe must come through on each connection, as messages will.
//!
//! None of this was tried with memory of a GPU: devices in software take none. Tests play it with memory of the host in
//! its place.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::memory::FarMemory;
#[cfg(test)]
use super::memory::Mapped;
use super::packet::{Kind, Packet};
use super::stream::Stream;
use crate::backend::{Context, Fault, NetworkMemory};
use roundelay_engine::Core;
use roundelay_net::digest::mix;
use roundelay_net::error::Error;
use roundelay_net::transport::one_sided::{Access, Grant, May, News, OneSided};
use roundelay_net::transport::rdma::Exposure;

/// Bytes of a probe, of which each connection has two: what it sends, and what comes.
const PROBE: u64 = 64;
/// The most time for the probes.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answer to whether messages between hosts go from the memory of one GPU to that of the other, without a stop in
/// memory of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuDirect {
    /// They do.
    Used,
    /// They do not: the hint `gpu_direct` did not ask for it, or there is one host.
    NotAsked,
    /// They do not, for this reason.
    Refused(String),
}

/// Slots that devices of the network read and write.
pub(in super::super) struct Direct {
    exposure: Arc<Exposure>,
    memory: Memory,
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        // Before the memory.
        self.exposure.clear();
    }
}

#[derive(Debug)]
enum Memory {
    Gpu(NetworkMemory),
    /// So many bytes of this process in the place of a GPU's; true if it gives back other bytes than were written.
    #[cfg(test)]
    Plain(Mapped, (u64, bool)),
}

impl Direct {
    /// Returns the error of a rank whose driver does not copy, or flush.
    pub(super) fn error(&self, rank: u32, fault: &Fault) -> Error {
        match &self.memory {
            Memory::Gpu(memory) => fault.on(rank, memory.device()),
            #[cfg(test)]
            Memory::Plain(..) => Error::Usage(fault.to_string()),
        }
    }

    /// Allocates so many bytes of slots, if devices of the network can reach memory of the GPU.
    pub(super) fn on_gpu(context: &Arc<Context>, bytes: u64) -> Result<Option<Self>, Fault> {
        let Some(memory) = NetworkMemory::new(context, bytes)? else { return Ok(None) };
        let (base, bytes) = memory.place();
        let exposure = Arc::new(Exposure::of_gpu(memory.export()?, base, bytes));
        Ok(Some(Direct { exposure, memory: Memory::Gpu(memory) }))
    }

    /// Makes so many bytes of slots in memory of this process.
    #[cfg(test)]
    pub(super) fn plain((bytes, spoils): (u64, bool)) -> Self {
        let memory = Mapped::plain(bytes);
        let start = memory.place(0, 0).expect("it begins somewhere");
        // SAFETY: the memory lives as long as this, which clears the exposure first.
        let exposure = Arc::new(unsafe { Exposure::new(start, bytes) });
        Direct { exposure, memory: Memory::Plain(memory, (bytes, spoils)) }
    }

    /// Returns the place of so many bytes, for a kernel that a thread plays.
    #[cfg(test)]
    pub(super) fn place(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        match &self.memory {
            Memory::Gpu(_) => None,
            Memory::Plain(memory, _) => memory.place(offset, bytes),
        }
    }

    /// Returns the address of the slots, for kernels and for devices.
    pub(super) fn base(&self) -> u64 {
        match &self.memory {
            Memory::Gpu(memory) => memory.place().0,
            #[cfg(test)]
            Memory::Plain(memory, _) => memory.device(),
        }
    }

    fn bytes(&self) -> u64 {
        match &self.memory {
            Memory::Gpu(memory) => memory.place().1,
            #[cfg(test)]
            Memory::Plain(_, (bytes, _)) => *bytes,
        }
    }

    /// Returns true if so many bytes at an offset are slots.
    pub(super) fn has(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes())
    }

    /// Sees to it that kernels that are told from now on see what devices have written.
    pub(super) fn flush(&self) -> Result<(), Fault> {
        match &self.memory {
            Memory::Gpu(memory) => memory.flush(),
            #[cfg(test)]
            Memory::Plain(..) => Ok(()),
        }
    }

    /// Copies what lies at an offset.
    fn load(&self, offset: u64, to: &mut [u8]) -> Result<(), Fault> {
        match &self.memory {
            Memory::Gpu(memory) => memory.load(offset, to),
            #[cfg(test)]
            Memory::Plain(memory, (_, spoils)) => {
                let from = memory.place(offset, to.len() as u64).expect("a place among the slots");
                // SAFETY: it lies in the memory, and the slot is this lane's.
                unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
                to[0] ^= u8::from(*spoils);
                Ok(())
            }
        }
    }

    /// Copies to an offset.
    pub(super) fn store(&self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        match &self.memory {
            Memory::Gpu(memory) => memory.store(offset, from),
            #[cfg(test)]
            Memory::Plain(memory, _) => {
                let to = memory.place(offset, from.len() as u64).expect("a place among the slots");
                // SAFETY: it lies in the memory, and the slot is this lane's.
                unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
                Ok(())
            }
        }
    }
}

/// The messages of a stream that the device writes into the receiver's slots.
#[derive(Debug, Default)]
pub(super) struct Placing {
    /// The peer's slots, as its device takes writes to them, and their bytes.
    grant: Option<(Grant, u64)>,
    /// Messages whose packets have not gone, in order.
    pub(super) begun: VecDeque<Begun>,
    /// The number of the last access that was begun, and of the last that is done.
    number: u64,
    done: u64,
    /// The number of times that all that had no end failed.
    pub(super) failures: u32,
}

/// A message whose packet has not gone.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) flow: usize,
    pub(super) packet: Packet,
    pub(super) slot: u64,
    /// The access that writes its content; none if there is no content, or if it is to go with the packet.
    pub(super) access: Option<u64>,
}

impl Placing {
    /// Returns true if a message has not gone.
    pub(super) fn is_sending(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Returns the next message whose packet may go.
    pub(super) fn next(&mut self) -> Option<Begun> {
        let first = self.begun.front()?;
        if first.access.is_some_and(|id| id > self.done) {
            return None;
        }
        self.begun.pop_front()
    }

    /// Hears what a device has done; contents that it could not write go with their packets.
    pub(super) fn hear(&mut self, device: &dyn OneSided) {
        let Placing { grant, begun, done, failures, .. } = self;
        device.hear(&mut |news| match news {
            News::Moved { .. } => {}
            News::Done { id } => *done = id,
            News::Failed { refused } => {
                *failures += 1;
                begun.iter_mut().filter(|b| b.access > Some(*done)).for_each(|b| b.access = None);
                if refused {
                    *grant = None;
                }
            }
        });
    }
}

impl Stream {
    /// Begins a message of a flow, from its slot here to the place `to` among the receiver's.
    pub(super) fn place(
        &mut self,
        direct: &Direct,
        flow: usize,
        packet: Packet,
        (slot, to): (u64, u64),
    ) {
        let access = self.write(direct, packet.bytes, (slot, to));
        self.placing.begun.push_back(Begun { flow, packet, slot, access });
    }

    /// Has the device write so many bytes, if it can; returns the number of the access.
    fn write(&mut self, direct: &Direct, len: u64, (slot, to): (u64, u64)) -> Option<u64> {
        let (grant, bytes) = self.placing.grant?;
        let device = self.connection.one_sided().filter(|device| device.is_up())?;
        let fits = to.checked_add(len).is_some_and(|end| end <= bytes) && direct.has(slot, len);
        if len == 0 || !fits {
            return None;
        }
        self.placing.number += 1;
        let id = self.placing.number;
        let here = std::ptr::without_provenance_mut((direct.base() + slot) as usize);
        let there = grant.address.wrapping_add(to);
        let access = Access { id, reads: false, here, there, key: grant.key, len };
        // SAFETY: the slot lies in memory that outlives this connection. The kernel writes there again when it is told
        // that the content was taken, which is when the end of the access was heard of.
        unsafe { device.begin(access) };
        Some(id)
    }

    /// Sends the packet of the next message whose content has been written, or with its content; returns its flow.
    pub(super) fn placed(&mut self, direct: &Direct) -> Result<Option<usize>, Fault> {
        if !self.placing.is_sending() {
            return Ok(None);
        }
        if let Some(device) = self.connection.one_sided() {
            self.placing.hear(device);
        }
        let Some(Begun { flow, packet, slot, access }) = self.placing.next() else {
            return Ok(None);
        };
        match access {
            Some(_) => self.say(&Packet { kind: Kind::Placed, ..packet }),
            None => self.say(&packet),
        }
        if access.is_none() && packet.bytes > 0 {
            self.fill(packet.bytes as usize, |to| direct.load(slot, to))?;
        }
        Ok(Some(flow))
    }
}

/// The probes of one connection.
struct Probe {
    /// The places among the slots of what is sent, and of what comes; and among the peer's of what is sent.
    from: u64,
    to: u64,
    there: u64,
    sent: [u8; PROBE as usize],
    awaited: [u8; PROBE as usize],
    is_done: bool,
    has_come: bool,
}

/// Returns what a rank writes to another over a lane.
fn pattern(lane: u32, from: u32, to: u32) -> [u8; PROBE as usize] {
    let seed = mix(mix(lane.into(), from.into()), to.into());
    std::array::from_fn(|i| mix(seed, i as u64).to_le_bytes()[7])
}

/// Returns the probes of a lane's connection with a peer.
fn probe(lane: u32, ranks: u32, (rank, peer): (u32, u32)) -> Probe {
    let at = |peer| u64::from(lane * ranks + peer) * 2 * PROBE;
    Probe {
        from: at(peer),
        to: at(peer) + PROBE,
        there: at(rank) + PROBE,
        sent: pattern(lane, rank, peer),
        awaited: pattern(lane, peer, rank),
        is_done: false,
        has_come: false,
    }
}

/// Returns memory whose slots devices of the network reach, if they do on all ranks, and for all streams, which come by
/// lanes; or says why not. All ranks together.
pub(super) fn agree(
    core: &mut Core,
    lanes: &mut [Vec<Stream>],
    memory: Result<FarMemory, GpuDirect>,
) -> Result<Result<FarMemory, GpuDirect>, Error> {
    let offered = memory.and_then(|memory| match offer(core.size(), lanes, &memory) {
        Ok(grants) => Ok((memory, grants)),
        Err(why) => Err(GpuDirect::Refused(why)),
    });
    let (memory, grants) = match all(core, offered)? {
        Ok(offered) => offered,
        Err(why) => return Ok(Err(why)),
    };
    let tried = attempt(core, lanes, (&memory, &grants))?;
    let agreed = all(core, tried.map_err(GpuDirect::Refused).map(|()| memory))?;
    if agreed.is_err() {
        lanes.iter_mut().flatten().for_each(|stream| stream.placing = Placing::default());
    }
    Ok(agreed)
}

/// Returns what this rank has if all ranks have it.
fn all<T>(core: &mut Core, own: Result<T, GpuDirect>) -> Result<Result<T, GpuDirect>, Error> {
    let words = core.words(own.is_ok().into())?;
    Ok(match ((0..).zip(words).find(|(_, word)| *word == 0), own) {
        (Some((rank, _)), Ok(_)) => Err(GpuDirect::Refused(format!("rank {rank} has it not"))),
        (_, own) => own,
    })
}

/// Returns the grants of the slots for the peers of all streams, or the reason for which this rank's devices do not take
/// them.
fn offer(ranks: u32, lanes: &[Vec<Stream>], memory: &FarMemory) -> Result<Vec<Grant>, String> {
    let direct = memory.direct().ok_or("its slots lie in memory of the host")?;
    let may = || May { read: false, write: true };
    if !direct.has(0, lanes.len() as u64 * u64::from(ranks) * 2 * PROBE) {
        return Err(format!("{} bytes of slots are too few to try it", direct.bytes()));
    }
    let each = |stream: &Stream| {
        let peer = stream.peer;
        let device = stream.connection.one_sided().filter(|device| device.is_up());
        let device = device.ok_or_else(|| format!("no device joins this rank and rank {peer}"))?;
        let grant = device.grant(&direct.exposure, &may);
        let grant = grant.ok_or_else(|| {
            format!(
                "the device that joins this rank and rank {peer} does not take memory of the GPU"
            )
        })?;
        device.lend(&direct.exposure);
        Ok(grant)
    };
    lanes.iter().flatten().map(each).collect()
}

/// Writes a probe over each connection, from slots to slots, and compares what comes.
fn attempt(
    core: &mut Core,
    lanes: &mut [Vec<Stream>],
    (memory, grants): (&FarMemory, &[Grant]),
) -> Result<Result<(), String>, Error> {
    let (ranks, rank) = (core.size(), core.rank());
    let Some(direct) = memory.direct() else { return Ok(Err("there are no such slots".into())) };
    let streams =
        (0u32..).zip(lanes).flat_map(|(lane, list)| list.iter_mut().map(move |s| (lane, s)));
    let mut tried = Vec::new();
    for ((lane, stream), grant) in streams.zip(grants) {
        let probe = probe(lane, ranks, (rank, stream.peer));
        let poison = probe.awaited.map(|byte| !byte);
        let written = direct.store(probe.from, &probe.sent);
        if let Err(fault) = written.and_then(|()| direct.store(probe.to, &poison)) {
            return Ok(Err(fault.to_string()));
        }
        let granted = (grant.key, direct.bytes(), grant.address);
        stream.say(&Packet::of_slots(Kind::Grant, granted));
        tried.push((stream, probe));
    }
    let deadline = Instant::now() + PATIENCE.min(core.timeout());
    while !tried.iter().all(|(_, probe)| probe.is_done && probe.has_come) {
        core.hear(None)?;
        for (stream, probe) in &mut tried {
            if let Err(why) = stream.attempt(direct, probe) {
                return Ok(Err(format!("with rank {}: {why}", stream.peer)));
            }
        }
        if Instant::now() > deadline {
            return Ok(Err("a probe did not come through".into()));
        }
        std::thread::yield_now();
    }
    Ok(Ok(()))
}

impl Stream {
    /// Takes a step of the probes of this connection.
    fn attempt(&mut self, direct: &Direct, probe: &mut Probe) -> Result<(), String> {
        self.flush();
        if let Some(fault) = self.connection.fault() {
            return Err(fault.to_string());
        }
        match self.packet().map_err(|fault| fault.to_string())? {
            Some(packet) if packet.kind == Kind::Grant => {
                let may = May { read: false, write: true };
                let grant = Grant { address: packet.digest, key: packet.number, may, words: false };
                self.placing.grant = Some((grant, packet.bytes));
                let begun = self.write(direct, PROBE, (probe.from, probe.there));
                begun.ok_or("the queue for it is gone")?;
            }
            Some(packet) if packet.kind == Kind::Probe => {
                let mut found = [0; PROBE as usize];
                let read = direct.flush().and_then(|()| direct.load(probe.to, &mut found));
                read.map_err(|fault| fault.to_string())?;
                if found != probe.awaited {
                    return Err("other bytes came than were sent".into());
                }
                probe.has_come = true;
            }
            _ => {}
        }
        if let Some(device) = self.connection.one_sided() {
            self.placing.hear(device);
        }
        if self.placing.failures > 0 {
            return Err("a device did not write it".into());
        }
        if self.placing.done > 0 && !probe.is_done {
            probe.is_done = true;
            self.say(&Packet::of_slots(Kind::Probe, (0, 0, 0)));
            // Nobody looks at this stream any more once the peer's probe has come.
            self.flush();
        }
        Ok(())
    }
}
