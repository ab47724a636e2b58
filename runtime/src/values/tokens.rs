//! Files of tokens. A run reads windows of them, so a file may be larger than memory.
//!
//! A `.bin` file has nothing but numbers, as nanoGPT and Megatron-LM write them: of 16 bits where the vocabulary has at
//! most 65,536 tokens, else of 32. A `.npy` file says their type itself (NumPy's format, versions 1 to 3). All other
//! files are text, whose bytes are the tokens, or of which a tokenizer makes tokens, in memory.

use super::data::{DataError, MOST_BYTES};
use crate::checksum::Checksum;
use crate::regular_file;
use crate::values::tokenizer::Tokenizer;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Texts of which the tokens are kept: that of a training, and that of its validation.
const KEPT: usize = 2;
/// Tokens of these texts, by the checksum of the text and the tokenizer, from the newest on.
static MADE: Mutex<Vec<(Made, Arc<[i32]>)>> = Mutex::new(Vec::new());
/// The checksum of a text, and the path of a tokenizer.
type Made = (String, PathBuf);

/// The largest file that is opened: 16 TiB.
const MOST_TOKENS: u64 = MOST_BYTES << 10;
/// The longest header of a `.npy` file.
const MOST_HEADER: usize = 1 << 16;
/// Tokens that are checked when a file is opened, from its beginning. A later one that is beyond the
/// vocabulary ends the step that reads it.
const LOOKED_AT: u64 = 1 << 28;
/// Tokens that are read at once.
const PART: u64 = 1 << 20;
/// Bytes that are read at once for a checksum; of long files, only the first and the last of these parts.
const END: u64 = 1 << 26;

/// How a token lies in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Element {
    U8,
    U16,
    U32,
    I32,
    I64,
}

impl Element {
    const fn bytes(self) -> u64 {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 | Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// A token; what no table can have becomes -1.
    fn decode(self, bytes: &[u8]) -> i32 {
        let two = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
        let four = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        match self {
            Self::U8 => i32::from(bytes[0]),
            Self::U16 => i32::from(two(bytes)),
            Self::U32 => i32::try_from(four(bytes)).unwrap_or(-1),
            Self::I32 => four(bytes).cast_signed(),
            Self::I64 => {
                let token = u64::from(four(bytes)) | u64::from(four(&bytes[4..])) << 32;
                i32::try_from(token.cast_signed()).unwrap_or(-1)
            }
        }
    }
}

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
    File {
        file: File,
        /// The byte of the first token.
        start: u64,
        element: Element,
        bytes: u64,
    },
    /// Made of a text.
    Memory(Arc<[i32]>),
}

impl Tokens {
    /// Opens a file for a vocabulary of this size.
    ///
    /// # Errors
    /// If it cannot be read, or is no file of tokens.
    pub(super) fn open(path: &Path, vocabulary: u64) -> Result<Self, DataError> {
        let unreadable = |source| DataError::Read { path: path.to_owned(), source };
        let malformed = |reason: String| DataError::Malformed { path: path.to_owned(), reason };
        let (mut file, bytes) = regular_file::open(path, MOST_TOKENS).map_err(unreadable)?;
        let (start, element, count) = match path.extension().and_then(|extension| extension.to_str()) {
            Some("bin") => {
                let element = if vocabulary <= 1 << 16 { Element::U16 } else { Element::U32 };
                if !bytes.is_multiple_of(element.bytes()) {
                    let each = element.bytes();
                    return Err(malformed(format!("it has {bytes} bytes, and each token would have {each}")));
                }
                (0, element, bytes / element.bytes())
            }
            Some("npy") => header(&mut file, bytes).map_err(|error| match error {
                HeaderError::Io(source) => unreadable(source),
                HeaderError::Malformed(reason) => malformed(reason),
            })?,
            _ => (0, Element::U8, bytes),
        };
        Ok(Self { source: Source::File { file, start, element, bytes }, count })
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
            Source::File { file, start, element, .. } => {
                let each = element.bytes();
                let mut bytes = vec![0; out.len() * each as usize];
                read_at(file, start + from * each, &mut bytes)?;
                for (token, bytes) in out.iter_mut().zip(bytes.chunks_exact(each as usize)) {
                    *token = element.decode(bytes);
                }
            }
        }
        Ok(())
    }

    /// Tells files apart: by their length and a checksum, of long files only of both ends.
    pub(super) fn identity(&self) -> Option<String> {
        let mut checksum = Checksum::default();
        let (file, bytes) = match &self.source {
            Source::Memory(tokens) => {
                tokens.iter().for_each(|token| checksum.add(&token.to_le_bytes()));
                return Some(format!("{} tokens of checksum {}", self.count, checksum.finish()));
            }
            Source::File { file, bytes, .. } => (file, *bytes),
        };
        let is_long = bytes > MOST_BYTES;
        let word = if is_long { "checksum of both ends" } else { "checksum" };
        let starts = (0..bytes).step_by(END as usize);
        for from in starts.filter(|from| !is_long || *from == 0 || from + END >= bytes) {
            let mut part = vec![0; (bytes - from).min(END) as usize];
            read_at(file, from, &mut part).ok()?;
            checksum.add(&part);
        }
        Some(format!("{bytes} bytes of {word} {}", checksum.finish()))
    }
}

