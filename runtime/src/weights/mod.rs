//! Weights of others: a run begins with what safetensors files hold, under the names of Hugging Face or of the program.

mod export;
mod lora;
mod names;
pub(crate) mod shards;

use crate::run::Run;
pub use export::{ExportDType, Exported, export};
pub use names::{Saved, saved};
use pipe_distributed::{Rank, RunError};
use pipe_ir::graph::{DType, TensorType};
use pipe_ir::ids::ValueId;
use pipe_ir::program::Program;
use pipe_ir::units::Bytes;
use pipe_ir::value::{TensorSlot, Value, ValueKind};
use serde::{Deserialize, Serialize};
pub use shards::Shards;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why weights were not taken.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file system said no.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The folder has no weights.
    #[error("{folder} has neither `model.safetensors` nor `model.safetensors.index.json`")]
    Absent {
        /// Where they were looked for.
        folder: PathBuf,
    },
    /// A file is not what it should be.
    #[error("{path} cannot be read: {reason}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A folder that is to be written is there already.
    #[error("{folder} is there already: name a new folder")]
    Taken {
        /// Which.
        folder: PathBuf,
    },
    /// A checkpoint says too little of its model.
    #[error("{0}")]
    Unnamed(String),
    /// The files have the weights of another model.
    #[error("{path} does not fit the model: {}", .reasons.join("; "))]
    Unfit {
        /// Which file.
        path: PathBuf,
        /// What differs; never empty.
        reasons: Vec<String>,
    },
    /// A rank cannot read them.
    #[error("{rank}: {message}")]
    Rank {
        /// Which.
        rank: Rank,
        /// What it says.
        message: String,
    },
    /// The run cannot go on.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// How many differences are told; nobody reads more.
const MOST_REASONS: usize = 8;

/// An entry of a file, and which of its elements.
type Elements = (String, Range<u64>);

/// A tensor of the program, and what is read for it.
struct Placed {
    value: ValueId,
    tensor: usize,
    dtype: DType,
    /// By member that divides it, one where none does: the entries, and which elements of each.
    members: Vec<Vec<Elements>>,
    /// What each of them has, in bytes; padding is zeros.
    bytes: Bytes,
}

/// Fills the weights of a run, but for updates of low rank that the files do not have. Nothing is written
/// if something does not fit. All ranks of a job do it at once, and each reads what its devices hold.
/// Returns what should be said of it.
///
/// # Errors
/// If files are missing, cut off or of another model.
pub fn fill(run: &mut Run, from: &Path) -> Result<Vec<String>, WeightsError> {
    let family = family_of(run.program());
    let family = family.as_deref();
    let is_here = |value| run.holds(value);
    let found =
        Shards::open(from).and_then(|shards| Ok((placed(&run.program().values, &is_here, &shards, family)?, shards)));
    let (places, shards) = together(run, found)?;
    for Placed { value, tensor, dtype, members, bytes: size } in &places {
        for (member, pieces) in (0..).zip(members) {
            if members.len() > 1 && !run.has_member(*value, member) {
                continue;
            }
            let mut bytes = Vec::new();
            for (name, elements) in pieces {
                bytes.extend(shards.read(name, elements.clone(), *dtype)?);
            }
            bytes.resize(size.to_usize(), 0);
            let member = (members.len() > 1).then_some(member);
            for age in 0..run.versions(*value) {
                run.write_own((*value, *tensor), (Some(age), member), &bytes)?;
            }
        }
    }
    Ok(unused(run, &shards, family).into_iter().collect())
}

/// Whether files have all weights of a program, without reading them.
///
/// # Errors
/// As [`fill`].
pub fn check(program: &Program, from: &Path) -> Result<(), WeightsError> {
    let family = family_of(program);
    let shards = Shards::open(from)?;
    placed(&program.values, &|_| true, &shards, family.as_deref()).map(drop)
}

/// What a file has of weights: of which value it is which tensor, and its bytes as they lie in memory.
type Read = Result<(usize, usize, Vec<u8>), WeightsError>;

/// Reads the weights among values that no members divide, one after the other; those of a `config.json` have the names
/// of its family.
///
/// # Errors
/// If files are missing, cut off or of another model.
pub fn read<'a>(
    values: &'a [Value],
    from: &Path,
    config: Option<&str>,
) -> Result<impl Iterator<Item = Read> + use<'a>, WeightsError> {
    let (shards, family) = (Shards::open(from)?, config.and_then(family));
    let places = placed(values, &|_| true, &shards, family.as_deref())?;
    Ok(places.into_iter().map(move |Placed { value, tensor, dtype, members, .. }| {
        let mut bytes = Vec::new();
        for (name, elements) in members.into_iter().take(1).flatten() {
            bytes.extend(shards.read(&name, elements, dtype)?);
        }
        Ok((value.index(), tensor, bytes))
    }))
}

/// The family of a program's model, if it is from a `config.json`.
fn family_of(program: &Program) -> Option<String> {
    program.training.as_ref().and_then(|training| training.config.as_deref()).and_then(family)
}

/// The `model_type` of a `config.json`.
pub fn family(config: &str) -> Option<String> {
    let config: serde_json::Value = serde_json::from_str(config).ok()?;
    config.get("model_type")?.as_str().map(str::to_owned)
}

