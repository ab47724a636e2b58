//! Data: fills the buffers of `load` instructions, as a pure function of seed, step and microbatch.
//!
//! Because nothing is remembered between calls, a resumed run sees the same data as an unbroken one, and every layout
//! of the same pipeline sees the same microbatches.

use crate::values::bounds::bounds;
use crate::values::contents::{Contents, Opening, data_of, whole, whole_slot, window_of};
use crate::values::documents::Of;
pub use crate::values::error::DataError;
use crate::values::numbers::encode;
use crate::values::random::{Counter, mix};
use crate::values::windows::{InOrder, Row, Steps, Windows};
use pipe_ir::digest::Digest;
use pipe_ir::graph::DType;
use pipe_ir::ids::{MicrobatchId, ValueId};
use pipe_ir::program::Program;
use pipe_ir::slices::Slicing;
use pipe_ir::training::{DataSource, HeldOut, Training};
use pipe_ir::value::TensorSlot;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

/// The largest data file whose bytes are all in its checksum: 16 GiB.
pub const MOST_BYTES: u64 = 16 << 30;

/// Fills a tensor: the step, the microbatch, which tensor, and its bytes.
pub type FillTensor = dyn Fn(u64, MicrobatchId, &TensorSlot, &mut [u8]) + Send + Sync;

/// The data of a run.
pub struct Data {
    seed: u64,
    /// By value of the program: what is inside.
    values: Vec<Vec<TensorSlot>>,
    /// By data tensor, below what its indices must stay.
    bounds: BTreeMap<String, u64>,
    /// In how many slices each microbatch is cut, along the second axis of every tensor.
    n_slices: u32,
    slicing: Slicing,
    /// Whether the model tells documents apart.
    has_documents: bool,
    source: Source,
}

enum Source {
    Synthetic,
    File(File),
    Function(Box<FillTensor>),
}

/// Open files, and what is read of them.
struct File {
    contents: Contents,
    /// Which of their tokens or examples.
    range: Range<u64>,
    windows: Windows,
    /// Microbatches of a step.
    microbatches: u64,
}

impl File {
    /// The first token, or the example, of a row with so many positions.
    fn start(&self, row: Row, positions: u64) -> u64 {
        self.windows.start(row, &self.range, self.contents.length(positions))
    }
}

impl Data {
    /// Opens the data source of a program; `root` is the folder that its paths are relative to. What is held out for
    /// the validation is not read.
    ///
    /// # Errors
    /// If a file cannot be read, is too short, or does not fit the model.
    pub fn open(program: &Program, root: &Path) -> Result<Self, DataError> {
        let data = Self::synthetic(program);
        let Some(training) = &program.training else { return Ok(data) };
        let opening = Opening::of(&training.data, Some(training), root);
        let Some(contents) = opening.opened(program, &data.bounds)? else { return Ok(data) };
        let count = contents.count();
        let range = 0..training_end(training, count);
        if range.end < count {
            opening.long_enough(program, (range.end, " outside of the validation"))?;
        }
        let microbatches = microbatches(program);
        let windows = match training.shuffled {
            true => Windows::Shuffled { seed: data.seed, microbatches },
            false => Windows::Random { seed: data.seed },
        };
        Ok(Self { source: Source::File(File { contents, range, windows, microbatches }), ..data })
    }

    /// Opens a source whose windows are read in order, without overlap: all of them, or those of so many steps, spread
    /// over the file. Text becomes tokens as in training. Synthetic data are drawn as there, too.
    ///
    /// # Errors
    /// As [`Data::open`].
    pub fn in_order(program: &Program, source: &DataSource, root: &Path, steps: Steps) -> Result<Self, DataError> {
        Self::part_in_order(program, (source, root), |count| 0..count, steps)
    }

    /// The same of what a training holds out for its validation; nothing where it holds nothing out.
    ///
    /// # Errors
    /// As [`Data::open`].
    pub fn held_out(program: &Program, root: &Path, steps: Steps) -> Result<Option<Self>, DataError> {
        let Some((training, validation)) =
            program.training.as_ref().and_then(|training| Some((training, training.validation.as_ref()?)))
        else {
            return Ok(None);
        };
        let found = match &validation.data {
            HeldOut::File(source) => Self::in_order(program, source, root, steps),
            HeldOut::Share(_) => {
                let part = |count| training_end(training, count)..count;
                Self::part_in_order(program, (&training.data, root), part, steps)
            }
        };
        found.map(Some)
    }

    fn part_in_order(
        program: &Program,
        (source, root): (&DataSource, &Path),
        part: impl Fn(u64) -> Range<u64>,
        steps: Steps,
    ) -> Result<Self, DataError> {
        let data = Self::synthetic(program);
        let opening = Opening::of(source, program.training.as_ref(), root);
        let Some(contents) = opening.opened(program, &data.bounds)? else { return Ok(data) };
        let range = part(contents.count());
        let for_what = if range.start > 0 { " for the validation" } else { "" };
        opening.long_enough(program, (range.end - range.start, for_what))?;
        let (rows, positions) = shape(program).unwrap_or((1, 1));
        let (length, microbatches) = (contents.length(positions), microbatches(program));
        let in_order = InOrder::new(range.end - range.start, (length, rows), microbatches, steps);
        let file = File { contents, range, windows: Windows::InOrder(in_order), microbatches };
        Ok(Self { source: Source::File(file), ..data })
    }

