//! Checkpoints: weights and optimizer state by tensor name, in one safetensors file per saved step, or one of each rank and an index.
//!
//! A checkpoint is complete or absent: files are written beside their place, flushed to the disk, then renamed, and an index comes after
//! the files that it names. Tensors are named by the model, not by stage or device, so a checkpoint fits every layout of the same model.

mod file;
mod folder;
mod shards;

use crate::fault::RunError;
use crate::job::Rank;
use crate::run::Run;
pub use file::{FORMAT as SCHEMA, from_bytes, to_bytes};
pub use folder::{latest, prepare, save, set_aside};
use pipe_ir::graph::TensorType;
use pipe_ir::ids::ValueId;
use pipe_ir::program::Program;
use pipe_ir::value::{TensorSlot, ValueKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// One tensor of a checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedTensor {
    /// Unique in the checkpoint.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
    /// Elements, row-major, as they lie in memory.
    pub data: Vec<u8>,
}

/// The state of a run after some step.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// Optimizer steps done.
    pub step: u64,
    /// Seed of the run that wrote it.
    pub seed: u64,
    /// Weights and optimizer state.
    pub tensors: Vec<NamedTensor>,
}

/// Why a checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file system said no.
    #[error("{path}: {source}")]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is not a checkpoint of ours.
    #[error("{path} is not a checkpoint: {reason}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is a checkpoint of another model.
    #[error("{path} does not fit the program: {reason}")]
    Unfit {
        /// Which file.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
    /// A rank could not write or read its part.
    #[error("{rank}: {message}")]
    Rank {
        /// Which.
        rank: Rank,
        /// What it says.
        message: String,
    },
    /// Another rank of the job cannot go on.
    #[error(transparent)]
    Run(#[from] RunError),
    /// There is nothing to read.
    #[error("there is no checkpoint at {path} to resume from")]
    Absent {
        /// Where it was looked for.
        path: PathBuf,
    },
}

/// What a run has learned after `step` optimizer steps; no tensors on the null backend. In a job of several ranks, what its own devices are
/// the first to hold.
///
/// # Errors
/// If a GPU does not answer.
pub fn state(run: &Run, step: u64) -> Result<State, CheckpointError> {
    Ok(State { step, seed: seed(run), tensors: assemble(pieces(run)?) })
}

/// Writes what a run has learned after `step` optimizer steps into a folder: one file, or in a job of several ranks one of each and an index.
/// All ranks do it at once. Removes all but the two checkpoints that were written last. Returns the path of the file or the index.
///
/// # Errors
/// If the folder or a file cannot be written, or a GPU does not answer; an older checkpoint is then untouched.
pub fn write(run: &Run, step: u64, folder: &Path) -> Result<PathBuf, CheckpointError> {
    match run.desk() {
        None => save(folder, &state(run, step)?),
        Some(desk) => shards::save(desk, folder, (step, seed(run)), pieces(run)),
    }
}

/// Loads the newest checkpoint of a folder, or the one at a path, into a run. Returns the number of steps done. All ranks of a job do it at
/// once, and take what the first one finds.
///
/// # Errors
/// If there is none, it cannot be read, or it does not fit the program; the run is then as it was. If a GPU does not answer.
pub fn resume(run: &mut Run, from: &Path) -> Result<u64, CheckpointError> {
    let newest = || if from.is_dir() { latest(from) } else { Ok(Some(from.to_owned())) };
    let path = match run.desk() {
        None => newest()?,
        Some(desk) => shards::agreed(desk, newest)?,
    };
    let path = path.filter(|path| path.exists()).ok_or_else(|| CheckpointError::Absent { path: from.to_owned() })?;
    let places: Vec<Place> = saved_tensors(run.program()).into_iter().filter(|place| run.holds(place.value)).collect();
    let versions: Vec<(&Place, u32)> =
        places.iter().flat_map(|place| (0..run.versions(place.value)).map(move |age| (place, age))).collect();
    let names = versions.iter().flat_map(|(place, age)| [versioned(&place.slot.name, *age), place.slot.name.clone()]);
    let names: BTreeSet<String> = names.collect();
    let state = read(&path, &|name| names.contains(name))?;
    if let Some(desk) = run.desk() {
        shards::same_step(desk, &path, state.step)?;
    }
    let found: Result<Vec<_>, _> = versions.iter().map(|(place, age)| fitting(&state, place, *age)).collect();
    let found = found.map_err(|reason| CheckpointError::Unfit { path, reason })?;
    for ((place, age), found) in versions.iter().zip(found) {
        let from = place.slot.from().to_usize();
        let own = from..from + place.slot.ty.bytes().to_usize();
        run.write_bytes(place.value, place.tensor, Some(*age), &found.data[own])?;
    }
    Ok(state.step)
}

/// Reads a checkpoint: a file, or an index with its files.
///
/// # Errors
/// If a file cannot be read or is not one of ours.
pub fn load(path: &Path) -> Result<State, CheckpointError> {
    read(path, &|_| true)
}

/// The same without the tensors that nobody wants.
fn read(path: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<State, CheckpointError> {
    if path.extension().is_some_and(|extension| extension == "json") {
        return shards::read(path, wanted);
    }
    let bytes = std::fs::read(path).map_err(io_error(path))?;
    let mut state = from_bytes(&bytes).map_err(malformed(path))?;
    state.tensors.retain(|tensor| wanted(&tensor.name));
    Ok(state)
}

fn seed(run: &Run) -> u64 {
    run.program().training.as_ref().map_or(0, |training| training.seed)
}

/// A tensor, or some of its numbers, as a buffer holds them.
struct Piece {
    /// Of the tensor.
    name: String,
    whole: TensorType,
    /// Its first byte in the tensor.
    from: usize,
    data: Vec<u8>,
}

/// What the devices of this process are the first to hold.
fn pieces(run: &Run) -> Result<Vec<Piece>, RunError> {
    let places = saved_tensors(run.program());
    let versions = places.iter().flat_map(|place| (0..run.versions(place.value)).map(move |age| (place, age)));
    let piece = |(Place { value, tensor, slot }, age): (&Place, u32)| {
        let data = if run.holds_first(*value, age) { run.read_bytes(*value, *tensor, age) } else { Ok(None) };
        let data = data.transpose()?;
        let (name, whole, from) = (versioned(&slot.name, age), slot.whole().clone(), slot.from().to_usize());
        Some(data.map(|data| Piece { name, whole, from, data }))
    };
    versions.filter_map(piece).collect()
}

/// Tensors from their pieces, which come one after the other, from wherever they are.
fn assemble(pieces: Vec<Piece>) -> Vec<NamedTensor> {
    let mut tensors: Vec<NamedTensor> = Vec::new();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for Piece { name, whole, from, data } in pieces {
        let number = *numbers.entry(name.clone()).or_insert(tensors.len());
        let bytes = whole.bytes().to_usize();
        if number < tensors.len() {
            tensors[number].data[from..from + data.len()].copy_from_slice(&data);
        } else if data.len() == bytes {
            tensors.push(NamedTensor { name, ty: whole, data });
        } else {
            let mut all = vec![0; bytes];
            all[from..from + data.len()].copy_from_slice(&data);
            tensors.push(NamedTensor { name, ty: whole, data: all });
        }
    }
    tensors
}

/// What a version of a tensor is called: `w`, and `w@1` for the version before the newest.
fn versioned(name: &str, age: u32) -> String {
    if age == 0 { name.to_owned() } else { format!("{name}@{age}") }
}

/// The tensor for a place. A file of a run that kept fewer versions has the newest one for all of them.
fn fitting<'a>(state: &'a State, place: &Place, age: u32) -> Result<&'a NamedTensor, String> {
    let (name, ty) = (&place.slot.name, place.slot.whole());
    let named = |name: &str| state.tensors.iter().find(|tensor| tensor.name == name);
    match named(&versioned(name, age)).or_else(|| named(name)) {
        None => Err(format!("it has no tensor `{name}`")),
        Some(found) if found.ty != *ty => Err(format!("it holds `{name}` as {}, but the program's is {ty}", found.ty)),
        Some(found) => Ok(found),
    }
}

/// Where a tensor that a checkpoint holds is, or a part of one.
struct Place {
    value: ValueId,
    tensor: usize,
    slot: TensorSlot,
}

/// The tensors that a checkpoint holds: weights and optimizer state.
fn saved_tensors(program: &Program) -> Vec<Place> {
    let kinds = [ValueKind::Parameters, ValueKind::OptimizerState];
    let values = program.values.iter().enumerate().filter(|(_, value)| kinds.contains(&value.kind));
    let tensors = values.flat_map(|(index, value)| {
        let slots = value.tensors.iter().enumerate();
        let value = ValueId::from_index(index);
        slots.map(move |(tensor, slot)| Place { value, tensor, slot: slot.clone() })
    });
    tensors.collect()
}

fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> CheckpointError + '_ {
    move |source| CheckpointError::Io { path: path.to_owned(), source }
}

fn malformed(path: &Path) -> impl FnOnce(String) -> CheckpointError + '_ {
    move |reason| CheckpointError::Malformed { path: path.to_owned(), reason }
}
