//! The mailbox: where the threads of a process leave messages for its progress thread, and find those of others.

use super::exchange::Exchange;
use crate::collective::Part;
use crate::fault::RunError;
use crate::job::control_messages::Subject;
use crate::profile::Profile;
use crate::rank::{Division, Rank};
use crate::tokens::{End, Posted, Tokens, locked};
use crate::wire::Tag;
use pipe_ir::ids::GroupId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// What the progress thread is to do.
pub(crate) enum Post {
    /// One end of a transfer, of which the other is on another rank.
    Transfer { end: End, peer: Rank, tag: Tag, posted: Posted },
    /// A member's part of a collective with others on other ranks.
    Join(GroupId, Part),
    /// From now on transfers and collectives are those of a program.
    Open(Opened),
    /// What the exchanges took so far is asked for.
    Profile(mpsc::Sender<Profile>),
    /// A message to a rank.
    ControlMessage(Rank, Subject, Vec<u8>),
    /// A message to all others.
    Broadcast(Subject, Vec<u8>),
    /// No more posts come; when the others have said the same, the job ends.
    Leave,
    /// This rank cannot go on, and ends without the others as soon as its messages are out.
    Part,
    /// This rank ends at once.
    Vanish,
}

/// What belongs to one program.
pub(crate) struct Opened {
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) division: Division,
    pub(crate) exchanges: Vec<Option<Exchange>>,
}

/// Between the progress thread and all other threads of a process.
pub struct Mailbox {
    /// Which rank this is.
    pub rank: Rank,
    /// How many there are.
    pub n_ranks: usize,
    posts: Mutex<VecDeque<Post>>,
    progress_thread: OnceLock<Thread>,
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    /// Whether the system asked this process to end.
    is_hurried: AtomicBool,
    /// Where the clock of this rank begins, and what is added to make it that of the first one, in nanoseconds.
    epoch: Instant,
    offset: AtomicI64,
}

#[derive(Default)]
struct Inbox {
    /// By rank.
    words: Vec<VecDeque<Vec<u8>>>,
    /// The rank that cannot go on, and why.
    failed: Option<(Rank, String)>,
    /// Whether the user was told why the job ends.
    is_told: bool,
}

/// Posts that have room without another allocation.
const ROOM: usize = 1024;

impl Mailbox {
    pub(crate) fn new(rank: Rank, n_ranks: usize) -> Self {
        let words = (0..n_ranks).map(|_| VecDeque::new()).collect();
        Self {
            rank,
            n_ranks,
            posts: Mutex::new(VecDeque::with_capacity(ROOM)),
            progress_thread: OnceLock::new(),
            inbox: Mutex::new(Inbox { words, ..Inbox::default() }),
            arrived: Condvar::new(),
            is_hurried: AtomicBool::new(false),
            epoch: Instant::now(),
            offset: AtomicI64::new(0),
        }
    }

    /// Says which thread takes posts.
    pub(crate) fn register(&self) {
        // A second registration names the same thread.
        let _ = self.progress_thread.set(std::thread::current());
    }

    /// Leaves something to do.
    pub(crate) fn post(&self, post: Post) {
        locked(&self.posts).push_back(post);
        if let Some(progress_thread) = self.progress_thread.get() {
            progress_thread.unpark();
        }
    }

    /// The next thing to do.
    pub(crate) fn take(&self) -> Option<Post> {
        locked(&self.posts).pop_front()
    }

    /// A word of another rank came.
    pub(crate) fn put(&self, from: Rank, text: Vec<u8>) {
        locked(&self.inbox).words[from.index()].push_back(text);
        self.arrived.notify_all();
    }

    /// Somebody cannot go on; the first to say so is remembered. Whether that was this one.
    pub(crate) fn fail(&self, rank: Rank, message: String) -> bool {
        let mut inbox = locked(&self.inbox);
        let is_first = inbox.failed.is_none();
        inbox.failed.get_or_insert((rank, message));
        drop(inbox);
        self.arrived.notify_all();
        is_first
    }

