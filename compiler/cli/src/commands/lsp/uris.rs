//! Names of documents: `file:///folder/x.pipe` as a path and back, on any system, with `%20` and its like.

use std::path::{Path, PathBuf};

/// The path of a `file:` URI; other documents, such as `untitled:Untitled-1`, have none.
pub(super) fn to_path(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let (host, path) = rest.split_at(rest.find('/')?);
    let path = decoded(path)?;
    let path = match path.as_bytes() {
        // A drive: `/c:/folder`.
        [b'/', drive, b':', ..] if drive.is_ascii_alphabetic() => {
            format!("{}{}", drive.to_ascii_lowercase() as char, &path[2..])
        }
        _ if !host.is_empty() && host != "localhost" => format!("//{host}{path}"),
        _ => path,
    };
    Some(PathBuf::from(path))
}

/// The URI of a path.
pub(super) fn from_path(path: &Path) -> String {
    let path = path.display().to_string().replace('\\', "/");
    let (start, path) = match path.strip_prefix("//") {
        Some(share) => ("file://", share),
        None if path.starts_with('/') => ("file://", path.as_str()),
        None => ("file:///", path.as_str()),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let letter = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    start.to_owned() + &path.bytes().map(letter).collect::<String>()
}

/// Equal for all ways to write the URI of a document.
pub(super) fn normal(uri: &str) -> String {
    to_path(uri).map_or_else(|| uri.to_owned(), |path| from_path(&path))
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = others.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_paths_and_back() {
        for (uri, path) in [
            ("file:///a/b.pipe", "/a/b.pipe"),
            ("file:///a%20b/%C3%A9%25.pipe", "/a b/é%.pipe"),
            ("file:///c%3A/a/b.pipe", "c:/a/b.pipe"),
            ("file://server/share/b.pipe", "//server/share/b.pipe"),
        ] {
            assert_eq!(to_path(uri), Some(PathBuf::from(path)), "{uri}");
            assert_eq!(from_path(Path::new(path)), uri);
        }
        assert_eq!(normal("file:///C:/A/b.pipe"), "file:///c%3A/A/b.pipe");
        assert_eq!(normal("file://localhost/a%2Fb"), "file:///a/b");
        assert_eq!(to_path("untitled:Untitled-1"), None);
        assert_eq!(to_path("file:///%ff"), None);
        assert_eq!(to_path("file:///100%"), Some(PathBuf::from("/100%")));
        assert_eq!(to_path("file://"), None);
    }
}
