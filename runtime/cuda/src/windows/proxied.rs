//! Operations of streams on parts of ranks on other hosts, which the proxy performs.

use std::sync::Arc;

use super::kernel::window_params;
use super::part::WindowPart;
use super::remote::CudaSteps;
use crate::backend::{CudaStream, DriverFault};
use crate::proxy::{WindowProxy, WindowTarget};
use crate::rank::GpuRank;
use crate::tunables::RMA_STREAM_TIMEOUTS;
use roundelay_engine::EngineCore;
use roundelay_engine::window::ServedPart;
use roundelay_support::dtype::DType;
use roundelay_support::error::Error;

/// Fails if a stream is being captured: what goes to other hosts is not in graphs.
pub(super) fn not_captured(rank: &GpuRank, what: &str, stream: &CudaStream) -> Result<(), Error> {
    match stream.is_captured().map_err(|fault| rank.device.fault(&fault))? {
        true => rank.on_one_host(&format!("{what} in a graph")),
        false => Ok(()),
    }
}

/// Puts what the proxy is to do with a peer's part into a stream.
pub(super) fn run_proxied(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    (part, remote, what): (&WindowPart, &Arc<ServedPart>, &str),
    stream: &CudaStream,
    put: impl FnOnce(&mut WindowProxy, &mut CudaSteps<'_>, &WindowTarget) -> Result<(), DriverFault>,
) -> Result<(), Error> {
    core.usable()?;
    rank.listen(core)?;
    not_captured(rank, what, stream)?;
    let timeout = core.timeout();
    let dtype = part.remote.as_ref().map_or(DType::U8, |window| window.dtype);
    let target = WindowTarget { remote: remote.clone(), dtype, timeout };
    // The proxy gives up sooner, and knows why.
    let params = window_params(rank, timeout.saturating_mul(RMA_STREAM_TIMEOUTS));
    let Some(proxy) = rank.proxies.as_mut().and_then(|lanes| lanes.window_proxy()) else {
        return Err(Error::Usage(format!("{what}: the window is another communicator's")));
    };
    let words = proxy.slots().words();
    let launched = rank.device.journal.put(stream, || {
        let mut steps = CudaSteps { stream, kernel: &part.kernel, params, words };
        put(proxy, &mut steps, &target)
    });
    launched.map_err(|fault| {
        let error = rank.device.fault(&fault);
        rank.end(core, error)
    })
}

/// Waits until all that this rank has done with parts of ranks on other hosts has taken effect.
pub(super) fn flush_all(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    part: &WindowPart,
) -> Result<(), Error> {
    let Some(window) = &part.remote else { return Ok(()) };
    let stream = rank.device.stream.clone();
    for remote in window.remotes.iter().flatten() {
        run_proxied(rank, core, (part, remote, "free"), &stream, |proxy, steps, to| {
            proxy.flush(steps, to)
        })?;
    }
    rank.finish(core)
}
