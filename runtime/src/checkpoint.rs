//! Checkpoints: weights and optimizer state by tensor name in one safetensors file per saved step.
//!
//! A file is complete or absent: it is written beside its place, flushed to the disk, then renamed. Tensors are named
//! by the model, not by stage or device, so a checkpoint fits every layout of the same model.

use crate::run::Run;
use pipe_ir::graph::{DType, TensorType};
use pipe_ir::ids::ValueId;
use pipe_ir::program::Program;
use pipe_ir::value::{TensorSlot, ValueKind};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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
    /// There is nothing to read.
    #[error("there is no checkpoint at {path} to resume from")]
    Absent {
        /// Where it was looked for.
        path: PathBuf,
    },
}

/// What a run has learned after `step` optimizer steps; no tensors on the null backend.
#[must_use]
pub fn state(run: &Run, step: u64) -> State {
    let places = saved_tensors(run.program());
    let versions = places.iter().flat_map(|place| (0..run.versions(place.value)).map(move |age| (place, age)));
    // Parts of a tensor come one after the other, from wherever they are.
    let mut tensors: Vec<NamedTensor> = Vec::new();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for (Place { value, tensor, slot }, age) in versions {
        let Some(data) = run.read_bytes(*value, *tensor, age) else { continue };
        let (name, ty, from) = (versioned(&slot.name, age), slot.whole().clone(), slot.from().to_usize());
        let number = *numbers.entry(name.clone()).or_insert(tensors.len());
        if number == tensors.len() {
            let empty = vec![0; ty.bytes().to_usize()];
            tensors.push(NamedTensor { name, ty, data: empty });
        }
        tensors[number].data[from..from + data.len()].copy_from_slice(&data);
    }
    let seed = run.program().training.as_ref().map_or(0, |training| training.seed);
    State { step, seed, tensors }
}

/// Loads the newest checkpoint of a folder, or the one at a path, into a run. Returns the number of steps done.
///
/// # Errors
/// If there is none, it cannot be read, or it does not fit the program; the run is then as it was.
pub fn resume(run: &mut Run, from: &Path) -> Result<u64, CheckpointError> {
    let path = if from.is_dir() { latest(from)? } else { Some(from.to_owned()) };
    let path = path.filter(|path| path.exists()).ok_or_else(|| CheckpointError::Absent { path: from.to_owned() })?;
    let state = load(&path)?;
    let places = saved_tensors(run.program());
    let versions: Vec<(&Place, u32)> =
        places.iter().flat_map(|place| (0..run.versions(place.value)).map(move |age| (place, age))).collect();
    let found: Result<Vec<_>, _> = versions.iter().map(|(place, age)| fitting(&state, place, *age)).collect();
    let found = found.map_err(|reason| CheckpointError::Unfit { path, reason })?;
    for ((place, age), found) in versions.iter().zip(found) {
        let from = place.slot.from().to_usize();
        let own = from..from + place.slot.ty.bytes().to_usize();
        run.write_bytes(place.value, place.tensor, Some(*age), &found.data[own]);
    }
    Ok(state.step)
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

/// How many checkpoints stay in a folder.
const KEPT: usize = 2;

/// Makes sure that a folder exists and can be written.
///
/// # Errors
/// If it cannot.
pub fn prepare(folder: &Path) -> Result<(), CheckpointError> {
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    let probe = folder.join(format!(".probe.{}.partial", std::process::id()));
    File::create(&probe).map_err(io_error(folder))?;
    remove_leftovers(folder);
    Ok(())
}

/// Writes `step-<n>.safetensors` into the folder and removes all but the two that were written last. Returns the path.
///
/// # Errors
/// If the folder or the file cannot be written; an older checkpoint is then untouched.
pub fn save(folder: &Path, state: &State) -> Result<PathBuf, CheckpointError> {
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    let path = folder.join(format!("step-{:08}.safetensors", state.step));
    let temporary = folder.join(format!(".step-{:08}.{}.partial", state.step, std::process::id()));
    let bytes = to_bytes(state).map_err(|reason| CheckpointError::Malformed { path: path.clone(), reason })?;
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    });
    if written.is_err() {
        drop(fs::remove_file(&temporary));
    }
    written.map_err(io_error(&path))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error(folder))?;
    for old in checkpoints(folder)?.iter().rev().skip(KEPT) {
        fs::remove_file(old).map_err(io_error(old))?;
    }
    remove_leftovers(folder);
    Ok(path)
}