    /// What is read where windows are read in order.
    pub const fn order(&self) -> Option<InOrder> {
        match &self.source {
            Source::File(File { windows: Windows::InOrder(in_order), .. }) => Some(*in_order),
            _ => None,
        }
    }

    /// Whether rows are examples.
    pub const fn has_examples(&self) -> bool {
        matches!(self.source, Source::File(File { contents: Contents::Examples(_), .. }))
    }

    /// Random numbers, and random indices that fit the tables they index, from the program's seed.
    pub fn synthetic(program: &Program) -> Self {
        let seed = program.training.as_ref().map_or(0, |training| training.seed);
        let has_documents =
            data_of(program).any(|(_, slots)| slots.iter().any(|slot| Of::slot(slot) == Some(Of::Starts)));
        Self {
            seed,
            values: program.values.iter().map(|value| value.tensors.clone()).collect(),
            bounds: bounds(program),
            n_slices: program.n_slices,
            slicing: Slicing::of(program),
            has_documents,
            source: Source::Synthetic,
        }
    }

    /// Data from a function of step, microbatch and tensor.
    pub fn from_fn(program: &Program, fill: Box<FillTensor>) -> Self {
        Self { source: Source::Function(fill), ..Self::synthetic(program) }
    }

    /// Tells apart sources that data come from: a file by its length and checksum, wherever it
    /// lies. Nothing is known of functions.
    pub fn identity(&self) -> Option<String> {
        match &self.source {
            // What is only read tells no trainings apart.
            Source::File(File { windows: Windows::InOrder(_), .. }) => None,
            Source::File(File { contents, range, windows, .. }) => {
                let part =
                    if range.end < contents.count() { format!(", the first {}", range.end) } else { String::new() };
                let order = if matches!(windows, Windows::Shuffled { .. }) { ", shuffled" } else { "" };
                let (identity, ends) = contents.identity()?;
                Some(identity + &part + order + &ends)
            }
            Source::Synthetic => Some("synthetic".to_owned()),
            Source::Function(_) => None,
        }
    }

    /// The same as a number.
    pub fn digest(&self) -> Digest {
        Digest::default().and(self.identity().unwrap_or_default().as_bytes())
    }

    /// Fills `out`, a buffer of `value`, for a microbatch of a step.
    ///
    /// # Errors
    /// If a file can no longer be read.
    pub fn load(&self, step: u64, value: ValueId, microbatch: MicrobatchId, out: &mut [u8]) -> io::Result<()> {
        for slot in &self.values[value.index()] {
            let start = slot.offset.to_usize();
            let part = &mut out[start..start + slot.ty.bytes().to_usize()];
            if slot.is_key() {
                let microbatch = u64::from(microbatch.0 / self.n_slices);
                let random = Counter::new(mix(mix(self.seed, step), microbatch), &slot.name).next_u64();
                part.copy_from_slice(&encode(slot.ty.dtype, std::iter::once(key(random))));
                continue;
            }
            if self.n_slices == 1 {
                self.fill((step, microbatch), slot, part)?;
                continue;
            }
            // A slice is a part of each row of the whole microbatch, whose data depends on no slicing.
            let whole = whole(slot, &self.slicing, microbatch.0 % self.n_slices);
            let (whole, start) = whole.expect("the verifier found data that can be cut");
            let mut bytes = vec![0; whole.ty.bytes().to_usize()];
            self.fill((step, MicrobatchId(microbatch.0 / self.n_slices)), &whole, &mut bytes)?;
            let position: u64 = slot.ty.shape.iter().skip(2).product();
            let position = position as usize * slot.ty.dtype.bytes().to_usize();
            let [row, row_of_whole] = [slot, &whole].map(|slot| slot.ty.shape[1] as usize * position);
            let first = start as usize * position;
            for (out, whole) in part.chunks_exact_mut(row).zip(bytes.chunks_exact(row_of_whole)) {
                out.copy_from_slice(&whole[first..first + row]);
            }
        }
        Ok(())
    }

    fn fill(&self, (step, microbatch): (u64, MicrobatchId), slot: &TensorSlot, out: &mut [u8]) -> io::Result<()> {
        match &self.source {
            Source::File(file) => return fill_rows(file, (step, microbatch), slot, out),
            Source::Synthetic => {
                let is_plain = self.has_documents && Of::slot(slot).is_some();
                if !is_plain || !fill_document(slot, out) {
                    let bound = self.bounds.get(&slot.name).copied().unwrap_or(i32::MAX as u64);
                    fill_random(mix(mix(self.seed, step), u64::from(microbatch.0)), slot, bound, out);
                }
            }
            Source::Function(fill) => fill(step, microbatch, slot, out),
        }
        Ok(())
    }
}

