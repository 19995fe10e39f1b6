//! Defines [`HostKernel`], which callers hold, and the way a fold goes through the loops.

use std::mem::MaybeUninit;

use roundelay_compiler::plan::WireType;

use super::copy::{LINE, copy, fence, stream};
use super::environment::{self, DefaultEnvironment};
use super::level::InstructionLevel;
use super::loops::{FormatConversions, KernelLoops};
use crate::backend::operand::{FoldSource, FoldTarget};
use crate::dtype::{DType, RedOp};
use crate::tunables::STREAMED_ELEMENTS_MIN;

/// A combination of element type and operator, or of element type and wire type, without meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedKernel {
    /// The type has no such operator.
    #[error("`{op}` of {dtype} has no meaning; {dtype} has {}", operators(*.dtype))]
    Op {
        /// The element type.
        dtype: DType,
        /// The operator asked for.
        op: RedOp,
    },
    /// A wire type for values that are no floats, which only can be rounded on the wire.
    #[error("{dtype} cannot travel as {}: only f16, bf16, f32 and f64 are rounded on the wire", .wire.name())]
    WireType {
        /// The element type.
        dtype: DType,
        /// The wire type asked for.
        wire: WireType,
    },
}

/// Lists the operators of a type, in words.
fn operators(dtype: DType) -> String {
    let has = RedOp::ALL.iter().filter(|&&op| kernel(dtype, op).is_ok());
    has.map(|op| op.name()).collect::<Vec<_>>().join(", ")
}

/// The arithmetic of one element type and operator, resolved for this processor.
#[derive(Debug, Clone, Copy)]
pub struct HostKernel {
    loops: &'static KernelLoops,
    dtype: DType,
    /// The wire type that is the element type itself.
    own: Option<WireType>,
}

/// Returns the kernel of a type and an operator. `avg` and `premul_sum` fold like `sum`.
pub fn kernel(dtype: DType, op: RedOp) -> Result<HostKernel, UnsupportedKernel> {
    kernel_at(best(), dtype, op)
}

/// Returns the kernel of a type and an operator with the instructions of a level that is available.
pub(super) fn kernel_at(
    level: InstructionLevel,
    dtype: DType,
    op: RedOp,
) -> Result<HostKernel, UnsupportedKernel> {
    let loops = level.loops(dtype, op).ok_or(UnsupportedKernel::Op { dtype, op })?;
    Ok(HostKernel::of(loops, dtype))
}

fn best() -> InstructionLevel {
    InstructionLevel::available().last().copied().unwrap_or(InstructionLevel::Base)
}

/// Bytes of a block: of accumulators, of results before a streamed output, of a result that is
/// copied on. Small, so that reading the inputs and writing past the caches overlap.
const BLOCK: usize = 1024;

/// Memory of a block.
#[repr(align(64))]
struct FoldBlock(MaybeUninit<[u8; BLOCK]>);

impl FoldBlock {
    fn new() -> Self {
        FoldBlock(MaybeUninit::uninit())
    }

    fn ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

/// A block of a fold: positions `at .. at + n` of `count`, and memory for as many accumulators and
/// for as many results on their way to a streamed output.
struct FoldPart {
    at: usize,
    n: usize,
    count: usize,
    acc: *mut u8,
    staging: *mut u8,
}

impl HostKernel {
    fn of(loops: &'static KernelLoops, dtype: DType) -> HostKernel {
        let own = match dtype {
            DType::F16 => Some(WireType::F16),
            DType::Bf16 => Some(WireType::Bf16),
            DType::F32 => Some(WireType::F32),
            _ => None,
        };
        HostKernel { loops, dtype, own }
    }

    /// Returns a kernel for folds of one input, that is for copies; every type has it.
    pub fn copies(dtype: DType) -> HostKernel {
        HostKernel::of(best().copies(dtype), dtype)
    }

    /// Returns the bytes of an element in memory (`None`) or on the wire. Fails if the element type cannot be
    /// rounded on the wire.
    pub fn wire_size(&self, wire: Option<WireType>) -> Result<usize, UnsupportedKernel> {
        match wire {
            Some(wire) if !self.dtype.is_float() => {
                Err(UnsupportedKernel::WireType { dtype: self.dtype, wire })
            }
            _ => Ok(self.format(wire).size),
        }
    }

