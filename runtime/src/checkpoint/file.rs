//! Files: a checkpoint, or a rank's part of one, as the bytes of a safetensors file.
//!
//! The metadata has a checksum of each tensor's bytes, and one of all else that the file says:
//! names, types, shapes, step, origin and those checksums. Files of format 1, which earlier
//! versions wrote, have none.

use super::{NamedTensor, Origin, Piece, State};
use crate::checksum;
use pipe_ir::graph::{DType, TensorType};
use pipe_ir::value::Split;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorView, serialize};
use std::collections::{BTreeMap, HashMap};

/// Why bytes are not taken for a checkpoint.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) enum Unsound {
    /// They have not the form of one.
    Malformed(String),
    /// They have, but are not what was saved.
    Altered(String),
}

impl From<String> for Unsound {
    fn from(reason: String) -> Self {
        Self::Malformed(reason)
    }
}

/// What a save has beside its tensors.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct About {
    pub(super) step: u64,
    pub(super) seed: u64,
    #[serde(default, skip_serializing_if = "Origin::is_unknown")]
    pub(super) origin: Origin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<String>,
}

/// A checkpoint as the bytes of its file.
///
/// # Errors
/// If a tensor has not as many elements as its shape says.
pub fn to_bytes(state: &State) -> Result<Vec<u8>, String> {
    let about =
        About { step: state.step, seed: state.seed, origin: state.origin.clone(), config: state.config.clone() };
    let tensors = state.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.ty.clone(), tensor.data.as_slice()));
    in_file(Header::new(FORMAT, &about), tensors.collect()).map(|(bytes, _)| bytes)
}

/// A rank's part of a checkpoint as the bytes of its file, and the checksum that stands for all of it.
pub(super) fn shard_to_bytes(about: &About, pieces: &[Piece]) -> Result<(Vec<u8>, String), String> {
    let parts = pieces.iter().filter(|piece| !piece.is_whole());
    let parts = parts.map(|piece| {
        let (shape, from) = (piece.whole.shape.clone(), piece.from as u64);
        (piece.entry(), EntryPart { of: piece.name.clone(), shape, from, split: piece.split })
    });
    let header = Header { parts: parts.collect(), ..Header::new(SHARD_FORMAT, about) };
    let entries = pieces.iter().map(|piece| (piece.entry(), piece.ty(), piece.data.as_slice()));
    in_file(header, entries.collect())
}

fn in_file(mut header: Header, entries: Vec<Entry<'_>>) -> Result<(Vec<u8>, String), String> {
    header.checksums = entries.iter().map(|(name, _, data)| (name.clone(), checksum::of(data))).collect();
    let types = entries.iter().map(|(name, ty, _)| (name.as_str(), ty.clone())).collect();
    header.checksum = header.checksum_of_all(&types);
    let text = serde_json::to_string(&header).map_err(|error| error.to_string())?;
    // One entry only: the library writes several in the order of a hash map, and equal states give equal files.
    let metadata = HashMap::from([(HEADER.to_owned(), text)]);
    let views = entries.iter().map(|(name, ty, data)| {
        let shape = ty.shape.iter().map(|size| *size as usize).collect();
        let view = TensorView::new(type_in_file(ty.dtype), shape, data);
        view.map(|view| (name, view)).map_err(|error| format!("{name}: {error}"))
    });
    let views: Vec<_> = views.collect::<Result<_, _>>()?;
    serialize(views, Some(metadata)).map(|bytes| (bytes, header.checksum)).map_err(|error| error.to_string())
}

impl Piece {
    fn is_whole(&self) -> bool {
        self.data.len() == self.whole.bytes().to_usize()
    }

    /// What it is called in a file: the name of the tensor, with the numbers that it has where these are not all.
    pub(super) fn entry(&self) -> String {
        let size = self.whole.dtype.bytes().to_usize();
        let (from, end) = (self.from / size, (self.from + self.data.len()) / size);
        match self.split {
            _ if self.is_whole() => self.name.clone(),
            Some((split, member)) => format!("{}[{from}..{end} of {member}/{}]", self.name, split.members),
            None => format!("{}[{from}..{end}]", self.name),
        }
    }

    fn ty(&self) -> TensorType {
        let numbers = self.data.len() as u64 / self.whole.dtype.bytes().0;
        if self.is_whole() { self.whole.clone() } else { TensorType { dtype: self.whole.dtype, shape: vec![numbers] } }
    }
}

