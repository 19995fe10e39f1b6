//! The seam between executing a plan and computing: a backend owns memory and arithmetic.
//!
//! Everything above this seam moves addresses and counts; only a backend reads or writes elements. There are two, and
//! an engine uses one of them for a whole call. The executor gives [`host`] one step after the other
//! ([`HostKernel::fold`]). `cuda` is given whole programs: `cuda::HostKernel::launch` puts one into a stream, and the
//! text that the compiler wrote (`compiler/emit/src/cuda`) does what `fold` does, step by step.
//!
//! **What a backend promises**
//!
//! - *One form.* A step folds some inputs, element by element, and hands the result to some outputs. With one input it
//!   copies. `premul_sum` multiplies before the first step ([`HostKernel::scale`]), `avg` divides after the last
//!   ([`HostKernel::divide`]).
//! - *Order.* The operands of an element are combined strictly first to last. Nothing about count,
//!   alignment, block size, instruction set or number of threads changes a bit of the result, except which NaN a NaN
//!   is.
//! - *Rounding.* `f32` and `f64` round at every step, as written. `f16` and `bf16` are accumulated in
//!   `f32` over all inputs of one fold and rounded once, when stored. All roundings are to nearest,
//!   ties to even, and subnormal numbers are kept, whatever the calling thread has set for itself; a NaN stays a NaN.
//! - *Integers wrap.* `min` and `max` of floats are NaN if any operand is; of operands that compare
//!   equal (the two zeros) they keep the first.
//! - *Wire types.* An operand may hold another float type than the buffer's ([`FoldSource::wire`],
//!   [`FoldTarget::wire`]). It is converted when loaded and when stored; the arithmetic between is the same. A value
//!   goes from the accumulator to each destination in one rounding.
//! - *Memory is passed once.* Long folds go in blocks that stay near the arithmetic: in the first-level cache, in
//!   registers. A step, or a launch, allocates nothing and logs nothing.
//!
//! So both give the same bits for the same plan (`runtime/tests/cuda` compares them), and refuse the same types and
//! operators.
//!
//! **What a caller owes** (and the seam does not check)
//!
//! - Every address is good for its elements until the step is over, or the stream has come past the launch; no
//!   alignment is needed, and kernels for aligned memory are given only that. Nothing else writes the sources, or
//!   touches the destinations.
//! - A destination is apart from all other operands, or begins exactly where a source of the same
//!   type begins (reducing in place). It overlaps nothing in part, and no two destinations overlap.
//! - The operator has a meaning for the type, and the type can be rounded to the wire's: [`kernel`] and
//!   [`HostKernel::wire_size`] were asked, or the compiler when it wrote the text.
//! - For `cuda`: the words of a launch are those of the kernel's parameter, all ranks that a program concerns launch
//!   theirs, in the same order, and no launch has more blocks than are resident at once.
//!
//! **Between threads.** `fold` orders nothing: a thread that hands its result to another thread or process stores a
//! flag with `Release` afterwards. Streaming stores are fenced before `fold` returns. A kernel signals its peers by
//! itself; what it leaves is visible to what comes after it in the stream.

pub mod host;
mod operand;

pub use host::{HostKernel, UnsupportedKernel, kernel};
pub use operand::{CacheLine, FoldSource, FoldTarget};
