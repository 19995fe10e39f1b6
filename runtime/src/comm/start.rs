//! Starts work in the background.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::communicator::Communicator;
use super::settings::CallSettings;
use super::work::{Work, promised};
use super::worker::{Job, ProgressWorker, WorkerOrder, WorkerState};
use roundelay_engine::EngineCore;
use roundelay_support::error::Error;

impl WorkerState for Communicator {
    fn of_core(core: Box<EngineCore>) -> Self {
        Communicator::new(core, CallSettings::default())
    }

    fn set(&mut self, settings: CallSettings) {
        self.settings = settings;
    }

    fn into_core(self) -> Option<Box<EngineCore>> {
        Communicator::into_core(self)
    }
}

impl Communicator {
    /// Begins work in the background, in issue order: the closure runs on the communicator's own
    /// progress thread after all work started before, and makes its calls there. Buffers move into
    /// the closure and come back as its result, so that they cannot be touched meanwhile.
    ///
    /// ```
    /// # use roundelay::{Communicator, RedOp};
    /// # let mut comm = Communicator::local(1)?.remove(0);
    /// let mut gradients = comm.alloc::<f32>(1000)?;
    /// let work = comm.start(move |comm| {
    ///     comm.all_reduce(&mut gradients, RedOp::Avg)?;
    ///     Ok(gradients)
    /// });
    /// // ... compute something else ...
    /// let gradients = work.wait()?;
    /// # assert_eq!(gradients.len(), 1000);
    /// # Ok::<(), roundelay::Error>(())
    /// ```
    ///
    /// A call on the communicator itself waits for pending work first. Options in force at the start
    /// ([`Communicator::with`], [`Communicator::set_timeout`]) hold for the work. A closure that panics
    /// fails its work only; the other ranks find out by what this rank calls next, or by its silence.
    pub fn start<R, F>(&mut self, work: F) -> Work<R>
    where
        R: Send + 'static,
        F: FnOnce(&mut Communicator) -> Result<R, Error> + Send + 'static,
    {
        if let Err(error) = self.check_process() {
            let (promise, failed) = promised();
            promise.end(Err(error));
            return failed;
        }
        let worker = match self.worker.take().map_or_else(|| ProgressWorker::start(self.rank), Ok) {
            Ok(worker) => &*self.worker.insert(worker),
            Err(error) => {
                let (promise, failed) = promised();
                promise.end(Err(error));
                return failed;
            }
        };
        let (promise, handle) = worker.promise();
        let pending = worker.pending();
        let job: Job<Communicator> = Box::new(move |comm| {
            promise.begin();
            let result = catch_unwind(AssertUnwindSafe(|| work(comm)));
            drop(pending);
            promise.end(result.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))));
        });
        if let Some(core) = self.home.take()
            && let Err(WorkerOrder::Core(core)) = worker.order(WorkerOrder::Core(core))
        {
            self.home = Some(core);
        }
        // A job that cannot be sent is dropped, and its promise with it: the work has then failed.
        let _ = worker.order(WorkerOrder::Job(job, self.settings.clone()));
        handle
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::Work(format!("the work panicked: {}", text.unwrap_or("without a message")))
}
