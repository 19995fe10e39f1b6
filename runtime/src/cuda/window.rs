//! Windows of device memory: what is put and got is copied in a stream, and signals are a kernel's, whose protocol stands
//! at [`roundelay_compiler::emit::cuda::window`].

use std::sync::Arc;

use roundelay_compiler::device::abi;
use roundelay_compiler::emit::cuda::KERNEL;
use roundelay_compiler::emit::cuda::window::{Fixed, Operation, PARAMS, window};

use super::control::{agree, same};
use super::gpu::Gpu;
use super::program::words;
use super::region::{Region, Spot};
use super::{CudaStream, DevicePtr};
use crate::backend::cuda::{Aside, Kernel, Options};
use crate::engine::Core;
use crate::error::{Error, Refusal, Source};

/// The threads of the kernel: a warp.
const THREADS: u32 = 32;

/// Device memory of every rank that the others put to and get from, by what is put into their streams:
/// [`Communicator::device_window`](crate::Communicator::device_window) makes it.
///
/// It is good as long as the communicator that made it.
#[derive(Debug)]
pub struct CudaWindow<M> {
    memory: M,
    part: Part,
}

/// A window without its memory's type.
#[derive(Debug)]
pub(crate) struct Part {
    /// The place of the memory, its region, and its bytes.
    spot: Spot,
    region: Arc<Region>,
    bytes: u64,
    /// The words of signals: for each rank what it has signalled here, then what was taken of that, then what this rank
    /// has signalled there.
    words: (u32, Arc<Region>),
    kernel: Arc<Kernel>,
}

impl<M> CudaWindow<M> {
    pub(crate) fn new(memory: M, part: Part) -> Self {
        CudaWindow { memory, part }
    }

    /// Returns this rank's memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    pub(crate) fn part(&self) -> &Part {
        &self.part
    }

    pub(crate) fn into_memory(self) -> M {
        self.memory
    }
}

/// The list of words in which a rank's are counted.
#[derive(Clone, Copy)]
enum Words {
    Arrived,
    Taken,
    Signalled,
}

/// A place in a peer's part: the peer, the first byte, the bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct There {
    pub(crate) peer: u32,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

impl Gpu {
    /// Makes a window of memory that all ranks map; other memory is mapped first.
    pub(crate) fn window(
        &mut self,
        core: &mut Core,
        (address, bytes): (DevicePtr, u64),
    ) -> Result<Part, Error> {
        core.usable()?;
        self.on_one_host("a window of device memory")?;
        if let Some(peer) = same(core, bytes)? {
            return Err(Error::Usage(format!(
                "rank {} makes a window of {bytes} bytes of device memory, and rank {peer} of another number: all \
                 parts must be of one length",
                self.rank
            )));
        }
        if bytes == 0 {
            return Err(Error::Usage("a window of no device memory: give it some elements".into()));
        }
        let spot = match self.regions.find(address.0, bytes) {
            Some(spot) => spot,
            None => Spot { region: u32::MAX, offset: 0 },
        };
        let place = |spot: Spot| u64::from(spot.region) << 40 | spot.offset;
        // Where it is not one place of a region on all ranks, it becomes a region of its own.
        let elsewhere = same(core, place(spot))?.is_some() || spot.region == u32::MAX;
        let elsewhere = core.words(elsewhere.into())?.contains(&1);
        let spot = match elsewhere {
            false => Some(spot),
            true => {
                self.register(core, address.0, bytes)?;
                self.regions.find(address.0, bytes)
            }
        };
        let found = spot.and_then(|spot| Some((spot, self.regions.get(spot)?.clone())));
        let (spot, region) =
            found.ok_or_else(|| self.failed("the memory was not mapped".into(), None))?;
        let kernel = self.window_kernel();
        let kernel = agree(core, kernel)?;
        let words = self.sharing.whole(core, 3 * 8 * u64::from(self.ranks))?;
        // A region of the communicator's, for kernels may use it after the window was dropped.
        let words = self.regions.add(Region::Own(words));
        Ok(Part { spot, region, bytes, words, kernel })
    }

    fn window_kernel(&mut self) -> Result<Arc<Kernel>, Error> {
        if let Some(kernel) = &self.window {
            return Ok(kernel.clone());
        }
        // A stream that is being captured would not let this thread load code.
        let _aside = Aside::step().map_err(|fault| self.fault(&fault))?;
        let kernel = self.kernels.get(&window(), KERNEL, abi::THREADS, Options::Exact);
        let kernel = kernel.map_err(|error| {
            self.failed(format!("the kernel of windows: {error}"), Some(Source::new(error)))
        })?;
        self.window = Some(kernel.clone());
        Ok(kernel)
    }

