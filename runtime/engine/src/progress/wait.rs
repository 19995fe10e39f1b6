//! Waits: spins, then yields or sleeps, and examines peers now and then.
//!
//! A rank with a core of its own never sleeps: to be woken costs more (35 us and up) than most calls. It spins for
//! about as long as a peer may lag behind within a call, then gives its core away between polls, and at once where
//! ranks outnumber cores. Where other programs use the core it sleeps in place of yielding (`contention`): on a
//! futex that peers in shared memory wake, or until a socket is ready. The abort record is read only once in many
//! polls.
//!
//! A rank that serves windows does so itself while it polls; before it sleeps it leaves that to its progress thread.
//!
//! A proxy thread waits for words of kernels, which wake no thread: it spins, yields for a while, and then sleeps, the
//! longer the wait has lasted. It belongs to no call, so it looks at its own end alone ([`WaitingRank`]).

use std::time::{Duration, Instant};

use crate::tunables::{
    CALL_BLIND_SLEEP_MAX, FAST_POLLS, LONG_WAIT_TIME, MEMORY_SLEEP_MAX, PEER_CHECK_INTERVAL,
    POLLS_BEFORE_YIELD, POLLS_BEFORE_YIELD_CROWDED, PROXY_SLEEP_MAX, PROXY_SLEEP_MIN, PROXY_YIELDS,
    SERVE_POLLS_BUSY, SERVE_POLLS_MEMORY, SERVE_POLLS_SOCKETS, SOCKET_SPIN_TIME, WORD_SLEEP_MAX,
};
use roundelay_net::group::{RankGroup, ServingWait};
use roundelay_support::contention::CoreShare;
use roundelay_support::error::Error;
use roundelay_support::interrupt;

/// The next action of a waiting rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitAction {
    /// Poll again.
    Again,
    /// Sleep until a socket is ready, then poll again.
    Doze,
    /// Examine the peer, then poll again.
    Examine,
    /// Some rank failed: stop.
    Aborted,
    /// The deadline has passed.
    Expired,
}

/// The rank, or the part of it, that waits.
pub trait WaitingRank {
    /// Returns true if the wait is to end.
    fn is_aborted(&self) -> bool;

    /// Returns the group of the rank, unless the thread waits beside it: then no call of the rank waits with it.
    fn group(&mut self) -> Option<&mut RankGroup> {
        None
    }
}

impl WaitingRank for RankGroup {
    #[inline]
    fn is_aborted(&self) -> bool {
        RankGroup::is_aborted(self)
    }

    #[inline]
    fn group(&mut self) -> Option<&mut RankGroup> {
        Some(self)
    }
}

/// One wait, from the last progress on.
pub struct WaitLoop {
    timeout: Duration,
    spins: u32,
    polls: u32,
    began: Option<Instant>,
    examined: Option<Instant>,
    /// True if anything may come through sockets.
    sockets: bool,
    /// The longest sleep for shared memory, and whether the next one may be longer.
    nap: Duration,
    grows: bool,
    /// True if the sleep of this rank was announced to its peers.
    announced: bool,
    /// True if a peer was woken on this rank's core and could not run yet.
    owing: bool,
    /// True if peers were examined since the last progress.
    long: bool,
    /// This rank's service for its windows, while it polls.
    serving: Option<ServingWait>,
    /// The number of requests that it has served, and the time at which that last grew.
    served: (u64, Option<Instant>),
    /// The poll up to which another request is likely.
    busy: u32,
    /// True if an interrupt aborts the group; otherwise the caller checks for interrupts.
    is_interruptible: bool,
}

impl WaitLoop {
    /// Begins a wait that may last `timeout` without progress; `crowded` if ranks outnumber cores.
    pub fn new(timeout: Duration, crowded: bool) -> Self {
        let spins = if crowded { POLLS_BEFORE_YIELD_CROWDED } else { POLLS_BEFORE_YIELD };
        let (began, examined) = (None, None);
        let (sockets, announced, owing, long) = (false, false, false, false);
        let (serving, served, busy) = (None, (0, None), 0);
        WaitLoop {
            timeout,
            spins,
            polls: 0,
            began,
            examined,
            sockets,
            nap: MEMORY_SLEEP_MAX,
            grows: false,
            announced,
            owing,
            long,
            serving,
            served,
            busy,
            is_interruptible: true,
        }
    }

