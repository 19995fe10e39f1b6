//! The kernel of accumulates to windows of device memory, in one type and with one operator.
//!
//! Each element is combined with the one that is there in one step (compare and swap), as MPI's `MPI_Accumulate` is
//! atomic an element: accumulates of several ranks to one place are all in the result, in any order. GPUs that are
//! connected by NVLink do such steps in a peer's memory; over PCI Express they are not one step.

use super::batch::common;
use super::types::{Element, Operator};
use roundelay_compiler::device::abi::KernelParams;

/// The parameters behind those of all kernels, in the order of the kernel's structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct AccumulateParams {
    /// Address of the first element of the peer's that is combined.
    pub there: u64,
    /// Address of this rank's first element.
    pub data: u64,
    /// Elements.
    pub elements: u64,
}

/// Bytes of the parameters.
pub const PARAMS: usize = size_of::<KernelParams>() + 4 * 8 + size_of::<AccumulateParams>();

/// Returns true if elements are accumulated with that operator: `avg` and `premul_sum` are of all ranks together.
pub const fn accumulates(element: Element, operator: Operator) -> bool {
    !matches!(operator, Operator::Avg | Operator::PremulSum) && element.has(operator)
}

/// Returns the kernel's text.
pub fn accumulate(element: Element, operator: Operator) -> String {
    let title = format!("accumulates of {} by {}", element.name(), operator.name());
    let (format, value, pair) = (element.format(), element.value(), operator.pair());
    common(&title, 2)
        + &format!("using Format = {format};\nusing Value = {value};\nusing Combine = {pair};\n")
        + include_str!("accumulate.cuh")
}
