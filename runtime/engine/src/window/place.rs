//! The memory of a rank's part of a window, and the operations on it: of a peer that maps it, or of the window server.
//!
//! Other ranks read and write it at any time, so nothing here makes a reference to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::block::WindowBlock;
use super::rights::WindowRights;
use super::span::MemorySpan;
use crate::tunables::{LOCK_POLLS, LOCKED_COMBINE_BYTES};
use roundelay_support::backend::{FoldSource, FoldTarget, kernel};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::{AccessRefusal, Error};

/// The memory of one rank's part, with its words.
pub struct PartMemory {
    span: MemorySpan,
    dtype: DType,
    block: WindowBlock,
}

/// An atomic operation on a word, which returns its old value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicFetch {
    /// Adds, wrapping around.
    Add(u64),
    /// Stores the second if the word is the first.
    Swap(u64, u64),
}

impl AtomicFetch {
    /// Returns the name of its call.
    pub fn name(self) -> &'static str {
        match self {
            AtomicFetch::Add(_) => "fetch_add",
            AtomicFetch::Swap(..) => "compare_swap",
        }
    }
}

/// The reason for which an accumulate failed.
pub enum AccumulateFailure {
    /// The operation is not allowed.
    Refused(AccessRefusal),
    /// The communicator has ended.
    Ended(Error),
}

impl From<AccessRefusal> for AccumulateFailure {
    fn from(refusal: AccessRefusal) -> Self {
        AccumulateFailure::Refused(refusal)
    }
}

impl PartMemory {
    /// Returns the place of that memory.
    pub fn new(span: MemorySpan, dtype: DType, block: WindowBlock) -> Self {
        PartMemory { span, dtype, block }
    }

    /// Returns its words.
    pub fn block(&self) -> &WindowBlock {
        &self.block
    }

    /// Returns its memory.
    pub fn span(&self) -> MemorySpan {
        self.span
    }

    /// Returns its length.
    pub fn bytes(&self) -> u64 {
        self.span.bytes()
    }

    /// Returns the type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the address of `len` bytes at an offset, if they are inside.
    #[inline]
    pub fn at(&self, offset: u64, len: u64) -> Result<*mut u8, AccessRefusal> {
        self.span.at(offset, len)
    }

