//! Digests: numbers that tell contents apart, to see whether several machines have the same.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// FNV-1a of 64 bits (RFC 9923). It finds differences that happen, not those that somebody makes on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Of more bytes.
    #[must_use]
    pub fn and(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map_err(|()| "expected a digest of 16 hexadecimal digits")
    }
}

impl FromStr for Digest {
    type Err = ();

    /// Reads what [`fmt::Display`] wrote.
    fn from_str(text: &str) -> Result<Self, ()> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 16 || !text.bytes().all(is_digit) {
            return Err(());
        }
        u64::from_str_radix(text, 16).map(Self).map_err(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn digests_are_those_of_the_standard() {
        // RFC 9923, test values of FNV-1a.
        for (text, digest) in [("", "cbf29ce484222325"), ("a", "af63dc4c8601ec8c"), ("foobar", "85944171f73967e8")] {
            assert_eq!(Digest::default().and(text.as_bytes()).to_string(), digest);
        }
        let digest = Digest::default().and(b"a");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for text in ["", "af63dc4c8601ec8", "AF63DC4C8601EC8C", "+f63dc4c8601ec8c"] {
            assert_eq!(text.parse::<Digest>(), Err(()), "{text}");
        }
        assert_eq!(Digest::default().and(b"foo").and(b"bar"), Digest::default().and(b"foobar"));
    }
}
