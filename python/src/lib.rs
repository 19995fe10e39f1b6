//! The native part of the Python package `roundelay`: communicators, work and algorithms on plain addresses.
//!
//! Everything that users see is in the package's Python files; they look into arrays and tensors, and call this
//! module with addresses, lengths and names of types. Waits release the interpreter's lock.

mod algorithm;
mod arguments;
mod communicator;
mod completion;
mod endpoint;
mod errors;
mod interrupt;
mod mapping;
mod tunables;
mod window;
mod work;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("HEADER", roundelay_ffi::HEADER)?;
    module.add_class::<communicator::PyCommunicator>()?;
    module.add_class::<work::PyWork>()?;
    module.add_class::<window::PyWindow>()?;
    module.add_class::<mapping::PyMapping>()?;
    module.add_class::<endpoint::PyEndpoint>()?;
    module.add_class::<endpoint::PyConnecting>()?;
    module.add_class::<endpoint::PyLink>()?;
    module.add_class::<endpoint::PyRegion>()?;
    module.add_class::<endpoint::PyRemote>()?;
    module.add_class::<algorithm::PyAlgorithm>()?;
    module.add_function(wrap_pyfunction!(arguments::check_hint, module)?)?;
    module.add_function(wrap_pyfunction!(interrupt::interrupted, module)?)?;
    interrupt::watch();
    completion::watch_end(module)?;
    Ok(())
}
