//! Signs of life as they are shown: who a rank is, where its devices are, and whether it has taken its leave.

use crate::lost::Process;
use serde::{Deserialize, Serialize};

/// What a rank shows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RankState {
    /// Counted from 1: a rank that shows no new one is silent.
    pub(crate) number: u64,
    pub(crate) process: Process,
    /// By its own devices, in their order.
    pub(crate) positions: Vec<u64>,
    pub(crate) has_left: bool,
}

impl RankState {
    /// The next one, as bytes.
    pub(crate) fn next(&mut self, positions: Vec<u64>, has_left: bool) -> Vec<u8> {
        self.number += 1;
        (self.positions, self.has_left) = (positions, has_left);
        serde_json::to_vec(self).unwrap_or_default()
    }
}
