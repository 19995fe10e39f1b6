//! The inputs of a kernel beside its program, and the text that all kernels share.

use super::types::{Element, Operator};

/// The part that all kernels have in common: instructions, and what is built on them.
pub(super) const PRELUDE: &str =
    concat!(include_str!("machine.cuh"), include_str!("prelude.cuh"), include_str!("numbers.cuh"));
/// The line that stands for the prelude in the part that is shown.
pub(super) const INCLUDE: &str = "#include \"prelude.cuh\"\n";

/// The name of the kernel in every source.
pub const KERNEL: &str = "roundelay_kernel";

/// The facts that a kernel depends on beside its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelSpec {
    /// Type of the elements.
    pub element: Element,
    /// The operator that combines them; unused by a program that does not reduce.
    pub operator: Operator,
    /// True if everything lies at multiples of 16 bytes: the buffers, which the caller knows, and the chunks
    /// in them, which [`aligned`](super::aligned) tells.
    pub aligned: bool,
}
