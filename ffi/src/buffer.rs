//! Memory of a caller in another language: an address, a length, a type.

use roundelay::cuda::DevicePtr;
use roundelay::memory::TypedMemory;
use roundelay::operation::{CallBuffer, MemoryKind};
use roundelay::{DType, Error};

/// Elements at an address. It is a promise of its maker ([`ElementBuffer::new`]), not a borrow.
#[derive(Debug, Clone, Copy)]
pub struct ElementBuffer {
    address: u64,
    elements: usize,
    dtype: DType,
    memory: MemoryKind,
}

impl ElementBuffer {
    /// Describes elements of a type at an address.
    ///
    /// # Safety
    ///
    /// Until the operation that it is given to has ended, that many elements lie there; nothing else writes them
    /// meanwhile, nor reads them where the operation writes.
    pub unsafe fn new(address: u64, elements: usize, dtype: DType, memory: MemoryKind) -> Self {
        ElementBuffer { address, elements, dtype, memory }
    }

    /// Returns the address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns where the buffer is.
    pub fn memory(&self) -> MemoryKind {
        self.memory
    }

    /// Returns the memory as an operand of a call.
    ///
    /// # Errors
    ///
    /// The errors of [`CallBuffer::new`].
    pub fn operand<A>(&self) -> Result<CallBuffer<A>, Error> {
        // SAFETY: `new` promised what this asks for.
        unsafe { CallBuffer::new(self.address, self.elements, self.dtype, self.memory) }
    }

    /// Fails if it is memory of a GPU.
    pub(crate) fn on_host(&self) -> Result<(), Error> {
        match self.memory {
            MemoryKind::Host => Ok(()),
            MemoryKind::Device => {
                let text = "regions and tolerant calls are of memory of this host so far: copy it from the GPU";
                Err(Error::Unsupported(text.into()))
            }
        }
    }

    fn bytes(&self) -> Result<usize, Error> {
        let bytes = self.elements.checked_mul(self.dtype.size());
        match bytes.filter(|&bytes| bytes == 0 || self.address != 0) {
            Some(bytes) if isize::try_from(bytes).is_ok() => Ok(bytes),
            _ if self.address == 0 => Err(Error::Usage(format!(
                "a buffer of {} {} begins at address 0",
                self.elements, self.dtype
            ))),
            _ => Err(Error::Usage(format!(
                "a buffer of {} {} exceeds the address space",
                self.elements, self.dtype
            ))),
        }
    }

    pub(crate) fn read<'a>(&self) -> Result<TypedMemory<&'a [u8]>, Error> {
        let bytes = self.bytes()?;
        if bytes == 0 {
            return TypedMemory::read(&[], self.dtype);
        }
        let address = std::ptr::with_exposed_provenance(self.address as usize);
        // SAFETY: `new` promises that the bytes lie there until the operation has ended.
        TypedMemory::read(unsafe { std::slice::from_raw_parts(address, bytes) }, self.dtype)
    }

    pub(crate) fn write<'a>(&self) -> Result<TypedMemory<&'a mut [u8]>, Error> {
        let bytes = self.bytes()?;
        if bytes == 0 {
            return TypedMemory::write(&mut [], self.dtype);
        }
        let address = std::ptr::with_exposed_provenance_mut(self.address as usize);
        // SAFETY: as in `read`, and nothing else touches them.
        TypedMemory::write(unsafe { std::slice::from_raw_parts_mut(address, bytes) }, self.dtype)
    }

    pub(crate) fn on_device(&self) -> Result<TypedMemory<DevicePtr>, Error> {
        self.bytes()?;
        // SAFETY: `new` promises that the elements lie there until the operation has ended.
        let address = unsafe { DevicePtr::new(self.address) };
        Ok(TypedMemory::device(address, self.elements, self.dtype))
    }
}
