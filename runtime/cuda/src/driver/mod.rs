//! The CUDA driver and NVRTC, as far as they are used here: handles that give back what they hold, and errors in words.
//!
//! Both libraries are loaded when they are first asked for, so a machine without them runs everything else.
//!
//! A process that has used them ends by [`leave`]: at an exit the driver and NCCL take down what other threads may
//! still be inside of, such as one that waits for a rank that never comes.
//!
//! Safety. [`open`] and [`version`] ask whether the library and every function that is called below
//! are there before any other call, because `cudarc` panics where one is missing. Pointers that are
//! handed over point to locals that live longer than the call.

mod gpu;
mod graph;
mod memory;
mod module;
mod nvrtc;
mod stream;

pub(crate) use gpu::Gpu;
pub(crate) use graph::{Capture, Graph};
pub(crate) use memory::{Area, DeviceMemory, PinnedMemory};
pub(crate) use module::{Function, Module};
pub(crate) use nvrtc::{compile, target, version as compiler_version};
pub(crate) use stream::{Event, Shape, Stream};

use cudarc::driver::sys;
use std::ffi::c_int;
use std::fmt;
use std::sync::OnceLock;

/// What the driver answered to a call that it refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DriverError {
    call: &'static str,
    code: sys::CUresult,
}

impl DriverError {
    /// Whether memory was asked for that is not there.
    pub(crate) fn is_out_of_memory(self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }

    /// Whether it is of a kernel that was asked for before: it broke a rule, and the GPU does nothing more for this
    /// process.
    pub(crate) fn is_of_a_kernel(self) -> bool {
        matches!(
            self.code,
            sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
                | sys::CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
                | sys::CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | sys::CUresult::CUDA_ERROR_INVALID_PC
                | sys::CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | sys::CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
                | sys::CUresult::CUDA_ERROR_ASSERT
                | sys::CUresult::CUDA_ERROR_LAUNCH_FAILED
        )
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answers {:?}", self.call, self.code)
    }
}

fn check(call: &'static str, code: sys::CUresult) -> Result<(), DriverError> {
    if code == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(DriverError { call, code }) }
}

/// All functions that are called. Drivers before CUDA 12.4 lack at least `cuFuncLoad`, the newest of them.
const CALLS: &[&str] = &[
    "cuCtxEnablePeerAccess",
    "cuCtxGetStreamPriorityRange",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuFuncLoad",
    "cuFuncSetAttribute",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchHostFunc",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemcpyAsync",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyPeerAsync",
    "cuMemsetD32Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

static OPENED: OnceLock<Result<(), String>> = OnceLock::new();

/// Loads and starts the driver, once for the process. An error says in one line why there is none.
pub(crate) fn open() -> Result<(), String> {
    OPENED.get_or_init(|| load().and_then(|()| start())).clone()
}

/// Ends the process with an exit code, if the driver was started in it: at once, and without what its libraries do at
/// an exit. Everything was written.
pub(crate) fn leave(code: c_int) {
    unsafe extern "C" {
        fn _exit(code: c_int) -> !;
    }
    if OPENED.get().is_some_and(Result::is_ok) && !is_examined() {
        // SAFETY: the function of POSIX takes any number, and does not come back.
        unsafe { _exit(code) };
    }
}

/// Whether every kernel is to be waited for, so that one that fails has a name: the variable that tells the driver to
/// do so, too.
pub(crate) fn is_blocking() -> bool {
    static SAID: OnceLock<bool> = OnceLock::new();
    *SAID.get_or_init(|| std::env::var("CUDA_LAUNCH_BLOCKING").is_ok_and(|value| value == "1"))
}

/// Whether a tool looks at the process, such as those of Nsight and compute-sanitizer, which write what they have seen
/// when it exits.
fn is_examined() -> bool {
    let libraries = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    ["sanitizer", "Injection", "cupti", "nvperf"].iter().any(|word| libraries.contains(word))
}

fn load() -> Result<(), String> {
    // SAFETY: loads the library; nothing is called in it.
    if !unsafe { sys::is_culib_present() } {
        return Err("no CUDA driver here (libcuda.so.1 was not found)".to_owned());
    }
    // SAFETY: the library is there; the symbols are looked up, and not called.
    let missing = |name: &&&str| unsafe { sys::culib().get::<*const ()>(name.as_bytes()).is_err() };
    if let Some(name) = CALLS.iter().find(missing) {
        return Err(format!(
            "the CUDA driver is too old: it lacks {name}; pipec needs version 550 (CUDA 12.4) or newer"
        ));
    }
    Ok(())
}

fn start() -> Result<(), String> {
    // SAFETY: the function is there.
    match unsafe { sys::cuInit(0) } {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        sys::CUresult::CUDA_ERROR_NO_DEVICE => Err("the CUDA driver finds no GPU here".to_owned()),
        sys::CUresult::CUDA_ERROR_STUB_LIBRARY => {
            Err("libcuda.so is the stub of the toolkit, not a driver: it must not be in LD_LIBRARY_PATH".to_owned())
        }
        code => Err(format!("the CUDA driver does not start: cuInit answers {code:?}")),
    }
}

/// Major and minor version of CUDA that the driver knows. It is loaded, and not started. An error says in one line why
/// there is no driver.
pub(crate) fn version() -> Result<(i32, i32), String> {
    load()?;
    let mut version = 0;
    // SAFETY: writes one number.
    let answer = check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) });
    answer.map_err(|error| error.to_string())?;
    Ok((version / 1000, version % 1000 / 10))
}
