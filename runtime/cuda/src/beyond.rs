//! Windows of device memory between hosts.
//!
//! A peer's part on another host is reached as windows of private memory are: its own process serves it ([`served`]). What
//! a stream wants of it the rank's courier does ([`far`](super::far)).

use std::sync::Arc;

use roundelay_compiler::device::abi;
use roundelay_compiler::emit::cuda::window::{Fixed, Operation};

use super::CudaStream;
use super::control::agree;
use super::far::{Courier, Errands, Steps, Tray};
use super::gpu::Gpu;
use super::served::{Desk, ServedPart};
use super::window::{Part, THREADS, There, Way, Words, words_of};
use crate::backend::{Fault, Kernel};
use roundelay_engine::Core;
use roundelay_engine::messages::Messenger;
use roundelay_engine::window::{Exposed, Place, Remote, Rights, Span};
use roundelay_net::dtype::DType;
use roundelay_net::error::Error;
use roundelay_net::secret::random;

/// A window as ranks on other hosts have to do with it.
#[derive(Clone)]
pub(super) struct Beyond {
    messenger: Messenger,
    /// The number by which peers name this rank's part.
    key: u64,
    dtype: DType,
    /// The parts of peers on other hosts, by rank.
    remotes: Vec<Option<Arc<Remote>>>,
}

impl std::fmt::Debug for Beyond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beyond").field("dtype", &self.dtype).finish_non_exhaustive()
    }
}

impl Beyond {
    /// Serves this rank's part, and learns of those of other hosts, which are as long: all ranks together.
    pub(super) fn open(core: &mut Core, exposed: Arc<Exposed>) -> Result<Self, Error> {
        let key = agree(core, random().map(u64::from_le_bytes))?;
        let (near, messenger) = (core.near(), core.messenger());
        let (bytes, dtype) = (exposed.place().bytes(), exposed.place().dtype());
        let of = |(peer, key): (u32, u64)| {
            let is_far = !near[peer as usize];
            is_far.then(|| Arc::new(Remote::new(peer, key, bytes, Rights::ALL)))
        };
        let remotes: Vec<_> = (0u32..).zip(core.words(key)?).map(of).collect();
        let known: Vec<_> = remotes.iter().flatten().cloned().collect();
        let peers: Vec<u32> = known.iter().map(|remote| remote.peer()).collect();
        messenger.serve_window(key, Some(exposed), known, &peers)?;
        core.group.set_server(Arc::new(messenger.clone()));
        // Nobody uses a part before all are there.
        core.words(0)?;
        Ok(Beyond { messenger, key, dtype, remotes })
    }

    /// Returns the part of a rank, if it is on another host.
    pub(super) fn remote(&self, rank: u32) -> Option<&Arc<Remote>> {
        self.remotes.get(rank as usize)?.as_ref()
    }

    /// Serves this rank's part no longer, as `all` ranks do, or this one alone.
    pub(super) fn end(&self, all: bool) {
        let remotes = self.remotes.iter().flatten().map(|remote| (remote.peer(), remote.key()));
        self.messenger.end_window(self.key, &remotes.collect::<Vec<_>>(), all);
    }
}

/// A stream, as errands are put into it.
pub(super) struct InStream<'a> {
    stream: &'a CudaStream,
    kernel: &'a Kernel,
    params: abi::Params,
    words: (u64, u64),
}

impl Steps for InStream<'_> {
    type Fault = Fault;

    fn tell(&mut self, number: u64) -> Result<(), Fault> {
        // SAFETY: a word of the tray, which lives until the stream has ended.
        unsafe { self.stream.tell(self.words.0, number) }
    }

    fn reach(&mut self, number: u64, peer: u32) -> Result<(), Fault> {
        let (operation, word) = (Operation::Reach, self.words.1);
        let fixed =
            Fixed { operation, peer: peer.into(), word, own: 0, operand: number, compared: 0 };
        let params = words_of(&self.params, &fixed);
        // SAFETY: the words are those of the kernel's parameter; the tray and the mailbox live until the stream has ended.
        unsafe { self.kernel.launch(self.stream, (1, THREADS), &params) }
    }

    fn load(&mut self, slot: *mut u8, from: u64, bytes: usize) -> Result<(), Fault> {
        // SAFETY: the slot has as many bytes, and is the stream's when it comes here; the caller's memory is good as
        // whoever made its address promised.
        unsafe { self.stream.read(std::slice::from_raw_parts_mut(slot, bytes), from) }
    }

    fn store(&mut self, to: u64, slot: *mut u8, bytes: usize) -> Result<(), Fault> {
        // SAFETY: as above.
        unsafe { self.stream.write(to, std::slice::from_raw_parts(slot, bytes)) }
    }
}

