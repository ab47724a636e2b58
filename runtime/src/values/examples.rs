//! Examples: files that have a row for each example, of each data tensor. Row i of all of them is example i.
//!
//! Rows are read where they lie when a step needs them, so files may be larger than memory.

use super::arrays::{Array, of_numpy, of_safetensors};
use super::error::DataError;
use super::numbers::encode;
use super::tokens::{LOOKED_AT, PART};
use pipe_ir::graph::{DType, TensorType};
use pipe_ir::training::DataSource;
use pipe_ir::value::TensorSlot;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// What a file is that can be opened.
const NOUN: &str = "a file of examples";

/// A data tensor that is filled.
pub(super) struct Wanted {
    pub(super) name: String,
    /// Of a whole microbatch.
    pub(super) ty: TensorType,
    /// Below what its indices must stay, if it has indices.
    pub(super) bound: Option<u64>,
}

/// Examples of open files.
#[derive(Debug)]
pub(super) struct Examples {
    tensors: BTreeMap<String, Array>,
    /// How many there are.
    pub(super) count: u64,
}

impl Examples {
    /// Opens the files of these data tensors, and looks whether they fit.
    ///
    /// # Errors
    /// If a file cannot be read, lacks a tensor, or has one of another type or shape, or if files have different
    /// numbers of examples.
    pub(super) fn open(source: &DataSource, root: &Path, wanted: &[Wanted]) -> Result<Self, DataError> {
        let mut tensors = BTreeMap::new();
        let mut first: Option<(&str, u64)> = None;
        for tensor in wanted {
            let (path, array) = array_of(source, root, &tensor.name)?;
            let count = fits(&path, &array, tensor)?;
            match first {
                Some((name, other)) if other != count => {
                    let unfit = Unfit { path: &path };
                    return Err(unfit.because(
                        format!("`{}` has {}, and `{name}` has {other}", tensor.name, examples(count)),
                        "row i of each is example i: take files of the same examples",
                    ));
                }
                Some(_) => {}
                None => first = Some((&tensor.name, count)),
            }
            look_at(&path, &array, tensor)?;
            tensors.insert(tensor.name.clone(), array);
        }
        Ok(Self { tensors, count: first.map_or(0, |(_, count)| count) })
    }

    /// Fills a tensor with these examples, one row each.
    pub(super) fn fill(
        &self,
        slot: &TensorSlot,
        examples: impl Iterator<Item = u64>,
        out: &mut [u8],
    ) -> io::Result<()> {
        let Some(array) = self.tensors.get(&slot.name) else { return Ok(()) };
        let dtype = slot.ty.dtype;
        let numbers: u64 = slot.ty.shape.iter().skip(1).product();
        let each = (numbers * dtype.bytes().0) as usize;
        let mut row = vec![0; (numbers * array.element.bytes()) as usize];
        for (out, example) in out.chunks_exact_mut(each.max(1)).zip(examples) {
            array.read(example * numbers, &mut row)?;
            let elements = row.chunks_exact(array.element.bytes() as usize);
            let numbers = elements.map(|bytes| match dtype {
                DType::I32 => f64::from(whole(array, bytes)),
                DType::F32 | DType::F64 | DType::BF16 => array.element.decode(bytes),
            });
            out.copy_from_slice(&encode(dtype, numbers));
        }
        Ok(())
    }

    /// Tells files apart.
    pub(super) fn identity(&self) -> Option<String> {
        let mut known: Vec<(&Array, String)> = Vec::new();
        let mut words = Vec::new();
        for (name, array) in &self.tensors {
            let of_file = known.iter().find(|(other, _)| std::sync::Arc::ptr_eq(&other.file, &array.file));
            let identity = match of_file {
                Some((_, identity)) => identity.clone(),
                None => array.file.identity()?,
            };
            known.push((array, identity.clone()));
            words.push(format!("{name}: {identity}"));
        }
        Some(words.join(", "))
    }
}

/// A whole number; one that 32 bits do not hold becomes what no table has.
fn whole(array: &Array, bytes: &[u8]) -> i32 {
    let number = array.element.decode(bytes);
    if (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number) { number as i32 } else { i32::MIN }
}

/// A file that does not fit.
struct Unfit<'a> {
    path: &'a Path,
}

impl Unfit<'_> {
    fn because(&self, reason: String, help: impl Into<String>) -> DataError {
        DataError::Unfit { path: self.path.to_owned(), reason, help: help.into() }
    }
}

fn examples(count: u64) -> String {
    if count == 1 { "1 example".to_owned() } else { format!("{count} examples") }
}

