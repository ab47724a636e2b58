//! Digests: numbers that tell contents apart, to see whether several machines have the same.

use serde::{Deserialize, Serialize};
use std::fmt;

/// FNV-1a of 64 bits (RFC 9923). It finds differences that happen, not those that somebody makes on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
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

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn digests_are_those_of_the_standard() {
        // RFC 9923, test values of FNV-1a.
        for (text, digest) in [("", "cbf29ce484222325"), ("a", "af63dc4c8601ec8c"), ("foobar", "85944171f73967e8")] {
            assert_eq!(Digest::default().and(text.as_bytes()).to_string(), digest);
        }
        assert_eq!(Digest::default().and(b"foo").and(b"bar"), Digest::default().and(b"foobar"));
    }
}
