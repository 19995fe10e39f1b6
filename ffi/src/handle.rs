//! A communicator that any thread may use.

use std::any::Any;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use roundelay::cuda::CudaOptions;
use roundelay::internal::tunables::INTERRUPT_CHECK_INTERVAL;
use roundelay::internal::{OwnerProcess, interrupt, settle};
use roundelay::launch::{JobSetup, RankHandles};
use roundelay::message::{DeliveredMessage, TaggedMessages};
use roundelay::operation::MemoryKind;
use roundelay::{Communicator, DType, Error, RedOp, Reduction};

use crate::buffer::ElementBuffer;
use crate::generation::GenerationFacts;
use crate::gpu_watch;
use crate::pending::PendingOperation;
use crate::request::{CallRequest, TaggedMessage};
use crate::request_options::RequestOptions;

/// A communicator that any thread may use, and end while another one waits in it. Operations are collective: all
/// ranks perform, or start, the same ones in the same order. Clones are the same communicator.
#[derive(Clone)]
pub struct CommHandle {
    shared: Arc<HandleState>,
}

pub(crate) struct HandleState {
    /// The process that is the rank. In its children the locks below may be held for ever.
    process: OwnerProcess,
    now: RwLock<GenerationFacts>,
    /// The generation of `now`.
    generation: AtomicU64,
    /// None after it was shut down.
    comm: Mutex<Option<Communicator>>,
    /// Owners of memory that is the communicator's as long as that is.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl CommHandle {
    /// Takes a communicator over.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::messages`].
    pub fn new(mut comm: Communicator) -> Result<Self, Error> {
        let now = RwLock::new(GenerationFacts::of(&mut comm)?);
        let generation = AtomicU64::new(comm.generation());
        let (comm, kept) = (Mutex::new(Some(comm)), Mutex::default());
        let process = OwnerProcess::here();
        Ok(CommHandle { shared: Arc::new(HandleState { process, now, generation, comm, kept }) })
    }

