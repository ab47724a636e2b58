//! Libraries: cuBLASLt on each GPU of the run, where this machine has it. Products that it cannot
//! compute are kernels of our own.

use super::super::driver::Gpu;
use crate::gemm::{Addresses, Library, Product, products};
use crate::machine::gpu_assignment::GpuAssignment;
use crate::machine::kernel_args::KernelArgs;
use pipe_ir::kernels::Kernel;
use pipe_runtime::{Precision, RunError};
use std::sync::Arc;

/// The libraries of a run.
#[derive(Default)]
pub(super) struct Libraries {
    /// By GPU; empty where there is none.
    all: Vec<(Library, Arc<Gpu>)>,
    /// Why there is none, where one was wanted.
    why: Option<String>,
    /// Products so far that are computed by the library, and by kernels of our own.
    counts: [usize; 2],
}

impl Libraries {
    /// Opens the library on all GPUs, or on none. Fails if the driver fails.
    pub(super) fn open(assignment: &GpuAssignment, precision: Precision) -> Result<Self, RunError> {
        let mut all = Vec::with_capacity(assignment.gpus.len());
        for gpu in &assignment.gpus {
            gpu.activate()?;
            match Library::open(precision) {
                Ok(library) => all.push((library, Arc::clone(gpu))),
                Err(why) => return Ok(Self { all: Vec::new(), why: Some(why), counts: [0, 0] }),
            }
        }
        Ok(Self { all, why: None, counts: [0, 0] })
    }

    /// What is said of it, once: that kernels of our own multiply although nobody wanted that.
    pub(super) fn note(&mut self) -> Option<String> {
        let why = self.why.take().filter(|_| self.counts[1] > 0)?;
        Some(format!("{why}; pipec's own kernels multiply instead, which take several times as long"))
    }

    /// What multiplies matrices, in the words of reports.
    pub(super) fn told(&self) -> String {
        match self.counts {
            [0, 0] => "nothing".to_owned(),
            [_, 0] => "cuBLASLt".to_owned(),
            [0, _] => "pipec".to_owned(),
            [library, own] => format!("cuBLASLt, {own} of {} by pipec", library + own),
        }
    }

    /// The calls that compute a kernel on every GPU, if it is one for the library. Algorithms are chosen here, so that
    /// none is chosen in a step. Fails if the driver fails.
    pub(super) fn prepare(&mut self, kernel: &Kernel) -> Result<Option<Vec<Product>>, RunError> {
        let Kernel::Gemm(gemm) = kernel else { return Ok(None) };
        let calls = if self.all.is_empty() { None } else { products(gemm) };
        let mut is_taken = calls.is_some();
        for (library, gpu) in &mut self.all {
            gpu.activate()?;
            is_taken = is_taken && calls.iter().flatten().all(|call| library.prepare(&call.shape));
        }
        self.counts[usize::from(!is_taken)] += 1;
        Ok(calls.filter(|_| is_taken))
    }

    /// That of a GPU.
    pub(super) fn of(&self, gpu: usize) -> Option<&Library> {
        self.all.get(gpu).map(|(library, _)| library)
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        for (library, gpu) in self.all.drain(..) {
            // What the library has on a GPU is given back there.
            let _ = gpu.activate();
            drop(library);
        }
    }
}

/// A call with its addresses.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) gpu: usize,
    pub(super) call: Product,
    pub(super) at: Addresses,
}

impl Queued {
    /// On a GPU, in a run with these places.
    pub(super) fn new(gpu: usize, call: &Product, places: &KernelArgs<'_>, workspace: u64) -> Self {
        let [left, right, result] = [call.left, call.right, call.result].map(|at| places.address(at));
        Self { gpu, call: call.clone(), at: Addresses { left, right, result, workspace } }
    }
}
