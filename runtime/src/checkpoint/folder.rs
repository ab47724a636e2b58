//! Folders of checkpoints: files that are complete or absent, and which of them stay.

use super::{CheckpointError, io_error, shards};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How many checkpoints stay in a folder.
const KEPT: usize = 2;

/// Makes sure that a folder exists and can be written.
pub(super) fn prepare(folder: &Path) -> Result<(), CheckpointError> {
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    let probe = folder.join(format!(".probe.{}.partial", std::process::id()));
    File::create(&probe).map_err(io_error(folder))?;
    // Another rank may have removed it.
    drop(fs::remove_file(&probe));
    Ok(())
}

/// Moves the checkpoints of a folder into a new one in it. Its name, if there are any. Each is
/// complete in one of both whatever happens, since it leaves the one when it is in the other.
pub(super) fn set_aside(folder: &Path) -> Result<Option<PathBuf>, CheckpointError> {
    let known = checkpoints(folder)?;
    if known.is_empty() {
        return Ok(None);
    }
    let named = |number: u64| folder.join(format!("before-{number}"));
    let aside = (1..).map(named).find(|aside| !aside.exists()).unwrap_or_default();
    fs::create_dir(&aside).map_err(io_error(&aside))?;
    // An index is the last to come and the first to go. Of one that cannot be read nobody knows what it needs.
    let parts = |path: &PathBuf| shards::files(path).unwrap_or_default().into_iter().map(|name| folder.join(name));
    let files: Vec<PathBuf> = known.iter().flat_map(|path| parts(path).chain([path.clone()])).collect();
    for file in files.iter().filter(|file| file.exists()) {
        let to = aside.join(file.file_name().unwrap_or_default());
        // Not every file system has links. A copy is as old as what it is a copy of: that is the order of checkpoints.
        let copy = || {
            fs::copy(file, &to)?;
            File::options().write(true).open(&to)?.set_modified(fs::metadata(file)?.modified()?)
        };
        fs::hard_link(file, &to).or_else(|_| copy()).map_err(io_error(&to))?;
    }
    for file in files.iter().rev().filter(|file| file.exists()) {
        fs::remove_file(file).map_err(io_error(file))?;
    }
    Ok(Some(aside))
}

/// Writes a file as a whole or not at all, so that it stays whatever happens.
pub(super) fn put(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
    let temporary = folder.join(format!(".{}.{}.partial", name.display(), std::process::id()));
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    });
    if written.is_err() {
        drop(fs::remove_file(&temporary));
    }
    written.map_err(io_error(path))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error(folder))
}

/// Removes of these checkpoints all but the newest, with their shards, and of these shards those that no index needs.
pub(super) fn keep_newest(
    folder: &Path,
    is_own: &dyn Fn(&Path) -> bool,
    is_own_shard: &dyn Fn(&str) -> bool,
) -> Result<(), CheckpointError> {
    let own: Vec<PathBuf> = checkpoints(folder)?.into_iter().filter(|path| is_own(path)).collect();
    for old in own.iter().rev().skip(KEPT) {
        let shards = if is_index(old) { shards::files(old).unwrap_or_default() } else { BTreeSet::new() };
        fs::remove_file(old).map_err(io_error(old))?;
        // Nothing depends on them any more.
        shards.iter().for_each(|shard| drop(fs::remove_file(folder.join(shard))));
    }
    remove_unneeded(folder, &|name| shards::is_shard(name) && is_own_shard(name));
    Ok(())
}

fn is_index(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

/// Removes what runs left behind that were killed while they saved, and files of indices that are
/// gone, whoever wrote them: of a folder that was just taken.
pub(super) fn remove_leftovers(folder: &Path) {
    let is_partial = |name: &str| name.starts_with('.') && name.ends_with(".partial");
    remove_unneeded(folder, &|name| is_partial(name) || shards::is_shard(name));
}

/// Removes those of these files that no index needs. Nothing depends on it, so no failure counts.
fn remove_unneeded(folder: &Path, is_meant: &dyn Fn(&str) -> bool) {
    let Ok(known) = checkpoints(folder) else { return };
    let mut needed = BTreeSet::new();
    for index in known.iter().filter(|path| is_index(path)) {
        // Of an index that cannot be read nobody knows what it needs.
        let Ok(files) = shards::files(index) else { return };
        needed.extend(files);
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        if is_meant(name) && !needed.contains(name) {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// What the name of a checkpoint in one file, and of an index, ends with.
pub(super) const SUFFIX: &str = ".safetensors";
pub(super) const INDEX_SUFFIX: &str = ".safetensors.index.json";

/// The checkpoint of a folder that was written last, if there is any.
///
/// # Errors
/// If the folder exists and cannot be read.
pub fn latest(folder: &Path) -> Result<Option<PathBuf>, CheckpointError> {
    Ok(checkpoints(folder)?.pop())
}

/// Complete checkpoints of a folder, in the order in which they were written: a run that started
/// anew in the folder of a longer one must not take that one's steps for its own.
pub(super) fn checkpoints(folder: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(io_error(folder))? {
        let path = entry.map_err(io_error(folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = name.strip_suffix(INDEX_SUFFIX).or_else(|| name.strip_suffix(SUFFIX));
        let stem = stem.and_then(|stem| stem.strip_prefix("step-")).unwrap_or_default();
        // Names of earlier versions have no run behind the step.
        let (digits, run) = stem.split_once('.').unwrap_or((stem, "0"));
        let is_run = !run.is_empty() && run.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if let Some(step) = digits.parse::<u64>().ok().filter(|_| is_run) {
            // File systems without times leave the order to the steps.
            let written = fs::metadata(&path).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            found.insert((written, step, path.clone()), path);
        }
    }
    Ok(found.into_values().collect())
}
