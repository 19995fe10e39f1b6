//! A lane of a proxy: connections to all ranks on other hosts, and the inter-host messages of some thread blocks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::call::ProxyCall;
use super::flow::MessageFlow;
use super::lane_inbox::LaneInbox;
use super::memory::ProxyMemory;
use super::queues::PieceQueues;
use super::state::ProxyState;
use super::stream::ProxyStream;
use crate::tunables::PROXY_BLOCKS_MAX;
use roundelay_support::error::Error;

/// The reason for which proxy threads end.
pub(super) enum ProxyExit {
    /// The communicator is being dropped, or has failed elsewhere.
    Stopped,
    /// It failed.
    Failed(Box<Error>),
}

impl ProxyExit {
    pub(super) fn failed(error: Error) -> Self {
        ProxyExit::Failed(Box::new(error))
    }
}

/// The state of a lane.
pub(super) struct ProxyLane {
    /// Its number, and how many there are.
    pub(super) number: u32,
    pub(super) lanes: u32,
    pub(super) memory: Arc<ProxyMemory>,
    pub(super) common: Arc<ProxyState>,
    pub(super) streams: Vec<ProxyStream>,
    pub(super) inbox: Arc<LaneInbox>,
    pub(super) queues: PieceQueues,
    /// The calls that kernels may enter, by number: launched calls once, captured calls again and again.
    pub(super) calls: BTreeMap<u32, ProxyCall>,
    /// True once something was captured.
    pub(super) has_graphs: bool,
    /// The words in which the blocks of this lane publish the call that they have entered, as last read, and the
    /// epoch of the last call that was entered.
    pub(super) entered: Vec<u64>,
    pub(super) last: Option<u32>,
    /// The call that is being carried.
    pub(super) work: Option<EnteredCall>,
    /// The time since which nothing has moved, once that was noticed.
    pub(super) still: Option<Instant>,
    /// The bytes of contents that it has carried since then.
    pub(super) carried: u64,
}

/// A call that a kernel has entered.
pub(super) struct EnteredCall {
    pub(super) call: ProxyCall,
    pub(super) flows: Vec<MessageFlow>,
}

impl EnteredCall {
    pub(super) fn is_over(&self) -> bool {
        let links = &self.call.part.links;
        self.flows.iter().all(|flow| flow.is_over(&links[flow.link]))
    }
}

impl ProxyLane {
    pub(super) fn new(
        (number, lanes): (u32, u32),
        memory: Arc<ProxyMemory>,
        common: Arc<ProxyState>,
        streams: Vec<ProxyStream>,
    ) -> Self {
        ProxyLane {
            number,
            lanes,
            memory,
            common,
            streams,
            inbox: Arc::new(LaneInbox::default()),
            queues: PieceQueues::default(),
            calls: BTreeMap::new(),
            has_graphs: false,
            entered: vec![0; PROXY_BLOCKS_MAX as usize],
            last: None,
            work: None,
            still: None,
            carried: 0,
        }
    }

    /// Returns the flows of a call that this lane carries.
    pub(super) fn flows(&self, call: &ProxyCall) -> Vec<MessageFlow> {
        let mut flows = Vec::new();
        let (is_direct, moved, taken) = (self.memory.direct().is_some(), 0, 0);
        for (at, link) in call.part.links.iter().enumerate() {
            let Some(stream) = self.streams.iter().position(|s| s.peer == link.peer) else {
                continue;
            };
            for block in (self.number..call.blocks).step_by(self.lanes as usize) {
                let total = call.messages(link);
                let ahead = if is_direct { 0 } else { link.slots };
                let (link, credit, to) = (at, 0, 0);
                flows.push(MessageFlow {
                    link,
                    stream,
                    block,
                    total,
                    moved,
                    taken,
                    ahead,
                    credit,
                    to,
                });
            }
        }
        flows
    }
}
