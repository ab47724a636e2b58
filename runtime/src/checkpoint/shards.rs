//! Shards: a checkpoint of several ranks. Each writes what its devices are the first to hold; the index is written last, by the first rank,
//! and until it is in its place the checkpoint does not exist.
//!
//! The index has the form of those of Hugging Face: `weight_map` says in which file a tensor is. Names of shards are never used twice.

use super::folder::{INDEX_SUFFIX, keep_newest, put};
use super::{CheckpointError, Piece, State, assemble, file, io_error, malformed};
use crate::fault::RunError;
use crate::job::Rank;
use crate::job::desk::Desk;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The file of an index.
#[derive(Serialize, Deserialize)]
struct Index {
    metadata: Metadata,
    weight_map: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
struct Metadata {
    format: String,
    step: u64,
    seed: u64,
    /// Bytes of all tensors.
    total_size: u64,
}

const FORMAT: &str = "pipec.checkpoint.index/1";
/// In the middle of the names of shards.
const MARK: &str = ".shard-";

/// What a rank says of its shard.
#[derive(Serialize, Deserialize)]
enum Word {
    /// It is written: names in it, and their bytes.
    Written(Vec<String>, u64),
    /// It is not, and why.
    Failed(String),
}

/// Whether a file has the name of a shard.
pub(super) fn is_shard(name: &str) -> bool {
    name.starts_with("step-") && name.contains(MARK) && name.ends_with(".safetensors")
}

/// Saves the pieces of all ranks.
pub(super) fn save(
    desk: &Desk,
    folder: &Path,
    (step, seed): (u64, u64),
    pieces: Result<Vec<Piece>, RunError>,
) -> Result<PathBuf, CheckpointError> {
    // The first rank's clock and process make names that no earlier save had.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let own = format!("{:x}-{:x}", now.as_nanos(), std::process::id());
    let save = String::from_utf8_lossy(&desk.spread(own.into_bytes())?).into_owned();
    let name = |rank: usize| format!("step-{step:08}{MARK}{rank}-of-{}.{save}.safetensors", desk.n_ranks);
    let write = || {
        let pieces = pieces?;
        if pieces.is_empty() {
            return Ok(pieces);
        }
        fs::create_dir_all(folder).map_err(io_error(folder))?;
        let path = folder.join(name(desk.rank.index()));
        put(&path, &file::shard_to_bytes((step, seed), &pieces).map_err(malformed(&path))?)?;
        Ok::<_, CheckpointError>(pieces)
    };
    let word = match write() {
        Ok(pieces) => Word::Written(
            pieces.iter().map(Piece::entry).collect(),
            pieces.iter().map(|piece| piece.data.len() as u64).sum(),
        ),
        Err(error) => Word::Failed(error.to_string()),
    };
    let words = desk.gather(serde_json::to_vec(&word).unwrap_or_default())?;
    let path = folder.join(format!("step-{step:08}{INDEX_SUFFIX}"));
    let conclude = || {
        let mut metadata = Metadata { format: FORMAT.to_owned(), step, seed, total_size: 0 };
        let mut weight_map = BTreeMap::new();
        for (rank, word) in words.iter().enumerate() {
            let name = name(rank);
            let failed = |message: String| CheckpointError::Rank { rank: Rank::from_index(rank), message };
            match serde_json::from_slice(word).map_err(|error| failed(error.to_string()))? {
                Word::Failed(message) => return Err(failed(message)),
                Word::Written(entries, _) if !entries.is_empty() && !folder.join(&name).exists() => {
                    let folder = folder.display();
                    return Err(failed(format!(
                        "rank 0 does not see {name} in {folder}: all ranks need the same folder"
                    )));
                }
                Word::Written(entries, bytes) => {
                    metadata.total_size += bytes;
                    weight_map.extend(entries.into_iter().map(|entry| (entry, name.clone())));
                }
            }
        }
        let text = serde_json::to_string_pretty(&Index { metadata, weight_map }).unwrap_or_default();
        put(&path, text.as_bytes())?;
        keep_newest(folder)
    };
    let own = if desk.rank == Rank::FIRST { conclude() } else { Ok(()) };
    let told = own.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let told = desk.spread(told.into_bytes())?;
    own?;
    if told.is_empty() {
        return Ok(path);
    }
    Err(CheckpointError::Rank { rank: Rank::FIRST, message: String::from_utf8_lossy(&told).into_owned() })
}

/// The path that the first rank takes, on all of them.
pub(super) fn agreed(
    desk: &Desk,
    own: impl Fn() -> Result<Option<PathBuf>, CheckpointError>,
) -> Result<Option<PathBuf>, CheckpointError> {
    let own = if desk.rank == Rank::FIRST { own()? } else { None };
    let word = own.map(|path| path.into_os_string().into_encoded_bytes()).unwrap_or_default();
    let path = String::from_utf8_lossy(&desk.spread(word)?).into_owned();
    Ok((!path.is_empty()).then(|| PathBuf::from(path)))
}

/// That all ranks have read the same.
pub(super) fn same_step(desk: &Desk, path: &Path, step: u64) -> Result<(), CheckpointError> {
    let first = desk.spread(step.to_le_bytes().to_vec())?;
    if first == step.to_le_bytes() {
        return Ok(());
    }
    Err(malformed(path)(format!("{} reads another step there than rank 0: all ranks need the same folder", desk.rank)))
}

/// Reads an index and what is wanted, from those of its files that have any of that.
pub(super) fn read(path: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<State, CheckpointError> {
    let index = index(path)?;
    let (step, seed) = (index.metadata.step, index.metadata.seed);
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut pieces = Vec::new();
    // Names of parts have their numbers behind them.
    let is_wanted = |entry: &str| wanted(entry) || entry.rsplit_once('[').is_some_and(|(name, _)| wanted(name));
    let needed = index.weight_map.into_iter().filter(|(entry, _)| is_wanted(entry)).map(|(_, name)| name);
    for name in needed.collect::<BTreeSet<String>>() {
        let path = folder.join(&name);
        let bytes = fs::read(&path).map_err(io_error(&path))?;
        let (of, own) = file::shard_from_bytes(&bytes, wanted).map_err(malformed(&path))?;
        if of != (step, seed) {
            return Err(malformed(&path)("it is not of the same save as its index".to_owned()));
        }
        pieces.extend(own);
    }
    pieces.sort_by(|a, b| (&a.name, a.from).cmp(&(&b.name, b.from)));
    for tensor in pieces.chunk_by(|a, b| a.name == b.name) {
        let mut end = 0;
        let whole = &tensor[0].whole;
        for piece in tensor {
            if piece.from != end || piece.whole != *whole {
                return Err(malformed(path)(format!("the parts of `{}` do not fit together", piece.name)));
            }
            end += piece.data.len();
        }
        if end != whole.bytes().to_usize() {
            return Err(malformed(path)(format!("a part of `{}` is missing", tensor[0].name)));
        }
    }
    Ok(State { step, seed, tensors: assemble(pieces) })
}

/// The files that an index needs.
pub(super) fn files(path: &Path) -> Result<BTreeSet<String>, CheckpointError> {
    Ok(index(path)?.weight_map.into_values().collect())
}

fn index(path: &Path) -> Result<Index, CheckpointError> {
    let text = fs::read(path).map_err(io_error(path))?;
    let index: Index = serde_json::from_slice(&text).map_err(|error| malformed(path)(error.to_string()))?;
    let format = &index.metadata.format;
    if format != FORMAT {
        return Err(malformed(path)(format!("its format is `{format}`, not `{FORMAT}`")));
    }
    match index.weight_map.values().find(|name| !is_shard(name) || name.contains(['/', '\\'])) {
        Some(name) => Err(malformed(path)(format!("`{name}` is not a file of a checkpoint"))),
        None => Ok(index),
    }
}
