//! Calls NCCL's functions, from whatever library is found: the only unsafe code of this package.
//!
//! Their arguments are addresses of device memory and handles of streams. The host never follows an address:
//! one that is wrong is a fault of the stream, which ends with an error.

use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;
use roundelay::cuda::DevicePtr;

use super::error::NcclError;

/// Bytes of what one rank makes and all others need to join it.
pub(super) const ID_BYTES: usize = 128;
/// Memory of a window has the same offset on all ranks.
const SYMMETRIC: c_int = 1;

/// `ncclUniqueId`, which is passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([u8; ID_BYTES]);

/// `ncclComm_t`, `ncclWindow_t`, `cudaStream_t`.
type RawHandle = *mut c_void;

/// A function that the library does not have.
#[derive(Debug, thiserror::Error)]
#[error("it has no {0}")]
struct AbsentFunction(&'static str);

macro_rules! functions {
    ($(#[$doc:meta] $name:ident = $symbol:literal: fn($($argument:ty),*);)*
     optional: $(#[$maybe_doc:meta] $maybe:ident = $maybe_symbol:literal: fn($($maybe_argument:ty),*);)*) => {
        /// The functions that are used, all of which return a code.
        struct NcclFunctions {
            $(#[$doc] $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            $(#[$maybe_doc] $maybe: Option<unsafe extern "C" fn($($maybe_argument),*) -> c_int>,)*
        }

        impl NcclFunctions {
            fn of(library: &Library) -> Result<Self, AbsentFunction> {
                Ok(NcclFunctions {
                    // SAFETY: nccl.h declares the function with these types; the library is never closed.
                    $($name: *unsafe { library.get($symbol.as_bytes()) }
                        .map_err(|_| AbsentFunction($symbol))?,)*
                    // SAFETY: as above.
                    $($maybe: unsafe { library.get($maybe_symbol.as_bytes()) }.ok().map(|f| *f),)*
                })
            }
        }
    };
}

functions! {
    /// Version as one number.
    version = "ncclGetVersion": fn(*mut c_int);
    /// Makes the identifier that the others need to join.
    unique_id = "ncclGetUniqueId": fn(*mut UniqueId);
    /// Joins.
    init = "ncclCommInitRank": fn(*mut RawHandle, c_int, UniqueId, c_int);
    /// Leaves.
    destroy = "ncclCommDestroy": fn(RawHandle);
    /// Send, receive, count, type, operator.
    all_reduce = "ncclAllReduce": fn(u64, u64, usize, c_int, c_int, RawHandle, RawHandle);
    /// Send, receive, count, type, operator, root.
    reduce = "ncclReduce": fn(u64, u64, usize, c_int, c_int, c_int, RawHandle, RawHandle);
    /// Send, receive, count, type, root.
    broadcast = "ncclBroadcast": fn(u64, u64, usize, c_int, c_int, RawHandle, RawHandle);
    /// Send, receive, count sent, type.
    all_gather = "ncclAllGather": fn(u64, u64, usize, c_int, RawHandle, RawHandle);
    /// Send, receive, count received, type, operator.
    reduce_scatter = "ncclReduceScatter": fn(u64, u64, usize, c_int, c_int, RawHandle, RawHandle);
    /// Buffer, count, type, peer.
    send = "ncclSend": fn(u64, usize, c_int, c_int, RawHandle, RawHandle);
    /// Buffer, count, type, peer.
    receive = "ncclRecv": fn(u64, usize, c_int, c_int, RawHandle, RawHandle);
    /// Messages from here on are one operation.
    group_start = "ncclGroupStart": fn();
    /// Ends a group of calls.
    group_end = "ncclGroupEnd": fn();
    optional:
    /// Send, receive, count for each rank, type. NCCL 2.28.
    all_to_all = "ncclAlltoAll": fn(u64, u64, usize, c_int, RawHandle, RawHandle);
    /// Memory that can be a window.
    allocate = "ncclMemAlloc": fn(*mut RawHandle, usize);
    /// The end of it.
    free = "ncclMemFree": fn(RawHandle);
    /// Makes a window of memory, with all ranks. NCCL 2.27.
    register = "ncclCommWindowRegister": fn(RawHandle, RawHandle, usize, *mut RawHandle, c_int);
    /// The end of it.
    deregister = "ncclCommWindowDeregister": fn(RawHandle, RawHandle);
}

/// The library.
pub(super) struct NcclLibrary {
    functions: NcclFunctions,
    text: Option<unsafe extern "C" fn(c_int) -> *const c_char>,
    last: Option<unsafe extern "C" fn(RawHandle) -> *const c_char>,
    /// The path at which it was found.
    path: PathBuf,
}

/// A rank of a communicator. It is left by [`NcclComm::leave`]; dropped, it is forgotten, since leaving waits
/// for the others.
pub(super) struct NcclComm<'a> {
    nccl: &'a NcclLibrary,
    handle: RawHandle,
}

/// Device memory that is a window on all ranks.
pub(super) struct NcclWindow {
    address: RawHandle,
    window: RawHandle,
}

impl NcclWindow {
    /// Returns the address of a byte of it.
    pub(super) fn at(&self, byte: usize) -> DevicePtr {
        // SAFETY: the memory lives until `close`, which comes after all calls on it.
        unsafe { DevicePtr::new(self.address as u64 + byte as u64) }
    }
}

impl NcclLibrary {
    /// Opens one of these, the first that can be.
    pub(super) fn open(paths: &[PathBuf]) -> Result<Self, NcclError> {
        let mut why = Vec::new();
        for path in paths {
            match Self::one(path) {
                Ok(nccl) => return Ok(nccl),
                Err(text) => why.push(text),
            }
        }
        Err(NcclError::NotFound(why))
    }

    fn one(path: &Path) -> Result<Self, String> {
        // SAFETY: NCCL's initialisers only set up its own state.
        let library = unsafe { Library::new(path) }.map_err(|e| why(path, &e))?;
        let functions =
            NcclFunctions::of(&library).map_err(|why| format!("{}: {why}", path.display()))?;
        // SAFETY: nccl.h declares both with these types.
        let (text, last) = unsafe {
            let text = library.get(b"ncclGetErrorString").ok().map(|f| *f);
            (text, library.get(b"ncclGetLastError").ok().map(|f| *f))
        };
        // It has threads of its own, and can never be closed.
        std::mem::forget(library);
        Ok(NcclLibrary { functions, text, last, path: path.to_owned() })
    }

    /// Returns the path at which it was found.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the library has all functions that windows need.
    pub(super) fn windows(&self) -> bool {
        let f = &self.functions;
        f.allocate.is_some() && f.free.is_some() && f.register.is_some() && f.deregister.is_some()
    }

    fn check(&self, call: &'static str, code: c_int, comm: RawHandle) -> Result<(), NcclError> {
        if code == 0 {
            return Ok(());
        }
        let words = |text: *const c_char| {
            // SAFETY: NCCL returns null or text that ends with a zero, and lives as long as the library.
            (!text.is_null())
                .then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        // SAFETY: any code is allowed.
        let text = self.text.and_then(|f| words(unsafe { f(code) }));
        // SAFETY: NCCL ignores the communicator here.
        let last = self.last.and_then(|f| words(unsafe { f(comm) })).filter(|t| !t.is_empty());
        let text = text.unwrap_or_else(|| format!("code {code}"));
        let text = match last {
            Some(last) => format!("{text} ({})", last.trim()),
            None => text,
        };
        Err(NcclError::Call { call, text })
    }

    /// Returns its version, as `2.28.9`.
    pub(super) fn version(&self) -> Result<String, NcclError> {
        let mut number = 0;
        // SAFETY: it writes the number.
        let code = unsafe { (self.functions.version)(&mut number) };
        self.check("ncclGetVersion", code, std::ptr::null_mut())?;
        Ok(format!("{}.{}.{}", number / 10_000, number % 10_000 / 100, number % 100))
    }

    /// Makes the identifier that one rank creates and all others need to join.
    pub(super) fn unique_id(&self) -> Result<[u8; ID_BYTES], NcclError> {
        let mut id = UniqueId([0; ID_BYTES]);
        // SAFETY: it writes the bytes.
        let code = unsafe { (self.functions.unique_id)(&mut id) };
        self.check("ncclGetUniqueId", code, std::ptr::null_mut())?;
        Ok(id.0)
    }

    /// Joins as a rank, on the device that is current on this thread; waits for all others.
    pub(super) fn join(
        &self,
        id: [u8; ID_BYTES],
        ranks: u32,
        rank: u32,
    ) -> Result<NcclComm<'_>, NcclError> {
        let mut handle = std::ptr::null_mut();
        let (ranks, rank) = (ranks as c_int, rank as c_int);
        // SAFETY: it writes the handle; the bytes are those of a `unique_id`.
        let code = unsafe { (self.functions.init)(&mut handle, ranks, UniqueId(id), rank) };
        self.check("ncclCommInitRank", code, std::ptr::null_mut())?;
        Ok(NcclComm { nccl: self, handle })
    }
}

/// Returns the message of the dynamic linker, with the path where it has none.
fn why(path: &Path, error: &libloading::Error) -> String {
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    match text.contains(&*path.to_string_lossy()) {
        true => text,
        false => format!("{}: {text}", path.display()),
    }
}

/// Calls a function of the table, the communicator and the stream last.
macro_rules! call {
    ($self:ident, $name:ident, $symbol:literal, $stream:expr, $($argument:expr),*) => {{
        // SAFETY: the communicator is joined; see the head of this file for addresses and streams.
        let code = unsafe { ($self.nccl.functions.$name)($($argument,)* $self.handle, $stream.0) };
        $self.nccl.check($symbol, code, $self.handle)
    }};
}

/// A stream of the driver.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawStream(pub(super) *mut c_void);

/// A move of data: its source, its destination, the number of elements, and NCCL's number of their type.
#[derive(Debug, Clone, Copy)]
pub(super) struct NcclTransfer {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) count: usize,
    pub(super) dtype: c_int,
}

impl NcclComm<'_> {
    pub(super) fn all_reduce(
        &self,
        m: NcclTransfer,
        op: c_int,
        stream: RawStream,
    ) -> Result<(), NcclError> {
        call!(self, all_reduce, "ncclAllReduce", stream, m.from, m.to, m.count, m.dtype, op)
    }

    pub(super) fn reduce(
        &self,
        m: NcclTransfer,
        op: c_int,
        root: c_int,
        stream: RawStream,
    ) -> Result<(), NcclError> {
        call!(self, reduce, "ncclReduce", stream, m.from, m.to, m.count, m.dtype, op, root)
    }

    pub(super) fn broadcast(
        &self,
        m: NcclTransfer,
        root: c_int,
        stream: RawStream,
    ) -> Result<(), NcclError> {
        call!(self, broadcast, "ncclBroadcast", stream, m.from, m.to, m.count, m.dtype, root)
    }

    pub(super) fn all_gather(&self, m: NcclTransfer, stream: RawStream) -> Result<(), NcclError> {
        call!(self, all_gather, "ncclAllGather", stream, m.from, m.to, m.count, m.dtype)
    }

    pub(super) fn reduce_scatter(
        &self,
        m: NcclTransfer,
        op: c_int,
        stream: RawStream,
    ) -> Result<(), NcclError> {
        call!(self, reduce_scatter, "ncclReduceScatter", stream, m.from, m.to, m.count, m.dtype, op)
    }

    /// Calls all_to_all; `None` if the library has no such function.
    pub(super) fn all_to_all(
        &self,
        m: NcclTransfer,
        stream: RawStream,
    ) -> Option<Result<(), NcclError>> {
        let function = self.nccl.functions.all_to_all?;
        // SAFETY: as in `call!`.
        let code = unsafe { function(m.from, m.to, m.count, m.dtype, self.handle, stream.0) };
        Some(self.nccl.check("ncclAlltoAll", code, self.handle))
    }

    /// Makes messages one operation: each with its peer, sent (from) or received (to).
    pub(super) fn messages(
        &self,
        sent: impl Iterator<Item = (u32, NcclTransfer)>,
        received: impl Iterator<Item = (u32, NcclTransfer)>,
        stream: RawStream,
    ) -> Result<(), NcclError> {
        let nccl = self.nccl;
        // SAFETY: it has no arguments.
        nccl.check("ncclGroupStart", unsafe { (nccl.functions.group_start)() }, self.handle)?;
        let mut result = Ok(());
        for (peer, m) in sent {
            let peer = peer as c_int;
            result =
                result.and(call!(self, send, "ncclSend", stream, m.from, m.count, m.dtype, peer));
        }
        for (peer, m) in received {
            let peer = peer as c_int;
            result =
                result.and(call!(self, receive, "ncclRecv", stream, m.to, m.count, m.dtype, peer));
        }
        // SAFETY: it has no arguments; a group that was begun is ended, whatever came of it.
        let ended =
            nccl.check("ncclGroupEnd", unsafe { (nccl.functions.group_end)() }, self.handle);
        result.and(ended)
    }

    /// Allocates memory as a symmetric window: all ranks make it together.
    pub(super) fn window(&self, bytes: usize) -> Result<NcclWindow, NcclError> {
        let f = &self.nccl.functions;
        let (Some(allocate), Some(register)) = (f.allocate, f.register) else {
            return Err(NcclError::NoWindows);
        };
        let (mut address, mut window) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: it writes the address.
        let code = unsafe { allocate(&mut address, bytes) };
        self.nccl.check("ncclMemAlloc", code, self.handle)?;
        // SAFETY: the memory is that from above, and the handle of the window is written.
        let code = unsafe { register(self.handle, address, bytes, &mut window, SYMMETRIC) };
        self.nccl.check("ncclCommWindowRegister", code, self.handle)?;
        match window.is_null() {
            true => Err(NcclError::Impossible),
            false => Ok(NcclWindow { address, window }),
        }
    }

    /// Gives a window back, together with all ranks. Nothing uses it any more.
    pub(super) fn close(&self, window: NcclWindow) -> Result<(), NcclError> {
        let f = &self.nccl.functions;
        let (Some(deregister), Some(free)) = (f.deregister, f.free) else { return Ok(()) };
        // SAFETY: both are those of `window`, which is consumed.
        let code = unsafe { deregister(self.handle, window.window) };
        self.nccl.check("ncclCommWindowDeregister", code, self.handle)?;
        // SAFETY: as above.
        self.nccl.check("ncclMemFree", unsafe { free(window.address) }, self.handle)
    }

    /// Leaves, together with all ranks.
    pub(super) fn leave(self) -> Result<(), NcclError> {
        // SAFETY: the communicator is consumed.
        let code = unsafe { (self.nccl.functions.destroy)(self.handle) };
        self.nccl.check("ncclCommDestroy", code, std::ptr::null_mut())
    }
}
