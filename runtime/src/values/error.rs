//! Why data cannot be read.

use std::path::PathBuf;

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
    #[error("{path} is not {noun}: {reason}")]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What it should be.
        noun: &'static str,
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
        /// The largest one.
        token: i32,
        /// Rows of the smallest table.
        vocabulary: u64,
    },
    /// A number of the file is no token of any model.
    #[error("{path} holds a number that is no token: it is below 0, or above {}", i32::MAX)]
    NoToken {
        /// Which file.
        path: PathBuf,
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
    /// Examples of a file have other types or shapes than the data tensors, are too few, or beyond tables and classes.
    #[error("{path} does not feed the model: {reason}")]
    Unfit {
        /// Which file.
        path: PathBuf,
        /// What differs, with both numbers.
        reason: String,
        /// What to change.
        help: String,
    },
}
