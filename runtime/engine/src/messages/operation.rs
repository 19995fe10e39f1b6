//! An operation in flight: its result, and the callbacks and wakers that its end notifies.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use roundelay_support::error::Error;
use roundelay_support::fork::OwnerProcess;

/// A message that was sent or received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveredMessage {
    /// The rank that sent it.
    pub source: u32,
    /// Its tag.
    pub tag: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

type CompletionCallback = Box<dyn FnOnce() + Send>;

/// The state that the engine shares with the waiters of an operation.
pub struct MessageOperation {
    /// The process that started it. In its children the operation counts as failed, and its lock may be held for ever.
    process: OwnerProcess,
    done: AtomicBool,
    state: Mutex<OperationState>,
}

struct OperationState {
    result: Option<Result<DeliveredMessage, Error>>,
    then: Vec<CompletionCallback>,
    waker: Option<Waker>,
    /// The owner of the memory.
    kept: Option<Box<dyn Any + Send>>,
}

/// The callbacks, the waker and the memory owner of an operation that has ended. To be notified without any lock held.
#[must_use = "the waiters of the operation are to be notified"]
pub(super) struct OperationCompletion {
    then: Vec<CompletionCallback>,
    waker: Option<Waker>,
    kept: Option<Box<dyn Any + Send>>,
}

impl MessageOperation {
    pub(super) fn new(kept: Option<Box<dyn Any + Send>>) -> Arc<Self> {
        let state = OperationState { result: None, then: Vec::new(), waker: None, kept };
        let (process, done) = (OwnerProcess::here(), AtomicBool::new(false));
        Arc::new(MessageOperation { process, done, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, OperationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if it has ended.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) || !self.process.is_here()
    }

    /// Returns the result, once it has ended.
    pub fn result(&self) -> Option<Result<DeliveredMessage, Error>> {
        if !self.is_done() {
            return None;
        }
        if let Err(error) = self.process.check("message") {
            return Some(Err(error));
        }
        self.lock().result.clone()
    }

    /// Records the result, and returns what is to be notified of it.
    pub(super) fn end(&self, result: Result<DeliveredMessage, Error>) -> OperationCompletion {
        let mut state = self.lock();
        state.result.get_or_insert(result);
        self.done.store(true, Ordering::Release);
        OperationCompletion {
            then: std::mem::take(&mut state.then),
            waker: state.waker.take(),
            kept: state.kept.take(),
        }
    }

    /// Registers a callback for the end; returns it if the operation has ended.
    pub fn then(&self, callback: CompletionCallback) -> Result<(), CompletionCallback> {
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

    /// Registers a waker for the end; returns true if the operation has ended.
    pub fn wakes(&self, waker: &Waker) -> bool {
        if !self.process.is_here() {
            return true;
        }
        let mut state = self.lock();
        state.waker = Some(waker.clone());
        state.result.is_some()
    }
}

impl OperationCompletion {
    /// Drops the memory owner, then notifies the waker and the callbacks. Their panics are caught.
    pub(super) fn notify(self) {
        let OperationCompletion { then, waker, kept } = self;
        let guarded = |call: CompletionCallback| {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        };
        guarded(Box::new(move || drop(kept)));
        if let Some(waker) = waker {
            guarded(Box::new(move || waker.wake()));
        }
        then.into_iter().for_each(guarded);
    }
}
