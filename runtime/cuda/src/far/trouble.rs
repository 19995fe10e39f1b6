//! A lane finds something wrong: a connection that is lost, or a call in which nothing moves.

use std::time::{Duration, Instant};

use roundelay_compiler::plan::Dir;

use super::call::FarCall;
use super::flow::Flow;
use super::lane::{End, Lane, Work};
use super::pause::{EXAMINE, Pause};
use roundelay_net::error::{Error, Location, Source};
use roundelay_net::transport::fault::Fault;

/// The time after the end of a connection in which its reason may be heard otherwise.
const LAST_WORDS: Duration = Duration::from_millis(150);

impl Lane {
    /// Fails if a connection is lost over which something is still to come, or to go, or if nothing has moved for long
    /// that a kernel waits for.
    pub(super) fn check(&self, work: Option<&Work>, pause: &Pause) -> Result<(), End> {
        for (at, stream) in self.streams.iter().enumerate() {
            let Some(fault) = stream.connection.fault() else { continue };
            if let Some(Work { call, flows }) = work {
                let needed =
                    |flow: &Flow| flow.stream == at && !flow.is_over(&call.part.links[flow.link]);
                if flows.iter().any(needed) {
                    return Err(self.lost(at, call, flows, &fault.clone()));
                }
            }
            if stream.is_sending() || self.queues.is_awaited_of(at) {
                return Err(self.cut_off(at, &fault.clone()));
            }
        }
        // Kernels give up sooner, if they wait for it.
        if let Some(Work { call, flows }) = work
            && pause.lasts() > call.timeout.saturating_mul(2)
        {
            return Err(End::failed(self.late(call, flows, pause.lasts())));
        }
        match self.stalled(pause.lasts()) {
            Some(error) => Err(End::failed(error)),
            None => Ok(()),
        }
    }

    /// Returns the end by a lost connection.
    pub(super) fn lost(&self, at: usize, call: &FarCall, flows: &[Flow], fault: &Fault) -> End {
        let links = &call.part.links;
        let of = |flow: &&Flow| flow.stream == at && !flow.is_over(&links[flow.link]);
        let flow = flows.iter().find(of).or(flows.iter().find(|flow| flow.stream == at));
        let location = flow.map(|f| call.location(&links[f.link], f.moved + 1));
        self.lost_at(at, location, fault)
    }

    /// Returns the end by a lost connection, at a place in an algorithm. Its peer may have failed for a reason that comes
    /// otherwise.
    pub(super) fn lost_at(&self, at: usize, location: Option<Location>, fault: &Fault) -> End {
        let since = Instant::now();
        while since.elapsed() < LAST_WORDS {
            if self.common.is_over() {
                return End::Stopped;
            }
            std::thread::sleep(EXAMINE);
        }
        End::failed(Error::LostRank {
            rank: self.common.rank,
            lost: self.streams[at].peer,
            how: format!("{fault}, on lane {} between their hosts", self.number),
            location: location.map(Box::new),
            source: Some(Source::new(fault.clone())),
        })
    }

    /// Returns the error of a call in which nothing has moved for long.
    fn late(&self, call: &FarCall, flows: &[Flow], after: Duration) -> Error {
        let links = &call.part.links;
        let open = || flows.iter().filter(|flow| !flow.is_over(&links[flow.link]));
        let waits = |dir| open().find(|flow| links[flow.link].dir == dir);
        let flow = waits(Dir::Recv).or(waits(Dir::Send)).unwrap_or(&flows[0]);
        let link = &links[flow.link];
        let peer = link.peer;
        let awaited = match link.dir {
            Dir::Recv => format!("a message from rank {peer}"),
            Dir::Send => format!("rank {peer} to take a message"),
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
}
