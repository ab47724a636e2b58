//! Ranks that are threads of one process: a job without any library, to try and test what jobs do.

use crate::job::{Job, Settings};
use crate::memory::Region;
use crate::rank::Rank;
use crate::tokens::locked;
use crate::wire::{Tag, Wire};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

type Sent = BTreeMap<(Rank, Rank, Tag), VecDeque<Box<[u8]>>>;

/// One rank's end.
struct End {
    rank: Rank,
    /// Messages of all ranks that were sent and not received.
    sent: Arc<Mutex<Sent>>,
    /// By sender and tag: the receives that wait, in their order.
    waiting: BTreeMap<(Rank, Tag), VecDeque<u64>>,
    receives: u64,
}

/// What is still to be received; sends have ended at once.
struct Receive {
    from: Rank,
    tag: Tag,
    number: u64,
    into: Region,
}

impl Wire for End {
    type Request = Option<Receive>;

    fn send(&mut self, to: Rank, tag: Tag, from: Region) -> Self::Request {
        let queue = (self.rank, to, tag);
        locked(&self.sent).entry(queue).or_default().push_back(from.bytes().into());
        None
    }

    fn receive(&mut self, from: Rank, tag: Tag, into: Region) -> Self::Request {
        self.receives += 1;
        self.waiting.entry((from, tag)).or_default().push_back(self.receives);
        Some(Receive { from, tag, number: self.receives, into })
    }

    fn test(&mut self, request: Self::Request) -> Option<Self::Request> {
        let receive = request?;
        let queue = self.waiting.get_mut(&(receive.from, receive.tag))?;
        let is_next = queue.front() == Some(&receive.number);
        let next = || locked(&self.sent).get_mut(&(receive.from, self.rank, receive.tag))?.pop_front();
        let Some(message) = is_next.then(next).flatten() else { return Some(Some(receive)) };
        queue.pop_front();
        receive.into.bytes_mut().copy_from_slice(&message);
        None
    }

    fn forget(&mut self, _: Self::Request) {}

    fn close(self) {}

    fn leave(self) {}
}

/// A job of so many ranks, one handle for each.
///
/// # Panics
/// If the system has no thread for each.
pub fn job_of_threads(n_ranks: u32, settings: impl Fn(Rank) -> Settings) -> Vec<Job> {
    let sent = Arc::default();
    let join = |rank: Rank| {
        let end = End { rank, sent: Arc::clone(&sent), waiting: BTreeMap::new(), receives: 0 };
        Job::start(settings(rank), move || Ok((end, rank, n_ranks))).expect("threads need no library")
    };
    (0..n_ranks).map(Rank).map(join).collect()
}
