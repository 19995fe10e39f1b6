//! Proxy threads: one serves all lanes of a rank by turns, and has helpers while long messages are under way.
//!
//! The processor moves what goes through sockets, so one thread would hold a call of many MiB back. A lane that
//! carries many bytes without a pause goes to a *helper*, a thread of its own, which gives it back when there was
//! nothing long for a while, and ends. Orders stay with the lane.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::lane::{ProxyExit, ProxyLane};
use super::state::ProxyState;
use super::stream::{ProxyStream, ReceiveStage};
use crate::tunables::{
    LINGER_TIMEOUT, POLLS_PER_SOCKET_POLL, PROXY_HELP_BYTES, PROXY_HELP_TIME,
    PROXY_ORDER_SLEEP_MAX, PROXY_POLL_TIME, PROXY_PROGRESS_INTERVAL,
};
use roundelay_engine::progress::wait::{WaitAction, WaitLoop};
use roundelay_net::transport::posted::PostedSender;

/// A proxy thread, and the lanes that it serves now.
pub(super) struct ProxyThread {
    common: Arc<ProxyState>,
    lanes: Vec<ProxyLane>,
    role: ThreadRole,
}

/// The part of a thread.
enum ThreadRole {
    /// It serves the lanes that helpers do not have.
    Main(HelperThreads),
    /// It serves one lane while messages are long.
    Helper(HelperTask),
}

/// The helpers of a main thread.
struct HelperThreads {
    threads: Vec<JoinHandle<()>>,
    /// The most of them at a time.
    most: usize,
    back: (Sender<ProxyLane>, Receiver<ProxyLane>),
}

/// The task of a helper, beside its lane.
struct HelperTask {
    /// The way back for the lane once messages are short again, and the thread at its end.
    back: Sender<ProxyLane>,
    main: Thread,
    /// The time at which the lane last carried much.
    long_at: Instant,
}

/// Runs the main thread of a rank's lanes; it has `most` helpers at most.
pub(super) fn run_lanes(common: Arc<ProxyState>, lanes: Vec<ProxyLane>, most: usize) {
    let role = ThreadRole::Main(HelperThreads { threads: Vec::new(), most, back: channel() });
    ProxyThread { common, lanes, role }.run();
}

impl ProxyThread {
    /// Carries what kernels ask for until the orders end, or something fails.
    fn run(mut self) {
        self.lanes.iter().for_each(|lane| lane.inbox.attach());
        match self.serve() {
            Ok(()) => self.linger(),
            Err(ProxyExit::Stopped) => self.common.follow(),
            Err(ProxyExit::Failed(error)) => self.common.fail(*error),
        }
        match self.role {
            // One that panicked has nothing to add.
            ThreadRole::Main(helpers) => {
                helpers.threads.into_iter().for_each(|helper| drop(helper.join()));
            }
            ThreadRole::Helper(task) => task.main.unpark(),
        }
    }

    /// Serves the lanes until there are no more orders, and nothing is under way; or a helper's lane has gone back.
    fn serve(&mut self) -> Result<(), ProxyExit> {
        let mut wait = WaitLoop::for_proxy();
        let (mut is_busy, mut turn) = (false, 0u32);
        loop {
            self.take_back();
            let includes_sockets = wait.polls_sockets(POLLS_PER_SOCKET_POLL);
            // What comes to a lane on which nothing is due can wait for a few polls of others.
            let includes_idle = !is_busy || turn.is_multiple_of(POLLS_PER_SOCKET_POLL);
            turn = turn.wrapping_add(1);
            let mut moved = false;
            for lane in &mut self.lanes {
                lane.take_orders();
                if lane.progress(includes_sockets && (includes_idle || lane.is_busy()))? {
                    (lane.still, moved) = (None, true);
                }
            }
            if moved {
                // A proxy publishes no wait.
                let _ = wait.progress();
                is_busy = true;
                self.lend();
                continue;
            }
            let busy = self.lanes.iter().filter(|lane| lane.is_busy()).count() as u32;
            wait.share_spins(busy);
            is_busy = busy > 0;
            if !is_busy && self.is_over() {
                return Ok(());
            }
            match wait.pause(&mut &*self.common) {
                WaitAction::Aborted => return Err(ProxyExit::Stopped),
                WaitAction::Examine => self.examine(wait.waited())?,
                WaitAction::Doze if is_busy => self.sleep_on_sockets(wait.nap()),
                WaitAction::Again | WaitAction::Doze | WaitAction::Expired => {}
            }
            if !is_busy && wait.waited() >= PROXY_POLL_TIME {
                if self.give_back() {
                    return Ok(());
                }
                self.sleep_until_order(&wait);
            }
        }
    }

    /// Returns true if there will be no orders, and no helper has a lane.
    fn is_over(&mut self) -> bool {
        if !self.lanes.iter().all(|lane| lane.inbox.is_over()) {
            return false;
        }
        match &self.role {
            ThreadRole::Helper(_) => true,
            ThreadRole::Main(helpers) => {
                helpers.threads.iter().all(JoinHandle::is_finished) && !self.take_back()
            }
        }
    }

