//! The cache of compiled kernels: a file per source and target, so that only the first run of a
//! program waits for the compiler.
//!
//! A file is complete or absent, and says what its bytes add up to: one that is damaged is compiled again.

use pipe_ir::digest::Digest;
use std::fs;
use std::path::{Path, PathBuf};

/// Where files are: `$XDG_CACHE_HOME/pipec`, or `~/.cache/pipec`. `None` where neither is known, and nothing is kept.
pub(crate) fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("pipec"))
}

/// What the key stands for, from the folder, or else made now and kept there for the next time.
///
/// # Errors
/// Those of `make`. A folder that cannot be written costs time and nothing else.
pub(crate) fn cached(
    folder: Option<&Path>,
    key: &str,
    make: impl FnOnce() -> Result<Vec<u8>, String>,
) -> Result<Vec<u8>, String> {
    let Some(folder) = folder else { return make() };
    let path = folder.join(format!("{key}.kernels"));
    if let Some(found) = fs::read(&path).ok().and_then(|bytes| opened(&bytes)) {
        return Ok(found);
    }
    let made = make()?;
    // Whoever renames last wins; all of them have the same.
    let beside = folder.join(format!("{key}.{}.tmp", std::process::id()));
    let kept = fs::create_dir_all(folder)
        .and_then(|()| fs::write(&beside, closed(&made)))
        .and_then(|()| fs::rename(&beside, &path));
    if kept.is_err() {
        let _ = fs::remove_file(&beside);
    }
    Ok(made)
}

/// A line before the bytes.
const FORMAT: &str = "pipec.kernels/1";

fn closed(bytes: &[u8]) -> Vec<u8> {
    let mut file = format!("{FORMAT} {}\n", Digest::default().and(bytes)).into_bytes();
    file.extend_from_slice(bytes);
    file
}

fn opened(file: &[u8]) -> Option<Vec<u8>> {
    let end = file.iter().position(|byte| *byte == b'\n')?;
    let bytes = &file[end + 1..];
    (file[..end] == *format!("{FORMAT} {}", Digest::default().and(bytes)).as_bytes()).then(|| bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_found_again_until_its_file_is_damaged() {
        let folder = std::env::temp_dir().join(format!("pipec-cache-{}", std::process::id()));
        let make = |bytes: &'static [u8]| cached(Some(&folder), "key", || Ok(bytes.to_vec()));
        assert_eq!(make(b"one"), Ok(b"one".to_vec()));
        assert_eq!(make(b"two"), Ok(b"one".to_vec()));
        let path = folder.join("key.kernels");
        for damaged in [&b""[..], b"pipec.kernels/1 00\nother", b"no line"] {
            fs::write(&path, damaged).expect("written before");
            assert_eq!(make(b"three"), Ok(b"three".to_vec()));
        }
        let failed = cached(Some(&folder), "other", || Err("no".to_owned()));
        assert_eq!((failed, folder.read_dir().expect("made").count()), (Err("no".to_owned()), 1));
        fs::remove_dir_all(&folder).expect("made");
        assert_eq!(cached(Some(Path::new("/dev/null/x")), "key", || Ok(vec![1])), Ok(vec![1]), "nowhere to keep it");
    }
}
