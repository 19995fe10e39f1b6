//! The memory that calls take, and the engine that each kind of it belongs to.

use std::fmt::Debug;

use roundelay_engine::bind::CallStats;
use roundelay_engine::{InputBuffer, OutputBuffer};
use roundelay_net::memory::{Buffer, bytes, bytes_mut};
use roundelay_support::dtype::{DType, Element};

/// Keeps traits to the types of this crate.
pub trait SealedMemory {}

/// Elements in memory, as calls read them: slices, arrays, vectors and [`Buffer`]s of this host, and buffers of
/// its GPUs (`roundelay::cuda`). All buffers of a call belong to one engine.
pub trait ElementMemory: SealedMemory {
    /// The type of the elements; [`AnyElement`](super::AnyElement) if it is known at run time only.
    type Element;
    /// The engine that runs calls on it.
    type Engine: MemoryEngine;

    /// Returns the number of elements.
    fn elements(&self) -> usize;

    /// Returns the type of the elements.
    fn dtype(&self) -> DType;

    #[doc(hidden)]
    fn lend(&self) -> <Self::Engine as MemoryEngine>::Input<'_>;

    /// Returns the memory as an operand that is read.
    #[doc(hidden)]
    #[inline]
    fn operand(&self) -> InputBuffer<'_> {
        // SAFETY: the elements and the type are those of the memory.
        unsafe { Self::Engine::input(self.lend(), self.elements(), self.dtype()) }
    }
}

/// Elements in memory, as calls read and write them.
pub trait MemoryMut: ElementMemory {
    #[doc(hidden)]
    fn lend_mut(&mut self) -> <Self::Engine as MemoryEngine>::Output<'_>;

    /// Returns the memory as an operand that is written.
    #[doc(hidden)]
    #[inline]
    fn operand_mut(&mut self) -> OutputBuffer<'_> {
        let (elements, dtype) = (self.elements(), self.dtype());
        // SAFETY: the elements and the type are those of the memory.
        unsafe { Self::Engine::output(self.lend_mut(), elements, dtype) }
    }
}

/// The engine of a kind of memory: [`Host`], or `roundelay::cuda::Cuda`. It decides how the memory of a call is named;
/// the call itself is an [`Operation`](roundelay_engine::Operation), whatever the memory.
pub trait MemoryEngine: SealedMemory + Sized {
    /// A buffer that is read.
    type Input<'a>: Copy + Debug;
    /// A buffer that is written.
    type Output<'a>: Debug;
    /// The record of a call when it returns.
    type Outcome;

    /// Names memory as an operand that is read.
    ///
    /// # Safety
    ///
    /// The memory has that many elements of the type, aligned to its size.
    #[doc(hidden)]
    unsafe fn input<'a: 'a>(
        lent: Self::Input<'a>,
        elements: usize,
        dtype: DType,
    ) -> InputBuffer<'a>;

    /// Names memory as an operand that is written.
    ///
    /// # Safety
    ///
    /// As for one that is read.
    #[doc(hidden)]
    unsafe fn output<'a: 'a>(
        lent: Self::Output<'a>,
        elements: usize,
        dtype: DType,
    ) -> OutputBuffer<'a>;

    #[doc(hidden)]
    fn outcome(stats: CallStats) -> Self::Outcome;
}

/// The engine of this host's memory.
#[derive(Debug)]
pub enum Host {}

impl SealedMemory for Host {}

impl MemoryEngine for Host {
    type Input<'a> = &'a [u8];
    type Output<'a> = &'a mut [u8];
    type Outcome = CallStats;

    #[inline]
    unsafe fn input<'a: 'a>(lent: &'a [u8], elements: usize, dtype: DType) -> InputBuffer<'a> {
        // SAFETY: the caller's promise.
        unsafe { InputBuffer::of_host(lent, elements, dtype) }
    }

    #[inline]
    unsafe fn output<'a: 'a>(
        lent: &'a mut [u8],
        elements: usize,
        dtype: DType,
    ) -> OutputBuffer<'a> {
        // SAFETY: the caller's promise.
        unsafe { OutputBuffer::of_host_mut(lent, elements, dtype) }
    }

    fn outcome(stats: CallStats) -> CallStats {
        stats
    }
}

macro_rules! host_memory {
    ($([$($generics:tt)*] $memory:ty;)*) => {$(
        impl<$($generics)*> SealedMemory for $memory {}

        impl<$($generics)*> ElementMemory for $memory {
            type Element = T;
            type Engine = Host;

            #[inline]
            fn elements(&self) -> usize {
                self.len()
            }

            #[inline]
            fn dtype(&self) -> DType {
                T::DTYPE
            }

            #[inline]
            fn lend(&self) -> &[u8] {
                bytes(self)
            }
        }

        impl<$($generics)*> MemoryMut for $memory {
            #[inline]
            fn lend_mut(&mut self) -> &mut [u8] {
                bytes_mut(self)
            }
        }
    )*};
}

host_memory! {
    [T: Element] [T];
    [T: Element, const N: usize] [T; N];
    [T: Element] Vec<T>;
    [T: Element] Box<[T]>;
    [T: Element] Buffer<T>;
}
