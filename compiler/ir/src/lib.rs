//! The contract between the compiler and the runtime: ids, units, instructions, programs, tensor
//! graphs and the verifier.
//!
//! Depends on nothing else of ours. The compiler writes a [`program::Program`]; [`verify::verify`] turns it into a
//! [`verify::Verified`] one, which is all that the runtime accepts.

pub mod cycle;
pub mod digest;
pub mod forms;
pub mod gpu;
pub mod graph;
pub mod ids;
pub mod instruction;
pub mod kernels;
pub mod lanes;
pub mod members;
pub mod muon;
pub mod operand;
pub mod prediction;
pub mod program;
pub mod reference;
pub mod shares;
pub mod slices;
pub mod task;
pub mod text;
pub mod training;
pub mod units;
pub mod value;
pub mod verify;
pub mod words;
