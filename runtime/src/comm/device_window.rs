//! Windows of device memory.

use super::communicator::Communicator;
use super::memory::{ElementMemory, MemoryMut};
use roundelay_cuda::{CopyDirection, Cuda, DevicePtr, WindowPart, WindowSpan};
use roundelay_engine::window::{AtomicFetch, WORD_BYTES};
use roundelay_support::dtype::RedOp;
use roundelay_support::error::Error;

/// Device memory of every rank that the others put to and get from, while its owner does something else
/// ([`Communicator::device_window`]). Places are counted in elements.
///
/// Operations are those of a [`Window`](crate::window::Window) of host memory. They are put into the stream of the
/// communicator that they are given ([`Communicator::on`] gives another one) and return at once, and graphs capture
/// them. What a rank puts into a stream happens in its order; a signal is seen after everything before it.
/// `docs/windows.md` has the rules.
///
/// It lives as long as the communicator that made it, and operations need that one. Dropped without
/// [`DeviceWindow::free`], the memory stays mapped until the communicator is dropped.
#[derive(Debug)]
pub struct DeviceWindow<M> {
    memory: M,
    part: WindowPart,
}

impl Communicator {
    /// Makes memory of every rank's GPU a window: the others put to it and get from it while its owner does something
    /// else. All ranks call together, with memory of one length. Memory that is not mapped by all yet is mapped
    /// ([`Communicator::register`]), which must not be freed before the communicator is dropped then.
    ///
    /// ```no_run
    /// # fn train(mut comm: roundelay::Communicator) -> Result<(), roundelay::Error> {
    /// use roundelay::cuda::CudaOptions;
    ///
    /// let mut comm = comm.cuda(CudaOptions::default())?;
    /// let other = 1 - comm.rank();
    /// let buffer = comm.alloc_device::<f32>(1 << 20)?;
    /// let window = comm.device_window(buffer)?;
    /// let gradients = comm.alloc_device::<f32>(1000)?;
    /// window.put(&mut comm, &gradients, other, 0)?;
    /// window.signal(&mut comm, other)?;
    /// window.wait_signal(&mut comm, other)?;   // what follows in the stream sees the other's gradients
    /// comm.synchronize(&comm.stream()?)?;
    /// let buffer = window.free(&mut comm)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// On all ranks if any fails: [`Error::Usage`] if lengths differ or are 0, or if ranks are on several hosts and the
    /// memory of one begins at no multiple of 8 bytes; [`Error::Cuda`] if the memory cannot be shared.
    pub fn device_window<M>(&mut self, memory: M) -> Result<DeviceWindow<M>, Error>
    where
        M: MemoryMut<Engine = Cuda>,
    {
        let dtype = memory.dtype();
        let bytes = (memory.elements() * dtype.size()) as u64;
        let (core, gpu) = self.both()?;
        let part = gpu.window(core, (memory.lend(), bytes, dtype))?;
        Ok(DeviceWindow { memory, part })
    }
}

impl<M> DeviceWindow<M> {
    /// Returns this rank's memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Signals a rank, behind what is in the stream: a rank that has waited for the signal sees what was put before.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the rank does not exist, or the window is another communicator's; [`Error::Cuda`] if the
    /// driver refuses, which ends the communicator.
    pub fn signal(&self, comm: &mut Communicator, peer: u32) -> Result<(), Error> {
        let (core, gpu, stream) = comm.streamed()?;
        gpu.signal(core, (&self.part, peer), false, &stream)
    }

    /// Makes what follows in the stream wait for a signal of a rank, which it takes: each ends one wait.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceWindow::signal`]. [`Communicator::synchronize`] returns [`Error::Timeout`] if the signal
    /// does not come within the communicator's timeout, and [`Error::LostRank`] if that rank has ended: they end the
    /// communicator.
    pub fn wait_signal(&self, comm: &mut Communicator, peer: u32) -> Result<(), Error> {
        let (core, gpu, stream) = comm.streamed()?;
        gpu.signal(core, (&self.part, peer), true, &stream)
    }

    /// Waits until everything in the stream of calls is done, and all that this rank has put to the part of a rank is
    /// there. To a rank of the same host that is what [`Communicator::synchronize`] waits for; to one on another host a
    /// put is over in the stream when its elements may be written again.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceWindow::signal`] and of [`Communicator::synchronize`].
    pub fn flush(&self, comm: &mut Communicator, peer: u32) -> Result<(), Error> {
        let (core, gpu, stream) = comm.streamed()?;
        gpu.flush(core, (&self.part, peer), &stream)
    }

    /// Returns the address of the part of a rank, as this rank maps it: for kernels of one's own, as long as the window
    /// is.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the rank does not exist, or the window is another communicator's; [`Error::Window`] if the
    /// rank is on another host.
    pub fn map_remote(&self, comm: &mut Communicator, peer: u32) -> Result<DevicePtr, Error> {
        let (_, gpu) = comm.both()?;
        gpu.map(&self.part, peer)
    }

    /// Ends the window, and returns its memory, to which no rank puts and from which none gets any more. All ranks call
    /// together; each waits for what it has put into streams.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::synchronize`].
    pub fn free(self, comm: &mut Communicator) -> Result<M, Error> {
        let (core, gpu) = comm.both()?;
        gpu.free_window(core, &self.part)?;
        Ok(self.memory)
    }
}

