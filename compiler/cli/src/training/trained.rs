//! Trained weights: which ones a command takes that trains none.

use crate::output::Failure;
use pipe_ir::training::Training;
use pipe_runtime::checkpoint;
use std::path::{Path, PathBuf};

/// Where weights come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Weights {
    /// A checkpoint: its file or index.
    Checkpoint(PathBuf),
    /// What the pipeline begins with.
    Init(PathBuf),
}

impl Weights {
    /// Those of the checkpoint that an option names, or else of the newest one of the pipeline, or else those that the
    /// pipeline begins with. Fails if there are none.
    pub(crate) fn find(
        option: Option<&Path>,
        (name, training): (&str, Option<&Training>),
        folder: &Path,
    ) -> Result<Self, Failure> {
        if let Some(path) = option.filter(|path| path.is_file()) {
            return Ok(Self::Checkpoint(path.to_owned()));
        }
        let from = option.map_or_else(|| crate::training::folder(name, training), Path::to_owned);
        let newest = checkpoint::latest(&from).map_err(|error| Failure::Usage(error.to_string()))?;
        let init = training.and_then(|training| training.init.as_ref()).filter(|_| option.is_none());
        match (newest, init) {
            (Some(newest), _) => Ok(Self::Checkpoint(newest)),
            (None, Some(init)) => Ok(Self::Init(folder.join(init))),
            (None, None) if option.is_some() => {
                Err(Failure::Usage(format!("there is no checkpoint at {}", from.display())))
            }
            (None, None) => Err(Failure::Usage(format!(
                "there is no checkpoint in {}: `pipec run` trains and saves one, and `--checkpoint PATH` names another",
                from.display()
            ))),
        }
    }

    /// As it is said to people.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Checkpoint(path) | Self::Init(path) => path.display().to_string(),
        }
    }
}