    /// Waits until no rank puts or gets any more, and ends the window.
    pub(crate) fn free_window(&mut self, core: &mut Core, part: &Part) -> Result<(), Error> {
        self.finish(core)?;
        core.words(0)?;
        self.regions.remove(part.words.0);
        Ok(())
    }

    /// Returns the address of a peer's part, as mapped here.
    pub(crate) fn place(&self, part: &Part, what: &str, there: There) -> Result<DevicePtr, Error> {
        let There { peer, at, bytes } = there;
        if peer >= self.ranks {
            return Err(Error::Usage(format!(
                "{what}: there is no rank {peer}: the ranks are 0 to {}",
                self.ranks - 1
            )));
        }
        if at.checked_add(bytes).is_none_or(|end| end > part.bytes) {
            let what = format!("{what} {bytes} bytes at byte {at} of rank {peer}");
            let refusal = Refusal::Bounds { bytes: part.bytes };
            return Err(Error::Window { rank: self.rank, what, refusal });
        }
        let known = self.regions.get(part.spot);
        if known.is_none_or(|known| !Arc::ptr_eq(known, &part.region)) {
            return Err(Error::Usage(format!(
                "{what}: the window's memory is not this communicator's, or was replaced by other memory that was \
                 registered"
            )));
        }
        Ok(DevicePtr(self.regions.address(part.spot, peer) + at))
    }

    /// Puts the copy of a put into a stream, or of a get.
    pub(crate) fn transfer(
        &mut self,
        core: &mut Core,
        (to, from, bytes): (DevicePtr, DevicePtr, u64),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        self.listen(core)?;
        if bytes > 0 && (to.is_null() || from.is_null()) {
            return Err(Error::Usage("the memory to put from, or to get to, is null".into()));
        }
        self.copy_in(core, stream, [(to.0, from.0, bytes)])
    }

    /// Puts a signal to a peer into a stream, or the wait for one of it.
    pub(crate) fn signal(
        &mut self,
        core: &mut Core,
        (part, peer): (&Part, u32),
        awaits: bool,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let what = if awaits { "wait for a signal" } else { "signal" };
        self.place(part, what, There { peer, at: 0, bytes: 0 })?;
        let (own, theirs) = (part.words.1.base(self.rank), part.words.1.base(peer));
        let (operation, word, own) = match awaits {
            true => (
                Operation::Await,
                own + self.word(Words::Arrived, peer),
                own + self.word(Words::Taken, peer),
            ),
            false => (
                Operation::Signal,
                theirs + self.word(Words::Arrived, self.rank),
                own + self.word(Words::Signalled, peer),
            ),
        };
        let fixed = Fixed { operation, peer: peer.into(), word, own, operand: 0, compared: 0 };
        self.launch_window(core, part, &fixed, stream)
    }

    /// Puts an atomic operation on a word of a peer's part into a stream; `result` is where the word goes that was
    /// there.
    pub(crate) fn fetch(
        &mut self,
        core: &mut Core,
        (part, word, result): (&Part, DevicePtr, DevicePtr),
        (operation, operand, compared): (Operation, u64, u64),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        if !word.0.is_multiple_of(8) || !result.0.is_multiple_of(8) || result.is_null() {
            let text = "atomic operations are on words of 8 bytes at multiples of 8, and their results too";
            return Err(Error::Usage(text.into()));
        }
        let fixed = Fixed { operation, peer: 0, word: word.0, own: result.0, operand, compared };
        self.launch_window(core, part, &fixed, stream)
    }

    fn word(&self, list: Words, rank: u32) -> u64 {
        8 * u64::from(list as u32 * self.ranks + rank)
    }

    fn launch_window(
        &mut self,
        core: &mut Core,
        part: &Part,
        fixed: &Fixed,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        self.listen(core)?;
        let timeout = u64::try_from(core.timeout().as_nanos()).unwrap_or(u64::MAX);
        let (abort, report) = self.mailbox.addresses();
        let state = self.arena.base(self.rank) + self.layout.states;
        let all = abi::Params { state, abort, report, timeout, ..abi::Params::default() };
        let mut params = words(&all).to_vec();
        // An address a rank of four kinds, which this kernel has no use for.
        params.extend([0; 4]);
        let Fixed { operation, peer, word, own, operand, compared } = *fixed;
        params.extend([operation as u64, peer, word, own, operand, compared]);
        let grid = (1, THREADS);
        // SAFETY: the words are those of the kernel's parameter. The arena, the mailbox and the window's words live as
        // long as `self`; the caller's words are good as whoever made their addresses promised.
        let launched =
            self.journal.put(stream, || unsafe { part.kernel.launch(stream, grid, &params) });
        launched.map_err(|fault| {
            let error = self.fault(&fault);
            self.end(core, error)
        })
    }
}

const _: () = assert!(PARAMS == 8 * (super::program::WORDS + 4 + 6));