/// The array of a data tensor, and the path of its file.
fn array_of(source: &DataSource, root: &Path, name: &str) -> Result<(PathBuf, Array), DataError> {
    let own = match source {
        DataSource::Examples(path) => Some(path),
        DataSource::ExamplesOf(files) => files.iter().find(|(of, _)| of == name).map(|(_, path)| path),
        DataSource::Synthetic | DataSource::Bytes(_) | DataSource::Tokens(_) => None,
    };
    let Some(path) = own.map(|path| root.join(path)) else {
        let reason = format!("no file is named for `{name}`");
        return Err(Unfit { path: root }.because(reason, format!("name it: `{name} = \"{name}.npy\"`")));
    };
    if path.extension().is_some_and(|extension| extension == "npy") {
        let array = of_numpy(&path, NOUN)?;
        return Ok((path, array));
    }
    let mut arrays = of_safetensors(&path, NOUN)?;
    let Some(position) = arrays.iter().position(|(own, _)| own == name) else {
        let names: Vec<String> = arrays.iter().map(|(name, _)| format!("`{name}`")).collect();
        let reason = format!("it has no tensor `{name}`, which the model reads");
        let help = match names.as_slice() {
            [] => "it has no tensors at all".to_owned(),
            names => format!("save a tensor `{name}` in it; it has {}", names.join(", ")),
        };
        return Err(Unfit { path: &path }.because(reason, help));
    };
    match arrays.swap_remove(position).1 {
        Ok(array) => Ok((path, array)),
        Err(ty) => {
            let reason = format!("`{name}` is of type {ty}, which is not read");
            Err(Unfit { path: &path }.because(reason, "save it as whole numbers or floats"))
        }
    }
}

/// Whether an array has rows for a data tensor; how many.
fn fits(path: &Path, array: &Array, Wanted { name, ty, .. }: &Wanted) -> Result<u64, DataError> {
    let unfit = Unfit { path };
    let found = array.element.name();
    let is_index = ty.dtype == DType::I32;
    if is_index && !array.element.is_whole() {
        let help = "labels and indices are whole numbers: save them so, as `array.astype(numpy.int64)`";
        return Err(unfit.because(format!("`{name}` is of type {found}, and the model reads i32"), help));
    }
    if !is_index && !array.element.is_real() {
        let reason = format!("`{name}` is of type {found}, and the model reads {}", ty.dtype);
        return Err(unfit.because(reason, "save it as floats: `array.astype(numpy.float32)`"));
    }
    let own = ty.shape.get(1..).unwrap_or_default();
    match array.shape.split_first() {
        Some((count, rest)) if rest == own && *count > 0 => Ok(*count),
        Some((0, _)) => {
            Err(unfit.because(format!("`{name}` has no examples"), "take a file with a row for each example"))
        }
        _ => {
            let needed: Vec<String> =
                std::iter::once("examples".to_owned()).chain(own.iter().map(ToString::to_string)).collect();
            let reason = format!(
                "`{name}` has the shape {:?}, and the model reads [{}] of it, `{ty}` at a time",
                array.shape,
                needed.join(", ")
            );
            let numbers: u64 = array.shape.iter().skip(1).product();
            let is_other_form = numbers == own.iter().product::<u64>() && !array.shape.is_empty();
            let sizes: Vec<String> =
                std::iter::once("-1".to_owned()).chain(own.iter().map(ToString::to_string)).collect();
            let help = match is_other_form {
                true => format!("the numbers of an example are as many: `array.reshape({})`", sizes.join(", ")),
                false => {
                    "the first axis of a file is that of the examples, the others are those of the data".to_owned()
                }
            };
            Err(unfit.because(reason, help))
        }
    }
}

/// Looks at the first whole numbers of an array, whether the model has a row or a class for each.
fn look_at(path: &Path, array: &Array, Wanted { name, ty, bound }: &Wanted) -> Result<(), DataError> {
    let (count, each) = (array.shape.iter().product::<u64>(), array.element.bytes());
    if ty.dtype != DType::I32 {
        return Ok(());
    }
    let row = (count / array.shape[0]).max(1);
    for from in (0..count.min(LOOKED_AT)).step_by(PART as usize) {
        let mut bytes = vec![0; ((count - from).min(PART) * each) as usize];
        array.read(from, &mut bytes).map_err(|source| DataError::Read { path: path.to_owned(), source })?;
        let mut numbers = (from..).zip(bytes.chunks_exact(each as usize));
        let is_beyond = |bytes: &[u8]| {
            let number = array.element.decode(bytes);
            match bound {
                Some(bound) => number < 0.0 || number >= *bound as f64,
                None => number != f64::from(whole(array, bytes)),
            }
        };
        if let Some((place, bytes)) = numbers.find(|(_, bytes)| is_beyond(bytes)) {
            let (number, example) = (array.element.decode(bytes), place / row);
            let unfit = Unfit { path };
            return Err(match bound {
                Some(bound) => unfit.because(
                    format!(
                        "`{name}` is {number} in example {example}, and the model has {bound} classes or rows for it, from 0 \
                         to {}",
                        bound.saturating_sub(1)
                    ),
                    "count classes from 0, or give the model more of them",
                ),
                None => unfit.because(
                    format!("`{name}` is {number} in example {example}, which 32 bits do not hold"),
                    "take smaller numbers",
                ),
            });
        }
    }
    Ok(())
}
