//! The runtime: executes verified programs on devices. It cannot see a syntax tree.

pub mod calibrate;
mod channel;
pub mod checkpoint;
mod checksum;
mod collective;
mod copies;
pub mod data;
mod device;
mod devices;
mod engine;
mod executor;
mod executor_pool;
mod fault;
mod init;
pub mod job;
pub mod kernel_list;
mod ledger;
mod memory;
mod profile;
pub mod random;
pub mod regular_file;
mod remote;
mod report;
mod run;
mod threads;

pub use device::Loader;
pub use devices::cpu::instruction_set;
pub use devices::cuda::{Precision, all_have_gpus, commands, gpus, libraries};
pub use fault::{Fault, RunError};
pub use profile::{Entry, Profile};
pub use report::{DeviceStep, Nanos, Span, StepReport, Used, UsedGpu};
pub use run::{Backend, Options, Pace, Run};
