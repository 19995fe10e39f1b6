//! A communicator's end of a link between two ranks: frames, sent and received without waiting.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::claimed_name::ClaimedName;
use super::link_channel::{LEFT, LinkChannel};
use super::link_frame::{FRAME_HEADER, LinkFrame};
use super::link_stream::LinkStream;
use crate::transport::shm::BoardStream;
use crate::transport::stream::ResumableStream;
use roundelay_support::fork::OwnerProcess;
use roundelay_tls::PeerSocket;

/// A communicator's end of a link, which it may share with others of the same two ranks.
pub(super) struct PeerLink {
    pub(super) peer: u32,
    communicator: u64,
    channel: Arc<Mutex<LinkChannel>>,
    /// The process that is the rank: its children change nothing.
    process: OwnerProcess,
    is_near: bool,
    has_sent_goodbye: bool,
    state: LinkState,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LinkState {
    Open,
    Ended(String),
}

impl PeerLink {
    /// Makes a link for a communicator. Frames whose content is longer than `limit` bytes break the protocol.
    pub(super) fn new(peer: u32, communicator: u64, socket: PeerSocket, limit: usize) -> Self {
        Self::over(peer, communicator, LinkStream::Socket(socket), limit)
    }

    /// Makes a link that the loss of a path must not end; its connections are made by that name.
    pub(super) fn over_paths(
        peer: u32,
        communicator: u64,
        (stream, name): (ResumableStream, Arc<ClaimedName>),
        limit: usize,
    ) -> Self {
        Self::over(peer, communicator, LinkStream::Paths(Box::new(stream), name), limit)
    }

    /// Makes a link over memory.
    pub(super) fn over_memory(
        peer: u32,
        communicator: u64,
        stream: BoardStream,
        limit: usize,
    ) -> Self {
        Self::over(peer, communicator, LinkStream::Board(stream), limit)
    }

    fn over(peer: u32, communicator: u64, stream: LinkStream, limit: usize) -> Self {
        let is_near = stream.is_near();
        let mut channel = LinkChannel::new(stream, limit);
        channel.open(communicator);
        Self::on(peer, communicator, Arc::new(Mutex::new(channel)), is_near)
    }

