//! Jobs: processes that run one program together, each of them the devices of its own rank.
//!
//! One thread of each process, the progress thread, talks to the others through whatever carries bytes between them.
//! Below that is what every engine shares: memory, tokens that are marked, sums, errors, and reports of steps.
//!
//! | module | what |
//! |---|---|
//! | `memory` | the bytes of devices |
//! | `tokens` | what has ended, and whom to wake |
//! | `collective` | shares of members, and sums in the order of a group |
//! | `across_hosts` | the same on several hosts, as rounds of messages |
//! | `fault` | why a run cannot go on |
//! | `profile` | what kernels took |
//! | `report` | what a step did |
//! | `rank` | processes, and which devices each has |
//! | `lost` | who ended or fell silent |
//! | `wire` | what carries bytes between processes |
//! | `job` | the progress thread, and how others talk to it |
//! | `transports` | wires: MPI, a store, threads of one process |
//! | `remote` | transfers and collectives of a program that go to other ranks |

pub mod across_hosts;
pub mod collective;
mod fault;
mod job;
mod lost;
pub mod memory;
mod profile;
mod rank;
pub mod remote;
mod report;
pub mod tokens;
mod transports;
mod wire;

pub use fault::{Fault, GpuNeed, RunError};
pub use job::mailbox::Mailbox;
pub use job::{Job, Settings, Teller, Unconnected};
pub use lost::{Ailment, How, Lost, Position, Process};
pub use profile::{Amount, Entry, Profile};
pub use rank::{Division, Rank};
pub use remote::RankView;
pub use report::{DeviceStep, Joined, LaneStep, Nanos, Span, StepReport, Used, UsedGpu};
pub use transports::{job_of_threads, store};
pub use wire::{Cut, Signs, Tag, Wire};
