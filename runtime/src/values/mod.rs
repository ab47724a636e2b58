//! Values: the numbers that buffers begin with, from data, seeds and names, and how they lie in memory.

mod arrays;
pub(crate) mod bounds;
mod contents;
pub mod data;
mod documents;
mod elements;
mod error;
mod examples;
pub mod init;
pub mod numbers;
pub mod random;
pub mod tokenizer;
mod tokens;
pub mod windows;
