//! NVRTC, the library that compiles kernels: found, loaded, called.
//!
//! It is looked for by its usual names, then among Python's packages, where pip installs it, then where NVIDIA's
//! installers put it. The variable [`VARIABLE`] goes before all.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::Library;

use super::library::spell;
use super::wheels::{entries, wheels};
use roundelay_support::error::ErrorSource;
use roundelay_support::variables;

/// The environment variable with the path of the library.
pub(crate) const VARIABLE: &str = "ROUNDELAY_NVRTC";
/// The names under which the system may know it, the best first.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
/// The way in which a text is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompileMode {
    /// Results are those of the host.
    Exact,
    /// As the compiler does by itself: texts of users.
    Usual,
}

/// The options of exact compilation: no contraction of a product and a sum into one rounding, no flushing of
/// tiny numbers, so that results are those of the host.
const OPTIONS: [&str; 4] = ["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true"];

type ProgramHandle = *mut c_void;

/// The reason why NVRTC cannot be used, or did not compile a kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NvrtcError {
    /// The library that was named cannot be loaded.
    #[error("the CUDA compiler cannot be loaded from {}: {source}", .path.display())]
    Named {
        /// The place that was named.
        path: PathBuf,
        /// The reason.
        source: ErrorSource,
    },
    /// It is in none of the usual places.
    #[error(
        "the CUDA compiler (NVRTC) cannot be loaded: {source} ({tried} places were tried); install it by `pip \
         install nvidia-cuda-nvrtc`, or name the library in {VARIABLE}"
    )]
    NotFound {
        /// The number of places.
        tried: usize,
        /// The reason at one of them.
        source: ErrorSource,
    },
    /// A library cannot be loaded.
    #[error("{}", spell(.source))]
    NotLoaded {
        /// The error of the loader.
        source: ErrorSource,
    },
    /// A library lacks a function.
    #[error("{}: {}", .path.display(), spell(.source))]
    Lacks {
        /// The library.
        path: PathBuf,
        /// The error of the loader.
        source: ErrorSource,
    },
    /// A library does not tell its version.
    #[error("{}: it does not tell its version", .0.display())]
    NoVersion(PathBuf),
    /// The text or an option holds a zero byte.
    #[error("the text holds a zero byte")]
    ZeroByte,
    /// A call failed.
    #[error("{call} gave {code}{}{log}", if .log.is_empty() { "" } else { "\n" })]
    Call {
        /// The function.
        call: &'static str,
        /// The library's code.
        code: String,
        /// The compiler's log, if it compiled.
        log: String,
    },
}

