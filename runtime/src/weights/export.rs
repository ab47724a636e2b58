//! Export: the weights of a checkpoint in files that other tools load, under the names of Hugging Face.
//!
//! A folder is complete or absent: it is written under another name, and renamed when all files are complete.

use super::{WeightsError, family, lora, names};
use crate::checkpoint::{NamedTensor, State};
use crate::values::numbers::{decode, encode};
use half::f16;
use pipe_ir::graph::DType;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

/// The type of the elements that are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportDType {
    /// IEEE double precision.
    F64,
    /// IEEE single precision.
    F32,
    /// The upper half of a number in single precision.
    BF16,
    /// IEEE half precision.
    F16,
}

impl ExportDType {
    /// What a `config.json` says that its weights are; single precision if it says nothing.
    fn of_config(config: &serde_json::Value) -> Self {
        let said = config.get("dtype").or_else(|| config.get("torch_dtype")).and_then(serde_json::Value::as_str);
        match said {
            Some("float64") => Self::F64,
            Some("bfloat16") => Self::BF16,
            Some("float16") => Self::F16,
            _ => Self::F32,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::F64 => "float64",
            Self::F32 => "float32",
            Self::BF16 => "bfloat16",
            Self::F16 => "float16",
        }
    }

    const fn in_file(self) -> Dtype {
        match self {
            Self::F64 => Dtype::F64,
            Self::F32 => Dtype::F32,
            Self::BF16 => Dtype::BF16,
            Self::F16 => Dtype::F16,
        }
    }

    const fn bytes(self) -> u64 {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::BF16 | Self::F16 => 2,
        }
    }

    /// Elements of a type as elements of this one.
    fn encode(self, from: DType, bytes: &[u8]) -> Vec<u8> {
        let numbers = || decode(from, bytes).into_iter();
        match (self, from) {
            (Self::F32, DType::F32) | (Self::F64, DType::F64) | (Self::BF16, DType::BF16) => bytes.to_vec(),
            (Self::F64, _) => encode(DType::F64, numbers()),
            (Self::F32, _) => encode(DType::F32, numbers()),
            (Self::BF16, _) => encode(DType::BF16, numbers()),
            (Self::F16, _) => numbers().flat_map(|number| f16::from_f64(number).to_le_bytes()).collect(),
        }
    }
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exported {
    /// The files, in the folder.
    pub files: Vec<String>,
    /// Tensors in them.
    pub tensors: usize,
    /// Their bytes.
    pub bytes: u64,
    /// The type of their elements.
    pub dtype: &'static str,
}

/// A tensor to be written: its name, its shape, and which bytes of a tensor of the checkpoint it is.
struct Entry<'s> {
    name: String,
    shape: Vec<usize>,
    from: DType,
    bytes: &'s [u8],
}

/// Writes the weights of a checkpoint, with their updates of low rank, and its `config.json`, into a new
/// folder. Files of weights have at most `most_bytes`; where there are several, an index says which has
/// what. The optimizer's state goes to a file of its own if it is wanted.
///
/// # Errors
/// If the model is none that Hugging Face knows, the folder is there already, or files cannot be written.
pub fn export(
    state: &State,
    folder: &Path,
    dtype: Option<ExportDType>,
    most_bytes: u64,
    with_optimizer: bool,
) -> Result<Exported, WeightsError> {
    let unfit = WeightsError::Unnamed;
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| WeightsError::Io { path, source }
    };
    let config = state.config.as_deref().ok_or_else(|| {
        unfit(
            "the checkpoint is not of a model from a `config.json`, so that its names elsewhere are not known"
                .to_owned(),
        )
    })?;
    let config: serde_json::Value = serde_json::from_str(config)
        .map_err(|error| unfit(format!("the `config.json` of the checkpoint is not valid: {error}")))?;
    let of = family(&config.to_string()).ok_or_else(|| unfit("the `config.json` names no `model_type`".to_owned()))?;
    if folder.exists() {
        return Err(WeightsError::Taken { folder: folder.to_owned() });
    }
    let dtype = dtype.unwrap_or_else(|| ExportDType::of_config(&config));
    // Older versions of weights, which some schedules keep, have an `@` in their name.
    let weights = state.tensors.iter().filter(|tensor| !is_state(&tensor.name) && !tensor.name.contains('@'));
    let weights = lora::merged(weights);
    let entries: Result<Vec<Vec<Entry<'_>>>, _> =
        weights.iter().map(|tensor| entries(&of, tensor).map_err(unfit)).collect();
    let entries: Vec<Entry<'_>> = entries?.into_iter().flatten().collect();
    let unfinished_folder = unfinished(folder);
    drop(fs::remove_dir_all(&unfinished_folder));
    fs::create_dir_all(&unfinished_folder).map_err(io(&unfinished_folder))?;
    let written = write(&unfinished_folder, &entries, dtype, most_bytes).and_then(|mut exported| {
        let text = with_dtype(config, dtype);
        let path = unfinished_folder.join("config.json");
        fs::write(&path, text).map_err(io(&path))?;
        exported.files.insert(0, "config.json".to_owned());
        if with_optimizer {
            let name = "optimizer.safetensors";
            let state = state.tensors.iter().filter(|tensor| is_state(&tensor.name));
            save(&unfinished_folder.join(name), state.map(plain).collect())?;
            exported.files.push(name.to_owned());
        }
        fs::rename(&unfinished_folder, folder).map_err(io(folder))?;
        Ok(exported)
    });
    if written.is_err() {
        drop(fs::remove_dir_all(&unfinished_folder));
    }
    written
}

