//! The runtime: executes verified programs on devices. It cannot see a syntax tree.
//!
//! | module | what |
//! |---|---|
//! | `run` | a program that was set up and can take steps |
//! | `engine` | what executes its lists: threads, or an engine of a crate above |
//! | `executor` | takes the instructions of one device one by one, on a thread of its own |
//! | `devices` | what they compute with: the processor, or nothing |
//! | `channels` | transfers, collectives and copies between devices of one process |
//! | `values` | what buffers begin with |
//! | `checkpoint` | saves and resumes |
//! | `prediction` | runs a language model token by token |
//! | `weights` | reads and writes the weights of others |
//! | `calibrate` | what products, copies and transfers take by themselves |

pub mod calibrate;
mod channels;
pub mod checkpoint;
mod checksum;
mod devices;
pub mod engine;
pub mod executor;
pub mod kernel_list;
pub mod prediction;
pub mod regular_file;
mod run;
mod values;
pub mod weights;

pub use devices::cpu::{
    NO_NUMBER, Piece, SquaredPart, UpdatedPart, instruction_set, learning_rate, makes_new_version, run_plan,
    run_squares, run_update, squared, updated,
};
pub use devices::{Loader, axes};
pub use executor::ledger;
pub use pipe_distributed::{
    DeviceStep, Entry, Fault, GpuNeed, Joined, LaneStep, Nanos, Profile, RunError, Span, StepReport, Used, UsedGpu,
};
pub use run::{Backend, Options, Pace, Precision, Run};
pub use values::{data, init, numbers, random, tokenizer, windows};
