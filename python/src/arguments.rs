//! What Python passes, as the types of the library.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use roundelay::{DType, Error, Hints, RedOp, Reduction};
use roundelay_ffi::{Buffer, Device, Name, Options, Side};

use crate::errors::exception;

/// A buffer: address, elements, name of the type, whether it is on a GPU.
pub(crate) type Address = (u64, usize, String, bool);

/// The memory of one side of a call.
#[derive(FromPyObject)]
pub(crate) enum Memory {
    /// A buffer of unequal blocks.
    Cut((Address, Vec<usize>)),
    /// One buffer.
    One(Address),
    /// A buffer for each rank.
    List(Vec<Address>),
}

/// Returns the buffer at an address. The package keeps the object that owns the memory until the operation has
/// ended.
pub(crate) fn buffer((address, elements, dtype, is_cuda): Address) -> PyResult<Buffer> {
    let dtype: DType = parse(&dtype)?;
    let device = if is_cuda { Device::Cuda } else { Device::Host };
    // SAFETY: the package passes addresses of objects that it keeps until the operation has ended; that nobody
    // else touches them meanwhile is what the caller owes, as with every asynchronous interface of Python.
    Ok(unsafe { Buffer::new(address, elements, dtype, device) })
}

pub(crate) fn side(memory: Option<Memory>) -> PyResult<Side> {
    Ok(match memory {
        None => Side::None,
        Some(Memory::One(address)) => Side::One(buffer(address)?),
        Some(Memory::List(list)) => {
            Side::List(list.into_iter().map(buffer).collect::<PyResult<_>>()?)
        }
        Some(Memory::Cut((address, counts))) => Side::Cut(buffer(address)?, counts),
    })
}

pub(crate) fn parse<T: std::str::FromStr<Err = roundelay::UnknownName>>(text: &str) -> PyResult<T> {
    text.parse().map_err(|e: roundelay::UnknownName| exception(&Error::Usage(e.to_string())))
}

pub(crate) fn reduction(op: &str, factor: f64) -> PyResult<Reduction> {
    let op: RedOp = parse(op)?;
    Ok(Reduction { op, factor })
}

pub(crate) fn name(text: &str) -> PyResult<Name> {
    let all = [
        Name::AllReduce,
        Name::Reduce,
        Name::Broadcast,
        Name::AllGather,
        Name::ReduceScatter,
        Name::AllToAll,
        Name::Gather,
        Name::Scatter,
        Name::Barrier,
    ];
    let unknown = || PyValueError::new_err(format!("no collective is called `{text}`"));
    all.into_iter().find(|name| name.to_string() == text).ok_or_else(unknown)
}

pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        exception(&Error::Usage(format!("a timeout of {seconds} seconds: give a positive number")))
    })
}

pub(crate) fn hints(pairs: Vec<(String, String)>) -> PyResult<Hints> {
    Hints::from_pairs(pairs).map_err(|e| exception(&Error::from(e)))
}

pub(crate) fn options(
    timeout: Option<f64>,
    given: Option<Vec<(String, String)>>,
    stream: Option<u64>,
) -> PyResult<Options> {
    Ok(Options {
        timeout: timeout.map(seconds).transpose()?,
        hints: given.map(hints).transpose()?,
        stream,
    })
}
