//! Ranks: this process as one of several that run a target together. The first one speaks for all.

pub(crate) mod agreement;
mod launcher;
pub(crate) mod lost;
mod slurm;

use crate::input::parse_seconds;
use crate::output::{Failure, complain, print, warn};
use crate::{Outcome, run};
use agreement::{Word, difference};
use launcher::{Launched, Way};
use lost::Origins;
use pipe_ir::digest::Digest;
use pipe_runtime::Backend;
use pipe_runtime::checkpoint::CheckpointError;
use pipe_runtime::job::store::{self, Keeper};
use pipe_runtime::job::{Job, Lost, Settings, Unconnected};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The options of commands that several processes do together.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct RankArguments {
    /// Of several processes: how long one may be silent before all of them end
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_stall)]
    stall_timeout: Duration,
}

/// A time after which a process counts as lost.
fn parse_stall(text: &str) -> Result<Duration, String> {
    let seconds = parse_seconds(text).ok().filter(|seconds| *seconds >= 1.0);
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected a number of seconds, 1 or more".to_owned())
}

/// How a command goes on.
pub(crate) enum Entry {
    /// This process is alone.
    Alone,
    /// It is one of several.
    Together(Team),
    /// It is one of several that cannot begin, and another one says why.
    Silent,
}

/// This process among others.
pub(crate) struct Team {
    job: Job,
    /// Who keeps the store that connects it, if one does, which is too slow for tensors.
    store: Option<Keeper>,
    starts_again: bool,
    origins: Arc<OnceLock<Origins>>,
}

/// Joins the processes that were started with this one, if there are any. What is lost is told on
/// standard error, and to programs as an object.
///
/// # Errors
/// If they cannot be joined; only the first one of them says why.
pub(crate) fn enter(arguments: &RankArguments, schema: Option<&'static str>) -> Result<Entry, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(launched) = Launched::read(variable) else { return Ok(Entry::Alone) };
    let origins = Arc::new(OnceLock::new());
    let known = Arc::clone(&origins);
    let rank = launched.rank;
    let tell = move |message: &str| {
        complain(message);
        if let Some(schema) = schema {
            // The process ends whether or not somebody reads it.
            drop(print(&format!("{:#}\n", serde_json::json!({"schema": schema, "ok": false, "error": message}))));
        }
    };
    // Every rank says that it is cut off, and one of them is read by programs.
    let cut = move |why: &str| if rank == 0 { tell(why) } else { complain(&format!("rank {rank}: {why}")) };
    let away = move |stood: Duration| {
        let seconds = stood.as_secs_f64();
        warn(&format!("rank {rank}: this process was suspended for {seconds:.1}s; the other ranks have exited"));
    };
    let settings = Settings {
        stall: arguments.stall_timeout,
        lost: Arc::new(move |lost: &[Lost]| tell(&lost::message(lost, known.get()))),
        cut: Arc::new(cut),
        away: Arc::new(away),
        end: Arc::new(|| std::process::exit(1)),
    };
    let way = launched.way(variable).map_err(Unconnected::Unreachable);
    let store = if let Ok(Way::Store(address, _)) = &way { Some(address.keeper) } else { None };
    let starts_again = launched.starts_again();
    match way.and_then(|way| connect(&launched, &way, settings)) {
        Ok(job) => Ok(Entry::Together(Team { job, store, starts_again, origins })),
        Err(error @ (Unconnected::Late(_) | Unconnected::Unreachable(_))) => {
            // The first rank may be the one that is missing: then the next one says it. The
            // launcher ends those that have not said it yet.
            std::thread::sleep(TURN * launched.rank.min(MOST_TURNS));
            Err(Failure::Usage(error.to_string()))
        }
        Err(Unconnected::Failed(message)) if launched.rank == 0 => Err(Failure::Usage(message)),
        Err(Unconnected::Failed(_)) => Ok(Entry::Silent),
    }
}

/// Between two ranks that could say the same.
const TURN: Duration = Duration::from_secs(2);
const MOST_TURNS: u32 = 4;

fn connect(launched: &Launched, way: &Way, settings: Settings) -> Result<Job, Unconnected> {
    match way {
        Way::Store(address, member) => store::join(address, member, settings),
        Way::Mpi => connect_by_mpi(launched, settings),
    }
}

