//! Contents: what is opened for a data source, and whether it feeds a program.

use super::documents::{Documents, Of};
use super::error::DataError;
use super::examples::{Examples, Wanted};
use super::tokens::Tokens;
use super::windows::Length;
use pipe_ir::graph::DType;
use pipe_ir::ids::ValueId;
use pipe_ir::program::{Exec, Program};
use pipe_ir::slices::Slicing;
use pipe_ir::training::{DataSource, Training};
use pipe_ir::value::{TensorSlot, ValueKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What open files have.
pub(super) enum Contents {
    /// Tokens along one axis, and where documents end, if they do.
    Tokens(Tokens, Option<Documents>),
    /// A row for each example.
    Examples(Examples),
}

impl Contents {
    /// How many tokens or examples there are.
    pub(super) const fn count(&self) -> u64 {
        match self {
            Self::Tokens(tokens, _) => tokens.count,
            Self::Examples(examples) => examples.count,
        }
    }

    /// Tells files apart, and what is done with them.
    pub(super) fn identity(&self) -> Option<(String, String)> {
        match self {
            Self::Tokens(tokens, documents) => {
                let ends = documents.as_ref().map(|documents| format!(", documents of {}", documents.end));
                Some((tokens.identity()?, ends.unwrap_or_default()))
            }
            Self::Examples(examples) => Some((examples.identity()?, String::new())),
        }
    }

    /// How much of them a row takes, where it has so many positions.
    pub(super) const fn length(&self, positions: u64) -> Length {
        match self {
            Self::Tokens(..) => Length::of_tokens(positions),
            Self::Examples(_) => Length::OF_EXAMPLES,
        }
    }
}

/// What a file has.
const fn unit_of(source: &DataSource) -> &'static str {
    match source {
        DataSource::Tokens(_) => "token",
        DataSource::Examples(_) | DataSource::ExamplesOf(_) => "example",
        DataSource::Synthetic | DataSource::Bytes(_) => "byte",
    }
}

/// Which slice of its microbatch a value is of.
pub(super) fn slice_of(program: &Program, id: ValueId) -> u32 {
    let reads = |exec: &&Exec| exec.operands.iter().any(|operand| operand.value == id);
    program.execs.iter().find(reads).and_then(|exec| exec.slice).unwrap_or(0)
}

/// A source that is to be opened.
pub(super) struct Opening<'a> {
    source: &'a DataSource,
    root: &'a Path,
    /// What makes tokens of its text.
    tokenizer: Option<PathBuf>,
    /// The token that ends each document.
    document: Option<u32>,
    /// What it has.
    unit: &'static str,
}

impl<'a> Opening<'a> {
    pub(super) fn of(source: &'a DataSource, training: Option<&Training>, root: &'a Path) -> Self {
        let is_text = matches!(source, DataSource::Bytes(_));
        let tokenizer = training.and_then(|training| training.tokenizer.as_ref()).filter(|_| is_text);
        let tokenizer = tokenizer.map(|path| root.join(path));
        let unit = if tokenizer.is_some() { "token" } else { unit_of(source) };
        Self { source, root, tokenizer, document: training.and_then(|training| training.document), unit }
    }

    /// Its one file.
    fn path(&self) -> PathBuf {
        self.root.join(self.source.paths().first().unwrap_or(&""))
    }

    /// The files, if they feed the program; nothing of synthetic data.
    pub(super) fn opened(
        &self,
        program: &Program,
        bounds: &BTreeMap<String, u64>,
    ) -> Result<Option<Contents>, DataError> {
        match self.source {
            DataSource::Synthetic => Ok(None),
            DataSource::Examples(_) | DataSource::ExamplesOf(_) => {
                let wanted = wanted(program, bounds);
                Ok(Some(Contents::Examples(Examples::open(self.source, self.root, &wanted)?)))
            }
            DataSource::Bytes(_) | DataSource::Tokens(_) => {
                let tokens = self.opened_tokens(program, bounds)?;
                Ok(Some(Contents::Tokens(tokens, self.document.map(Documents::new))))
            }
        }
    }

