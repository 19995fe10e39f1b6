//! Endpoints: memory of single peers, without a communicator.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use roundelay::Error;
use roundelay::internal::OwnerProcess;
use roundelay::launch::JobSetup;
use roundelay::window::WindowRights;
use roundelay_ffi::remote::{self, Registered};

use crate::arguments::{BufferAddress, hints, seconds};
use crate::errors::{exception, raised};
use crate::tunables::SIGNAL_CHECK_INTERVAL;
use crate::window::rights;
use crate::work::PyWork;

/// A place at which peers meet this process; any thread may use it.
#[pyclass(module = "roundelay._native", name = "Endpoint", frozen)]
pub(crate) struct PyEndpoint {
    inner: roundelay::endpoint::Endpoint,
}

/// A link that is being made.
#[pyclass(module = "roundelay._native", name = "Connecting", frozen)]
pub(crate) struct PyConnecting {
    /// The process that connects. In its children the lock may be held for ever.
    process: OwnerProcess,
    work: Mutex<Option<roundelay::Work<roundelay::endpoint::EndpointLink>>>,
}

/// The connection of two endpoints; any thread may use it.
#[pyclass(module = "roundelay._native", name = "Link", frozen)]
pub(crate) struct PyLink {
    inner: roundelay::endpoint::EndpointLink,
}

/// Memory of this process that peers may use.
#[pyclass(module = "roundelay._native", name = "Region", frozen)]
pub(crate) struct PyRegion {
    /// None once it was revoked.
    inner: Mutex<Option<Registered>>,
}

/// A region of a peer; any thread may use it.
#[pyclass(module = "roundelay._native", name = "Remote", frozen)]
pub(crate) struct PyRemote {
    inner: roundelay::endpoint::RemoteRegion,
}

fn until(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let timeout = timeout.map(seconds).transpose()?;
    Ok(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
}

fn left(until: Option<Instant>) -> Duration {
    until.map_or(SIGNAL_CHECK_INTERVAL, |at| at.saturating_duration_since(Instant::now()))
}

#[pymethods]
impl PyEndpoint {
    /// Binds an endpoint with the settings of the environment and these hints.
    #[new]
    #[pyo3(signature = (given=Vec::new(), secret=None, timeout=None, host=None))]
    fn new(
        py: Python<'_>,
        given: Vec<(String, String)>,
        secret: Option<String>,
        timeout: Option<f64>,
        host: Option<String>,
    ) -> PyResult<Self> {
        let mut setup = raised(JobSetup::from_env())?.hints(&hints(given)?);
        if let Some(secret) = secret {
            setup = setup.secret(secret);
        }
        if let Some(timeout) = timeout {
            setup = setup.timeout(seconds(timeout)?);
        }
        if let Some(host) = host {
            setup = setup.host_label(host);
        }
        let inner = raised(py.detach(|| roundelay::endpoint::Endpoint::bind(&setup)))?;
        Ok(PyEndpoint { inner })
    }

    #[getter]
    fn address(&self) -> Vec<u8> {
        self.inner.address()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.inner.is_closed()
    }

    fn start_connect(&self, peer: Vec<u8>, timeout: f64) -> PyResult<PyConnecting> {
        let work = self.inner.connect_async(&peer, seconds(timeout)?);
        Ok(PyConnecting { process: OwnerProcess::here(), work: Mutex::new(Some(work)) })
    }

    /// Registers memory that `kept` owns.
    fn register(
        &self,
        py: Python<'_>,
        data: BufferAddress,
        peers_may: Vec<String>,
        kept: Py<PyAny>,
    ) -> PyResult<PyRegion> {
        let (BufferAddress(buffer), rights): (_, WindowRights) = (data, rights(peers_may)?);
        let kept = Box::new(kept);
        let made = py.detach(|| remote::register(&self.inner, &buffer, rights, kept));
        Ok(PyRegion { inner: Mutex::new(Some(raised(made)?)) })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        raised(self.inner.check_process())?;
        py.detach(|| self.inner.close());
        Ok(())
    }
}

#[pymethods]
impl PyConnecting {
    /// Returns the link once it is made; None if it is not in time. Has it once.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<PyLink>> {
        raised(self.process.check("link"))?;
        let until = until(timeout)?;
        loop {
            let left = left(until);
            let is_done = py.detach(|| {
                let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
                work.as_ref().is_none_or(|work| work.wait_timeout(left.min(SIGNAL_CHECK_INTERVAL)))
            });
            match is_done {
                true => break,
                false if left.is_zero() => return Ok(None),
                false => py.check_signals()?,
            }
        }
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let taken = || exception(&Error::Usage("this link was taken before".into()));
        let inner = raised(work.ok_or_else(taken)?.wait())?;
        Ok(Some(PyLink { inner }))
    }

    /// Returns True if the attempt has ended, with or without success.
    fn done(&self) -> bool {
        if !self.process.is_here() {
            return true;
        }
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.as_ref().is_none_or(|work| work.is_completed())
    }
}

