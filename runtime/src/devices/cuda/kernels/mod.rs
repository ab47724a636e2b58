//! Kernels of CUDA devices: their sources, and how each kernel of a plan is launched.

use super::launch::{FunctionId, Launch};
use pipe_ir::kernels::Kernel;

/// The functions that a program needs, as one source for NVRTC.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    // names, texts: whatever the author needs
}

impl Sources {
    /// Adds the functions that a kernel needs, unless they are there, and says what to launch for it.
    pub(crate) fn launches(&mut self, _kernel: &Kernel) -> Vec<Launch> {
        Vec::new()
    }

    /// The name of a function, as the module exports it.
    pub(crate) fn name(&self, _function: FunctionId) -> &str {
        ""
    }

    /// The text to compile.
    pub(crate) fn text(&self) -> String {
        String::new()
    }
}
