//! What programs hold, to the byte: who holds how much when, the fullest moment of a device, and limits in bytes.

pub mod alive;
pub mod bytes;
pub mod live_buffers;
pub mod peak_breakdown;