    /// Begins a wait of a proxy thread, which has no deadline: its calls have their own.
    pub fn for_proxy() -> Self {
        WaitLoop { spins: FAST_POLLS, ..WaitLoop::new(Duration::MAX, false) }
    }

    /// Shares the polls without a pause among the `busy` parts that a poll of a proxy thread visits. If there are none it
    /// yields at once: other threads have more to do.
    pub fn share_spins(&mut self, busy: u32) {
        self.spins = FAST_POLLS.checked_div(busy).unwrap_or(0);
    }

    /// Leaves interrupts to the caller, which holds a lock while it waits.
    pub fn without_interrupts(self) -> Self {
        WaitLoop { is_interruptible: false, ..self }
    }

    /// Makes the wait one for sockets, too: `pause` returns when to sleep for them.
    pub(crate) fn for_sockets(self, sockets: bool) -> Self {
        WaitLoop { sockets, ..self }
    }

    /// Makes it a wait for a word of each rank, with longer sleeps: each word would wake all that wait for the others.
    pub(crate) fn for_words(self) -> Self {
        WaitLoop { grows: true, ..self }
    }

    /// Returns the number of polls without a pause.
    pub fn polls(crowded: bool) -> u32 {
        if crowded { POLLS_BEFORE_YIELD_CROWDED } else { FAST_POLLS }
    }

    /// Returns the longest time without progress.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Records that something moved: the deadline begins anew. Returns true if the wait was so long that
    /// peers were examined: what was published of it is to be taken back.
    #[must_use = "a wait that was published would be shown for ever"]
    #[inline]
    pub fn progress(&mut self) -> bool {
        if self.polls == 0 {
            return false;
        }
        (self.polls, self.busy, self.began) = (0, 0, None);
        (self.announced, self.serving) = (false, None);
        std::mem::take(&mut self.long)
    }

    /// Returns the time without progress, once the clock was read.
    pub fn waited(&self) -> Duration {
        self.began.map(|began| began.elapsed()).unwrap_or_default()
    }

    /// Returns true if this wait is so long that a late wakeup costs little beside it, and peers have had no requests
    /// meanwhile.
    pub(crate) fn is_long(&self) -> bool {
        let is_past = |at: Instant| at.elapsed() > LONG_WAIT_TIME;
        self.polls > self.spins
            && self.began.is_some_and(is_past)
            && self.served.1.is_none_or(is_past)
    }

    /// Returns true at the polls of a proxy thread that include what costs a system call: all but some of those that
    /// spin.
    pub fn polls_sockets(&self, often: u32) -> bool {
        self.polls > self.spins || self.polls.is_multiple_of(often)
    }

    /// Returns how long a proxy thread sleeps at the most: a 64th of the time that it has waited.
    pub fn nap(&self) -> Duration {
        (self.waited() / 64).clamp(PROXY_SLEEP_MIN, PROXY_SLEEP_MAX)
    }

    /// Records that this rank is about to sleep: its progress thread serves windows meanwhile.
    pub(crate) fn sleeps(&mut self) {
        self.serving = None;
    }

    /// Polls until `poll` returns a value. `look` is called where the wait needs more than another poll: to examine
    /// peers, and when some rank failed or the deadline passed; the wait continues unless it returns an error.
    pub fn until<R: AsMut<RankGroup>, T>(
        &mut self,
        rank: &mut R,
        mut poll: impl FnMut(&mut R) -> Result<Option<T>, Error>,
        mut look: impl FnMut(&mut R, WaitAction, Duration) -> Result<(), Error>,
    ) -> Result<T, Error> {
        loop {
            if let Some(found) = poll(rank)? {
                return Ok(found);
            }
            match self.pause(rank.as_mut()) {
                WaitAction::Again | WaitAction::Doze => {}
                next => look(rank, next, self.waited())?,
            }
        }
    }

    /// Records that nothing moved, and returns the next action.
    #[inline]
    pub fn pause<R: WaitingRank>(&mut self, rank: &mut R) -> WaitAction {
        self.polls = self.polls.saturating_add(1);
        if self.polls <= FAST_POLLS.min(self.spins) {
            return WaitAction::Again;
        }
        match rank.group() {
            Some(group) => self.pause_longer(group),
            None => self.pause_beside(rank),
        }
    }

