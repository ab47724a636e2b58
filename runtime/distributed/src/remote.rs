//! Remote ends: transfers and collectives of a program that have an end, or members, on another rank.

use crate::collective::Part;
use crate::fault::RunError;
use crate::job::Job;
use crate::job::exchange::Exchange;
use crate::job::mailbox::{Mailbox, Opened, Post};
use crate::profile::Profile;
use crate::rank::{Division, Rank};
use crate::report::StepReport;
use crate::tokens::{End, Posted, QueueName, Tokens};
use crate::wire::Tag;
use pipe_ir::ids::{DeviceId, GroupId};
use pipe_ir::program::Program;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// The place of one rank in a run over several.
#[derive(Clone)]
pub struct RankView {
    /// What connects it to the others.
    pub mailbox: Arc<Mailbox>,
    /// Which devices each rank has.
    pub division: Division,
}

impl RankView {
    /// That of a rank, where a program's devices are divided among all.
    ///
    /// # Errors
    /// If there are more ranks than devices.
    pub fn new(program: &Program, job: &Job) -> Result<Self, RunError> {
        let (devices, ranks) = (program.devices.len(), job.n_ranks());
        let division = Division::new(devices, ranks).ok_or(RunError::TooManyRanks { devices, ranks })?;
        Ok(Self { mailbox: Arc::clone(job.mailbox()), division })
    }

    /// From now on other ranks hear where the devices of this one are.
    pub fn watch(&self, tokens: &Arc<Tokens>) {
        self.open(tokens, Vec::new());
    }

    fn open(&self, tokens: &Arc<Tokens>, exchanges: Vec<Option<Exchange>>) {
        let (tokens, division) = (Arc::clone(tokens), self.division);
        self.mailbox.post(Post::Open(Opened { tokens, division, exchanges }));
    }

    /// The report of a step that began then: on the first rank, of all devices.
    ///
    /// # Errors
    /// If another rank cannot go on.
    pub fn report(&self, own: StepReport, began: Instant) -> Result<StepReport, RunError> {
        self.mailbox.merge(own, self.division, began)
    }

    /// Tells the other ranks why this one cannot go on, unless it is because one of them cannot:
    /// then that is the error.
    pub fn break_off(&self, error: RunError) -> RunError {
        let first = match self.mailbox.failure() {
            Some(known) => known,
            None => {
                self.mailbox.break_off(&error.to_string());
                self.mailbox.failure().unwrap_or((self.mailbox.rank, error.to_string()))
            }
        };
        if first.0 == self.mailbox.rank { error } else { RunError::Remote { rank: first.0, message: first.1 } }
    }

    /// Whether a device is one of this rank.
    pub fn has(&self, device: DeviceId) -> bool {
        self.division.rank_of(device) == self.mailbox.rank
    }
}

/// What goes to other ranks.
pub struct Remote {
    rank_view: RankView,
    /// Of queues between two ranks. Every rank counts all queues of the program alike.
    tags: BTreeMap<QueueName, (Rank, Tag)>,
}

/// Below it, tags are those of control messages.
const FIRST_TAG: Tag = 16;

impl Remote {
    /// Opens the queues and exchanges of a program.
    ///
    /// # Errors
    /// If the machine lacks memory for them.
    pub fn new(program: &Program, rank_view: &RankView, tokens: &Arc<Tokens>) -> Result<Self, RunError> {
        let mut tags = BTreeMap::new();
        let mut after = FIRST_TAG;
        for queue in program.transfers().collect::<BTreeSet<_>>() {
            let peer = if rank_view.has(queue.0) { queue.1 } else { queue.0 };
            if rank_view.has(queue.0) != rank_view.has(queue.1) {
                tags.insert(queue, (rank_view.division.rank_of(peer), after));
            }
            after += 1;
        }
        let exchanges = Exchange::all(program, rank_view.division, rank_view.mailbox.rank, after)?;
        rank_view.open(tokens, exchanges);
        Ok(Self { rank_view: rank_view.clone(), tags })
    }

    /// Whether a transfer between two devices, one of which is here, goes to another rank.
    pub fn takes(&self, from: DeviceId, to: DeviceId) -> bool {
        !(self.rank_view.has(from) && self.rank_view.has(to))
    }

    /// Posts this rank's end of a transfer.
    pub fn post(&self, end: End, queue: QueueName, posted: Posted) {
        if let Some((peer, tag)) = self.tags.get(&queue) {
            self.rank_view.mailbox.post(Post::Transfer { end, peer: *peer, tag: *tag, posted });
        }
    }

    /// Joins the next collective of a group.
    pub fn join(&self, group: GroupId, part: Part) {
        self.rank_view.mailbox.post(Post::Join(group, part));
    }

    /// What its collectives took so far.
    pub fn profile(&self) -> Profile {
        let (reply, answer) = mpsc::channel();
        self.rank_view.mailbox.post(Post::Profile(reply));
        // None comes where the job has ended.
        answer.recv().unwrap_or_default()
    }
}
