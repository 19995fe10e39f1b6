//! Windows: memory that the other ranks put to and get from.

use pyo3::prelude::*;
use roundelay::Error;
use roundelay::window::WindowRights;
use roundelay_ffi::{
    CommHandle, CopyOperation, MappedPart, RequestOptions, WindowPlace, WordChange,
};

use crate::arguments::{BufferAddress, parse, seconds};
use crate::errors::{exception, raised};
use crate::mapping::PyMapping;
use crate::work::PyWork;

/// A window; any thread may use it.
#[pyclass(module = "roundelay._native", name = "Window", frozen)]
pub(crate) struct PyWindow {
    inner: roundelay_ffi::WindowHandle,
}

pub(crate) fn rights(names: Vec<String>) -> PyResult<WindowRights> {
    names.iter().try_fold(WindowRights::NONE, |all, name| match name.as_str() {
        "read" => Ok(all | WindowRights::READ),
        "write" => Ok(all | WindowRights::WRITE),
        "atomics" => Ok(all | WindowRights::ATOMICS),
        other => {
            let text = format!("`{other}` is no right: they are read, write and atomics");
            Err(exception(&Error::Usage(text)))
        }
    })
}

/// Returns options that put an operation into a stream.
fn on(stream: Option<u64>) -> RequestOptions {
    RequestOptions { stream, ..RequestOptions::default() }
}

impl PyWindow {
    pub(crate) fn make(
        py: Python<'_>,
        handle: &CommHandle,
        data: BufferAddress,
        peers_may: Vec<String>,
        kept: Py<PyAny>,
    ) -> PyResult<Self> {
        let (BufferAddress(buffer), rights) = (data, rights(peers_may)?);
        let kept = Box::new(kept);
        let made = py.detach(|| handle.window(&buffer, rights, RequestOptions::default(), kept));
        Ok(PyWindow { inner: raised(made)? })
    }

    fn change(
        &self,
        py: Python<'_>,
        what: WordChange,
        place: WindowPlace,
        BufferAddress(before): BufferAddress,
        stream: u64,
    ) -> PyResult<()> {
        raised(py.detach(|| self.inner.change_into(what, place, &before, on(Some(stream)))))
    }

    fn access(
        &self,
        py: Python<'_>,
        what: CopyOperation,
        BufferAddress(buffer): BufferAddress,
        place: WindowPlace,
        (stream, kept): (Option<u64>, Option<Py<PyAny>>),
    ) -> PyResult<Option<PyWork>> {
        match kept {
            None => {
                raised(py.detach(|| self.inner.access(what, &buffer, place, on(stream))))?;
                Ok(None)
            }
            Some(kept) => {
                let kept = Box::new(kept);
                let pending = py.detach(|| self.inner.start(what, &buffer, place, kept));
                Ok(Some(PyWork::new(raised(pending)?)))
            }
        }
    }
}

