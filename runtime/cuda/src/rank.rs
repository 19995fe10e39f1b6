//! A rank on its GPU: what all kinds of calls need, and the waits for what was put into streams.

use std::time::{Duration, Instant};

use super::buffer::DevicePtr;
use super::calls::ProgramTable;
use super::device::RankDevice;
use super::memory::SharedMemory;
use super::proxy::ProxyThreads;
use super::report::report_error;
use crate::backend::{CudaStream, DriverFault, RelaxedCapture};
use crate::tunables::{ABORT_TIMEOUT, LOST_RANK_GRACE, STALLED_STREAM_TIMEOUTS};
use roundelay_engine::EngineCore;
use roundelay_engine::progress::wait::{WaitAction, WaitLoop};
use roundelay_support::error::Error;

/// The state of a rank that every kind of call uses. The fields are dropped in this order: proxies before the memory
/// that they use, memory before the device.
pub(crate) struct GpuRank {
    /// The proxies carry messages between hosts, where there are several.
    pub(crate) proxies: Option<ProxyThreads>,
    pub(crate) programs: ProgramTable,
    pub(crate) memory: SharedMemory,
    pub(crate) device: RankDevice,
    /// True while a call is made beside which kernels of others are to run.
    pub(crate) overlaps: bool,
    /// Since when a rank has been gone, as far as a poll has seen.
    pub(crate) missed: Option<Instant>,
}

impl GpuRank {
    /// Waits until `done` returns true.
    ///
    /// Kernels give up by themselves when nothing moves for the communicator's timeout. Other work in a stream may
    /// take ten times as long.
    pub(crate) fn watch(
        &mut self,
        core: &mut EngineCore,
        done: impl Fn() -> Result<bool, DriverFault>,
    ) -> Result<(), Error> {
        core.usable()?;
        let mut wait = WaitLoop::new(
            core.timeout().saturating_mul(STALLED_STREAM_TIMEOUTS),
            core.group.layout().crowded,
        );
        let mut gone = None;
        let device = &self.device;
        let ended = wait.until(
            core,
            |_| done().map(|is_done| is_done.then_some(())).map_err(|fault| device.fault(&fault)),
            |core, look, waited| self.look(core, look, waited, &mut gone),
        );
        ended.and_then(|()| self.check(core)).map_err(|error| self.end(core, error))
    }

    /// Looks once whether a kernel gave up, another rank failed, or one is gone while calls are under way.
    pub(crate) fn poll(&mut self, core: &mut EngineCore) -> Result<(), Error> {
        core.usable()?;
        let checked = self.check(core).and_then(|()| core.hear(None));
        checked.and_then(|()| self.missed(core)).map_err(|error| self.end(core, error))
    }

    /// Fails if a rank has been gone for a while, and calls are under way.
    fn missed(&mut self, core: &mut EngineCore) -> Result<(), Error> {
        let Some((peer, how)) = core.dead() else {
            self.missed = None;
            return Ok(());
        };
        let since = *self.missed.get_or_insert_with(Instant::now);
        let latest = self.device.latest();
        let (Some(stream), true) = (latest, since.elapsed() > LOST_RANK_GRACE) else {
            return Ok(());
        };
        // A stream that is being captured may not be asked.
        let _aside = RelaxedCapture::begin().map_err(|fault| self.device.fault(&fault))?;
        // The thread that asks may be one that has used no GPU yet.
        let entered = stream.context().enter();
        let captured = entered.and_then(|()| stream.is_captured());
        let idle = captured.and_then(|captured| Ok(captured || stream.is_done()?));
        match idle.map_err(|fault| self.device.fault(&fault))? {
            true => Ok(()),
            false => Err(core.lost(peer, how, None)),
        }
    }

    /// Waits until all calls are done.
    pub(crate) fn finish(&mut self, core: &mut EngineCore) -> Result<(), Error> {
        let latest = self.device.latest();
        match latest {
            Some(stream) => self.watch(core, || stream.is_done()),
            None => core.usable(),
        }
    }

