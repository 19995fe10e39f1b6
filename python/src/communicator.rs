//! Communicators on plain addresses.

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use roundelay::launch::{JobSetup, RankHandles};
use roundelay::message::ReceiveSource;
use roundelay::operation::{CallMessage, Operation};
use roundelay::{Error, SuspendDepth};
use roundelay_ffi::{CallRequest, CommHandle, TaggedMessage};

use crate::algorithm::PyAlgorithm;
use crate::arguments::{
    self, BufferAddress, PyOperand, hints, operand, options, parse, reduction, seconds,
};
use crate::errors::{exception, raised};
use crate::mapping::PyMapping;
use crate::window::PyWindow;
use crate::work::PyWork;

/// One rank's handle on the others; any thread may use it.
#[pyclass(module = "roundelay._native", name = "Communicator", frozen, weakref)]
pub(crate) struct PyCommunicator {
    handle: CommHandle,
}

type Pairs = Vec<(String, String)>;

impl PyCommunicator {
    fn of(handle: CommHandle) -> Self {
        PyCommunicator { handle }
    }
}

#[pymethods]
impl PyCommunicator {
    /// Makes all ranks of a job whose ranks are threads of this process.
    #[staticmethod]
    fn local(py: Python<'_>, ranks: u32) -> PyResult<Vec<Self>> {
        let handles = raised(py.detach(|| CommHandle::local(ranks)))?;
        Ok(handles.into_iter().map(Self::of).collect())
    }

    /// Makes a communicator of this rank alone, which is to come to others.
    #[staticmethod]
    #[pyo3(signature = (given=Vec::new(), host=None))]
    fn alone(py: Python<'_>, given: Pairs, host: Option<String>) -> PyResult<Self> {
        let mut setup = raised(JobSetup::from_env())?.hints(&hints(given)?);
        if let Some(host) = host {
            setup = setup.host_label(host);
        }
        raised(py.detach(|| CommHandle::alone(&setup))).map(Self::of)
    }

    /// Joins the job that a launcher started.
    #[staticmethod]
    fn from_env(py: Python<'_>) -> PyResult<Self> {
        let made = || CommHandle::new(roundelay::Communicator::from_env()?);
        raised(py.detach(made)).map(Self::of)
    }

    /// Joins ranks that can pass a note: `share(note)` on rank 0 makes it known, `share(None)` elsewhere returns
    /// it.
    #[staticmethod]
    #[pyo3(signature = (rank, size, share, given=Vec::new(), timeout=None, host=None))]
    fn join(
        py: Python<'_>,
        rank: u32,
        size: u32,
        share: Py<PyAny>,
        given: Pairs,
        timeout: Option<f64>,
        host: Option<String>,
    ) -> PyResult<Self> {
        let mut setup = raised(JobSetup::from_env())?.hints(&hints(given)?);
        if let Some(timeout) = timeout {
            setup = setup.timeout(seconds(timeout)?);
        }
        if let Some(host) = host {
            setup = setup.host_label(host);
        }
        let mut failed = None;
        let share = |note: Option<&str>| {
            let passed =
                Python::attach(|py| share.call1(py, (note,))?.extract::<Option<String>>(py));
            match passed {
                Ok(passed) => Ok(passed.or(note.map(Into::into)).unwrap_or_default()),
                Err(error) => {
                    let text = format!("the store of rank {rank} failed: {error}");
                    failed = Some(error);
                    Err(Error::Start(text))
                }
            }
        };
        let joined = py.detach(|| CommHandle::join(rank, size, &setup, share));
        let failed = failed.filter(|_| joined.is_err());
        match failed {
            // As Ctrl-C in the store.
            Some(ended) if !ended.is_instance_of::<PyException>(py) => Err(ended),
            Some(failed) => {
                let joined = raised(joined).map(Self::of);
                joined.inspect_err(|error| error.set_cause(py, Some(failed)))
            }
            None => raised(joined).map(Self::of),
        }
    }

    #[getter]
    fn rank(&self) -> u32 {
        self.handle.rank()
    }

