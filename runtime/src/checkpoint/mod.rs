//! Checkpoints: weights and optimizer state by tensor name, in one safetensors file per saved step,
//! or one of each rank and an index.
//!
//! A run has its folder alone (`home.rs`, `lease.rs`). A checkpoint is complete or absent: files
//! are written beside their place, flushed to the disk, then renamed, and an index comes after the
//! files that it names. Tensors are named by the model, not by stage or device, so a checkpoint
//! fits every layout of the same model.

mod file;
mod folder;
mod home;
mod lease;
mod origin;
mod owner;
mod resume;
mod shards;

use crate::regular_file;
use crate::run::Run;
use file::{About, Unsound};
pub use file::{FORMAT as SCHEMA, from_bytes, to_bytes};
pub use folder::latest;
pub use home::Home;
pub use lease::Terms;
pub use origin::{Aspect, Difference, Origin};
pub use owner::Owner;
use pipe_distributed::{Rank, RunError};
use pipe_ir::graph::TensorType;
use pipe_ir::ids::ValueId;
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Part, Split, TensorSlot, ValueKind};
pub use resume::{Resumed, Resumption, resume, resume_as};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The largest file of a checkpoint that is read: 1 TiB.
const MOST_BYTES: u64 = 1 << 40;

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
    /// Model, optimizer and data of that run.
    pub origin: Origin,
    /// The `config.json` that the model is made of, if it is.
    pub config: Option<String>,
    /// Whether it has checksums, so that it is known to be as it was saved.
    pub is_verified: bool,
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
    /// The file is a checkpoint, but not as it was saved.
    #[error("{path} is damaged: {reason}")]
    Altered {
        /// Which file.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
    /// The checkpoint that was to be resumed is damaged; another one may be sound.
    #[error("{}{}", .error, Self::beside(.sound.as_deref()))]
    Damaged {
        /// What is wrong with it.
        error: Box<CheckpointError>,
        /// The newest one before it that is sound.
        sound: Option<PathBuf>,
    },
    /// The checkpoint was saved by a run with another model, optimizer or other data.
    #[error("{path} was saved with {}", listed(.differences))]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What differs; never empty.
        differences: Vec<Difference>,
    },
    /// The file is a checkpoint of another model.
    #[error("{path} does not fit the program: {reason}")]
    Unfit {
        /// Which file.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
    /// Another run has the folder, and lives.
    #[error("{} belongs to {owner}, which still runs", .folder.display())]
    Owned {
        /// Which folder.
        folder: PathBuf,
        /// Who has it.
        owner: Box<Owner>,
    },
    /// Another run has taken the folder while this one stood still.
    #[error(
        "{} is no longer this run's: it stood still, and {} has taken the folder; nothing is written there any more",
        .folder.display(), .owner.as_ref().map_or("another run".to_owned(), ToString::to_string)
    )]
    Lost {
        /// Which folder.
        folder: PathBuf,
        /// Who has it now, if that can be read.
        owner: Option<Box<Owner>>,
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

impl CheckpointError {
    /// Whether another checkpoint may be well where this one is not.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Malformed { .. } | Self::Altered { .. } | Self::Damaged { .. } => true,
            Self::Io { source, .. } => {
                use std::io::ErrorKind;
                matches!(source.kind(), ErrorKind::NotFound | ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
            }
            Self::Foreign { .. }
            | Self::Unfit { .. }
            | Self::Owned { .. }
            | Self::Lost { .. }
            | Self::Rank { .. }
            | Self::Run(_)
            | Self::Absent { .. } => false,
        }
    }

    fn beside(sound: Option<&Path>) -> String {
        match sound {
            Some(path) => format!("; the newest checkpoint before it that is sound is {}", path.display()),
            None => "; no checkpoint before it is sound".to_owned(),
        }
    }
}