    /// Ends the communicator if a kernel gave up: a rank that never synchronizes gets the error from its next call.
    pub(crate) fn listen(&self, core: &mut EngineCore) -> Result<(), Error> {
        self.check(core).map_err(|error| self.end(core, error))
    }

    /// Fails if a proxy failed, or a kernel gave up.
    fn check(&self, core: &mut EngineCore) -> Result<(), Error> {
        // It made the kernel leave.
        if let Some(error) = self.proxies.as_ref().and_then(ProxyThreads::failure) {
            return Err(error);
        }
        let report = self.device.mailbox.report();
        report
            .map_or(Ok(()), |report| Err(report_error(&self.device, &self.programs, core, &report)))
    }

    /// Checks kernels and the other ranks, and that those are still there.
    fn look(
        &self,
        core: &mut EngineCore,
        look: WaitAction,
        waited: Duration,
        gone: &mut Option<Instant>,
    ) -> Result<(), Error> {
        self.check(core)?;
        core.hear(None)?;
        if let Some((peer, how)) = core.dead()
            && gone.get_or_insert_with(Instant::now).elapsed() > LOST_RANK_GRACE
        {
            return Err(core.lost(peer, how, None));
        }
        match look {
            WaitAction::Expired => Err(self.device.failed(
                format!(
                    "the stream did not come to its end within {waited:?}: work of others in it takes longer, or the \
                     GPU hangs"
                ),
                None,
            )),
            _ => Ok(()),
        }
    }

    /// Ends the communicator with an error: the other ranks get it, and kernels leave.
    pub(crate) fn end(&self, core: &mut EngineCore, error: Error) -> Error {
        let error = core.fail(error);
        self.device.mailbox.abort();
        self.proxies.iter().for_each(ProxyThreads::stop);
        let latest = self.device.latest();
        if let Some(stream) = latest {
            let _ = stream.drain(ABORT_TIMEOUT);
        }
        error
    }

    /// Puts work into a stream, after all calls before. A call that one rank does not make ends the others' too.
    pub(crate) fn put(
        &self,
        core: &mut EngineCore,
        stream: &CudaStream,
        launch: impl FnOnce() -> Result<(), DriverFault>,
    ) -> Result<(), Error> {
        let launched = self.device.journal.put(stream, launch);
        launched.map_err(|fault| {
            let error = self.device.fault(&fault);
            self.end(core, error)
        })
    }

    /// Puts copies (to, from, bytes) into a stream, after all calls before.
    pub(crate) fn copy_in(
        &self,
        core: &mut EngineCore,
        stream: &CudaStream,
        copies: impl IntoIterator<Item = (u64, u64, u64)>,
    ) -> Result<(), Error> {
        // SAFETY: the staging memory has as much as was asked for, and lives as long as `self`; the caller's buffers
        // are good by the promise with which their addresses were made.
        self.put(core, stream, || unsafe { stream.copy_all(copies) })
    }

    /// Returns staging memory of `bytes` at least, which the next call that asks for some uses too.
    pub(crate) fn stage(&mut self, core: &mut EngineCore, bytes: u64) -> Result<DevicePtr, Error> {
        // Memory is short on this rank only: the others must not wait for it.
        self.memory.stage(bytes).map_err(|fault| {
            let error = self.device.fault(&fault);
            self.end(core, error)
        })
    }

    /// Returns an error if this communicator is over several hosts: `what` goes as far as one.
    pub(crate) fn on_one_host(&self, what: &str) -> Result<(), Error> {
        match &self.proxies {
            None => Ok(()),
            Some(_) => Err(Error::Unsupported(format!(
                "{what} reaches as far as one host, and the ranks of this communicator are on several: use a \
                 communicator of the ranks of each host"
            ))),
        }
    }

    /// Leaves what kernels use until the process ends.
    pub(crate) fn abandon(&mut self) {
        self.memory.abandon();
        std::mem::forget(self.device.mailbox.clone());
        self.proxies.iter().for_each(ProxyThreads::abandon);
    }
}
