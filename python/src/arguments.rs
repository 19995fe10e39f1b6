//! Arguments of Python, as the types of the library.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use roundelay::operation::{CallOperand, Collective, MemoryKind, served};
use roundelay::{DType, Error, HintError, Hints, RedOp, Reduction};
use roundelay_ffi::{ElementBuffer, RequestOptions};

use crate::errors::exception;

/// A buffer, passed as a tuple: address, elements, name of the type, whether it is on a GPU.
pub(crate) struct BufferAddress(pub(crate) ElementBuffer);

/// The memory of one side of a call: a buffer, a buffer with the counts of its blocks, or a list of buffers. They are
/// distinguished by their shape, since an extraction that fails costs more than a short call.
pub(crate) struct PyOperand<A: 'static>(pub(crate) CallOperand<'static, A>);

impl FromPyObject<'_, '_> for BufferAddress {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        address(given.cast::<PyTuple>()?).map(BufferAddress)
    }
}

impl<A: 'static> FromPyObject<'_, '_> for PyOperand<A> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let Ok(tuple) = given.cast::<PyTuple>() else {
            let list: Vec<BufferAddress> = given.extract()?;
            let list: Result<_, _> =
                list.iter().map(|BufferAddress(buffer)| buffer.operand()).collect();
            return Ok(PyOperand(CallOperand::List(list.map_err(|e| exception(&e))?)));
        };
        Ok(PyOperand(match tuple.len() {
            2 => {
                let BufferAddress(buffer) = tuple.get_borrowed_item(0)?.extract()?;
                let counts: Vec<usize> = tuple.get_borrowed_item(1)?.extract()?;
                CallOperand::Cut(buffer.operand().map_err(|e| exception(&e))?, counts.into())
            }
            _ => CallOperand::One(address(tuple)?.operand().map_err(|e| exception(&e))?),
        }))
    }
}

/// Returns the buffer at an address. The package keeps the object that owns the memory until the operation has
/// ended.
fn address(tuple: Borrowed<'_, '_, PyTuple>) -> PyResult<ElementBuffer> {
    let [ptr, elements, dtype, is_cuda] = [0, 1, 2, 3].map(|at| tuple.get_borrowed_item(at));
    let dtype = dtype?;
    let dtype: DType = parse(dtype.cast::<PyString>()?.to_str()?)?;
    let device = if is_cuda?.is_truthy()? { MemoryKind::Device } else { MemoryKind::Host };
    // SAFETY: the package passes addresses of objects that it keeps until the operation has ended; that nothing
    // else touches them meanwhile is what the caller owes, as with every asynchronous interface of Python.
    Ok(unsafe { ElementBuffer::new(ptr?.extract()?, elements?.extract()?, dtype, device) })
}

/// Returns an operand of a call; none where the call is in place, or has none here.
pub(crate) fn operand<A>(memory: Option<PyOperand<A>>) -> CallOperand<'static, A> {
    memory.map_or(CallOperand::None, |PyOperand(operand)| operand)
}

pub(crate) fn parse<T: std::str::FromStr<Err = roundelay::UnknownName>>(text: &str) -> PyResult<T> {
    text.parse().map_err(|e: roundelay::UnknownName| exception(&Error::Usage(e.to_string())))
}

pub(crate) fn reduction(op: &str, factor: f64) -> PyResult<Reduction> {
    let op: RedOp = parse(op)?;
    Ok(Reduction { op, factor })
}

pub(crate) fn collective(name: &str) -> PyResult<&'static Collective> {
    let unknown = || PyValueError::new_err(format!("no collective is called `{name}`"));
    served(name).ok_or_else(unknown)
}

pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        exception(&Error::Usage(format!("a timeout of {seconds} seconds: give a positive number")))
    })
}

pub(crate) fn hints(pairs: Vec<(String, String)>) -> PyResult<Hints> {
    Hints::from_pairs(pairs).map_err(|e| exception(&Error::from(e)))
}

/// Raises `SettingsError`, which names what is near, unless there is a hint of that name.
#[pyfunction]
pub(crate) fn check_hint(key: &str) -> PyResult<()> {
    match Hints::from_pairs([(key, "")]) {
        Err(unknown @ HintError::Key { .. }) => Err(exception(&Error::from(unknown))),
        _ => Ok(()),
    }
}

pub(crate) fn options(
    timeout: Option<f64>,
    given: Option<Vec<(String, String)>>,
    stream: Option<u64>,
    overlaps: bool,
) -> PyResult<RequestOptions> {
    Ok(RequestOptions {
        timeout: timeout.map(seconds).transpose()?,
        hints: given.map(hints).transpose()?,
        stream,
        overlaps,
    })
}