fn listed(differences: &[Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// What a run has learned after `step` optimizer steps; no tensors on the null backend. In a job of
/// several ranks, what its own devices are the first to hold.
///
/// # Errors
/// If a GPU does not answer.
pub fn state(run: &Run, step: u64) -> Result<State, CheckpointError> {
    let About { step, seed, origin, config } = about(run, step);
    Ok(State { step, seed, origin, config, is_verified: true, tensors: assemble(pieces(run)?) })
}

/// Writes what a run has learned after `step` optimizer steps into its folder: one file, or in a
/// job of several ranks one of each and an index. All ranks do it at once. Removes all but the two
/// checkpoints that the run has written last. Returns the path of the file or the index.
///
/// # Errors
/// If the folder or a file cannot be written, another run has taken the folder, or a GPU does not
/// answer; older checkpoints are then untouched.
pub fn write(run: &Run, step: u64, home: &Home) -> Result<PathBuf, CheckpointError> {
    match run.mailbox() {
        None => home.save(&state(run, step)?),
        Some(mailbox) => shards::save(mailbox, home, &about(run, step), pieces(run)),
    }
}

/// Writes a state into a folder that is taken for that alone, and removes all but the two
/// checkpoints there that were written last.
///
/// # Errors
/// If another run has the folder, or it or the file cannot be written.
pub fn save(folder: &Path, state: &State) -> Result<PathBuf, CheckpointError> {
    Home::take(folder, None, &Terms::default())?.save(state)
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
    let bytes = regular_file::read(path, MOST_BYTES).map_err(io_error(path))?;
    file::state_from_bytes(&bytes, wanted).map_err(unsound(path))
}

fn about(run: &Run, step: u64) -> About {
    let config = run.program().training.as_ref().and_then(|training| training.config.clone());
    About { step, seed: seed(run), origin: Origin::of(run), config }
}

fn seed(run: &Run) -> u64 {
    run.program().training.as_ref().map_or(0, |training| training.seed)
}

/// A tensor, or some of its numbers, as a buffer holds them.
struct Piece {
    /// Of the tensor.
    name: String,
    whole: TensorType,
    /// Its first byte in the tensor, or in what the member has of it.
    from: usize,
    /// Which member of those that divide the tensor has it, if they do, and how they do.
    split: Option<(Split, u32)>,
    data: Vec<u8>,
}

impl Piece {
    /// What the member has of the tensor.
    fn of_member(&self) -> TensorType {
        let mut own = self.whole.clone();
        if let Some((split, _)) = self.split {
            let size = &mut own.shape[split.axis as usize];
            *size = (*size + split.padding) / split.members;
        }
        own
    }

    /// The slot that holds it.
    fn slot(&self) -> TensorSlot {
        let own = self.of_member();
        let size = self.whole.dtype.bytes().0;
        let (from, count) = (self.from as u64 / size, self.data.len() as u64 / size);
        let part = Some(Part { whole: own, from });
        let ty = TensorType::new(self.whole.dtype, &[count]);
        let split = self.split.map(|(split, _)| split);
        TensorSlot { name: self.name.clone(), ty, offset: Bytes::ZERO, init: None, part, split }
    }

    /// Where it lies in the tensor, in bytes, in its order.
    fn ranges(&self) -> Vec<Range<usize>> {
        let size = self.whole.dtype.bytes().0;
        let member = self.split.map_or(0, |(_, member)| member);
        let bytes = |own: Range<u64>| (own.start * size) as usize..(own.end * size) as usize;
        self.slot().numbers(member.into()).into_iter().map(bytes).collect()
    }
}

/// Gives a run the weights that another one has at this moment, in the same process. Nothing else of it changes.
///
/// # Errors
/// If the other one has not all of them, or a GPU does not answer.
pub fn copy_weights(from: &Run, to: &mut Run) -> Result<(), CheckpointError> {
    let is_weight = |program: &Program, place: &SavedTensor| program.value(place.value).kind == ValueKind::Parameters;
    let mut places = saved_tensors(from.program());
    places.retain(|place| is_weight(from.program(), place));
    let tensors = assemble(pieces_of(from, &places)?);
    let mut places = saved_tensors(to.program());
    places.retain(|place| is_weight(to.program(), place));
    for place in places {
        let found = tensors.iter().find(|tensor| tensor.name == place.slot.name);
        let found = found.filter(|found| found.ty == place.slot.undivided()).ok_or_else(|| {
            let reason = format!("it has no tensor `{}` of type {}", place.slot.name, place.slot.undivided());
            CheckpointError::Unfit { path: PathBuf::from("the run"), reason }
        })?;
        to.write_parts(place.value, place.tensor, None, &found.data)?;
    }
    Ok(())
}

/// What the devices of this process are the first to hold.
fn pieces(run: &Run) -> Result<Vec<Piece>, RunError> {
    pieces_of(run, &saved_tensors(run.program()))
}

/// The same of these tensors.
fn pieces_of(run: &Run, places: &[SavedTensor]) -> Result<Vec<Piece>, RunError> {
    let versions = places.iter().flat_map(|place| (0..run.versions(place.value)).map(move |age| (place, age)));
    let pieces = versions.flat_map(|(SavedTensor { value, tensor, slot }, age)| {
        run.first_of_members(*value, *tensor, age).into_iter().filter_map(move |(member, place)| {
            let data = run.read_place(place).transpose()?;
            let (name, whole, from) = (versioned(&slot.name, age), slot.undivided(), slot.from().to_usize());
            let split = slot.split.map(|split| (split, member));
            Some(data.map(|data| Piece { name, whole, from, split, data }))
        })
    });
    pieces.collect()
}

/// Tensors from their pieces, which come one after the other, from wherever they are.
fn assemble(pieces: Vec<Piece>) -> Vec<NamedTensor> {
    let mut tensors: Vec<NamedTensor> = Vec::new();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    for piece in pieces {
        let number = *numbers.entry(piece.name.clone()).or_insert(tensors.len());
        let bytes = piece.whole.bytes().to_usize();
        if number == tensors.len() && piece.data.len() == bytes {
            let Piece { name, whole, data, .. } = piece;
            tensors.push(NamedTensor { name, ty: whole, data });
            continue;
        }
        if number == tensors.len() {
            tensors.push(NamedTensor { name: piece.name.clone(), ty: piece.whole.clone(), data: vec![0; bytes] });
        }
        let mut rest = piece.data.as_slice();
        for own in piece.ranges() {
            let (part, others) = rest.split_at(own.len());
            tensors[number].data[own].copy_from_slice(part);
            rest = others;
        }
    }
    tensors
}

/// What a version of a tensor is called: `w`, and `w@1` for the version before the newest.
fn versioned(name: &str, age: u32) -> String {
    if age == 0 { name.to_owned() } else { format!("{name}@{age}") }
}

/// Where a tensor that a checkpoint holds is, or a part of one.
#[derive(Clone)]
struct SavedTensor {
    value: ValueId,
    tensor: usize,
    slot: TensorSlot,
}

/// The tensors that a checkpoint holds: weights and optimizer state.
fn saved_tensors(program: &Program) -> Vec<SavedTensor> {
    let kinds = [ValueKind::Parameters, ValueKind::OptimizerState];
    let values = program.values.iter().enumerate().filter(|(_, value)| kinds.contains(&value.kind));
    let tensors = values.flat_map(|(index, value)| {
        let slots = value.tensors.iter().enumerate();
        let value = ValueId::from_index(index);
        slots.map(move |(tensor, slot)| SavedTensor { value, tensor, slot: slot.clone() })
    });
    tensors.collect()
}

fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> CheckpointError + '_ {
    move |source| CheckpointError::Io { path: path.to_owned(), source }
}

fn malformed(path: &Path) -> impl FnOnce(String) -> CheckpointError + '_ {
    move |reason| CheckpointError::Malformed { path: path.to_owned(), reason }
}

fn unsound(path: &Path) -> impl FnOnce(Unsound) -> CheckpointError + '_ {
    move |error| match error {
        Unsound::Malformed(reason) => CheckpointError::Malformed { path: path.to_owned(), reason },
        Unsound::Altered(reason) => CheckpointError::Altered { path: path.to_owned(), reason },
    }
}
