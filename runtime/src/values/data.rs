//! Data: fills the buffers of `load` instructions, as a pure function of seed, step and microbatch.
//!
//! Because nothing is remembered between calls, a resumed run sees the same data as an unbroken one, and every layout
//! of the same pipeline sees the same microbatches.

use crate::values::documents::{Documents, Of};
use crate::values::numbers::encode;
use crate::values::random::{Counter, mix};
use crate::values::tokens::Tokens;
use crate::values::windows::{InOrder, Row, Steps, Windows};
use pipe_ir::digest::Digest;
use pipe_ir::graph::{DType, Graph, Node, Op};
use pipe_ir::ids::{MicrobatchId, NodeId, ValueId};
use pipe_ir::program::{Body, Exec, Program};
use pipe_ir::slices::Slicing;
use pipe_ir::training::{DataSource, HeldOut, Training};
use pipe_ir::value::{TensorSlot, ValueKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The largest data file whose bytes are all in its checksum: 16 GiB.
pub const MOST_BYTES: u64 = 16 << 30;

/// Why a data source cannot feed a program.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file could not be read.
    #[error("cannot read the data file {path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is not what its name says.
    #[error("{path} is not a file of tokens: {reason}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The text cannot be made into tokens.
    #[error("{path} cannot be made into tokens: {reason}")]
    NoText {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The tokenizer cannot be read.
    #[error("the tokenizer {path} cannot be read: {reason}")]
    Tokenizer {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The file is shorter than one window.
    #[error(
        "{path} has {count} {unit}s{part}, but one row of a microbatch takes {window} (the sequence and the {unit} after it)"
    )]
    TooShort {
        /// Which file.
        path: PathBuf,
        /// How many there are.
        count: u64,
        /// Of what.
        unit: &'static str,
        /// For what, where not for all of the file.
        part: &'static str,
        /// Sequence length plus one.
        window: usize,
    },
    /// A token of the file is not in the model's vocabulary.
    #[error("{path} holds the {unit} {token}, but the model indexes a table of {vocabulary} rows with it")]
    OutsideVocabulary {
        /// Which file.
        path: PathBuf,
        /// What it is of.
        unit: &'static str,
        /// The largest one, or one below 0.
        token: i32,
        /// Rows of the smallest table.
        vocabulary: u64,
    },
    /// No token of the model ends a document.
    #[error("documents end with the token {token}, but the model indexes a table of {vocabulary} rows with tokens")]
    NoEnd {
        /// The token.
        token: u32,
        /// Rows of the smallest table.
        vocabulary: u64,
    },
    /// Tokens fill `tokens` and `targets` only, and what tells documents apart.
    #[error(
        "the model's data tensor `{name}` of type {ty} cannot come from a file of {unit}s: those fill `tokens` and `targets`, i32[rows, sequence]"
    )]
    Unsupported {
        /// The data tensor.
        name: String,
        /// Its type.
        ty: String,
        /// What the file has.
        unit: &'static str,
    },
}

/// Fills a tensor: the step, the microbatch, which tensor, and its bytes.
pub type FillTensor = dyn Fn(u64, MicrobatchId, &TensorSlot, &mut [u8]) + Send + Sync;

/// The data of a run.
pub struct Data {
    seed: u64,
    /// By value of the program: what is inside, and below what its indices must stay.
    values: Vec<(Vec<TensorSlot>, u64)>,
    /// In how many slices each microbatch is cut, along the second axis of every tensor.
    n_slices: u32,
    slicing: Slicing,
    /// Whether the model tells documents apart.
    has_documents: bool,
    source: Source,
}

enum Source {
    Synthetic,
    Tokens(File),
    Function(Box<FillTensor>),
}

/// A file of tokens, and what is read of it.
struct File {
    tokens: Tokens,
    /// Which of its tokens.
    range: Range<u64>,
    windows: Windows,
    /// Microbatches of a step.
    microbatches: u64,
    /// Where documents end, if they do.
    documents: Option<Documents>,
}

