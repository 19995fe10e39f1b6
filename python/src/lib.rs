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
mod window;
mod work;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("HEADER", roundelay_ffi::HEADER)?;
    module.add_class::<communicator::Communicator>()?;
    module.add_class::<work::Work>()?;
    module.add_class::<window::Window>()?;
    module.add_class::<mapping::Mapping>()?;
    module.add_class::<endpoint::Endpoint>()?;
    module.add_class::<endpoint::Connecting>()?;
    module.add_class::<endpoint::Link>()?;
    module.add_class::<endpoint::Region>()?;
    module.add_class::<endpoint::Remote>()?;
    module.add_class::<algorithm::Algorithm>()?;
    module.add_function(wrap_pyfunction!(arguments::check_hint, module)?)?;
    module.add_function(wrap_pyfunction!(interrupt::interrupted, module)?)?;
    interrupt::watch();
    completion::watch_end(module)?;
    Ok(())
}
