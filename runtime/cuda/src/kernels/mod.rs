//! Kernels of CUDA devices: their sources, and how each kernel of a plan is launched.
//!
//! Most kernels are files of CUDA C beside this one ([`library`]), taken for the types that a
//! program has; element-wise ones are written from their expressions. The text has what the program
//! uses and nothing else, so that it is compiled in little time, and equal programs have equal
//! texts.

mod attention;
mod copy;
mod elementwise;
mod gemm;
mod library;
mod optimizer;
mod routed;
mod rows;
#[cfg(test)]
mod tests;
mod together;

use super::launch::{Argument, FunctionId, Launch};
use library::{file_of, instance_name, substituted};
pub(crate) use optimizer::StepNumbers;
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Expression, Kernel};
use pipe_runtime::Precision;
use std::collections::{BTreeMap, BTreeSet};
pub(crate) use together::MemberSum;

/// Numbers that tensor cores multiply.
#[derive(Clone, Copy, Debug)]
enum TensorMode {
    /// With 10 bits of fraction.
    Tf32,
    /// With 7 bits of fraction.
    Bf16,
}

impl TensorMode {
    /// In sources.
    const fn word(self) -> &'static str {
        match self {
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        }
    }

    /// How many of them are in a word of 32 bits.
    const fn numbers(self) -> u64 {
        match self {
            Self::Tf32 => 1,
            Self::Bf16 => 2,
        }
    }
}

/// The functions that a program needs, as one source for NVRTC.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    precision: Precision,
    /// What was added, by name.
    known: BTreeSet<String>,
    /// In an order in which everything comes before what uses it.
    texts: Vec<String>,
    functions: Vec<String>,
    /// Numbers of expressions.
    expressions: BTreeMap<Expression, usize>,
}

impl Sources {
    /// No functions yet.
    pub(crate) fn new(precision: Precision) -> Self {
        Self { precision, ..Self::default() }
    }

    /// Adds the functions that a kernel needs, unless they are there, and says what to launch for it, in order.
    pub(crate) fn launches(&mut self, kernel: &Kernel) -> Vec<Launch> {
        match kernel {
            Kernel::Gemm(gemm) => self.gemm(gemm),
            Kernel::Elementwise(elementwise) => vec![self.elementwise(elementwise)],
            Kernel::Copy { from, to } => self.copy(from, to),
            Kernel::Sum(sum) => vec![self.sum(sum)],
            Kernel::Rows(rows) => self.rows(rows),
            Kernel::Attention(attention) => self.attention(attention),
            Kernel::Routed(routed) => self.routed(routed),
        }
    }

    /// As what tensor cores multiply factors that are stored so, if they do. What is stored as
    /// bfloat16 is multiplied so, whatever is done with single precision.
    const fn tensor_mode(&self, factors: DType) -> Option<TensorMode> {
        match (factors, self.precision) {
            (DType::BF16, _) => Some(TensorMode::Bf16),
            (DType::F64, _) | (_, Precision::Fp32) => None,
            (_, Precision::Tf32) => Some(TensorMode::Tf32),
            (_, Precision::Bf16) => Some(TensorMode::Bf16),
        }
    }

    /// The name of a function, as the module exports it.
    pub(crate) fn name(&self, function: FunctionId) -> &str {
        &self.functions[function.0 as usize]
    }

    /// The names of all functions, in the order of their ids.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().map(String::as_str)
    }

    /// The text to compile.
    pub(crate) fn text(&self) -> String {
        let prelude = file_of("prelude").text;
        [prelude].into_iter().chain(self.texts.iter().map(String::as_str)).collect::<Vec<_>>().join("\n")
    }

    /// The function of a file with these words in place of its own.
    fn function(&mut self, file: &str, words: &[(&str, &str)]) -> FunctionId {
        self.add_file(file, words);
        self.exported(instance_name(file, words))
    }

    /// The id of a function whose text is there.
    fn exported(&mut self, name: String) -> FunctionId {
        let position = self.functions.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.functions.push(name);
            self.functions.len() - 1
        });
        FunctionId(u32::try_from(position).expect("a program has few functions"))
    }

    /// Adds a file after those that it needs, unless it is there.
    fn add_file(&mut self, file: &str, words: &[(&str, &str)]) {
        let file = file_of(file);
        for needed in file.needs {
            // What is needed in one precision only says so itself.
            let (needed, words) = match needed.split_once('=') {
                Some((needed, real)) => (needed, &[("REAL", real)][..]),
                None => (*needed, words),
            };
            self.add_file(needed, words);
        }
        self.add_text(instance_name(file.name, words), || substituted(file.text, words));
    }

    /// Adds a text, unless one of this name is there.
    fn add_text(&mut self, name: String, text: impl FnOnce() -> String) {
        if self.known.insert(name) {
            self.texts.push(text());
        }
    }
}

/// What a device's error word says, if a kernel found something wrong in the data: see `cu/index.cu`.
pub(crate) fn fault(word: u64) -> Option<String> {
    let (rows, index) = (word >> 32, word as u32 as i32);
    (word != 0).then(|| format!("the data holds index {index}, but the table has {rows} rows"))
}

/// The word in sources for the numbers in which a type is computed with.
fn real(dtype: DType) -> &'static str {
    word(dtype.arithmetic())
}

/// The word in sources for elements of a type as they lie in memory. Only copies take indices, as
/// words of the same size.
fn word(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 | DType::I32 => "f32",
        DType::F64 => "f64",
        DType::BF16 => "bf16",
    }
}

/// Bytes at whose multiples vectors of so many elements lie.
fn vector_bytes(dtype: DType, elements: u64) -> u64 {
    (elements * dtype.bytes().0).min(16)
}

/// A number as an argument in this precision.
fn number(dtype: DType, number: f64) -> Argument {
    match dtype {
        DType::F32 | DType::BF16 | DType::I32 => Argument::F32(number as f32),
        DType::F64 => Argument::F64(number),
    }
}

/// Blocks of a launch along x.
fn blocks(count: u64) -> u32 {
    let count = i32::try_from(count).ok().and_then(|count| u32::try_from(count).ok());
    count.expect("a tensor of 2^31 blocks is larger than the memory of any device")
}

/// At most this many blocks, for kernels whose threads go on to further elements.
fn some_blocks(count: u64, most: u32) -> u32 {
    u32::try_from(count).map_or(most, |count| count.clamp(1, most))
}