/// What is read for each weight that is here.
fn placed(
    values: &[Value],
    is_here: &dyn Fn(ValueId) -> bool,
    shards: &Shards,
    family: Option<&str>,
) -> Result<Vec<Placed>, WeightsError> {
    let (mut places, mut reasons) = (Vec::new(), Vec::new());
    for (id, value) in values.iter().enumerate() {
        let id = ValueId::from_index(id);
        if value.kind != ValueKind::Parameters || !is_here(id) {
            continue;
        }
        for (tensor, slot) in value.tensors.iter().enumerate() {
            if lora::is_factor(&slot.name) && shards.shape(&slot.name).is_none() {
                // Updates begin as nothing.
                continue;
            }
            match pieces(slot, shards, family) {
                Ok(members) => {
                    let (dtype, bytes) = (slot.ty.dtype, slot.ty.bytes());
                    places.push(Placed { value: id, tensor, dtype, members, bytes });
                }
                Err(reason) => reasons.push(reason),
            }
        }
    }
    let more = reasons.len().saturating_sub(MOST_REASONS);
    reasons.truncate(MOST_REASONS);
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
    if reasons.is_empty() { Ok(places) } else { Err(WeightsError::Unfit { path: shards.path.clone(), reasons }) }
}

/// The entries that hold the part of a tensor that a slot has, of each member that divides it.
fn pieces(slot: &TensorSlot, shards: &Shards, family: Option<&str>) -> Result<Vec<Vec<Elements>>, String> {
    let TensorType { shape, .. } = &slot.undivided();
    let first = shape.first().copied().unwrap_or(1);
    let saved = match family {
        Some(family) if !lora::is_factor(&slot.name) => names::saved(family, &slot.name, first)
            .ok_or_else(|| format!("what `{}` is called in a model of the type `{family}` is not known", slot.name))?,
        _ => Saved { names: vec![vec![slot.name.clone()]], is_by_expert: false },
    };
    let expected = if saved.is_by_expert { &shape[1..] } else { &shape[..] };
    let each: u64 = expected.iter().product();
    let mut entries = Vec::new();
    for names in &saved.names {
        let there = names.iter().find(|name| shards.shape(name).is_some());
        let name = there.ok_or_else(|| format!("it has no tensor `{}`", names[0]))?;
        shards.type_of(name).map_err(|ty| format!("`{name}` is of type {ty}, and numbers are needed"))?;
        let shape = shards.shape(name).unwrap_or_default();
        if shape != expected {
            return Err(format!("it holds `{name}` as {shape:?}, but the model's is {expected:?}"));
        }
        entries.push(name);
    }
    let of_member = |member: u64| {
        let mut pieces = Vec::new();
        for own in slot.numbers(member) {
            let first = own.start / each.max(1);
            for (position, name) in (first..).zip(entries.iter().skip(first as usize)) {
                let begin = position * each;
                let (start, end) = (own.start.max(begin), own.end.min(begin + each));
                if start >= end {
                    break;
                }
                pieces.push(((*name).clone(), start - begin..end - begin));
            }
        }
        pieces
    };
    Ok((0..slot.split.map_or(1, |split| split.members)).map(of_member).collect())
}

/// A note about tensors that nobody reads.
fn unused(run: &Run, shards: &Shards, family: Option<&str>) -> Option<String> {
    let slots = run.program().values.iter().filter(|value| value.kind == ValueKind::Parameters);
    let slots = slots.flat_map(|value| &value.tensors);
    let known: BTreeSet<String> = slots
        .flat_map(|slot| match family {
            Some(family) => names::saved(family, &slot.name, slot.undivided().shape.first().copied().unwrap_or(1))
                .map_or_else(Vec::new, |saved| saved.names.concat()),
            None => vec![slot.name.clone()],
        })
        .collect();
    // A head that shares the embedding may be saved again, and so may masks; a checkpoint also has what the optimizer
    // keeps.
    let is_silent = |name: &&str| {
        let of_optimizer =
            name.rsplit_once('.').is_some_and(|(of, number)| known.contains(of) && number.parse::<u8>().is_ok());
        *name == "lm_head.weight"
            || name.ends_with(".attn.bias")
            || name.ends_with(".rotary_emb.inv_freq")
            || of_optimizer
    };
    let mut left = shards.names().filter(|name| !known.contains(*name)).filter(|name| !is_silent(name));
    let first = left.next()?;
    let more = left.count();
    let others = match more {
        0 => String::new(),
        1 => " and another tensor".to_owned(),
        _ => format!(" and {more} more tensors"),
    };
    Some(format!("{} also holds `{first}`{others}, which the model does not have", shards.path.display()))
}

/// What a rank says of what it found.
#[derive(Serialize, Deserialize)]
struct Refusal {
    rank: usize,
    message: String,
}

/// What was found, if all ranks found it well.
fn together<T>(run: &Run, own: Result<T, WeightsError>) -> Result<T, WeightsError> {
    let Some(mailbox) = run.mailbox() else { return own };
    let rank = mailbox.rank.index();
    let word = own.as_ref().err().map(|error| Refusal { rank, message: error.to_string() });
    let words = mailbox.gather(serde_json::to_vec(&word).unwrap_or_default())?;
    let words = words.iter().filter_map(|word| serde_json::from_slice::<Option<Refusal>>(word).ok()?);
    let verdict = mailbox.spread(serde_json::to_vec(&words.min_by_key(|word| word.rank)).unwrap_or_default())?;
    match (serde_json::from_slice::<Option<Refusal>>(&verdict).unwrap_or_default(), own) {
        (None, own) => own,
        (Some(refusal), own) => {
            let told = WeightsError::Rank { rank: Rank::from_index(refusal.rank), message: refusal.message };
            Err(own.err().filter(|_| refusal.rank == rank).unwrap_or(told))
        }
    }
}
