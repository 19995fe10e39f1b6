//! The kernel of windows: its parameters, and how operations are written there.

use std::time::Duration;

use roundelay_compiler::device::abi;
use roundelay_emit::cuda::window::{PARAMS, WindowOperation, WindowParams};

use crate::params::{WORDS, words};
use crate::rank::GpuRank;
use roundelay_engine::window::AtomicFetch;

/// The threads of the kernel: a warp.
pub(super) const THREADS: u32 = 32;

/// Returns what all kernels have in common, of one whose waits end after a time.
pub(super) fn window_params(rank: &GpuRank, timeout: Duration) -> abi::KernelParams {
    let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    let (abort, report) = rank.device.mailbox.addresses();
    let state = rank.memory.arena.base(rank.device.rank) + rank.memory.layout.states;
    abi::KernelParams { state, abort, report, timeout, ..abi::KernelParams::default() }
}

/// Returns an atomic operation, as the kernel does it.
pub(super) fn fetches(fetch: AtomicFetch, word: u64, own: u64) -> WindowParams {
    let (operation, operand, compared) = match fetch {
        AtomicFetch::Add(value) => (WindowOperation::Add, value, 0),
        AtomicFetch::Swap(from, to) => (WindowOperation::Swap, to, from),
    };
    WindowParams { operation, peer: 0, word, own, operand, compared }
}

/// Returns the words of the kernel's parameter.
pub(super) fn words_of(all: &abi::KernelParams, fixed: &WindowParams) -> Vec<u64> {
    let WindowParams { operation, peer, word, own, operand, compared } = *fixed;
    kernel_words(all, &[operation as u64, peer, word, own, operand, compared])
}

/// Returns the words of the parameter of a kernel that is no program's.
pub(super) fn kernel_words(all: &abi::KernelParams, own: &[u64]) -> Vec<u64> {
    // An address a rank of four kinds, which such kernels have no use for.
    [&words(all)[..], &[0; 4], own].concat()
}

const _: () = assert!(PARAMS == 8 * (WORDS + 4 + 6));
