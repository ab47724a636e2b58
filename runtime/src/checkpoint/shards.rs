//! Shards: a checkpoint of several ranks. Each writes what its devices are the first to hold; the
//! index is written last, by the first rank, and until it is in its place the checkpoint does not
//! exist.
//!
//! The index has the form of those of Hugging Face: `weight_map` says in which file a tensor is.
//! Names of shards are never used twice.

use super::file::{self, About, Shard, Unsound};
use super::folder::{INDEX_SUFFIX, put};
use super::home::Home;
use super::{CheckpointError, MOST_BYTES, Piece, State, assemble, io_error, malformed, unsound};
use crate::{checksum, regular_file};
use pipe_distributed::{Mailbox, Rank, RunError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The file of an index.
#[derive(Clone, Serialize, Deserialize)]
struct Index {
    metadata: Metadata,
    weight_map: BTreeMap<String, String>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Metadata {
    format: String,
    #[serde(flatten)]
    about: About,
    /// Bytes of all tensors.
    total_size: u64,
    /// By file: the checksum that stands for all of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    checksums: BTreeMap<String, String>,
    /// Of the index without this one, as JSON without spaces.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    checksum: String,
}

const FORMAT: &str = "pipec.checkpoint.index/2";
/// That of an index without checksums.
const FORMAT_1: &str = "pipec.checkpoint.index/1";
/// In the middle of the names of shards.
const MARK: &str = ".shard-";

impl Index {
    fn new(about: &About) -> Self {
        let (about, checksums, checksum) = (about.clone(), BTreeMap::new(), String::new());
        let metadata = Metadata { format: FORMAT.to_owned(), about, total_size: 0, checksums, checksum };
        Self { metadata, weight_map: BTreeMap::new() }
    }

    fn has_checksums(&self) -> bool {
        self.metadata.format != FORMAT_1
    }

    fn checksum(&self) -> String {
        let metadata = Metadata { checksum: String::new(), ..self.metadata.clone() };
        let index = Self { metadata, weight_map: self.weight_map.clone() };
        checksum::of(serde_json::to_string(&index).unwrap_or_default().as_bytes())
    }
}

/// What a rank says of its shard.
#[derive(Serialize, Deserialize)]
enum Word {
    /// It is written: names in it, their bytes, and the checksum of the file.
    Written(Vec<String>, u64, String),
    /// It is not, and why.
    Failed(String),
}

/// Whether a file has the name of a shard.
pub(super) fn is_shard(name: &str) -> bool {
    name.starts_with("step-") && name.contains(MARK) && name.ends_with(".safetensors")
}

/// Saves the pieces of all ranks.
pub(super) fn save(
    mailbox: &Mailbox,
    home: &Home,
    about: &About,
    pieces: Result<Vec<Piece>, RunError>,
) -> Result<PathBuf, CheckpointError> {
    let step = about.step;
    // The first rank knows whether the folder is still the run's, and makes names that no earlier save had.
    let own = home.check();
    let word: Result<String, String> = match &own {
        Ok(()) => Ok(home.next_save()),
        Err(error) => Err(error.to_string()),
    };
    let word = mailbox.spread(serde_json::to_vec(&word).unwrap_or_default())?;
    own?;
    let of_first = |message: String| CheckpointError::Rank { rank: Rank::FIRST, message };
    let save: Result<String, String> = serde_json::from_slice(&word).map_err(|error| of_first(error.to_string()))?;
    let (save, folder) = (save.map_err(of_first)?, home.folder());
    let name = |rank: usize| format!("step-{step:08}{MARK}{rank}-of-{}.{save}.safetensors", mailbox.n_ranks);
    let write = || {
        let pieces = pieces?;
        if pieces.is_empty() {
            return Ok((pieces, String::new()));
        }
        fs::create_dir_all(folder).map_err(io_error(folder))?;
        let path = folder.join(name(mailbox.rank.index()));
        let (bytes, checksum) = file::shard_to_bytes(about, &pieces).map_err(malformed(&path))?;
        put(&path, &bytes)?;
        Ok::<_, CheckpointError>((pieces, checksum))
    };
    let word = match write() {
        Ok((pieces, checksum)) => Word::Written(
            pieces.iter().map(Piece::entry).collect(),
            pieces.iter().map(|piece| piece.data.len() as u64).sum(),
            checksum,
        ),
        Err(error) => Word::Failed(error.to_string()),
    };
    let words = mailbox.gather(serde_json::to_vec(&word).unwrap_or_default())?;
    let path = home.file(step, INDEX_SUFFIX);
    let conclude = || {
        let mut index = Index::new(about);
        for (rank, word) in words.iter().enumerate() {
            let name = name(rank);
            let failed = |message: String| CheckpointError::Rank { rank: Rank::from_index(rank), message };
            match serde_json::from_slice(word).map_err(|error| failed(error.to_string()))? {
                Word::Failed(message) => return Err(failed(message)),
                Word::Written(entries, ..) if !entries.is_empty() && !folder.join(&name).exists() => {
                    let folder = folder.display();
                    return Err(failed(format!(
                        "rank 0 does not see {name} in {folder}: all ranks need the same folder"
                    )));
                }
                Word::Written(entries, bytes, checksum) => {
                    index.metadata.total_size += bytes;
                    if !entries.is_empty() {
                        index.metadata.checksums.insert(name.clone(), checksum);
                    }
                    index.weight_map.extend(entries.into_iter().map(|entry| (entry, name.clone())));
                }
            }
        }
        index.metadata.checksum = index.checksum();
        let text = serde_json::to_string_pretty(&index).unwrap_or_default();
        home.put(&path, text.as_bytes())?;
        home.prune()
    };
    let own = if mailbox.rank == Rank::FIRST { conclude() } else { Ok(()) };
    let told = own.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let told = mailbox.spread(told.into_bytes())?;
    own?;
    if told.is_empty() {
        return Ok(path);
    }
    Err(of_first(String::from_utf8_lossy(&told).into_owned()))
}

/// Reads an index and what is wanted, from those of its files that have any of that.
pub(super) fn read(path: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<State, CheckpointError> {
    let index = index(path)?;
    let about = &index.metadata.about;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut pieces = Vec::new();
    // Names of parts have their numbers behind them.
    let is_wanted = |entry: &str| wanted(entry) || entry.rsplit_once('[').is_some_and(|(name, _)| wanted(name));
    let needed = index.weight_map.iter().filter(|(entry, _)| is_wanted(entry)).map(|(_, name)| name.clone());
    for name in needed.collect::<BTreeSet<String>>() {
        let path = folder.join(&name);
        let bytes = regular_file::read(&path, MOST_BYTES).map_err(io_error(&path))?;
        let shard: Shard = file::shard_from_bytes(&bytes, wanted).map_err(unsound(&path))?;
        let expected = index.metadata.checksums.get(&name).map_or("", String::as_str);
        if shard.about != *about || shard.checksum != expected {
            return Err(malformed(&path)("it is not of the same save as its index".to_owned()));
        }
        pieces.extend(shard.pieces);
    }
    pieces.sort_by(|a, b| (&a.name, a.split, a.from).cmp(&(&b.name, b.split, b.from)));
    pieces.chunk_by(|a, b| a.name == b.name).try_for_each(are_all).map_err(malformed(path))?;
    let (About { step, seed, origin, config }, is_verified) = (about.clone(), index.has_checksums());
    Ok(State { step, seed, origin, config, is_verified, tensors: assemble(pieces) })
}

/// Whether the pieces of a tensor, in their order, are all of it: those of each member follow each other.
fn are_all(tensor: &[Piece]) -> Result<(), String> {
    let first = &tensor[0];
    let members = first.split.map_or(1, |(split, _)| split.members);
    let each = first.of_member().bytes().to_usize();
    let (mut member, mut end) = (0, 0);
    for piece in tensor {
        if end == each {
            (member, end) = (member + 1, 0);
        }
        let expected = first.split.map(|(split, _)| (split, member));
        if piece.from != end || piece.whole != first.whole || piece.split != expected {
            return Err(format!("the parts of `{}` do not fit together", piece.name));
        }
        end += piece.data.len();
    }
    if u64::from(member) + 1 == members && end == each {
        return Ok(());
    }
    Err(format!("a part of `{}` is missing", first.name))
}

/// The files that an index needs, as far as it can be read: also one that is damaged keeps its files.
pub(super) fn files(path: &Path) -> Result<BTreeSet<String>, CheckpointError> {
    Ok(parsed(path)?.weight_map.into_values().collect())
}

/// An index that is as it was saved.
fn index(path: &Path) -> Result<Index, CheckpointError> {
    let index = parsed(path)?;
    let (found, said) = (index.checksum(), &index.metadata.checksum);
    if index.has_checksums() && found != *said {
        let reason = format!("it has the checksum {found}, and was saved with {said}");
        return Err(unsound(path)(Unsound::Altered(reason)));
    }
    Ok(index)
}

fn parsed(path: &Path) -> Result<Index, CheckpointError> {
    let text = regular_file::read(path, MOST_BYTES).map_err(io_error(path))?;
    let index: Index = serde_json::from_slice(&text).map_err(|error| malformed(path)(error.to_string()))?;
    let format = index.metadata.format.as_str();
    if ![FORMAT, FORMAT_1].contains(&format) {
        return Err(malformed(path)(format!("its format is `{format}`, not `{FORMAT}`")));
    }
    match index.weight_map.values().find(|name| !is_shard(name) || name.contains(['/', '\\'])) {
        Some(name) => Err(malformed(path)(format!("`{name}` is not a file of a checkpoint"))),
        None => Ok(index),
    }
}
