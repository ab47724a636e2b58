//! Tokenizers: what makes tokens of a text, and text of tokens, as a `tokenizer.json` of Hugging Face says.

use crate::regular_file;
use crate::values::data::DataError;
use std::path::Path;

/// The largest tokenizer that is read: 1 GiB.
const MOST_BYTES: u64 = 1 << 30;
/// Texts are cut behind the first end of a line after so many bytes. What stands on both sides of a cut never becomes
/// one token.
const PIECE: usize = 1 << 20;

/// An open tokenizer.
pub struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// If it cannot be read, or is no tokenizer.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let wrong = |reason: String| DataError::Tokenizer { path: path.to_owned(), reason };
        let bytes = regular_file::read(path, MOST_BYTES).map_err(|error| wrong(error.to_string()))?;
        let mut found = tokenizers::Tokenizer::from_bytes(&bytes).map_err(|error| wrong(error.to_string()))?;
        // A text is encoded as a whole, whatever the tokenizer was saved for.
        let cut = found.with_truncation(None).map(drop);
        cut.map_err(|error| wrong(error.to_string()))?;
        found.with_padding(None);
        Ok(Self(found))
    }

    /// How many tokens it has, special ones included.
    pub fn vocabulary(&self) -> usize {
        self.0.get_vocab_size(true)
    }

    /// The tokens of a text, without special ones at its ends.
    ///
    /// # Errors
    /// Why the tokenizer refuses it.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>, String> {
        let pieces = pieces(text);
        let encoded = self.0.encode_batch_fast(pieces, false).map_err(|error| error.to_string())?;
        let ids = encoded.iter().flat_map(|piece| piece.get_ids());
        Ok(ids.map(|id| i32::try_from(*id).unwrap_or(-1)).collect())
    }

    /// The text of tokens, special ones included. Those that it does not have are left out.
    pub fn decode(&self, tokens: &[i32]) -> String {
        let ids: Vec<u32> = tokens.iter().filter_map(|token| u32::try_from(*token).ok()).collect();
        self.0.decode(&ids, false).unwrap_or_default()
    }
}

/// A text in pieces that end behind lines.
fn pieces(text: &str) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while rest.len() > PIECE {
        let line = rest.as_bytes()[PIECE..].iter().position(|byte| *byte == b'\n');
        let Some(end) = line.map(|line| PIECE + line + 1).filter(|end| *end < rest.len()) else { break };
        let (piece, others) = rest.split_at(end);
        pieces.push(piece);
        rest = others;
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use super::{PIECE, pieces};

    #[test]
    fn pieces_are_the_text_and_end_behind_lines() {
        let text = "words and words\n".repeat(3 * PIECE / 16 + 5);
        let found = pieces(&text);
        assert_eq!(found.len(), 4);
        assert_eq!(found.concat(), text);
        assert!(found.iter().all(|piece| piece.ends_with('\n')));
        assert_eq!(pieces(""), [""]);
        let long = "x".repeat(2 * PIECE);
        assert_eq!(pieces(&long), [long.as_str()]);
    }
}
