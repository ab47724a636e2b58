//! Reading what users name. Targets, profiles, clusters, traces and programs may be a file, a pipe,
//! a process substitution or `-`: they are read up to a size, and a word on standard error says so
//! where nothing comes. Imports are regular files, as data and checkpoints are
//! ([`pipe_runtime::regular_file`]).

use crate::output::warn;
use pipe_runtime::regular_file;
use pipe_syntax::parse::MAX_BYTES;
use std::fs::{File, metadata};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long nothing comes before that is said.
const PATIENCE: Duration = Duration::from_secs(3);
/// The largest program in the instruction form that is read: 1 GiB.
pub(crate) const MOST_INSTRUCTIONS: u64 = 1 << 30;
/// The largest trace that is read: 16 GiB.
pub(crate) const MOST_TRACE: u64 = 16 << 30;
/// What names standard input.
pub(crate) const STANDARD_INPUT: &str = "-";

/// A file or a stream that is read up to a size.
pub(crate) struct Stream {
    from: Box<dyn Read>,
    left: u64,
    most: u64,
    patience: Option<Patience>,
}

/// Opens a file that the user names, and limits how many bytes are read from it. Fails if it cannot be opened.
pub(crate) fn open(name: &str, most: u64) -> io::Result<Stream> {
    let is_regular = name != STANDARD_INPUT && metadata(name).is_ok_and(|found| found.is_file());
    let said = if name == STANDARD_INPUT { "standard input" } else { name };
    // A named pipe is waited for where it is opened.
    let patience = (!is_regular).then(|| Patience::new(said.to_owned(), PATIENCE, warn));
    let from: Box<dyn Read> =
        if name == STANDARD_INPUT { Box::new(io::stdin().lock()) } else { Box::new(File::open(name)?) };
    Ok(Stream { from, left: most, most, patience })
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !out.is_empty() {
            // The end is still to be seen.
            return match self.from.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(io::Error::other(format!("it has more than {} bytes, and no more are read", self.most))),
            };
        }
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        let count = self.from.read(&mut out[..room])?;
        self.left -= count as u64;
        if let Some(patience) = &self.patience {
            patience.seen.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(count)
    }
}

/// Says once that nothing comes, for as long as it lives.
struct Patience {
    seen: Arc<AtomicU64>,
    /// Its end is that of the thread.
    _end: Sender<()>,
}

impl Patience {
    fn new(name: String, patience: Duration, say: impl Fn(&str) + Send + 'static) -> Self {
        let (seen, (end, ended)) = (Arc::new(AtomicU64::new(0)), channel::<()>());
        let counted = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut before = 0;
            while ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                let now = counted.load(Ordering::Relaxed);
                if now == before {
                    say(&format!(
                        "nothing has come from {name} for {} seconds; it is still waited for",
                        patience.as_secs()
                    ));
                    return;
                }
                before = now;
            }
        });
        Self { seen, _end: end }
    }
}

/// Reads a source that a user names, without the mark that some editors begin a file with. Of one that is too long no
/// more is read than it takes to see that: whoever reads the text refuses it with its place. Fails if it cannot be
/// read, or is no text.
pub(crate) fn source_text(name: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    open(name, u64::MAX)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    text(bytes, MAX_BYTES)
}

/// Reads the file called `name`, or standard input for `-`, as UTF-8.
///
/// # Errors
/// If it cannot be read, has more than `most` bytes, or is not UTF-8.
pub(crate) fn whole_text(name: &str, most: u64) -> io::Result<String> {
    let mut text = String::new();
    open(name, most)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a file that a source imports. Fails if it cannot be read, is no regular file, or no text.
pub(crate) fn import(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    let (file, _) = regular_file::open(path, u64::MAX)?;
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    text(bytes, MAX_BYTES)
}

fn text(bytes: Vec<u8>, most: usize) -> io::Result<String> {
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        // The cut may go through a character.
        Err(error) if error.as_bytes().len() > most => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        Err(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8")),
    };
    match text.strip_prefix('\u{feff}') {
        Some(rest) => Ok(rest.to_owned()),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::{Patience, Stream};
    use std::io::Read;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_stream_is_read_up_to_its_limit() {
        let read = |most: u64| {
            let mut text = String::new();
            let mut stream = Stream { from: Box::new(&b"four"[..]), left: most, most, patience: None };
            stream.read_to_string(&mut text).map(|_| text).map_err(|error| error.to_string())
        };
        assert_eq!(read(4), Ok("four".to_owned()));
        assert_eq!(read(3), Err("it has more than 3 bytes, and no more are read".to_owned()));
    }

    #[test]
    fn a_silent_stream_is_told_of_once() {
        let (said, words) = channel();
        let patience = Patience::new("x".to_owned(), Duration::from_millis(20), move |word| {
            drop(said.send(word.to_owned()));
        });
        let word = words.recv_timeout(Duration::from_secs(20)).expect("a word");
        assert!(word.starts_with("nothing has come from x"), "{word}");
        drop(patience);
        assert!(words.recv().is_err(), "no second word");
    }
}
