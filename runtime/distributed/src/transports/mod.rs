//! Transports: how the processes of a job find each other, and what then carries their bytes.

pub mod store;
mod threads;

pub use threads::job_of_threads;
