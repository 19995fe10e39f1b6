//! The agreement of ranks on slots that devices of the network write into: a probe on each connection.

use std::time::Instant;

use super::direct_slots::{DirectSlots, GpuDirect};
use super::direct_writes::DirectWrites;
use super::memory::ProxyMemory;
use super::packet::{PacketKind, ProxyPacket};
use super::stream::ProxyStream;
use crate::tunables::GPU_DIRECT_PROBE_TIMEOUT;
use roundelay_engine::EngineCore;
use roundelay_net::transport::one_sided::{AccessGrant, AccessRights};
use roundelay_support::digest::mix;
use roundelay_support::error::Error;

/// Bytes of a probe, of which each connection has two: what it sends, and what comes.
const PROBE: u64 = 64;

/// The probes of one connection.
struct ConnectionProbe {
    /// The places among the slots of what is sent, and of what comes; and among the peer's of what is sent.
    from: u64,
    to: u64,
    there: u64,
    sent: [u8; PROBE as usize],
    awaited: [u8; PROBE as usize],
    is_done: bool,
    has_come: bool,
}

/// Returns the bytes that a rank writes to another over a proxy thread's connection.
fn pattern(lane: u32, from: u32, to: u32) -> [u8; PROBE as usize] {
    let seed = mix(mix(lane.into(), from.into()), to.into());
    std::array::from_fn(|i| mix(seed, i as u64).to_le_bytes()[7])
}

/// Returns the probes of a proxy thread's connection with a peer.
fn probe(lane: u32, ranks: u32, (rank, peer): (u32, u32)) -> ConnectionProbe {
    let at = |peer| u64::from(lane * ranks + peer) * 2 * PROBE;
    ConnectionProbe {
        from: at(peer),
        to: at(peer) + PROBE,
        there: at(rank) + PROBE,
        sent: pattern(lane, rank, peer),
        awaited: pattern(lane, peer, rank),
        is_done: false,
        has_come: false,
    }
}

/// Returns memory whose slots devices of the network reach, if they do on all ranks and for all streams (a list for
/// each proxy thread), or the reason why they do not. All ranks together.
pub(super) fn agree(
    core: &mut EngineCore,
    lanes: &mut [Vec<ProxyStream>],
    memory: Result<ProxyMemory, GpuDirect>,
) -> Result<Result<ProxyMemory, GpuDirect>, Error> {
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
        lanes.iter_mut().flatten().for_each(|stream| stream.placing = DirectWrites::default());
    }
    Ok(agreed)
}

/// Returns what this rank has if all ranks have it.
fn all<T>(core: &mut EngineCore, own: Result<T, GpuDirect>) -> Result<Result<T, GpuDirect>, Error> {
    let words = core.words(own.is_ok().into())?;
    Ok(match ((0..).zip(words).find(|(_, word)| *word == 0), own) {
        (Some((rank, _)), Ok(_)) => Err(GpuDirect::Refused(format!("rank {rank} has it not"))),
        (_, own) => own,
    })
}

/// Returns the grants of the slots for the peers of all streams, or the reason for which this rank's devices do not
/// take them.
fn offer(
    ranks: u32,
    lanes: &[Vec<ProxyStream>],
    memory: &ProxyMemory,
) -> Result<Vec<AccessGrant>, String> {
    let direct = memory.direct().ok_or("its slots lie in memory of the host")?;
    let may = || AccessRights { read: false, write: true };
    if !direct.has(0, lanes.len() as u64 * u64::from(ranks) * 2 * PROBE) {
        return Err(format!("{} bytes of slots are too few to try it", direct.bytes()));
    }
    let each = |stream: &ProxyStream| {
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
    core: &mut EngineCore,
    lanes: &mut [Vec<ProxyStream>],
    (memory, grants): (&ProxyMemory, &[AccessGrant]),
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
        stream.post_packet(&ProxyPacket::of_slots(PacketKind::Grant, granted));
        tried.push((stream, probe));
    }
    let deadline = Instant::now() + GPU_DIRECT_PROBE_TIMEOUT.min(core.timeout());
    while !tried.iter().all(|(_, probe)| probe.is_done && probe.has_come) {
        core.hear(None)?;
        for (stream, probe) in &mut tried {
            if let Err(why) = stream.step_probe(direct, probe) {
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

impl ProxyStream {
    /// Takes a step of the probes of this connection.
    fn step_probe(
        &mut self,
        direct: &DirectSlots,
        probe: &mut ConnectionProbe,
    ) -> Result<(), String> {
        self.flush();
        if let Some(fault) = self.connection.fault() {
            return Err(fault.to_string());
        }
        match self.receive_packet().map_err(|fault| fault.to_string())? {
            Some(packet) if packet.kind == PacketKind::Grant => {
                let may = AccessRights { read: false, write: true };
                let grant =
                    AccessGrant { address: packet.digest, key: packet.number, may, words: false };
                self.placing.grant = Some((grant, packet.bytes));
                let begun = self.write_slot(direct, PROBE, (probe.from, probe.there));
                begun.ok_or("the queue for it is gone")?;
            }
            Some(packet) if packet.kind == PacketKind::Probe => {
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
            self.placing.poll(device);
        }
        if self.placing.failures > 0 {
            return Err("a device did not write it".into());
        }
        if self.placing.done > 0 && !probe.is_done {
            probe.is_done = true;
            self.post_packet(&ProxyPacket::of_slots(PacketKind::Probe, (0, 0, 0)));
            // This stream is not polled any more once the peer's probe has come.
            self.flush();
        }
        Ok(())
    }
}
