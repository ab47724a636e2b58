//! Values: numbers, operators, conditions, loops, and names that are given a value.

pub(super) mod bindings;
pub(super) mod conditions;
pub(super) mod loops;
pub(super) mod numbers;
pub(super) mod operators;