/// The library.
#[derive(Debug)]
pub(crate) struct NvrtcLibrary {
    version: (u32, u32),
    path: PathBuf,
    create: unsafe extern "C" fn(
        *mut ProgramHandle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy: unsafe extern "C" fn(*mut ProgramHandle) -> c_int,
    compile: unsafe extern "C" fn(ProgramHandle, c_int, *const *const c_char) -> c_int,
    code_size: unsafe extern "C" fn(ProgramHandle, *mut usize) -> c_int,
    code: unsafe extern "C" fn(ProgramHandle, *mut c_char) -> c_int,
    log_size: unsafe extern "C" fn(ProgramHandle, *mut usize) -> c_int,
    log: unsafe extern "C" fn(ProgramHandle, *mut c_char) -> c_int,
    name: unsafe extern "C" fn(c_int) -> *const c_char,
    /// The library, which stands last: the functions are good as long as it is loaded.
    _library: Library,
}

impl NvrtcLibrary {
    /// Loads the library, from that place if one is given; once a process and place.
    pub(crate) fn load(place: Option<&Path>) -> Result<Arc<Self>, NvrtcError> {
        static LOADED: Mutex<Vec<(Option<PathBuf>, Arc<NvrtcLibrary>)>> = Mutex::new(Vec::new());
        let named = variables::path(VARIABLE);
        let place = place.map(Path::to_path_buf).or(named);
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, library)) = loaded.iter().find(|(at, _)| *at == place) {
            return Ok(library.clone());
        }
        let library = Arc::new(Self::find(place.as_deref())?);
        loaded.push((place, library.clone()));
        Ok(library)
    }

    fn find(place: Option<&Path>) -> Result<Self, NvrtcError> {
        if let Some(path) = place {
            let named = |e| NvrtcError::Named { path: path.into(), source: ErrorSource::new(e) };
            return Self::open(path).map_err(named);
        }
        let [first, others @ ..] = NAMES;
        let mut reason = match Self::open(Path::new(first)) {
            Ok(library) => return Ok(library),
            Err(error) => error,
        };
        let mut tried = 1;
        for path in others.iter().map(PathBuf::from).chain(files()) {
            match Self::open(&path) {
                Ok(library) => return Ok(library),
                // The reason of a file that exists says more than that of a name.
                Err(error) if path.is_absolute() => reason = error,
                Err(_) => {}
            }
            tried += 1;
        }
        Err(NvrtcError::NotFound { tried, source: ErrorSource::new(reason) })
    }

    fn open(path: &Path) -> Result<Self, NvrtcError> {
        if let Some(folder) = path.parent().filter(|f| f.is_absolute()) {
            // It asks for this one by name only, which the system does not know if it lies among packages.
            for builtins in entries(folder, |name| name.starts_with("libnvrtc-builtins.so")) {
                // SAFETY: a library that NVRTC itself loads; it stays for good.
                let loaded = unsafe { Library::new(&builtins) };
                std::mem::forget(loaded);
            }
        }
        // SAFETY: NVIDIA's compiler; what it runs when loaded affects no other code.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(|e| NvrtcError::NotLoaded { source: ErrorSource::new(e) })?;
        let lacks = |e| NvrtcError::Lacks { path: path.into(), source: ErrorSource::new(e) };
        macro_rules! function {
            ($name:literal) => {{
                // SAFETY: the type is that of the function in NVRTC's header, the same in all versions.
                let symbol = unsafe { library.get($name.as_bytes()) };
                *symbol.map_err(lacks)?
            }};
        }
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int =
            function!("nvrtcVersion");
        let (mut major, mut minor) = (0, 0);
        // SAFETY: two numbers are written.
        if unsafe { version(&raw mut major, &raw mut minor) } != 0 {
            return Err(NvrtcError::NoVersion(path.into()));
        }
        Ok(NvrtcLibrary {
            version: (major as u32, minor as u32),
            path: path.into(),
            create: function!("nvrtcCreateProgram"),
            destroy: function!("nvrtcDestroyProgram"),
            compile: function!("nvrtcCompileProgram"),
            code_size: function!("nvrtcGetCUBINSize"),
            code: function!("nvrtcGetCUBIN"),
            log_size: function!("nvrtcGetProgramLogSize"),
            log: function!("nvrtcGetProgramLog"),
            name: function!("nvrtcGetErrorString"),
            _library: library,
        })
    }

    /// Returns its version.
    pub(crate) fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Returns the place at which it was found: a path, or the name by which the system knew it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the options for a device.
    pub(crate) fn options((major, minor): (u32, u32), kind: CompileMode) -> Vec<String> {
        let arch = format!("--gpu-architecture=sm_{major}{minor}");
        let some = match kind {
            CompileMode::Exact => &OPTIONS[..],
            CompileMode::Usual => &OPTIONS[..1],
        };
        std::iter::once(arch).chain(some.iter().map(ToString::to_string)).collect()
    }

    /// Compiles a text to code for a device.
    pub(crate) fn compile(&self, text: &str, options: &[String]) -> Result<Vec<u8>, NvrtcError> {
        self.with(text, options, |_| ()).map(|(code, ())| code)
    }

    /// Compiles like `compile`, and returns the log too.
    #[cfg(test)]
    pub(crate) fn compile_and_say(
        &self,
        text: &str,
        options: &[String],
    ) -> Result<(Vec<u8>, String), NvrtcError> {
        self.with(text, options, |program| self.compile_log(program))
    }

    /// Compiles a text to the assembly that is compiled to code.
    #[cfg(test)]
    pub(crate) fn assembly(&self, text: &str, options: &[String]) -> Result<String, NvrtcError> {
        type SizeFunction = unsafe extern "C" fn(ProgramHandle, *mut usize) -> c_int;
        type CopyFunction = unsafe extern "C" fn(ProgramHandle, *mut c_char) -> c_int;
        let made = self.with(text, options, |program| {
            // SAFETY: the types are those of the functions in NVRTC's header.
            let size = unsafe { self._library.get::<SizeFunction>(b"nvrtcGetPTXSize") };
            // SAFETY: as above.
            let get = unsafe { self._library.get::<CopyFunction>(b"nvrtcGetPTX") };
            let (Ok(size), Ok(get)) = (size, get) else { return String::new() };
            let mut bytes = 0;
            // SAFETY: one number is written.
            unsafe { size(program, &raw mut bytes) };
            let mut ptx = vec![0u8; bytes];
            // SAFETY: as many bytes are written as it said.
            unsafe { get(program, ptx.as_mut_ptr().cast()) };
            String::from_utf8_lossy(&ptx).into_owned()
        });
        made.map(|(_, ptx)| ptx)
    }

    /// Compiles a text, and looks at the program while there is one.
    fn with<T>(
        &self,
        text: &str,
        options: &[String],
        look: impl FnOnce(ProgramHandle) -> T,
    ) -> Result<(Vec<u8>, T), NvrtcError> {
        let zero = |_| NvrtcError::ZeroByte;
        let text = CString::new(text).map_err(zero)?;
        let kept: Result<Vec<CString>, _> =
            options.iter().map(|o| CString::new(o.as_str())).collect();
        let kept = kept.map_err(zero)?;
        let options: Vec<*const c_char> = kept.iter().map(|o| o.as_ptr()).collect();
        let (mut program, none) = (std::ptr::null_mut(), std::ptr::null());
        let title = c"roundelay.cu".as_ptr();
        // SAFETY: both texts end with a zero and outlive the program; there are no headers.
        let made = unsafe { (self.create)(&raw mut program, text.as_ptr(), title, 0, none, none) };
        self.check("nvrtcCreateProgram", made)?;
        let compiled = self.compile_program(program, &options).map(|code| (code, look(program)));
        // SAFETY: the program was made above, and is not used after.
        let _ = unsafe { (self.destroy)(&raw mut program) };
        compiled
    }

    fn compile_program(
        &self,
        program: ProgramHandle,
        options: &[*const c_char],
    ) -> Result<Vec<u8>, NvrtcError> {
        // SAFETY: the program is good, and so are the texts of the options.
        let done = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        self.check_with("nvrtcCompileProgram", done, || self.compile_log(program))?;
        let mut bytes = 0;
        // SAFETY: one number is written.
        self.check("nvrtcGetCUBINSize", unsafe { (self.code_size)(program, &raw mut bytes) })?;
        let mut code = vec![0u8; bytes];
        // SAFETY: as many bytes are written as it said.
        let got = unsafe { (self.code)(program, code.as_mut_ptr().cast()) };
        self.check("nvrtcGetCUBIN", got)?;
        Ok(code)
    }

    /// Returns the compiler's log.
    fn compile_log(&self, program: ProgramHandle) -> String {
        let mut bytes = 0;
        // SAFETY: one number is written.
        if unsafe { (self.log_size)(program, &raw mut bytes) } != 0 {
            return String::new();
        }
        let mut log = vec![0u8; bytes];
        // SAFETY: as many bytes are written as it said.
        if unsafe { (self.log)(program, log.as_mut_ptr().cast()) } != 0 {
            return String::new();
        }
        String::from_utf8_lossy(&log).trim_matches(['\0', '\n', ' ']).to_string()
    }

    fn check(&self, call: &'static str, result: c_int) -> Result<(), NvrtcError> {
        self.check_with(call, result, String::new)
    }

    fn check_with(
        &self,
        call: &'static str,
        result: c_int,
        log: impl FnOnce() -> String,
    ) -> Result<(), NvrtcError> {
        if result == 0 {
            return Ok(());
        }
        // SAFETY: the text is the library's own and lives as long.
        let code = unsafe { CStr::from_ptr((self.name)(result)) };
        Err(NvrtcError::Call { call, code: code.to_string_lossy().into_owned(), log: log() })
    }
}

