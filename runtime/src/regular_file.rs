//! Regular files, up to a size: whatever is not one (a folder, a pipe, a device) is refused before
//! it is opened, so that no read waits or never ends.

use std::fs::{File, Metadata, metadata};
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file of at most so many bytes; returns its length too.
///
/// # Errors
/// If it cannot be opened, is no regular file, or is larger.
pub fn open(path: &Path, most: u64) -> io::Result<(File, u64)> {
    // Opening a named pipe waits for whoever writes it.
    check(&metadata(path)?, most)?;
    let file = File::open(path)?;
    let bytes = check(&file.metadata()?, most)?;
    Ok((file, bytes))
}

/// Reads a regular file of at most so many bytes.
///
/// # Errors
/// As [`open`], and if it cannot be read or grows meanwhile.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, bytes) = open(path, most)?;
    let mut contents = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    file.take(most.saturating_add(1)).read_to_end(&mut contents)?;
    if contents.len() as u64 > most {
        return Err(too_large(contents.len() as u64, most));
    }
    Ok(contents)
}

fn check(metadata: &Metadata, most: u64) -> io::Result<u64> {
    if !metadata.is_file() {
        return Err(io::Error::other(format!("it is {}, and a regular file is needed", kind(metadata))));
    }
    if metadata.len() > most { Err(too_large(metadata.len(), most)) } else { Ok(metadata.len()) }
}

fn too_large(bytes: u64, most: u64) -> io::Error {
    io::Error::other(format!("it has {bytes} bytes, and at most {most} are read"))
}

/// What is there instead of a regular file.
fn kind(metadata: &Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = metadata.file_type();
        if kind.is_fifo() {
            return "a named pipe";
        } else if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        } else if kind.is_socket() {
            return "a socket";
        }
    }
    if metadata.is_dir() { "a folder" } else { "something else" }
}

#[cfg(test)]
mod tests {
    use super::read;
    use std::path::Path;

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let why = |path: &str, most| read(Path::new(path), most).expect_err("it is refused").to_string();
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(read(Path::new(here), 1 << 20).is_ok_and(|bytes| !bytes.is_empty()));
        assert!(why(here, 3).ends_with("bytes, and at most 3 are read"));
        assert_eq!(why(env!("CARGO_MANIFEST_DIR"), 9), "it is a folder, and a regular file is needed");
        assert_eq!(why("/dev/zero", 9), "it is a device, and a regular file is needed");
    }
}
