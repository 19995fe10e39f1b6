//! Starts busy programs beside the ranks: `bench --neighbours N --nice K`.
//!
//! Ranks seldom have a machine to themselves: data loaders and other jobs want the cores, too. Each neighbour is a
//! thread of the command itself that computes without end at that niceness; ranks and peers are processes of
//! their own, so the scheduler sees as many programs as a user would have started.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use roundelay_dsl::diag::codes;

use crate::report::{VerbError, fault};

/// Busy programs, which end when this is dropped.
pub(super) struct BusyNeighbours {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyNeighbours {
    /// Starts `count` busy programs at that niceness.
    pub(super) fn start(count: u32, nice: i32) -> Result<Self, VerbError> {
        let end = Arc::new(AtomicBool::new(false));
        let mut all = BusyNeighbours { end: end.clone(), threads: Vec::new() };
        let (sender, receiver) = std::sync::mpsc::channel();
        for _ in 0..count {
            let (end, sender) = (end.clone(), sender.clone());
            let neighbour = std::thread::Builder::new().spawn(move || {
                let own = Some(rustix::thread::gettid());
                let set = rustix::process::setpriority_process(own, nice);
                let refused = set.is_err();
                if sender.send(set).is_err() || refused {
                    return;
                }
                while !end.load(Ordering::Relaxed) {
                    std::hint::black_box(0);
                }
            });
            all.threads.push(neighbour.map_err(|e| {
                let text = format!(
                    "cannot start {count} threads beside the ranks: {e}; raise `ulimit -u`"
                );
                VerbError::Run(fault(codes::START, text))
            })?);
        }
        for answer in receiver.iter().take(all.threads.len()) {
            answer.map_err(|e| {
                let text = format!("the system refuses a niceness of {nice} ({e}): less than that of this program needs rights");
                VerbError::Usage(text)
            })?;
        }
        Ok(all)
    }
}

impl Drop for BusyNeighbours {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has ended, too.
            let _ = thread.join();
        }
    }
}