    /// Folds `inputs` first to last, element by element, and writes the result to every output. One
    /// input is copied. Without inputs or outputs it does nothing.
    ///
    /// # Safety
    /// The caller keeps the promises listed in the [seam's contract](crate::backend).
    #[inline]
    pub unsafe fn fold(&self, inputs: &[FoldSource], outputs: &[FoldTarget], count: usize) {
        // SAFETY: the promises are handed on; each arm passes the operands it matched.
        unsafe {
            match (inputs, outputs) {
                ([], _) | (_, []) => {}
                ([a], [d, more @ ..])
                    if outputs.iter().all(|d| self.same(a.wire, d.wire) && !streams(d, count)) =>
                {
                    let size = self.format(a.wire).size;
                    spread(size, d, more, count, |at, n, result| {
                        copy(a.ptr.add(at * size), result, n * size);
                    });
                }
                _ if environment::is_changed() => self.fold_by_default(inputs, outputs, count),
                ([a, b], [d, more @ ..])
                    if self.plain(a.wire)
                        && self.plain(b.wire)
                        && outputs.iter().all(|d| self.plain(d.wire) && !streams(d, count)) =>
                {
                    let size = self.loops.formats[0].size;
                    spread(size, d, more, count, |at, n, result| {
                        let at = at * size;
                        (self.loops.pair)(a.ptr.add(at), b.ptr.add(at), result, n);
                    });
                }
                _ => self.fold_blocks(inputs, outputs, count),
            }
        }
    }

    /// Multiplies each element by `factor`, rounded to the type that sums are made in. Integers:
    /// the factor is truncated, the product wraps.
    ///
    /// # Safety
    /// `data` is good for `count` elements, which nothing else reads or writes meanwhile.
    pub unsafe fn scale(&self, data: *mut u8, count: usize, factor: f64) {
        let _environment = DefaultEnvironment::ensure();
        // SAFETY: the promise is the same.
        unsafe { (self.loops.scale)(data, count, factor) };
    }

    /// Divides each element by `n`, at least 1. Integers truncate towards zero.
    ///
    /// # Safety
    /// `data` is good for `count` elements, which nothing else reads or writes meanwhile.
    pub unsafe fn divide(&self, data: *mut u8, count: usize, n: u64) {
        let _environment = DefaultEnvironment::ensure();
        // SAFETY: the promise is the same.
        unsafe { (self.loops.divide)(data, count, n) };
    }

    /// Folds in the default floating-point environment, on a thread that has another one.
    ///
    /// # Safety
    /// The requirements of [`HostKernel::fold`].
    #[cold]
    #[inline(never)]
    unsafe fn fold_by_default(&self, inputs: &[FoldSource], outputs: &[FoldTarget], count: usize) {
        let _environment = DefaultEnvironment::enter();
        // SAFETY: the promise is the same.
        unsafe { self.fold(inputs, outputs, count) };
    }

    /// Returns true if elements there are of the kernel's own type.
    #[inline(always)]
    fn plain(&self, wire: Option<WireType>) -> bool {
        wire.is_none() || wire == self.own
    }

    #[inline(always)]
    fn format(&self, wire: Option<WireType>) -> &'static FormatConversions {
        let [own, f16, bf16, f32] = &self.loops.formats;
        match wire {
            _ if self.plain(wire) => own,
            Some(WireType::F16) => f16,
            Some(WireType::Bf16) => bf16,
            Some(WireType::F32) => f32,
            None => own,
        }
    }

    /// Folds anything, block by block, so that each operand passes the caches once.
    ///
    /// # Safety
    /// The seam's promises; there is at least one input and one output.
    unsafe fn fold_blocks(&self, inputs: &[FoldSource], outputs: &[FoldTarget], count: usize) {
        let (mut acc, mut staging) = (FoldBlock::new(), FoldBlock::new());
        let streamed = outputs.iter().find(|d| streams(d, count));
        let most = BLOCK / self.loops.width;
        let mut next = most - streamed.map_or(0, |d| self.skew(d)).min(most - 1);
        let mut at = 0;
        while at < count {
            let n = next.min(count - at);
            let part = FoldPart { at, n, count, acc: acc.ptr(), staging: staging.ptr() };
            // SAFETY: positions `at .. at + n` are below count, and n is at most a block's.
            unsafe { self.fold_part(inputs, outputs, &part) };
            at += n;
            next = most;
        }
        if streamed.is_some() {
            fence();
        }
    }

    /// Returns the elements that an output begins past a cache line: the first block ends as many early, so
    /// that the blocks after it begin at one.
    fn skew(&self, to: &FoldTarget) -> usize {
        to.ptr.addr() % LINE / self.format(to.wire).size
    }