#[pymethods]
impl PyWindow {
    /// Writes elements to a peer's part, on this thread or, with `kept` as what owns them, in the background.
    #[pyo3(signature = (data, peer, at, stream=None, kept=None))]
    fn put(
        &self,
        py: Python<'_>,
        data: BufferAddress,
        peer: u32,
        at: usize,
        stream: Option<u64>,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<Option<PyWork>> {
        self.access(py, CopyOperation::Put, data, WindowPlace { peer, at }, (stream, kept))
    }

    /// Reads elements of a peer's part, as `put`.
    #[pyo3(signature = (data, peer, at, stream=None, kept=None))]
    fn get(
        &self,
        py: Python<'_>,
        data: BufferAddress,
        peer: u32,
        at: usize,
        stream: Option<u64>,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<Option<PyWork>> {
        self.access(py, CopyOperation::Get, data, WindowPlace { peer, at }, (stream, kept))
    }

    /// Combines elements with those of a peer's part, as `put`.
    #[pyo3(signature = (data, op, peer, at, stream=None, kept=None))]
    #[expect(clippy::too_many_arguments, reason = "those of the function in Python")]
    fn accumulate(
        &self,
        py: Python<'_>,
        data: BufferAddress,
        op: &str,
        peer: u32,
        at: usize,
        stream: Option<u64>,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<Option<PyWork>> {
        let what = CopyOperation::Accumulate(parse(op)?);
        self.access(py, what, data, WindowPlace { peer, at }, (stream, kept))
    }

    /// Adds to a word of a peer's part, and returns what it was.
    fn fetch_add(&self, py: Python<'_>, value: u64, peer: u32, at: usize) -> PyResult<u64> {
        raised(py.detach(|| self.inner.change(WordChange::Add(value), WindowPlace { peer, at })))
    }

    /// Stores `to` in a word of a peer's part if it is `from`, and returns what it was.
    fn compare_swap(
        &self,
        py: Python<'_>,
        expected: u64,
        value: u64,
        peer: u32,
        at: usize,
    ) -> PyResult<u64> {
        raised(py.detach(|| {
            self.inner.change(WordChange::Swap(expected, value), WindowPlace { peer, at })
        }))
    }

    /// Does what `fetch_add` does in a stream; what the word was comes to `before`, on the GPU.
    fn fetch_add_into(
        &self,
        py: Python<'_>,
        value: u64,
        peer: u32,
        at: usize,
        before: BufferAddress,
        stream: u64,
    ) -> PyResult<()> {
        self.change(py, WordChange::Add(value), WindowPlace { peer, at }, before, stream)
    }

    /// Does what `compare_swap` does in a stream, as `fetch_add_into`.
    #[expect(clippy::too_many_arguments, reason = "those of `compare_swap`, a place and a stream")]
    fn compare_swap_into(
        &self,
        py: Python<'_>,
        expected: u64,
        value: u64,
        peer: u32,
        at: usize,
        before: BufferAddress,
        stream: u64,
    ) -> PyResult<()> {
        self.change(py, WordChange::Swap(expected, value), WindowPlace { peer, at }, before, stream)
    }

    #[pyo3(signature = (peer, stream=None))]
    fn signal(&self, py: Python<'_>, peer: u32, stream: Option<u64>) -> PyResult<()> {
        raised(py.detach(|| self.inner.signal(peer, on(stream))))
    }

    #[pyo3(signature = (peer, stream=None))]
    fn wait_signal(&self, py: Python<'_>, peer: u32, stream: Option<u64>) -> PyResult<()> {
        raised(py.detach(|| self.inner.wait_signal(peer, on(stream))))
    }

    fn take_signal(&self, py: Python<'_>, peer: u32) -> PyResult<bool> {
        raised(py.detach(|| self.inner.take_signal(peer)))
    }

    /// Returns when all that was begun on a peer's part has taken effect, or, in the background, what does.
    #[pyo3(signature = (peer, background, stream=None))]
    fn flush(
        &self,
        py: Python<'_>,
        peer: u32,
        background: bool,
        stream: Option<u64>,
    ) -> PyResult<Option<PyWork>> {
        if background {
            let pending = py.detach(|| self.inner.start_flush(peer));
            return Ok(Some(PyWork::new(raised(pending)?)));
        }
        raised(py.detach(|| self.inner.flush(peer, on(stream))))?;
        Ok(None)
    }

    fn withdraw(&self, py: Python<'_>, from_peers: Vec<String>) -> PyResult<()> {
        let rights = rights(from_peers)?;
        raised(py.detach(|| self.inner.withdraw(rights)))
    }

    /// Returns the address of a peer's part, as it is mapped here.
    fn map_remote(&self, py: Python<'_>, peer: u32) -> PyResult<u64> {
        raised(py.detach(|| self.inner.map_remote(peer))).map(|mapped| mapped.address())
    }

    /// Returns a peer's part, as it is mapped here, of memory of this host.
    fn view_remote(&self, py: Python<'_>, peer: u32) -> PyResult<PyMapping> {
        match raised(py.detach(|| self.inner.map_remote(peer)))? {
            MappedPart::Host(mapped) => Ok(mapped.into()),
            MappedPart::Device(_) => {
                let text = "view_remote, of a window of GPU memory: kernels take the address of map_remote";
                Err(exception(&Error::Unsupported(text.into())))
            }
        }
    }

    /// Returns the number of elements of a peer's part, and True if it is mapped here.
    fn attributes(&self, peer: u32) -> PyResult<(usize, bool)> {
        raised(self.inner.attributes(peer))
    }

    fn set_timeout(&self, timeout: f64) -> PyResult<()> {
        raised(self.inner.set_timeout(seconds(timeout)?))
    }

    /// Ends the window. Collective.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        raised(py.detach(|| self.inner.free()))
    }
}
