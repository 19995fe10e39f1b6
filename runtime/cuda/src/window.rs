//! Windows of device memory: what is put and got is copied in a stream, and signals are a kernel's, whose protocol stands
//! at [`roundelay_compiler::emit::cuda::window`]. To ranks on other hosts a thread carries them (`beyond.rs`).

use std::sync::Arc;
use std::time::Duration;

use roundelay_compiler::device::abi;
use roundelay_compiler::emit::cuda::KERNEL;
use roundelay_compiler::emit::cuda::window::{Fixed, Operation, PARAMS, window};

use super::beyond::Beyond;
use super::control::{agree, same};
use super::gpu::Gpu;
use super::program::words;
use super::region::{Region, Spot};
use super::{CudaStream, DevicePtr};
use crate::backend::{Aside, Kernel, Options};
use roundelay_engine::Core;
use roundelay_engine::window::{Fetch, Remote};
use roundelay_net::dtype::DType;
use roundelay_net::error::{Error, Refusal, Source};

/// The threads of the kernel: a warp.
pub(super) const THREADS: u32 = 32;

/// Device memory of every rank that the others put to and get from, by what is put into their streams:
/// `Communicator::device_window` makes it.
///
/// It is good as long as the communicator that made it.
#[derive(Debug)]
pub struct CudaWindow<M> {
    memory: M,
    part: Part,
}

/// A window without its memory's type.
#[derive(Debug)]
pub struct Part {
    /// The place of the memory, its region, and its bytes.
    pub(super) spot: Spot,
    pub(super) region: Arc<Region>,
    pub(super) bytes: u64,
    /// The words of signals: for each rank what it has signalled here, then what was taken of that, then what this rank
    /// has signalled there; then the state of the kernels that serve other hosts.
    pub(super) words: (u32, Arc<Region>),
    pub(super) kernel: Arc<Kernel>,
    /// The way to the parts of ranks on other hosts, if there are some.
    pub(super) beyond: Option<Beyond>,
}

impl<M> CudaWindow<M> {
    /// Returns the window of that memory.
    pub fn new(memory: M, part: Part) -> Self {
        CudaWindow { memory, part }
    }

    /// Returns this rank's memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the window without its memory's type.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Ends the window, and returns its memory: nobody puts to it or gets from it any more. All ranks call together; each
    /// waits for what it has put into streams. Dropped without it, the memory stays mapped until the communicator is
    /// dropped.
    ///
    /// # Errors
    ///
    /// Those of the end of all that is in the stream of calls.
    pub fn free(self, comm: &mut impl CudaRank) -> Result<M, Error> {
        let (core, gpu) = comm.parts()?;
        gpu.free_window(core, &self.part)?;
        Ok(self.memory)
    }
}

/// A rank that has a GPU: a communicator.
pub trait CudaRank {
    /// Returns the state of the rank, ready for a call, and its GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if it has none, [`Error::Work`] if its progress thread is gone.
    fn parts(&mut self) -> Result<(&mut Core, &mut Gpu), Error>;
}

/// The list of words in which a rank's are counted; the state of kernels comes last.
#[derive(Clone, Copy)]
pub(super) enum Words {
    Arrived,
    Taken,
    Signalled,
    State,
}

/// Bytes of the state of a kernel.
const STATE: u64 = 16;

/// A copy between a peer's part and memory of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// To the peer.
    Put,
    /// From the peer.
    Get,
}

impl Copied {
    fn name(self) -> &'static str {
        match self {
            Copied::Put => "put",
            Copied::Get => "get",
        }
    }
}

/// The way to a place of a peer's part.
pub(super) enum Way {
    /// It is mapped here, at that address.
    Mapped(DevicePtr),
    /// Its own process serves it, on another host.
    Served(Arc<Remote>),
}

/// A place in a peer's part: the peer, the first byte, the bytes.
#[derive(Debug, Clone, Copy)]
pub struct There {
    /// The peer.
    pub peer: u32,
    /// The first byte.
    pub at: u64,
    /// The bytes.
    pub bytes: u64,
}