/// What the format calls a type. Its files are little-endian, as are all machines that we compute on.
const fn type_in_file(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::BF16 => Dtype::BF16,
        DType::I32 => Dtype::I32,
    }
}

/// What a checkpoint says of itself, as JSON under [`HEADER`] in the metadata.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Header {
    format: String,
    #[serde(flatten)]
    about: About,
    /// Entries that are not whole tensors.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    parts: BTreeMap<String, EntryPart>,
    /// Of the bytes of each entry.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    checksums: BTreeMap<String, String>,
    /// Of all else, as [`Header::checksum_of_all`] has it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    checksum: String,
}

/// What an entry is a part of.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct EntryPart {
    of: String,
    /// Of the whole tensor.
    shape: Vec<u64>,
    /// Its first byte in the tensor, or in what the member has of it.
    from: u64,
    /// How members divide the tensor, and which one has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    split: Option<(Split, u32)>,
}

const HEADER: &str = "pipec";
/// What a file of a checkpoint says that it is.
pub const FORMAT: &str = "pipec.checkpoint/2";
const SHARD_FORMAT: &str = "pipec.shard/2";
/// The same of files without checksums.
const FORMAT_1: &str = "pipec.checkpoint/1";
const SHARD_FORMAT_1: &str = "pipec.shard/1";

impl Header {
    fn new(format: &str, about: &About) -> Self {
        let (format, about, parts, checksums) = (format.to_owned(), about.clone(), BTreeMap::new(), BTreeMap::new());
        Self { format, about, parts, checksums, checksum: String::new() }
    }

    /// The checksum of the header without this one as JSON, with a line for each entry behind it:
    /// its name and type. It stands for the whole file.
    fn checksum_of_all(&self, types: &BTreeMap<&str, TensorType>) -> String {
        let mut text = serde_json::to_string(&Self { checksum: String::new(), ..self.clone() }).unwrap_or_default();
        for (name, ty) in types {
            text.push_str(&format!("\n{name}: {ty}"));
        }
        checksum::of(text.as_bytes())
    }
}

/// Reads the bytes of a file that [`to_bytes`] made, or an earlier version.
///
/// # Errors
/// If they are not a checkpoint of ours, or not what was saved, in plain words.
pub fn from_bytes(bytes: &[u8]) -> Result<State, String> {
    state_from_bytes(bytes, &|_| true).map_err(|error| error.to_string())
}

/// What is wanted of the tensors of a file.
pub(super) fn state_from_bytes(bytes: &[u8], wanted: &dyn Fn(&str) -> bool) -> Result<State, Unsound> {
    let opened = Opened::new(bytes, [FORMAT, FORMAT_1])?;
    let tensor = |(name, ty, data): Entry<'_>| NamedTensor { name, ty, data: data.to_vec() };
    let mut tensors: Vec<NamedTensor> = opened.entries(wanted)?.into_iter().map(tensor).collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let About { step, seed, origin, config } = opened.header.about.clone();
    Ok(State { step, seed, origin, config, is_verified: opened.has_checksums(), tensors })
}

/// A rank's part of a checkpoint.
pub(super) struct Shard {
    pub(super) about: About,
    /// It stands for the whole file; empty where it has none.
    pub(super) checksum: String,
    /// What is wanted.
    pub(super) pieces: Vec<Piece>,
}

/// Reads a rank's part of a checkpoint.
pub(super) fn shard_from_bytes(bytes: &[u8], wanted: &dyn Fn(&str) -> bool) -> Result<Shard, Unsound> {
    let opened = Opened::new(bytes, [SHARD_FORMAT, SHARD_FORMAT_1])?;
    let parts = &opened.header.parts;
    let of = |entry: &str| parts.get(entry).map_or_else(|| wanted(entry), |part| wanted(&part.of));
    let piece = |(entry, ty, data): Entry<'_>| {
        let data = data.to_vec();
        let Some(EntryPart { of, shape, from, split }) = parts.get(&entry) else {
            return Ok(Piece { name: entry, whole: ty, from: 0, split: None, data });
        };
        if !split.is_none_or(|split| can_divide(shape, split)) {
            return Err(format!("`{entry}` is no part of `{of}`"));
        }
        let whole = TensorType { dtype: ty.dtype, shape: shape.clone() };
        let has_size = shape.iter().try_fold(ty.dtype.bytes().0, |product, size| product.checked_mul(*size)).is_some();
        let end = from.checked_add(data.len() as u64);
        let piece = Piece { name: of.clone(), whole, from: *from as usize, split: *split, data };
        let is_inside = has_size && end.is_some_and(|end| end <= piece.of_member().bytes().0);
        if !is_inside || from % ty.dtype.bytes().0 != 0 {
            return Err(format!("`{entry}` is not inside `{of}`"));
        }
        Ok(piece)
    };
    let pieces: Result<_, _> = opened.entries(&of)?.into_iter().map(piece).collect();
    Ok(Shard { about: opened.header.about.clone(), checksum: opened.header.checksum.clone(), pieces: pieces? })
}

