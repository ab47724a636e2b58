//! Data: fills the buffers of `load` instructions, as a pure function of seed, step and microbatch.
//!
//! Because nothing is remembered between calls, a resumed run sees the same data as an unbroken one, and every layout
//! of the same pipeline sees the same microbatches.

use crate::values::numbers::encode;
use crate::values::random::{Counter, mix};
use crate::values::tokens::Tokens;
use pipe_ir::digest::Digest;
use pipe_ir::graph::{DType, Graph, Node, Op};
use pipe_ir::ids::{MicrobatchId, NodeId, ValueId};
use pipe_ir::program::{Body, Exec, Program};
use pipe_ir::slices::Slicing;
use pipe_ir::training::DataSource;
use pipe_ir::value::{TensorSlot, ValueKind};
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
    /// The file is shorter than one window.
    #[error(
        "{path} has {count} {unit}s, but one row of a microbatch takes {window} (the sequence and the {unit} after it)"
    )]
    TooShort {
        /// Which file.
        path: PathBuf,
        /// How many there are.
        count: u64,
        /// Of what.
        unit: &'static str,
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
    /// Tokens fill `tokens` and `targets` only.
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
    source: Source,
}

enum Source {
    Synthetic,
    Tokens(Tokens),
    Function(Box<FillTensor>),
}