    /// Pauses a proxy thread.
    fn pause_beside<R: WaitingRank>(&mut self, rank: &mut R) -> WaitAction {
        if self.polls - self.spins > PROXY_YIELDS {
            return self.look_up(rank, Instant::now(), WaitAction::Doze);
        }
        rustix::thread::sched_yield();
        match self.polls.is_multiple_of(16) {
            true => self.look_up(rank, Instant::now(), WaitAction::Again),
            false => WaitAction::Again,
        }
    }

    fn pause_longer(&mut self, group: &mut RankGroup) -> WaitAction {
        let core = match group.contention.is_known() {
            true => group.contention.core(Instant::now()),
            false => CoreShare::Own,
        };
        let contended = matches!(core, CoreShare::Contended | CoreShare::Computing);
        if self.polls == FAST_POLLS.min(self.spins) + 1 {
            group.rise();
            self.owing = group.owes_core();
        }
        let spinning = match core {
            // The awaited rank has been woken, and waits for this core.
            _ if self.owing => false,
            CoreShare::Shared | CoreShare::Computing => false,
            CoreShare::Contended if self.sockets => {
                self.began.get_or_insert_with(Instant::now).elapsed() < SOCKET_SPIN_TIME
            }
            CoreShare::Own | CoreShare::Contended => self.polls <= self.spins,
        };
        self.serve(group, spinning, contended && !spinning);
        if spinning {
            std::hint::spin_loop();
            if !self.polls.is_multiple_of(256) {
                return WaitAction::Again;
            }
        }
        let mut now = Instant::now();
        if !spinning && !contended {
            rustix::thread::sched_yield();
            let back = Instant::now();
            group.contention.yielded(back, back - now);
            now = back;
        }
        if !spinning && contended {
            match (self.sockets, self.announced) {
                (true, _) => return self.look_up(group, now, WaitAction::Doze),
                // All is polled once more: a peer that acted before has seen no sleeper.
                (false, false) => group.announce_sleep(),
                (false, true) => {
                    group.sleep(if group.is_networked() { CALL_BLIND_SLEEP_MAX } else { self.nap });
                    if self.grows {
                        self.nap = (2 * self.nap).min(WORD_SLEEP_MAX);
                    }
                    group.announce_sleep();
                }
            }
            self.announced = true;
        } else if !spinning && !self.polls.is_multiple_of(16) && self.polls != u32::MAX {
            return WaitAction::Again;
        }
        self.look_up(group, now, WaitAction::Again)
    }

    /// Serves peers now and then, unless this rank is about to sleep.
    fn serve(&mut self, group: &RankGroup, spins: bool, sleeps: bool) {
        let Some(server) = group.server() else { return };
        let often = match spins && !self.sockets {
            _ if self.polls <= self.busy => 1,
            true => SERVE_POLLS_MEMORY,
            false => SERVE_POLLS_SOCKETS,
        };
        if sleeps {
            self.serving = None;
        } else if self.polls.is_multiple_of(often) {
            if self.is_long() {
                self.serving = None;
                return;
            }
            let before = server.served();
            self.serving.get_or_insert_with(|| ServingWait::new(server)).serve();
            if server.served() != before {
                self.busy = self.polls.saturating_add(SERVE_POLLS_BUSY);
            }
        }
    }

