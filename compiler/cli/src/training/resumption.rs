//! Resumption: the options that say which checkpoint a run begins with, and what may be wrong with it.

use crate::ranks::session::Session;
use crate::training;
use pipe_runtime::Run;
use pipe_runtime::checkpoint::{self, Aspect, CheckpointError, Resumption};
use std::path::{Path, PathBuf};

/// The options of commands that resume.
#[derive(clap::Args, Clone, PartialEq, Eq, Debug)]
pub(crate) struct ResumeArguments {
    /// Resume from a checkpoint: the newest one of the pipeline, or a file or folder
    #[arg(long = "resume", value_name = "PATH", num_args = 0..=1)]
    pub(crate) from: Option<Option<PathBuf>>,
    /// Resume the weights alone: begin at the first step, with an optimizer that has no state yet
    /// (for another optimizer, model or data)
    #[arg(long = "resume-weights-only", requires = "from")]
    pub(crate) weights_only: bool,
    /// Resume although the checkpoint was saved with another model of the same weights, or with other data
    #[arg(long = "resume-despite", value_name = "WHAT", value_enum, value_delimiter = ',', requires = "from")]
    despite: Vec<Despite>,
    /// Resume the newest sound checkpoint where newer ones are damaged
    #[arg(long = "resume-skip-damaged", requires = "from")]
    skip_damaged: bool,
}

/// What may differ between the run that saved and the one that resumes.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Despite {
    /// The operations of the model, or their constants
    Model,
    /// The data, or where they come from
    Data,
}

impl ResumeArguments {
    /// Loads the checkpoint into a run. The number of steps done; 0 without one. All ranks do it at once. Fails if
    /// there is none, or it is refused.
    pub(crate) fn resume(
        &self,
        run: &mut Run,
        folder: Option<&Path>,
        session: &Session<'_>,
    ) -> Result<u64, training::Failure> {
        let Some(from) = &self.from else { return Ok(0) };
        let path = from.as_deref().or(folder).unwrap_or(Path::new(""));
        let despite = self.despite.iter().map(|what| match what {
            Despite::Model => Aspect::Model,
            Despite::Data => Aspect::Data,
        });
        let how = Resumption {
            weights_only: self.weights_only,
            despite: despite.collect(),
            skips_damaged: self.skip_damaged,
        };
        let found = checkpoint::resume_as(run, path, &how);
        found.iter().flat_map(|resumed| &resumed.notes).for_each(|note| session.warn(note));
        session.resumed(found.map(|resumed| resumed.step), from.is_some())
    }
}

/// Which options accept what a checkpoint was refused for.
pub(crate) fn accepted_by(error: &CheckpointError) -> Option<String> {
    match error {
        CheckpointError::Owned { .. } => {
            Some("stop it, wait for its end, or save elsewhere with `--checkpoint FOLDER`".to_owned())
        }
        CheckpointError::Damaged { sound: Some(_), .. } => Some("`--resume-skip-damaged` resumes that one".to_owned()),
        CheckpointError::Foreign { differences, .. } => {
            let has = |aspect| differences.iter().any(|difference| difference.aspect == aspect);
            let words = [(Aspect::Model, "model"), (Aspect::Data, "data")];
            let words: Vec<&str> = words.into_iter().filter(|(aspect, _)| has(*aspect)).map(|(_, word)| word).collect();
            let words = words.join(",");
            Some(match has(Aspect::Optimizer) {
                true => "`--resume-weights-only` takes the weights alone and begins at the first step".to_owned(),
                false => format!(
                    "`--resume-despite {words}` goes on all the same, and `--resume-weights-only` takes the weights alone and begins at the first step"
                ),
            })
        }
        CheckpointError::Io { .. }
        | CheckpointError::Malformed { .. }
        | CheckpointError::Altered { .. }
        | CheckpointError::Damaged { sound: None, .. }
        | CheckpointError::Unfit { .. }
        | CheckpointError::Lost { .. }
        | CheckpointError::Rank { .. }
        | CheckpointError::Run(_)
        | CheckpointError::Absent { .. } => None,
    }
}
