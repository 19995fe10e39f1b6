//! This rank's part of a window of device memory, as it is served to ranks on other hosts.
//!
//! The thread that progresses this rank's messages copies bytes in a stream of their own, through slots in memory of
//! the host, and changes words by a kernel there: so that they are atomic to what GPUs of this host do. A signal is a
//! word that the stream writes behind what came before it; the kernel of a wait looks at that word as it does at one of
//! a GPU's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use roundelay_compiler::device::abi;

use super::kernel::{THREADS, fetches, words_of};
use crate::backend::{
    CudaStream, DeviceContext, DriverFault, KernelMailbox, LoadedKernel, PinnedMemory,
    RelaxedCapture, StreamEvent,
};
use crate::region::MappedRegion;
use crate::tunables::ABORT_TIMEOUT;
use roundelay_engine::window::{AtomicFetch, DeviceMemory};
use roundelay_net::group::GroupAlarm;
use roundelay_support::error::Error;

/// Bytes of a slot, and how many there are.
const SLOT: usize = 1 << 20;
const SLOTS: usize = 8;

/// The stream of a rank in which its parts of windows are served, with the slots through which bytes go.
#[derive(Debug)]
pub(super) struct WindowServer {
    rank: u32,
    stream: CudaStream,
    memory: PinnedMemory,
    slots: Mutex<ServerSlots>,
    mailbox: Arc<KernelMailbox>,
}

/// The slots by number: each with the point at which the stream is done with it, if there is one.
#[derive(Debug)]
struct ServerSlots {
    next: usize,
    points: Vec<(StreamEvent, bool)>,
}

impl WindowServer {
    pub(super) fn new(
        context: &Arc<DeviceContext>,
        rank: u32,
        mailbox: Arc<KernelMailbox>,
    ) -> Result<Self, DriverFault> {
        let points = (0..SLOTS).map(|_| Ok((StreamEvent::new(context)?, false)));
        let slots = ServerSlots { next: 0, points: points.collect::<Result<_, DriverFault>>()? };
        Ok(WindowServer {
            rank,
            stream: CudaStream::urgent(context)?,
            memory: PinnedMemory::new(context, SLOTS * SLOT)?,
            slots: Mutex::new(slots),
            mailbox,
        })
    }

    pub(super) fn pinned_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn slot(&self, number: usize) -> *mut u8 {
        // SAFETY: the memory has as many slots.
        unsafe { self.memory.host().add(number % SLOTS * SLOT) }
    }

    fn fault(&self, fault: &DriverFault) -> Error {
        fault.on(self.rank, self.stream.context().device())
    }
}

/// The memory of a part, and what is needed to serve it.
pub(super) struct ServedPart {
    pub(super) server: Arc<WindowServer>,
    /// The address of the memory, and of the words of signals that have come.
    pub(super) base: u64,
    pub(super) arrived: u64,
    /// The address of a state of kernels that none leaves.
    pub(super) state: u64,
    pub(super) kernel: Arc<LoadedKernel>,
    /// The regions in which they lie.
    pub(super) kept: [Arc<MappedRegion>; 2],
    pub(super) alarm: GroupAlarm,
    pub(super) timeout: Duration,
}

impl ServedPart {
    /// Takes the next slot, once the stream is done with it.
    fn take(&self, slots: &mut ServerSlots) -> Result<usize, Error> {
        let number = slots.next;
        slots.next = (number + 1) % SLOTS;
        self.wait(slots, number)?;
        Ok(number)
    }

    /// Records that the stream is done with a slot when it comes here.
    fn mark(&self, slots: &mut ServerSlots, number: usize) -> Result<(), DriverFault> {
        let (point, is_marked) = &mut slots.points[number];
        point.record(&self.server.stream)?;
        *is_marked = true;
        Ok(())
    }

    /// Waits until the stream is done with a slot.
    fn wait(&self, slots: &mut ServerSlots, number: usize) -> Result<(), Error> {
        let (point, is_marked) = &mut slots.points[number];
        let (since, mut looks) = (Instant::now(), 0u32);
        while *is_marked && !point.is_done().map_err(|fault| self.server.fault(&fault))? {
            looks = looks.saturating_add(1);
            if looks < 200 {
                std::hint::spin_loop();
                continue;
            }
            if self.alarm.is_raised() {
                return Err(Error::Work("the job has ended".into()));
            }
            if since.elapsed() > self.timeout {
                return Err(self.late());
            }
            rustix::thread::sched_yield();
        }
        *is_marked = false;
        Ok(())
    }

    #[cold]
    fn late(&self) -> Error {
        let what = format!(
            "what ranks on other hosts want of its part of a window was not done within {:?}: kernels fill the GPU, or it \
             hangs",
            self.timeout
        );
        let device = self.server.stream.context().device().to_string();
        Error::Cuda { rank: self.server.rank, device, what, source: None }
    }

