//! Memory whose element type is known at run time only, as callers of other languages have it.

use super::memory::{ElementMemory, Host, MemoryMut, SealedMemory};
#[cfg(feature = "cuda")]
use roundelay_cuda::{Cuda, DevicePtr};
use roundelay_support::dtype::DType;
use roundelay_support::error::Error;

/// Stands for the element type of [`TypedMemory`] memory, which the compiler does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnyElement {}

/// Memory of elements of a type that is known at run time only: bytes of this host, read (`TypedMemory<&[u8]>`) or
/// written (`TypedMemory<&mut [u8]>`), or an address on a GPU. Calls take it as they take slices; that all buffers of
/// a call have one type is checked before anything moves.
///
/// ```
/// # use roundelay::memory::TypedMemory;
/// # use roundelay::{DType, RedOp};
/// # roundelay::internal::each_rank(2, |comm| {
/// let mut data = [1.0f32, 2.0];
/// let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut data);
/// comm.all_reduce(&mut TypedMemory::write(bytes, DType::F32)?, RedOp::Sum)?;
/// assert_eq!(data, [2.0, 4.0]);
/// # Ok(())
/// # });
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TypedMemory<B> {
    memory: B,
    elements: usize,
    dtype: DType,
}

impl<'a> TypedMemory<&'a [u8]> {
    /// Describes bytes that are read.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] unless they are a number of whole elements, aligned to the size of one.
    pub fn read(bytes: &'a [u8], dtype: DType) -> Result<Self, Error> {
        Ok(TypedMemory { elements: elements(bytes, dtype)?, memory: bytes, dtype })
    }
}

impl<'a> TypedMemory<&'a mut [u8]> {
    /// Describes bytes that are read and written. A `bool` among them is a byte of 0 or 1.
    ///
    /// # Errors
    ///
    /// The errors of [`TypedMemory::read`].
    pub fn write(bytes: &'a mut [u8], dtype: DType) -> Result<Self, Error> {
        Ok(TypedMemory { elements: elements(bytes, dtype)?, memory: bytes, dtype })
    }
}

#[cfg(feature = "cuda")]
impl TypedMemory<DevicePtr> {
    /// Describes that many elements on this rank's GPU.
    pub fn device(address: DevicePtr, elements: usize, dtype: DType) -> Self {
        TypedMemory { memory: address, elements, dtype }
    }
}

fn elements(bytes: &[u8], dtype: DType) -> Result<usize, Error> {
    let (len, size) = (bytes.len(), dtype.size());
    if !len.is_multiple_of(size) {
        return Err(Error::Usage(format!(
            "a buffer of {len} bytes is no number of whole {dtype} of {size} bytes"
        )));
    }
    if len > 0 && !bytes.as_ptr().addr().is_multiple_of(size) {
        return Err(Error::Usage(format!(
            "a buffer of {dtype} begins at {:p}, which is no multiple of {size} bytes: align it",
            bytes.as_ptr()
        )));
    }
    Ok(len / size)
}

macro_rules! typed {
    ($($memory:ty: $engine:ty, $lent:ty, $typed:ident => $lend:expr;)*) => {$(
        impl SealedMemory for TypedMemory<$memory> {}

        impl ElementMemory for TypedMemory<$memory> {
            type Element = AnyElement;
            type Engine = $engine;

            fn elements(&self) -> usize {
                self.elements
            }

            fn dtype(&self) -> DType {
                self.dtype
            }

            fn lend(&self) -> $lent {
                let $typed = self;
                $lend
            }
        }
    )*};
}

typed! {
    &[u8]: Host, &[u8], typed => typed.memory;
    &mut [u8]: Host, &[u8], typed => &*typed.memory;
}

impl MemoryMut for TypedMemory<&mut [u8]> {
    fn lend_mut(&mut self) -> &mut [u8] {
        self.memory
    }
}

#[cfg(feature = "cuda")]
typed! {
    DevicePtr: Cuda, DevicePtr, typed => typed.memory;
}

#[cfg(feature = "cuda")]
impl MemoryMut for TypedMemory<DevicePtr> {
    fn lend_mut(&mut self) -> DevicePtr {
        self.memory
    }
}
