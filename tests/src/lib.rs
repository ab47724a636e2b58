//! What the tests of the whole house share.

pub mod cases;
pub mod fuzz;
pub mod mutation;
pub mod pipelines;
pub mod programs;
pub mod schedules;
pub mod training;
