//! Jobs: processes that run one program together, each of them the devices of its own rank.
//!
//! One thread of each process, the progress thread, talks to the others, through whatever carries bytes
//! between them ([`Wire`]). Transfers between devices of one process stay what they are: copies
//! from arena to arena.

pub(crate) mod control_messages;
pub(crate) mod exchange;
mod failure_detector;
pub(crate) mod mailbox;
mod progress_thread;
mod rank_state;
mod report;

use crate::fault::RunError;
use crate::lost::Lost;
use crate::rank::Rank;
use crate::wire::Wire;
use control_messages::Subject;
use mailbox::{Mailbox, Post};
use progress_thread::ProgressThread;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a rank waits until the user was told why the job cannot go on.
const PATIENCE: Duration = Duration::from_secs(5);

/// Is told which ranks are lost.
pub type Teller = dyn Fn(&[Lost]) + Send + Sync;

/// What a job does when one of its ranks is lost. All are called on the thread that talks to the others.
#[derive(Clone)]
pub struct Settings {
    /// How long a rank may be silent.
    pub stall: Duration,
    /// Tells the user which ranks are lost; called on one rank only, as far as ranks can know.
    pub lost: Arc<Teller>,
    /// Tells the user that nothing connects the ranks any more, and why; called on every rank.
    pub cut: Arc<dyn Fn(&str) + Send + Sync>,
    /// Tells the user that this process was suspended for so long that the others have ended without
    /// it; called on that rank only.
    pub away: Arc<dyn Fn(Duration) + Send + Sync>,
    /// Ends the process, on every rank: nothing can be waited for any more.
    pub end: Arc<dyn Fn() + Send + Sync>,
}

/// Why a process has not joined the others.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unconnected {
    /// The library says no.
    #[error("{0}")]
    Failed(String),
    /// What connects them is not reached from here; from elsewhere it may be.
    #[error("{0}")]
    Unreachable(String),
    /// Not all of them came in time.
    #[error("the processes have not found each other within {:.0}s: one of them has ended or was stopped, or cannot be reached", .0.as_secs_f64())]
    Late(Duration),
}

/// One rank's part of a job. It ends when this is dropped: then all ranks wait for each other.
pub struct Job {
    mailbox: Arc<Mailbox>,
    progress_thread: Option<JoinHandle<()>>,
    /// Says when the progress thread leaves the library, which waits for the other ranks.
    closing: mpsc::Receiver<()>,
    stall: Duration,
}

impl Job {
    /// Starts the progress thread. It opens the connection itself: some libraries are for one thread only. `connect`
    /// gives the wire, the rank of this process, and how many ranks there are.
    ///
    /// # Errors
    /// If `connect` fails, or takes longer than `settings.stall`.
    pub fn start<W: Wire>(
        settings: Settings,
        connect: impl FnOnce() -> Result<(W, Rank, u32), String> + Send + 'static,
    ) -> Result<Self, Unconnected> {
        let stall = settings.stall;
        let ((reply, answer), (close, closing)) = (mpsc::channel(), mpsc::channel());
        let work = move || {
            let connected = connect().and_then(|(wire, rank, n_ranks)| {
                let mailbox = Arc::new(Mailbox::new(rank, n_ranks as usize));
                mailbox.register();
                let progress_thread =
                    ProgressThread::new(wire, Arc::clone(&mailbox), settings).map_err(|error| error.to_string())?;
                Ok((mailbox, progress_thread))
            });
            match connected {
                Ok((mailbox, progress_thread)) => {
                    // The job waits for the answer.
                    drop(reply.send(Ok(mailbox)));
                    progress_thread.work(&close);
                }
                Err(message) => drop(reply.send(Err(message))),
            }
        };
        let progress_thread = thread::Builder::new().name("progress".to_owned()).spawn(work);
        let broken = |message: &str| Unconnected::Failed(message.to_owned());
        let progress_thread =
            progress_thread.map_err(|error| broken(&format!("no thread to talk to other ranks: {error}")))?;
        match answer.recv_timeout(stall) {
            Ok(mailbox) => {
                let mailbox = mailbox.map_err(Unconnected::Failed)?;
                Ok(Self { mailbox, progress_thread: Some(progress_thread), closing, stall })
            }
            Err(mpsc::RecvTimeoutError::Timeout) => Err(Unconnected::Late(stall)),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(broken("the thread that talks to other ranks broke")),
        }
    }

    /// Which rank this is.
    pub fn rank(&self) -> Rank {
        self.mailbox.rank
    }

    /// Whether this rank speaks for all.
    pub fn is_first(&self) -> bool {
        self.mailbox.rank == Rank::FIRST
    }

    /// How many there are.
    pub fn n_ranks(&self) -> usize {
        self.mailbox.n_ranks
    }

    /// What connects it to the others.
    pub fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Hands a word to the first rank, which gets those of all ranks in their order, its own first;
    /// the others get nothing.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn gather(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, RunError> {
        self.mailbox.gather(own)
    }

    /// Takes a word from the first rank to all; what the others give is not looked at.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn spread(&self, word: Vec<u8>) -> Result<Vec<u8>, RunError> {
        self.mailbox.spread(word)
    }

    /// Tells all other ranks that this one cannot go on: what they wait for ends.
    pub fn fail(&self, message: &str) {
        self.mailbox.break_off(message);
    }

    /// Whether any rank says so; to all of them.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn any(&self, own: bool) -> Result<bool, RunError> {
        let all = self.gather(vec![u8::from(own)])?;
        let any = all.iter().any(|word| *word == [1]);
        Ok(self.spread(vec![u8::from(any)])? == [1])
    }

    /// The first rank's number, on all of them.
    ///
    /// # Errors
    /// If a rank cannot go on.
    pub fn number(&self, own: u64) -> Result<u64, RunError> {
        let word = self.spread(own.to_le_bytes().to_vec())?;
        Ok(word.try_into().map_or(own, u64::from_le_bytes))
    }

    /// Whether some rank cannot go on.
    pub fn has_failed(&self) -> bool {
        self.mailbox.failure().is_some()
    }

    /// Ends this rank's part where the job cannot go on: lets the others know that the user was
    /// told why, or waits for that, but not forever.
    pub fn part(mut self, has_told: bool) {
        if has_told {
            self.mailbox.post(Post::Broadcast(Subject::Told, Vec::new()));
        } else {
            self.mailbox.wait_until_told(PATIENCE);
        }
        self.mailbox.post(Post::Part);
        self.join();
    }

    /// Ends without a word, as a process does that is killed: to try what the others do then.
    pub fn vanish(mut self) {
        self.mailbox.post(Post::Vanish);
        self.join();
    }

    fn join(&mut self) {
        let Some(progress_thread) = self.progress_thread.take() else { return };
        if self.closing.recv().is_ok() {
            // Nothing is left to do, whoever is lost while the library ends.
            let began = Instant::now();
            while !progress_thread.is_finished() && began.elapsed() < self.stall {
                thread::sleep(Duration::from_millis(1));
            }
        } else {
            // If it panicked, there is nobody left to take leave of.
            let _ = progress_thread.join();
        }
    }

    /// The system asked this process to end, as launchers do when another process did: who is silent now is lost soon.
    pub fn hurry(&self) -> impl Fn() + Send + Sync + 'static {
        let mailbox = Arc::clone(&self.mailbox);
        move || mailbox.hurry()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.mailbox.post(Post::Leave);
        self.join();
    }
}
