//! Values: the numbers that buffers begin with, from data, seeds and names, and how they lie in memory.

pub mod data;
mod documents;
pub mod init;
pub mod numbers;
pub mod random;
pub mod tokenizer;
mod tokens;
pub mod windows;
