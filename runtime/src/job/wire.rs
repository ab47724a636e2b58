//! Wires: what carries bytes from one process to another. MPI is one; a library for GPUs can be the next.

use super::rank::Rank;
use crate::memory::Region;

/// Tells apart messages between the same two ranks. Those with the same tag arrive in the order in which they were sent.
pub(crate) type Tag = i32;

/// One rank's end of the connections to all others. Only the messenger's thread uses it.
///
/// Until a request has ended, a region that is sent must not change, and one that is received into not be touched.
pub(crate) trait Wire {
    /// A message under way.
    type Request;

    /// Starts to send bytes; never waits.
    fn send(&mut self, to: Rank, tag: Tag, from: Region) -> Self::Request;

    /// Starts to receive as many bytes as the region has; never waits.
    fn receive(&mut self, from: Rank, tag: Tag, into: Region) -> Self::Request;

    /// Gives a request back unless it has ended. Lets all others go on, too.
    fn test(&mut self, request: Self::Request) -> Option<Self::Request>;

    /// Forgets a request whose other end will never come. Its process ends soon.
    fn forget(&mut self, request: Self::Request);

    /// Takes leave of all other ranks, when no request is under way.
    fn close(self);

    /// Takes no leave: others are lost, or cannot go on. Its process ends soon.
    fn leave(self);
}
