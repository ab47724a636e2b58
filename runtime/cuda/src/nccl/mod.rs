//! NCCL: what carries bytes between the GPUs of different processes.
//!
//! | file | what |
//! |---|---|
//! | `lines` | which communicators a program needs on so many ranks, in one order of all |
//! | `library` | the library and its calls |
//! | `links` | those of one rank, opened and tried before the first step |
//!
//! Nothing but sends and receives is asked of the library, several of one moment as a group. Sums
//! are made by our own kernels, in the order of the group, so that their bits are those of one
//! process.
//!
//! Why nothing gets stuck. The command lists of all ranks are written from one order of all turns, in which
//! a transfer, or a collective, is one turn. A rank asks for its ends in that order, so even a GPU
//! that carried out one thing after the other, of all streams and communicators, would meet its
//! partners: of all ends that are under way, those of the earliest turn have nobody before them. A
//! communicator for each line (sender, receiver, class; or group) keeps one line from waiting for
//! another where the GPU can do better. The library's kernels wait on the GPU, each of their blocks
//! on a multiprocessor of its own; there are as many at once as lines whose ends have been asked
//! for, and so their blocks are limited: what is left of the GPU does all other work, which ends by
//! itself.

mod library;
mod lines;
mod links;

pub(crate) use library::Move;
pub(super) use library::version;
pub(crate) use lines::Line;
pub(crate) use links::Links;