    fn on(
        peer: u32,
        communicator: u64,
        channel: Arc<Mutex<LinkChannel>>,
        is_near: bool,
    ) -> PeerLink {
        PeerLink {
            peer,
            communicator,
            channel,
            process: OwnerProcess::here(),
            is_near,
            has_sent_goodbye: false,
            state: LinkState::Open,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Returns the end of another communicator, which calls the peer by another number, on the same link. None for a
    /// link over memory, which ends with the communicator that made it, and for one that has ended.
    pub(super) fn share(&self, peer: u32, communicator: u64) -> Option<PeerLink> {
        let is_there = !self.is_near && self.end().is_none();
        (is_there && self.channel().open(communicator))
            .then(|| Self::on(peer, communicator, self.channel.clone(), false))
    }

    fn channel(&self) -> MutexGuard<'_, LinkChannel> {
        self.channel.lock()
    }

    /// Returns the bytes of its buffers for encryption; none but for one of those that share them.
    pub(super) fn encryption_bytes(&self) -> u64 {
        let channel = self.channel();
        if channel.is_held_by(self.communicator) { channel.stream.encryption_bytes() } else { 0 }
    }

    /// Returns true if its descriptor counts here, of all that share it.
    pub(super) fn holds_descriptor(&self) -> bool {
        !self.is_near && self.channel().is_held_by(self.communicator)
    }

    /// Returns true if it goes over memory: whatever comes wakes this rank.
    pub(super) fn is_near(&self) -> bool {
        self.is_near
    }

    /// Returns the descriptor to sleep on.
    pub(super) fn fd(&self) -> Option<Arc<OwnedFd>> {
        self.channel().stream.fd()
    }

    /// Looks after the stream; returns true if it must be polled whatever the state of its descriptor.
    pub(super) fn tend(&mut self) -> bool {
        let mut channel = self.channel();
        channel.tend() || channel.has_news(self.communicator, self.end().is_none())
    }

    /// Returns true if another communicator has read something for this one, or bytes have come over memory.
    pub(super) fn has_come(&self) -> bool {
        self.is_near || self.channel().has_news(self.communicator, self.end().is_none())
    }

    /// Returns true if bytes have come over memory, or there is room for bytes that wait to be sent.
    pub(super) fn is_moving(&self) -> bool {
        self.is_near && self.channel().is_moving()
    }

    /// Describes how the link ended, if it did.
    pub(super) fn end(&self) -> Option<&str> {
        match &self.state {
            LinkState::Open => None,
            LinkState::Ended(how) => Some(how),
        }
    }

    /// Returns true if bytes wait to be sent.
    pub(super) fn is_full(&self) -> bool {
        self.end().is_none() && self.channel().is_full()
    }

    fn finish(&mut self, how: String) {
        if self.end().is_none() {
            self.state = LinkState::Ended(how);
        }
    }

    /// Sends a frame now, or as soon as there is room.
    pub(super) fn send(&mut self, frame: &LinkFrame) {
        let content = frame.encode();
        self.channel().push(self.communicator, &content);
        self.bytes_out += (FRAME_HEADER + content.len()) as u64;
        self.has_sent_goodbye |= *frame == LinkFrame::Left;
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self) {
        self.channel().flush();
    }

    /// Reads what is there, and returns the frames of this communicator.
    pub(super) fn receive(&mut self) -> Vec<LinkFrame> {
        if self.end().is_some() {
            return Vec::new();
        }
        let (frames, bytes, end) = self.channel().receive(self.communicator);
        self.bytes_in += bytes;
        end.into_iter().for_each(|how| self.finish(how));
        frames
    }

    /// Ends the link because the peer does not keep to the protocol.
    pub(super) fn refuse(&mut self) {
        self.finish("it sent a message out of turn".into());
    }

    /// Returns true if the peer sent a goodbye.
    pub(super) fn has_left(&self) -> bool {
        self.end() == Some(LEFT)
    }

    /// Ends sending, unless others share the link. The peer can still read what was sent.
    pub(super) fn shut(&mut self) {
        let channel = self.channel();
        if channel.is_alone(self.communicator) {
            channel.stream.shut();
        }
    }
}

impl Drop for PeerLink {
    fn drop(&mut self) {
        if self.process.is_here() {
            self.channel().close(self.communicator, self.has_sent_goodbye);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::link_frame::frame_header;
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// The communicator of the tests.
    const OWN: u64 = 7;

    /// Returns the bytes before a content of that length.
    fn header(length: u32) -> Vec<u8> {
        frame_header(OWN, length as usize).into()
    }

    fn pair() -> (PeerLink, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let far = TcpStream::connect(listener.local_addr().expect("its address")).expect("reached");
        let (near, _) = listener.accept().expect("accepted");
        near.set_nonblocking(true).expect("non-blocking");
        (PeerLink::new(1, OWN, near.into(), 1 << 20), far)
    }

    /// Receives until there are frames or the link ends.
    fn receive(link: &mut PeerLink) -> Vec<LinkFrame> {
        let start = std::time::Instant::now();
        loop {
            let frames = link.receive();
            if !frames.is_empty() || link.end().is_some() {
                return frames;
            }
            assert!(start.elapsed().as_secs() < 20, "nothing came");
            std::thread::yield_now();
        }
    }

    #[test]
    fn frames_arrive_whole_and_in_order() {
        let (mut a, far) = pair();
        far.set_nonblocking(true).expect("non-blocking");
        let mut b = PeerLink::new(0, OWN, far.into(), 64 << 20);
        let large = LinkFrame::Endpoints(3, vec![vec![7; 100_000]; 100]);
        let words = LinkFrame::Words { round: u64::MAX, step: 3, words: vec![(1, u64::MAX); 9] };
        a.send(&words);
        a.send(&large);
        a.send(&LinkFrame::Left);
        let mut got = Vec::new();
        while b.end().is_none() {
            a.flush();
            got.extend(b.receive());
        }
        assert_eq!(got, [words, large]);
        assert!(b.has_left());
        assert_eq!((a.is_full(), a.bytes_out), (false, b.bytes_in));
    }

    #[test]
    fn an_end_has_its_cause() {
        let (mut link, mut far) = pair();
        far.write_all(&[5, 0, 0]).expect("sent");
        drop(far);
        assert_eq!(receive(&mut link), []);
        assert_eq!(link.end(), Some("it closed its connection"));

        let (mut link, mut far) = pair();
        far.write_all(&u32::MAX.to_le_bytes()).expect("sent");
        assert_eq!(receive(&mut link), []);
        assert_eq!(link.end(), Some("it sent a message that is too long"));

        let (mut link, mut far) = pair();
        far.write_all(&[&header(2)[..], &[77, 77]].concat()).expect("sent");
        assert_eq!(receive(&mut link), []);
        assert_eq!(link.end(), Some("it sent a message that makes no sense"));

        // Closing with something unread resets the connection.
        let (mut link, far) = pair();
        link.send(&LinkFrame::Gone(1, "x".into()));
        let mut byte = [0];
        assert_eq!(far.peek(&mut byte).expect("arrived"), 1);
        drop(far);
        assert_eq!(receive(&mut link), []);
        assert_eq!(link.end(), Some("its connection was reset"));
    }

    #[test]
    fn frames_sent_before_a_reset_are_received() {
        let (mut link, far) = pair();
        link.send(&LinkFrame::Gone(1, "unread".into()));
        let mut byte = [0];
        assert_eq!(far.peek(&mut byte).expect("arrived"), 1);
        let mut far = PeerLink::new(0, OWN, far.into(), 100);
        far.send(&LinkFrame::Gone(4, "it crashed".into()));
        far.send(&LinkFrame::Left);
        drop(far);
        link.send(&LinkFrame::Left);
        assert_eq!(receive(&mut link), [LinkFrame::Gone(4, "it crashed".into())]);
        while link.end().is_none() {
            assert_eq!(receive(&mut link), []);
        }
        assert!(link.has_left());
    }

    /// Returns both ends of a link of a communicator.
    fn ends() -> (PeerLink, PeerLink) {
        let (near, far) = pair();
        far.set_nonblocking(true).expect("non-blocking");
        (near, PeerLink::new(0, OWN, far.into(), 1 << 20))
    }

    #[test]
    fn communicators_share_a_link_and_nothing_else() {
        let (mut one, mut two) = ends();
        let mut part = one.share(0, 9).expect("open");
        part.send(&LinkFrame::Gone(9, "of the part".into()));
        one.send(&LinkFrame::Gone(7, "of the whole".into()));
        // The other end of the part comes later, and what came before is left to it.
        assert_eq!(receive(&mut two), [LinkFrame::Gone(7, "of the whole".into())]);
        let mut far_part = two.share(1, 9).expect("open");
        assert!(far_part.has_come() && far_part.tend() && !two.has_come());
        assert_eq!(far_part.receive(), [LinkFrame::Gone(9, "of the part".into())]);
        assert!(!far_part.has_come());
        // Whichever is used once is used once.
        assert!(two.share(1, 9).is_none() && two.share(1, OWN).is_none());
        // One descriptor counts once.
        assert_eq!([&two, &far_part].map(PeerLink::holds_descriptor), [true, false]);

        // The whole leaves, and the part goes on.
        one.send(&LinkFrame::Left);
        one.shut();
        drop(one);
        assert_eq!(receive(&mut two), []);
        assert!(two.has_left());
        drop(two);
        assert!(far_part.holds_descriptor());
        for round in 0..3 {
            let frame = LinkFrame::Gone(round, "still".into());
            far_part.send(&frame);
            assert_eq!(receive(&mut part), [frame]);
        }
        // The last one that leaves closes the connection.
        far_part.send(&LinkFrame::Left);
        far_part.shut();
        drop(far_part);
        assert_eq!(receive(&mut part), []);
        assert!(part.has_left());
    }

    #[test]
    fn a_part_that_ends_without_a_goodbye_ends_alone() {
        let (mut one, mut two) = ends();
        let (part, mut far_part) = (one.share(0, 9), two.share(1, 9).expect("open"));
        drop(part);
        assert_eq!(receive(&mut far_part), []);
        assert_eq!(far_part.end(), Some("it closed its connection"));
        drop(far_part);
        one.send(&LinkFrame::Call { call: 1, digest: 2 });
        assert_eq!(receive(&mut two), [LinkFrame::Call { call: 1, digest: 2 }]);
        // Nothing of a part stays behind, on either side.
        two.send(&LinkFrame::Call { call: 2, digest: 2 });
        assert_eq!(receive(&mut one), [LinkFrame::Call { call: 2, digest: 2 }]);
        assert_eq!([&one, &two].map(|link| link.channel().uses()), [1, 1]);
    }

    #[test]
    fn the_end_of_the_connection_ends_all_that_share_it() {
        let (mut link, mut far) = pair();
        let mut part = link.share(0, 9).expect("open");
        far.write_all(&[9; 40]).expect("sent");
        assert_eq!(receive(&mut part), []);
        assert_eq!(link.receive(), []);
        for end in [link.end(), part.end()] {
            assert_eq!(end, Some("it sent a message that is too long"));
        }
        assert!(link.share(0, 10).is_none());
    }

    #[test]
    fn what_comes_for_unknown_communicators_is_bounded() {
        let (mut link, mut far) = pair();
        let content = LinkFrame::Gone(1, "x".repeat(1000)).encode();
        for communicator in 100..100 + (1 << 20) / 1000 + 1 {
            let header = frame_header(communicator, content.len());
            far.write_all(&[&header[..], &content].concat()).expect("sent");
            assert_eq!(link.receive(), []);
        }
        assert_eq!(receive(&mut link), []);
        let end = link.end().expect("an end");
        assert!(end.contains("communicators that this rank does not have"), "{end}");
    }
}
