//! The state of a rank's messages: connections, queues, operations that are pending, and how all of them end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::link::{ConnectionState, PeerLink};
use super::matching::{ReceiveSource, TagMatcher};
use super::operation::{DeliveredMessage, MessageOperation, OperationCompletion};
use super::packet::MessageShape;
use super::transfer::{MessageTransfer, TransferKind};
use crate::window::{ExposedPart, ServedPart};
use roundelay_net::endpoints::{EndpointTable, RecvEnd, SendEnd, SocketSleep};
use roundelay_net::group::RankGroup;
use roundelay_net::net::ConnectionId;
use roundelay_support::abort;
use roundelay_support::error::{Error, ErrorLocation};

/// A message that has come before its receive.
pub(super) enum UnexpectedMessage {
    Eager {
        shape: MessageShape,
        content: Vec<u8>,
    },
    Offer {
        shape: MessageShape,
        id: u64,
        address: u64,
    },
    /// A message of this rank to itself.
    Own(MessageTransfer),
}

/// A wait for a signal of a peer.
pub(super) struct SignalWait {
    pub(super) peer: u32,
    pub(super) exposed: Arc<ExposedPart>,
    /// The signals of each rank that were taken.
    pub(super) taken: Arc<[AtomicU64]>,
    pub(super) transfer: MessageTransfer,
}

/// The state of a rank's messages and windows.
pub(super) struct MessageEngine {
    pub(super) group: RankGroup,
    pub(super) endpoints: EndpointTable,
    pub(super) links: BTreeMap<u32, PeerLink>,
    pub(super) matching: TagMatcher<MessageTransfer, UnexpectedMessage>,
    /// The number of the last offer or request.
    pub(super) offers: u64,
    /// The number of operations that have not ended.
    pub(super) pending: usize,
    /// Operations that have ended, and whose waiters are still to be notified.
    pub(super) ended: Vec<OperationCompletion>,
    /// This rank's parts of windows that it serves to peers, by key.
    pub(super) served: BTreeMap<u64, Arc<ExposedPart>>,
    /// True if peers may request parts that this rank does not serve, or no longer serves.
    pub(super) serves_unasked: bool,
    /// The parts of windows that peers serve to this rank, by rank and key.
    pub(super) remotes: BTreeMap<(u32, u64), Arc<ServedPart>>,
    /// Waits for signals of peers.
    pub(super) signal_waits: Vec<SignalWait>,
    /// The time at which operations were last examined for timeouts.
    pub(super) examined_at: Instant,
    failed: Option<String>,
    /// True while the communicator is suspended, and messages are refused.
    pub(super) is_suspended: bool,
}

impl MessageEngine {
    pub(super) fn new(group: RankGroup) -> Self {
        MessageEngine {
            group,
            endpoints: EndpointTable::default(),
            links: BTreeMap::new(),
            matching: TagMatcher::new(),
            offers: 0,
            pending: 0,
            ended: Vec::new(),
            served: BTreeMap::new(),
            serves_unasked: false,
            remotes: BTreeMap::new(),
            signal_waits: Vec::new(),
            examined_at: Instant::now(),
            failed: None,
            is_suspended: false,
        }
    }

    /// Fails unless messages can be sent and received.
    pub(super) fn check_usable(&self) -> Result<(), Error> {
        match &self.failed {
            None => Ok(()),
            Some(cause) => Err(Error::Usage(format!(
                "this communicator cannot be used after an error ({cause}): start the job again"
            ))),
        }
    }

    /// Returns true if something may come through sockets.
    pub(super) fn has_sockets(&self) -> bool {
        let remote = |link: &PeerLink| {
            !matches!(link.wire, ConnectionState::Own | ConnectionState::Open { posted: false, .. })
        };
        self.links.values().any(remote)
    }

