//! Memory that other ranks of this host map, for as long as Python refers to it.

use std::any::Any;

use pyo3::prelude::*;
use roundelay::Buffer;
use roundelay::window::AnyMapped;

/// Memory at an address, which is there as long as this object.
#[pyclass(module = "roundelay._native", name = "Mapping", frozen)]
pub(crate) struct PyMapping {
    #[pyo3(get)]
    address: u64,
    #[pyo3(get)]
    nbytes: usize,
    #[pyo3(get)]
    writable: bool,
    _owner: Box<dyn Any + Send + Sync>,
}

impl From<Buffer<u8>> for PyMapping {
    fn from(mut buffer: Buffer<u8>) -> Self {
        let (address, nbytes) = (buffer.as_mut_ptr().expose_provenance() as u64, buffer.len());
        PyMapping { address, nbytes, writable: true, _owner: Box::new(buffer) }
    }
}

impl From<AnyMapped> for PyMapping {
    fn from(mapped: AnyMapped) -> Self {
        let address = mapped.as_ptr().expose_provenance() as u64;
        let (nbytes, writable) = (mapped.bytes(), mapped.is_writable());
        PyMapping { address, nbytes, writable, _owner: Box::new(mapped) }
    }
}
