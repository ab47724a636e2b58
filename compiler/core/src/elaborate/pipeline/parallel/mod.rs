//! Which devices hold the same weights or divide them: `tensor`, `data` and `zero`.

pub(super) mod data;
pub(super) mod degrees;
pub(super) mod tensor;
pub(super) mod zero;
