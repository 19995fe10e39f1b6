//! The memory of a call as data: elements of a type at an address of this host, or of the rank's GPU.

use std::marker::PhantomData;

use roundelay_support::dtype::DType;
use roundelay_support::error::Error;

/// The kind of memory that a buffer lies in. All buffers of a call lie in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Memory of this host.
    Host,
    /// Memory of the communicator's GPU.
    Device,
}

/// Elements at an address, which a call reads ([`InputBuffer`]) or writes ([`OutputBuffer`]).
///
/// The type of the elements is known at run time only: this is how callers in other languages name memory, and what
/// slices, vectors and buffers of a GPU become when a call is made of them.
#[derive(Debug)]
pub struct CallBuffer<A> {
    address: u64,
    elements: usize,
    dtype: DType,
    memory: MemoryKind,
    access: PhantomData<A>,
}

/// A buffer that a call reads.
pub type InputBuffer<'a> = CallBuffer<&'a [u8]>;

/// A buffer that a call writes, or reads and writes.
pub type OutputBuffer<'a> = CallBuffer<&'a mut [u8]>;

impl Clone for InputBuffer<'_> {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for InputBuffer<'_> {}

impl<'a> InputBuffer<'a> {
    /// Describes that many elements in bytes of this host.
    ///
    /// # Safety
    ///
    /// The bytes are that many elements of the type, aligned to its size.
    #[inline]
    pub unsafe fn of_host(bytes: &'a [u8], elements: usize, dtype: DType) -> Self {
        let address = bytes.as_ptr().expose_provenance() as u64;
        CallBuffer { address, elements, dtype, memory: MemoryKind::Host, access: PhantomData }
    }

    /// Returns the bytes; none unless they are this host's.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        if self.elements == 0 || self.memory != MemoryKind::Host {
            return &[];
        }
        let address = std::ptr::with_exposed_provenance(self.address as usize);
        // SAFETY: `of_host` borrowed that many bytes for `'a`, or `new` promised them.
        unsafe { std::slice::from_raw_parts(address, self.len()) }
    }
}

impl<'a> OutputBuffer<'a> {
    /// Describes that many elements in bytes of this host.
    ///
    /// # Safety
    ///
    /// The bytes are that many elements of the type, aligned to its size.
    #[inline]
    pub unsafe fn of_host_mut(bytes: &'a mut [u8], elements: usize, dtype: DType) -> Self {
        let address = bytes.as_mut_ptr().expose_provenance() as u64;
        CallBuffer { address, elements, dtype, memory: MemoryKind::Host, access: PhantomData }
    }

    /// Returns the bytes; none unless they are this host's.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.elements == 0 || self.memory != MemoryKind::Host {
            return &mut [];
        }
        let address = std::ptr::with_exposed_provenance_mut(self.address as usize);
        // SAFETY: `of_host_mut` borrowed that many bytes for `'a`, or `new` promised them, and this buffer is the only
        // one that names them.
        unsafe { std::slice::from_raw_parts_mut(address, self.len()) }
    }
}

impl<A> CallBuffer<A> {
    /// Describes elements of a type at an address.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if elements begin at address 0, exceed the address space, or are not aligned on this host.
    ///
    /// # Safety
    ///
    /// Until the call that it is given to has ended, that many elements lie there; no other thread or call writes them
    /// meanwhile, nor reads them where this one writes.
    pub unsafe fn new(
        address: u64,
        elements: usize,
        dtype: DType,
        memory: MemoryKind,
    ) -> Result<Self, Error> {
        let size = dtype.size();
        let is_valid = elements.checked_mul(size).is_some_and(|len| isize::try_from(len).is_ok());
        if elements > 0 && address == 0 {
            return Err(Error::Usage(format!(
                "a buffer of {elements} {dtype} begins at address 0"
            )));
        }
        if !is_valid {
            return Err(Error::Usage(format!(
                "a buffer of {elements} {dtype} exceeds the address space"
            )));
        }
        if elements > 0 && memory == MemoryKind::Host && !address.is_multiple_of(size as u64) {
            return Err(Error::Usage(format!(
                "a buffer of {dtype} begins at {address:#x}, which is no multiple of {size} bytes: align it"
            )));
        }
        Ok(CallBuffer { address, elements, dtype, memory, access: PhantomData })
    }

    /// Describes elements on the rank's GPU.
    ///
    /// # Safety
    ///
    /// As [`CallBuffer::new`]; the address is one of the GPU.
    pub unsafe fn on_device(address: u64, elements: usize, dtype: DType) -> Self {
        CallBuffer { address, elements, dtype, memory: MemoryKind::Device, access: PhantomData }
    }

    /// Returns a buffer of no elements.
    pub fn empty(dtype: DType, memory: MemoryKind) -> Self {
        CallBuffer { address: 0, elements: 0, dtype, memory, access: PhantomData }
    }

    /// Returns the address of the first element.
    #[inline]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the number of elements.
    #[inline]
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        // `new` has checked the product, and slices have it.
        self.elements * self.dtype.size()
    }

    /// Returns true if there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Returns the type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns where the buffer lies.
    #[inline]
    pub fn memory(&self) -> MemoryKind {
        self.memory
    }

    /// Cuts the buffer into blocks of that many elements, one after the other. The buffer has as many elements as all
    /// blocks together.
    pub(crate) fn blocks(&self, counts: &[usize]) -> impl Iterator<Item = Self> {
        let (size, dtype, memory) = (self.dtype.size(), self.dtype, self.memory);
        counts.iter().scan(self.address, move |next, &elements| {
            let address = *next;
            *next += (elements * size) as u64;
            Some(CallBuffer { address, elements, dtype, memory, access: PhantomData })
        })
    }
}