impl Gpu {
    /// Makes a window of memory that all ranks map; other memory is mapped first.
    pub fn window(
        &mut self,
        core: &mut Core,
        (address, bytes, dtype): (DevicePtr, u64, DType),
    ) -> Result<Part, Error> {
        core.usable()?;
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
        // Of ranks on other hosts nobody knows the addresses.
        if self.far.is_some() && core.words(address.0 % 8)?.iter().any(|&odd| odd != 0) {
            let text = "a window of device memory between hosts begins at a multiple of 8 bytes on all ranks";
            return Err(Error::Usage(text.into()));
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
        let words = self.sharing.whole(core, self.word(Words::State, 0) + STATE)?;
        // A region of the communicator's, for kernels may use it after the window was dropped.
        let words = self.regions.add(Region::Own(words));
        let mut part = Part { spot, region, bytes, words, kernel, beyond: None };
        if self.far.is_some() {
            part.beyond = Some(self.serve(core, &part, dtype)?);
        }
        Ok(part)
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
    pub fn free_window(&mut self, core: &mut Core, part: &Part) -> Result<(), Error> {
        self.finish(core)?;
        self.settle(core, part)?;
        core.words(0)?;
        self.end_service(part);
        self.regions.remove(part.words.0);
        Ok(())
    }

    /// Returns the way to a place of a peer's part.
    pub(super) fn way(&self, part: &Part, what: &str, there: There) -> Result<Way, Error> {
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
        Ok(match part.beyond.as_ref().and_then(|beyond| beyond.remote(peer)) {
            Some(remote) => Way::Served(remote.clone()),
            None => Way::Mapped(DevicePtr(self.regions.address(part.spot, peer) + at)),
        })
    }

    /// Returns the address of a peer's part, as mapped here.
    pub fn map(&self, part: &Part, peer: u32) -> Result<DevicePtr, Error> {
        match self.way(part, "map", There { peer, at: 0, bytes: 0 })? {
            Way::Mapped(address) => Ok(address),
            Way::Served(_) => {
                let what = format!("map the part of rank {peer}");
                Err(Error::Window { rank: self.rank, what, refusal: Refusal::NotMapped })
            }
        }
    }

    /// Puts a put into a stream, or a get; `own` is this rank's memory.
    pub fn transfer(
        &mut self,
        core: &mut Core,
        (part, copied): (&Part, Copied),
        (own, there): (DevicePtr, There),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let way = self.way(part, copied.name(), there)?;
        core.usable()?;
        self.listen(core)?;
        if there.bytes > 0 && own.is_null() {
            return Err(Error::Usage("the memory to put from, or to get to, is null".into()));
        }
        let (place, remote) = match way {
            Way::Mapped(place) => (place, None),
            Way::Served(remote) => (DevicePtr::NULL, Some(remote)),
        };
        match (remote, copied) {
            (None, Copied::Put) => self.copy_in(core, stream, [(place.0, own.0, there.bytes)]),
            (None, Copied::Get) => self.copy_in(core, stream, [(own.0, place.0, there.bytes)]),
            (Some(remote), copied) => {
                let place = (there.at, own.0, there.bytes);
                self.errand(core, (part, &remote, copied.name()), stream, |courier, steps, to| {
                    match copied {
                        Copied::Put => courier.put(steps, to, place),
                        Copied::Get => courier.get(steps, to, place),
                    }
                })
            }
        }
    }

    /// Puts a signal to a peer into a stream, or the wait for one of it.
    pub fn signal(
        &mut self,
        core: &mut Core,
        (part, peer): (&Part, u32),
        awaits: bool,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let what = if awaits { "wait_signal" } else { "signal" };
        let way = self.way(part, what, There { peer, at: 0, bytes: 0 })?;
        if let Way::Served(remote) = &way {
            self.not_captured(what, stream)?;
            if !awaits {
                return self.errand(core, (part, remote, what), stream, |courier, steps, to| {
                    courier.signal(steps, to)
                });
            }
        }
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
    pub fn fetch(
        &mut self,
        core: &mut Core,
        (part, there, result): (&Part, There, DevicePtr),
        fetch: Fetch,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let way = self.way(part, "an atomic operation on", there)?;
        // The parts of other hosts begin at multiples of 8.
        let at = if let Way::Mapped(place) = way { place.0 } else { there.at };
        if !at.is_multiple_of(8) || !result.0.is_multiple_of(8) || result.is_null() {
            let text = "atomic operations are on words of 8 bytes at multiples of 8, and their results too";
            return Err(Error::Usage(text.into()));
        }
        match way {
            Way::Mapped(word) => {
                let fixed = fetches(fetch, word.0, result.0);
                self.launch_window(core, part, &fixed, stream)
            }
            Way::Served(remote) => {
                let what = if let Fetch::Add(_) = fetch { "fetch_add" } else { "compare_swap" };
                let place = (there.at, result.0, fetch);
                self.errand(core, (part, &remote, what), stream, |courier, steps, to| {
                    courier.fetch(steps, to, place)
                })
            }
        }
    }

    /// Returns the offset of a rank's word in a list.
    pub(super) fn word(&self, list: Words, rank: u32) -> u64 {
        8 * u64::from(list as u32 * self.ranks + rank)
    }

    /// Returns what all kernels have in common, of one whose waits end after a time.
    pub(super) fn window_params(&self, timeout: Duration) -> abi::Params {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let (abort, report) = self.mailbox.addresses();
        let state = self.arena.base(self.rank) + self.layout.states;
        abi::Params { state, abort, report, timeout, ..abi::Params::default() }
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
        let params = words_of(&self.window_params(core.timeout()), fixed);
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

/// Returns an atomic operation, as the kernel does it.
pub(super) fn fetches(fetch: Fetch, word: u64, own: u64) -> Fixed {
    let (operation, operand, compared) = match fetch {
        Fetch::Add(value) => (Operation::Add, value, 0),
        Fetch::Swap(from, to) => (Operation::Swap, to, from),
    };
    Fixed { operation, peer: 0, word, own, operand, compared }
}

/// Returns the words of the kernel's parameter.
pub(super) fn words_of(all: &abi::Params, fixed: &Fixed) -> Vec<u64> {
    let mut params = words(all).to_vec();
    // An address a rank of four kinds, which this kernel has no use for.
    params.extend([0; 4]);
    let Fixed { operation, peer, word, own, operand, compared } = *fixed;
    params.extend([operation as u64, peer, word, own, operand, compared]);
    params
}

const _: () = assert!(PARAMS == 8 * (super::program::WORDS + 4 + 6));