impl File {
    fn new(tokens: Tokens, range: Range<u64>, windows: Windows, program: &Program) -> Self {
        let document = program.training.as_ref().and_then(|training| training.document);
        Self { tokens, range, windows, microbatches: microbatches(program), documents: document.map(Documents::new) }
    }

    /// The tokens of a row, without the first `skip`.
    fn read(&self, row: Row, skip: u64, out: &mut [i32]) {
        let start = self.windows.start(row, &self.range, out.len() as u64 + 1) + skip;
        if self.tokens.read(start, out).is_err() {
            // A file that can no longer be read: what no table has ends the step.
            out.fill(-1);
        }
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
        let (DataSource::Bytes(_) | DataSource::Tokens(_)) = training.data else { return Ok(data) };
        let opening = Opening::of(&training.data, training, root);
        let tokens = opening.opened(program, &data.values)?;
        let range = 0..training_end(training, tokens.count);
        if range.end < tokens.count {
            opening.long_enough(program, &data.values, (range.end, " outside of the validation"))?;
        }
        let microbatches = microbatches(program);
        let windows = match training.shuffled {
            true => Windows::Shuffled { seed: data.seed, microbatches },
            false => Windows::Random { seed: data.seed },
        };
        Ok(Self { source: Source::Tokens(File::new(tokens, range, windows, program)), ..data })
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
        let (DataSource::Bytes(path) | DataSource::Tokens(path)) = source else { return Ok(data) };
        let opening = match &program.training {
            Some(training) => Opening::of(source, training, root),
            None => Opening { path: root.join(path), tokenizer: None, unit: unit_of(source) },
        };
        let tokens = opening.opened(program, &data.values)?;
        let range = part(tokens.count);
        let for_what = if range.start > 0 { " for the validation" } else { "" };
        opening.long_enough(program, &data.values, (range.end - range.start, for_what))?;
        let shape = data.shape(program).unwrap_or((1, 1));
        let in_order = InOrder::new(range.end - range.start, shape, microbatches(program), steps);
        let file = File::new(tokens, range, Windows::InOrder(in_order), program);
        Ok(Self { source: Source::Tokens(file), ..data })
    }

    /// What is read where windows are read in order.
    pub const fn order(&self) -> Option<InOrder> {
        match &self.source {
            Source::Tokens(File { windows: Windows::InOrder(in_order), .. }) => Some(*in_order),
            _ => None,
        }
    }

    /// Positions and rows of a whole microbatch.
    fn shape(&self, program: &Program) -> Option<(u64, u64)> {
        let data = (0..).map(ValueId).zip(program.values.iter().zip(&self.values));
        let mut data = data.filter(|(_, (value, _))| value.kind == ValueKind::Data);
        let (id, (value, _)) = data.next()?;
        let slot = value.tensors.first()?;
        let slot = if self.n_slices == 1 { slot.clone() } else { whole(slot, &self.slicing, slice_of(program, id))?.0 };
        match slot.ty.shape.as_slice() {
            [rows, sequence] => Some((*sequence, *rows)),
            _ => None,
        }
    }

