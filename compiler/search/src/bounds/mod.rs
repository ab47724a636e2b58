//! Lower bounds: what no schedule can be shorter than.

pub(crate) mod first_device;
pub(crate) mod head_tail;
pub(crate) mod idle;
pub(crate) mod partial;
pub(crate) mod relaxation;
