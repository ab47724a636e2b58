//! Models: from declared layers to the tensor graphs of stages.

pub mod stage_set;