    /// Opens the connection to a rank, or starts to, unless it exists.
    pub(super) fn open(&mut self, peer: u32) -> Result<(), Error> {
        if self.links.contains_key(&peer) {
            return Ok(());
        }
        let wire = if peer == self.group.rank() {
            ConnectionState::Own
        } else if self.group.local(peer).is_some() {
            self.open_ends(peer, false)?
        } else {
            ConnectionState::Connecting(Box::new(
                self.group.begin_connection(self.connection(peer))?,
            ))
        };
        self.links.insert(peer, PeerLink::new(peer, wire));
        Ok(())
    }

    /// Returns the name of the connection to a rank.
    pub(super) fn connection(&self, peer: u32) -> ConnectionId {
        ConnectionId { peer, channel: self.group.layout().message_channel(), path: 0 }
    }

    /// Opens both ends of a connection; `posted` if it does not lead through shared memory.
    pub(super) fn open_ends(&mut self, peer: u32, posted: bool) -> Result<ConnectionState, Error> {
        let connection = self.connection(peer);
        let sender = self.endpoints.sender(&self.group, connection)?;
        let receiver = self.endpoints.receiver(&self.group, connection)?;
        self.endpoints.try_reach();
        Ok(ConnectionState::Open { sender, receiver, posted })
    }

    /// Completes the operation of a transfer; that of a delivered message with its sender.
    pub(super) fn end(&mut self, transfer: &MessageTransfer, source: Result<u32, Error>) {
        let MessageTransfer { operation, shape, tag, .. } = transfer;
        self.end_operation(operation, *shape, *tag, source);
    }

    pub(super) fn end_operation(
        &mut self,
        operation: &MessageOperation,
        shape: MessageShape,
        tag: u64,
        source: Result<u32, Error>,
    ) {
        let delivered = |source| DeliveredMessage { source, tag, bytes: shape.bytes };
        self.ended.push(operation.end(source.map(delivered)));
        self.pending = self.pending.saturating_sub(1);
    }

    /// Returns all transfers that have not ended, each with the other rank if it is known.
    pub(super) fn transfers(&self) -> impl Iterator<Item = (Option<u32>, &MessageTransfer)> {
        let of_link = |link| PeerLink::pending(link).map(|transfer| (Some(link.peer), transfer));
        let of_links = self.links.values().flat_map(of_link);
        let receives = self.matching.receives().map(|(from, receive)| match from {
            ReceiveSource::Rank(rank) => (Some(rank), receive),
            ReceiveSource::Any => (None, receive),
        });
        let own = self.matching.senders_and_messages().filter_map(|(from, early)| match early {
            UnexpectedMessage::Own(send) => Some((Some(from), send)),
            _ => None,
        });
        let signals =
            self.signal_waits.iter().map(|awaited| (Some(awaited.peer), &awaited.transfer));
        of_links.chain(receives).chain(own).chain(signals)
    }

    pub(super) fn location(&self, transfer: &MessageTransfer, peer: Option<u32>) -> ErrorLocation {
        let MessageTransfer { what, shape, tag, .. } = transfer;
        let whom = peer.map_or("any rank".into(), |peer| format!("rank {peer}"));
        let text = match what {
            TransferKind::Send => format!("send {shape} to {whom}, tag {tag}"),
            TransferKind::Receive => format!("receive {shape} from {whom}, tag {tag}"),
            TransferKind::Signal => format!("wait for a signal from {whom}"),
            what => format!("{} of {shape} at byte {tag} of the part of {whom}", what.name()),
        };
        let (rank, name) = (self.group.rank(), what.name().into());
        ErrorLocation { rank, name, step: 0, site: String::new(), text }
    }

