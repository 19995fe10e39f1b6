//! The windows of a rank: making them, serving them to other hosts, ending them.

use std::sync::Arc;

use roundelay_emit::cuda::window::window;

use super::part::{STATE, SignalWords, WindowPart, word};
use super::proxied::flush_all;
use super::remote::RemoteWindow;
use super::server::{ServedPart, WindowServer};
use crate::backend::{LoadedKernel, RelaxedCapture};
use crate::buffer::DevicePtr;
use crate::control::{agree, same};
use crate::device::RankDevice;
use crate::proxy::ProxySlots;
use crate::rank::GpuRank;
use crate::region::{MappedRegion, RegionSpot};
use roundelay_engine::EngineCore;
use roundelay_engine::messages::RankMessenger;
use roundelay_engine::window::{ExposedPart, MemorySpan, PartMemory, WindowRights};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::Error;

/// The windows of a rank, and what they have in common.
#[derive(Default)]
pub(crate) struct WindowTable {
    kernel: Option<Arc<LoadedKernel>>,
    /// The kernels of accumulates, by type and operator.
    pub(super) accumulates: Vec<((DType, RedOp), Arc<LoadedKernel>)>,
    /// The server serves parts of windows to other hosts, once there was one; and the windows that are open there.
    server: Option<Arc<WindowServer>>,
    remotes: Vec<RemoteWindow>,
}

impl WindowTable {
    /// Makes a window of memory that all ranks map; other memory is mapped first.
    pub(crate) fn open(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        (address, bytes, dtype): (DevicePtr, u64, DType),
    ) -> Result<WindowPart, Error> {
        core.usable()?;
        if let Some(peer) = same(core, bytes)? {
            return Err(Error::Usage(format!(
                "rank {} makes a window of {bytes} bytes of device memory, and rank {peer} of another number: all \
                 parts must be of one length",
                rank.device.rank
            )));
        }
        if bytes == 0 {
            return Err(Error::Usage("a window of no device memory: give it some elements".into()));
        }
        // Ranks on other hosts do not know the addresses.
        if rank.proxies.is_some() && core.words(address.0 % 8)?.iter().any(|&odd| odd != 0) {
            let text = "a window of device memory between hosts begins at a multiple of 8 bytes on all ranks";
            return Err(Error::Usage(text.into()));
        }
        let spot = match rank.memory.regions.find(address.0, bytes) {
            Some(spot) => spot,
            None => RegionSpot { region: u32::MAX, offset: 0 },
        };
        let place = |spot: RegionSpot| u64::from(spot.region) << 40 | spot.offset;
        // Where it is not one place of a region on all ranks, it becomes a region of its own.
        let elsewhere = same(core, place(spot))?.is_some() || spot.region == u32::MAX;
        let elsewhere = core.words(elsewhere.into())?.contains(&1);
        let spot = match elsewhere {
            false => Some(spot),
            true => {
                rank.memory.register(core, address.0, bytes)?;
                rank.memory.regions.find(address.0, bytes)
            }
        };
        let found = spot.and_then(|spot| Some((spot, rank.memory.regions.get(spot)?.clone())));
        let (spot, region) =
            found.ok_or_else(|| rank.device.failed("the memory was not mapped".into(), None))?;
        let kernel = self.kernel(&mut rank.device);
        let kernel = agree(core, kernel)?;
        let bytes_of_words = word(rank.device.ranks, SignalWords::State, 0) + STATE;
        let words = rank.memory.sharing.whole(core, bytes_of_words)?;
        // A region of the communicator's, for kernels may use it after the window was dropped.
        let words = rank.memory.regions.add(MappedRegion::Own(words));
        let mut part = WindowPart { spot, region, bytes, words, kernel, remote: None };
        if rank.proxies.is_some() {
            part.remote = Some(self.serve(rank, core, &part, dtype)?);
        }
        Ok(part)
    }

