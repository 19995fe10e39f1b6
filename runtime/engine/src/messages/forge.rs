//! Packets that nothing has asked for, with which tests see what a peer does about them.

use super::{Messenger, link, packet};

impl Messenger {
    /// Sends a peer packets that nothing here has asked for, without their content; bytes that are none are left out.
    #[doc(hidden)]
    pub fn forge<'a>(&self, peer: u32, packets: impl IntoIterator<Item = &'a [u8]>) {
        let packets = packets.into_iter().filter_map(|bytes| bytes.try_into().ok());
        let forged = packets.filter_map(packet::Packet::decode).map(link::Out::Packet);
        self.peek(|engine| {
            engine.links.get_mut(&peer).expect("a connection").out.extend(forged);
            engine.progress();
        });
    }

    /// Sends a peer a packet so many times, as `forge`, and hears nothing of it until `over` says so.
    #[doc(hidden)]
    pub fn flood(&self, peer: u32, packet: &[u8], times: usize, over: impl Fn() -> bool) {
        let packet = packet.try_into().ok().and_then(packet::Packet::decode).expect("a packet");
        self.peek(|engine| {
            let chunk = engine.group.layout().slot_bytes;
            let link = engine.links.get_mut(&peer).expect("a connection");
            let link::Wire::Open { sender, .. } = link.wire else { panic!("it is not open") };
            link.out.extend((0..times).map(|_| link::Out::Packet(packet)));
            while !over() {
                let sender = &mut engine.endpoints.senders[sender as usize];
                link.say(sender, chunk, &mut 0).expect("a sender");
                sender.flush();
                std::thread::yield_now();
            }
        });
    }
}
