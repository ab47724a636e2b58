//! The runtime: executes verified programs on devices. It cannot see a syntax tree.

pub mod calibrate;
mod channels;
pub mod checkpoint;
mod checksum;
pub mod data;
mod device;
mod devices;
pub mod engine;
pub mod executor;
mod executor_pool;
pub mod init;
pub mod kernel_list;
pub mod ledger;
pub mod numbers;
pub mod random;
pub mod regular_file;
mod run;
mod threads;

pub use device::Loader;
pub use devices::axes;
pub use devices::cpu::{
    NO_NUMBER, UpdatedPart, instruction_set, learning_rate, makes_new_version, run_plan, run_update, updated,
};
pub use pipe_distributed::{
    DeviceStep, Entry, Fault, Joined, Nanos, Profile, RankView, RunError, Span, StepReport, Used, UsedGpu,
};
pub use run::{Backend, Options, Pace, Precision, Run};
