//! Failure detection of a proxy: lost connections and stalled calls.

use std::time::{Duration, Instant};

use roundelay_compiler::plan::MessageDirection;

use super::call::ProxyCall;
use super::flow::MessageFlow;
use super::pause::ProxyPause;
use super::thread::{EnteredCall, ProxyExit, ProxyThread};
use crate::tunables::{FAILURE_REASON_TIMEOUT, PROXY_CHECK_INTERVAL};
use roundelay_net::transport::fault::ConnectionFault;
use roundelay_support::error::{Error, ErrorLocation, ErrorSource};

impl ProxyThread {
    /// Fails if a connection is lost over which messages are still due, or if a call has stalled for which a kernel
    /// waits.
    pub(super) fn check(
        &self,
        work: Option<&EnteredCall>,
        pause: &ProxyPause,
    ) -> Result<(), ProxyExit> {
        for (at, stream) in self.streams.iter().enumerate() {
            let Some(fault) = stream.connection.fault() else { continue };
            if let Some(EnteredCall { call, flows }) = work {
                let needed = |flow: &MessageFlow| {
                    flow.stream == at && !flow.is_over(&call.part.links[flow.link])
                };
                if flows.iter().any(needed) {
                    return Err(self.call_lost(at, call, flows, &fault.clone()));
                }
            }
            if stream.is_sending() || self.queues.due_direction(at).is_some() {
                return Err(self.messages_lost(at, &fault.clone()));
            }
        }
        // Kernels that wait give up sooner.
        if let Some(EnteredCall { call, flows }) = work
            && pause.lasts() > call.timeout.saturating_mul(2)
        {
            return Err(ProxyExit::failed(self.call_stalled(call, flows, pause.lasts())));
        }
        match self.messages_stalled(pause.lasts()) {
            Some(error) => Err(ProxyExit::failed(error)),
            None => Ok(()),
        }
    }

    /// Returns the exit for a connection that was lost in a call.
    pub(super) fn call_lost(
        &self,
        at: usize,
        call: &ProxyCall,
        flows: &[MessageFlow],
        fault: &ConnectionFault,
    ) -> ProxyExit {
        let links = &call.part.links;
        let of = |flow: &&MessageFlow| flow.stream == at && !flow.is_over(&links[flow.link]);
        let flow = flows.iter().find(of).or(flows.iter().find(|flow| flow.stream == at));
        let location = flow.map(|f| call.location(&links[f.link], f.moved + 1));
        self.lost_at(at, location, fault)
    }

    /// Returns the exit for a connection that was lost at a place in an algorithm. The peer may have failed for a
    /// reason that comes from the group.
    fn lost_at(
        &self,
        at: usize,
        location: Option<ErrorLocation>,
        fault: &ConnectionFault,
    ) -> ProxyExit {
        let since = Instant::now();
        while since.elapsed() < FAILURE_REASON_TIMEOUT {
            if self.common.is_over() {
                return ProxyExit::Stopped;
            }
            std::thread::sleep(PROXY_CHECK_INTERVAL);
        }
        ProxyExit::failed(Error::LostRank {
            rank: self.common.rank,
            lost: self.streams[at].peer,
            how: format!("{fault}, on lane {} between their hosts", self.number),
            location: location.map(Box::new),
            source: Some(ErrorSource::new(fault.clone())),
        })
    }

    /// Returns the error of a call in which no message has moved for long.
    fn call_stalled(&self, call: &ProxyCall, flows: &[MessageFlow], after: Duration) -> Error {
        let links = &call.part.links;
        let open = || flows.iter().filter(|flow| !flow.is_over(&links[flow.link]));
        let waits = |dir| open().find(|flow| links[flow.link].dir == dir);
        let flow =
            waits(MessageDirection::Recv).or(waits(MessageDirection::Send)).unwrap_or(&flows[0]);
        let link = &links[flow.link];
        let peer = link.peer;
        let awaited = match link.dir {
            MessageDirection::Recv => format!("a message from rank {peer}"),
            MessageDirection::Send => format!("rank {peer} to take a message"),
        };
        Error::Timeout {
            location: Box::new(call.location(link, flow.moved + 1)),
            awaited,
            peer,
            after,
            remark: format!(
                " on lane {} between their hosts (block {} of call {}, {} of {} messages); see whether rank {peer} \
                 makes the same call, or raise the timeout",
                self.number, flow.block, call.epoch, flow.moved, flow.total
            ),
        }
    }

    /// Returns the exit for a connection that was lost, at the messages with the peer if some are due.
    pub(super) fn messages_lost(&self, at: usize, fault: &ConnectionFault) -> ProxyExit {
        let dir = self.queues.due_direction(at);
        let location = dir.map(|dir| self.of_messages(self.streams[at].peer, dir));
        self.lost_at(at, location, fault)
    }

    fn of_messages(&self, peer: u32, dir: MessageDirection) -> ErrorLocation {
        let verb = if dir == MessageDirection::Send { "send to" } else { "receive from" };
        let text = format!("{verb} rank {peer}");
        ErrorLocation {
            rank: self.common.rank,
            name: "batch".into(),
            step: 0,
            site: String::new(),
            text,
        }
    }

    /// Returns the error of a published piece for which a peer has had no room for long. A kernel that receives
    /// reports by itself that nothing comes.
    fn messages_stalled(&self, after: Duration) -> Option<Error> {
        let (at, block, done) = self.queues.stalled_queue(after)?;
        let peer = self.streams[at].peer;
        Some(Error::Timeout {
            location: Box::new(self.of_messages(peer, MessageDirection::Send)),
            awaited: format!("rank {peer} to take a message"),
            peer,
            after,
            remark: format!(
                " on lane {} between their hosts (piece {} of block {block} since they met); see whether rank {peer} \
                 makes the matching call, or raise the timeout",
                self.number,
                done + 1
            ),
        })
    }
}
