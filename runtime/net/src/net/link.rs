//! A control link between two ranks: frames, each a length and its content, sent and received without waiting.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::transport::shm::BoardStream;
use crate::transport::stream::ResumableStream;
use roundelay_tls::PeerSocket;

/// A message between linked ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LinkFrame {
    /// A step of gathering endpoints, each as its bytes.
    Endpoints(u32, Vec<Vec<u8>>),
    /// A step of a round of words: each rank's tag and word.
    Words { round: u64, step: u32, words: Vec<(u32, u64)> },
    /// All ranks stop: the code, the rank and the text of the cause.
    Alarm(String, u32, String),
    /// A rank is gone, and how.
    Gone(u32, String),
    /// The wait of a rank, if it waits, the number of its report, and true if it asks others.
    Wait { rank: u32, number: u32, words: Option<[u64; 8]>, asks: bool },
    /// The sender leaves; nothing follows.
    Left,
    /// A rank has ended for certain, as a rank of its machine saw, and how.
    Ended(u32, String),
    /// The sender waits for words in a call: its number, and its digest with all calls before.
    Call { call: u64, digest: u32 },
    /// The process of a rank is stopped, as the witness, a rank of its machine, saw when it was asked; `number`
    /// counts the witness's reports.
    Stopped { rank: u32, witness: u32, number: u32 },
}

/// Bytes read at one time.
const CHUNK: usize = 16 << 10;

/// The medium that carries the bytes of a link.
enum LinkStream {
    Socket(PeerSocket),
    /// Memory that both ranks have shared before.
    Board(BoardStream),
    /// One connection after the other, over any of the paths.
    Paths(Box<ResumableStream>),
}

impl LinkStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            LinkStream::Socket(socket) => socket.receive(&mut [IoSliceMut::new(to)]),
            LinkStream::Board(stream) => stream.read(to),
            LinkStream::Paths(stream) => {
                let read = stream.read(&mut [IoSliceMut::new(to)]);
                Self::moved(stream, read)
            }
        }
    }

    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            LinkStream::Socket(socket) => socket.transmit(&[IoSlice::new(from)]),
            LinkStream::Board(stream) => stream.write(from),
            LinkStream::Paths(stream) => {
                let taken = stream.write(&[IoSlice::new(from)]);
                Self::moved(stream, taken)
            }
        }
    }

    fn moved(stream: &ResumableStream, bytes: usize) -> io::Result<usize> {
        match (bytes, stream.fault()) {
            (0, None) => Err(ErrorKind::WouldBlock.into()),
            (0, Some(why)) => Err(io::Error::other(why.clone())),
            (bytes, _) => Ok(bytes),
        }
    }
}

/// One end of a link.
pub(super) struct PeerLink {
    pub(super) peer: u32,
    stream: LinkStream,
    /// The bytes that came and are not understood yet, from `taken` on.
    inbox: Vec<u8>,
    taken: usize,
    /// The bytes that could not be sent yet, from `sent` on.
    outbox: Vec<u8>,
    sent: usize,
    limit: usize,
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
    /// Returns the bytes of its buffers for encryption.
    pub(super) fn encryption_bytes(&self) -> u64 {
        match &self.stream {
            LinkStream::Socket(socket) => socket.buffer_bytes(),
            LinkStream::Board(_) => 0,
            LinkStream::Paths(stream) => stream.encryption_bytes(),
        }
    }

    /// Makes a link. Frames longer than `limit` bytes break the protocol.
    pub(super) fn new(peer: u32, socket: PeerSocket, limit: usize) -> Self {
        Self::over(peer, LinkStream::Socket(socket), limit)
    }

    /// Makes a link that the loss of a path must not end.
    pub(super) fn over_paths(peer: u32, stream: ResumableStream, limit: usize) -> Self {
        Self::over(peer, LinkStream::Paths(Box::new(stream)), limit)
    }

    /// Makes a link over memory.
    pub(super) fn over_memory(peer: u32, stream: BoardStream, limit: usize) -> Self {
        Self::over(peer, LinkStream::Board(stream), limit)
    }

