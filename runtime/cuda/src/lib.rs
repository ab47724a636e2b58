//! CUDA devices: a program's lists become a command list, calls on streams and events that one
//! thread gives to the driver.
//!
//! ```text
//! Program ──record──> CommandList ─┐
//!    │                             ├──> calls of the driver, or a captured graph of them
//!    └──plan──> Kernels ──kernels──> source, launches
//! ```
//!
//! [`commands`] say when, and of what; [`kernels`] say how. Neither knows a driver, so both are
//! tested without one.

mod cache;
pub mod commands;
mod driver;
mod found;
mod gemm;
mod kernels;
mod launch;
mod machine;
mod nccl;

use machine::Machine;
pub use machine::{Gpus, ProductTime};
use pipe_distributed::{Job, RankView};
use pipe_ir::verify::Verified;
use pipe_runtime::engine::Engine;
use pipe_runtime::{Backend, Loader, Options, RunError};
use std::sync::Arc;

/// The GPUs of this machine.
pub const BACKEND: Backend = Backend::Gpu(start);

fn start(
    program: &Arc<Verified>,
    options: &Options,
    loader: Arc<dyn Loader>,
    rank_view: Option<&RankView>,
) -> Result<Box<dyn Engine>, RunError> {
    Ok(Box::new(Machine::start(program, options, loader, rank_view)?))
}

/// The names of the GPUs of this machine.
///
/// # Errors
/// Says in one line why there are none.
pub fn gpus() -> Result<Vec<String>, String> {
    driver::Gpu::names()
}

/// Ends this process with an exit code if GPUs were used in it: at once, without what the driver and NCCL do at an
/// exit, which fails where another thread is inside of them. Everything was written, and MPI has ended.
pub fn leave(code: i32) {
    driver::leave(code);
}

/// Whether every rank of a job has a GPU, and NCCL to send to the others, or else why not. All ask
/// at once; a rank that does not want one says so.
///
/// # Errors
/// If a rank cannot go on.
pub fn all_have_gpus(job: &Job, is_wanted: bool) -> Result<Result<(), String>, RunError> {
    let has_gpu = machine::has_gpu(job.mailbox())?;
    let own = match nccl::version() {
        _ if !is_wanted => Err("nobody asked for them".to_owned()),
        _ if !has_gpu => Err(format!("{} has none of its own", job.rank())),
        found => found.map(|_| ()),
    };
    let any_without = job.any(own.is_err())?;
    Ok(own.and(if any_without { Err("another rank has none of its own, or no NCCL".to_owned()) } else { Ok(()) }))
}

/// The driver, the compiler, the libraries of matrix products and between processes, and versions,
/// as far as they are here. The driver is not started.
pub fn libraries() -> String {
    let driver = match driver::version() {
        Ok((major, minor)) => format!("driver for CUDA {major}.{minor}"),
        Err(reason) => reason,
    };
    let compiler = match driver::compiler_version() {
        Ok((major, minor)) => format!("NVRTC {major}.{minor}"),
        Err(_) => "NVRTC not found".to_owned(),
    };
    let products = if gemm::is_here() { "cuBLASLt" } else { "cuBLASLt not found" };
    let between = nccl::version().map_or_else(|_| "NCCL not found".to_owned(), |version| format!("NCCL {version}"));
    format!("{driver}, {compiler}, {products}, {between}")
}