#[pymethods]
impl PyLink {
    #[getter]
    fn side(&self) -> u32 {
        self.inner.side()
    }

    #[getter]
    fn transport(&self) -> String {
        self.inner.transports().to_string()
    }

    #[getter]
    fn open(&self, py: Python<'_>) -> bool {
        py.detach(|| self.inner.is_open())
    }

    fn set_timeout(&self, timeout: f64) -> PyResult<()> {
        self.inner.set_timeout(seconds(timeout)?);
        Ok(())
    }

    fn region(&self, py: Python<'_>, key: Vec<u8>) -> PyResult<PyRemote> {
        Ok(PyRemote { inner: raised(py.detach(|| self.inner.region(&key)))? })
    }

    fn notify(&self, py: Python<'_>, value: u64) -> PyResult<()> {
        raised(py.detach(|| self.inner.signal(value)))
    }

    /// Takes a notification; returns None if none comes in time.
    #[pyo3(signature = (timeout=None))]
    fn wait_notification(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<u64>> {
        let until = until(timeout)?;
        loop {
            let left = left(until);
            let taken = py.detach(|| self.inner.wait_signal(left.min(SIGNAL_CHECK_INTERVAL)));
            match raised(taken)? {
                Some(value) => return Ok(Some(value)),
                None if left.is_zero() => return Ok(None),
                None => py.check_signals()?,
            }
        }
    }

    fn abort(&self, py: Python<'_>, why: &str) -> PyResult<()> {
        raised(self.inner.check_process())?;
        py.detach(|| self.inner.abort(why));
        Ok(())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        raised(self.inner.check_process())?;
        py.detach(|| self.inner.close());
        Ok(())
    }
}

#[pymethods]
impl PyRegion {
    #[getter]
    fn key(&self) -> PyResult<Vec<u8>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let revoked = || exception(&Error::Usage("this region was revoked".into()));
        Ok(inner.as_ref().ok_or_else(revoked)?.key())
    }

    /// Revokes the key, and waits until no peer uses the memory any more.
    fn revoke(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(region) = inner else { return Ok(()) };
        raised(py.detach(|| region.revoke().map(drop)))
    }
}

#[pymethods]
impl PyRemote {
    fn __len__(&self) -> usize {
        self.inner.len()
    }

    /// Writes memory, on this thread or, with `kept` as what owns it, in the background.
    #[pyo3(signature = (data, at, value=None, kept=None))]
    fn write(
        &self,
        py: Python<'_>,
        data: BufferAddress,
        at: u64,
        value: Option<u64>,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<Option<PyWork>> {
        let (region, BufferAddress(buffer)) = (&self.inner, data);
        let Some(kept) = kept.map(Box::new) else {
            raised(py.detach(|| remote::write(region, &buffer, at, value)))?;
            return Ok(None);
        };
        let pending = py.detach(|| remote::start_write(region, &buffer, (at, value), kept));
        Ok(Some(PyWork::new(raised(pending)?)))
    }

    /// Adds to a word, and returns what it was.
    fn fetch_add(&self, py: Python<'_>, value: u64, at: u64) -> PyResult<u64> {
        raised(py.detach(|| self.inner.fetch_add(value, at)))
    }

    /// Stores `to` in a word if it is `from`, and returns what it was.
    fn compare_swap(&self, py: Python<'_>, expected: u64, value: u64, at: u64) -> PyResult<u64> {
        raised(py.detach(|| self.inner.compare_swap(expected, value, at)))
    }

    /// Reads into memory, as `write`.
    #[pyo3(signature = (data, at, kept=None))]
    fn read(
        &self,
        py: Python<'_>,
        data: BufferAddress,
        at: u64,
        kept: Option<Py<PyAny>>,
    ) -> PyResult<Option<PyWork>> {
        let (region, BufferAddress(buffer)) = (&self.inner, data);
        let Some(kept) = kept.map(Box::new) else {
            raised(py.detach(|| remote::read(region, &buffer, at)))?;
            return Ok(None);
        };
        let pending = py.detach(|| remote::start_read(region, &buffer, at, kept));
        Ok(Some(PyWork::new(raised(pending)?)))
    }
}
