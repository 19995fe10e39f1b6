//! Forged packets, with which tests examine how a peer handles them.

use super::link::ConnectionState;
use super::messenger::RankMessenger;
use super::outgoing::OutgoingEntry;
use super::packet::MessagePacket;

impl RankMessenger {
    /// Sends a peer packets that no operation of this rank has made, without payloads; bytes that are no packet are
    /// left out.
    #[doc(hidden)]
    pub fn forge<'a>(&self, peer: u32, packets: impl IntoIterator<Item = &'a [u8]>) {
        let packets = packets.into_iter().filter_map(|bytes| bytes.try_into().ok());
        let forged = packets.filter_map(MessagePacket::decode).map(OutgoingEntry::Packet);
        self.with_engine(|engine| {
            engine.links.get_mut(&peer).expect("a connection").out.extend(forged);
            engine.progress();
        });
    }

    /// Sends a peer a packet `times` times, as `forge` does, and receives nothing from it until `over` returns true.
    #[doc(hidden)]
    pub fn flood(&self, peer: u32, packet: &[u8], times: usize, over: impl Fn() -> bool) {
        let packet = packet.try_into().ok().and_then(MessagePacket::decode).expect("a packet");
        self.with_engine(|engine| {
            let chunk = engine.group.layout().slot_bytes;
            let link = engine.links.get_mut(&peer).expect("a connection");
            let ConnectionState::Open { sender, .. } = link.wire else { panic!("it is not open") };
            link.out.extend((0..times).map(|_| OutgoingEntry::Packet(packet)));
            while !over() {
                let sender = &mut engine.endpoints.senders[sender as usize];
                link.post_queued(sender, chunk, &mut 0).expect("a sender");
                sender.flush();
                std::thread::yield_now();
            }
        });
    }
}