impl<M: MemoryMut<Engine = Cuda>> DeviceWindow<M> {
    /// Copies elements to the part of a rank, from element `at` of it on. `data` may be written again by what follows
    /// in the stream.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if they lie beyond the end of the peer's part, and the errors of [`DeviceWindow::signal`].
    pub fn put<D>(
        &self,
        comm: &mut Communicator,
        data: &D,
        peer: u32,
        at: usize,
    ) -> Result<(), Error>
    where
        D: ElementMemory<Engine = Cuda, Element = M::Element>,
    {
        let there = self.span(data, peer, at)?;
        let (core, gpu, stream) = comm.streamed()?;
        gpu.transfer(core, (&self.part, CopyDirection::Put), (data.lend(), there), &stream)
    }

    /// Copies elements of the part of a rank, from element `at` of it on, to `data`.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceWindow::put`].
    pub fn get<D>(
        &self,
        comm: &mut Communicator,
        data: &mut D,
        peer: u32,
        at: usize,
    ) -> Result<(), Error>
    where
        D: MemoryMut<Engine = Cuda, Element = M::Element>,
    {
        let there = self.span(data, peer, at)?;
        let (core, gpu, stream) = comm.streamed()?;
        gpu.transfer(core, (&self.part, CopyDirection::Get), (data.lend_mut(), there), &stream)
    }

    /// Combines elements with those of the part of a rank, from element `at` of it on: each in one step with regard to
    /// all accumulates, as [`Window::accumulate`](crate::window::Window::accumulate) does. `data` may be written again
    /// by what follows in the stream. The first one of an operator compiles its kernel.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceWindow::put`]; [`Error::Usage`] for an operator that the type has not, and for `avg` and
    /// `premul_sum`, which are of all ranks together; [`Error::Unsupported`] if the rank is on another host.
    pub fn accumulate<D>(
        &self,
        comm: &mut Communicator,
        data: &D,
        op: RedOp,
        peer: u32,
        at: usize,
    ) -> Result<(), Error>
    where
        D: ElementMemory<Engine = Cuda, Element = M::Element>,
    {
        let there = self.span(data, peer, at)?;
        let (core, gpu, stream) = comm.streamed()?;
        let operands = (&self.part, data.lend(), there);
        gpu.accumulate(core, operands, (data.dtype(), op), &stream)
    }

    /// Adds to the 64-bit word that begins at element `at` of the part of a rank, wrapping around, in one step with
    /// regard to [`DeviceWindow::fetch_add`] and [`DeviceWindow::compare_swap`] of all ranks, and copies what it was to
    /// the first 8 bytes of `before`. It is a word of 8 bytes whatever the elements are. GPUs that are connected by
    /// NVLink do so; over PCI Express such steps are not one.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceWindow::put`]; [`Error::Usage`] if the word, or `before`, does not begin at a multiple of
    /// 8 bytes, or `before` has fewer.
    pub fn fetch_add<R>(
        &self,
        comm: &mut Communicator,
        value: u64,
        peer: u32,
        at: usize,
        before: &mut R,
    ) -> Result<(), Error>
    where
        R: MemoryMut<Engine = Cuda>,
    {
        self.change(comm, AtomicFetch::Add(value), (peer, at), before)
    }

    /// Stores `to` in the 64-bit word that begins at element `at` of the part of a rank if it is `from`, in one step as
    /// [`DeviceWindow::fetch_add`] adds, and copies what it was to the first 8 bytes of `before`.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceWindow::fetch_add`].
    pub fn compare_swap<R>(
        &self,
        comm: &mut Communicator,
        from: u64,
        to: u64,
        peer: u32,
        at: usize,
        before: &mut R,
    ) -> Result<(), Error>
    where
        R: MemoryMut<Engine = Cuda>,
    {
        self.change(comm, AtomicFetch::Swap(from, to), (peer, at), before)
    }

    fn change<R>(
        &self,
        comm: &mut Communicator,
        fetch: AtomicFetch,
        (peer, at): (u32, usize),
        before: &mut R,
    ) -> Result<(), Error>
    where
        R: MemoryMut<Engine = Cuda>,
    {
        if before.elements().saturating_mul(before.dtype().size()) < WORD_BYTES as usize {
            return Err(Error::Usage("the result of an atomic operation needs 8 bytes".into()));
        }
        let at = (at as u64).saturating_mul(self.memory.dtype().size() as u64);
        let word = WindowSpan { peer, at, bytes: WORD_BYTES };
        let (core, gpu, stream) = comm.streamed()?;
        gpu.fetch(core, (&self.part, word, before.lend_mut()), fetch, &stream)
    }

    /// Returns the place of as many elements as `data` has in a peer's part, from element `at` on.
    fn span<D: ElementMemory>(&self, data: &D, peer: u32, at: usize) -> Result<WindowSpan, Error> {
        let (theirs, own) = (self.memory.dtype(), data.dtype());
        if theirs != own {
            return Err(Error::Usage(format!("elements of {own}, and the window has {theirs}")));
        }
        let bytes = |elements: usize| (elements as u64).saturating_mul(own.size() as u64);
        Ok(WindowSpan { peer, at: bytes(at), bytes: bytes(data.elements()) })
    }
}
