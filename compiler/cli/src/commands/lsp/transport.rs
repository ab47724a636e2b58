//! Messages as they travel: a header with the number of bytes, then JSON. One that is broken does not end the session.

use lsp_server::Message;
use std::io::BufRead;

/// The longest message that is read, in bytes.
const LONGEST: u64 = 64 << 20;

/// What came from the client.
pub(super) enum Incoming {
    Message(Message),
    /// Something else, for this reason.
    Broken(String),
    /// There will be nothing more.
    End,
}

/// Waits for the next message.
pub(super) fn read(input: &mut impl BufRead) -> Incoming {
    let mut size: Option<u64> = None;
    loop {
        let mut line = Vec::new();
        // Headers are short; what is longer is none.
        match std::io::Read::take(&mut *input, 4096).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Incoming::End,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        match (line.split_once(':'), size) {
            (Some((name, value)), _) if name.trim().eq_ignore_ascii_case("content-length") => {
                size = value.trim().parse().ok();
                if size.is_none() {
                    return Incoming::Broken(format!("`{line}` has no number"));
                }
            }
            (Some(_), _) => {}
            (None, Some(size)) if line.is_empty() => return body(input, size),
            (None, None) if line.is_empty() => {}
            (None, _) => return Incoming::Broken(format!("`{line:.60}` is not a header")),
        }
    }
}

fn body(input: &mut impl BufRead, size: u64) -> Incoming {
    let mut bytes = Vec::new();
    let mut body = std::io::Read::take(&mut *input, size);
    if size > LONGEST {
        return match std::io::copy(&mut body, &mut std::io::sink()) {
            Ok(_) => Incoming::Broken(format!("it has {size} bytes, more than {LONGEST}")),
            Err(_) => Incoming::End,
        };
    }
    match std::io::Read::read_to_end(&mut body, &mut bytes) {
        Ok(read) if read as u64 == size => {}
        Ok(_) | Err(_) => return Incoming::End,
    }
    serde_json::from_slice(&bytes).map_or_else(|error| Incoming::Broken(error.to_string()), Incoming::Message)
}
