//! Files: a checkpoint, or a rank's part of one, as the bytes of a safetensors file.

use super::{NamedTensor, Piece, State};
use pipe_ir::graph::{DType, TensorType};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use std::collections::{BTreeMap, HashMap};

/// A checkpoint as the bytes of its file.
///
/// # Errors
/// If a tensor has not as many elements as its shape says.
pub fn to_bytes(state: &State) -> Result<Vec<u8>, String> {
    let header = Header { format: FORMAT.to_owned(), step: state.step, seed: state.seed, parts: BTreeMap::new() };
    let tensors = state.tensors.iter().map(|tensor| (tensor.name.as_str(), &tensor.ty, tensor.data.as_slice()));
    in_file(&header, tensors)
}

/// A rank's part of a checkpoint as the bytes of its file.
pub(super) fn shard_to_bytes((step, seed): (u64, u64), pieces: &[Piece]) -> Result<Vec<u8>, String> {
    let parts = pieces.iter().filter(|piece| !piece.is_whole());
    let parts = parts.map(|piece| {
        (piece.entry(), Part { of: piece.name.clone(), shape: piece.whole.shape.clone(), from: piece.from as u64 })
    });
    let header = Header { format: SHARD_FORMAT.to_owned(), step, seed, parts: parts.collect() };
    let named: Vec<(String, TensorType)> = pieces.iter().map(|piece| (piece.entry(), piece.ty())).collect();
    let tensors = named.iter().zip(pieces).map(|((name, ty), piece)| (name.as_str(), ty, piece.data.as_slice()));
    in_file(&header, tensors)
}

fn in_file<'a>(
    header: &Header,
    tensors: impl Iterator<Item = (&'a str, &'a TensorType, &'a [u8])>,
) -> Result<Vec<u8>, String> {
    let header = serde_json::to_string(header).map_err(|error| error.to_string())?;
    // One entry only: the library writes several in the order of a hash map, and equal states give equal files.
    let metadata = HashMap::from([(HEADER.to_owned(), header)]);
    let views = tensors.map(|(name, ty, data)| {
        let shape = ty.shape.iter().map(|size| *size as usize).collect();
        let view = TensorView::new(type_in_file(ty.dtype), shape, data);
        view.map(|view| (name, view)).map_err(|error| format!("{name}: {error}"))
    });
    let views: Vec<_> = views.collect::<Result<_, _>>()?;
    serialize(views, Some(metadata)).map_err(|error| error.to_string())
}

impl Piece {
    fn is_whole(&self) -> bool {
        self.data.len() == self.whole.bytes().to_usize()
    }

    /// What it is called in a file: the name of the tensor, with the numbers that it has where these are not all.
    pub(super) fn entry(&self) -> String {
        let size = self.whole.dtype.bytes().to_usize();
        let (from, end) = (self.from / size, (self.from + self.data.len()) / size);
        if self.is_whole() { self.name.clone() } else { format!("{}[{from}..{end}]", self.name) }
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
#[derive(serde::Serialize, serde::Deserialize)]
struct Header {
    format: String,
    step: u64,
    seed: u64,
    /// Entries that are not whole tensors.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    parts: BTreeMap<String, Part>,
}

/// What an entry is a part of.
#[derive(serde::Serialize, serde::Deserialize)]
struct Part {
    of: String,
    /// Of the whole tensor.
    shape: Vec<u64>,
    /// Its first byte in the tensor.
    from: u64,
}

const HEADER: &str = "pipec";
/// What a file of a checkpoint says that it is.
pub const FORMAT: &str = "pipec.checkpoint/1";
const SHARD_FORMAT: &str = "pipec.shard/1";

/// Reads the bytes of a file that [`to_bytes`] made.
///
/// # Errors
/// If they are not a checkpoint of ours, in plain words.
pub fn from_bytes(bytes: &[u8]) -> Result<State, String> {
    let Header { step, seed, .. } = header(bytes, FORMAT)?;
    let tensor = |(name, ty, data): Entry<'_>| NamedTensor { name, ty, data: data.to_vec() };
    let mut tensors: Vec<NamedTensor> = entries(bytes, &|_| true)?.into_iter().map(tensor).collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(State { step, seed, tensors })
}

/// Reads a rank's part of a checkpoint: its step and seed, and what is wanted of the pieces.
pub(super) fn shard_from_bytes(
    bytes: &[u8],
    wanted: &dyn Fn(&str) -> bool,
) -> Result<((u64, u64), Vec<Piece>), String> {
    let Header { step, seed, parts, .. } = header(bytes, SHARD_FORMAT)?;
    let of = |entry: &str| parts.get(entry).map_or_else(|| wanted(entry), |part| wanted(&part.of));
    let piece = |(entry, ty, data): Entry<'_>| {
        let data = data.to_vec();
        let Some(Part { of, shape, from }) = parts.get(&entry) else {
            return Ok(Piece { name: entry, whole: ty, from: 0, data });
        };
        let whole = TensorType { dtype: ty.dtype, shape: shape.clone() };
        let bytes = shape.iter().try_fold(ty.dtype.bytes().0, |product, size| product.checked_mul(*size));
        let end = from.checked_add(data.len() as u64);
        if bytes.zip(end).is_none_or(|(bytes, end)| end > bytes) || from % ty.dtype.bytes().0 != 0 {
            return Err(format!("`{entry}` is not inside `{of}`"));
        }
        Ok(Piece { name: of.clone(), whole, from: *from as usize, data })
    };
    let pieces: Result<_, _> = entries(bytes, &of)?.into_iter().map(piece).collect();
    Ok(((step, seed), pieces?))
}

/// What a file says of itself, if it has this format.
fn header(bytes: &[u8], format: &str) -> Result<Header, String> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
    let text = metadata.metadata().as_ref().and_then(|metadata| metadata.get(HEADER));
    let text = text.ok_or_else(|| format!("its metadata has no `{HEADER}`"))?;
    let header: Header = serde_json::from_str(text).map_err(|error| format!("`{HEADER}`: {error}"))?;
    match header.format.as_str() {
        own if own == format => Ok(header),
        SHARD_FORMAT => Err("it is one rank's part of a checkpoint: its index names all parts".to_owned()),
        other => Err(format!("its format is `{other}`, not `{format}`")),
    }
}

/// A name in a file, with what it has.
type Entry<'a> = (String, TensorType, &'a [u8]);

/// What is wanted of the tensors of a file.
fn entries<'a>(bytes: &'a [u8], wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Entry<'a>>, String> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let mut entries = Vec::new();
    for (name, view) in file.tensors() {
        let known = DType::WORDS.into_iter().find(|(_, dtype)| type_in_file(*dtype) == view.dtype());
        let Some((_, dtype)) = known.filter(|(_, dtype)| dtype.is_float()) else {
            return Err(format!("`{name}` has elements of type {:?}, not f32 or f64", view.dtype()));
        };
        let shape = view.shape().iter().map(|size| *size as u64).collect();
        if wanted(&name) {
            entries.push((name, TensorType { dtype, shape }, view.data()));
        }
    }
    Ok(entries)
}
