//! The arguments that calls have in common, read.

use std::ffi::c_void;
use std::time::Duration;

use roundelay::operation::{CallBuffer, CallOperand, MemoryKind};
use roundelay::{DType, Error, Hints, RedOp, Reduction};

use super::pointers::{null, text_or_none};
use super::values::{RL_CUDA, RL_HOST, rl_buffer, rl_dtype, rl_op, rl_options};
use crate::buffer::ElementBuffer;
use crate::request_options::RequestOptions;

/// The arguments that calls have in common, as the library has them.
pub(super) struct CommonArguments {
    pub(super) options: RequestOptions,
    pub(super) dtype: DType,
    pub(super) memory: MemoryKind,
    pub(super) factor: f64,
}

pub(super) fn dtype(number: rl_dtype) -> Result<DType, Error> {
    let found = usize::try_from(number).ok().and_then(|at| DType::ALL.get(at));
    found.copied().ok_or_else(|| unknown("type of elements", number, DType::ALL.len()))
}

pub(super) fn op(number: rl_op) -> Result<RedOp, Error> {
    let found = usize::try_from(number).ok().and_then(|at| RedOp::ALL.get(at));
    found.copied().ok_or_else(|| unknown("operator", number, RedOp::ALL.len()))
}

fn unknown(what: &str, number: i32, known: usize) -> Error {
    Error::Usage(format!("{number} is no {what}: they are numbered from 0 to {}", known - 1))
}

impl CommonArguments {
    /// Reads options, which may be NULL.
    ///
    /// # Safety
    ///
    /// The promise of [`rl_options::read`].
    pub(super) unsafe fn read(of: rl_dtype, options: *const rl_options) -> Result<Self, Error> {
        let dtype = dtype(of)?;
        // SAFETY: what the caller promises.
        let Some(given) = (unsafe { rl_options::read(options)? }) else {
            let options = RequestOptions::default();
            return Ok(CommonArguments { options, dtype, memory: MemoryKind::Host, factor: 1.0 });
        };
        // SAFETY: hints are a text, or NULL.
        let hints = unsafe { text_or_none(given.hints, "the hints") }?;
        let hints = hints.map(|text| text.parse::<Hints>()).transpose()?;
        let timeout = (given.timeout_ms > 0).then(|| Duration::from_millis(given.timeout_ms));
        let stream = (!given.stream.is_null()).then(|| given.stream.expose_provenance() as u64);
        let memory = match given.memory {
            RL_HOST => MemoryKind::Host,
            RL_CUDA => MemoryKind::Device,
            other => return Err(unknown("kind of memory", other, 2)),
        };
        let options = RequestOptions { timeout, hints, stream, overlaps: given.overlaps != 0 };
        Ok(CommonArguments { options, dtype, memory, factor: given.factor })
    }

    pub(super) fn reduction(&self, number: rl_op) -> Result<Reduction, Error> {
        Ok(Reduction { op: op(number)?, factor: self.factor })
    }

    /// Describes the caller's memory, for windows, endpoints and messages.
    ///
    /// # Safety
    ///
    /// The promise of [`ElementBuffer::new`].
    pub(super) unsafe fn buffer(&self, ptr: *const c_void, count: u64) -> ElementBuffer {
        let (address, elements) = address_of(ptr, count);
        // SAFETY: what the caller promises.
        unsafe { ElementBuffer::new(address, elements, self.dtype, self.memory) }
    }

    /// Describes the caller's memory, for a call.
    ///
    /// # Safety
    ///
    /// The promise of [`CallBuffer::new`].
    unsafe fn call_buffer<A>(
        &self,
        ptr: *const c_void,
        count: u64,
    ) -> Result<CallBuffer<A>, Error> {
        let (address, elements) = address_of(ptr, count);
        // SAFETY: what the caller promises.
        unsafe { CallBuffer::new(address, elements, self.dtype, self.memory) }
    }

    /// One buffer.
    ///
    /// # Safety
    ///
    /// The promise of [`CallBuffer::new`].
    pub(super) unsafe fn one<A>(
        &self,
        ptr: *const c_void,
        count: u64,
    ) -> Result<CallOperand<'static, A>, Error> {
        // SAFETY: what the caller promises.
        Ok(CallOperand::One(unsafe { self.call_buffer(ptr, count) }?))
    }

    /// One buffer, or nothing if its address is NULL.
    ///
    /// # Safety
    ///
    /// The promise of [`CallBuffer::new`].
    pub(super) unsafe fn maybe<A>(
        &self,
        ptr: *const c_void,
        count: u64,
    ) -> Result<CallOperand<'static, A>, Error> {
        // SAFETY: what the caller promises.
        if ptr.is_null() { Ok(CallOperand::None) } else { unsafe { self.one(ptr, count) } }
    }

    /// A list of one buffer a rank; nothing if it is NULL.
    ///
    /// # Safety
    ///
    /// The list has `ranks` entries, each of which keeps the promise of [`CallBuffer::new`].
    pub(super) unsafe fn list<A>(
        &self,
        list: *const rl_buffer,
        ranks: u32,
    ) -> Result<CallOperand<'static, A>, Error> {
        if list.is_null() {
            return Ok(CallOperand::None);
        }
        // SAFETY: what the caller promises.
        let list = unsafe { std::slice::from_raw_parts(list, ranks as usize) };
        // SAFETY: as above.
        let buffers = list.iter().map(|b| unsafe { self.call_buffer(b.ptr, b.count) });
        buffers.collect::<Result<_, _>>().map(CallOperand::List)
    }

    /// One buffer of blocks of that many elements, one a rank.
    ///
    /// # Safety
    ///
    /// There are `ranks` counts, and the buffer of their sum keeps the promise of [`CallBuffer::new`].
    pub(super) unsafe fn cut<A>(
        &self,
        ptr: *const c_void,
        counts: *const u64,
        ranks: u32,
    ) -> Result<CallOperand<'static, A>, Error> {
        if counts.is_null() {
            return Err(null("counts"));
        }
        // SAFETY: what the caller promises.
        let counts = unsafe { std::slice::from_raw_parts(counts, ranks as usize) };
        let total = counts.iter().fold(0u64, |sum, &count| sum.saturating_add(count));
        let counts: Vec<usize> =
            counts.iter().map(|&count| usize::try_from(count).unwrap_or(usize::MAX)).collect();
        // SAFETY: as above.
        let buffer = unsafe { self.call_buffer(ptr, total) }?;
        Ok(CallOperand::Cut(buffer, counts.into()))
    }
}

/// Returns the address and the number of elements of a caller's memory.
fn address_of(ptr: *const c_void, count: u64) -> (u64, usize) {
    (ptr.expose_provenance() as u64, usize::try_from(count).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::values::*;
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        assert_eq!(dtype(RL_BF16), Ok(DType::Bf16));
        assert_eq!(dtype(RL_BOOL), Ok(DType::Bool));
        assert_eq!(DType::ALL.len(), 11, "a new type needs a number");
        assert_eq!(op(RL_SUM), Ok(RedOp::Sum));
        assert_eq!(op(RL_PREMUL_SUM), Ok(RedOp::PremulSum));
        assert_eq!(op(RL_XOR), Ok(RedOp::Xor));
        assert_eq!(RedOp::ALL.len(), 9, "a new operator needs a number");
        assert!(dtype(-1).is_err() && dtype(11).is_err() && op(9).is_err());
    }
}
