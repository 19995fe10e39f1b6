//! Algorithms that the program brings.

use std::ffi::{c_char, c_void};
use std::path::Path;

use super::arguments::CommonArguments;
use super::comm::rl_comm;
use super::error::{guard, rl_status};
use super::perform::perform;
use super::pointers::{give, object, text, there};
use super::values::{rl_dtype, rl_op, rl_options};
use super::work::rl_work;
use crate::request::CallRequest;

/// An algorithm of a text or a file.
pub struct rl_algorithm {
    inner: roundelay::Algorithm,
}

fn algorithm(inner: roundelay::Algorithm) -> *mut rl_algorithm {
    Box::into_raw(Box::new(rl_algorithm { inner }))
}

/// Reads the first algorithm of a text; `name` stands in messages. What depends on the ranks is proved when it is run
/// or installed.
///
/// # Safety
///
/// `name` and `source` are texts, `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_algorithm_parse(
    name: *const c_char,
    source: *const c_char,
    out: *mut *mut rl_algorithm,
) -> rl_status {
    guard(|| {
        there(out, "out")?;
        // SAFETY: what the caller promises.
        let (name, source) = unsafe { (text(name, "name")?, text(source, "source")?) };
        let inner = roundelay::Algorithm::parse(name, source)?;
        // SAFETY: as above.
        unsafe { give(out, algorithm(inner), "out") }
    })
}

/// Reads the first algorithm of a file.
///
/// # Safety
///
/// `path` is a text, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_algorithm_load(
    path: *const c_char,
    out: *mut *mut rl_algorithm,
) -> rl_status {
    guard(|| {
        there(out, "out")?;
        // SAFETY: what the caller promises.
        let inner = roundelay::Algorithm::read(Path::new(unsafe { text(path, "path")? }))?;
        // SAFETY: as above.
        unsafe { give(out, algorithm(inner), "out") }
    })
}

/// Gives an algorithm of the same text by its name, with arguments for its parameters if it has some:
/// `k_nomial(k = 4)`. Parameters without an argument have their default. The first algorithm stays as it is, and both
/// are freed.
///
/// # Safety
///
/// `algorithm` is live, `name` is a text, `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_algorithm_named(
    algorithm: *const rl_algorithm,
    name: *const c_char,
    out: *mut *mut rl_algorithm,
) -> rl_status {
    guard(|| {
        there(out, "out")?;
        // SAFETY: what the caller promises.
        let (of, name) = unsafe { (object(algorithm, "algorithm")?, text(name, "name")?) };
        let inner = of.inner.named(name)?;
        // SAFETY: as above.
        unsafe { give(out, self::algorithm(inner), "out") }
    })
}

/// Executes an algorithm on an output and an input of that many elements each; in place if `input` is NULL, on
/// `output`.
///
/// # Safety
///
/// `comm` and `algorithm` are live. The buffers hold that many elements of the type until the operation has ended;
/// meanwhile nothing else writes them, nor reads the output. `options` is NULL or valid, `work` NULL or a place for a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_run(
    comm: *const rl_comm,
    algorithm: *const rl_algorithm,
    output: *mut c_void,
    output_count: u64,
    input: *const c_void,
    input_count: u64,
    dtype: rl_dtype,
    op: rl_op,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, common) =
            unsafe { (object(comm, "comm")?, CommonArguments::read(dtype, options)?) };
        // SAFETY: as above.
        let algorithm = unsafe { object(algorithm, "algorithm")? }.inner.clone();
        // SAFETY: as above.
        let (output, input) =
            unsafe { (common.maybe(output, output_count)?, common.maybe(input, input_count)?) };
        let reduction = common.reduction(op)?;
        let request = CallRequest::Algorithm { algorithm, output, input, reduction };
        // SAFETY: as above.
        unsafe { perform(comm, request, common.options, work) }
    })
}

/// Has an algorithm serve all calls of its collective. Collective: it takes effect only if all ranks bring the same.
///
/// # Safety
///
/// `comm` and `algorithm` are live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_install(
    comm: *const rl_comm,
    algorithm: *const rl_algorithm,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, algorithm) = unsafe { (object(comm, "comm")?, object(algorithm, "algorithm")?) };
        comm.handle.with(|comm| comm.install(&algorithm.inner))
    })
}

/// Has the algorithm library serve a collective again. Collective.
///
/// # Safety
///
/// `comm` is live, `collective` a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_uninstall(
    comm: *const rl_comm,
    collective: *const c_char,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, name) = unsafe { (object(comm, "comm")?, text(collective, "collective")?) };
        comm.handle.with(|comm| comm.uninstall(name)).map(drop)
    })
}

/// Frees an algorithm. NULL is ignored; a communicator on which it was installed keeps it.
///
/// # Safety
///
/// `algorithm` is NULL or live, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_algorithm_free(algorithm: *mut rl_algorithm) {
    if !algorithm.is_null() {
        // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
        drop(unsafe { Box::from_raw(algorithm) });
    }
}
