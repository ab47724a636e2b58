//! Declarations and what stands in them: imports, settings, slots, tasks, tensors.

pub(super) mod declarations;
pub(super) mod imports;
pub(super) mod parts;
pub(super) mod settings;
pub(super) mod slots;
pub(super) mod stages;
pub(super) mod tasks;
pub(super) mod tensors;
