//! Which of some files were saved since they were looked at last.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// When a file was saved, and how long it is; nothing of one that is not there.
type Mark = Option<(SystemTime, u64)>;

/// Files with what they looked like.
#[derive(Default)]
pub(crate) struct Files(BTreeMap<PathBuf, Mark>);

impl Files {
    /// From now on, these. What is known of one stays, so that a change while it was read is not missed.
    pub(crate) fn look_at(&mut self, files: &BTreeSet<PathBuf>) {
        let known = std::mem::take(&mut self.0);
        let look = |path: &PathBuf| (path.clone(), known.get(path).copied().unwrap_or_else(|| mark(path)));
        self.0 = files.iter().map(look).collect();
    }

    /// Whether any has changed since this was asked last.
    pub(crate) fn changed(&mut self) -> bool {
        let mut any = false;
        for (path, before) in &mut self.0 {
            let now = mark(path);
            any |= now != *before;
            *before = now;
        }
        any
    }
}

fn mark(path: &Path) -> Mark {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}