#[cfg(feature = "mpi")]
fn connect_by_mpi(launched: &Launched, settings: Settings) -> Result<Job, Unconnected> {
    let job = pipe_runtime::job::mpi::join(settings)?;
    let is_whole = job.n_ranks() == launched.n_ranks as usize;
    if is_whole { Ok(job) } else { Err(Unconnected::Failed(launched.miscounted(job.n_ranks()))) }
}

#[cfg(not(feature = "mpi"))]
fn connect_by_mpi(launched: &Launched, _: Settings) -> Result<Job, Unconnected> {
    Err(Unconnected::Failed(launched.without_mpi()))
}

impl Team {
    /// What connects it.
    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// Whether this process speaks for all.
    pub(crate) fn speaks(&self) -> bool {
        self.job.is_first()
    }

    /// Warns where devices that compute have their bytes carried by what is slow.
    pub(crate) fn warn_of_store(&self, backend: Backend) {
        let Some(keeper) = self.store.filter(|_| self.speaks() && matches!(backend, Backend::Cpu)) else { return };
        let (whose, how) = match keeper {
            Keeper::Torchrun => ("torchrun's store", "under `mpirun`"),
            Keeper::FirstRank => ("a store of rank 0", "if pipec is built with it and started by `srun --mpi=pmix`"),
        };
        warn(&format!(
            "{whose} carries the bytes between the processes, which is slow: with `--backend cuda` NCCL does, and between processors MPI, {how}"
        ));
    }

    /// Whether its launcher starts it again, with the same arguments, when a rank is lost.
    pub(crate) fn starts_again(&self) -> bool {
        self.starts_again
    }

    /// The step at which a team begins that is started again whether or not it has saved anything.
    /// All ranks do it at once.
    ///
    /// # Errors
    /// If a rank has a checkpoint that cannot be resumed, or only some find one.
    pub(crate) fn resumed(&self, found: Result<u64, CheckpointError>) -> Result<u64, run::Failure> {
        let is_absent = matches!(found, Err(CheckpointError::Absent { .. }));
        if self.job.any(!is_absent)? {
            return Ok(found?);
        }
        if self.speaks() {
            warn("there is no checkpoint yet: the run begins at its first step");
        }
        Ok(0)
    }

    /// From now on it is known where instructions come from.
    pub(crate) fn know(&self, origins: Origins) {
        // A command runs one program.
        drop(self.origins.set(origins));
    }

    /// What this process found, if all found the same: digests of that by name.
    ///
    /// # Errors
    /// If it failed, or ranks differ: then the first one says which.
    pub(crate) fn agree<T>(
        &self,
        own: Result<Option<T>, Failure>,
        digests: impl Fn(&T) -> Vec<(&'static str, Digest)>,
    ) -> Result<Option<T>, Failure> {
        let word = match &own {
            Ok(Some(found)) => {
                Word::Ready(digests(found).into_iter().map(|(name, digest)| (name.to_owned(), digest)).collect())
            }
            Ok(None) => Word::Rejected,
            Err(failure) => Word::Failed(failure.to_string()),
        };
        let exchange = || {
            let words = self.job.gather(serde_json::to_vec(&word).unwrap_or_default())?;
            let words: Result<Vec<Word>, _> = words.iter().map(|word| serde_json::from_slice(word)).collect();
            let verdict = words.map_or_else(
                |_| Some("the ranks have different versions of pipec".to_owned()),
                |words| difference(&words),
            );
            self.job.spread(verdict.unwrap_or_default().into_bytes())
        };
        let verdict = exchange().map_err(|error: pipe_runtime::RunError| Failure::Usage(error.to_string()))?;
        if verdict.is_empty() { own } else { Err(Failure::Usage(String::from_utf8_lossy(&verdict).into_owned())) }
    }

    /// Takes leave of the others at the end of a command. Only the first rank says what went wrong.
    pub(crate) fn conclude(self, ended: Result<Outcome, Failure>) -> Result<Outcome, Failure> {
        let speaks = self.speaks();
        let ended = match ended {
            Err(failure) => {
                if speaks {
                    complain(&failure.to_string());
                }
                Outcome::Usage
            }
            Ok(outcome) => outcome,
        };
        if self.job.has_failed() {
            self.job.part(speaks);
        }
        Ok(ended)
    }
}
