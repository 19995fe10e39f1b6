//! The connection ends that a rank has opened, by number, over memory or a stream of bytes.
//!
//! Both kinds of connection offer the same to the executor: whether a message may go, where its content is
//! written, the handing over; whether a message is there, where its content lies, the taking back.
//! They differ in what happens to content that may stay where it is. A mapped connection makes a *rendezvous*: the
//! receiver reads it there. A posted link writes it to its stream from there. Both ways the memory
//! must not change until the message is consumed: by the receiver, or by the stream.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::group::RankGroup;
use crate::net::{ConnectionId, WaitPolicy};
use crate::transport::fault::ConnectionFault;
use crate::transport::mapped::{MappedReceiver, MappedSender};
use crate::transport::message::{ArrivedMessage, ContentKind, IoVec};
use crate::transport::posted::{PostedReceiver, PostedSender};
use crate::transport::shm;
use crate::transport::stream::{self, StreamConnection};
use crate::tunables::{BLIND_SLEEP_MAX, SOCKET_SLEEP_MAX};
use roundelay_support::error::Error;

/// The sending end of a connection.
pub enum EndpointSender<M = shm::SlotSender, P = stream::StreamSender> {
    /// Load and store in memory that the peer maps too.
    Mapped(M),
    /// Messages that are posted.
    Posted(P),
}

/// The receiving end of a connection.
pub enum EndpointReceiver<M = shm::SlotReceiver, P = stream::StreamReceiver> {
    /// See [`EndpointSender`].
    Mapped(M),
    /// See [`EndpointSender`].
    Posted(P),
}

impl<M: MappedSender, P: PostedSender> EndpointSender<M, P> {
    /// Returns the number of messages sent since the connection was opened.
    #[inline]
    pub fn sent(&self) -> u64 {
        match self {
            EndpointSender::Mapped(s) => s.sent(),
            EndpointSender::Posted(s) => s.sent(),
        }
    }

    /// Returns one more than the last message whose content stayed where it was.
    #[inline]
    pub fn zero_copied(&self) -> u64 {
        match self {
            EndpointSender::Mapped(s) => s.zero_copied(),
            EndpointSender::Posted(s) => s.zero_copied(),
        }
    }

    /// Returns true if the content of all messages up to this one is no longer read.
    #[inline]
    pub fn is_consumed(&mut self, message: u64) -> bool {
        match self {
            EndpointSender::Mapped(s) => s.is_free(message),
            EndpointSender::Posted(s) => s.is_consumed(message),
        }
    }

    /// Returns true if a message may go, under a plan with `slots` slots.
    #[inline]
    pub fn has_room(&mut self, kind: ContentKind, slots: u64) -> bool {
        match (self, kind) {
            (EndpointSender::Mapped(s), ContentKind::Slot) => s.has_slot(slots),
            (
                EndpointSender::Mapped(s),
                ContentKind::Inline | ContentKind::ZeroCopy | ContentKind::Cma,
            ) => s.has_header(),
            (EndpointSender::Posted(s), _) => s.has_room(slots),
        }
    }

    /// Returns the address to which the content of the next message is to be written, after
    /// [`Self::has_room`].
    #[inline]
    pub fn place(&mut self, kind: ContentKind, slots: u64, len: usize) -> Result<*mut u8, Error> {
        match self {
            EndpointSender::Mapped(s) if kind == ContentKind::Inline => Ok(s.inline()),
            EndpointSender::Mapped(s) => s.slot(slots, len as u64),
            EndpointSender::Posted(s) => Ok(s.stage(slots, len)),
        }
    }

    /// Hands the next message over, its content being written.
    #[inline]
    pub fn post(&mut self, meta: u64, len: usize) {
        match self {
            EndpointSender::Mapped(s) => s.post(meta),
            EndpointSender::Posted(s) => s.post(meta, len),
        }
    }

    /// Hands the next message over as [`Self::post`] does; a socket may have it only with the next one, or with a
    /// flush.
    #[inline]
    pub fn post_later(&mut self, meta: u64, len: usize) {
        match self {
            EndpointSender::Mapped(s) => s.post(meta),
            EndpointSender::Posted(s) => s.post_later(meta, len),
        }
    }

