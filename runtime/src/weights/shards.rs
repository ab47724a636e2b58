//! Files of weights: one safetensors file, or several with an index, as Hugging Face has them. Only
//! what is asked for is read, so files may be larger than memory.

use super::WeightsError;
use crate::regular_file;
use crate::values::numbers::{decode, encode};
use half::f16;
use pipe_ir::graph::DType;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The longest header of a file that is read.
const MOST_HEADER: u64 = 100 << 20;
/// The largest file that is read: 1 TiB.
const MOST_BYTES: u64 = 1 << 40;
/// The longest index that is read.
const MOST_INDEX: u64 = 100 << 20;
/// Elements that are read at once.
const PART: usize = 1 << 20;

/// Files of weights, with what is where.
#[derive(Debug)]
pub struct Shards {
    /// Where they are, for messages.
    pub path: PathBuf,
    files: Vec<(PathBuf, RefCell<File>)>,
    tensors: BTreeMap<String, Place>,
}

/// Where a tensor is.
#[derive(Clone, Debug)]
struct Place {
    file: usize,
    dtype: Dtype,
    shape: Vec<u64>,
    start: u64,
}

impl Shards {
    /// Reads the headers of a file, of all files of an index, or of those in a folder.
    ///
    /// # Errors
    /// If one is not there, is no safetensors file, or is shorter than its header says.
    pub fn open(path: &Path) -> Result<Self, WeightsError> {
        let found = if path.is_dir() { in_folder(path)? } else { path.to_owned() };
        let mut shards = Self { path: found.clone(), files: Vec::new(), tensors: BTreeMap::new() };
        if found.extension().is_some_and(|extension| extension == "json") {
            for file in indexed(&found)? {
                shards.add(&file)?;
            }
        } else {
            shards.add(&found)?;
        }
        Ok(shards)
    }

    fn add(&mut self, path: &Path) -> Result<(), WeightsError> {
        let malformed = |reason: String| WeightsError::Malformed { path: path.to_owned(), reason };
        let io = |source| WeightsError::Io { path: path.to_owned(), source };
        let (mut file, bytes) = regular_file::open(path, MOST_BYTES).map_err(io)?;
        let number = self.files.len();
        for (name, dtype, shape, start) in entries(&mut file, bytes).map_err(malformed)? {
            self.tensors.insert(name, Place { file: number, dtype, shape, start });
        }
        self.files.push((path.to_owned(), RefCell::new(file)));
        Ok(())
    }

    /// The names of all tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The shape of a tensor, if there is one of this name.
    pub fn shape(&self, name: &str) -> Option<&[u64]> {
        self.tensors.get(name).map(|place| place.shape.as_slice())
    }

    /// Whether its elements are numbers that can be read, and what they are called.
    pub(super) fn type_of(&self, name: &str) -> Result<(), String> {
        match self.tensors.get(name).map(|place| place.dtype) {
            Some(Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16) | None => Ok(()),
            Some(other) => Err(format!("{other:?}")),
        }
    }

    /// Some elements of a tensor, as numbers of a type.
    ///
    /// # Errors
    /// If the file cannot be read.
    ///
    /// # Panics
    /// If there is no such tensor, or it has fewer elements.
    pub fn read(&self, name: &str, elements: std::ops::Range<u64>, dtype: DType) -> Result<Vec<u8>, WeightsError> {
        let place = &self.tensors[name];
        assert!(elements.end <= place.shape.iter().product(), "{name} has elements {elements:?}");
        let (path, file) = &self.files[place.file];
        let io = |source| WeightsError::Io { path: path.clone(), source };
        let mut file = file.borrow_mut();
        let size = width(place.dtype);
        file.seek(SeekFrom::Start(place.start + elements.start * size as u64)).map_err(io)?;
        let count = (elements.end - elements.start) as usize;
        let mut numbers = Vec::with_capacity(count * dtype.bytes().to_usize());
        let mut left = count;
        while left > 0 {
            let mut part = vec![0; left.min(PART) * size];
            file.read_exact(&mut part).map_err(io)?;
            left -= left.min(PART);
            match (place.dtype, dtype) {
                (Dtype::F32, DType::F32) | (Dtype::F64, DType::F64) => numbers.extend(part),
                (from, _) => numbers.extend(encode(dtype, widened(from, &part).into_iter())),
            }
        }
        Ok(numbers)
    }
}

