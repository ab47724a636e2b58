//! Checksums: whether bytes are those that were written.

use twox_hash::XxHash3_128;

/// XXH3 of 128 bits (<https://xxhash.com>) as 32 hexadecimal digits. It finds damage, not what
/// somebody forges on purpose.
pub(crate) fn of(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

/// The same of bytes that come part by part.
#[derive(Default)]
pub(crate) struct Checksum(XxHash3_128);

impl Checksum {
    /// Adds the next part.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Of all parts.
    pub(crate) fn finish(&self) -> String {
        format!("{:032x}", self.0.finish_128())
    }
}

#[cfg(test)]
mod tests {
    use super::{Checksum, of};

    #[test]
    fn checksums_are_those_of_the_xxhash_library() {
        // `xxhsum -H128` and `xxhash.xxh3_128_hexdigest` of Python.
        for (text, checksum) in
            [("", "99aa06d3014798d86001c324468d497f"), ("pipec", "95b4b5e3e11840e67acf70d93c32deec")]
        {
            assert_eq!(of(text.as_bytes()), checksum, "{text:?}");
        }
    }

    #[test]
    fn parts_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..5_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        for part in [1, 63, 240, 4_096, 5_000] {
            let mut checksum = Checksum::default();
            bytes.chunks(part).for_each(|part| checksum.add(part));
            assert_eq!(checksum.finish(), of(&bytes), "{part}");
        }
    }
}