impl Gpu {
    /// Serves this rank's part of a window to ranks on other hosts, and learns of theirs: all ranks together.
    pub(super) fn serve(
        &mut self,
        core: &mut Core,
        part: &Part,
        dtype: DType,
    ) -> Result<Beyond, Error> {
        let messenger = core.messenger();
        let base = self.regions.address(part.spot, self.rank);
        let made = self.exposed(core, part, (base, dtype)).and_then(|exposed| {
            self.send_courier(&messenger)?;
            Ok(exposed)
        });
        let exposed = agree(core, made)?;
        let beyond = Beyond::open(core, exposed)?;
        self.beyond.push(beyond.clone());
        Ok(beyond)
    }

    /// Makes what serves this rank's part.
    fn exposed(
        &mut self,
        core: &Core,
        part: &Part,
        (base, dtype): (u64, DType),
    ) -> Result<Arc<Exposed>, Error> {
        let desk = match &self.desk {
            Some(desk) => desk.clone(),
            None => {
                let desk = Desk::new(&self.context, self.rank, self.mailbox.clone());
                Arc::new(desk.map_err(|fault| self.fault(&fault))?)
            }
        };
        self.desk = Some(desk.clone());
        let words = part.words.1.base(self.rank);
        let served = ServedPart {
            desk,
            base,
            arrived: words + self.word(Words::Arrived, 0),
            state: words + self.word(Words::State, 0),
            kernel: part.kernel.clone(),
            kept: [part.region.clone(), part.words.1.clone()],
            alarm: core.group.alarm(),
            timeout: core.timeout(),
        };
        let (cut, block) = core.cut_words()?;
        block.give(Rights::ALL);
        let place = Place::new(Span::new(std::ptr::null_mut(), part.bytes), dtype, block);
        Ok(Arc::new(Exposed::on_device(place, Box::new(served), Box::new(cut))))
    }

    fn send_courier(&mut self, messenger: &Messenger) -> Result<(), Error> {
        let Some(lanes) = &mut self.far else { return Ok(()) };
        let (context, sharing, mailbox) = (&self.context, &self.sharing, self.mailbox.clone());
        let make = || Tray::pinned(context).map_err(|fault| sharing.fault(&fault));
        lanes.send_courier(messenger, make, move || mailbox.report().is_some())
    }

    /// Fails if a stream is being captured: what goes to other hosts is not in graphs.
    pub(super) fn not_captured(&self, what: &str, stream: &CudaStream) -> Result<(), Error> {
        match stream.is_captured().map_err(|fault| self.fault(&fault))? {
            true => self.on_one_host(&format!("{what} in a graph")),
            false => Ok(()),
        }
    }

    /// Puts what the courier is to do with a peer's part into a stream.
    pub(super) fn errand(
        &mut self,
        core: &mut Core,
        (part, remote, what): (&Part, &Arc<Remote>, &str),
        stream: &CudaStream,
        put: impl FnOnce(&mut Courier, &mut InStream<'_>, &Errands) -> Result<(), Fault>,
    ) -> Result<(), Error> {
        core.usable()?;
        self.listen(core)?;
        self.not_captured(what, stream)?;
        let timeout = core.timeout();
        let dtype = part.beyond.as_ref().map_or(DType::U8, |beyond| beyond.dtype);
        let errands = Errands { remote: remote.clone(), dtype, timeout };
        // The courier gives up sooner, and knows why.
        let params = self.window_params(timeout.saturating_mul(PATIENT));
        let Some(courier) = self.far.as_mut().and_then(|lanes| lanes.courier()) else {
            return Err(Error::Usage(format!("{what}: the window is another communicator's")));
        };
        let words = courier.tray().words();
        let launched = self.journal.put(stream, || {
            let mut steps = InStream { stream, kernel: &part.kernel, params, words };
            put(courier, &mut steps, &errands)
        });
        launched.map_err(|fault| {
            let error = self.fault(&fault);
            self.end(core, error)
        })
    }

    /// Waits until everything in a stream is done, and what this rank has done with a peer's part has taken effect.
    pub fn flush(
        &mut self,
        core: &mut Core,
        (part, peer): (&Part, u32),
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let way = self.way(part, "flush", There { peer, at: 0, bytes: 0 })?;
        if let Way::Served(remote) = way {
            self.errand(core, (part, &remote, "flush"), stream, |courier, steps, to| {
                courier.flush(steps, to)
            })?;
        }
        self.watch(core, || stream.is_done())
    }

    /// Waits until all that this rank has done with parts of ranks on other hosts has taken effect.
    pub(super) fn settle(&mut self, core: &mut Core, part: &Part) -> Result<(), Error> {
        let Some(beyond) = &part.beyond else { return Ok(()) };
        let stream = self.stream.clone();
        for remote in beyond.remotes.iter().flatten() {
            self.errand(core, (part, remote, "free"), &stream, |courier, steps, to| {
                courier.flush(steps, to)
            })?;
        }
        self.finish(core)
    }

    /// Ends the service of a window, which all ranks end.
    pub(super) fn end_service(&mut self, part: &Part) {
        if let Some(beyond) = &part.beyond {
            beyond.end(true);
            self.beyond.retain(|open| open.key != beyond.key);
        }
    }
}

/// The number of timeouts for which a stream waits for the courier.
const PATIENT: u32 = 2;
