//! A send or a receive on its way, as those see it who wait for it.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use roundelay_net::error::Error;
use roundelay_net::fork::OwnerProcess;

/// A message that was sent or received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// The rank that sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

type Callback = Box<dyn FnOnce() + Send>;

/// The state that the engine and whoever waits share.
pub struct Operation {
    /// The process whose operation it is. In its children it counts as failed, and its lock may be held for ever.
    process: OwnerProcess,
    done: AtomicBool,
    state: Mutex<State>,
}

struct State {
    result: Option<Result<Delivered, Error>>,
    then: Vec<Callback>,
    waker: Option<Waker>,
    /// Whatever owns the memory.
    kept: Option<Box<dyn Any + Send>>,
}

/// Everything that waits for the end of an operation, to be called by somebody who holds no lock.
#[must_use = "somebody waits for the end"]
pub(super) struct Ended {
    then: Vec<Callback>,
    waker: Option<Waker>,
    kept: Option<Box<dyn Any + Send>>,
}

impl Operation {
    pub(super) fn new(kept: Option<Box<dyn Any + Send>>) -> Arc<Self> {
        let state = State { result: None, then: Vec::new(), waker: None, kept };
        let (process, done) = (OwnerProcess::here(), AtomicBool::new(false));
        Arc::new(Operation { process, done, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if it has ended.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) || !self.process.is_here()
    }

    /// Returns the result, once it has ended.
    pub fn result(&self) -> Option<Result<Delivered, Error>> {
        if !self.is_done() {
            return None;
        }
        if let Err(error) = self.process.check("message") {
            return Some(Err(error));
        }
        self.lock().result.clone()
    }

    /// Ends it.
    pub(super) fn end(&self, result: Result<Delivered, Error>) -> Ended {
        let mut state = self.lock();
        state.result.get_or_insert(result);
        self.done.store(true, Ordering::Release);
        Ended {
            then: std::mem::take(&mut state.then),
            waker: state.waker.take(),
            kept: state.kept.take(),
        }
    }

    /// Has a function called when it has ended; gives it back if it has.
    pub fn then(&self, callback: Callback) -> Result<(), Callback> {
        if !self.process.is_here() {
            return Err(callback);
        }
        let mut state = self.lock();
        if state.result.is_some() {
            return Err(callback);
        }
        state.then.push(callback);
        Ok(())
    }

    /// Has a task woken when it has ended; returns true if it has.
    pub fn wakes(&self, waker: &Waker) -> bool {
        if !self.process.is_here() {
            return true;
        }
        let mut state = self.lock();
        state.waker = Some(waker.clone());
        state.result.is_some()
    }
}

impl Ended {
    /// Tells those who wait. Panics of their functions end here.
    pub(super) fn tell(self) {
        let Ended { then, waker, kept } = self;
        let guarded = |call: Callback| {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        };
        guarded(Box::new(move || drop(kept)));
        if let Some(waker) = waker {
            guarded(Box::new(move || waker.wake()));
        }
        then.into_iter().for_each(guarded);
    }
}
