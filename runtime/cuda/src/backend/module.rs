//! Loaded kernels.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys;

use super::fault::cuda;
use super::{CudaStream, DeviceContext, DriverFault};

/// A kernel on a device, ready to be launched.
#[derive(Debug)]
pub(crate) struct LoadedKernel {
    context: Arc<DeviceContext>,
    module: sys::CUmodule,
    function: sys::CUfunction,
    /// The registers of a thread, the bytes of its local memory, and the most threads of a block.
    pub(crate) facts: (u32, u32, u32),
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for LoadedKernel {}
// SAFETY: as above; a launch changes nothing here.
unsafe impl Sync for LoadedKernel {}

impl LoadedKernel {
    /// Loads the function of that name from code for this device, whole: nothing is left to the first launch, which
    /// would wait for kernels that spin.
    pub(crate) fn load(
        context: &Arc<DeviceContext>,
        code: &[u8],
        name: &str,
    ) -> Result<Self, DriverFault> {
        context.enter()?;
        let name = CString::new(name).unwrap_or_default();
        let mut module = std::ptr::null_mut();
        // SAFETY: `code` is a whole image: the caller has it from the compiler, or from the cache, which checks it.
        unsafe { cuda!(cuModuleLoadData(&raw mut module, code.as_ptr().cast())) }?;
        let mut kernel = LoadedKernel {
            context: context.clone(),
            module,
            function: std::ptr::null_mut(),
            facts: (0, 0, 0),
        };
        // SAFETY: the module is good, the name ends with a zero, one handle is written.
        unsafe {
            cuda!(cuModuleGetFunction(&raw mut kernel.function, module, name.as_ptr()))?;
            cuda!(cuFuncLoad(kernel.function))?;
        }
        use sys::CUfunction_attribute_enum as Of;
        kernel.facts = (
            kernel.attribute(Of::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            kernel.attribute(Of::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            kernel.attribute(Of::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        );
        Ok(kernel)
    }

    fn attribute(&self, which: sys::CUfunction_attribute) -> Result<u32, DriverFault> {
        let mut value = 0;
        // SAFETY: one number is written; the function is good.
        unsafe { cuda!(cuFuncGetAttribute(&raw mut value, which, self.function)) }?;
        Ok(value as u32)
    }

    /// Puts it into a stream.
    ///
    /// # Safety
    ///
    /// `params` are the words of the kernel's only parameter, as many as it has; what they address is good until
    /// the stream has come past.
    pub(crate) unsafe fn launch(
        &self,
        stream: &CudaStream,
        (blocks, threads): (u32, u32),
        params: &[u64],
    ) -> Result<(), DriverFault> {
        self.context.enter()?;
        let mut values = [params.as_ptr().cast_mut().cast::<c_void>()];
        let extra = std::ptr::null_mut();
        // SAFETY: the driver copies the parameter before it returns; the rest is the caller's promise.
        unsafe {
            let (grid, block, to) = (blocks, threads, stream.handle());
            let values = values.as_mut_ptr();
            cuda!(cuLaunchKernel(self.function, grid, 1, 1, block, 1, 1, 0, to, values, extra))
        }
    }
}

/// The size of a launch with arguments of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchGrid {
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub(crate) shared_bytes: u32,
    /// True if all blocks must be resident at once.
    pub(crate) cooperates: bool,
}

impl LoadedKernel {
    /// Puts a kernel of a user's into a stream.
    ///
    /// # Safety
    ///
    /// `args` are as many as the kernel takes, each with the bytes of its type at least; what they address is good
    /// until the stream has come past.
    pub(crate) unsafe fn start(
        &self,
        stream: &CudaStream,
        grid: LaunchGrid,
        args: &[&[u64]],
    ) -> Result<(), DriverFault> {
        self.context.enter()?;
        let mut values: Vec<*mut c_void> =
            args.iter().map(|arg| arg.as_ptr().cast_mut().cast()).collect();
        let (values, to, extra) = (values.as_mut_ptr(), stream.handle(), std::ptr::null_mut());
        let LaunchGrid { blocks, threads, shared_bytes: shared, cooperates } = grid;
        let function = self.function;
        // SAFETY: the driver copies the arguments before it returns; the rest is the caller's promise.
        unsafe {
            match cooperates {
                true => cuda!(cuLaunchCooperativeKernel(
                    function, blocks, 1, 1, threads, 1, 1, shared, to, values
                )),
                false => cuda!(cuLaunchKernel(
                    function, blocks, 1, 1, threads, 1, 1, shared, to, values, extra
                )),
            }
        }
    }
}

impl Drop for LoadedKernel {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: this is the only owner of the handles. The driver waits for launches that still run.
            let _ = unsafe { cuda!(cuModuleUnload(self.module)) };
        }
    }
}