    fn kernel(&mut self, device: &mut RankDevice) -> Result<Arc<LoadedKernel>, Error> {
        if let Some(kernel) = &self.kernel {
            return Ok(kernel.clone());
        }
        // A stream that is being captured would not let this thread load code.
        let _aside = RelaxedCapture::begin().map_err(|fault| device.fault(&fault))?;
        let kernel = device.load(&window(), "windows")?;
        self.kernel = Some(kernel.clone());
        Ok(kernel)
    }

    /// Waits until no rank puts or gets any more, and ends the window.
    pub(crate) fn free(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        part: &WindowPart,
    ) -> Result<(), Error> {
        rank.finish(core)?;
        flush_all(rank, core, part)?;
        core.words(0)?;
        self.end_service(part);
        rank.memory.regions.remove(part.words.0);
        Ok(())
    }

    /// Serves this rank's part of a window to ranks on other hosts, and learns of theirs: all ranks together.
    fn serve(
        &mut self,
        rank: &mut GpuRank,
        core: &mut EngineCore,
        part: &WindowPart,
        dtype: DType,
    ) -> Result<RemoteWindow, Error> {
        let messenger = core.messenger();
        let base = rank.memory.regions.address(part.spot, rank.device.rank);
        let made = self.exposed(rank, core, part, (base, dtype)).and_then(|exposed| {
            start_window_proxy(rank, &messenger)?;
            Ok(exposed)
        });
        let exposed = agree(core, made)?;
        let window = RemoteWindow::open(core, exposed)?;
        self.remotes.push(window.clone());
        Ok(window)
    }

    /// Makes what serves this rank's part.
    fn exposed(
        &mut self,
        rank: &GpuRank,
        core: &EngineCore,
        part: &WindowPart,
        (base, dtype): (u64, DType),
    ) -> Result<Arc<ExposedPart>, Error> {
        let device = &rank.device;
        let server = match &self.server {
            Some(server) => server.clone(),
            None => {
                let server =
                    WindowServer::new(&device.context, device.rank, device.mailbox.clone());
                Arc::new(server.map_err(|fault| device.fault(&fault))?)
            }
        };
        self.server = Some(server.clone());
        let words = part.words.1.base(device.rank);
        let served = ServedPart {
            server,
            base,
            arrived: words + word(device.ranks, SignalWords::Arrived, 0),
            state: words + word(device.ranks, SignalWords::State, 0),
            kernel: part.kernel.clone(),
            kept: [part.region.clone(), part.words.1.clone()],
            alarm: core.group.alarm(),
            timeout: core.timeout(),
        };
        let (cut, block) = core.cut_words()?;
        block.give(WindowRights::ALL);
        let place =
            PartMemory::new(MemorySpan::new(std::ptr::null_mut(), part.bytes), dtype, block);
        Ok(Arc::new(ExposedPart::on_device(place, Box::new(served), Box::new(cut))))
    }

    /// Ends the service of a window, which all ranks end.
    fn end_service(&mut self, part: &WindowPart) {
        if let Some(window) = &part.remote {
            window.end(true);
            self.remotes.retain(|open| open.key != window.key);
        }
    }

    /// Ends the service of all windows, of this rank alone.
    pub(crate) fn leave(&self) {
        self.remotes.iter().for_each(|window| window.end(false));
    }

    /// Returns the bytes of host memory that are kept in place.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.server.as_ref().map_or(0, |server| server.pinned_bytes())
    }

    /// Leaves the kernels loaded until the process ends.
    pub(crate) fn abandon(&self) {
        let accumulates = self.accumulates.iter().map(|(_, kernel)| kernel);
        self.kernel.iter().chain(accumulates).cloned().for_each(std::mem::forget);
    }
}

fn start_window_proxy(rank: &mut GpuRank, messenger: &RankMessenger) -> Result<(), Error> {
    let GpuRank { proxies, device, .. } = rank;
    let Some(lanes) = proxies else { return Ok(()) };
    let mailbox = device.mailbox.clone();
    let make = || ProxySlots::pinned(&device.context).map_err(|fault| device.fault(&fault));
    lanes.start_window_proxy(messenger, make, move || mailbox.report().is_some())
}
