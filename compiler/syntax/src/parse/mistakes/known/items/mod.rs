//! Declarations and what stands in them: imports, settings, tasks, tensors.

pub(super) mod declarations;
pub(super) mod imports;
pub(super) mod settings;
pub(super) mod tasks;
pub(super) mod tensors;
