//! The runtime: executes verified programs on devices. It cannot see a syntax tree.

pub mod calibrate;
pub mod channel;
pub mod checkpoint;
mod checksum;
pub mod collective;
mod copies;
pub mod data;
mod device;
mod devices;
pub mod engine;
pub mod executor;
mod executor_pool;
mod fault;
pub mod init;
pub mod job;
pub mod kernel_list;
pub mod ledger;
pub mod memory;
pub mod numbers;
mod profile;
pub mod random;
pub mod regular_file;
mod remote;
mod report;
mod run;
mod threads;

pub use device::Loader;
pub use devices::axes;
pub use devices::cpu::{
    NO_NUMBER, UpdatedPart, instruction_set, learning_rate, makes_new_version, run_plan, run_update, updated,
};
pub use fault::{Fault, RunError};
pub use profile::{Amount, Entry, Profile};
pub use remote::RankView;
pub use report::{DeviceStep, Joined, Nanos, Span, StepReport, Used, UsedGpu};
pub use run::{Backend, Options, Pace, Precision, Run};
