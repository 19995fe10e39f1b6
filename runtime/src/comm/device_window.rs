//! Windows of device memory.

use super::communicator::Communicator;
use super::memory::{ElementMemory, MemoryMut};
use roundelay_cuda::{CopyDirection, Cuda, CudaRank, CudaWindow, DevicePtr, Gpu, WindowSpan};
use roundelay_engine::EngineCore;
use roundelay_engine::window::AtomicFetch;
use roundelay_support::error::Error;

/// The bytes of a word that is changed in one step.
const WORD: usize = 8;

impl Communicator {
    /// Makes memory of every rank's GPU a window: the others put to it and get from it while its owner does something
    /// else. All ranks call together, with memory of one length. Memory that is not mapped by all yet is mapped
    /// ([`Communicator::register`]), which must not be freed before the communicator is dropped then.
    ///
    /// Operations on a window are put into the stream of calls ([`Communicator::on`]) and return at once, and graphs
    /// capture them. What a rank puts into a stream happens in its order; a signal is seen after everything before it.
    /// `docs/windows.md` has the rules.
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
    /// comm.put(&window, &gradients, other, 0)?;
    /// comm.signal(&window, other)?;
    /// comm.wait_signal(&window, other)?;   // what follows in the stream sees the other's gradients
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
    pub fn device_window<M>(&mut self, memory: M) -> Result<CudaWindow<M>, Error>
    where
        M: MemoryMut<Engine = Cuda>,
    {
        let dtype = memory.dtype();
        let bytes = (memory.elements() * dtype.size()) as u64;
        let (core, gpu) = self.both()?;
        let part = gpu.window(core, (memory.lend(), bytes, dtype))?;
        Ok(CudaWindow::new(memory, part))
    }

    /// Copies elements to the part of a rank, from element `at` of it on. `data` may be written again by what follows
    /// in the stream.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if they lie beyond the end of the peer's part, [`Error::Usage`] if the rank does not exist;
    /// [`Error::Cuda`] if the driver refuses, which ends the communicator.
    pub fn put<M, D>(
        &mut self,
        window: &CudaWindow<M>,
        data: &D,
        peer: u32,
        at: usize,
    ) -> Result<(), Error>
    where
        M: MemoryMut<Engine = Cuda>,
        D: ElementMemory<Engine = Cuda, Element = M::Element>,
    {
        let there = there(window, data, peer, at)?;
        let (core, gpu, stream) = self.streamed()?;
        gpu.transfer(core, (window.part(), CopyDirection::Put), (data.lend(), there), &stream)
    }

    /// Copies elements of the part of a rank, from element `at` of it on, to `data`.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::put`].
    pub fn get<M, D>(
        &mut self,
        window: &CudaWindow<M>,
        data: &mut D,
        peer: u32,
        at: usize,
    ) -> Result<(), Error>
    where
        M: MemoryMut<Engine = Cuda>,
        D: MemoryMut<Engine = Cuda, Element = M::Element>,
    {
        let there = there(window, data, peer, at)?;
        let (core, gpu, stream) = self.streamed()?;
        gpu.transfer(core, (window.part(), CopyDirection::Get), (data.lend_mut(), there), &stream)
    }

    /// Signals a rank, behind what is in the stream: a rank that has waited for the signal sees what was put before.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::put`].
    pub fn signal<M>(&mut self, window: &CudaWindow<M>, peer: u32) -> Result<(), Error> {
        let (core, gpu, stream) = self.streamed()?;
        gpu.signal(core, (window.part(), peer), false, &stream)
    }

    /// Makes what follows in the stream wait for a signal of a rank, which it takes: each ends one wait.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::put`]. [`Communicator::synchronize`] returns [`Error::Timeout`] if the signal does
    /// not come within the communicator's timeout, and [`Error::LostRank`] if that rank has ended: they end the
    /// communicator.
    pub fn wait_signal<M>(&mut self, window: &CudaWindow<M>, peer: u32) -> Result<(), Error> {
        let (core, gpu, stream) = self.streamed()?;
        gpu.signal(core, (window.part(), peer), true, &stream)
    }

