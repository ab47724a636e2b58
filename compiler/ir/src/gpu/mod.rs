//! What GPUs need to run a program in several processes, as far as the program says it: the compiler counts it, and the
//! runtime does it.
//!
//! | file | content |
//! |---|---|
//! | `lines` | what processes exchange bytes for, and how much of a GPU an exchange may hold |
//! | `room` | the memory of a GPU that is not an arena's |

pub mod lines;
pub mod room;