/// Whether a tensor of a checkpoint belongs to the optimizer: its name ends in the number of a moment.
fn is_state(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The name of a folder until it is complete.
fn unfinished(folder: &Path) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".{name}.unfinished"))
}

/// What a tensor becomes.
fn entries<'s>(family: &str, tensor: &'s NamedTensor) -> Result<Vec<Entry<'s>>, String> {
    let shape: Vec<usize> = tensor.ty.shape.iter().map(|size| *size as usize).collect();
    let first = tensor.ty.shape.first().copied().unwrap_or(1);
    let saved = names::saved(family, &tensor.name, first)
        .ok_or_else(|| format!("what `{}` is called in a model of the type `{family}` is not known", tensor.name))?;
    let each = tensor.data.len() / saved.names.len();
    let shape = if saved.is_by_expert { shape[1..].to_vec() } else { shape };
    let parts = saved.names.into_iter().zip(tensor.data.chunks_exact(each));
    let entry = |(mut names, bytes): (Vec<String>, &'s [u8])| Entry {
        name: names.swap_remove(0),
        shape: shape.clone(),
        from: tensor.ty.dtype,
        bytes,
    };
    Ok(parts.map(entry).collect())
}

/// Writes entries to one file, or to several and an index.
fn write(folder: &Path, entries: &[Entry<'_>], dtype: ExportDType, most: u64) -> Result<Exported, WeightsError> {
    let size = |entry: &Entry<'_>| entry.shape.iter().product::<usize>() as u64 * dtype.bytes();
    let mut files: Vec<Vec<&Entry<'_>>> = vec![Vec::new()];
    let mut filled = 0;
    for entry in entries {
        if filled > 0 && filled + size(entry) > most {
            files.push(Vec::new());
            filled = 0;
        }
        filled += size(entry);
        files.last_mut().into_iter().for_each(|file| file.push(entry));
    }
    let count = files.len();
    let name = |number: usize| match count {
        1 => "model.safetensors".to_owned(),
        _ => format!("model-{:05}-of-{count:05}.safetensors", number + 1),
    };
    let mut index = BTreeMap::new();
    for (number, file) in files.iter().enumerate() {
        let tensors = file.iter().map(|entry| {
            index.insert(entry.name.clone(), name(number));
            (entry.name.clone(), entry.shape.clone(), dtype.in_file(), dtype.encode(entry.from, entry.bytes))
        });
        save(&folder.join(name(number)), tensors.collect())?;
    }
    let bytes = entries.iter().map(size).sum();
    let mut written: Vec<String> = (0..count).map(name).collect();
    if count > 1 {
        let text = serde_json::json!({ "metadata": { "total_size": bytes }, "weight_map": index });
        let path = folder.join("model.safetensors.index.json");
        let text = serde_json::to_string_pretty(&text).unwrap_or_default();
        fs::write(&path, text + "\n").map_err(|source| WeightsError::Io { path: path.clone(), source })?;
        written.push("model.safetensors.index.json".to_owned());
    }
    Ok(Exported { files: written, tensors: entries.len(), bytes, dtype: dtype.word() })
}

/// A tensor under its own name and of its own type.
fn plain(tensor: &NamedTensor) -> FileTensor {
    let shape = tensor.ty.shape.iter().map(|size| *size as usize).collect();
    let dtype = if tensor.ty.dtype == DType::F64 { Dtype::F64 } else { Dtype::F32 };
    (tensor.name.clone(), shape, dtype, tensor.data.clone())
}

/// The name, the shape, the type and the bytes of a tensor in a file.
type FileTensor = (String, Vec<usize>, Dtype, Vec<u8>);

fn save(path: &Path, tensors: Vec<FileTensor>) -> Result<(), WeightsError> {
    let malformed =
        |error: &dyn std::fmt::Display| WeightsError::Malformed { path: path.to_owned(), reason: error.to_string() };
    let views = tensors.iter().map(|(name, shape, dtype, bytes)| {
        TensorView::new(*dtype, shape.clone(), bytes).map(|view| (name, view)).map_err(|error| malformed(&error))
    });
    let views: Vec<_> = views.collect::<Result<_, _>>()?;
    // What transformers asks for when it loads a file.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let io = |source| WeightsError::Io { path: path.to_owned(), source };
    // The library makes files that nobody else may read; one that is there keeps what others may do with it.
    fs::File::create(path).map_err(io)?;
    serialize_to_file(views, Some(metadata), path).map_err(|error| malformed(&error))
}

/// The `config.json`, with the type of the written weights.
fn with_dtype(mut config: serde_json::Value, dtype: ExportDType) -> String {
    if let Some(object) = config.as_object_mut() {
        let key = if object.contains_key("torch_dtype") { "torch_dtype" } else { "dtype" };
        object.insert(key.to_owned(), dtype.word().into());
    }
    serde_json::to_string_pretty(&config).unwrap_or_default() + "\n"
}