/// A tensor of a file: its name, its type, its shape, and its first byte.
pub(crate) type Entry = (String, Dtype, Vec<u64>, u64);

/// The tensors of a safetensors file of so many bytes, in the order of the file, so that messages are the same in every
/// run. Fails with what is wrong with its header, or if it is shorter than that says.
pub(crate) fn entries(file: &mut File, bytes: u64) -> Result<Vec<Entry>, String> {
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|_| "it is shorter than the length of a header".to_owned())?;
    let header = u64::from_le_bytes(length);
    if header > MOST_HEADER || header + 8 > bytes {
        return Err(format!("its header would have {header} bytes, and the file has {bytes}"));
    }
    let mut text = vec![0; header as usize];
    file.read_exact(&mut text).map_err(|error| error.to_string())?;
    let metadata: Metadata = serde_json::from_slice(&text)
        .map_err(|error| format!("its header is not that of a safetensors file: {error}"))?;
    let mut tensors: Vec<_> = metadata.tensors().into_iter().collect();
    tensors.sort_unstable_by_key(|(_, info)| info.data_offsets);
    let entry = |(name, info): (String, &TensorInfo)| {
        let (start, end) = info.data_offsets;
        let end = 8 + header + end as u64;
        if end > bytes {
            return Err(format!("`{name}` ends at byte {end}, and the file has only {bytes}: it is cut off"));
        }
        let shape = info.shape.iter().map(|size| *size as u64).collect();
        Ok((name, info.dtype, shape, 8 + header + start as u64))
    };
    tensors.into_iter().map(entry).collect()
}

/// Bytes of an element.
const fn width(dtype: Dtype) -> usize {
    match dtype {
        Dtype::F64 => 8,
        Dtype::F32 | Dtype::I32 => 4,
        _ => 2,
    }
}

/// Numbers in double precision.
fn widened(from: Dtype, bytes: &[u8]) -> Vec<f64> {
    match from {
        Dtype::F64 => decode(DType::F64, bytes),
        Dtype::F32 => decode(DType::F32, bytes),
        Dtype::BF16 => decode(DType::BF16, bytes),
        Dtype::I32 => decode(DType::I32, bytes),
        _ => bytes.chunks_exact(2).map(|half| f16::from_le_bytes([half[0], half[1]]).to_f64()).collect(),
    }
}

/// The weights in a folder: an index, or the only file.
fn in_folder(folder: &Path) -> Result<PathBuf, WeightsError> {
    let usual = ["model.safetensors.index.json", "model.safetensors"].map(|name| folder.join(name));
    usual.into_iter().find(|path| path.exists()).ok_or_else(|| WeightsError::Absent { folder: folder.to_owned() })
}

/// The files that an index names, each once.
fn indexed(index: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let text =
        regular_file::read(index, MOST_INDEX).map_err(|source| WeightsError::Io { path: index.to_owned(), source })?;
    let malformed = |reason: String| WeightsError::Malformed { path: index.to_owned(), reason };
    let read: Index = serde_json::from_slice(&text)
        .map_err(|error| malformed(format!("it is not an index of safetensors files: {error}")))?;
    let mut names: Vec<String> = read.weight_map.into_values().collect();
    names.sort_unstable();
    names.dedup();
    let folder = index.parent().unwrap_or(Path::new(""));
    let inside = |name: String| {
        let is_plain = !name.is_empty() && !name.contains(['/', '\\']) && name != "..";
        if is_plain {
            Ok(folder.join(name))
        } else {
            Err(malformed(format!("it names `{name}`, which is not a file in the same folder")))
        }
    };
    names.into_iter().map(inside).collect()
}
