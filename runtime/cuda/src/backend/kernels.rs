//! Kernels by their text: from memory, from the disk, or compiled.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::cache::{KernelCache, KernelDigest};
use super::nvrtc::{CompileMode, NvrtcError, NvrtcLibrary};
use super::{DeviceContext, DriverFault, LoadedKernel};

/// The reason why there is no kernel of a text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KernelError {
    /// It was not compiled.
    #[error(transparent)]
    Nvrtc(#[from] NvrtcError),
    /// It was not loaded.
    #[error(transparent)]
    Driver(#[from] DriverFault),
    /// A block does not fit.
    #[error(
        "a kernel takes {registers} registers a thread, so that a block of {threads} threads does not fit: at \
         most {most} do"
    )]
    Registers { registers: u32, threads: u32, most: u32 },
}

/// The kernels of a device that were asked for.
#[derive(Debug)]
pub(crate) struct KernelStore {
    context: Arc<DeviceContext>,
    cache: KernelCache,
    place: Option<PathBuf>,
    loaded: BTreeMap<(KernelDigest, String), Arc<LoadedKernel>>,
}

impl KernelStore {
    /// Keeps kernels with that folder and that compiler; see [`KernelCache::new`], [`NvrtcLibrary::load`].
    pub(crate) fn new(
        context: &Arc<DeviceContext>,
        cache: KernelCache,
        place: Option<PathBuf>,
    ) -> Self {
        KernelStore { context: context.clone(), cache, place, loaded: BTreeMap::new() }
    }

    /// Returns the kernel `name` of a text, loaded. Blocks of `threads` can be launched.
    pub(crate) fn get(
        &mut self,
        text: &str,
        name: &str,
        threads: u32,
        kind: CompileMode,
    ) -> Result<Arc<LoadedKernel>, KernelError> {
        let nvrtc = NvrtcLibrary::load(self.place.as_deref())?;
        let options = NvrtcLibrary::options(self.context.device().capability, kind);
        let key = KernelDigest::of(text, &options, nvrtc.version());
        let known = (key, name.to_string());
        if let Some(kernel) = self.loaded.get(&known) {
            return Ok(kernel.clone());
        }
        let load = |code: &[u8]| LoadedKernel::load(&self.context, code, name);
        // A file that the driver refuses is made anew.
        let kept = self.cache.read(key).and_then(|code| load(&code).ok());
        let kernel = match kept {
            Some(kernel) => kernel,
            None => {
                let code = nvrtc.compile(text, &options)?;
                self.cache.write(key, &code);
                load(&code)?
            }
        };
        let (registers, _, most) = kernel.facts;
        if most < threads {
            return Err(KernelError::Registers { registers, threads, most });
        }
        let kernel = Arc::new(kernel);
        self.loaded.insert(known, kernel.clone());
        Ok(kernel)
    }
}
