//! Ranks: this process as one of several that run a target together. The first one speaks for all.

pub(crate) mod agreement;
mod launcher;
pub(crate) mod lost;

use crate::Outcome;
use crate::input::parse_seconds;
use crate::output::{Failure, complain, print};
use agreement::{Word, difference};
use launcher::Launched;
use lost::Origins;
use pipe_ir::digest::Digest;
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
    origins: Arc<OnceLock<Origins>>,
}

/// Joins the processes that were started with this one, if there are any. What is lost is told on standard error, and to programs as an object.
///
/// # Errors
/// If they cannot be joined; only the first one of them says why.
pub(crate) fn enter(arguments: &RankArguments, schema: Option<&'static str>) -> Result<Entry, Failure> {
    let Some(launched) = Launched::read(|name| std::env::var(name).ok()) else { return Ok(Entry::Alone) };
    let origins = Arc::new(OnceLock::new());
    let known = Arc::clone(&origins);
    let tell = move |lost: &[Lost]| {
        let message = lost::message(lost, known.get());
        complain(&message);
        if let Some(schema) = schema {
            // The process ends whether or not somebody reads it.
            drop(print(&format!("{:#}\n", serde_json::json!({"schema": schema, "ok": false, "error": message}))));
        }
    };
    let settings =
        Settings { stall: arguments.stall_timeout, lost: Arc::new(tell), end: Arc::new(|| std::process::exit(1)) };
    match connect(&launched, settings) {
        Ok(job) => Ok(Entry::Together(Team { job, origins })),
        Err(Unconnected::Late(stall)) => {
            // The first rank may be the one that is missing: then the next one says it. The launcher ends those that have not said it yet.
            std::thread::sleep(TURN * launched.rank.min(MOST_TURNS));
            Err(Failure::Usage(Unconnected::Late(stall).to_string()))
        }
        Err(Unconnected::Failed(message)) if launched.rank == 0 => Err(Failure::Usage(message)),
        Err(Unconnected::Failed(_)) => Ok(Entry::Silent),
    }
}

/// Between two ranks that could say the same.
const TURN: Duration = Duration::from_secs(2);
const MOST_TURNS: u32 = 4;

#[cfg(feature = "mpi")]
fn connect(launched: &Launched, settings: Settings) -> Result<Job, Unconnected> {
    let job = pipe_runtime::job::mpi::join(settings)?;
    let is_whole = job.n_ranks() == launched.n_ranks as usize;
    if is_whole { Ok(job) } else { Err(Unconnected::Failed(launched.miscounted(job.n_ranks()))) }
}

#[cfg(not(feature = "mpi"))]
fn connect(launched: &Launched, _: Settings) -> Result<Job, Unconnected> {
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
