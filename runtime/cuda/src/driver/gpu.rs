//! GPUs: what the driver says of each, and its primary context.
//!
//! Safety. The driver is open: [`Gpu::count`] was asked before. A context is retained when its
//! [`Gpu`] is made and released when it is dropped; everything that lives in the context holds the
//! [`Gpu`] in an `Arc`, so none outlives it.

use super::{DriverError, check, open};
use cudarc::driver::sys;
use pipe_ir::units::Bytes;
use std::ffi::{CStr, c_int};
use std::sync::Arc;

/// A GPU of this machine, in use.
#[derive(Debug)]
pub(crate) struct Gpu {
    /// Its number among those of the machine.
    pub(crate) ordinal: usize,
    device: sys::CUdevice,
    pub(super) context: sys::CUcontext,
    /// Such as `NVIDIA H100 80GB HBM3`.
    pub(crate) name: String,
    capability: (u32, u32),
}

// SAFETY: handles of the driver, which any thread may use once it has made the context current; `activate` does that.
unsafe impl Send for Gpu {}
// SAFETY: as above; nothing here changes after it was made.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// How many there are. An error says in one line why there are none.
    pub(crate) fn count() -> Result<usize, String> {
        devices().map(|devices| devices.len())
    }

    /// The one with this number, which is below the count.
    pub(crate) fn at(ordinal: usize) -> Result<Arc<Self>, DriverError> {
        let device = device(c_int::try_from(ordinal).unwrap_or(c_int::MAX))?;
        Self::retain(ordinal, device).map(Arc::new)
    }

    /// Their names, without a context for any. An error says in one line why there are none.
    pub(crate) fn names() -> Result<Vec<String>, String> {
        let names = devices()?.into_iter().map(name);
        names.collect::<Result<_, _>>().map_err(|error| format!("the GPU cannot be used: {error}"))
    }

    fn retain(ordinal: usize, device: sys::CUdevice) -> Result<Self, DriverError> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        let (name, capability) = (name(device)?, (attribute(device, MAJOR)?, attribute(device, MINOR)?));
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) })?;
        Ok(Self { ordinal, device, context, name, capability })
    }

    /// What tells it from all others, whatever a process sees of them.
    pub(crate) fn uuid(&self) -> Result<String, DriverError> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: writes 16 bytes.
        check("cuDeviceGetUuid_v2", unsafe { sys::cuDeviceGetUuid_v2(&raw mut uuid, self.device) })?;
        Ok(uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect())
    }

    /// Its compute capability: 90 is 9.0.
    pub(crate) const fn capability(&self) -> u32 {
        10 * self.capability.0 + self.capability.1
    }

    /// What the calling thread asks for next happens on this one.
    pub(crate) fn activate(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Free memory.
    pub(crate) fn free_memory(&self) -> Result<Bytes, DriverError> {
        self.activate()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers.
        check("cuMemGetInfo_v2", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok(Bytes(free as u64))
    }

    /// Waits for all that was asked of it.
    pub(crate) fn synchronise(&self) -> Result<(), DriverError> {
        self.activate()?;
        // SAFETY: a context is current.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
    }

    /// Lets its kernels touch the memory of another GPU. Answers whether that is possible.
    pub(crate) fn reach(&self, other: &Self) -> Result<bool, DriverError> {
        let mut possible: c_int = 0;
        // SAFETY: writes one number.
        check("cuDeviceCanAccessPeer", unsafe {
            sys::cuDeviceCanAccessPeer(&raw mut possible, self.device, other.device)
        })?;
        if possible == 0 {
            return Ok(false);
        }
        self.activate()?;
        // SAFETY: both contexts are retained.
        match unsafe { sys::cuCtxEnablePeerAccess(other.context, 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
            code => check("cuCtxEnablePeerAccess", code).map(|()| true),
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: retained once, and released once. At the end of a process there is nobody to tell of an error.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

fn devices() -> Result<Vec<sys::CUdevice>, String> {
    open()?;
    let found = || {
        let mut count: c_int = 0;
        // SAFETY: writes one number.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
        (0..count).map(device).collect::<Result<Vec<_>, _>>()
    };
    let devices = found().map_err(|error| format!("the CUDA driver does not say which GPUs there are: {error}"))?;
    if devices.is_empty() { Err("the CUDA driver finds no GPU here".to_owned()) } else { Ok(devices) }
}

fn device(ordinal: c_int) -> Result<sys::CUdevice, DriverError> {
    let mut device = 0;
    // SAFETY: writes one handle.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ordinal) })?;
    Ok(device)
}

fn name(device: sys::CUdevice) -> Result<String, DriverError> {
    let mut text = [0_u8; 256];
    // SAFETY: writes at most 255 bytes and a zero into 256.
    check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(text.as_mut_ptr().cast(), 256, device) })?;
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    Ok(text.to_string_lossy().into_owned())
}

fn attribute(device: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<u32, DriverError> {
    let mut number: c_int = 0;
    // SAFETY: writes one number.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&raw mut number, which, device) })?;
    Ok(u32::try_from(number).unwrap_or(0))
}
