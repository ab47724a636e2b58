//! A session: what `run` and `profile` have at hand, on this process alone or as one of several ranks. The first one
//! speaks for all.

use super::agreement::{Word, difference};
use super::lost::{self, Origins};
use crate::Outcome;
use crate::input::{Format, TargetArguments};
use crate::output::findings::{reason, reject, show_findings};
use crate::output::usage::refuse;
use crate::output::{Failure, warn};
use crate::training;
use crate::training::backend::BackendChoice;
use pipe_compiler::Compilation;
use pipe_compiler::analyze::Analysis;
use pipe_distributed::store::Keeper;
use pipe_distributed::{Job, Position};
use pipe_ir::digest::Digest;
use pipe_ir::program::Program;
use pipe_ir::verify::Verified;
use pipe_runtime::checkpoint::CheckpointError;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, RunError};
use pipe_syntax::source::Sources;
use std::sync::{Arc, OnceLock};

/// A command that runs a program, on this process.
pub(crate) struct Session<'a> {
    pub(crate) target: &'a TargetArguments,
    /// The schema of what programs read.
    pub(super) schema: &'static str,
    pub(super) backend: BackendChoice,
    /// Whether there are GPUs, if it depends on them.
    pub(super) has_gpus: bool,
    /// What connects it with the other ranks, if there are any.
    pub(super) job: Option<Job>,
    /// Who keeps the store behind that, if one does, which is too slow for tensors.
    pub(super) store: Option<Keeper>,
    /// Whether a launcher starts it again, with the same arguments, when a rank is lost.
    pub(super) starts_again: bool,
    pub(super) origins: Arc<OnceLock<Origins>>,
}