impl Data {
    /// Opens the data source of a program; `root` is the folder that its path is relative to.
    ///
    /// # Errors
    /// If the file cannot be read, is too short, or does not fit the model.
    pub fn open(program: &Program, root: &Path) -> Result<Self, DataError> {
        let data = Self::synthetic(program);
        match program.training.as_ref().map(|training| &training.data) {
            None | Some(DataSource::Synthetic) => Ok(data),
            Some(DataSource::Bytes(path) | DataSource::Tokens(path)) => {
                let tokens = opened(program, &data.values, &root.join(path))?;
                Ok(Self { source: Source::Tokens(tokens), ..data })
            }
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
        Self {
            seed,
            values: values.collect(),
            n_slices: program.n_slices,
            slicing: Slicing::of(program),
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
            Source::Tokens(tokens) => tokens.identity(),
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
        let seed = mix(mix(self.seed, step), u64::from(microbatch.0));
        match &self.source {
            Source::Tokens(tokens) => fill_windows(tokens, seed, slot, out),
            Source::Synthetic => fill_random(seed, slot, bound, out),
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
    match program.training.as_ref().map(|training| &training.data) {
        Some(DataSource::Bytes(path) | DataSource::Tokens(path)) => {
            opened(program, &Data::synthetic(program).values, &root.join(path)).map(drop)
        }
        None | Some(DataSource::Synthetic) => Ok(()),
    }
}

/// What a file has.
fn unit_of(program: &Program) -> &'static str {
    match program.training.as_ref().map(|training| &training.data) {
        Some(DataSource::Tokens(_)) => "token",
        None | Some(DataSource::Synthetic | DataSource::Bytes(_)) => "byte",
    }
}

/// The file of a program, if it feeds it.
fn opened(program: &Program, values: &[(Vec<TensorSlot>, u64)], path: &Path) -> Result<Tokens, DataError> {
    let (slicing, unit) = (Slicing::of(program), unit_of(program));
    let data = || {
        let values = (0..).map(ValueId).zip(program.values.iter().zip(values));
        values.filter(|(_, (value, _))| value.kind == ValueKind::Data)
    };
    let vocabulary = data().map(|(_, (_, (_, bound)))| *bound).min().unwrap_or(i32::MAX as u64);
    let tokens = Tokens::open(path, vocabulary)?;
    for (id, (value, _)) in data() {
        let reads = |exec: &&Exec| exec.operands.iter().any(|operand| operand.value == id);
        let slice = program.execs.iter().find(reads).and_then(|exec| exec.slice).unwrap_or(0);
        for slot in value.tensors.iter().filter(|slot| !slot.is_key()) {
            let of_whole =
                |slot| if program.n_slices == 1 { Some(slot) } else { whole(&slot, &slicing, slice).map(|it| it.0) };
            let window = of_whole(slot.clone())
                .and_then(|slot| window_of(&slot))
                .ok_or_else(|| DataError::Unsupported { name: slot.name.clone(), ty: slot.ty.to_string(), unit })?;
            if tokens.count < window as u64 {
                return Err(DataError::TooShort { path: path.to_owned(), count: tokens.count, unit, window });
            }
        }
    }
    // Any byte has a row in most tables.
    if unit == "byte" && vocabulary > u64::from(u8::MAX) {
        return Ok(tokens);
    }
    let (largest, is_below) = tokens.extremes(path)?;
    if is_below || u64::try_from(largest).is_ok_and(|largest| largest >= vocabulary) {
        let token = if is_below { -1 } else { largest };
        return Err(DataError::OutsideVocabulary { path: path.to_owned(), unit, token, vocabulary });
    }
    Ok(tokens)
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
    let (DType::I32, [_rows, sequence]) = (slot.ty.dtype, slot.ty.shape.as_slice()) else { return None };
    matches!(slot.name.as_str(), "tokens" | "targets").then_some(*sequence as usize + 1)
}

/// Row r of `tokens` is a random window of the file; row r of `targets` the same window one token on.
fn fill_windows(tokens: &Tokens, seed: u64, slot: &TensorSlot, out: &mut [u8]) {
    let Some(window) = window_of(slot) else { return };
    let skip = u64::from(slot.name == "targets");
    let n_starts = tokens.count - window as u64 + 1;
    let mut own = vec![0; window - 1];
    for (row, out) in out.chunks_exact_mut((window - 1) * size_of::<i32>()).enumerate() {
        let start = mix(seed, row as u64) % n_starts + skip;
        if tokens.read(start, &mut own).is_err() {
            // A file that can no longer be read: what no table has ends the step.
            own.fill(-1);
        }
        out.chunks_exact_mut(size_of::<i32>())
            .zip(&own)
            .for_each(|(out, token)| out.copy_from_slice(&token.to_ne_bytes()));
    }
}

fn fill_random(seed: u64, slot: &TensorSlot, bound: u64, out: &mut [u8]) {
    let mut random = Counter::new(seed, &slot.name);
    let dtype = slot.ty.dtype;
    let number = || if dtype == DType::I32 { (random.next_u64() % bound) as f64 } else { random.normal() };
    let numbers = std::iter::repeat_with(number).take(out.len() / dtype.bytes().to_usize());
    out.copy_from_slice(&encode(dtype, numbers));
}

/// The number of rows of the smallest table that a data value indexes, and `i32::MAX` where it indexes none.
fn index_bound(program: &Program, value: ValueId) -> u64 {
    let users = program.execs.iter().filter_map(|exec| Some((operand_of(exec, value)?, exec)));
    let bounds = users.filter_map(|(operand, exec)| match &exec.body {
        Body::Graph(graph) => graph.nodes.iter().filter_map(|node| indexed_rows(graph, node, operand)).min(),
        Body::Abstract | Body::Optimizer | Body::Squares => None,
    });
    bounds.min().unwrap_or(i32::MAX as u64)
}

fn operand_of(exec: &Exec, value: ValueId) -> Option<u32> {
    let position = exec.operands.iter().position(|operand| operand.value == value)?;
    u32::try_from(position).ok()
}

/// Rows of the table that `node` indexes with the tensor in this operand, if it does.
fn indexed_rows(graph: &Graph, node: &Node, operand: u32) -> Option<u64> {
    let comes_from = |id: &NodeId| matches!(graph.node(*id).op, Op::Input { operand: from, .. } if from == operand);
    match (&node.op, node.inputs.as_slice()) {
        (Op::Gather, [table, indices]) if comes_from(indices) => graph.node(*table).ty.shape.first().copied(),
        (Op::CrossEntropy, [logits, targets]) if comes_from(targets) => graph.node(*logits).ty.shape.last().copied(),
        (Op::OwnIndices { size, members, .. }, [indices]) if comes_from(indices) => size.checked_mul(*members),
        _ => None,
    }
}