/// Removes what runs left behind that were killed while they saved. Nothing depends on it, so no failure counts.
fn remove_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        if name.starts_with('.') && name.ends_with(".partial") {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// The checkpoint of a folder that was written last, if there is any.
///
/// # Errors
/// If the folder exists and cannot be read.
pub fn latest(folder: &Path) -> Result<Option<PathBuf>, CheckpointError> {
    Ok(checkpoints(folder)?.pop())
}

/// Complete checkpoints of a folder, in the order in which they were written: a run that started anew in the folder of a
/// longer one must not take that one's steps for its own.
fn checkpoints(folder: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(io_error(folder))? {
        let path = entry.map_err(io_error(folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let step = name.strip_prefix("step-").and_then(|rest| rest.strip_suffix(".safetensors"));
        if let Some(step) = step.and_then(|digits| digits.parse::<u64>().ok()) {
            // File systems without times leave the order to the steps.
            let written = fs::metadata(&path).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            found.insert((written, step), path);
        }
    }
    Ok(found.into_values().collect())
}

/// Reads a checkpoint.
///
/// # Errors
/// If the file cannot be read or is not one of ours.
pub fn load(path: &Path) -> Result<State, CheckpointError> {
    let bytes = fs::read(path).map_err(io_error(path))?;
    from_bytes(&bytes).map_err(|reason| CheckpointError::Malformed { path: path.to_owned(), reason })
}

/// A checkpoint as the bytes of its file.
///
/// # Errors
/// If a tensor has not as many elements as its shape says.
pub fn to_bytes(state: &State) -> Result<Vec<u8>, String> {
    let header = Header { format: FORMAT.to_owned(), step: state.step, seed: state.seed };
    let header = serde_json::to_string(&header).map_err(|error| error.to_string())?;
    // One entry only: the library writes several in the order of a hash map, and equal states give equal files.
    let metadata = HashMap::from([(HEADER.to_owned(), header)]);
    let views = state.tensors.iter().map(|tensor| {
        let shape = tensor.ty.shape.iter().map(|size| *size as usize).collect();
        let view = TensorView::new(type_in_file(tensor.ty.dtype), shape, &tensor.data);
        view.map(|view| (tensor.name.as_str(), view)).map_err(|error| format!("{}: {error}", tensor.name))
    });
    let views: Vec<_> = views.collect::<Result<_, _>>()?;
    serialize(views, Some(metadata)).map_err(|error| error.to_string())
}

/// What the format calls a type. Its files are little-endian, as are all machines that we compute on.
const fn type_in_file(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::I32 => Dtype::I32,
    }
}

/// What a checkpoint says of itself, as JSON under [`HEADER`] in the metadata.
#[derive(serde::Serialize, serde::Deserialize)]
struct Header {
    format: String,
    step: u64,
    seed: u64,
}

const HEADER: &str = "pipec";
const FORMAT: &str = "pipec.checkpoint/1";

/// Reads the bytes of a file that [`to_bytes`] made.
///
/// # Errors
/// If they are not a checkpoint of ours, in plain words.
pub fn from_bytes(bytes: &[u8]) -> Result<State, String> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
    let text = header.metadata().as_ref().and_then(|metadata| metadata.get(HEADER));
    let text = text.ok_or_else(|| format!("its metadata has no `{HEADER}`"))?;
    let Header { format, step, seed } = serde_json::from_str(text).map_err(|error| format!("`{HEADER}`: {error}"))?;
    if format != FORMAT {
        return Err(format!("its format is `{format}`, not `{FORMAT}`"));
    }
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut tensors = Vec::new();
    for (name, view) in file.tensors() {
        let known = DType::WORDS.into_iter().find(|(_, dtype)| type_in_file(*dtype) == view.dtype());
        let Some((_, dtype)) = known.filter(|(_, dtype)| dtype.is_float()) else {
            return Err(format!("`{name}` has elements of type {:?}, not f32 or f64", view.dtype()));
        };
        let shape = view.shape().iter().map(|size| *size as u64).collect();
        tensors.push(NamedTensor { name, ty: TensorType { dtype, shape }, data: view.data().to_vec() });
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(State { step, seed, tensors })
}