    /// Folds one block.
    ///
    /// # Safety
    /// The requirements of `fold_blocks`.
    unsafe fn fold_part(&self, inputs: &[FoldSource], outputs: &[FoldTarget], part: &FoldPart) {
        let &FoldPart { at, n, count, acc, staging } = part;
        // SAFETY: positions `at .. at + n` of all operands are good; `n` values of any format fit a
        // block, as none is wider than the accumulator. All inputs of a position are read before an
        // output is written there, by which an output may be an input's memory.
        unsafe {
            match inputs {
                [only] if outputs.iter().all(|d| self.same(d.wire, only.wire)) => {
                    let result = self.source(only, at);
                    outputs.iter().for_each(|d| self.put(result, d, part));
                }
                [a, b]
                    if inputs.iter().all(|s| self.plain(s.wire))
                        && outputs.iter().all(|d| self.plain(d.wire)) =>
                {
                    (self.loops.pair)(self.source(a, at), self.source(b, at), staging, n);
                    outputs.iter().for_each(|d| self.put(staging, d, part));
                }
                _ => {
                    self.accumulate(inputs, at, acc, n);
                    for d in outputs {
                        let store = self.format(d.wire).store;
                        if streams(d, count) {
                            store(acc, staging, n);
                            self.put(staging, d, part);
                        } else {
                            store(acc, self.target(d, at), n);
                        }
                    }
                }
            }
        }
    }

    /// Folds positions `at .. at + n` of the inputs into `acc`.
    ///
    /// # Safety
    /// These positions are good for reading, and `acc` for `n` accumulators; it is apart from them.
    unsafe fn accumulate(&self, inputs: &[FoldSource], at: usize, acc: *mut u8, n: usize) {
        let unrounded = self.loops.width == self.loops.formats[0].size;
        // SAFETY: the promises are the same; `pair` writes accumulators if these are in memory's
        // format.
        unsafe {
            let rest = match inputs {
                [a, b, rest @ ..] if unrounded && self.plain(a.wire) && self.plain(b.wire) => {
                    (self.loops.pair)(self.source(a, at), self.source(b, at), acc, n);
                    rest
                }
                [a, rest @ ..] => {
                    (self.format(a.wire).load)(self.source(a, at), acc, n);
                    rest
                }
                [] => &[],
            };
            for s in rest {
                (self.format(s.wire).fold)(self.source(s, at), acc, n);
            }
        }
    }

    /// Returns true if two formats are one.
    #[inline(always)]
    fn same(&self, a: Option<WireType>, b: Option<WireType>) -> bool {
        a == b || self.plain(a) && self.plain(b)
    }

    /// Returns the address of element `at` of an input.
    ///
    /// # Safety
    /// The input has at least `at` elements.
    #[inline(always)]
    unsafe fn source(&self, from: &FoldSource, at: usize) -> *const u8 {
        // SAFETY: the caller's promise.
        unsafe { from.ptr.add(at * self.format(from.wire).size) }
    }

    /// Returns the address of element `at` of an output.
    ///
    /// # Safety
    /// The output has at least `at` elements.
    #[inline(always)]
    unsafe fn target(&self, to: &FoldTarget, at: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { to.ptr.add(at * self.format(to.wire).size) }
    }

    /// Copies a block's `result`, in the format of the output already, to the output.
    ///
    /// # Safety
    /// `result` and the block's positions are good, and apart or the same.
    #[inline(always)]
    unsafe fn put(&self, result: *const u8, to: &FoldTarget, part: &FoldPart) {
        let bytes = part.n * self.format(to.wire).size;
        // SAFETY: the promises are the same.
        unsafe {
            if streams(to, part.count) {
                stream(result, self.target(to, part.at), bytes);
            } else {
                copy(result, self.target(to, part.at), bytes);
            }
        }
    }
}

/// Makes a result in place in output `d` and copies it to `more`, block by block so that the copy
/// finds it in the cache. `make(at, n, result)` makes positions `at .. at + n`.
///
/// # Safety
/// All outputs are good for `count` elements of `size` bytes, and apart.
#[inline(always)]
unsafe fn spread(
    size: usize,
    d: &FoldTarget,
    more: &[FoldTarget],
    count: usize,
    make: impl Fn(usize, usize, *mut u8),
) {
    if more.is_empty() {
        return make(0, count, d.ptr);
    }
    let mut at = 0;
    while at < count {
        let n = (BLOCK / size).min(count - at);
        // SAFETY: positions `at .. at + n` are below count.
        unsafe {
            let result = d.ptr.add(at * size);
            make(at, n, result);
            for d in more {
                std::ptr::copy_nonoverlapping(result, d.ptr.add(at * size), n * size);
            }
        }
        at += n;
    }
}

/// Returns true if stores there go past the caches.
#[inline(always)]
fn streams(to: &FoldTarget, count: usize) -> bool {
    to.stream && count >= STREAMED_ELEMENTS_MIN
}
