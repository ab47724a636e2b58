//! Ranks: this process as one of several that run a target together.

pub(crate) mod agreement;
mod launcher;
pub(crate) mod lost;
pub(crate) mod session;
mod slurm;

use crate::Outcome;
use crate::input::{TargetArguments, parse_seconds};
use crate::output::findings::reject;
use crate::output::{Failure, complain, warn};
use crate::training::backend::BackendChoice;
use launcher::{Launched, Way};
use pipe_distributed::store;
use pipe_distributed::{Job, Lost, Settings, Unconnected};
use session::Session;
use std::sync::Arc;
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

/// Carries out a command together with the processes that were started with this one, if there are any. What is lost is
/// told on standard error, and to programs as an object. Fails if they cannot be joined, or the command fails; only the
/// first one of them says why.
pub(crate) fn enter(
    arguments: &RankArguments,
    target: &TargetArguments,
    backend: BackendChoice,
    schema: &'static str,
    execute: impl FnOnce(&Session<'_>) -> Result<Outcome, Failure>,
) -> Result<Outcome, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let origins = Arc::default();
    let mut session =
        Session { target, schema, backend, has_gpus: false, job: None, store: None, starts_again: false, origins };
    if let Some(launched) = Launched::read(variable) {
        let way = launched.way(variable).map_err(Unconnected::Unreachable);
        session.store = if let Ok(Way::Store(address, _)) = &way { Some(address.keeper) } else { None };
        session.starts_again = launched.starts_again();
        let settings = settings(arguments.stall_timeout, launched.rank, &session);
        match way.and_then(|way| connect(&launched, &way, settings)) {
            Ok(job) => session.job = Some(job),
            Err(error @ (Unconnected::Late(_) | Unconnected::Unreachable(_))) => {
                // The first rank may be the one that is missing: then the next one says it. The
                // launcher ends those that have not said it yet.
                std::thread::sleep(TURN * launched.rank.min(MOST_TURNS));
                return Err(Failure::Usage(error.to_string()));
            }
            Err(Unconnected::Failed(message)) if launched.rank == 0 => return Err(Failure::Usage(message)),
            // Another one says why.
            Err(Unconnected::Failed(_)) => return Ok(Outcome::Usage),
        }
    }
    let ended = backend.finds_gpus(session.job()).and_then(|has_gpus| {
        session.has_gpus = has_gpus;
        execute(&session)
    });
    session.conclude(ended)
}

/// What is done where a rank is lost, or this one is.
fn settings(stall: Duration, rank: u32, session: &Session<'_>) -> Settings {
    let (format, schema, origins) = (session.target.format(), session.schema, Arc::clone(&session.origins));
    // The process ends whether or not somebody reads it.
    let tell = move |message: &str| drop(reject(format, schema, message));
    // Every rank says that it is cut off, and one of them is read by programs.
    let cut = move |why: &str| if rank == 0 { tell(why) } else { complain(&format!("rank {rank}: {why}")) };
    let away = move |stood: Duration| {
        let seconds = stood.as_secs_f64();
        warn(&format!("rank {rank}: this process was suspended for {seconds:.1}s; the other ranks have exited"));
    };
    Settings {
        stall,
        lost: Arc::new(move |lost: &[Lost]| tell(&lost::message(lost, origins.get()))),
        cut: Arc::new(cut),
        away: Arc::new(away),
        end: Arc::new(|| {
            // The main thread may be anywhere, also inside of NCCL.
            pipe_cuda::leave(1);
            std::process::exit(1)
        }),
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
    let job = pipe_mpi::join(settings)?;
    let is_whole = job.n_ranks() == launched.n_ranks as usize;
    if is_whole { Ok(job) } else { Err(Unconnected::Failed(launched.miscounted(job.n_ranks()))) }
}

#[cfg(not(feature = "mpi"))]
fn connect_by_mpi(launched: &Launched, _: Settings) -> Result<Job, Unconnected> {
    Err(Unconnected::Failed(launched.without_mpi()))
}
