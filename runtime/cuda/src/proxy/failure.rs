//! Failure detection of a proxy: lost connections and stalled calls.

use std::time::{Duration, Instant};

use roundelay_compiler::plan::MessageDirection;

use super::call::ProxyCall;
use super::flow::MessageFlow;
use super::lane::{EnteredCall, ProxyExit, ProxyLane};
use crate::tunables::{FAILURE_REASON_INTERVAL, FAILURE_REASON_TIMEOUT};
use roundelay_engine::progress::{AwaitedAct, FailedWait, PeerLoss};
use roundelay_net::transport::fault::ConnectionFault;
use roundelay_support::error::ErrorLocation;

/// Returns the act of a peer that an end of a connection waits for.
fn awaited_act(dir: MessageDirection) -> AwaitedAct {
    match dir {
        MessageDirection::Recv => AwaitedAct::Message,
        MessageDirection::Send => AwaitedAct::TakeMessage,
    }
}

impl ProxyLane {
    /// Fails if a connection is lost over which messages are still due, or if a call has stalled for which a kernel
    /// waits: nothing has moved for so long.
    pub(super) fn check(&self, after: Duration) -> Result<(), ProxyExit> {
        let work = self.work.as_ref();
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
            && after > call.timeout.saturating_mul(2)
        {
            return Err(self.call_stalled(call, flows, after));
        }
        self.messages_stalled(after).map_or(Ok(()), Err)
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
        let on_stream = || flows.iter().find(|flow| flow.stream == at);
        match flows.iter().find(of).or_else(on_stream).or(flows.first()) {
            Some(flow) => {
                let link = &links[flow.link];
                self.lost_at(at, link.dir, call.location(link, flow.moved + 1), fault)
            }
            None => self.messages_lost(at, fault),
        }
    }

    /// Returns the exit for a connection that was lost at a place in an algorithm. The peer may have failed for a
    /// reason that comes from the group.
    fn lost_at(
        &self,
        at: usize,
        dir: MessageDirection,
        location: ErrorLocation,
        fault: &ConnectionFault,
    ) -> ProxyExit {
        let since = Instant::now();
        while since.elapsed() < FAILURE_REASON_TIMEOUT {
            if self.common.is_over() {
                return ProxyExit::Stopped;
            }
            std::thread::sleep(FAILURE_REASON_INTERVAL);
        }
        let peer = self.streams[at].peer;
        let act = awaited_act(dir).of(peer);
        let awaited = format!("{act} on lane {} between their hosts", self.number);
        let failed = FailedWait { location, peer, awaited };
        ProxyExit::failed(failed.lost(PeerLoss::Cut(fault.clone())))
    }

    /// Returns the exit for a call in which no message has moved for long.
    fn call_stalled(&self, call: &ProxyCall, flows: &[MessageFlow], after: Duration) -> ProxyExit {
        let links = &call.part.links;
        let open = || flows.iter().filter(|flow| !flow.is_over(&links[flow.link]));
        let waits = |dir| open().find(|flow| links[flow.link].dir == dir);
        let flow =
            waits(MessageDirection::Recv).or(waits(MessageDirection::Send)).unwrap_or(&flows[0]);
        let link = &links[flow.link];
        let (peer, awaited) = (link.peer, awaited_act(link.dir).of(link.peer));
        let location = call.location(link, flow.moved + 1);
        let remark = format!(
            " on lane {} between their hosts (block {} of call {}, {} of {} messages); see whether rank {peer} makes \
             the same call, or raise the timeout",
            self.number, flow.block, call.epoch, flow.moved, flow.total
        );
        ProxyExit::failed(FailedWait { location, peer, awaited }.timed_out(after, remark))
    }

    /// Returns the exit for a connection that was lost, at the messages with the peer that are due.
    pub(super) fn messages_lost(&self, at: usize, fault: &ConnectionFault) -> ProxyExit {
        let dir = self.queues.due_direction(at).unwrap_or(MessageDirection::Send);
        self.lost_at(at, dir, self.of_messages(self.streams[at].peer, dir), fault)
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

    /// Returns the exit for a published piece for which a peer has had no room for long. A kernel that receives reports
    /// by itself that nothing comes.
    fn messages_stalled(&self, after: Duration) -> Option<ProxyExit> {
        let (at, block, done) = self.queues.stalled_queue(after)?;
        let peer = self.streams[at].peer;
        let location = self.of_messages(peer, MessageDirection::Send);
        let awaited = AwaitedAct::TakeMessage.of(peer);
        let remark = format!(
            " on lane {} between their hosts (piece {} of block {block} since they met); see whether rank {peer} makes \
             the matching call, or raise the timeout",
            self.number,
            done + 1
        );
        Some(ProxyExit::failed(FailedWait { location, peer, awaited }.timed_out(after, remark)))
    }
}