    /// Random numbers, and random indices that fit the tables they index, from the program's seed.
    pub fn synthetic(program: &Program) -> Self {
        let values = program
            .values
            .iter()
            .enumerate()
            .map(|(index, value)| (value.tensors.clone(), index_bound(program, ValueId::from_index(index))));
        let seed = program.training.as_ref().map_or(0, |training| training.seed);
        let mut data = program.values.iter().filter(|value| value.kind == ValueKind::Data);
        let has_documents = data.any(|value| value.tensors.iter().any(|slot| Of::slot(slot) == Some(Of::Starts)));
        Self {
            seed,
            values: values.collect(),
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
            Source::Tokens(File { windows: Windows::InOrder(_), .. }) => None,
            Source::Tokens(File { tokens, range, windows, documents, .. }) => {
                let part = if range.end < tokens.count { format!(", the first {}", range.end) } else { String::new() };
                let order = if matches!(windows, Windows::Shuffled { .. }) { ", shuffled" } else { "" };
                let ends = documents.as_ref().map(|documents| format!(", documents of {}", documents.end));
                Some(tokens.identity()? + &part + order + &ends.unwrap_or_default())
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
    pub fn load(&self, step: u64, value: ValueId, microbatch: MicrobatchId, out: &mut [u8]) {
        let (tensors, bound) = &self.values[value.index()];
        for slot in tensors {
            let start = slot.offset.to_usize();
            let part = &mut out[start..start + slot.ty.bytes().to_usize()];
            if slot.is_key() {
                let microbatch = u64::from(microbatch.0 / self.n_slices);
                let random = Counter::new(mix(mix(self.seed, step), microbatch), &slot.name).next_u64();
                part.copy_from_slice(&encode(slot.ty.dtype, std::iter::once(key(random))));
                continue;
            }
            if self.n_slices == 1 {
                self.fill((step, microbatch), slot, *bound, part);
                continue;
            }
            // A slice is a part of each row of the whole microbatch, whose data depends on no slicing.
            let whole = whole(slot, &self.slicing, microbatch.0 % self.n_slices);
            let (whole, start) = whole.expect("the verifier found data that can be cut");
            let mut bytes = vec![0; whole.ty.bytes().to_usize()];
            self.fill((step, MicrobatchId(microbatch.0 / self.n_slices)), &whole, *bound, &mut bytes);
            let position: u64 = slot.ty.shape.iter().skip(2).product();
            let position = position as usize * slot.ty.dtype.bytes().to_usize();
            let [row, row_of_whole] = [slot, &whole].map(|slot| slot.ty.shape[1] as usize * position);
            let first = start as usize * position;
            for (out, whole) in part.chunks_exact_mut(row).zip(bytes.chunks_exact(row_of_whole)) {
                out.copy_from_slice(&whole[first..first + row]);
            }
        }
    }

    fn fill(&self, (step, microbatch): (u64, MicrobatchId), slot: &TensorSlot, bound: u64, out: &mut [u8]) {
        match &self.source {
            Source::Tokens(file) => fill_windows(file, (step, microbatch), slot, out),
            Source::Synthetic => {
                let is_plain = self.has_documents && Of::slot(slot).is_some();
                if !is_plain || !fill_document(slot, out) {
                    fill_random(mix(mix(self.seed, step), u64::from(microbatch.0)), slot, bound, out);
                }
            }
            Source::Function(fill) => fill(step, microbatch, slot, out),
        }
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

/// What a file has.
const fn unit_of(source: &DataSource) -> &'static str {
    match source {
        DataSource::Tokens(_) => "token",
        DataSource::Synthetic | DataSource::Bytes(_) => "byte",
    }
}

/// Which slice of its microbatch a value is of.
fn slice_of(program: &Program, id: ValueId) -> u32 {
    let reads = |exec: &&Exec| exec.operands.iter().any(|operand| operand.value == id);
    program.execs.iter().find(reads).and_then(|exec| exec.slice).unwrap_or(0)
}

/// A file that is to be opened.
struct Opening {
    path: PathBuf,
    /// What makes tokens of its text.
    tokenizer: Option<PathBuf>,
    /// What it has.
    unit: &'static str,
}

impl Opening {
    fn of(source: &DataSource, training: &Training, root: &Path) -> Self {
        let path = match source {
            DataSource::Synthetic => PathBuf::new(),
            DataSource::Bytes(path) | DataSource::Tokens(path) => root.join(path),
        };
        let is_text = matches!(source, DataSource::Bytes(_));
        let tokenizer = training.tokenizer.as_ref().filter(|_| is_text).map(|path| root.join(path));
        let unit = if tokenizer.is_some() { "token" } else { unit_of(source) };
        Self { path, tokenizer, unit }
    }

    /// The file, if it feeds the program.
    fn opened(&self, program: &Program, values: &[(Vec<TensorSlot>, u64)]) -> Result<Tokens, DataError> {
        let Self { path, tokenizer, unit } = self;
        let bounds = data_of(program, values).map(|(_, _, bound)| bound);
        let vocabulary = bounds.min().unwrap_or(i32::MAX as u64);
        let tokens = match tokenizer {
            Some(tokenizer) => Tokens::of_text(path, tokenizer)?,
            None => Tokens::open(path, vocabulary)?,
        };
        self.long_enough(program, values, (tokens.count, ""))?;
        let end = program.training.as_ref().and_then(|training| training.document);
        if let Some(token) = end.filter(|token| u64::from(*token) >= vocabulary) {
            return Err(DataError::NoEnd { token, vocabulary });
        }
        // Any byte has a row in most tables.
        if *unit == "byte" && vocabulary > u64::from(u8::MAX) {
            return Ok(tokens);
        }
        let (largest, is_below) = tokens.extremes(path)?;
        if is_below || u64::try_from(largest).is_ok_and(|largest| largest >= vocabulary) {
            let token = if is_below { -1 } else { largest };
            return Err(DataError::OutsideVocabulary { path: path.clone(), unit, token, vocabulary });
        }
        Ok(tokens)
    }

    /// Whether so many tokens fill a row of each tensor.
    fn long_enough(
        &self,
        program: &Program,
        values: &[(Vec<TensorSlot>, u64)],
        (count, part): (u64, &'static str),
    ) -> Result<(), DataError> {
        let (slicing, unit) = (Slicing::of(program), self.unit);
        for (id, slots, _) in data_of(program, values) {
            let slice = slice_of(program, id);
            for slot in slots.iter().filter(|slot| !slot.is_key()) {
                let of_whole = |slot| {
                    if program.n_slices == 1 { Some(slot) } else { whole(&slot, &slicing, slice).map(|it| it.0) }
                };
                let window = of_whole(slot.clone())
                    .and_then(|slot| window_of(&slot))
                    .ok_or_else(|| DataError::Unsupported { name: slot.name.clone(), ty: slot.ty.to_string(), unit })?;
                if count < window as u64 {
                    return Err(DataError::TooShort { path: self.path.clone(), count, unit, part, window });
                }
            }
        }
        Ok(())
    }
}

/// The data values of a program, their tensors, and below what their indices must stay.
fn data_of<'a>(
    program: &'a Program,
    values: &'a [(Vec<TensorSlot>, u64)],
) -> impl Iterator<Item = (ValueId, &'a [TensorSlot], u64)> {
    let values = (0..).map(ValueId).zip(program.values.iter().zip(values));
    let data = values.filter(|(_, (value, _))| value.kind == ValueKind::Data);
    data.map(|(id, (value, (_, bound)))| (id, value.tensors.as_slice(), *bound))
}

/// The whole tensor that a slice is cut from along the second axis, and the first position of the slice.
fn whole(slot: &TensorSlot, slicing: &Slicing, slice: u32) -> Option<(TensorSlot, u64)> {
    let mut whole = slot.clone();
    let size = whole.ty.shape.get_mut(1)?;
    let place = slicing.place(slice, *size)?;
    *size = place.length;
    Some((whole, place.start))
}

/// Bytes that one row of this tensor takes from a text, or `None` if it is not filled from one.
fn window_of(slot: &TensorSlot) -> Option<usize> {
    let [_rows, sequence] = slot.ty.shape.as_slice() else { return None };
    let is_token = slot.ty.dtype == DType::I32 && matches!(slot.name.as_str(), "tokens" | "targets");
    (is_token || Of::slot(slot).is_some()).then_some(*sequence as usize + 1)
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

/// Row r of `tokens` is a window of the file; row r of `targets` the same window one token on; row r of other tensors
/// says something of the documents in this window.
fn fill_windows(file: &File, (step, microbatch): (u64, MicrobatchId), slot: &TensorSlot, out: &mut [u8]) {
    let Some(window) = window_of(slot) else { return };
    let skip = u64::from(slot.name == "targets");
    let mut own = vec![0; window - 1];
    let bytes = (window - 1) * slot.ty.dtype.bytes().to_usize();
    let rows = (out.len() / bytes.max(1)) as u64;
    for (row, out) in (0..).zip(out.chunks_exact_mut(bytes)) {
        let row = Row { step, microbatch, row, rows };
        file.read(row, skip, &mut own);
        let Some(of) = Of::slot(slot) else {
            out.chunks_exact_mut(size_of::<i32>())
                .zip(&own)
                .for_each(|(out, token)| out.copy_from_slice(&token.to_ne_bytes()));
            continue;
        };
        let (end, weight) = match &file.documents {
            Some(documents) if of == Of::Counted => {
                let rows = file.windows.rows_with(row, file.microbatches);
                (Some(documents.end), documents.weight(rows, |row, out| file.read(row, 0, out), window - 1))
            }
            documents => (documents.as_ref().map(|documents| documents.end), 1.0),
        };
        out.copy_from_slice(&encode(slot.ty.dtype, of.row(&own, end, weight)));
    }
}

fn fill_random(seed: u64, slot: &TensorSlot, bound: u64, out: &mut [u8]) {
    let mut random = Counter::new(seed, &slot.name);
    let dtype = slot.ty.dtype;
    let number = || if dtype == DType::I32 { (random.next_u64() % bound) as f64 } else { random.normal() };
    let numbers = std::iter::repeat_with(number).take(out.len() / dtype.bytes().to_usize());
    out.copy_from_slice(&encode(dtype, numbers));
}

/// The number of rows of the smallest table that a data value indexes, and `i32::MAX` where it indexes
/// none. Positions of documents are no tokens, so that their table does not count.
fn index_bound(program: &Program, value: ValueId) -> u64 {
    let users = program.execs.iter().filter_map(|exec| Some((operand_of(exec, value)?, exec)));
    let bounds = users.filter_map(|(operand, exec)| match &exec.body {
        Body::Graph(graph) => {
            let is_of_documents = |node: &&Node| {
                let offsets = node.inputs.iter().filter_map(|input| match graph.node(*input).op {
                    Op::Input { operand: from, offset } if from == operand => Some(offset),
                    _ => None,
                });
                let slots = &program.value(value).tensors;
                offsets.into_iter().any(|at| slots.iter().any(|slot| slot.offset == at && Of::slot(slot).is_some()))
            };
            let indexing = graph.nodes.iter().filter(|node| {
                // Weights of rows stand beside tokens.
                !matches!(node.op, Op::Gather) || !is_of_documents(node)
            });
            indexing.filter_map(|node| indexed_rows(graph, node, operand)).min()
        }
        Body::Abstract | Body::Optimizer | Body::Squares => None,
    });
    bounds.min().unwrap_or(i32::MAX as u64)
}

fn operand_of(exec: &Exec, value: ValueId) -> Option<u32> {
    let position = exec.operands.iter().position(|operand| operand.value == value)?;
    u32::try_from(position).ok()
}

/// Rows of the table that `node` indexes with the tensor in this operand, if it does.
pub(crate) fn indexed_rows(graph: &Graph, node: &Node, operand: u32) -> Option<u64> {
    let comes_from = |id: &NodeId| matches!(graph.node(*id).op, Op::Input { operand: from, .. } if from == operand);
    match (&node.op, node.inputs.as_slice()) {
        (Op::Gather, [table, indices]) if comes_from(indices) => graph.node(*table).ty.shape.first().copied(),
        (Op::CrossEntropy, [logits, targets, ..]) if comes_from(targets) => {
            graph.node(*logits).ty.shape.last().copied()
        }
        (Op::OwnIndices { all, .. }, [indices]) if comes_from(indices) => Some(*all),
        _ => None,
    }
}
