//! Records the calls that were put into streams: the order between streams, and what a report is about.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::program::Lowered;
use crate::backend::cuda::{CudaStream, Event, Fault};

/// Launches that are remembered: more than ever wait in a stream.
const KEPT: usize = 4096;

/// Shared by a communicator and its graphs.
#[derive(Debug, Clone)]
pub(super) struct Journal(Arc<Mutex<Entries>>);

#[derive(Debug)]
pub(super) struct Entries {
    /// The stream of the latest call.
    latest: Option<CudaStream>,
    order: Event,
    /// Epoch of the last call that was launched.
    epoch: u32,
    /// First epoch and calls of a launch, oldest first.
    launches: VecDeque<(u32, Entry)>,
    /// Calls of the graph that is being captured.
    captured: Option<Vec<Arc<Lowered>>>,
    /// True if calls went into a graph that is not ours: epochs are not known any more.
    astray: bool,
}

#[derive(Debug, Clone)]
enum Entry {
    Call(Arc<Lowered>),
    Graph(Arc<[Arc<Lowered>]>),
}

impl Journal {
    pub(super) fn new(order: Event, epoch: u32) -> Self {
        let launches = VecDeque::new();
        let entries =
            Entries { latest: None, order, epoch, launches, captured: None, astray: false };
        Journal(Arc::new(Mutex::new(entries)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Returns the stream that the latest call was put into.
    pub(super) fn latest(&self) -> Option<CudaStream> {
        self.latest.clone()
    }

    /// Orders what is put into a stream now after the calls before it, in whatever stream they are.
    pub(super) fn follow(&mut self, stream: &CudaStream) -> Result<(), Fault> {
        match &self.latest {
            Some(latest) if latest.raw() == stream.raw() => return Ok(()),
            Some(latest) => {
                self.order.record(latest)?;
                stream.follow(&self.order)?;
            }
            None => {}
        }
        self.latest = Some(stream.clone());
        Ok(())
    }

    /// Records that a call was put into a stream, or into the graph that is captured from it.
    pub(super) fn note(&mut self, captured: bool, call: &Arc<Lowered>) {
        match (&mut self.captured, captured) {
            (Some(list), true) => list.push(call.clone()),
            (None, true) => self.astray = true,
            (_, false) => self.launched(1, Entry::Call(call.clone())),
        }
    }

    /// Begins a capture.
    pub(super) fn capture(&mut self) {
        self.captured = Some(Vec::new());
    }

    /// Ends the capture; returns its calls.
    pub(super) fn captured(&mut self) -> Arc<[Arc<Lowered>]> {
        self.captured.take().unwrap_or_default().into()
    }

    /// Records that a graph with these calls was put into a stream.
    pub(super) fn replayed(&mut self, calls: &Arc<[Arc<Lowered>]>) {
        self.launched(calls.len() as u32, Entry::Graph(calls.clone()));
    }

    fn launched(&mut self, calls: u32, launch: Entry) {
        if self.launches.len() == KEPT {
            self.launches.pop_front();
        }
        self.launches.push_back((self.epoch.wrapping_add(1), launch));
        self.epoch = self.epoch.wrapping_add(calls);
    }

    /// Returns the call of an epoch, as far as it is known.
    pub(super) fn call(&self, epoch: u32) -> Option<Arc<Lowered>> {
        let (first, launch) =
            self.launches.iter().rev().find(|(first, _)| epoch.wrapping_sub(*first) < 1 << 31)?;
        match launch {
            _ if self.astray => None,
            Entry::Call(call) => (epoch == *first).then(|| call.clone()),
            Entry::Graph(calls) => calls.get(epoch.wrapping_sub(*first) as usize).cloned(),
        }
    }
}