/// Lists files of that name, where packages and NVIDIA's installers put them.
fn files() -> Vec<PathBuf> {
    let mut folders = wheels();
    for toolkit in entries(Path::new("/usr/local"), |name| name.starts_with("cuda")) {
        folders.extend([toolkit.join("lib64"), toolkit.join("targets/x86_64-linux/lib")]);
    }
    let mut found = Vec::new();
    for name in NAMES {
        found.extend(folders.iter().map(|f| f.join(name)).filter(|f| f.is_file()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        use std::error::Error;
        let error =
            NvrtcLibrary::load(Some(Path::new("/nowhere/libnvrtc.so"))).expect_err("none there");
        assert!(error.to_string().contains("/nowhere/libnvrtc.so"), "{error}");
        let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
        assert!(causes.any(|cause| cause.is::<libloading::Error>()), "{error:?}");
    }

    #[test]
    fn a_library_that_is_another_one_is_refused() {
        let error = NvrtcLibrary::open(Path::new("libc.so.6")).expect_err("it is no compiler");
        assert!(error.to_string().contains("nvrtcVersion"), "{error}");
    }

    /// Runs only if the compiler is installed.
    #[test]
    fn texts_become_code_or_a_log() {
        let nvrtc = match NvrtcLibrary::load(None) {
            Ok(nvrtc) => nvrtc,
            Err(why) => {
                return roundelay_tests::skip(roundelay_tests::CheckNeeds::Nvrtc, why);
            }
        };
        let options = NvrtcLibrary::options((9, 0), CompileMode::Exact);
        let text = "extern \"C\" __global__ void k(int *p) { *p = 1; }";
        let code = nvrtc.compile(text, &options).expect("it is right");
        assert!(code.starts_with(b"\x7fELF"));
        let error = nvrtc.compile("__global__ void k( { }", &options).expect_err("it is wrong");
        let text = error.to_string();
        assert!(text.contains("NVRTC_ERROR_COMPILATION") && text.contains("roundelay.cu(1)"));
        assert!(nvrtc.compile("a\0b", &options).is_err());
    }
}
