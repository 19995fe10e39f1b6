//! The kernel of windows of device memory: signals, waits for signals, and atomic operations on words.
//!
//! Puts and gets are copies of the driver's, in the order of a stream; this kernel stands before and behind them. Each
//! rank of a window has words for each other one:
//!
//! * A signal counts this rank's signals for the peer in its own memory, and writes the count into a word of the peer's
//!   that no other rank writes, behind a release: a reader of the count sees what lies before it in the stream.
//! * A wait counts the signals that were taken in this rank's own memory, and ends when the word has come as far, with
//!   an acquire: what lies behind it in the stream sees what lay before the signal.
//!
//! No words of a rank on another host are mapped. A thread of the host does there what the stream asks for, and raises
//! a word when it was done, which the kernel waits for.
//!
//! All counts of ranks of one host lie in device memory, so a graph is replayed without the host. Every word has one
//! writer, in one order of streams, and only grows.

use super::batch::common;
use roundelay_compiler::device::abi::KernelParams;

/// An operation of the kernel, in the order of its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum WindowOperation {
    /// Signals the peer at `word`; `own` counts.
    Signal,
    /// Waits for the peer's signal at `word`; `own` counts.
    Await,
    /// Adds `operand` to `word`, and writes what was there to `own`.
    Add,
    /// Writes `operand` to `word` if `compared` is there, and what was there to `own`.
    Swap,
    /// Waits until the host has raised `word` to `operand`.
    Reach,
}

/// The parameters behind those of all kernels, in the order of the kernel's structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct WindowParams {
    /// The operation.
    pub operation: WindowOperation,
    /// The peer, for reports.
    pub peer: u64,
    /// Address of the word that another rank reads or writes too.
    pub word: u64,
    /// Address of a word of this rank.
    pub own: u64,
    /// A number.
    pub operand: u64,
    /// Another one.
    pub compared: u64,
}

/// Bytes of the parameters.
pub const PARAMS: usize = size_of::<KernelParams>() + 4 * 8 + size_of::<WindowParams>();

/// A kind of word in reports: a signal.
pub const SIGNALLED: u32 = 17;
/// A kind of word in reports: what a rank on another host was asked for.
pub const SERVED: u32 = 18;

/// Returns the kernel's text.
pub fn window() -> String {
    common("signals of windows", 2) + include_str!("window.cuh")
}
