//! The frames that travel between two ranks, of all communicators that share a link.
//!
//! A frame names its communicator. Whichever communicator reads the stream leaves the frames of the others to them, so
//! that a rank which polls one of its communicators never needs another one's lock. A frame without content ends a
//! communicator's use of the link without a goodbye, as the end of its connection would.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use super::link_frame::{FRAME_HEADER, LinkFrame, frame_header};
use super::link_stream::LinkStream;

/// The end of a link whose peer sent a goodbye.
pub(super) const LEFT: &str = "it left the job";
/// The end of a link whose peer ended it, and said no more.
const CLOSED: &str = "it closed its connection";

/// Bytes read at one time.
const CHUNK: usize = 16 << 10;

/// The frames that came for one communicator, and have not been taken.
#[derive(Debug, Default)]
struct ReceivedFrames {
    frames: Vec<LinkFrame>,
    bytes: u64,
    /// The peer's end of it, in words, once there is one.
    end: Option<String>,
}

/// The use that one communicator makes of the link.
#[derive(Debug)]
enum LinkUse {
    /// The peer has begun to, and this rank not yet.
    Early(ReceivedFrames),
    /// This rank does.
    Open(ReceivedFrames),
    /// This rank has ended it, and the peer not yet.
    Ended,
}

/// The frames that travel between two ranks.
pub(super) struct LinkChannel {
    pub(super) stream: LinkStream,
    /// The bytes that came and are not understood yet, from `taken` on.
    inbox: Vec<u8>,
    taken: usize,
    /// The bytes that could not be sent yet, from `sent` on.
    outbox: Vec<u8>,
    sent: usize,
    /// The longest content, and the most bytes for communicators that this rank does not have yet.
    limit: usize,
    early_bytes: usize,
    /// The end of the stream, in words, once there is one.
    end: Option<String>,
    uses: BTreeMap<u64, LinkUse>,
    /// The communicator that has used it the longest.
    holder: Option<u64>,
}

impl LinkChannel {
    pub(super) fn new(stream: LinkStream, limit: usize) -> Self {
        LinkChannel {
            stream,
            inbox: Vec::new(),
            taken: 0,
            outbox: Vec::new(),
            sent: 0,
            limit,
            early_bytes: 0,
            end: None,
            uses: BTreeMap::new(),
            holder: None,
        }
    }

    /// Begins a communicator's use of it, whose number is used once; false if the stream has ended.
    pub(super) fn open(&mut self, communicator: u64) -> bool {
        if self.end.is_some() || matches!(self.uses.get(&communicator), Some(LinkUse::Open(_))) {
            return false;
        }
        let received = match self.uses.remove(&communicator) {
            Some(LinkUse::Early(received)) => {
                self.early_bytes -= received.bytes as usize;
                received
            }
            _ => ReceivedFrames::default(),
        };
        self.uses.insert(communicator, LinkUse::Open(received));
        self.holder.get_or_insert(communicator);
        true
    }

    /// Ends a communicator's use of it; `has_left` if it has sent its goodbye.
    pub(super) fn close(&mut self, communicator: u64, has_left: bool) {
        let Some(LinkUse::Open(received)) = self.uses.remove(&communicator) else { return };
        if self.holder == Some(communicator) {
            let mut open = self.uses.iter().filter(|(_, of)| matches!(of, LinkUse::Open(_)));
            self.holder = open.next().map(|(&communicator, _)| communicator);
        }
        if self.end.is_some() || self.holder.is_none() {
            return; // Its stream ends with it.
        }
        if !has_left {
            self.push(communicator, &[]);
        }
        if received.end.is_none() {
            self.uses.insert(communicator, LinkUse::Ended);
        }
    }

    /// Returns true for one of the communicators that use it: what they share counts there.
    pub(super) fn is_held_by(&self, communicator: u64) -> bool {
        self.holder == Some(communicator)
    }

    /// Returns true if no other communicator uses it.
    pub(super) fn is_alone(&self, communicator: u64) -> bool {
        let mut all = self.uses.iter();
        all.all(|(&of, link_use)| of == communicator || !matches!(link_use, LinkUse::Open(_)))
    }

    /// Looks after the stream; returns true if it must be polled whatever the state of its descriptor.
    pub(super) fn tend(&mut self) -> bool {
        self.stream.tend(self.sent < self.outbox.len())
    }

    /// Returns true if bytes have come over memory, or there is room for bytes that wait to be sent.
    pub(super) fn is_moving(&self) -> bool {
        self.stream.is_moving(self.sent < self.outbox.len())
    }

