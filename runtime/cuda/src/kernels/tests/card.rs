//! Kernels on the GPU of this machine: compiled by its NVRTC, launched by its driver, on a copy of
//! the memory of a case.

use super::module::{Address, word};
use crate::driver::{Area, DeviceMemory, DriverError, Function, Gpu, Module, Shape, Stream, compile, target};
use crate::gemm::{Addresses, Library, WORKSPACE, products};
use crate::kernels::Sources;
use crate::launch::Launch;
use pipe_distributed::memory::Region;
use pipe_ir::kernels::{Gemm, Location};
use pipe_runtime::Precision;
use std::sync::Arc;

/// Kernels that can be launched there.
pub(super) struct Card {
    sources: Sources,
    // Kernels are unloaded before the context goes.
    module: Module,
    stream: Stream,
    gpu: Arc<Gpu>,
}

impl Card {
    /// Compiles all functions of some sources, and loads them.
    pub(super) fn new(sources: Sources) -> Self {
        Gpu::count().unwrap_or_else(|why| panic!("PIPEC_GPU asks for a GPU: {why}"));
        let gpu = Gpu::at(0).expect("a GPU that can be used");
        let target = target(gpu.capability()).expect("a compiler for the GPU");
        let image = compile(&sources.text(), target).unwrap_or_else(|log| panic!("{log}\n{}", sources.text()));
        let (module, stream) = (Module::load(&gpu, &image), Stream::new(&gpu));
        Self { sources, module: module.expect("kernels that load"), stream: stream.expect("a stream"), gpu }
    }

    fn function(&self, launch: &Launch) -> Result<Function, DriverError> {
        let function = self.module.function(self.sources.name(launch.function))?;
        function.allow_shared(launch.shared)?;
        Ok(function)
    }

    /// Launches kernels on some memory of the host, as if they ran there; `address` says where in it a place is.
    pub(super) fn launch(&self, launches: &[Launch], memory: Region, address: &dyn Fn(Address) -> u64) {
        self.with(memory, |there| {
            let moved = |place| address(place) - memory.as_ptr() as u64 + there.address;
            for launch in launches {
                let shape = Shape { grid: launch.grid, block: launch.block, shared: launch.shared };
                let words: Vec<u64> = launch.arguments.iter().map(|argument| word(*argument, &moved)).collect();
                self.stream.launch(&self.function(launch)?, &shape, &words)?;
            }
            Ok(())
        });
    }

    /// Computes a product by the vendor's library; whether it is here, and has a way to.
    pub(super) fn multiply(
        &self,
        (gemm, precision): (&Gemm, Precision),
        memory: Region,
        address: &dyn Fn(Address) -> u64,
    ) -> bool {
        self.gpu.activate().expect("a GPU that can be used");
        let (Some(calls), Ok(mut library)) = (products(gemm), Library::open(precision)) else { return false };
        if !calls.iter().all(|call| library.prepare(&call.shape)) {
            return false;
        }
        let workspace = DeviceMemory::new(&self.gpu, WORKSPACE).expect("memory of the GPU");
        self.with(memory, |there| {
            let moved = |at: Location| address(Address::Place(at)) - memory.as_ptr() as u64 + there.address;
            for call in &calls {
                let [left, right, result] = [call.left, call.right, call.result].map(moved);
                let at = Addresses { left, right, result, workspace: workspace.all.address };
                self.stream.product(&library, &call.shape, at).expect("a product that was prepared");
            }
            Ok(())
        });
        true
    }

    /// Brings memory to the GPU, lets something be done there, and brings it back.
    fn with(&self, memory: Region, work: impl FnOnce(Area) -> Result<(), DriverError>) {
        let done = || {
            let own = DeviceMemory::new(&self.gpu, memory.bytes().len())?;
            let there = own.all.part(0, memory.bytes().len());
            there.write(memory.bytes())?;
            work(there)?;
            self.stream.synchronise()?;
            there.read(memory.bytes_mut())
        };
        done().unwrap_or_else(|error| panic!("{error}"));
    }
}