    /// Copies into the memory, as [`MemorySpan::put`] does.
    ///
    /// # Safety
    ///
    /// `from` can be read for the length of the place.
    #[inline]
    pub unsafe fn put(
        &self,
        place: (u64, usize),
        from: *const u8,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, AccessRefusal> {
        // SAFETY: the caller's promise.
        unsafe { self.span.put(place, from, goes_on) }
    }

    /// Copies from the memory, as [`MemorySpan::get`] does.
    ///
    /// # Safety
    ///
    /// `to` can be written for the length of the place.
    #[inline]
    pub unsafe fn get(
        &self,
        place: (u64, usize),
        to: *mut u8,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, AccessRefusal> {
        // SAFETY: the caller's promise.
        unsafe { self.span.get(place, to, goes_on) }
    }

    /// Applies an atomic operation to a word; returns its old value.
    #[inline]
    pub(crate) fn fetch(&self, offset: u64, fetch: AtomicFetch) -> Result<u64, AccessRefusal> {
        let word = self.span.word(offset)?;
        Ok(match fetch {
            AtomicFetch::Add(value) => word.fetch_add(value, Ordering::AcqRel),
            AtomicFetch::Swap(from, to) => word
                .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|now| now),
        })
    }

    /// Fails unless elements of a type can be accumulated here by an operator.
    pub(crate) fn accumulates(
        &self,
        dtype: DType,
        op: RedOp,
        offset: u64,
        len: u64,
    ) -> Result<(), AccessRefusal> {
        PartMemory::combines((self.dtype, dtype), op, offset, len)?;
        self.at(offset, len).map(drop)
    }

    /// Fails unless elements of the second type can be accumulated in a window of the first by an operator.
    pub fn combines(
        (of_window, dtype): (DType, DType),
        op: RedOp,
        offset: u64,
        len: u64,
    ) -> Result<(), AccessRefusal> {
        let size = dtype.size() as u64;
        if dtype != of_window {
            let text = format!("the elements are {dtype}, and those of the window are {of_window}");
            return Err(AccessRefusal::Elements(text));
        }
        if matches!(op, RedOp::Avg | RedOp::PremulSum) {
            let text = format!(
                "`{op}` counts or scales the ranks of a call, and an accumulate has none: use `sum`"
            );
            return Err(AccessRefusal::Elements(text));
        }
        kernel(dtype, op).map_err(|error| AccessRefusal::Elements(error.to_string()))?;
        if !offset.is_multiple_of(size) || !len.is_multiple_of(size) {
            let text =
                format!("bytes {offset} to {} are no whole elements of {size} bytes", offset + len);
            return Err(AccessRefusal::Elements(text));
        }
        Ok(())
    }

    /// Combines elements with those in the memory, each of them atomically. `waits` is called while another rank holds
    /// the lock, and ends the wait by an error.
    ///
    /// # Safety
    ///
    /// `from` can be read for the length of the place.
    pub(crate) unsafe fn accumulate<E: From<AccessRefusal>>(
        &self,
        (offset, len): (u64, usize),
        (from, op): (*const u8, RedOp),
        own: u32,
        mut waits: impl FnMut(u32, Duration) -> Result<(), E>,
    ) -> Result<(), E> {
        let (size, to) = (self.dtype.size(), self.at(offset, len as u64)?);
        if let Some(combine) = by_words(self.dtype, op) {
            for at in (0..len).step_by(size) {
                let word = self.span.word(offset + at as u64)?;
                // SAFETY: in bounds, as the caller promises.
                let value = unsafe { from.add(at).cast::<u64>().read_unaligned() };
                combine(word, value);
            }
            return Ok(());
        }
        let kernel =
            kernel(self.dtype, op).map_err(|error| AccessRefusal::Elements(error.to_string()))?;
        let mut at = 0;
        while at < len {
            let (began, mut polls) = (Instant::now(), 0u32);
            let _locked = loop {
                match self.block.try_lock(own) {
                    Ok(locked) => break locked,
                    Err(_) if polls < LOCK_POLLS => std::hint::spin_loop(),
                    Err(holder) => {
                        waits(holder, began.elapsed())?;
                        rustix::thread::sched_yield();
                    }
                }
                polls = polls.saturating_add(1);
            };
            let part = LOCKED_COMBINE_BYTES.min(len - at);
            let there = to.wrapping_add(at);
            let inputs = [
                FoldSource { ptr: there, wire: None },
                // SAFETY: in bounds, as the caller promises.
                FoldSource { ptr: unsafe { from.add(at) }, wire: None },
            ];
            let output = FoldTarget { ptr: there, wire: None, stream: false };
            // SAFETY: the memory is in bounds, `from` as the caller promises; the output begins where the first input
            // does.
            unsafe { kernel.fold(&inputs, &[output], part / size) };
            at += part;
        }
        Ok(())
    }

    /// Returns the refusal of an access that lacks rights.
    #[cold]
    pub(crate) fn lacks(needed: WindowRights, has: WindowRights) -> AccessRefusal {
        let name = match needed {
            WindowRights::READ => "read",
            WindowRights::WRITE => "write",
            _ => "atomics",
        };
        AccessRefusal::Rights { needed: name, has: has.to_string() }
    }
}

/// Returns what combines a 64-bit integer with a word, atomically with everything else that is done to it.
fn by_words(dtype: DType, op: RedOp) -> Option<fn(&AtomicU64, u64)> {
    fn update(word: &AtomicU64, combine: impl Fn(u64) -> u64) {
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(combine(old)));
    }
    Some(match (dtype, op) {
        (DType::U64 | DType::I64, RedOp::Sum) => |word, x| {
            word.fetch_add(x, Ordering::AcqRel);
        },
        (DType::U64 | DType::I64, RedOp::And) => |word, x| {
            word.fetch_and(x, Ordering::AcqRel);
        },
        (DType::U64 | DType::I64, RedOp::Or) => |word, x| {
            word.fetch_or(x, Ordering::AcqRel);
        },
        (DType::U64 | DType::I64, RedOp::Xor) => |word, x| {
            word.fetch_xor(x, Ordering::AcqRel);
        },
        (DType::U64, RedOp::Min) => |word, x| {
            word.fetch_min(x, Ordering::AcqRel);
        },
        (DType::U64, RedOp::Max) => |word, x| {
            word.fetch_max(x, Ordering::AcqRel);
        },
        (DType::I64, RedOp::Min) => |word, x| update(word, |old| (old as i64).min(x as i64) as u64),
        (DType::I64, RedOp::Max) => |word, x| update(word, |old| (old as i64).max(x as i64) as u64),
        (DType::U64 | DType::I64, RedOp::Prod) => |word, x| update(word, |old| old.wrapping_mul(x)),
        _ => return None,
    })
}
