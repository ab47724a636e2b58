//! Modules: compiled kernels, loaded onto a GPU.
//!
//! Safety. A [`Function`] is a handle into its [`Module`]; the machine owns both, and drops modules
//! after everything that launches.

use super::{DriverError, Gpu, check};
use cudarc::driver::sys;
use std::ffi::CString;
use std::sync::Arc;

/// Kernels on a GPU.
#[derive(Debug)]
pub(crate) struct Module {
    gpu: Arc<Gpu>,
    handle: sys::CUmodule,
}

// SAFETY: a handle of the driver, which any thread may use.
unsafe impl Send for Module {}

impl Module {
    /// Loads a binary, or the text of one that ends with a zero byte.
    pub(crate) fn load(gpu: &Arc<Gpu>, image: &[u8]) -> Result<Self, DriverError> {
        gpu.activate()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle; an image says itself how long it is, or ends with a zero.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut handle, image.as_ptr().cast()) })?;
        Ok(Self { gpu: Arc::clone(gpu), handle })
    }

    /// A function of it, whose code is on the GPU from now on: the driver would else bring it there
    /// at the first launch, which may be captured.
    pub(crate) fn function(&self, name: &str) -> Result<Function, DriverError> {
        let name = CString::new(name).unwrap_or_default();
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes one handle; the name ends with a zero.
        check("cuModuleGetFunction", unsafe { sys::cuModuleGetFunction(&raw mut handle, self.handle, name.as_ptr()) })?;
        // SAFETY: the function was found just now.
        check("cuFuncLoad", unsafe { sys::cuFuncLoad(handle) })?;
        Ok(Function { handle })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded once, and unloaded once.
        let _ = self.gpu.activate().and_then(|()| check("cuModuleUnload", unsafe { sys::cuModuleUnload(self.handle) }));
    }
}

/// A kernel that can be launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(super) handle: sys::CUfunction,
}

// SAFETY: a handle of the driver, which any thread may use.
unsafe impl Send for Function {}

/// Shared memory that a kernel has without asking.
const USUAL_SHARED: u32 = 48 << 10;

impl Function {
    /// Lets it have so much shared memory at its launch.
    pub(crate) fn allow_shared(&self, bytes: u32) -> Result<(), DriverError> {
        use sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as MOST;
        if bytes <= USUAL_SHARED {
            return Ok(());
        }
        // SAFETY: the module is loaded.
        check("cuFuncSetAttribute", unsafe {
            sys::cuFuncSetAttribute(self.handle, MOST, i32::try_from(bytes).unwrap_or(i32::MAX))
        })
    }
}
