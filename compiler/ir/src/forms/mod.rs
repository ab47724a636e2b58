//! Forms of programs that other tools read: JSON, and what the Python package knows of instructions.

pub mod json;
pub mod python;