/// A key of dropouts: a number in single precision with 30 random bits, of its sign, its fraction and its exponent.
fn key(random: u64) -> f64 {
    let bits = random as u32;
    // Exponents from -32 to 31.
    f64::from(f32::from_bits(bits & 0x807f_ffff | (95 + (bits >> 23 & 0x3f)) << 23))
}

/// Looks whether the data source of a program can be opened.
///
/// # Errors
/// As [`Data::open`].
pub fn check(program: &Program, root: &Path) -> Result<(), DataError> {
    Data::open(program, root).map(drop)
}

/// Looks whether what a training holds out can be opened.
///
/// # Errors
/// As [`Data::held_out`].
pub fn check_held_out(program: &Program, root: &Path) -> Result<(), DataError> {
    Data::held_out(program, root, Steps::default()).map(drop)
}

/// Rows of a whole microbatch, and positions of each, of the first data tensor.
fn shape(program: &Program) -> Option<(u64, u64)> {
    let mut slots = data_of(program).flat_map(|(id, slots)| slots.iter().map(move |slot| (id, slot)));
    let (id, slot) = slots.find(|(_, slot)| !slot.is_key())?;
    let slot = whole_slot(program, id, slot)?;
    let mut sizes = slot.ty.shape.iter().copied();
    Some((sizes.next()?, sizes.next().unwrap_or(1)))
}

/// Microbatches of a step, as wholes.
fn microbatches(program: &Program) -> u64 {
    u64::from(program.microbatches_of_step() / program.n_slices.max(1))
}

/// The end of what is trained on, of so many tokens.
fn training_end(training: &Training, count: u64) -> u64 {
    match training.validation.as_ref().map(|validation| &validation.data) {
        Some(HeldOut::Share(share)) => count - ((count as f64 * share).round() as u64).min(count),
        Some(HeldOut::File(_)) | None => count,
    }
}

/// Fills a tensor that tells documents apart as if each row were one.
fn fill_document(slot: &TensorSlot, out: &mut [u8]) -> bool {
    let (Some(of), [_, sequence]) = (Of::slot(slot), slot.ty.shape.as_slice()) else { return false };
    let tokens = vec![0; *sequence as usize];
    let bytes = tokens.len() * slot.ty.dtype.bytes().to_usize();
    for row in out.chunks_exact_mut(bytes.max(1)) {
        row.copy_from_slice(&encode(slot.ty.dtype, of.row(&tokens, None, 1.0)));
    }
    true
}

/// Row r of a tensor is that of an example; or row r of `tokens` is a window of the file, row r of `targets` the same
/// window one token on, and row r of other tensors says something of the documents in this window.
fn fill_rows(
    file: &File,
    (step, microbatch): (u64, MicrobatchId),
    slot: &TensorSlot,
    out: &mut [u8],
) -> io::Result<()> {
    let (tokens, documents) = match &file.contents {
        Contents::Tokens(tokens, documents) => (tokens, documents),
        Contents::Examples(examples) => {
            let rows = slot.ty.shape.first().copied().unwrap_or(1);
            let rows = (0..rows).map(|row| file.start(Row { step, microbatch, row, rows }, 1));
            return examples.fill(slot, rows, out);
        }
    };
    let Some(window) = window_of(slot) else { return Ok(()) };
    let positions = window - 1;
    let read = |row, skip, out: &mut [i32]| tokens.read(file.start(row, positions as u64) + skip, out);
    let skip = u64::from(slot.name == "targets");
    let mut own = vec![0; positions];
    let bytes = positions * slot.ty.dtype.bytes().to_usize();
    let rows = (out.len() / bytes.max(1)) as u64;
    for (row, out) in (0..).zip(out.chunks_exact_mut(bytes)) {
        let row = Row { step, microbatch, row, rows };
        read(row, skip, &mut own)?;
        let Some(of) = Of::slot(slot) else {
            out.chunks_exact_mut(size_of::<i32>())
                .zip(&own)
                .for_each(|(out, token)| out.copy_from_slice(&token.to_ne_bytes()));
            continue;
        };
        let (end, weight) = match documents {
            Some(documents) if of == Of::Counted => {
                let rows = file.windows.rows_with(row, file.microbatches);
                (Some(documents.end), documents.weight(rows, |row, out| read(row, 0, out), positions)?)
            }
            documents => (documents.as_ref().map(|documents| documents.end), 1.0),
        };
        out.copy_from_slice(&encode(slot.ty.dtype, of.row(&own, end, weight)));
    }
    Ok(())
}

fn fill_random(seed: u64, slot: &TensorSlot, bound: u64, out: &mut [u8]) {
    let mut random = Counter::new(seed, &slot.name);
    let dtype = slot.ty.dtype;
    let number = || if dtype == DType::I32 { (random.next_u64() % bound) as f64 } else { random.normal() };
    let numbers = std::iter::repeat_with(number).take(out.len() / dtype.bytes().to_usize());
    out.copy_from_slice(&encode(dtype, numbers));
}
