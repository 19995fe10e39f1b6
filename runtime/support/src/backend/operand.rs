//! Operands of a fold.

use roundelay_compiler::plan::WireType;

/// The source from which an operand of a fold is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldSource {
    /// The first element; no alignment needed.
    pub ptr: *const u8,
    /// Element type there, if not the kernel's.
    pub wire: Option<WireType>,
}

/// The destination to which the result of a fold is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldTarget {
    /// The first element; no alignment needed.
    pub ptr: *mut u8,
    /// Element type there, if not the kernel's.
    pub wire: Option<WireType>,
    /// True if the result is not read soon: long ones may go past the caches.
    pub stream: bool,
}

/// Memory aligned as kernels read it best.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct CacheLine(#[allow(dead_code, reason = "only its address is used")] [u8; 64]);

impl CacheLine {
    /// A line of zeros.
    pub const ZERO: CacheLine = CacheLine([0; 64]);
}
