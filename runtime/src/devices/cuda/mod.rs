//! CUDA devices: a program's lists become a tape of calls on streams and events, which one thread gives to the driver.
//!
//! ```text
//! Program ──tape──> Tape ──────────┐
//!    │                             ├──> calls of the driver, or a captured graph of them
//!    └──plan──> Kernels ──kernels──> source, launches
//! ```
//!
//! A [`tape`] knows when, and of what; [`kernels`] know how. Neither knows a driver, so both are tested without one.

pub(crate) mod kernels;
pub(crate) mod launch;
pub mod tape;