    /// Hands the next message over, of `len` bytes, its content staying where it is: for a mapped link at an offset
    /// of the heap, or in memory of this process, for a posted one in these pieces.
    #[inline]
    pub fn rendezvous(
        &mut self,
        kind: ContentKind,
        (meta, len): (u64, usize),
        base: u64,
        pieces: impl Iterator<Item = IoVec>,
    ) {
        match self {
            EndpointSender::Mapped(s) if kind == ContentKind::ZeroCopy => s.post_pull(meta, base),
            // SAFETY: the pieces are places of a plan, which `bind` checked against buffers that
            // the call holds. It does not end, nor does the plan write there, before the message
            // is consumed; a call that fails closes the connection's use for good.
            EndpointSender::Mapped(s) => unsafe { s.post_private(meta, base, len, pieces) },
            // SAFETY: as above.
            EndpointSender::Posted(s) => unsafe { s.post_from(meta, pieces) },
        }
    }

    /// Returns true if the peer would take this process's own memory without slots.
    #[inline]
    pub fn would_read(&self) -> bool {
        matches!(self, EndpointSender::Mapped(s) if s.would_read())
    }

    /// Returns true if the peer takes this process's own memory without slots.
    #[inline]
    pub fn reads(&self) -> bool {
        matches!(self, EndpointSender::Mapped(s) if s.reads())
    }

    /// Sends on what peers take bit by bit; returns true if bytes moved.
    #[inline]
    pub fn push(&mut self) -> bool {
        match self {
            EndpointSender::Mapped(s) => s.push(),
            EndpointSender::Posted(_) => false,
        }
    }

    /// Learns how the peer wishes to have this process's own memory.
    #[inline]
    pub fn learn(&mut self) {
        if let EndpointSender::Mapped(s) = self {
            s.learn();
        }
    }

    /// Returns true if a socket has yet to take something that was posted.
    pub fn has_backlog(&self) -> bool {
        matches!(self, EndpointSender::Posted(s) if s.has_backlog())
    }

    /// Returns true if this end has nothing left to do; does it as far as it can be done now.
    #[inline]
    pub fn flush(&mut self) -> bool {
        match self {
            EndpointSender::Mapped(_) => true,
            EndpointSender::Posted(s) => s.flush(),
        }
    }
}

impl<M: MappedReceiver, P: PostedReceiver> EndpointReceiver<M, P> {
    /// Returns true if the message is there that follows the next `ahead` ones; a plan says that it has `len`
    /// bytes.
    #[inline]
    pub fn is_ready(&mut self, ahead: u64, len: usize) -> bool {
        match self {
            EndpointReceiver::Mapped(r) => r.is_ready(ahead, len),
            EndpointReceiver::Posted(r) => r.is_ready(ahead, len),
        }
    }

    /// Returns true if the next message, of which a plan says `meta`, goes to its destination bit by bit;
    /// `None` while that is not known. A socket can only bring it there if it is `alone`, not folded with
    /// something else.
    #[inline]
    pub fn lands(&self, meta: u64, alone: bool) -> Option<bool> {
        match self {
            EndpointReceiver::Mapped(r) => r.lands(meta),
            EndpointReceiver::Posted(_) => Some(alone),
        }
    }

    /// Returns true if the next message has gone to its destination.
    #[inline]
    pub fn has_landed(&self, alone: bool) -> bool {
        match self {
            EndpointReceiver::Mapped(r) => r.has_landed(),
            EndpointReceiver::Posted(_) => alone,
        }
    }

    /// Returns the message that follows the next `ahead` ones, after [`Self::is_ready`] returned true.
    #[inline]
    pub fn message(&self, slots: u64, ahead: u64) -> ArrivedMessage {
        match self {
            EndpointReceiver::Mapped(r) => r.message(slots, ahead),
            EndpointReceiver::Posted(r) => r.message(ahead),
        }
    }

    /// Returns the number of messages consumed since the connection was opened.
    pub fn received(&self) -> u64 {
        match self {
            EndpointReceiver::Mapped(r) => r.received(),
            EndpointReceiver::Posted(r) => r.received(),
        }
    }

    /// Returns the peer's process, if its own memory can be read.
    pub fn reach(&self) -> Option<i32> {
        match self {
            EndpointReceiver::Mapped(r) => r.reach(),
            EndpointReceiver::Posted(_) => None,
        }
    }