#[cfg(unix)]
fn read_at(file: &File, from: u64, bytes: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, from)
}

#[cfg(windows)]
fn read_at(file: &File, mut from: u64, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = std::os::windows::fs::FileExt::seek_read(file, bytes, from)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        from += count as u64;
        bytes = &mut bytes[count..];
    }
    Ok(())
}

enum HeaderError {
    Io(io::Error),
    Malformed(String),
}

/// Reads the header of a `.npy` file: where its numbers begin, how each lies there, and how many there are.
fn header(file: &mut File, bytes: u64) -> Result<(u64, Element, u64), HeaderError> {
    let malformed = |reason: &str| HeaderError::Malformed(reason.to_owned());
    let mut first = [0; 8];
    file.read_exact(&mut first).map_err(HeaderError::Io)?;
    if &first[..6] != b"\x93NUMPY" {
        return Err(malformed("it is not in NumPy's format"));
    }
    let mut length = [0; 4];
    let width = if first[6] == 1 { 2 } else { 4 };
    file.read_exact(&mut length[..width]).map_err(HeaderError::Io)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MOST_HEADER {
        return Err(HeaderError::Malformed(format!("its header would have {length} bytes")));
    }
    let mut text = vec![0; length];
    file.read_exact(&mut text).map_err(HeaderError::Io)?;
    let text = String::from_utf8_lossy(&text);
    let after = |key: &str| text.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    let descr = after("descr").and_then(|rest| rest.strip_prefix('\'')?.split_once('\'')).map(|(descr, _)| descr);
    let element = match descr {
        Some("|u1") => Element::U8,
        Some("<u2") => Element::U16,
        Some("<u4") => Element::U32,
        Some("<i4") => Element::I32,
        Some("<i8") => Element::I64,
        other => {
            let other = other.unwrap_or("unknown");
            let reason = format!("its numbers are of type `{other}`; `u1`, `u2`, `u4`, `i4` and `i8` are read");
            return Err(HeaderError::Malformed(reason));
        }
    };
    let shape = after("shape").and_then(|rest| rest.strip_prefix('(')?.split_once(')')).map(|(shape, _)| shape);
    let sizes: Option<Vec<u64>> = shape.and_then(|shape| {
        let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
        sizes.map(|size| size.parse().ok()).collect()
    });
    let [count] = sizes.as_deref().unwrap_or_default() else {
        return Err(malformed("it has several axes, or none; tokens stand along one"));
    };
    let start = (8 + width + length) as u64;
    match count.checked_mul(element.bytes()).and_then(|size| size.checked_add(start)) {
        Some(end) if end <= bytes => Ok((start, element, *count)),
        _ => Err(HeaderError::Malformed(format!("it has {bytes} bytes, too few for {count} tokens: it is cut off"))),
    }
}
