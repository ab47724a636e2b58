//! Checksums: whether bytes are those that were written.

use twox_hash::XxHash3_128;

/// XXH3 of 128 bits (<https://xxhash.com>) as 32 hexadecimal digits. It finds damage, not what
/// somebody forges on purpose.
pub(crate) fn of(bytes: &[u8]) -> String {
    format!("{:032x}", XxHash3_128::oneshot(bytes))
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn checksums_are_those_of_the_xxhash_library() {
        // `xxhsum -H128` and `xxhash.xxh3_128_hexdigest` of Python.
        for (text, checksum) in
            [("", "99aa06d3014798d86001c324468d497f"), ("pipec", "95b4b5e3e11840e67acf70d93c32deec")]
        {
            assert_eq!(of(text.as_bytes()), checksum, "{text:?}");
        }
    }
}
