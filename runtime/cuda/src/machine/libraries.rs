//! Libraries: cuBLASLt on each GPU of the run, where this machine has it. Products that it cannot
//! compute are kernels of our own.

use super::super::driver::Gpu;
use crate::gemm::{Addresses, Library, Product, products};
use crate::machine::gpu_assignment::GpuAssignment;
use crate::machine::kernel_args::KernelArgs;
use pipe_ir::kernels::Kernel;
use pipe_runtime::{Precision, RunError};
use std::sync::Arc;

/// By GPU; empty where there is none.
#[derive(Default)]
pub(super) struct Libraries(Vec<(Library, Arc<Gpu>)>);

impl Libraries {
    /// Opens the library on all GPUs, or on none. Fails if the driver fails.
    pub(super) fn open(assignment: &GpuAssignment, precision: Precision) -> Result<Self, RunError> {
        let mut all = Vec::with_capacity(assignment.gpus.len());
        for gpu in &assignment.gpus {
            gpu.activate()?;
            match Library::open(precision) {
                Some(library) => all.push((library, Arc::clone(gpu))),
                None => return Ok(Self::default()),
            }
        }
        Ok(Self(all))
    }

    /// The calls that compute a kernel on every GPU, if it is one for the library. Algorithms are chosen here, so that
    /// none is chosen in a step. Fails if the driver fails.
    pub(super) fn prepare(&mut self, kernel: &Kernel) -> Result<Option<Vec<Product>>, RunError> {
        let Kernel::Gemm(gemm) = kernel else { return Ok(None) };
        if self.0.is_empty() {
            return Ok(None);
        }
        let Some(calls) = products(gemm) else { return Ok(None) };
        for (library, gpu) in &mut self.0 {
            gpu.activate()?;
            if !calls.iter().all(|call| library.prepare(&call.shape)) {
                return Ok(None);
            }
        }
        Ok(Some(calls))
    }

    /// That of a GPU.
    pub(super) fn of(&self, gpu: usize) -> Option<&Library> {
        self.0.get(gpu).map(|(library, _)| library)
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        for (library, gpu) in self.0.drain(..) {
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