    /// Adds to the 64-bit word that begins at element `at` of the part of a rank, wrapping around, in one step with
    /// regard to [`Communicator::fetch_add`] and [`Communicator::compare_swap`] of all ranks, and copies what it was to
    /// the first 8 bytes of `result`. It is a word of 8 bytes whatever the elements are. GPUs that are connected by
    /// NVLink do so; over PCI Express such steps are not one.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::put`]; [`Error::Usage`] if the word, or the result, does not begin at a multiple
    /// of 8 bytes.
    pub fn fetch_add<M, R>(
        &mut self,
        window: &CudaWindow<M>,
        value: u64,
        peer: u32,
        at: usize,
        result: &mut R,
    ) -> Result<(), Error>
    where
        M: MemoryMut<Engine = Cuda>,
        R: MemoryMut<Engine = Cuda>,
    {
        self.change(window, (peer, at), AtomicFetch::Add(value), result)
    }

    /// Writes `value` to the 64-bit word that begins at element `at` of the part of a rank if it is `compared`, as
    /// [`Communicator::fetch_add`] adds.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::fetch_add`].
    pub fn compare_swap<M, R>(
        &mut self,
        window: &CudaWindow<M>,
        (compared, value): (u64, u64),
        peer: u32,
        at: usize,
        result: &mut R,
    ) -> Result<(), Error>
    where
        M: MemoryMut<Engine = Cuda>,
        R: MemoryMut<Engine = Cuda>,
    {
        self.change(window, (peer, at), AtomicFetch::Swap(compared, value), result)
    }

    fn change<M, R>(
        &mut self,
        window: &CudaWindow<M>,
        (peer, at): (u32, usize),
        fetch: AtomicFetch,
        result: &mut R,
    ) -> Result<(), Error>
    where
        M: MemoryMut<Engine = Cuda>,
        R: MemoryMut<Engine = Cuda>,
    {
        if result.elements().saturating_mul(result.dtype().size()) < WORD {
            return Err(Error::Usage("the result of an atomic operation needs 8 bytes".into()));
        }
        let at = (at as u64).saturating_mul(window.memory().dtype().size() as u64);
        let word = WindowSpan { peer, at, bytes: WORD as u64 };
        let (core, gpu, stream) = self.streamed()?;
        gpu.fetch(core, (window.part(), word, result.lend_mut()), fetch, &stream)
    }

    /// Returns the address of the part of a rank, as this rank maps it: for kernels of one's own, as long as the window
    /// is.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the rank does not exist, or the window is another communicator's; [`Error::Window`] if the
    /// rank is on another host.
    pub fn map_remote<M>(&mut self, window: &CudaWindow<M>, peer: u32) -> Result<DevicePtr, Error> {
        let (_, gpu) = self.both()?;
        gpu.map(window.part(), peer)
    }

    /// Waits until everything in the stream of calls is done, and all that this rank has put to the part of a rank is
    /// there. To a rank of the same host that is what [`Communicator::synchronize`] waits for; to one on another host a
    /// put is over in the stream when its elements may be written again.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::put`] and of [`Communicator::synchronize`].
    pub fn flush<M>(&mut self, window: &CudaWindow<M>, peer: u32) -> Result<(), Error> {
        let (core, gpu, stream) = self.streamed()?;
        gpu.flush(core, (window.part(), peer), &stream)
    }
}

impl CudaRank for Communicator {
    fn parts(&mut self) -> Result<(&mut EngineCore, &mut Gpu), Error> {
        self.both()
    }
}

/// Returns the place of as many elements as `data` has in a peer's part, from element `at` on.
fn there<M: ElementMemory, D: ElementMemory>(
    window: &CudaWindow<M>,
    data: &D,
    peer: u32,
    at: usize,
) -> Result<WindowSpan, Error> {
    let (theirs, own) = (window.memory().dtype(), data.dtype());
    if theirs != own {
        return Err(Error::Usage(format!("elements of {own}, and the window has {theirs}")));
    }
    let bytes = |elements: usize| (elements as u64).saturating_mul(own.size() as u64);
    Ok(WindowSpan { peer, at: bytes(at), bytes: bytes(data.elements()) })
}