    /// Records that the peer's own memory can no longer be read.
    pub fn lose_reach(&mut self) {
        if let EndpointReceiver::Mapped(r) = self {
            r.lose_reach();
        }
    }

    /// Returns the position up to which this process took what came through memory bit by bit, since the
    /// connection was opened.
    #[inline]
    pub fn taken(&self) -> u64 {
        match self {
            EndpointReceiver::Mapped(r) => r.taken(),
            EndpointReceiver::Posted(_) => 0,
        }
    }

    /// Releases the message's content, which is no longer needed.
    #[inline]
    pub fn consume(&mut self) {
        match self {
            EndpointReceiver::Mapped(r) => r.consume(),
            EndpointReceiver::Posted(r) => r.consume(),
        }
    }
}

/// Returns the connection without its path if the ranks share memory, which is the same on every path.
fn shared(group: &RankGroup, connection: ConnectionId) -> ConnectionId {
    match group.local(connection.peer) {
        Some(_) => ConnectionId { path: 0, ..connection },
        None => connection,
    }
}

/// A sending end that the plan uses.
#[derive(Debug, Clone, Copy)]
pub struct SendEnd {
    /// The number of the sender among the senders.
    pub sender: u32,
    /// The rank that receives.
    pub peer: u32,
    /// The channel of the connection.
    pub channel: u16,
    /// The path between hosts.
    pub path: u16,
    /// Messages a pass.
    pub messages: u64,
    /// True if the link is posted.
    pub posted: bool,
}

/// A receiving end that the plan uses.
#[derive(Debug, Clone, Copy)]
pub struct RecvEnd {
    /// The number of the receiver among the receivers.
    pub receiver: u32,
    /// The rank that sends.
    pub peer: u32,
    /// The channel of the connection.
    pub channel: u16,
    /// The path between hosts.
    pub path: u16,
    /// True if the link is posted.
    pub posted: bool,
}

/// The descriptors that show that there is something to be moved. Nothing needs to be held while it is waited for.
pub struct SocketSleep {
    awaited: Vec<(Arc<OwnedFd>, PollFlags)>,
    unseen: bool,
}

impl SocketSleep {
    /// Returns true if whatever comes is seen on a socket.
    pub fn is_seen(&self) -> bool {
        !self.unseen && !self.awaited.is_empty()
    }

    /// Returns true if nothing is seen on any socket.
    pub fn is_blind(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Sleeps until a socket has something, or another descriptor, for so long at the most.
    pub fn sleep(&self, other: Option<BorrowedFd<'_>>, most: Duration) {
        let mut fds: Vec<_> =
            self.awaited.iter().map(|(fd, flags)| PollFd::new(&**fd, *flags)).collect();
        fds.extend(other.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let moment = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos()) };
        // All is polled again in any case.
        let _ = rustix::event::poll(&mut fds, Some(&moment));
    }
}

/// All open ends of one rank. Endpoints stay open: messages are numbered over the whole job.
#[derive(Default)]
pub struct EndpointTable {
    /// The sending ends, by number.
    pub senders: Vec<EndpointSender>,
    /// The receiving ends, by number.
    pub receivers: Vec<EndpointReceiver>,
    to: Vec<ConnectionId>,
    from: Vec<ConnectionId>,
    connections: Vec<(ConnectionId, Arc<StreamConnection>)>,
}

impl EndpointTable {
    /// Connects to peers that do not share memory with this rank, where that was not done before.
    /// They do the same at the same time.
    pub fn connect(
        &mut self,
        group: &mut RankGroup,
        wanted: impl Iterator<Item = ConnectionId>,
        deadline: WaitPolicy<'_>,
    ) -> Result<(), Error> {
        let mut missing: Vec<ConnectionId> = wanted
            .filter(|connection| group.local(connection.peer).is_none())
            .filter(|to| self.connections.iter().all(|(known, _)| known != to))
            .collect();
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() {
            return Ok(());
        }
        let connections = group.connect(&missing, deadline)?;
        self.connections.extend(missing.into_iter().zip(connections));
        Ok(())
    }

    /// Returns the messages that were sent and those that were consumed, over all connections, after what waits to be
    /// sent was sent as far as possible.
    pub fn traffic(&mut self) -> (u64, u64) {
        let sent = self.senders.iter_mut().map(|sender| {
            let _ = (sender.push(), sender.flush());
            sender.sent()
        });
        (sent.sum(), self.receivers.iter().map(EndpointReceiver::received).sum())
    }