    fn opened_tokens(&self, program: &Program, bounds: &BTreeMap<String, u64>) -> Result<Tokens, DataError> {
        let (path, unit) = (&self.path(), self.unit);
        let of_tokens = ["tokens", "targets"].map(|name| bounds.get(name).copied());
        let vocabulary = of_tokens.into_iter().flatten().min().unwrap_or(i32::MAX as u64);
        let tokens = match &self.tokenizer {
            Some(tokenizer) => Tokens::of_text(path, tokenizer)?,
            None => Tokens::open(path, vocabulary)?,
        };
        self.long_enough(program, (tokens.count, ""))?;
        if let Some(token) = self.document.filter(|token| u64::from(*token) >= vocabulary) {
            return Err(DataError::NoEnd { token, vocabulary });
        }
        // Any byte has a row in most tables.
        if unit == "byte" && vocabulary > u64::from(u8::MAX) {
            return Ok(tokens);
        }
        let (largest, is_below) = tokens.extremes(path)?;
        if is_below {
            return Err(DataError::NoToken { path: path.clone() });
        }
        if u64::try_from(largest).is_ok_and(|largest| largest >= vocabulary) {
            return Err(DataError::OutsideVocabulary { path: path.clone(), unit, token: largest, vocabulary });
        }
        Ok(tokens)
    }

    /// Whether so many tokens or examples fill a row of each tensor.
    pub(super) fn long_enough(&self, program: &Program, (count, part): (u64, &'static str)) -> Result<(), DataError> {
        let unit = self.unit;
        if self.source.has_examples() {
            let reason = || format!("no example is left{part}");
            let help = || "take another share, or more examples".to_owned();
            let unfit = || DataError::Unfit { path: self.path(), reason: reason(), help: help() };
            return if count == 0 { Err(unfit()) } else { Ok(()) };
        }
        for (id, slots) in data_of(program) {
            for slot in slots.iter().filter(|slot| !slot.is_key()) {
                let window = whole_slot(program, id, slot)
                    .and_then(|slot| window_of(&slot))
                    .ok_or_else(|| DataError::Unsupported { name: slot.name.clone(), ty: slot.ty.to_string(), unit })?;
                if count < window as u64 {
                    return Err(DataError::TooShort { path: self.path(), count, unit, part, window });
                }
            }
        }
        Ok(())
    }
}

/// The data tensors of a program, each name once, or twice if its types differ.
fn wanted(program: &Program, bounds: &BTreeMap<String, u64>) -> Vec<Wanted> {
    let mut known = BTreeSet::new();
    let slots = data_of(program).flat_map(|(id, slots)| slots.iter().map(move |slot| (id, slot)));
    let tensors = slots.filter(|(_, slot)| !slot.is_key()).filter_map(|(id, slot)| whole_slot(program, id, slot));
    tensors
        .filter(|slot| known.insert((slot.name.clone(), slot.ty.to_string())))
        .map(|slot| Wanted { bound: bounds.get(&slot.name).copied(), name: slot.name, ty: slot.ty })
        .collect()
}

/// The data values of a program, and their tensors.
pub(super) fn data_of(program: &Program) -> impl Iterator<Item = (ValueId, &[TensorSlot])> {
    let values = (0..).map(ValueId).zip(&program.values);
    let data = values.filter(|(_, value)| value.kind == ValueKind::Data);
    data.map(|(id, value)| (id, value.tensors.as_slice()))
}

/// A tensor of a whole microbatch, of which a value may hold a slice.
pub(super) fn whole_slot(program: &Program, id: ValueId, slot: &TensorSlot) -> Option<TensorSlot> {
    match program.n_slices {
        1 => Some(slot.clone()),
        _ => whole(slot, &Slicing::of(program), slice_of(program, id)).map(|it| it.0),
    }
}

/// The whole tensor that a slice is cut from along the second axis, and the first position of the slice.
pub(super) fn whole(slot: &TensorSlot, slicing: &Slicing, slice: u32) -> Option<(TensorSlot, u64)> {
    let mut whole = slot.clone();
    let size = whole.ty.shape.get_mut(1)?;
    let place = slicing.place(slice, *size)?;
    *size = place.length;
    Some((whole, place.start))
}

/// Tokens that one row of this tensor takes from a text, or `None` if it is not filled from one.
pub(super) fn window_of(slot: &TensorSlot) -> Option<usize> {
    let [_rows, sequence] = slot.ty.shape.as_slice() else { return None };
    let is_token = slot.ty.dtype == DType::I32 && matches!(slot.name.as_str(), "tokens" | "targets");
    (is_token || Of::slot(slot).is_some()).then_some(*sequence as usize + 1)
}
