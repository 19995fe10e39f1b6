//! Operations on the parts of a window: copies, signals, atomic operations.

use roundelay_emit::cuda::window::{WindowOperation, WindowParams};

use super::kernel::{THREADS, fetches, window_params, words_of};
use super::part::{CopyDirection, SignalWords, WindowPart, WindowRoute, WindowSpan, route, word};
use super::proxied::{not_captured, run_proxied};
use crate::backend::CudaStream;
use crate::buffer::DevicePtr;
use crate::rank::GpuRank;
use roundelay_engine::EngineCore;
use roundelay_engine::window::AtomicFetch;
use roundelay_support::error::{AccessRefusal, Error};

/// Returns the address of a peer's part, as mapped here.
pub(crate) fn map_part(rank: &GpuRank, part: &WindowPart, peer: u32) -> Result<DevicePtr, Error> {
    match route(rank, part, "map", WindowSpan { peer, at: 0, bytes: 0 })? {
        WindowRoute::Mapped(address) => Ok(address),
        WindowRoute::Served(_) => {
            let what = format!("map the part of rank {peer}");
            Err(Error::Window { rank: rank.device.rank, what, refusal: AccessRefusal::NotMapped })
        }
    }
}

/// Puts a put into a stream, or a get; `own` is this rank's memory.
pub(crate) fn transfer(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    (part, copied): (&WindowPart, CopyDirection),
    (own, there): (DevicePtr, WindowSpan),
    stream: &CudaStream,
) -> Result<(), Error> {
    let way = route(rank, part, copied.name(), there)?;
    core.usable()?;
    rank.listen(core)?;
    if there.bytes > 0 && own.is_null() {
        return Err(Error::Usage("the memory to put from, or to get to, is null".into()));
    }
    let (place, remote) = match way {
        WindowRoute::Mapped(place) => (place, None),
        WindowRoute::Served(remote) => (DevicePtr::NULL, Some(remote)),
    };
    match (remote, copied) {
        (None, CopyDirection::Put) => rank.copy_in(core, stream, [(place.0, own.0, there.bytes)]),
        (None, CopyDirection::Get) => rank.copy_in(core, stream, [(own.0, place.0, there.bytes)]),
        (Some(remote), copied) => {
            let place = (there.at, own.0, there.bytes);
            run_proxied(rank, core, (part, &remote, copied.name()), stream, |proxy, steps, to| {
                match copied {
                    CopyDirection::Put => proxy.put(steps, to, place),
                    CopyDirection::Get => proxy.get(steps, to, place),
                }
            })
        }
    }
}

/// Puts a signal to a peer into a stream, or the wait for one of it.
pub(crate) fn signal(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    (part, peer): (&WindowPart, u32),
    awaits: bool,
    stream: &CudaStream,
) -> Result<(), Error> {
    let what = if awaits { "wait_signal" } else { "signal" };
    let way = route(rank, part, what, WindowSpan { peer, at: 0, bytes: 0 })?;
    if let WindowRoute::Served(remote) = &way {
        not_captured(rank, what, stream)?;
        if !awaits {
            return run_proxied(rank, core, (part, remote, what), stream, |proxy, steps, to| {
                proxy.signal(steps, to)
            });
        }
    }
    let (me, ranks) = (rank.device.rank, rank.device.ranks);
    let (own, theirs) = (part.words.1.base(me), part.words.1.base(peer));
    let (operation, word, own) = match awaits {
        true => (
            WindowOperation::Await,
            own + word(ranks, SignalWords::Arrived, peer),
            own + word(ranks, SignalWords::Taken, peer),
        ),
        false => (
            WindowOperation::Signal,
            theirs + word(ranks, SignalWords::Arrived, me),
            own + word(ranks, SignalWords::Signalled, peer),
        ),
    };
    let fixed = WindowParams { operation, peer: peer.into(), word, own, operand: 0, compared: 0 };
    launch_window(rank, core, part, &fixed, stream)
}

/// Puts an atomic operation on a word of a peer's part into a stream; `result` is where the word goes that was
/// there.
pub(crate) fn fetch(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    (part, there, result): (&WindowPart, WindowSpan, DevicePtr),
    fetch: AtomicFetch,
    stream: &CudaStream,
) -> Result<(), Error> {
    let way = route(rank, part, "an atomic operation on", there)?;
    // The parts of other hosts begin at multiples of 8.
    let at = if let WindowRoute::Mapped(place) = way { place.0 } else { there.at };
    if !at.is_multiple_of(8) || !result.0.is_multiple_of(8) || result.is_null() {
        let text =
            "atomic operations are on words of 8 bytes at multiples of 8, and their results too";
        return Err(Error::Usage(text.into()));
    }
    match way {
        WindowRoute::Mapped(word) => {
            let fixed = fetches(fetch, word.0, result.0);
            launch_window(rank, core, part, &fixed, stream)
        }
        WindowRoute::Served(remote) => {
            let what = if let AtomicFetch::Add(_) = fetch { "fetch_add" } else { "compare_swap" };
            let place = (there.at, result.0, fetch);
            run_proxied(rank, core, (part, &remote, what), stream, |proxy, steps, to| {
                proxy.fetch(steps, to, place)
            })
        }
    }
}

/// Waits until everything in a stream is done, and what this rank has done with a peer's part has taken effect.
pub(crate) fn flush(
    rank: &mut GpuRank,
    core: &mut EngineCore,
    (part, peer): (&WindowPart, u32),
    stream: &CudaStream,
) -> Result<(), Error> {
    let way = route(rank, part, "flush", WindowSpan { peer, at: 0, bytes: 0 })?;
    if let WindowRoute::Served(remote) = way {
        run_proxied(rank, core, (part, &remote, "flush"), stream, |proxy, steps, to| {
            proxy.flush(steps, to)
        })?;
    }
    rank.watch(core, || stream.is_done())
}

fn launch_window(
    rank: &GpuRank,
    core: &mut EngineCore,
    part: &WindowPart,
    fixed: &WindowParams,
    stream: &CudaStream,
) -> Result<(), Error> {
    core.usable()?;
    rank.listen(core)?;
    let params = words_of(&window_params(rank, core.timeout()), fixed);
    let grid = (1, THREADS);
    // SAFETY: the words are those of the kernel's parameter. The arena, the mailbox and the window's words live as
    // long as `rank`; the caller's words are good by the promise with which their addresses were made.
    rank.put(core, stream, || unsafe { part.kernel.launch(stream, grid, &params) })
}