    /// Gives a lane to a helper if several have carried much without a pause.
    fn lend(&mut self) {
        let ThreadRole::Main(helpers) = &mut self.role else { return };
        let is_long = |lane: &ProxyLane| lane.carried >= PROXY_HELP_BYTES;
        if self.lanes.iter().filter(|lane| is_long(lane)).nth(1).is_none() {
            return;
        }
        helpers.threads.retain(|helper| !helper.is_finished());
        if helpers.threads.len() >= helpers.most {
            return;
        }
        let (to, lane) = channel::<ProxyLane>();
        let (common, back, main) =
            (self.common.clone(), helpers.back.0.clone(), std::thread::current());
        let helper = move || {
            let Ok(lane) = lane.recv() else { return };
            let task = HelperTask { back, main, long_at: Instant::now() };
            ProxyThread { common, lanes: vec![lane], role: ThreadRole::Helper(task) }.run();
        };
        let name = format!("roundelay-far-{}", self.common.rank);
        // Without a thread the lane stays.
        let Ok(helper) = std::thread::Builder::new().name(name).spawn(helper) else { return };
        helpers.threads.push(helper);
        if let Some(at) = self.lanes.iter().rposition(is_long) {
            let _ = to.send(self.lanes.swap_remove(at));
        }
    }

    /// Takes the lanes that helpers have given back; returns true if there were some.
    fn take_back(&mut self) -> bool {
        let ThreadRole::Main(helpers) = &self.role else { return false };
        if helpers.threads.is_empty() {
            return false;
        }
        let before = self.lanes.len();
        self.lanes.extend(helpers.back.1.try_iter());
        self.lanes[before..].iter().for_each(|lane| lane.inbox.attach());
        self.lanes.len() > before
    }

    /// Gives the lane of a helper back if nothing long was carried for a while; returns true if it did.
    fn give_back(&mut self) -> bool {
        let ThreadRole::Helper(task) = &self.role else { return false };
        if task.long_at.elapsed() < PROXY_HELP_TIME {
            return false;
        }
        self.lanes.drain(..).for_each(|lane| drop(task.back.send(lane)));
        task.main.unpark();
        true
    }

    /// Examines the lanes on which nothing has moved, and progresses connections that move only while they are polled.
    fn examine(&mut self, waited: Duration) -> Result<(), ProxyExit> {
        self.progress_connections();
        let now = Instant::now();
        for lane in &mut self.lanes {
            if let (ThreadRole::Helper(task), PROXY_HELP_BYTES..) = (&mut self.role, lane.carried) {
                task.long_at = now;
            }
            lane.carried = 0;
            let since = *lane.still.get_or_insert(now.checked_sub(waited).unwrap_or(now));
            lane.check(now.saturating_duration_since(since))?;
        }
        Ok(())
    }

    /// Returns the connections of all lanes.
    fn streams(&self) -> impl Iterator<Item = &ProxyStream> {
        self.lanes.iter().flat_map(|lane| &lane.streams)
    }

    /// Sleeps until a connection has something, or for that long.
    fn sleep_on_sockets(&self, most: Duration) {
        let descriptors: Vec<_> = self
            .streams()
            .filter_map(|stream| {
                let flags = match stream.sender.has_backlog() {
                    true => PollFlags::IN | PollFlags::OUT,
                    false => PollFlags::IN,
                };
                // A packet that was read already would wake it at once.
                let held = matches!(stream.coming, ReceiveStage::Read(_));
                Some((stream.connection.fd().filter(|_| !held)?, flags))
            })
            .collect();
        let mut fds: Vec<_> =
            descriptors.iter().map(|(fd, flags)| PollFd::new(&**fd, *flags)).collect();
        let most = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos()) };
        let _ = rustix::event::poll(&mut fds, Some(&most));
    }

    /// Sleeps until an order comes, or for a moment.
    fn sleep_until_order(&self, wait: &WaitLoop) {
        let has_graphs = self.lanes.iter().any(|lane| lane.has_graphs);
        let wakes = self.streams().all(|stream| stream.connection.wakes());
        std::thread::park_timeout(match (has_graphs, wakes) {
            // Only kernels know of graphs that are launched.
            (true, _) => wait.nap(),
            (false, true) => PROXY_ORDER_SLEEP_MAX,
            (false, false) => PROXY_PROGRESS_INTERVAL,
        });
    }

    /// Progresses the connections that move only while they are polled.
    fn progress_connections(&self) {
        let slow = self.streams().filter(|stream| !stream.connection.wakes());
        slow.for_each(|stream| stream.connection.tend());
    }

    /// Waits until what was sent over several paths has arrived, for a limited time.
    fn linger(&self) {
        let deadline = Instant::now() + LINGER_TIMEOUT;
        let waits = |stream: &ProxyStream| {
            let state = stream.connection.stream();
            state.is_some_and(|mut s| s.fault().is_none() && !s.is_acknowledged())
        };
        while self.streams().any(waits) && !self.common.is_over() && Instant::now() < deadline {
            self.progress_connections();
            std::thread::yield_now();
        }
    }
}
