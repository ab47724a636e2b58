//! NVRTC: compiles the text of kernels for a GPU.
//!
//! Safety. [`version`] asks whether the library is there before any other call. A program is made
//! once and destroyed once; buffers have the sizes that the library named.

use super::super::found::find;
use cudarc::nvrtc::sys;
use std::ffi::{CString, c_char};

/// What to compile for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Target {
    /// The compute capability: 90 is 9.0.
    pub(crate) capability: u32,
    /// Whether the compiler knows it. Otherwise the driver finishes what is compiled for the newest that it knows.
    pub(crate) is_known: bool,
}

/// Major and minor version of the compiler. An error says in one line how to get one.
pub(crate) fn version() -> Result<(i32, i32), String> {
    // SAFETY: loads the library; nothing is called in it.
    if find("libnvrtc.so.", || unsafe { sys::is_culib_present() }.then_some(())).is_none() {
        return Err("NVRTC, which compiles kernels for the GPU, was not found (libnvrtc.so): it comes with the CUDA toolkit, or with \
                    `pip install nvidia-cuda-nvrtc` for the `python3` that is called here; of another one, LD_LIBRARY_PATH can name \
                    the folder nvidia/cu13/lib"
            .to_owned());
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: writes two numbers.
    check("nvrtcVersion", unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) })?;
    Ok((major, minor))
}

/// How to compile for a GPU of this compute capability.
pub(crate) fn target(capability: u32) -> Result<Target, String> {
    version()?;
    let mut count = 0;
    // SAFETY: writes one number.
    check("nvrtcGetNumSupportedArchs", unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) })?;
    let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: writes as many numbers as it said.
    check("nvrtcGetSupportedArchs", unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) })?;
    let known = known.into_iter().filter_map(|number| u32::try_from(number).ok());
    match known.filter(|known| *known <= capability).max() {
        Some(best) => Ok(Target { capability: best, is_known: best == capability }),
        None => Err(format!("the NVRTC here compiles for no GPU as old as sm_{capability}")),
    }
}

/// Compiles a text to a binary, or for a target that is not known to one that ends with a zero byte
/// and that the driver finishes.
///
/// # Errors
/// With what the compiler says.
pub(crate) fn compile(text: &str, target: Target) -> Result<Vec<u8>, String> {
    let text = CString::new(text).map_err(|error| error.to_string())?;
    let mut program = std::ptr::null_mut();
    // SAFETY: writes one handle; both texts end with a zero and live until the program is destroyed.
    check("nvrtcCreateProgram", unsafe {
        let none = std::ptr::null();
        sys::nvrtcCreateProgram(&raw mut program, text.as_ptr(), c"pipec.cu".as_ptr(), 0, none, none)
    })?;
    let program = Program(program);
    let kind = if target.is_known { "sm" } else { "compute" };
    let architecture = CString::new(format!("--gpu-architecture={kind}_{}", target.capability)).unwrap_or_default();
    let options: [*const c_char; 2] = [c"--std=c++17".as_ptr(), architecture.as_ptr()];
    // SAFETY: two texts, both of which end with a zero.
    let code = unsafe { sys::nvrtcCompileProgram(program.0, 2, options.as_ptr()) };
    if code != sys::nvrtcResult::NVRTC_SUCCESS {
        let log = program.log().unwrap_or_default();
        return Err(format!(
            "NVRTC does not compile our kernels ({code:?}); please report it:\n{}",
            log.trim_end_matches(['\0', '\n'])
        ));
    }
    if target.is_known { program.cubin() } else { program.ptx() }
}

struct Program(sys::nvrtcProgram);

impl Program {
    fn cubin(&self) -> Result<Vec<u8>, String> {
        // SAFETY: the first writes the size of what the second writes.
        unsafe {
            let mut size = 0;
            check("nvrtcGetCUBINSize", sys::nvrtcGetCUBINSize(self.0, &raw mut size))?;
            let mut out = vec![0_u8; size];
            check("nvrtcGetCUBIN", sys::nvrtcGetCUBIN(self.0, out.as_mut_ptr().cast()))?;
            Ok(out)
        }
    }

    fn ptx(&self) -> Result<Vec<u8>, String> {
        // SAFETY: as above.
        unsafe {
            let mut size = 0;
            check("nvrtcGetPTXSize", sys::nvrtcGetPTXSize(self.0, &raw mut size))?;
            let mut out = vec![0_u8; size];
            check("nvrtcGetPTX", sys::nvrtcGetPTX(self.0, out.as_mut_ptr().cast()))?;
            Ok(out)
        }
    }

    fn log(&self) -> Result<String, String> {
        // SAFETY: as above.
        unsafe {
            let mut size = 0;
            check("nvrtcGetProgramLogSize", sys::nvrtcGetProgramLogSize(self.0, &raw mut size))?;
            let mut out = vec![0_u8; size];
            check("nvrtcGetProgramLog", sys::nvrtcGetProgramLog(self.0, out.as_mut_ptr().cast()))?;
            Ok(String::from_utf8_lossy(&out).into_owned())
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made once, and destroyed once.
        let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

fn check(call: &str, code: sys::nvrtcResult) -> Result<(), String> {
    if code == sys::nvrtcResult::NVRTC_SUCCESS { Ok(()) } else { Err(format!("{call} answers {code:?}")) }
}