    /// Does something with the slots; whichever thread this is, and whatever it captures.
    fn with<R>(&self, act: impl FnOnce(&mut ServerSlots) -> Result<R, Error>) -> Result<R, Error> {
        let fault = |fault: DriverFault| self.server.fault(&fault);
        self.server.stream.context().enter().map_err(fault)?;
        let _aside = RelaxedCapture::begin().map_err(fault)?;
        act(&mut self.server.slots.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts something into the stream that uses a slot, and marks that.
    fn put_in(
        &self,
        slots: &mut ServerSlots,
        number: usize,
        put: impl FnOnce(&CudaStream) -> Result<(), DriverFault>,
    ) -> Result<(), Error> {
        let done = put(&self.server.stream).and_then(|()| self.mark(slots, number));
        done.map_err(|fault| self.server.fault(&fault))
    }

    /// Returns the words of the kernel's parameter.
    fn params(&self, offset: u64, fetch: AtomicFetch, to: u64) -> Vec<u64> {
        let (abort, report) = self.server.mailbox.addresses();
        let timeout = u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX);
        let state = self.state;
        let all =
            abi::KernelParams { state, abort, report, timeout, ..abi::KernelParams::default() };
        words_of(&all, &fetches(fetch, self.base + offset, to))
    }
}

impl DeviceMemory for ServedPart {
    unsafe fn put(&self, (offset, len): (u64, usize), from: *const u8) -> Result<(), Error> {
        self.with(|slots| {
            for at in (0..len).step_by(SLOT) {
                let (number, bytes) = (self.take(slots)?, SLOT.min(len - at));
                let slot = self.server.slot(number);
                // SAFETY: the slot has as many bytes and is this call's; `from` as the caller promises.
                let bytes = unsafe {
                    slot.copy_from_nonoverlapping(from.add(at), bytes);
                    std::slice::from_raw_parts(slot, bytes)
                };
                let to = self.base + offset + at as u64;
                // SAFETY: in bounds, as the caller has found; the slot is used again once the stream is done with it.
                self.put_in(slots, number, |stream| unsafe { stream.write(to, bytes) })?;
            }
            Ok(())
        })
    }

    unsafe fn get(&self, (offset, len): (u64, usize), to: *mut u8) -> Result<(), Error> {
        self.with(|slots| {
            for at in (0..len).step_by(SLOT) {
                let (number, bytes) = (self.take(slots)?, SLOT.min(len - at));
                let slot = self.server.slot(number);
                // SAFETY: the slot has as many bytes and is this call's.
                let place = unsafe { std::slice::from_raw_parts_mut(slot, bytes) };
                let from = self.base + offset + at as u64;
                // SAFETY: in bounds, as the caller has found; it is waited for.
                self.put_in(slots, number, |stream| unsafe { stream.read(place, from) })?;
                self.wait(slots, number)?;
                // SAFETY: `to` as the caller promises.
                unsafe { to.add(at).copy_from_nonoverlapping(slot, bytes) };
            }
            Ok(())
        })
    }

    fn fetch(&self, offset: u64, fetch: AtomicFetch) -> Result<u64, Error> {
        self.with(|slots| {
            let number = self.take(slots)?;
            let slot = self.server.slot(number);
            let to = self.server.memory.device() + (number * SLOT) as u64;
            let params = self.params(offset, fetch, to);
            // SAFETY: the words are those of the kernel's parameter; what they address is kept by `self` and its
            // server.
            self.put_in(slots, number, |stream| unsafe {
                self.kernel.launch(stream, (1, THREADS), &params)
            })?;
            self.wait(slots, number)?;
            // SAFETY: the slot begins with a word, which the kernel has written.
            Ok(unsafe { slot.cast::<u64>().read_volatile() })
        })
    }

    fn signal(&self, origin: u32, count: u64) -> Result<(), Error> {
        let word = self.arrived + 8 * u64::from(origin);
        self.with(|_| {
            // SAFETY: a word of a list with one for each rank, which `self` keeps.
            let written = unsafe { self.server.stream.write_word(word, count) };
            written.map_err(|fault| self.server.fault(&fault))
        })
    }

    fn settle(&self) -> Result<(), Error> {
        self.with(|slots| {
            let number = self.take(slots)?;
            self.put_in(slots, number, |_| Ok(()))?;
            self.wait(slots, number)
        })
    }
}

impl Drop for ServedPart {
    fn drop(&mut self) {
        // What is under way ends, or uses the memory for ever.
        if self.server.stream.drain(ABORT_TIMEOUT).is_err() {
            std::mem::forget((self.server.clone(), self.kernel.clone(), self.kept.clone()));
        }
    }
}