    /// Returns true if bytes wait to be sent.
    pub(super) fn is_full(&self) -> bool {
        self.end.is_none() && (self.sent < self.outbox.len() || self.stream.is_full())
    }

    /// Returns true if something came for a communicator that it has not taken, an end too if it knows of none.
    pub(super) fn has_news(&self, communicator: u64, is_open: bool) -> bool {
        let Some(LinkUse::Open(received)) = self.uses.get(&communicator) else { return false };
        !received.frames.is_empty() || is_open && received.end.is_some()
    }

    /// Sends a content now, or as soon as there is room.
    pub(super) fn push(&mut self, communicator: u64, content: &[u8]) {
        if self.end.is_none() {
            self.outbox.extend_from_slice(&frame_header(communicator, content.len()));
            self.outbox.extend_from_slice(content);
            self.flush();
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn flush(&mut self) {
        while self.is_full() {
            match self.stream.write(&self.outbox[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // The peer may have sent the reason before it closed: it is read next.
                Err(_) => break,
            }
        }
        self.outbox.clear();
        self.sent = 0;
    }

    /// Reads what is there, and takes what came for a communicator: frames, their bytes, and the end if there is one.
    pub(super) fn receive(&mut self, communicator: u64) -> (Vec<LinkFrame>, u64, Option<String>) {
        self.read();
        match self.uses.get_mut(&communicator) {
            Some(LinkUse::Open(received)) => {
                let bytes = std::mem::take(&mut received.bytes);
                (std::mem::take(&mut received.frames), bytes, received.end.clone())
            }
            _ => (Vec::new(), 0, self.end.clone()),
        }
    }

    fn read(&mut self) {
        let mut buffer = [0; CHUNK];
        while self.end.is_none() {
            match self.stream.read(&mut buffer) {
                // What a rank has written to memory stays: one that writes no more has left.
                Ok(0) if self.stream.is_near() => self.finish(LEFT),
                Ok(0) => self.finish(CLOSED),
                Ok(n) => {
                    self.inbox.extend_from_slice(&buffer[..n]);
                    self.decode_frames();
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
    }

    fn decode_frames(&mut self) {
        while let Some((length, rest)) = self.inbox[self.taken..].split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            if length > self.limit {
                return self.finish("it sent a message that is too long");
            }
            let Some((communicator, rest)) = rest.split_first_chunk::<8>() else { break };
            let communicator = u64::from_le_bytes(*communicator);
            let Some(content) = rest.get(..length) else { break };
            let frame = match content {
                [] => None,
                content => match postcard::from_bytes(content) {
                    Ok(frame) => Some(frame),
                    Err(_) => return self.finish("it sent a message that makes no sense"),
                },
            };
            let bytes = FRAME_HEADER + length;
            self.taken += bytes;
            self.deliver(communicator, frame, bytes);
        }
        self.inbox.drain(..self.taken);
        self.taken = 0;
    }

    /// Leaves a frame to its communicator; none ends it.
    fn deliver(&mut self, communicator: u64, frame: Option<LinkFrame>, bytes: usize) {
        let early = || LinkUse::Early(ReceivedFrames::default());
        let link_use = self.uses.entry(communicator).or_insert_with(early);
        let received = match link_use {
            LinkUse::Open(received) => received,
            LinkUse::Early(received) => {
                self.early_bytes += bytes;
                received
            }
            LinkUse::Ended => {
                if matches!(frame, None | Some(LinkFrame::Left)) {
                    self.uses.remove(&communicator);
                }
                return;
            }
        };
        if received.end.is_some() {
            return;
        }
        received.bytes += bytes as u64;
        match frame {
            None => received.end = Some(CLOSED.into()),
            Some(LinkFrame::Left) => received.end = Some(LEFT.into()),
            Some(frame) => received.frames.push(frame),
        }
        if self.early_bytes > self.limit {
            self.finish("it sent too much for communicators that this rank does not have");
        }
    }

    /// Ends the link for all communicators.
    fn finish(&mut self, how: &str) {
        self.end.get_or_insert_with(|| how.into());
        (self.outbox, self.sent) = (Vec::new(), 0);
        self.uses.retain(|_, link_use| match link_use {
            LinkUse::Open(received) => {
                received.end.get_or_insert_with(|| how.into());
                true
            }
            LinkUse::Early(_) | LinkUse::Ended => false,
        });
    }

    /// Returns the number of communicators of which something is kept.
    #[cfg(test)]
    pub(super) fn uses(&self) -> usize {
        self.uses.len()
    }
}