    #[getter]
    fn size(&self) -> u32 {
        self.handle.size()
    }

    /// Performs a collective on this thread, or starts it in the background with `kept` as what owns the memory.
    #[pyo3(signature = (
        collective, output=None, input=None, op="sum", factor=1.0, root=0, timeout=None,
        given=None, stream=None, kept=None, overlaps=false
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one function for all collectives, called by name"
    )]
    fn call(
        &self,
        py: Python<'_>,
        collective: &str,
        output: Option<PyOperand<&'static mut [u8]>>,
        input: Option<PyOperand<&'static [u8]>>,
        op: &str,
        factor: f64,
        root: u32,
        timeout: Option<f64>,
        given: Option<Pairs>,
        stream: Option<u64>,
        kept: Option<Py<PyAny>>,
        overlaps: bool,
    ) -> PyResult<Option<PyWork>> {
        let operation = Operation {
            collective: arguments::collective(collective)?,
            output: operand(output),
            input: operand(input),
            reduction: reduction(op, factor)?,
            root,
        };
        let options = options(timeout, given, stream, overlaps)?;
        self.perform(py, CallRequest::Collective(operation), options, kept)
    }

    /// Executes an algorithm, as `call` does a collective.
    #[pyo3(signature = (
        algorithm, output=None, input=None, op="sum", factor=1.0, timeout=None, given=None,
        stream=None, kept=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "as `call`")]
    fn run(
        &self,
        py: Python<'_>,
        algorithm: &PyAlgorithm,
        output: Option<PyOperand<&'static mut [u8]>>,
        input: Option<PyOperand<&'static [u8]>>,
        op: &str,
        factor: f64,
        timeout: Option<f64>,
        given: Option<Pairs>,
        stream: Option<u64>,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<Option<PyWork>> {
        let request = CallRequest::Algorithm {
            algorithm: algorithm.inner.clone(),
            output: operand(output),
            input: operand(input),
            reduction: reduction(op, factor)?,
        };
        self.perform(py, request, options(timeout, given, stream, false)?, kept)
    }

    /// Sends and receives messages at once: of each its buffer, the other rank, and whether it is sent.
    #[pyo3(signature = (messages, timeout=None, stream=None, kept=None, overlaps=false))]
    fn messages(
        &self,
        py: Python<'_>,
        messages: Vec<(BufferAddress, u32, bool)>,
        timeout: Option<f64>,
        stream: Option<u64>,
        kept: Option<Py<PyAny>>,
        overlaps: bool,
    ) -> PyResult<Option<PyWork>> {
        let message =
            |(BufferAddress(buffer), peer, is_send): (BufferAddress, u32, bool)| match is_send {
                true => Ok(CallMessage::sent(buffer.operand()?, peer)),
                false => Ok(CallMessage::received(buffer.operand()?, peer)),
            };
        let messages: Result<Vec<_>, Error> = messages.into_iter().map(message).collect();
        let request = CallRequest::Messages(messages.map_err(|error| exception(&error))?);
        self.perform(py, request, options(timeout, None, stream, overlaps)?, kept)
    }

    /// Sends a message with a tag, on this thread or, with `kept` as what owns the memory, in the background.
    #[pyo3(signature = (data, peer, tag, timeout=None, kept=None))]
    fn send(
        &self,
        py: Python<'_>,
        data: BufferAddress,
        peer: u32,
        tag: u64,
        timeout: Option<f64>,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<Option<PyWork>> {
        let message =
            TaggedMessage { buffer: data.0, peer: ReceiveSource::Rank(peer), tag, is_send: true };
        Ok(self.message(py, message, timeout, kept)?.err())
    }

    /// Receives a message with a tag, from one rank or, without `peer`, from any; as `send`. Returns
    /// the rank that sent it, or the operation.
    #[pyo3(signature = (data, peer, tag, timeout=None, kept=None))]
    fn recv(
        &self,
        py: Python<'_>,
        data: BufferAddress,
        peer: Option<u32>,
        tag: u64,
        timeout: Option<f64>,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<(Option<u32>, Option<PyWork>)> {
        let peer = peer.map_or(ReceiveSource::Any, ReceiveSource::Rank);
        let message = TaggedMessage { buffer: data.0, peer, tag, is_send: false };
        Ok(match self.message(py, message, timeout, kept)? {
            Ok(source) => (Some(source), None),
            Err(work) => (None, Some(work)),
        })
    }

    /// Allocates memory that other ranks of this host map, zeroed.
    fn alloc(&self, py: Python<'_>, nbytes: usize) -> PyResult<PyMapping> {
        raised(py.detach(|| self.handle.alloc(nbytes))).map(PyMapping::from)
    }

    /// Makes a window of the memory that `kept` owns. Collective.
    fn window(
        &self,
        py: Python<'_>,
        data: BufferAddress,
        peers_may: Vec<String>,
        kept: Py<PyAny>,
    ) -> PyResult<PyWindow> {
        PyWindow::make(py, &self.handle, data, peers_may, kept)
    }

    /// Makes a communicator of some ranks. Collective.
    fn split(&self, py: Python<'_>, ranks: Vec<u32>) -> PyResult<Option<Self>> {
        Ok(raised(py.detach(|| self.handle.split(&ranks)))?.map(Self::of))
    }

    /// Makes a communicator of the same ranks with a GPU each. Collective.
    #[pyo3(signature = (device=None))]
    fn cuda(&self, py: Python<'_>, device: Option<u32>) -> PyResult<Self> {
        raised(py.detach(|| self.handle.cuda(device))).map(Self::of)
    }

    /// Makes a communicator of the same ranks, of which those have a GPU that say so. Collective.
    #[pyo3(signature = (has_gpu, device=None))]
    fn cuda_mixed(&self, py: Python<'_>, has_gpu: bool, device: Option<u32>) -> PyResult<Self> {
        raised(py.detach(|| self.handle.cuda_mixed(has_gpu.then_some(device)))).map(Self::of)
    }

    /// Returns this rank's handle for the next generation.
    fn handle(&self, py: Python<'_>) -> PyResult<String> {
        raised(py.detach(|| self.handle.handle()))
    }

    /// Goes on as a rank of a new generation, whose ranks the handles name, in this order or as the runtime orders
    /// them.
    fn reconfigure(
        &self,
        py: Python<'_>,
        id: &str,
        handles: Vec<String>,
        ordered: bool,
        timeout: f64,
    ) -> PyResult<()> {
        let timeout = seconds(timeout)?;
        let handles = match ordered {
            true => RankHandles::List(&handles),
            false => RankHandles::Set(&handles),
        };
        raised(py.detach(|| self.handle.reconfigure(id, handles, timeout)))
    }

    /// Goes on with the ranks that are left after a failure.
    fn shrink(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let timeout = seconds(timeout)?;
        raised(py.detach(|| self.handle.shrink(timeout)))
    }

    /// Reduces in place, and goes on if a rank ends meanwhile; returns the ranks that were counted.
    fn tolerant_all_reduce(
        &self,
        py: Python<'_>,
        data: BufferAddress,
        op: &str,
    ) -> PyResult<Vec<u32>> {
        let (BufferAddress(data), op) = (data, parse(op)?);
        raised(py.detach(|| self.handle.tolerant_all_reduce(&data, op)))
    }

    /// Gives its memory back to the system, with its connections for data if that is wanted. Collective.
    fn suspend(&self, py: Python<'_>, connections: bool) -> PyResult<()> {
        let depth = if connections { SuspendDepth::Connections } else { SuspendDepth::Memory };
        raised(py.detach(|| self.handle.with(|comm| comm.suspend(depth))))
    }

    /// Resumes it. Collective.
    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        raised(py.detach(|| self.handle.with(roundelay::Communicator::resume)))
    }

    /// Returns the memory that this rank holds: bytes by kind, and whether it is suspended.
    fn memory_stats(&self, py: Python<'_>) -> PyResult<(Vec<(&'static str, u64)>, bool)> {
        let stats = raised(py.detach(|| self.handle.with(roundelay::Communicator::memory_stats)))?;
        Ok((stats.kinds().to_vec(), stats.suspended))
    }

    /// Ends the communicator on all ranks, at once; returns true if nothing is written to buffers any more.
    fn abort(&self, py: Python<'_>, why: &str) -> PyResult<bool> {
        raised(py.detach(|| self.handle.abort(why)))
    }

    #[getter]
    fn aborted(&self) -> bool {
        self.handle.is_aborted()
    }

    /// Ends this rank's part, after what was started.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        raised(py.detach(|| self.handle.shutdown()))
    }

    /// True in the process that is the rank, and False in its children.
    #[getter]
    fn is_here(&self) -> bool {
        self.handle.check_process().is_ok()
    }

    fn set_timeout(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let timeout = seconds(timeout)?;
        let set = |comm: &mut roundelay::Communicator| {
            comm.set_timeout(timeout);
            Ok(())
        };
        raised(py.detach(|| self.handle.with(set)))
    }

    fn set_hints(&self, py: Python<'_>, given: Pairs) -> PyResult<()> {
        let hints = hints(given)?;
        raised(py.detach(|| self.handle.with(|comm| comm.set_hints(hints))))
    }

    /// Returns the collective, the algorithm, and who chose it.
    #[pyo3(signature = (collective, bytes, dtype="f32", op="sum"))]
    fn explain(
        &self,
        py: Python<'_>,
        collective: &str,
        bytes: u64,
        dtype: &str,
        op: &str,
    ) -> PyResult<(String, String, String)> {
        let (dtype, op) = (parse(dtype)?, parse(op)?);
        let choice = raised(
            py.detach(|| self.handle.with(|comm| comm.explain(collective, bytes, dtype, op))),
        )?;
        let (collective, name) = (choice.entry.collective, choice.name());
        Ok((collective.into(), name.into(), choice.source.to_string()))
    }

    /// Has an algorithm serve all calls of its collective. Collective.
    fn install(&self, py: Python<'_>, algorithm: &PyAlgorithm) -> PyResult<()> {
        raised(py.detach(|| self.handle.with(|comm| comm.install(&algorithm.inner))))
    }

    fn uninstall(&self, py: Python<'_>, collective: &str) -> PyResult<bool> {
        raised(py.detach(|| self.handle.with(|comm| comm.uninstall(collective))))
    }

    /// Returns the flight recorder as JSON.
    fn flight(&self, py: Python<'_>) -> PyResult<String> {
        let flight = raised(py.detach(|| self.handle.with(|comm| comm.flight())))?;
        serde_json::to_string(&flight).map_err(|e| PyRuntimeError::new_err(e.to_string()))
    }
}

impl PyCommunicator {
    /// Sends or receives a message: returns the rank that sent it, or the operation in the background.
    fn message(
        &self,
        py: Python<'_>,
        message: TaggedMessage,
        timeout: Option<f64>,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<Result<u32, PyWork>> {
        let timeout = timeout.map(seconds).transpose()?;
        match kept {
            None => {
                let delivered = py.detach(|| self.handle.message(&message, timeout));
                Ok(Ok(raised(delivered)?.source))
            }
            Some(kept) => {
                let kept = Box::new(kept);
                let pending = py.detach(|| self.handle.start_message(&message, timeout, kept));
                Ok(Err(PyWork::new(raised(pending)?)))
            }
        }
    }

    fn perform(
        &self,
        py: Python<'_>,
        request: CallRequest,
        options: roundelay_ffi::RequestOptions,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<Option<PyWork>> {
        match kept {
            None => {
                raised(py.detach(|| self.handle.perform(request, options)))?;
                Ok(None)
            }
            Some(kept) => {
                let pending = py.detach(|| self.handle.start(request, options, Box::new(kept)));
                Ok(Some(PyWork::new(raised(pending)?)))
            }
        }
    }
}