    /// Returns the connections to sleep on until there is something to do; if the rank `rests`, those alone by which
    /// peers reach windows.
    pub(super) fn dozing(&self, rests: bool) -> SocketSleep {
        let (mut sends, mut froms) = (Vec::new(), Vec::new());
        let channel = self.group.layout().message_channel();
        for link in self.links.values() {
            let ConnectionState::Open { sender, receiver, posted } = link.wire else { continue };
            // A connection that has ended is ready for ever.
            if rests && (!link.has_windows || self.endpoints.fault(link.peer).is_some()) {
                continue;
            }
            let (peer, path) = (link.peer, 0);
            sends.push(SendEnd { sender, peer, channel, path, messages: 0, posted });
            froms.push(RecvEnd { receiver, peer, channel, path, posted });
        }
        self.endpoints.tend();
        self.endpoints.dozing((&sends, &froms))
    }

    /// Returns true if no connection is being established.
    pub(super) fn is_connected(&self) -> bool {
        !self.links.values().any(|link| matches!(link.wire, ConnectionState::Connecting(_)))
    }

    /// Returns true if every message has been passed to the peer, or at least to the system.
    pub(super) fn is_drained(&mut self) -> bool {
        self.is_moved(|_| false)
    }

    /// Returns true if there is nothing to send but writes that wait to be coalesced.
    pub(super) fn is_settled(&mut self) -> bool {
        self.is_moved(|link| link.has_coalesced)
    }

    fn is_moved(&mut self, may_stay: impl Fn(&PeerLink) -> bool) -> bool {
        let senders = &mut self.endpoints.senders;
        self.links.values().all(|link| {
            let flushed = match link.wire {
                ConnectionState::Open { sender, .. } => {
                    may_stay(link) || senders[sender as usize].flush()
                }
                ConnectionState::Connecting(_) | ConnectionState::Own => true,
            };
            flushed && link.is_flushed() && link.offered.is_empty()
        })
    }

    /// Returns true if no operation is pending, and there is nothing to send but writes that wait to be coalesced.
    pub(super) fn is_idle(&mut self) -> bool {
        self.pending == 0 && self.is_settled()
    }

    /// Returns true if a send has not ended.
    pub(super) fn has_sends(&self) -> bool {
        self.transfers().any(|(_, transfer)| transfer.what == TransferKind::Send)
    }

    /// Returns the time at which anything last moved on a connection.
    pub(super) fn last_moved(&self) -> Option<Instant> {
        self.links.values().map(|link| link.moved_at).max()
    }

    /// Ends all operations by an error, and aborts the job.
    #[cold]
    pub(super) fn fail(&mut self, error: Error) {
        self.group.abort(&abort::record(self.group.rank(), &error));
        // The operation that failed has its own error; where it has ended already, the others take this one.
        self.give_up(&error.clone(), move |_| error.clone());
    }

    /// Ends all operations, each by an error that `cause` makes.
    #[cold]
    pub(super) fn give_up(&mut self, first: &Error, cause: impl Fn(&RankGroup) -> Error) {
        self.endpoints.cut();
        self.failed.get_or_insert_with(|| first.to_string());
        let (receives, early) = self.matching.clear();
        let mut all: Vec<MessageTransfer> = receives.collect();
        all.extend(early.filter_map(|early| match early {
            UnexpectedMessage::Own(send) => Some(send),
            UnexpectedMessage::Eager { .. } | UnexpectedMessage::Offer { .. } => None,
        }));
        for (_, link) in std::mem::take(&mut self.links) {
            all.extend(link.transfers());
        }
        all.extend(
            std::mem::take(&mut self.signal_waits).into_iter().map(|awaited| awaited.transfer),
        );
        for transfer in all {
            let error = cause(&self.group);
            self.end(&transfer, Err(error));
        }
        self.pending = 0;
    }

    /// Ends all operations after an abort.
    pub(super) fn cancel(&mut self) {
        if self.check_usable().is_ok() {
            let error = self.group.aborted(None);
            self.give_up(&error, |group| group.aborted(None));
        }
    }

    /// Ends receives that can no longer be matched: the rank leaves.
    pub(super) fn close(&mut self) {
        let error = Error::Work("the communicator ended before this message came".into());
        self.give_up(&error.clone(), move |_| error.clone());
    }
}