impl Session<'_> {
    pub(crate) fn job(&self) -> Option<&Job> {
        self.job.as_ref()
    }

    pub(crate) fn n_ranks(&self) -> usize {
        self.job().map_or(1, Job::n_ranks)
    }

    /// Whether this process speaks for all.
    pub(crate) fn speaks(&self) -> bool {
        self.job().is_none_or(Job::is_first)
    }

    /// Whether people see no progress.
    pub(crate) fn is_quiet(&self) -> bool {
        self.target.quiet || self.target.format() == Format::Json || !self.speaks()
    }

    /// Warns, for all ranks.
    pub(crate) fn warn(&self, message: &str) {
        if self.speaks() {
            warn(message);
        }
    }

    /// Whether it is so on any rank. All ranks ask at once. Fails if another rank cannot go on.
    pub(crate) fn any(&self, own: bool) -> Result<bool, RunError> {
        self.job().map_or(Ok(own), |job| job.any(own))
    }

    /// A program with its times; nothing if the target is rejected, and that is said. Fails if it is rejected and
    /// another process has to say why.
    pub(crate) fn accepted(
        &self,
        compilation: Compilation,
        sources: &Sources,
    ) -> Result<Option<(Verified, Analysis)>, Failure> {
        if self.speaks() {
            show_findings(&compilation, sources, self.target.format())?;
        } else if !compilation.report.ok {
            return Err(reason(&compilation));
        }
        Ok(compilation.program.zip(compilation.analysis).filter(|_| compilation.report.ok))
    }

    /// What executes a program.
    pub(crate) fn backend(&self, program: &Program) -> Backend {
        self.backend.resolve(program, self.has_gpus)
    }

    /// The data of a program; nothing if it has none that fit, and that is said. Fails if it has none and another
    /// process has to say why.
    pub(crate) fn open(&self, program: &Program, backend: Backend) -> Result<Option<Data>, Failure> {
        match training::open(program, backend, &self.target.folder()) {
            Ok(data) => Ok(Some(data)),
            Err(message) if self.speaks() => reject(self.target.format(), self.schema, &message).map(|_| None),
            Err(message) => Err(Failure::Usage(message)),
        }
    }

    /// What this process found, if all found the same: digests of that by name. Fails if it failed, or ranks differ:
    /// then the first one says which.
    pub(crate) fn agree<T>(
        &self,
        own: Result<Option<T>, Failure>,
        digests: impl Fn(&T) -> Vec<(&'static str, Digest)>,
    ) -> Result<Option<T>, Failure> {
        let Some(job) = self.job() else { return own };
        let word = match &own {
            Ok(Some(found)) => {
                Word::Ready(digests(found).into_iter().map(|(name, digest)| (name.to_owned(), digest)).collect())
            }
            Ok(None) => Word::Rejected,
            Err(failure) => Word::Failed(failure.to_string()),
        };
        let exchange = || {
            let words = job.gather(serde_json::to_vec(&word).unwrap_or_default())?;
            let words: Result<Vec<Word>, _> = words.iter().map(|word| serde_json::from_slice(word)).collect();
            let verdict = words.map_or_else(
                |_| Some("the ranks have different versions of pipec".to_owned()),
                |words| difference(&words),
            );
            job.spread(verdict.unwrap_or_default().into_bytes())
        };
        let verdict = exchange().map_err(|error: RunError| Failure::Usage(error.to_string()))?;
        if verdict.is_empty() { own } else { Err(Failure::Usage(String::from_utf8_lossy(&verdict).into_owned())) }
    }

    /// From now on it is known where instructions come from. Warns where devices that compute have their bytes carried
    /// by what is slow.
    pub(crate) fn begin(&self, origins: Origins, backend: Backend) {
        // A command runs one program.
        drop(self.origins.set(origins));
        let Some(keeper) = self.store.filter(|_| matches!(backend, Backend::Cpu)) else { return };
        let (whose, how) = match keeper {
            Keeper::Torchrun => ("torchrun's store", "under `mpirun`"),
            Keeper::FirstRank => ("a store of rank 0", "if pipec is built with it and started by `srun --mpi=pmix`"),
        };
        self.warn(&format!(
            "{whose} carries the bytes between the processes, which is slow: with `--backend cuda` NCCL does, and between processors MPI, {how}"
        ));
    }

    /// What comes of trying something on a backend. Where that fails on GPUs that nobody asked for, it is said, and the
    /// processor does it instead; but one of several ranks does what the others do. Fails if it fails.
    pub(crate) fn attempt<T>(
        &self,
        backend: &mut Backend,
        mut attempt: impl FnMut(Backend) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        match attempt(*backend) {
            Err(error) if backend.is_gpu() && self.backend == BackendChoice::Auto && self.job.is_none() => {
                warn(&format!("not on the GPU: {error}; the processor runs it instead"));
                *backend = Backend::Cpu;
                attempt(*backend)
            }
            Err(RunError::Unsupported(why)) if backend.is_gpu() => {
                Err(RunError::Unsupported(format!("{why}: `--backend cpu` runs on the processor")))
            }
            done => done,
        }
    }

    /// The step at which ranks begin that are started again whether or not they have saved anything. All ranks do it at
    /// once. Fails if a rank has a checkpoint that cannot be resumed, or only some find one.
    pub(crate) fn resumed(
        &self,
        found: Result<u64, CheckpointError>,
        is_asked: bool,
    ) -> Result<u64, training::Failure> {
        let is_absent = matches!(found, Err(CheckpointError::Absent { .. }));
        if is_asked || !self.starts_again || self.any(!is_absent)? {
            return Ok(found?);
        }
        self.warn("there is no checkpoint yet: the run begins at its first step");
        Ok(0)
    }

    /// Why a run ended: where an instruction failed, with the task that it belongs to and the line that asks for it.
    pub(crate) fn told(&self, failure: &training::Failure) -> String {
        let source = match (failure, self.origins.get()) {
            (training::Failure::Run(RunError::Instruction { device, list, index, .. }), Some(origins)) => {
                lost::source(&Position { device: *device, list: *list, index: *index }, origins)
            }
            _ => String::new(),
        };
        format!("{failure}{source}")
    }

    /// Ends what was begun, on all ranks.
    pub(crate) fn fail(&self, message: &str) -> Result<Outcome, Failure> {
        if let Some(job) = self.job() {
            job.fail(message);
        }
        if self.speaks() { reject(self.target.format(), self.schema, message) } else { Ok(Outcome::Rejected) }
    }

    /// Takes leave of the other ranks at the end of a command. Only the first rank says what went wrong.
    pub(super) fn conclude(self, ended: Result<Outcome, Failure>) -> Result<Outcome, Failure> {
        let speaks = self.speaks();
        let Some(job) = self.job else { return ended };
        let ended = ended.unwrap_or_else(|failure| {
            if speaks {
                refuse(&failure.to_string(), self.target.format() == Format::Json);
            }
            Outcome::Usage
        });
        if job.has_failed() {
            job.part(speaks);
        }
        Ok(ended)
    }
}
