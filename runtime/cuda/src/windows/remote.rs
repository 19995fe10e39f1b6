//! Window parts on other hosts go through the owner's process.
//!
//! A peer's part on another host is reached as windows of private memory are: its own process serves it
//! ([`server`](super::server)). What a stream asks of it the rank's window proxy performs ([`proxy`](crate::proxy)).

use std::sync::Arc;

use roundelay_compiler::device::abi;
use roundelay_emit::cuda::window::{WindowOperation, WindowParams};

use super::kernel::{THREADS, words_of};
use crate::backend::{CudaStream, DriverFault, LoadedKernel};
use crate::control::agree;
use crate::proxy::StreamSteps;
use roundelay_engine::EngineCore;
use roundelay_engine::messages::RankMessenger;
use roundelay_engine::window::{ExposedPart, ServedPart, WindowRights};
use roundelay_support::dtype::DType;
use roundelay_support::error::Error;
use roundelay_support::secret::random;

/// The service of a window to ranks on other hosts, and their parts of it.
#[derive(Clone)]
pub(crate) struct RemoteWindow {
    messenger: RankMessenger,
    /// The number by which peers name this rank's part.
    pub(super) key: u64,
    pub(super) dtype: DType,
    /// The parts of peers on other hosts, by rank.
    pub(super) remotes: Vec<Option<Arc<ServedPart>>>,
}

impl std::fmt::Debug for RemoteWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteWindow").field("dtype", &self.dtype).finish_non_exhaustive()
    }
}

impl RemoteWindow {
    /// Serves this rank's part, and learns of those of other hosts, which are as long: all ranks together.
    pub(crate) fn open(core: &mut EngineCore, exposed: Arc<ExposedPart>) -> Result<Self, Error> {
        let key = agree(core, random().map(u64::from_le_bytes))?;
        let (near, messenger) = (core.near(), core.messenger());
        let (bytes, dtype) = (exposed.place().bytes(), exposed.place().dtype());
        let of = |(peer, key): (u32, u64)| {
            let is_far = !near[peer as usize];
            is_far.then(|| Arc::new(ServedPart::new(peer, key, bytes, WindowRights::ALL)))
        };
        let remotes: Vec<_> = (0u32..).zip(core.words(key)?).map(of).collect();
        let known: Vec<_> = remotes.iter().flatten().cloned().collect();
        let peers: Vec<u32> = known.iter().map(|remote| remote.peer()).collect();
        messenger.serve_window(key, Some(exposed), known, &peers)?;
        core.group.set_server(Arc::new(messenger.clone()));
        // No part is used before all are served.
        core.words(0)?;
        Ok(RemoteWindow { messenger, key, dtype, remotes })
    }

    /// Returns the part of a rank, if it is on another host.
    pub(crate) fn remote(&self, rank: u32) -> Option<&Arc<ServedPart>> {
        self.remotes.get(rank as usize)?.as_ref()
    }

    /// Serves this rank's part no longer, as `all` ranks do, or this one alone.
    pub(crate) fn end(&self, all: bool) {
        let remotes = self.remotes.iter().flatten().map(|remote| (remote.peer(), remote.key()));
        self.messenger.end_window(self.key, &remotes.collect::<Vec<_>>(), all);
    }
}

/// A stream of the device, into which the steps of window orders are put.
pub(super) struct CudaSteps<'a> {
    pub(super) stream: &'a CudaStream,
    pub(super) kernel: &'a LoadedKernel,
    pub(super) params: abi::KernelParams,
    pub(super) words: (u64, u64),
}

impl StreamSteps for CudaSteps<'_> {
    type Fault = DriverFault;

    fn publish(&mut self, number: u64) -> Result<(), DriverFault> {
        // SAFETY: a word of the slots, which lives until the stream has ended.
        unsafe { self.stream.write_word(self.words.0, number) }
    }

    fn wait_until(&mut self, number: u64, peer: u32) -> Result<(), DriverFault> {
        let (operation, word) = (WindowOperation::Reach, self.words.1);
        let fixed = WindowParams {
            operation,
            peer: peer.into(),
            word,
            own: 0,
            operand: number,
            compared: 0,
        };
        let params = words_of(&self.params, &fixed);
        // SAFETY: the words are those of the kernel's parameter; the slots and the mailbox live until the stream has
        // ended.
        unsafe { self.kernel.launch(self.stream, (1, THREADS), &params) }
    }

    fn load(&mut self, slot: *mut u8, from: u64, bytes: usize) -> Result<(), DriverFault> {
        // SAFETY: the slot has as many bytes, and is the stream's when it comes here; the caller's memory is good by
        // the promise with which its address was made.
        unsafe { self.stream.read(std::slice::from_raw_parts_mut(slot, bytes), from) }
    }

    fn store(&mut self, to: u64, slot: *mut u8, bytes: usize) -> Result<(), DriverFault> {
        // SAFETY: as above.
        unsafe { self.stream.write(to, std::slice::from_raw_parts(slot, bytes)) }
    }
}
