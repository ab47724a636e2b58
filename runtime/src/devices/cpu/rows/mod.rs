//! Kernels over the rows of contiguous tensors.

pub(super) mod along;
pub(super) mod gather;
pub(super) mod norm;
pub(super) mod series;
pub(super) mod softmax;
pub(super) mod sums;
