//! Files of tokens. A run reads windows of them, so a file may be larger than memory.
//!
//! A `.bin` file has nothing but numbers, as nanoGPT and Megatron-LM write them: of 16 bits where the vocabulary has at
//! most 65,536 tokens, else of 32. A `.npy` file says their type itself (NumPy's format, versions 1 to 3). All other
//! files are text, whose bytes are the tokens, or of which a tokenizer makes tokens, in memory.

use super::arrays::{Array, OpenFile, of_numpy};
use super::data::{DataError, MOST_BYTES};
use super::elements::Element;
use crate::checksum::Checksum;
use crate::regular_file;
use crate::values::tokenizer::Tokenizer;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Texts of which the tokens are kept: that of a training, and that of its validation.
const KEPT: usize = 2;
/// Tokens of these texts, by the checksum of the text and the tokenizer, from the newest on.
static MADE: Mutex<Vec<(Made, Arc<[i32]>)>> = Mutex::new(Vec::new());
/// The checksum of a text, and the path of a tokenizer.
type Made = (String, PathBuf);

/// The types of tokens in a `.npy` file.
const TOKENS: [Element; 5] = [Element::U8, Element::U16, Element::U32, Element::I32, Element::I64];
/// What a file is that can be opened.
const NOUN: &str = "a file of tokens";
/// Tokens that are checked when a file is opened, from its beginning. A later one that is beyond the
/// vocabulary ends the step that reads it.
pub(super) const LOOKED_AT: u64 = 1 << 28;
/// Tokens that are read at once.
pub(super) const PART: u64 = 1 << 20;

/// Tokens of a file.
#[derive(Debug)]
pub(super) struct Tokens {
    source: Source,
    /// How many tokens there are.
    pub count: u64,
}

#[derive(Debug)]
enum Source {
    /// As they lie in an open file.
    File(Array),
    /// Made of a text.
    Memory(Arc<[i32]>),
}

impl Tokens {
    /// Opens a file for a vocabulary of this size.
    ///
    /// # Errors
    /// If it cannot be read, or is no file of tokens.
    pub(super) fn open(path: &Path, vocabulary: u64) -> Result<Self, DataError> {
        let malformed = |reason: String| DataError::Malformed { path: path.to_owned(), noun: NOUN, reason };
        let array = match path.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => {
                let array = of_numpy(path, NOUN)?;
                if !TOKENS.contains(&array.element) {
                    let found = array.element.name();
                    let reason = format!("its numbers are of type {found}; u8, u16, u32, i32 and i64 are read");
                    return Err(malformed(reason));
                }
                if array.shape.len() != 1 {
                    return Err(malformed("it has several axes, or none; tokens stand along one".to_owned()));
                }
                array
            }
            extension => {
                let file = OpenFile::open(path)?;
                let element = match extension {
                    Some("bin") if vocabulary <= 1 << 16 => Element::U16,
                    Some("bin") => Element::U32,
                    _ => Element::U8,
                };
                let (bytes, each) = (file.bytes, element.bytes());
                if !bytes.is_multiple_of(each) {
                    return Err(malformed(format!("it has {bytes} bytes, and each token would have {each}")));
                }
                Array { file: Arc::new(file), start: 0, element, shape: vec![bytes / each] }
            }
        };
        Ok(Self { count: array.shape[0], source: Source::File(array) })
    }

    /// Makes tokens of a text. Those that were made last are kept, for whoever asks again.
    ///
    /// # Errors
    /// If the tokenizer or the text cannot be read, or the text is none.
    pub(super) fn of_text(path: &Path, tokenizer: &Path) -> Result<Self, DataError> {
        let unreadable = |source| DataError::Read { path: path.to_owned(), source };
        let refused = |reason: String| DataError::NoText { path: path.to_owned(), reason };
        let (text, opened) = (regular_file::read(path, MOST_BYTES).map_err(unreadable)?, Tokenizer::open(tokenizer)?);
        let mut checksum = Checksum::default();
        checksum.add(&text);
        let key = (checksum.finish().to_string(), tokenizer.to_owned());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let tokens = match made.iter().find(|(known, _)| *known == key) {
            Some((_, tokens)) => Arc::clone(tokens),
            None => {
                let text = str::from_utf8(&text)
                    .map_err(|error| refused(format!("its byte {} is not UTF-8", error.valid_up_to())))?;
                let tokens: Arc<[i32]> = opened.encode(text).map_err(refused)?.into();
                made.truncate(KEPT - 1);
                made.insert(0, (key, Arc::clone(&tokens)));
                tokens
            }
        };
        Ok(Self { count: tokens.len() as u64, source: Source::Memory(tokens) })
    }

    /// The largest token among those that are looked at, and whether any is below 0.
    pub(super) fn extremes(&self, path: &Path) -> Result<(i32, bool), DataError> {
        let (mut largest, mut is_below) = (0, false);
        let mut tokens = vec![0; PART as usize];
        for from in (0..self.count.min(LOOKED_AT)).step_by(PART as usize) {
            let part = &mut tokens[..(self.count - from).min(PART) as usize];
            self.read(from, part).map_err(|source| DataError::Read { path: path.to_owned(), source })?;
            largest = part.iter().copied().max().unwrap_or(0).max(largest);
            is_below |= part.iter().any(|token| *token < 0);
        }
        Ok((largest, is_below))
    }

    /// Tokens from one on.
    pub(super) fn read(&self, from: u64, out: &mut [i32]) -> io::Result<()> {
        match &self.source {
            Source::Memory(tokens) => {
                let own = usize::try_from(from).ok().and_then(|from| tokens.get(from..from + out.len()));
                out.copy_from_slice(own.ok_or(io::ErrorKind::UnexpectedEof)?);
            }
            Source::File(array) => {
                let each = array.element.bytes() as usize;
                let mut bytes = vec![0; out.len() * each];
                array.read(from, &mut bytes)?;
                for (token, bytes) in out.iter_mut().zip(bytes.chunks_exact(each)) {
                    *token = array.element.index(bytes);
                }
            }
        }
        Ok(())
    }

    /// Tells files apart: by their length and a checksum, of long files only of both ends.
    pub(super) fn identity(&self) -> Option<String> {
        match &self.source {
            Source::Memory(tokens) => {
                let mut checksum = Checksum::default();
                tokens.iter().for_each(|token| checksum.add(&token.to_le_bytes()));
                Some(format!("{} tokens of checksum {}", self.count, checksum.finish()))
            }
            Source::File(array) => array.file.identity(),
        }
    }
}
