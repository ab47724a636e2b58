//! What the tests of the whole house share.

pub mod blocks;
pub mod book;
pub mod cases;
pub mod channels;
pub mod claims;
pub mod command_lists;
pub mod exhaustive;
pub mod fuzz;
pub mod imports;
pub mod irregular;
pub mod jobs;
pub mod layouts;
pub mod learned;
pub mod mutation;
pub mod pipelines;
pub mod programs;
pub mod ranks;
pub mod rewrite;
pub mod schedules;
pub mod shared;
pub mod slice;
pub mod steps;
pub mod store;
pub mod team;
pub mod training;
pub mod tree_sitter;
