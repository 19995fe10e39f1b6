//! Device memory that all ranks map.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::region::MappedRegion;
use crate::backend::{CudaStream, DriverFault};
use crate::tunables::BUFFER_COPY_TIMEOUT;
use roundelay_net::memory::{bytes, bytes_mut};
use roundelay_support::dtype::{DType, Element};
use roundelay_support::error::Error;

/// An address in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DevicePtr(pub(crate) u64);

impl DevicePtr {
    /// The null address: for buffers that have no meaning on a rank.
    pub const NULL: DevicePtr = DevicePtr(0);

    /// Takes an address that was had elsewhere: from another library's allocator, say.
    ///
    /// # Safety
    ///
    /// For every call that it is passed to, the memory must be good for the length that the call needs, on this
    /// communicator's device, from when the call is made until the stream has come past it.
    pub const unsafe fn new(address: u64) -> Self {
        DevicePtr(address)
    }

    /// Returns the address.
    pub const fn address(self) -> u64 {
        self.0
    }

    /// Returns the address `bytes` further; that of [`DevicePtr::NULL`] is null.
    pub fn after(self, bytes: usize) -> Self {
        DevicePtr(if self.0 == 0 { 0 } else { self.0 + bytes as u64 })
    }

    /// Returns true if it is [`DevicePtr::NULL`].
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

/// Elements from an address on: a part of a [`CudaBuffer`], or memory of another allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaSlice<T> {
    ptr: DevicePtr,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Element> CudaSlice<T> {
    /// The slice of no elements: for buffers that have no meaning on a rank.
    pub const NONE: CudaSlice<T> = CudaSlice::new(DevicePtr::NULL, 0);

    /// Returns `len` elements from an address on.
    pub const fn new(ptr: DevicePtr, len: usize) -> Self {
        CudaSlice { ptr, len, elements: PhantomData }
    }

    /// Returns the address of the first element.
    pub const fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Returns the number of elements.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Memory of this rank's device that all ranks of the communicator map: calls on it need not copy.
///
/// The communicator keeps the memory until it is dropped itself, or
/// `Communicator::free` is called: peers may still read it when this rank is done with it.
#[derive(Debug)]
pub struct CudaBuffer<T> {
    number: u32,
    region: Arc<MappedRegion>,
    len: usize,
    stream: CudaStream,
    rank: u32,
    elements: PhantomData<T>,
}

impl<T: Element> CudaBuffer<T> {
    pub(super) fn new(
        number: u32,
        region: Arc<MappedRegion>,
        len: usize,
        stream: CudaStream,
        rank: u32,
    ) -> Self {
        CudaBuffer { number, region, len, stream, rank, elements: PhantomData }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the address of the first element.
    pub fn ptr(&self) -> DevicePtr {
        DevicePtr(self.region.base(self.rank))
    }

    /// Returns the address of element `index`; of `len()`, the end.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if there is no such element.
    pub fn at(&self, index: usize) -> Result<DevicePtr, Error> {
        match index <= self.len {
            true => Ok(DevicePtr(self.ptr().0 + (index * size_of::<T>()) as u64)),
            false => Err(Error::Usage(format!(
                "element {index} of a device buffer of {} elements",
                self.len
            ))),
        }
    }

    /// Returns the elements of a range.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if there are no such elements.
    pub fn slice(&self, range: Range<usize>) -> Result<CudaSlice<T>, Error> {
        self.at(range.end)?;
        let len = range.end.saturating_sub(range.start);
        Ok(CudaSlice::new(self.at(range.start.min(range.end))?, len))
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies from host memory into the first elements. Waits until it is done. Calls that use the buffer must
    /// have been waited for.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if `from` is longer; [`Error::Cuda`] if the driver refuses.
    pub fn copy_from(&self, from: &[T]) -> Result<(), Error> {
        self.fits(from.len())?;
        // SAFETY: the region has that many bytes, and lives as long as `self`; the copy is waited for.
        self.done(unsafe { self.stream.write(self.ptr().0, bytes(from)) })
    }

    /// Copies the first elements to host memory, as [`CudaBuffer::copy_from`].
    ///
    /// # Errors
    ///
    /// The errors of [`CudaBuffer::copy_from`].
    pub fn copy_to(&self, to: &mut [T]) -> Result<(), Error> {
        self.fits(to.len())?;
        if T::DTYPE != DType::Bool {
            // SAFETY: as in `copy_from`; any bytes are a value of the type.
            return self.done(unsafe { self.stream.read(bytes_mut(to), self.ptr().0) });
        }
        // Only 0 and 1 are values, and anything may lie in the device's memory.
        let mut any = vec![0; to.len()];
        // SAFETY: as in `copy_from`.
        self.done(unsafe { self.stream.read(&mut any, self.ptr().0) })?;
        for (to, byte) in bytes_mut(to).iter_mut().zip(any) {
            *to = u8::from(byte != 0);
        }
        Ok(())
    }

    /// Sets every byte.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses.
    pub fn fill(&self, byte: u8) -> Result<(), Error> {
        let bytes = (self.len * size_of::<T>()) as u64;
        // SAFETY: as in `copy_from`.
        self.done(unsafe { self.stream.set(self.ptr().0, byte, bytes) })
    }

    fn fits(&self, len: usize) -> Result<(), Error> {
        match len <= self.len {
            true => Ok(()),
            false => Err(Error::Usage(format!(
                "{len} elements are copied, and the device buffer has {}",
                self.len
            ))),
        }
    }

    fn done(&self, begun: Result<(), DriverFault>) -> Result<(), Error> {
        let done = begun.and_then(|()| self.stream.drain(BUFFER_COPY_TIMEOUT));
        done.map_err(|fault| fault.on(self.rank, self.stream.context().device()))
    }
}
