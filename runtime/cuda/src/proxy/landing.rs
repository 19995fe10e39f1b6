//! The receive path of a proxy: copies payloads into slots, publishes them to kernels, applies credit.

use roundelay_compiler::device::abi;
use roundelay_compiler::plan::MessageDirection;

use super::call::{ProxyCall, ProxyLink};
use super::flow::MessageFlow;
use super::lane::{ProxyExit, ProxyLane};
use super::packet::PacketKind;
use super::stream::ReceiveStage;
use crate::backend;
use crate::tunables::PACKETS_PER_TURN;
use roundelay_net::transport::fault::ConnectionFault;
use roundelay_net::transport::message::IoVecMut;
use roundelay_net::transport::posted::PostedReceiver;
use roundelay_support::error::Error;

/// The reason for which a packet of a peer is refused.
enum ReceiveError {
    /// Its connection is lost, or it broke the protocol.
    Fault(ConnectionFault),
    /// It makes another call.
    OtherCall,
    /// This rank's driver has failed.
    Driver(backend::DriverFault),
}

impl From<backend::DriverFault> for ReceiveError {
    fn from(fault: backend::DriverFault) -> Self {
        ReceiveError::Driver(fault)
    }
}

impl From<ConnectionFault> for ReceiveError {
    fn from(fault: ConnectionFault) -> Self {
        ReceiveError::Fault(fault)
    }
}

impl ProxyLane {
    /// Receives what peers have sent; returns true if something moved.
    pub(super) fn receive(
        &mut self,
        call: &ProxyCall,
        flows: &mut [MessageFlow],
    ) -> Result<bool, ProxyExit> {
        let mut moved = false;
        for at in 0..self.streams.len() {
            for _ in 0..PACKETS_PER_TURN {
                match self.receive_next(at, call, flows) {
                    Ok(true) => moved = true,
                    Ok(false) => break,
                    Err(ReceiveError::Fault(fault)) => {
                        return Err(self.call_lost(at, call, flows, &fault));
                    }
                    Err(ReceiveError::Driver(fault)) => {
                        let direct = self.memory.direct();
                        let error = direct.map(|direct| direct.error(self.common.rank, &fault));
                        return Err(error.map_or(ProxyExit::Stopped, ProxyExit::failed));
                    }
                    Err(ReceiveError::OtherCall) => {
                        let (rank, peer) = (self.common.rank, self.streams[at].peer);
                        let name = call.location(&call.part.links[0], 1).name;
                        let detail = format!(
                            "rank {rank} runs {name} of {} elements as call {} on its GPU",
                            call.count, call.epoch
                        );
                        return Err(ProxyExit::failed(Error::PlanMismatch { rank, peer, detail }));
                    }
                }
            }
        }
        Ok(moved)
    }

    /// Receives the next packet of a connection, or the next part of a content; returns false if none is here that
    /// belongs to the call.
    fn receive_next(
        &mut self,
        at: usize,
        call: &ProxyCall,
        flows: &mut [MessageFlow],
    ) -> Result<bool, ReceiveError> {
        if let Some(moved) = self.receive_piece(at)? {
            return Ok(moved);
        }
        let stream = &mut self.streams[at];
        let links = &call.part.links;
        match stream.coming {
            // A packet of the next call, which this rank's kernel has not entered.
            ReceiveStage::Read(packet) if packet.epoch != call.epoch => {
                match abi::reached(abi::mark(call.epoch, 0), abi::mark(packet.epoch, 0)) {
                    false => Ok(false),
                    true => {
                        Err(ConnectionFault::Protocol("it sent a message of a call that is over")
                            .into())
                    }
                }
            }
            ReceiveStage::Read(packet) => {
                if packet.digest != call.digest {
                    return Err(ReceiveError::OtherCall);
                }
                let receives = packet.kind != PacketKind::Credit;
                let flow = flows.iter().position(|flow| {
                    let link: &ProxyLink = &links[flow.link];
                    flow.stream == at
                        && (link.dir == MessageDirection::Recv) == receives
                        && (link.channel, flow.block) == (packet.channel, packet.block)
                });
                let none =
                    ConnectionFault::Protocol("it sent a message that this rank does not wait for");
                let Some(at) = flow else { return Err(none.into()) };
                let flow = &mut flows[at];
                let link = &links[flow.link];
                if !receives {
                    if packet.number <= flow.credit || packet.number > flow.total {
                        return Err(
                            ConnectionFault::Protocol("it gave credit for no message").into()
                        );
                    }
                    (flow.credit, flow.to) = (packet.number, packet.bytes);
                    stream.coming = ReceiveStage::Packet;
                    return Ok(true);
                }
                if !flow.may_land(packet.number)
                    || packet.bytes != call.bytes(link, packet.block, packet.number)
                {
                    return Err(none.into());
                }
                if packet.kind == PacketKind::Message {
                    stream.coming = ReceiveStage::Content { flow: at, bytes: packet.bytes };
                    return Ok(true);
                }
                let Some(direct) = self.memory.direct() else { return Err(none.into()) };
                direct.flush()?;
                stream.coming = ReceiveStage::Packet;
                flow.landed(&self.memory, link, call);
                Ok(true)
            }
            ReceiveStage::Content { flow: at, bytes } => {
                let flow = &mut flows[at];
                let link = &links[flow.link];
                let slot = call.slot(link, flow.block, flow.moved + 1);
                let outside =
                    ConnectionFault::Protocol("its slot lies outside the memory of slots");
                if let (Some(direct), 1..) = (self.memory.direct(), bytes) {
                    let Some(content) = stream.whole_message(bytes as usize) else {
                        return Ok(false);
                    };
                    match direct.has(slot, bytes) {
                        true => direct.store(slot, content)?,
                        false => return Err(outside.into()),
                    }
                    stream.receiver.consume();
                } else if bytes > 0 {
                    let place = self.memory.slot(slot, bytes.max(call.slot_bytes(link)));
                    let ptr = place.ok_or(outside)?;
                    let piece = IoVecMut { ptr, len: bytes as usize };
                    // SAFETY: the slot lies in the memory, which outlives this thread. It is this flow's until the
                    // message is published; the kernel has consumed what was there, for the sender has credit.
                    let landed =
                        unsafe { stream.receiver.land(bytes as usize, std::iter::once(piece)) };
                    if !landed {
                        return Ok(false);
                    }
                    stream.receiver.consume();
                }
                stream.coming = ReceiveStage::Packet;
                self.carried += bytes;
                flow.landed(&self.memory, link, call);
                Ok(true)
            }
            ReceiveStage::Packet | ReceiveStage::Piece { .. } => Ok(false),
        }
    }
}