    /// Joins the other ranks, which can pass a note: see [`Communicator::join_with`].
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::join_with`].
    pub fn join(
        rank: u32,
        size: u32,
        setup: &JobSetup,
        share: impl FnOnce(Option<&str>) -> Result<String, Error>,
    ) -> Result<Self, Error> {
        CommHandle::new(Communicator::join_with(rank, size, setup, share)?)
    }

    /// Makes a communicator of this rank alone, which is to come to others: see [`Communicator::alone`].
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::alone`].
    pub fn alone(setup: &JobSetup) -> Result<Self, Error> {
        CommHandle::new(Communicator::alone(setup)?)
    }

    /// Makes all ranks of a job whose ranks are threads of this process.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::local`].
    pub fn local(ranks: u32) -> Result<Vec<Self>, Error> {
        Communicator::local(ranks)?.into_iter().map(CommHandle::new).collect()
    }

    /// Returns the number of this rank.
    pub fn rank(&self) -> u32 {
        self.now(|now| now.rank)
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.now(|now| now.size)
    }

    fn now<R>(&self, read: impl FnOnce(&GenerationFacts) -> R) -> R {
        read(&self.shared.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Performs a request on this thread, after all that were started.
    ///
    /// # Errors
    ///
    /// The errors of [`CallRequest::perform`]; [`Error::Usage`] after [`CommHandle::shutdown`].
    pub fn perform(&self, request: CallRequest, options: RequestOptions) -> Result<(), Error> {
        self.under(options, |comm| request.perform(comm))
    }

    /// Calls a function with the communicator under options, as [`CommHandle::with`].
    pub(crate) fn under<R>(
        &self,
        options: RequestOptions,
        call: impl FnOnce(&mut Communicator) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.with(|comm| {
            let options = options.of(comm)?;
            call(&mut comm.with(options))
        })
    }

    /// Allocates memory that other ranks of this host read, zeroed: see [`Communicator::alloc`].
    ///
    /// # Errors
    ///
    /// Those of that function; [`Error::Usage`] after [`CommHandle::shutdown`].
    pub fn alloc(&self, bytes: usize) -> Result<roundelay::Buffer<u8>, Error> {
        self.with(|comm| comm.alloc(bytes))
    }

    /// Keeps an owner of memory until the communicator is shut down.
    pub(crate) fn keep(&self, owner: Box<dyn Any + Send>) {
        self.kept().push(owner);
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Box<dyn Any + Send>>> {
        self.shared.kept.lock()
    }

    /// Starts a request in the background. `kept` is dropped when it has ended: whatever owns the memory.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] after [`CommHandle::shutdown`], or if the stream is none. Errors of the call come with
    /// [`PendingOperation::wait`].
    pub fn start(
        &self,
        request: CallRequest,
        options: RequestOptions,
        kept: Box<dyn Any + Send>,
    ) -> Result<PendingOperation, Error> {
        self.with(|comm| {
            let options = options.of(comm)?;
            let work = comm.with(options).start(move |comm| {
                let done = request.perform(comm);
                drop(kept);
                done
            });
            Ok(PendingOperation::of(work))
        })
    }

    /// Sends or receives a message with a tag on this thread, whatever other threads do; says who sent it.
    ///
    /// # Errors
    ///
    /// The errors of [`TaggedMessages::send`]; [`Error::Unsupported`] for memory of a GPU; [`Error::Usage`] after
    /// [`CommHandle::shutdown`].
    pub fn message(
        &self,
        message: &TaggedMessage,
        timeout: Option<Duration>,
    ) -> Result<DeliveredMessage, Error> {
        let messages = self.messages(message, timeout)?;
        let TaggedMessage { buffer, peer, tag, is_send } = message;
        match is_send {
            false => messages.recv(&mut buffer.write()?, *peer, *tag),
            true => {
                messages.send(&buffer.read()?, message.receiver()?, *tag)?;
                let bytes = (buffer.elements() * buffer.dtype().size()) as u64;
                Ok(DeliveredMessage { source: self.rank(), tag: *tag, bytes })
            }
        }
    }

    /// Starts to send or receive a message with a tag. `kept` is dropped when it has ended.
    ///
    /// # Errors
    ///
    /// The errors of [`TaggedMessages::send_async`], and those of [`CommHandle::message`] about its memory.
    pub fn start_message(
        &self,
        message: &TaggedMessage,
        timeout: Option<Duration>,
        kept: Box<dyn Any + Send>,
    ) -> Result<PendingOperation, Error> {
        let messages = self.messages(message, timeout)?;
        let TaggedMessage { buffer, peer, tag, is_send } = message;
        let pending = match is_send {
            true => PendingOperation::sent(messages.send_async(
                buffer.read()?,
                message.receiver()?,
                *tag,
            )?),
            false => {
                PendingOperation::received(messages.recv_async(buffer.write()?, *peer, *tag)?)
            }
        };
        pending.on_completion(move |_| drop(kept));
        Ok(pending)
    }

    fn messages(
        &self,
        message: &TaggedMessage,
        timeout: Option<Duration>,
    ) -> Result<TaggedMessages, Error> {
        if message.buffer.memory() == MemoryKind::Device {
            return Err(Error::Unsupported(
                "messages with tags move memory of this host only: send what lies on a GPU without a tag, in a \
                 batch"
                    .into(),
            ));
        }
        self.check_process()?;
        let ends = self.now(|now| now.ends.clone());
        let messages = ends.ok_or_else(shut_down)?.messages;
        Ok(match timeout {
            Some(timeout) => messages.with_timeout(timeout),
            None => messages,
        })
    }

    /// Calls a function with the communicator, after all operations that were started before it makes a call.
    ///
    /// # Errors
    ///
    /// The errors of the function; [`Error::Usage`] after [`CommHandle::shutdown`].
    pub fn with<R>(
        &self,
        call: impl FnOnce(&mut Communicator) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.check_process()?;
        match &mut *self.lock()? {
            Some(comm) => self.call(comm, call),
            None => Err(shut_down()),
        }
    }

    /// Calls a function with the communicator, which may go on in a new generation meanwhile.
    fn call<R>(
        &self,
        comm: &mut Communicator,
        call: impl FnOnce(&mut Communicator) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let result = call(comm);
        let (known, generation) = (&self.shared.generation, comm.generation());
        if known.load(Ordering::Relaxed) != generation {
            let now = GenerationFacts::of(comm)?;
            *self.shared.now.write().unwrap_or_else(PoisonError::into_inner) = now;
            known.store(generation, Ordering::Relaxed);
        }
        result
    }

    /// Calls a function with the communicator, unless another thread uses it now: then returns `None` at once.
    ///
    /// # Errors
    ///
    /// The errors of [`CommHandle::with`].
    pub fn try_with<R>(
        &self,
        call: impl FnOnce(&mut Communicator) -> Result<R, Error>,
    ) -> Option<Result<R, Error>> {
        if let Err(error) = self.check_process() {
            return Some(Err(error));
        }
        let mut comm = self.shared.comm.try_lock()?;
        Some(comm.as_mut().map_or_else(|| Err(shut_down()), |comm| self.call(comm, call)))
    }

    /// Makes a communicator of some of the ranks, in the order in which they are listed; `None` on a rank that
    /// lists none. Collective.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::split`].
    pub fn split(&self, ranks: &[u32]) -> Result<Option<CommHandle>, Error> {
        self.with(|comm| comm.split(ranks))?.map(CommHandle::new).transpose()
    }

    /// Makes a communicator of the same ranks with a GPU each: that device, or one by the rank's number. Collective.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::cuda`].
    pub fn cuda(&self, device: Option<u32>) -> Result<CommHandle, Error> {
        CommHandle::new(self.with(|comm| comm.cuda(opened(device)))?).map(Self::watched)
    }

    /// Makes a communicator of the same ranks, of which those have a GPU that give one, as [`CommHandle::cuda`].
    /// Collective.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::cuda_mixed`].
    pub fn cuda_mixed(&self, device: Option<Option<u32>>) -> Result<CommHandle, Error> {
        CommHandle::new(self.with(|comm| comm.cuda_mixed(device.map(opened)))?).map(Self::watched)
    }

    /// Returns this rank's handle for the next generation: see [`Communicator::handle`].
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::handle`].
    pub fn handle(&self) -> Result<String, Error> {
        self.with(Communicator::handle)
    }

    /// Goes on as a rank of a new generation, after all operations that were started: see
    /// [`Communicator::reconfigure`].
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::reconfigure`].
    pub fn reconfigure(
        &self,
        id: &str,
        handles: RankHandles<'_>,
        timeout: Duration,
    ) -> Result<(), Error> {
        self.with(|comm| comm.reconfigure(id, handles, timeout))
    }

    /// Goes on with the ranks that are left after a failure: see [`Communicator::shrink`].
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::shrink`].
    pub fn shrink(&self, timeout: Duration) -> Result<(), Error> {
        self.with(|comm| comm.shrink(timeout))
    }

    /// Reduces the buffers of all ranks in place, and goes on if one of them ends meanwhile; returns those whose
    /// contributions are in the result: see [`Communicator::tolerant_all_reduce`].
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::tolerant_all_reduce`]; [`Error::Unsupported`] for memory of a GPU.
    pub fn tolerant_all_reduce(&self, data: &ElementBuffer, op: RedOp) -> Result<Vec<u32>, Error> {
        data.on_host()?;
        let mut data = data.write()?;
        self.with(|comm| comm.tolerant_all_reduce(&mut data, op))
    }

    /// Says which algorithm a call would use, and why.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::explain`].
    pub fn explain(
        &self,
        collective: &str,
        bytes: u64,
        dtype: DType,
        reduction: Reduction,
    ) -> Result<String, Error> {
        let choice = self.with(|comm| comm.explain(collective, bytes, dtype, reduction.op))?;
        Ok(format!("{}.{}, by {}", choice.entry.collective, choice.name(), choice.source))
    }

    /// Ends the communicator on all ranks, from any thread, at once: operations that are pending, or follow, fail
    /// with [`Error::Aborted`].
    ///
    /// Returns true if no operation of this rank writes to memory of this host any more, false if one may do so
    /// until it has ended: see [`AbortHandle::abort`](roundelay::AbortHandle::abort).
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a process that was forked from the rank's: the ranks go on.
    pub fn abort(&self, why: &str) -> Result<bool, Error> {
        self.check_process()?;
        let ends = self.now(|now| now.ends.clone());
        ends.map_or(Ok(true), |ends| ends.abort.try_abort(why))
    }

    /// Fails in a process that was forked from the rank's.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    #[inline]
    pub fn check_process(&self) -> Result<(), Error> {
        self.shared.process.check("communicator")
    }

    /// Returns true once any rank has ended the communicator.
    pub fn is_aborted(&self) -> bool {
        self.now(GenerationFacts::is_aborted)
    }

    /// Ends this rank's part after all operations that were started, and frees what it holds. Others may go on
    /// with operations that this rank has performed.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a process that was forked from the rank's, which goes on.
    pub fn shutdown(&self) -> Result<(), Error> {
        self.check_process()?;
        let mut comm = self.lock()?;
        // Operations that an interrupt has ended have errors of their own.
        let _ = comm.as_mut().map(settle);
        let ended = comm.take();
        drop(comm);
        drop(ended);
        self.shared.now.write().unwrap_or_else(PoisonError::into_inner).end();
        let kept = std::mem::take(&mut *self.kept());
        drop(kept);
        Ok(())
    }

    /// Has a communicator of GPUs watched while its program waits for them.
    fn watched(self) -> Self {
        let shared = Arc::downgrade(&self.shared);
        gpu_watch::add(Box::new(move || look(&shared)));
        self
    }

    /// Returns true if it was shut down, as far as that can be seen at once.
    fn is_shut_down(&self) -> bool {
        self.shared.comm.try_lock().is_some_and(|comm| comm.is_none())
    }

    /// Takes the communicator, from calls of other threads.
    fn lock(&self) -> Result<MutexGuard<'_, Option<Communicator>>, Error> {
        loop {
            if let Some(comm) = self.shared.comm.try_lock_for(INTERRUPT_CHECK_INTERVAL) {
                return Ok(comm);
            }
            if interrupt::is_in_check() {
                let text = "a handler of signals cannot make calls on a communicator that is in a call: call `abort`, \
                            or raise an exception, which ends that call";
                return Err(Error::Usage(text.into()));
            }
            if let Some(error) = interrupt::error(self.rank()) {
                return Err(error);
            }
        }
    }
}

fn opened(device: Option<u32>) -> CudaOptions {
    CudaOptions { device, ..CudaOptions::default() }
}

fn shut_down() -> Error {
    Error::Usage("this communicator was shut down: make a new one".into())
}

/// Looks at a communicator once; returns true if it is to be watched further.
fn look(watched: &Weak<HandleState>) -> bool {
    let Some(shared) = watched.upgrade() else { return false };
    let handle = CommHandle { shared };
    match handle.try_with(roundelay::Communicator::look_beside) {
        None | Some(Ok(())) => true,
        Some(Err(_)) if handle.is_shut_down() => false,
        Some(Err(error)) => {
            // The program may wait for its stream and never make another call.
            let rank = handle.rank();
            let text = format!(
                "roundelay: rank {rank}: {error} [{}]; what its GPU calls since then have written is undefined\n",
                error.code().0
            );
            let _ = std::io::stderr().write_all(text.as_bytes());
            false
        }
    }
}