    fn over(peer: u32, stream: LinkStream, limit: usize) -> Self {
        PeerLink {
            peer,
            stream,
            inbox: Vec::new(),
            taken: 0,
            outbox: Vec::new(),
            sent: 0,
            limit,
            state: LinkState::Open,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Returns true if it goes over memory: whatever comes wakes this rank.
    pub(super) fn is_near(&self) -> bool {
        matches!(self.stream, LinkStream::Board(_))
    }

    /// Returns the descriptor to sleep on.
    pub(super) fn fd(&self) -> Option<Arc<OwnedFd>> {
        match &self.stream {
            LinkStream::Socket(socket) => Some(socket.fd().clone()),
            LinkStream::Board(_) => None,
            LinkStream::Paths(stream) => stream.fd(),
        }
    }

    /// Returns the stream, if it goes over several paths.
    pub(super) fn stream(&self) -> Option<&ResumableStream> {
        match &self.stream {
            LinkStream::Socket(_) | LinkStream::Board(_) => None,
            LinkStream::Paths(stream) => Some(stream),
        }
    }

    /// Looks after a stream over memory or several paths; returns true if it must be polled whatever the state
    /// of its descriptor.
    pub(super) fn tend(&mut self) -> bool {
        match &mut self.stream {
            LinkStream::Socket(socket) => socket.has_input(),
            LinkStream::Board(stream) => stream.is_silent() || self.is_moving(),
            LinkStream::Paths(stream) => {
                stream.tend();
                stream.is_moving() || stream.has_input() || stream.fault().is_some()
            }
        }
    }

    /// Returns true if bytes have come over memory, or there is room for bytes that wait to be sent.
    pub(super) fn is_moving(&self) -> bool {
        let LinkStream::Board(stream) = &self.stream else { return false };
        stream.has_news() || self.sent < self.outbox.len() && stream.has_room()
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
        let moves = self.stream().is_some_and(ResumableStream::is_moving);
        self.end().is_none() && (self.sent < self.outbox.len() || moves)
    }

    fn finish(&mut self, how: &str) {
        if self.end().is_none() {
            self.state = LinkState::Ended(how.into());
            self.outbox = Vec::new();
            self.sent = 0;
        }
    }

    /// Sends a frame now, or as soon as there is room.
    pub(super) fn send(&mut self, frame: &LinkFrame) {
        // A frame is plain data: encoding it into memory cannot fail.
        let content = postcard::to_stdvec(frame).unwrap_or_default();
        self.outbox.extend_from_slice(&(content.len() as u32).to_le_bytes());
        self.outbox.extend_from_slice(&content);
        self.flush();
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self) {
        while self.is_full() {
            match self.stream.write(&self.outbox[self.sent..]) {
                Ok(n) => {
                    self.sent += n;
                    self.bytes_out += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // The peer may have sent the reason before it closed: it is read next.
                    self.outbox.clear();
                    self.sent = 0;
                    return;
                }
            }
        }
        self.outbox.clear();
        self.sent = 0;
    }

    /// Reads what is there, as frames.
    pub(super) fn receive(&mut self) -> Vec<LinkFrame> {
        let mut frames = Vec::new();
        let mut buffer = [0; CHUNK];
        while self.end().is_none() {
            match self.stream.read(&mut buffer) {
                // What a rank has written to memory stays: one that writes no more has left.
                Ok(0) if self.is_near() => self.finish(LEFT),
                Ok(0) => self.finish("it closed its connection"),
                Ok(n) => {
                    self.bytes_in += n as u64;
                    self.inbox.extend_from_slice(&buffer[..n]);
                    self.decode_frames(&mut frames);
                    if n < buffer.len() {
                        break; // That was all.
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => self.finish(&match e.kind() {
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                        "its connection was reset".to_owned()
                    }
                    ErrorKind::TimedOut | ErrorKind::HostUnreachable => {
                        format!("its host does not answer ({e})")
                    }
                    ErrorKind::Other => e.to_string(),
                    _ => format!("its connection failed: {e}"),
                }),
            }
        }
        frames
    }

    fn decode_frames(&mut self, frames: &mut Vec<LinkFrame>) {
        while let Some((length, rest)) = self.inbox[self.taken..].split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > self.limit {
                return self.finish("it sent a message that is too long");
            }
            let Some(content) = rest.get(..length) else { break };
            match postcard::from_bytes(content) {
                Ok(LinkFrame::Left) => return self.finish(LEFT),
                Ok(frame) => frames.push(frame),
                Err(_) => return self.finish("it sent a message that makes no sense"),
            }
            self.taken += 4 + length;
        }
        self.inbox.drain(..self.taken);
        self.taken = 0;
    }

    /// Ends the link because the peer does not keep to the protocol.
    pub(super) fn refuse(&mut self) {
        self.finish("it sent a message out of turn");
    }

    /// Returns true if the peer sent a goodbye.
    pub(super) fn has_left(&self) -> bool {
        self.end() == Some(LEFT)
    }

    /// Ends sending. The peer can still read what was sent.
    pub(super) fn shut(&mut self) {
        // It may be closed already.
        match &self.stream {
            LinkStream::Socket(socket) => socket.shut(),
            // What was sent lies there, and the end of the board ends the stream.
            LinkStream::Board(_) => {}
            LinkStream::Paths(stream) => stream.shut(),
        }
    }
}

/// The end of a link whose peer sent a goodbye.
const LEFT: &str = "it left the job";

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (PeerLink, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let far = TcpStream::connect(listener.local_addr().expect("its address")).expect("reached");
        let (near, _) = listener.accept().expect("accepted");
        near.set_nonblocking(true).expect("non-blocking");
        (PeerLink::new(1, near.into(), 1 << 20), far)
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
        let mut b = PeerLink::new(0, far.into(), 64 << 20);
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
        far.write_all(&[2, 0, 0, 0, 77, 77]).expect("sent");
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
        let mut far = PeerLink::new(0, far.into(), 100);
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
}
