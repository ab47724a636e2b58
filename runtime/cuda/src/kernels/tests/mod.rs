//! Every kernel on the emulator (`tests/cuda/emulator`), or on a GPU, against plain arithmetic and
//! against the CPU device, and all of them through NVRTC.

mod accuracy;
mod arena;
mod attention;
mod barriers;
mod card;
mod cases;
mod emulated;
mod errors;
mod families;
mod module;
mod nvrtc;
mod products;
mod sizes;
mod sums;
mod texts;
mod updates;