/// Whether a member of those that divide a tensor can have a part of it.
fn can_divide(shape: &[u64], (split, member): (Split, u32)) -> bool {
    let parts = split.blocks.checked_mul(split.members).filter(|parts| *parts > 0);
    let size = shape.get(split.axis as usize).and_then(|size| size.checked_add(split.padding));
    let is_padded = split.padding == 0 || split.axis == 0 && split.blocks == 1 && split.padding < split.members;
    is_padded
        && u64::from(member) < split.members
        && parts.zip(size).is_some_and(|(parts, size)| size.is_multiple_of(parts))
}

/// A name in a file, with what it has.
type Entry<'a> = (String, TensorType, &'a [u8]);

/// A file whose header is sound.
struct Opened<'a> {
    bytes: &'a [u8],
    header: Header,
    types: BTreeMap<String, TensorType>,
}

impl<'a> Opened<'a> {
    /// If it has the first of these formats, or the second, which is that without checksums.
    fn new(bytes: &'a [u8], [format, without]: [&str; 2]) -> Result<Self, Unsound> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
        let text = metadata.metadata().as_ref().and_then(|metadata| metadata.get(HEADER));
        let text = text.ok_or_else(|| format!("its metadata has no `{HEADER}`"))?;
        let header: Header = serde_json::from_str(text).map_err(|error| format!("`{HEADER}`: {error}"))?;
        match header.format.as_str() {
            own if own == format || own == without => {}
            SHARD_FORMAT | SHARD_FORMAT_1 => {
                return Err("it is one rank's part of a checkpoint: its index names all parts".to_owned().into());
            }
            other => return Err(format!("its format is `{other}`, not `{format}`").into()),
        }
        let opened = Self { bytes, types: types(&metadata)?, header };
        if opened.has_checksums() {
            let types = opened.types.iter().map(|(name, ty)| (name.as_str(), ty.clone())).collect();
            let found = opened.header.checksum_of_all(&types);
            if found != opened.header.checksum {
                let said = &opened.header.checksum;
                return Err(Unsound::Altered(format!(
                    "its header has the checksum {found}, and was saved with {said}"
                )));
            }
        }
        Ok(opened)
    }

    fn has_checksums(&self) -> bool {
        ![FORMAT_1, SHARD_FORMAT_1].contains(&self.header.format.as_str())
    }

    /// What is wanted of its tensors, and found to be as it was saved.
    fn entries(&self, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Entry<'a>>, Unsound> {
        let file = SafeTensors::deserialize(self.bytes).map_err(|error| error.to_string())?;
        let mut entries = Vec::new();
        for (name, view) in file.tensors() {
            if !wanted(&name) {
                continue;
            }
            if self.has_checksums() {
                let (found, said) = (checksum::of(view.data()), self.header.checksums.get(&name));
                if said != Some(&found) {
                    let said = said.map_or("none", String::as_str);
                    let reason =
                        format!("the numbers of `{name}` have the checksum {found}, and were saved with {said}");
                    return Err(Unsound::Altered(reason));
                }
            }
            if let Some(ty) = self.types.get(&name) {
                entries.push((name, ty.clone(), view.data()));
            }
        }
        Ok(entries)
    }
}

/// The types of all tensors of a file.
fn types(metadata: &Metadata) -> Result<BTreeMap<String, TensorType>, Unsound> {
    let of = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
        let known = DType::ALL.into_iter().find(|dtype| type_in_file(*dtype) == info.dtype);
        let Some(dtype) = known.filter(|dtype| dtype.is_float()) else {
            return Err(format!("`{name}` has elements of type {:?}, not f32 or f64", info.dtype).into());
        };
        let shape = info.shape.iter().map(|size| *size as u64).collect();
        Ok((name, TensorType { dtype, shape }))
    };
    metadata.tensors().into_iter().map(of).collect()
}
