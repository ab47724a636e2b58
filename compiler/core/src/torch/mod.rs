//! Schedules in the form of PyTorch's pipelining, as it is written: [`export`]. Reading is [`pipe_syntax::torch`].

pub(crate) mod cells;
pub mod export;
mod refusals;
pub mod titan;
