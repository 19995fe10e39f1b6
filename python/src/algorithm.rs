//! Algorithms that users bring.

use pyo3::prelude::*;

use crate::errors::exception;

/// An algorithm of a text or a file.
#[pyclass(module = "roundelay._native", name = "Algorithm", frozen)]
pub(crate) struct PyAlgorithm {
    pub(crate) inner: roundelay::Algorithm,
}

#[pymethods]
impl PyAlgorithm {
    /// Reads an algorithm from a text; `name` stands in messages.
    #[staticmethod]
    fn parse(name: &str, text: &str) -> PyResult<Self> {
        let inner = roundelay::Algorithm::parse(name, text).map_err(|e| exception(&e))?;
        Ok(PyAlgorithm { inner })
    }

    /// Reads an algorithm from a file.
    #[staticmethod]
    fn load(path: std::path::PathBuf) -> PyResult<Self> {
        let inner = roundelay::Algorithm::read(&path).map_err(|e| exception(&e))?;
        Ok(PyAlgorithm { inner })
    }

    /// Returns the other algorithm of the same text that has that name.
    fn named(&self, name: &str) -> PyResult<Self> {
        Ok(PyAlgorithm { inner: self.inner.named(name).map_err(|e| exception(&e))? })
    }

    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    #[getter]
    fn collective(&self) -> &str {
        self.inner.collective()
    }

    /// Returns the names of all algorithms of the text.
    fn names(&self) -> Vec<String> {
        self.inner.names().map(Into::into).collect()
    }
}
