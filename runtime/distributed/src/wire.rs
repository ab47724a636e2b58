//! Wires: what carries bytes from one process to another. MPI is one, the store of a launcher another.

use crate::lost::{How, Lost};
use crate::memory::Region;
use crate::rank::Rank;
use std::time::Duration;

/// Tells apart messages between the same two ranks. Those with the same tag arrive in the order in
/// which they were sent.
pub type Tag = i32;

/// Why a wire carries nothing any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cut {
    /// It has failed, as is said.
    Failed(String),
    /// A rank that all the others need for it has ended, or is silent.
    Keeper(Rank, How),
}

/// One rank's end of the connections to all others. Only the progress thread uses it.
///
/// Until a request has ended, a region that is sent must not change, and one that is received into not be touched.
pub trait Wire {
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

    /// Moves what does not move by itself; called before requests are tested. Whether anything moved. An error says why
    /// it carries nothing any more.
    fn turn(&mut self) -> Result<bool, Cut> {
        Ok(false)
    }

    /// Where ranks show signs of life, if not by messages to each other.
    fn signs(&mut self) -> Option<&mut dyn Signs> {
        None
    }

    /// Waits for the other ranks to end before this one, if they need it for that, but not long. These are lost.
    fn linger(&self, _lost: &[Lost]) {}

    /// Takes leave of all other ranks, when no request is under way.
    fn close(self);

    /// Takes no leave: others are lost, or cannot go on. Its process ends soon.
    fn leave(self);
}

/// Signs of life: each rank shows one, and sees those of others. Who is lost is announced there,
/// because not all ranks look after all.
pub trait Signs {
    /// Whose signs are seen; the first rank sees those of all.
    fn seen(&self) -> Vec<Rank>;

    /// The time from one to the next.
    fn interval(&self) -> Duration;

    /// Shows one, instead of the one before; never waits.
    fn show(&mut self, sign: &[u8]);

    /// Asks for those of others; never waits.
    fn look(&mut self);

    /// How many times that was done, and how many of those have been answered.
    fn looks(&self) -> (u64, u64);

    /// Those that came and were not seen before.
    fn take(&mut self) -> Vec<(Rank, Vec<u8>)>;

    /// Announces to all who is lost; never waits.
    fn announce(&mut self, lost: &[u8]);

    /// What was announced last, by any rank; empty at first.
    fn announced(&self) -> &[u8];

    /// Whether those that were asked for should have come already, so that silence says nothing about ranks.
    fn is_late(&self) -> bool;
}
