//! A machine with fake GPUs, and runs of one source on it.

use crate::fakes::{fakes, pipec_with};
use crate::process::folder;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A machine with fake GPUs, and a folder with a source.
pub(crate) struct Machine {
    pub(crate) libraries: &'static Path,
    pub(crate) folder: PathBuf,
}

impl Machine {
    pub(crate) fn new(name: &str, source: &str) -> Option<Self> {
        Some(Self { libraries: fakes()?, folder: folder(&format!("cuda-{name}"), &[("tiny.pipe", source)]) })
    }

    /// The report of a run of the source.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &str, variables: &[(&str, &str)]) -> Value {
        let arguments = format!("run tiny.pipe --format json {arguments}");
        pipec_with(self.libraries, &self.folder, &arguments, variables).with(0).into()
    }

    /// Why a run of the source fails.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &str, variables: &[(&str, &str)]) -> String {
        pipec_with(self.libraries, &self.folder, &format!("run tiny.pipe {arguments}"), variables).with(1).error
    }

    /// Every bit that a run has learned, from the checkpoint in its folder.
    pub(crate) fn learned(&self, folder: &str) -> Vec<u8> {
        let files = self.folder.join(folder).read_dir().expect("a folder of checkpoints");
        let mut paths: Vec<_> = files.map(|file| file.expect("an entry").path()).collect();
        paths.sort();
        fs::read(paths.last().expect("a checkpoint")).expect("a file")
    }
}
