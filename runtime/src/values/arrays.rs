//! Arrays in files: an open file, and where in it the numbers of an array lie.
//!
//! Only what is asked for is read, so files may be larger than memory.

use super::data::{DataError, MOST_BYTES};
use super::elements::Element;
use crate::checksum::Checksum;
use crate::regular_file;
use crate::weights::shards::entries;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// The largest file that is opened: 16 TiB.
const MOST_FILE: u64 = MOST_BYTES << 10;
/// The longest header of a `.npy` file.
const MOST_HEADER: usize = 1 << 16;
/// Bytes that are read at once for a checksum; of long files, only the first and the last of these parts.
const END: u64 = 1 << 26;

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: File,
    /// How long it is.
    pub(super) bytes: u64,
}

impl OpenFile {
    /// Opens a regular file.
    ///
    /// # Errors
    /// If it cannot be read, or is none.
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let unreadable = |source| DataError::Read { path: path.to_owned(), source };
        let (file, bytes) = regular_file::open(path, MOST_FILE).map_err(unreadable)?;
        Ok(Self { file, bytes })
    }

    /// Fills bytes from a place on.
    pub(super) fn read_at(&self, from: u64, bytes: &mut [u8]) -> io::Result<()> {
        read_at(&self.file, from, bytes)
    }

    /// Tells files apart: by their length and a checksum, of long files only of both ends.
    pub(super) fn identity(&self) -> Option<String> {
        let (mut checksum, bytes) = (Checksum::default(), self.bytes);
        let is_long = bytes > MOST_BYTES;
        let word = if is_long { "checksum of both ends" } else { "checksum" };
        let starts = (0..bytes).step_by(END as usize);
        for from in starts.filter(|from| !is_long || *from == 0 || from + END >= bytes) {
            let mut part = vec![0; (bytes - from).min(END) as usize];
            self.read_at(from, &mut part).ok()?;
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

/// An array in a file, whose numbers lie one after the other, those of its last axis next to each other.
#[derive(Clone, Debug)]
pub(super) struct Array {
    pub(super) file: Arc<OpenFile>,
    /// The byte of the first number.
    pub(super) start: u64,
    pub(super) element: Element,
    pub(super) shape: Vec<u64>,
}

impl Array {
    /// Bytes of numbers, of which the first is number `from` of the array, so many as fit.
    pub(super) fn read(&self, from: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_at(self.start + from * self.element.bytes(), bytes)
    }
}

/// Where a file has its array: the first byte, the type of the numbers, and the shape.
type Place = (u64, Element, Vec<u64>);

/// The array of a `.npy` file (NumPy's format, versions 1 to 3).
///
/// # Errors
/// If the file cannot be read, is cut off, or has no numbers in the order of C: why it is none of what `noun` says.
pub(super) fn of_numpy(path: &Path, noun: &'static str) -> Result<Array, DataError> {
    let mut file = OpenFile::open(path)?;
    match header(&mut file.file, file.bytes) {
        Ok((start, element, shape)) => Ok(Array { file: Arc::new(file), start, element, shape }),
        Err(HeaderError::Io(source)) => Err(DataError::Read { path: path.to_owned(), source }),
        Err(HeaderError::Malformed(reason)) => Err(DataError::Malformed { path: path.to_owned(), noun, reason }),
    }
}

/// A tensor of a safetensors file: its name, and the array, or the type of one that has no numbers.
pub(super) type Named = (String, Result<Array, String>);

/// The arrays of a safetensors file.
///
/// # Errors
/// If the file cannot be read or is cut off.
pub(super) fn of_safetensors(path: &Path, noun: &'static str) -> Result<Vec<Named>, DataError> {
    let mut file = OpenFile::open(path)?;
    let malformed = |reason| DataError::Malformed { path: path.to_owned(), noun, reason };
    let entries = entries(&mut file.file, file.bytes).map_err(malformed)?;
    let file = Arc::new(file);
    let arrays = entries.into_iter().map(|(name, dtype, shape, start)| {
        let element = Element::of_safetensors(dtype).ok_or_else(|| format!("{dtype:?}"));
        (name, element.map(|element| Array { file: Arc::clone(&file), start, element, shape }))
    });
    Ok(arrays.collect())
}

enum HeaderError {
    Io(io::Error),
    Malformed(String),
}

/// Reads the header of a `.npy` file.
fn header(file: &mut File, bytes: u64) -> Result<Place, HeaderError> {
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
    let Some(element) = descr.and_then(Element::of_numpy) else {
        let found = descr.unwrap_or("unknown");
        return Err(HeaderError::Malformed(format!("its numbers are of type `{found}`, which is not read")));
    };
    let shape = after("shape").and_then(|rest| rest.strip_prefix('(')?.split_once(')')).map(|(shape, _)| shape);
    let sizes = shape.and_then(|shape| {
        let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
        sizes.map(|size| size.parse().ok()).collect::<Option<Vec<u64>>>()
    });
    let sizes = sizes.ok_or_else(|| malformed("its header has no shape"))?;
    if sizes.len() > 1 && after("fortran_order").is_some_and(|rest| rest.starts_with("True")) {
        let reason = "it lies column by column, and rows are read: save `numpy.ascontiguousarray(array)`";
        return Err(malformed(reason));
    }
    let start = (8 + width + length) as u64;
    let count = sizes.iter().try_fold(1_u64, |count, size| count.checked_mul(*size));
    let end = count.and_then(|count| count.checked_mul(element.bytes())?.checked_add(start));
    match end {
        Some(end) if end <= bytes => Ok((start, element, sizes)),
        _ => {
            let count = sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" x ");
            Err(HeaderError::Malformed(format!("it has {bytes} bytes, too few for {count} numbers: it is cut off")))
        }
    }
}