    /// Drops all ends, over which nothing is under way, with the memory that they keep. Connections stay, unless they
    /// are to be `closed`: then they are returned, for the peers must drop their ends before.
    pub fn release(&mut self, closed: bool) -> Vec<Arc<StreamConnection>> {
        let kept = std::mem::take(self).connections;
        if closed {
            return kept.into_iter().map(|(_, connection)| connection).collect();
        }
        kept.iter().for_each(|(_, connection)| connection.release_buffers());
        self.connections = kept;
        Vec::new()
    }

    /// Takes a connection that was made elsewhere.
    pub fn add(&mut self, to: ConnectionId, connection: Arc<StreamConnection>) {
        self.connections.push((to, connection));
    }

    /// Returns the number of the end that sends to a peer, which is connected.
    pub fn sender(&mut self, group: &RankGroup, to: ConnectionId) -> Result<u32, Error> {
        let to = shared(group, to);
        if let Some(at) = self.to.iter().position(|&known| known == to) {
            return Ok(at as u32);
        }
        let sender = match (group.local(to.peer), group.local(group.rank())) {
            (Some(peer), Some(own)) => {
                let channel = to.channel.into();
                let s = shm::SlotSender::open(group.control(), own.control, peer.control, channel)?;
                EndpointSender::Mapped(s)
            }
            _ => EndpointSender::Posted(stream::StreamSender::new(self.connection(to)?)),
        };
        self.senders.push(sender);
        self.to.push(to);
        Ok(self.senders.len() as u32 - 1)
    }

    /// Returns the number of the end that receives from a peer, which is connected.
    pub fn receiver(&mut self, group: &RankGroup, from: ConnectionId) -> Result<u32, Error> {
        let from = shared(group, from);
        if let Some(at) = self.from.iter().position(|&known| known == from) {
            return Ok(at as u32);
        }
        let receiver = match (group.local(from.peer), group.local(group.rank())) {
            (Some(peer), Some(own)) => {
                let channel = from.channel.into();
                let r =
                    shm::SlotReceiver::open(group.control(), peer.control, own.control, channel)?;
                EndpointReceiver::Mapped(r)
            }
            _ => EndpointReceiver::Posted(stream::StreamReceiver::new(self.connection(from)?)),
        };
        self.receivers.push(receiver);
        self.from.push(from);
        Ok(self.receivers.len() as u32 - 1)
    }

    fn connection(&self, to: ConnectionId) -> Result<Arc<StreamConnection>, Error> {
        let found = self.connections.iter().find(|(known, _)| *known == to);
        found.map(|(_, connection)| connection.clone()).ok_or_else(|| {
            Error::Plan(format!("it uses a connection to rank {} that was not announced", to.peer))
        })
    }

    /// Finds out whose own memory can be read. All ranks have joined.
    pub fn try_reach(&mut self) {
        for receiver in &mut self.receivers {
            if let EndpointReceiver::Mapped(r) = receiver {
                r.try_reach();
            }
        }
    }

    /// Returns the bytes that the posted links of a plan have moved, ever.
    pub fn moved(&self, (sends, froms): (&[SendEnd], &[RecvEnd])) -> u64 {
        let sent = sends.iter().map(|send| match &self.senders[send.sender as usize] {
            EndpointSender::Posted(s) => s.bytes(),
            EndpointSender::Mapped(_) => 0,
        });
        let received = froms.iter().map(|from| match &self.receivers[from.receiver as usize] {
            EndpointReceiver::Posted(r) => r.bytes(),
            EndpointReceiver::Mapped(_) => 0,
        });
        sent.chain(received).sum()
    }

    /// Fills `moved` with the bytes that the posted links of a plan have sent and received over each path, ever.
    pub fn moved_over(&self, (sends, froms): (&[SendEnd], &[RecvEnd]), moved: &mut [(u64, u64)]) {
        moved.fill((0, 0));
        for send in sends {
            if let EndpointSender::Posted(s) = &self.senders[send.sender as usize]
                && let Some(path) = moved.get_mut(usize::from(send.path))
            {
                path.0 += s.bytes();
            }
        }
        for from in froms {
            if let EndpointReceiver::Posted(r) = &self.receivers[from.receiver as usize]
                && let Some(path) = moved.get_mut(usize::from(from.path))
            {
                path.1 += r.bytes();
            }
        }
    }

