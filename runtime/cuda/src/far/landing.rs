//! A lane takes what peers have sent: contents into slots, of which it tells kernels, and credit.

use roundelay_compiler::device::abi;
use roundelay_compiler::plan::Dir;

use super::call::{FarCall, FarLink};
use super::flow::Flow;
use super::lane::{End, Lane, TURN};
use super::packet::Kind;
use super::stream::Coming;
use crate::backend;
use roundelay_net::error::Error;
use roundelay_net::transport::fault::Fault;
use roundelay_net::transport::message::IoVecMut;
use roundelay_net::transport::posted::PostedReceiver;

/// The reason for which a packet of a peer is not taken.
enum Trouble {
    /// Its connection is lost, or it broke the protocol.
    Fault(Fault),
    /// It makes another call.
    OtherCall,
    /// This rank's driver has failed.
    Driver(backend::Fault),
}

impl From<backend::Fault> for Trouble {
    fn from(fault: backend::Fault) -> Self {
        Trouble::Driver(fault)
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Trouble::Fault(fault)
    }
}

impl Lane {
    /// Takes what peers have sent; returns true if something moved.
    pub(super) fn hear(&mut self, call: &FarCall, flows: &mut [Flow]) -> Result<bool, End> {
        let mut moved = false;
        for at in 0..self.streams.len() {
            for _ in 0..TURN {
                match self.step(at, call, flows) {
                    Ok(true) => moved = true,
                    Ok(false) => break,
                    Err(Trouble::Fault(fault)) => return Err(self.lost(at, call, flows, &fault)),
                    Err(Trouble::Driver(fault)) => {
                        let direct = self.memory.direct();
                        let error = direct.map(|direct| direct.error(self.common.rank, &fault));
                        return Err(error.map_or(End::Stopped, End::failed));
                    }
                    Err(Trouble::OtherCall) => {
                        let (rank, peer) = (self.common.rank, self.streams[at].peer);
                        let name = call.location(&call.part.links[0], 1).name;
                        let detail = format!(
                            "rank {rank} plays {name} of {} elements as call {} on its GPU",
                            call.count, call.epoch
                        );
                        return Err(End::failed(Error::PlanMismatch { rank, peer, detail }));
                    }
                }
            }
        }
        Ok(moved)
    }

    /// Takes the next packet of a connection, or the next part of a content; returns false if none is here that belongs
    /// to the call.
    fn step(&mut self, at: usize, call: &FarCall, flows: &mut [Flow]) -> Result<bool, Trouble> {
        if let Some(moved) = self.piece(at)? {
            return Ok(moved);
        }
        let stream = &mut self.streams[at];
        let links = &call.part.links;
        match stream.coming {
            // Of the call after, whose kernel has not entered here.
            Coming::Read(packet) if packet.epoch != call.epoch => {
                match abi::reached(abi::mark(call.epoch, 0), abi::mark(packet.epoch, 0)) {
                    false => Ok(false),
                    true => Err(Fault::Protocol("it sent a message of a call that is over").into()),
                }
            }
            Coming::Read(packet) => {
                if packet.digest != call.digest {
                    return Err(Trouble::OtherCall);
                }
                let receives = packet.kind != Kind::Credit;
                let flow = flows.iter().position(|flow| {
                    let link: &FarLink = &links[flow.link];
                    flow.stream == at
                        && (link.dir == Dir::Recv) == receives
                        && (link.channel, flow.block) == (packet.channel, packet.block)
                });
                let none = Fault::Protocol("it sent a message that this rank does not wait for");
                let Some(at) = flow else { return Err(none.into()) };
                let flow = &mut flows[at];
                let link = &links[flow.link];
                if !receives {
                    if packet.number <= flow.credit || packet.number > flow.total {
                        return Err(Fault::Protocol("it gave credit for no message").into());
                    }
                    (flow.credit, flow.to) = (packet.number, packet.bytes);
                    stream.coming = Coming::Packet;
                    return Ok(true);
                }
                if !flow.may_land(packet.number)
                    || packet.bytes != call.bytes(link, packet.block, packet.number)
                {
                    return Err(none.into());
                }
                if packet.kind == Kind::Message {
                    stream.coming = Coming::Content { flow: at, bytes: packet.bytes };
                    return Ok(true);
                }
                let Some(direct) = self.memory.direct() else { return Err(none.into()) };
                direct.flush()?;
                stream.coming = Coming::Packet;
                flow.landed(&self.memory, link, call);
                Ok(true)
            }
            Coming::Content { flow: at, bytes } => {
                let flow = &mut flows[at];
                let link = &links[flow.link];
                let slot = call.slot(link, flow.block, flow.moved + 1);
                let outside = Fault::Protocol("its slot lies outside the memory of slots");
                if let (Some(direct), 1..) = (self.memory.direct(), bytes) {
                    let Some(content) = stream.whole(bytes as usize) else { return Ok(false) };
                    match direct.has(slot, bytes) {
                        true => direct.store(slot, content)?,
                        false => return Err(outside.into()),
                    }
                    stream.receiver.consume();
                } else if bytes > 0 {
                    let place = self.memory.slot(slot, bytes.max(call.slot_bytes(link)));
                    let ptr = place.ok_or(outside)?;
                    let piece = IoVecMut { ptr, len: bytes as usize };
                    // SAFETY: the slot lies in the memory, which outlives this thread. It is this flow's until its
                    // kernel is told, which has consumed what was there: the sender has credit.
                    let landed =
                        unsafe { stream.receiver.land(bytes as usize, std::iter::once(piece)) };
                    if !landed {
                        return Ok(false);
                    }
                    stream.receiver.consume();
                }
                stream.coming = Coming::Packet;
                flow.landed(&self.memory, link, call);
                Ok(true)
            }
            Coming::Packet | Coming::Piece { .. } => Ok(false),
        }
    }
}
