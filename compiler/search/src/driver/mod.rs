//! What runs when: rounds of many pieces of work, on as many threads as the caller has.

pub mod alternatives;
pub mod find;
pub(crate) mod portfolio;
pub(crate) mod round;
pub mod run;
pub(crate) mod subtasks;