    /// Sleeps until a socket of a plan has something, for a millisecond at the most; for a twentieth of one
    /// where something may come that is seen on no socket.
    pub fn doze(&self, ends: (&[SendEnd], &[RecvEnd])) {
        let dozing = self.dozing(ends);
        dozing.sleep(None, if dozing.is_seen() { SOCKET_SLEEP_MAX } else { BLIND_SLEEP_MAX });
    }

    /// Returns what shows that a socket of a plan has something.
    pub fn dozing(&self, (sends, froms): (&[SendEnd], &[RecvEnd])) -> SocketSleep {
        let (mut awaited, mut unseen) = (Vec::new(), false);
        for from in froms {
            let EndpointReceiver::Posted(r) = &self.receivers[from.receiver as usize] else {
                unseen = true;
                continue;
            };
            let (fd, always) = r.wakes();
            unseen |= !always;
            awaited.extend(fd.map(|fd| (fd, PollFlags::IN)));
        }
        for send in sends {
            match &self.senders[send.sender as usize] {
                EndpointSender::Posted(s) if s.has_backlog() => {
                    let (fd, always) = s.wakes();
                    unseen |= !always;
                    awaited.extend(fd.map(|fd| (fd, PollFlags::OUT)));
                }
                _ => {}
            }
        }
        SocketSleep { awaited, unseen }
    }

    /// Takes back the memory of a call that has failed: no device reads or writes it any more.
    #[cold]
    pub fn cut(&self) {
        self.connections.iter().for_each(|(_, connection)| connection.cut());
    }

    /// Returns the bytes of memory that devices keep in place for messages on their way.
    pub fn pinned(&self) -> u64 {
        self.connections.iter().map(|(_, connection)| connection.pinned()).sum()
    }

    /// Returns the bytes of the buffers with which connections are encrypted.
    pub fn encryption_bytes(&self) -> u64 {
        self.connections.iter().map(|(_, connection)| connection.encryption_bytes()).sum()
    }

    /// Returns the number of connections over memory, one for each direction that is in use.
    pub fn mapped(&self) -> u64 {
        let senders = self.senders.iter().filter(|s| matches!(s, EndpointSender::Mapped(_)));
        let receivers = self.receivers.iter().filter(|r| matches!(r, EndpointReceiver::Mapped(_)));
        (senders.count() + receivers.count()) as u64
    }

    /// Looks after all connections, whatever the call at hand needs: a peer may still need something of an
    /// earlier one.
    pub fn tend(&self) {
        self.connections.iter().for_each(|(_, connection)| connection.tend());
    }

    /// Returns the number of posted connections; each is one descriptor, for both directions.
    pub fn posted(&self) -> u64 {
        self.connections.len() as u64
    }

    /// Returns the bytes of this process's memory that are kept for messages on their way.
    pub fn kept(&self) -> u64 {
        let sent = self.senders.iter().map(|sender| match sender {
            EndpointSender::Mapped(_) => 0,
            EndpointSender::Posted(s) => s.kept(),
        });
        let received = self.receivers.iter().map(|receiver| match receiver {
            EndpointReceiver::Mapped(r) => r.kept(),
            EndpointReceiver::Posted(r) => r.kept(),
        });
        let streams =
            self.connections.iter().filter_map(|(_, connection)| Some(connection.stream()?.kept()));
        sent.chain(received).chain(streams).sum()
    }

    /// Returns a peer that will never have what a plan has sent to it, and the reason.
    pub fn lost(&self, sends: &[SendEnd]) -> Option<(u32, ConnectionFault)> {
        sends.iter().find_map(|send| match &self.senders[send.sender as usize] {
            EndpointSender::Posted(s) => Some((send.peer, s.lost()?)),
            EndpointSender::Mapped(_) => None,
        })
    }

    /// Returns a fault of the connections to a peer, if there is one.
    pub fn fault(&self, peer: u32) -> Option<ConnectionFault> {
        let mut connections = self.connections.iter().filter(|(to, _)| to.peer == peer);
        connections.find_map(|(_, connection)| connection.fault().cloned())
    }
}