    /// Who cannot go on, and why.
    pub fn failure(&self) -> Option<(Rank, String)> {
        locked(&self.inbox).failed.clone()
    }

    /// The user was told why the job ends.
    pub(crate) fn told(&self) {
        locked(&self.inbox).is_told = true;
        self.arrived.notify_all();
    }

    /// Whether that was so.
    pub(crate) fn is_told(&self) -> bool {
        locked(&self.inbox).is_told
    }

    /// The system asked this process to end.
    pub(crate) fn hurry(&self) {
        self.is_hurried.store(true, Ordering::Relaxed);
    }

    /// Whether it did.
    pub(crate) fn is_hurried(&self) -> bool {
        self.is_hurried.load(Ordering::Relaxed)
    }

    /// A moment by the clock of the first rank, as far as it is known, in nanoseconds.
    pub fn clock(&self, moment: Instant) -> i64 {
        let own = i64::try_from(moment.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(i64::MAX / 2);
        own + self.offset.load(Ordering::Relaxed)
    }

    /// What is to be added to the clock of this rank.
    pub(crate) fn set_clock(&self, offset: i64) {
        self.offset.store(offset, Ordering::Relaxed);
    }

    /// Says a word to another rank.
    pub(crate) fn say(&self, to: Rank, word: Vec<u8>) {
        self.post(Post::ControlMessage(to, Subject::Word, word));
    }

    /// Waits for the next word of another rank. Fails if somebody cannot go on.
    pub(crate) fn listen(&self, from: Rank) -> Result<Vec<u8>, RunError> {
        let mut inbox = locked(&self.inbox);
        loop {
            if let Some(text) = inbox.words[from.index()].pop_front() {
                return Ok(text);
            }
            if let Some((rank, message)) = inbox.failed.clone() {
                return Err(RunError::Remote { rank, message });
            }
            inbox = self.arrived.wait(inbox).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hands a word to the first rank, which gets all of them in the order of the ranks.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, RunError> {
        if self.rank != Rank::FIRST {
            self.say(Rank::FIRST, own);
            return match self.failure() {
                Some((rank, message)) => Err(RunError::Remote { rank, message }),
                None => Ok(Vec::new()),
            };
        }
        let others = (1..self.n_ranks).map(|rank| self.listen(Rank::from_index(rank)));
        std::iter::once(Ok(own)).chain(others).collect()
    }

    /// The lists of all ranks as one, on the first rank; nothing on the others.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn collect<T: Serialize + DeserializeOwned>(&self, own: &[T]) -> Result<Vec<T>, RunError> {
        let words = self.gather(serde_json::to_vec(own).unwrap_or_default())?;
        let mut all = Vec::new();
        for (rank, word) in words.iter().enumerate() {
            let message = |error: serde_json::Error| error.to_string();
            let list: Result<Vec<T>, String> = serde_json::from_slice(word).map_err(message);
            all.extend(list.map_err(|message| RunError::Remote { rank: Rank::from_index(rank), message })?);
        }
        Ok(all)
    }

    /// Takes a word from the first rank to all.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn spread(&self, word: Vec<u8>) -> Result<Vec<u8>, RunError> {
        if self.rank != Rank::FIRST {
            return self.listen(Rank::FIRST);
        }
        self.post(Post::Broadcast(Subject::Word, word.clone()));
        Ok(word)
    }

    /// This rank cannot go on.
    pub(crate) fn break_off(&self, message: &str) {
        if self.fail(self.rank, message.to_owned()) {
            self.post(Post::Broadcast(Subject::Fault, message.as_bytes().to_vec()));
        }
    }

    /// Waits until the user was told why the job ends, but no longer than this.
    pub(crate) fn wait_until_told(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let mut inbox = locked(&self.inbox);
        while !inbox.is_told {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            inbox = self.arrived.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