    /// Returns the next action: `then`, if nothing has happened.
    fn look_up<R: WaitingRank>(
        &mut self,
        rank: &mut R,
        now: Instant,
        then: WaitAction,
    ) -> WaitAction {
        let server = rank.group().and_then(|group| group.server());
        if let Some(served) = server.map(|server| server.served())
            && served != self.served.0
        {
            self.served = (served, Some(now));
        }
        if rank.is_aborted() {
            self.long = true;
            return WaitAction::Aborted;
        }
        let began = *self.began.get_or_insert(now);
        if now - began >= self.timeout {
            self.long = true;
            return WaitAction::Expired;
        }
        if now - *self.examined.get_or_insert(began) >= PEER_CHECK_INTERVAL {
            (self.examined, self.long) = (Some(now), true);
            let Some(group) = rank.group() else { return WaitAction::Examine };
            group.listen();
            if self.is_interruptible && interrupt::is_requested() {
                group.abort(&interrupt::record(group.rank()));
                return WaitAction::Aborted;
            }
            return WaitAction::Examine;
        }
        then
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_dsl::diag::codes;
    use roundelay_net::transport::shm::{SegmentLayout, ShmSegment, SleeperRole};
    use roundelay_support::abort::AbortRecord;

    /// Records that others had the rank's core twice.
    fn contend(group: &mut RankGroup) {
        for _ in 0..2 {
            group.contention.yielded(Instant::now(), Duration::from_millis(3));
        }
    }

    #[test]
    fn who_is_woken_does_not_sleep_on() {
        let layout = SegmentLayout { arena_bytes: 4096, slot_bytes: 64, ..SegmentLayout::new(2) };
        let segment = ShmSegment::create(layout).expect("a small segment");
        let long = Duration::from_millis(900);
        let timed = |before: &dyn Fn()| {
            segment.announce_sleep(0, SleeperRole::Calls);
            before();
            let began = Instant::now();
            segment.sleep(0, SleeperRole::Calls, long);
            began.elapsed()
        };
        assert!(timed(&|| ()) >= long, "no thread woke it");
        assert!(
            timed(&|| segment.wake(0, SleeperRole::Calls)) < long,
            "it was woken before it slept"
        );
        let other = segment.clone();
        let waker = std::thread::spawn(move || {
            roundelay_tests::until(
                Duration::from_secs(10),
                || "no sleeper".into(),
                || {
                    other.wake(1, SleeperRole::Calls);
                    other.is_aborted()
                },
            );
        });
        segment.announce_sleep(1, SleeperRole::Calls);
        let began = Instant::now();
        segment.sleep(1, SleeperRole::Calls, long);
        assert!(began.elapsed() < long, "it was woken while it slept");
        segment.abort(&AbortRecord { code: codes::TIMEOUT, rank: 1, text: String::new() });
        waker.join().expect("the waker");
    }

    #[test]
    fn a_core_is_owed_to_whoever_was_woken_there_until_it_runs() {
        let layout = SegmentLayout { arena_bytes: 4096, slot_bytes: 64, ..SegmentLayout::new(2) };
        let segment = ShmSegment::create(layout).expect("a small segment");
        let owed = || segment.owes_core(0..2, SleeperRole::Calls);
        let pinned = std::thread::scope(|scope| {
            let test = scope.spawn(|| {
                let mut here = rustix::thread::CpuSet::new();
                here.set(rustix::thread::sched_getcpu());
                rustix::thread::sched_setaffinity(None, &here).expect("a core that runs this");
                assert!(!owed(), "all are awake");
                segment.announce_sleep(1, SleeperRole::Calls);
                assert!(!owed(), "it sleeps");
                segment.wake(1, SleeperRole::Calls);
                assert!(owed(), "it was woken");
                segment.sleep(1, SleeperRole::Calls, Duration::from_millis(900));
                assert!(!owed(), "it runs");
            });
            test.join()
        });
        pinned.expect("no panic");
    }

    /// A rank that does nothing but wait.
    struct Waiter(RankGroup);

    impl AsMut<RankGroup> for Waiter {
        fn as_mut(&mut self) -> &mut RankGroup {
            &mut self.0
        }
    }

    #[test]
    fn a_loop_ends_by_what_comes_or_by_what_a_look_says() {
        let layout = SegmentLayout { arena_bytes: 4096, slot_bytes: 64, ..SegmentLayout::new(2) };
        let segment = ShmSegment::create(layout).expect("a small segment");
        let mut rank = Waiter(RankGroup::whole(segment, 0));
        let mut wait = WaitLoop::new(Duration::from_millis(5), true);
        let mut polls = 0;
        let third = |_: &mut Waiter| {
            polls += 1;
            Ok((polls == 3).then_some(polls))
        };
        let found = wait.until(&mut rank, third, |_, look, _| panic!("it came, and {look:?}"));
        assert_eq!(found, Ok(3));
        assert!(!wait.progress(), "no peer was examined");
        let vain = |look: WaitAction, waited: Duration| match look {
            WaitAction::Expired => Err(Error::Usage(format!("{}", waited.as_millis() >= 5))),
            _ => Ok(()),
        };
        let nothing = |_: &mut Waiter| Ok(None::<()>);
        let expired = wait.until(&mut rank, nothing, |_, look, waited| vain(look, waited));
        assert_eq!(expired, Err(Error::Usage("true".into())));
        let refused = |_: &mut Waiter| Err::<Option<()>, _>(Error::Usage("a poll failed".into()));
        let refused = wait.until(&mut rank, refused, |_, _, _| Ok(()));
        assert_eq!(refused, Err(Error::Usage("a poll failed".into())));
    }

    /// A thread beside a rank.
    struct BesideTask(bool);

    impl WaitingRank for BesideTask {
        fn is_aborted(&self) -> bool {
            self.0
        }
    }

    #[test]
    fn a_proxy_spins_then_yields_then_sleeps_and_ends_with_its_rank() {
        let (mut wait, mut rank) = (WaitLoop::for_proxy(), BesideTask(false));
        let often = |wait: &WaitLoop| wait.polls_sockets(8);
        let mut sockets = u32::from(often(&wait));
        for _ in 0..FAST_POLLS {
            assert_eq!((wait.pause(&mut rank), wait.waited()), (WaitAction::Again, Duration::ZERO));
            sockets += u32::from(often(&wait));
        }
        assert_eq!(sockets, 1 + FAST_POLLS / 8, "a poll of sockets is a system call");
        let mut examined = 0;
        let yields = std::iter::repeat_with(|| wait.pause(&mut rank));
        let yields = yields.inspect(|look| examined += u32::from(*look == WaitAction::Examine));
        let before = yields.take_while(|look| *look != WaitAction::Doze).count() as u32;
        // Of the polls that would sleep the first may examine instead.
        assert!(
            before >= PROXY_YIELDS && before <= PROXY_YIELDS + examined,
            "{before}, {examined}"
        );
        assert!(often(&wait), "every poll includes sockets by then");
        assert!(wait.nap() >= PROXY_SLEEP_MIN && wait.nap() <= PROXY_SLEEP_MAX);
        std::thread::sleep(2 * PEER_CHECK_INTERVAL);
        assert_eq!(wait.pause(&mut rank), WaitAction::Examine);
        let _ = wait.progress();
        for (busy, spins) in [(1, FAST_POLLS), (8, FAST_POLLS / 8), (0, 0)] {
            wait.share_spins(busy);
            let spun = (0..FAST_POLLS).take_while(|_| {
                let _ = wait.pause(&mut rank);
                wait.polls <= wait.spins
            });
            assert_eq!(spun.count() as u32, spins, "polls without a pause, with {busy} lanes");
            let _ = wait.progress();
        }
        rank.0 = true;
        let look = std::iter::repeat_with(|| wait.pause(&mut rank));
        assert!(look.take(16).any(|look| look == WaitAction::Aborted), "a clock is read by then");
        assert!(wait.progress(), "it was long");
        assert_eq!((wait.pause(&mut rank), wait.waited()), (WaitAction::Again, Duration::ZERO));
    }

    #[test]
    fn a_wait_ends_by_deadline_or_abort() {
        let layout = SegmentLayout { arena_bytes: 4096, slot_bytes: 64, ..SegmentLayout::new(2) };
        let segment = ShmSegment::create(layout).expect("a small segment");
        let mut group = RankGroup::whole(segment, 0);
        for crowded in [false, true] {
            let mut wait = WaitLoop::new(Duration::from_millis(5), crowded);
            let began = Instant::now();
            let mut examined = 0;
            loop {
                match wait.pause(&mut group) {
                    WaitAction::Again | WaitAction::Doze => {}
                    WaitAction::Examine => examined += 1,
                    look => break assert_eq!(look, WaitAction::Expired),
                }
            }
            assert!(began.elapsed() >= Duration::from_millis(5));
            assert!(examined <= 5);
        }
        contend(&mut group);
        let mut wait = WaitLoop::new(Duration::from_millis(5), true);
        let (began, mut polls) = (Instant::now(), 0);
        while wait.pause(&mut group) != WaitAction::Expired {
            polls += 1;
        }
        assert!(began.elapsed() >= Duration::from_millis(5));
        assert!(polls < 1000, "it polled {polls} times in place of sleeping");
        let mut wait = WaitLoop::new(Duration::from_millis(5), true).for_sockets(true);
        let mut dozes = 0;
        loop {
            match wait.pause(&mut group) {
                WaitAction::Doze => dozes += 1,
                WaitAction::Expired => break,
                _ => {}
            }
        }
        assert!(dozes > 0, "the wait never slept for sockets");
        group.abort(&AbortRecord { code: codes::TIMEOUT, rank: 1, text: String::new() });
        let mut wait = WaitLoop::new(Duration::from_secs(60), false);
        while wait.pause(&mut group) != WaitAction::Aborted {}
    }
}
