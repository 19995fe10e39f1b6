//! Device memory that all ranks map.

use std::marker::PhantomData;

use crate::dtype::Element;
use crate::error::Error;

/// An address in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DevicePtr(pub(crate) u64);

impl DevicePtr {
    /// No memory: for buffers that have no meaning on a rank.
    pub const NULL: DevicePtr = DevicePtr(0);

    /// An address that was had elsewhere: from another library's allocator, say.
    ///
    /// # Safety
    ///
    /// For every call that it is passed to, the memory must be good for the length that the call needs, on this
    /// communicator's device, from when the call is made until the stream has come past it.
    pub const unsafe fn new(address: u64) -> Self {
        DevicePtr(address)
    }

    /// The address.
    pub const fn address(self) -> u64 {
        self.0
    }

    /// Whether it is [`DevicePtr::NULL`].
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

/// Memory of this rank's device that all ranks of the communicator map: calls on it need not copy. It is freed
/// when the communicator and all handles on it are gone, or by [`CudaComm::free`](super::CudaComm::free).
#[derive(Debug)]
pub struct CudaBuffer<T> {
    ptr: DevicePtr,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: Element> CudaBuffer<T> {
    /// The first element.
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// The address of element `index`; of `len()`, the end.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if there is no such element.
    pub fn at(&self, index: usize) -> Result<DevicePtr, Error> {
        match index <= self.len {
            true => Ok(DevicePtr(self.ptr.0 + (index * size_of::<T>()) as u64)),
            false => Err(Error::Usage(format!(
                "element {index} of a device buffer of {} elements",
                self.len
            ))),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
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
        let _ = from;
        Err(super::comm::unwired())
    }

    /// Copies the first elements to host memory, as [`CudaBuffer::copy_from`].
    ///
    /// # Errors
    ///
    /// As [`CudaBuffer::copy_from`].
    pub fn copy_to(&self, to: &mut [T]) -> Result<(), Error> {
        let _ = to;
        Err(super::comm::unwired())
    }

    /// Sets every byte.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses.
    pub fn fill(&self, byte: u8) -> Result<(), Error> {
        let _ = byte;
        Err(super::comm::unwired())
    }
}
