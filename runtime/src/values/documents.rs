//! Documents: where a token ends each document of a file, what tells those of a row apart, and which predictions count.
//!
//! The token belongs to the document that it ends. A position sees its own document only, which
//! begins in the row where the row cuts it, and counts positions from there. At the token that ends a
//! document, the next one is of another: what is predicted there does not count (Megatron-LM's
//! `--reset-position-ids --reset-attention-mask --eod-mask-loss`).

use crate::values::windows::Row;
use pipe_ir::graph::DType;
use pipe_ir::value::TensorSlot;
use std::io;
use std::sync::{Mutex, PoisonError};

/// What a tensor says of documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    /// `starts`: for each position the first one of its document.
    Starts,
    /// `positions`: each position, from the beginning of its document on.
    Positions,
    /// `counted`: what the prediction at a position weighs, so that the mean over all positions is that over those that
    /// count.
    Counted,
}

impl Of {
    /// What a tensor of a row for each row says, if it says something of documents.
    pub(super) fn slot(slot: &TensorSlot) -> Option<Self> {
        let is_index = slot.ty.dtype == DType::I32;
        match slot.name.as_str() {
            "starts" if is_index => Some(Self::Starts),
            "positions" if is_index => Some(Self::Positions),
            "counted" if slot.ty.dtype.is_float() => Some(Self::Counted),
            _ => None,
        }
        .filter(|_| slot.ty.shape.len() == 2)
    }

    /// The numbers of a row with these tokens; those that count weigh `weight`. Without an end, a row is one document.
    pub(super) fn row(self, tokens: &[i32], end: Option<i32>, weight: f64) -> impl Iterator<Item = f64> {
        let mut start = 0;
        tokens.iter().enumerate().map(move |(position, token)| {
            let (own, ends) = (start, Some(*token) == end);
            if ends {
                start = position + 1;
            }
            match self {
                Self::Starts => own as f64,
                Self::Positions => (position - own) as f64,
                Self::Counted if ends => 0.0,
                Self::Counted => weight,
            }
        })
    }
}

/// The token that ends a document, and what predictions weigh.
#[derive(Debug)]
pub(super) struct Documents {
    /// The token.
    pub(super) end: i32,
    /// Of the last step that was asked for, the first of its rows, and the weight.
    last: Mutex<Option<(Row, f64)>>,
}

impl Documents {
    pub(super) fn new(end: u32) -> Self {
        Self { end: i32::try_from(end).unwrap_or(i32::MAX), last: Mutex::new(None) }
    }

    /// What a prediction that counts weighs among these rows, the first of which tells them from others: how many there
    /// are for each that counts. `read` gives the tokens of a row.
    pub(super) fn weight(
        &self,
        rows: impl Iterator<Item = Row>,
        mut read: impl FnMut(Row, &mut [i32]) -> io::Result<()>,
        sequence: usize,
    ) -> io::Result<f64> {
        let mut rows = rows.peekable();
        let Some(first) = rows.peek().copied() else { return Ok(1.0) };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, weight)) = *last
            && known == first
        {
            return Ok(weight);
        }
        let (mut all, mut counted, mut tokens) = (0_u64, 0_u64, vec![0; sequence]);
        for row in rows {
            read(row, &mut tokens)?;
            all += tokens.len() as u64;
            counted += tokens.iter().filter(|token| **token != self.end).count() as u64;
        }
        let weight = if counted == 0 { 0.0 } else { all as f64 / counted as f64 };
        *last = Some((first, weight));
        Ok(weight)
    }
}

#[cfg(test)]
mod tests {
    use super::{Documents, Of, Row};
    use pipe_ir::ids::MicrobatchId;

    #[test]
    fn a_row_has_the_documents_between_its_ends() {
        let tokens = [5, 6, 0, 7, 0, 0, 8, 9];
        let row = |of: Of, end| of.row(&tokens, end, 1.5).collect::<Vec<_>>();
        assert_eq!(row(Of::Starts, Some(0)), [0.0, 0.0, 0.0, 3.0, 3.0, 5.0, 6.0, 6.0]);
        assert_eq!(row(Of::Positions, Some(0)), [0.0, 1.0, 2.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
        assert_eq!(row(Of::Counted, Some(0)), [1.5, 1.5, 0.0, 1.5, 0.0, 0.0, 1.5, 1.5]);
        assert_eq!(row(Of::Starts, None), [0.0; 8]);
        assert_eq!(row(Of::Positions, None), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    }

    #[test]
    fn predictions_that_count_weigh_as_much_as_all() {
        let rows = |step| (0..3).map(move |row| Row { step, microbatch: MicrobatchId(0), row, rows: 3 });
        let documents = Documents::new(9);
        let read = |row: Row, out: &mut [i32]| {
            out.copy_from_slice(&[1, row.row as i32 + 7, 9, 3]);
            Ok(())
        };
        // Row 2 has the token twice.
        assert_eq!(documents.weight(rows(0), read, 4).expect("read"), 12.0 / 8.0);
        assert_eq!(documents.weight(rows(0), |_, _| panic!("it is known"), 4).expect("known"), 12.0 / 8.0);
        let ends = |_: Row, out: &mut [i32]| {
            out.fill(9);
            Ok(())
        };
        assert_eq!(documents.weight(rows(1), ends, 4).expect("read"), 0.0);
    }
}
