//! Homes: a folder of checkpoints while a run has it. It writes there, and removes what it wrote
//! itself, or found when it took the folder.

use super::folder::{self, SUFFIX, checkpoints, keep_newest, prepare, put};
use super::lease::{Lease, Terms};
use super::{CheckpointError, State, malformed, to_bytes};
use pipe_distributed::{Job, Rank};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder of checkpoints that a run has until it is dropped: all ranks of a job together, of
/// which the first one looks after it.
pub struct Home {
    folder: PathBuf,
    /// In the names of all files of this run.
    run: String,
    /// On the first rank.
    lease: Option<Lease>,
    /// Names of the checkpoints that were here when the run took the folder, and that it goes on from.
    inherited: BTreeSet<OsString>,
    saves: AtomicU64,
}

impl Home {
    /// Takes a folder, which is made where there is none. What earlier runs left behind that is no
    /// checkpoint is removed. All ranks of a job do it at once.
    ///
    /// # Errors
    /// If another run has it that still runs, or it cannot be read and written by every rank.
    pub fn take(folder: &Path, job: Option<&Job>, terms: &Terms<'_>) -> Result<Self, CheckpointError> {
        let is_first = job.is_none_or(Job::is_first);
        let own = prepare(folder).and_then(|()| is_first.then(|| Lease::take(folder, terms)).transpose());
        let (run, lease) = match job {
            None => own.map(|lease| (lease.as_ref().map_or("", Lease::run).to_owned(), lease))?,
            Some(job) => together(job, own)?,
        };
        let mut inherited = BTreeSet::new();
        if is_first {
            folder::remove_leftovers(folder);
            inherited.extend(checkpoints(folder)?.iter().filter_map(|path| path.file_name()).map(ToOwned::to_owned));
        }
        Ok(Self { folder: folder.to_owned(), run, lease, inherited, saves: AtomicU64::new(0) })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it is known that another run has taken the folder, so that nothing can be saved any more.
    ///
    /// # Errors
    /// If it is.
    pub fn is_own(&self) -> Result<(), CheckpointError> {
        match self.lease.as_ref().filter(|lease| lease.is_lost()) {
            Some(lease) => lease.check(),
            None => Ok(()),
        }
    }

    /// Looks whether the folder is still that of this run, on the first rank.
    pub(super) fn check(&self) -> Result<(), CheckpointError> {
        self.lease.as_ref().map_or(Ok(()), Lease::check)
    }

    /// Moves the checkpoints that the run has found into a new folder in it: a run that begins anew
    /// does not go on from them. Its name, if there are any. Each is complete in one of both
    /// whatever happens. The first rank does it.
    ///
    /// # Errors
    /// If the folder cannot be read or written, or is another run's.
    pub fn set_aside(&mut self) -> Result<Option<PathBuf>, CheckpointError> {
        self.check()?;
        let aside = folder::set_aside(&self.folder)?;
        self.inherited.clear();
        Ok(aside)
    }

    /// Writes `step-<n>.<run>.safetensors` and removes all but the two that the run has written last. Returns the path.
    ///
    /// # Errors
    /// If the folder or the file cannot be written, or another run has taken the folder; older
    /// checkpoints are then untouched.
    pub fn save(&self, state: &State) -> Result<PathBuf, CheckpointError> {
        let path = self.file(state.step, SUFFIX);
        self.put(&path, &to_bytes(state).map_err(malformed(&path))?)?;
        self.prune().or_else(|error| self.check().and(Err(error)))?;
        Ok(path)
    }

    /// The path of a checkpoint of this run.
    pub(super) fn file(&self, step: u64, suffix: &str) -> PathBuf {
        self.folder.join(format!("step-{step:08}.{}{suffix}", self.run))
    }

    /// What no other save has in its names.
    pub(super) fn next_save(&self) -> String {
        format!("{}-{}", self.run, self.saves.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes a file that makes a checkpoint complete. Where the folder was lost meanwhile, the file does not stay.
    pub(super) fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.check()?;
        let written = put(path, bytes);
        // A folder that was lost meanwhile is also why a file could not be written.
        self.check().inspect_err(|_| drop(std::fs::remove_file(path)))?;
        written
    }

    /// Removes the checkpoints of this run, and of the one that it goes on from, but the two newest.
    pub(super) fn prune(&self) -> Result<(), CheckpointError> {
        let (own, saves) = (format!(".{}.", self.run), format!(".{}-", self.run));
        let is_own = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            self.inherited.contains(name) || name.to_string_lossy().contains(&own)
        };
        keep_newest(&self.folder, &is_own, &|shard| shard.contains(&saves))
    }
}

/// The run and the lease of the first rank, if no rank found anything wrong.
fn together(
    job: &Job,
    own: Result<Option<Lease>, CheckpointError>,
) -> Result<(String, Option<Lease>), CheckpointError> {
    let word: Result<String, String> = match &own {
        Ok(lease) => Ok(lease.as_ref().map_or("", Lease::run).to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let words = job.gather(serde_json::to_vec(&word).unwrap_or_default())?;
    let words = words.iter().map(|word| serde_json::from_slice::<Result<String, String>>(word));
    let failed = words.enumerate().find_map(|(rank, word)| match word {
        Ok(Ok(_)) => None,
        Ok(Err(message)) => Some((rank, message)),
        Err(error) => Some((rank, error.to_string())),
    });
    let verdict: Result<String, (usize, String)> = failed.map_or(word.map_err(|message| (0, message)), Err);
    let verdict = job.spread(serde_json::to_vec(&verdict).unwrap_or_default())?;
    match (serde_json::from_slice(&verdict), own) {
        (Ok(Ok(run)), Ok(lease)) => Ok((run, lease)),
        (Ok(Err((rank, _))), Err(error)) if rank == job.rank().index() => Err(error),
        (Ok(Err((rank, message))), _) => Err(CheckpointError::Rank { rank: Rank::from_index(rank), message }),
        (Err(error), _) => Err(CheckpointError::Rank { rank: Rank::FIRST, message: error.to_string() }),
        (Ok(Ok(_)), Err(error)) => Err(error),
    }
}
