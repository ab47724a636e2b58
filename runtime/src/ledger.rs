//! Ledgers: what a device measures about its own memory while it runs.

use pipe_ir::ids::BufferId;
use pipe_ir::program::Buffer;
use pipe_ir::units::Bytes;
use std::collections::BTreeMap;

/// Counts the bytes alive on one device, from its own `alloc` and `free` instructions.
#[derive(Debug, Default)]
pub struct Ledger {
    live: Bytes,
    peak: Bytes,
    high_water: Bytes,
    /// Start and end of every live buffer; kept only where overlaps are looked for.
    ranges: Option<BTreeMap<Bytes, (Bytes, BufferId)>>,
}

impl Ledger {
    /// An empty ledger. A strict one also refuses buffers that overlap, at the price of a map look-up each.
    #[must_use]
    pub fn new(strict: bool) -> Self {
        Self { ranges: strict.then(BTreeMap::new), ..Self::default() }
    }

    /// A buffer begins to live.
    ///
    /// # Errors
    /// In a strict ledger, if it overlaps a live one.
    pub fn alloc(&mut self, id: BufferId, buffer: Buffer) -> Result<(), String> {
        let end = buffer.offset + buffer.bytes;
        if let Some(ranges) = &mut self.ranges {
            let below = ranges.range(..end).next_back();
            if let Some((_, (_, other))) = below.filter(|(_, (other_end, _))| *other_end > buffer.offset) {
                return Err(format!("{id} is allocated over {other}, which is alive"));
            }
            ranges.insert(buffer.offset, (end, id));
        }
        self.live += buffer.bytes;
        self.peak = self.peak.max(self.live);
        self.high_water = self.high_water.max(end);
        Ok(())
    }

    /// A buffer's life ends.
    ///
    /// # Errors
    /// In a strict ledger, if it was not alive.
    pub fn free(&mut self, id: BufferId, buffer: Buffer) -> Result<(), String> {
        if let Some(ranges) = &mut self.ranges {
            let known = ranges.remove(&buffer.offset);
            if known.is_none_or(|(_, other)| other != id) {
                return Err(format!("{id} is freed, but not alive"));
            }
        }
        self.live -= buffer.bytes;
        Ok(())
    }

    /// The most bytes alive at once so far.
    #[must_use]
    pub fn peak(&self) -> Bytes {
        self.peak
    }

    /// The end of the highest buffer so far: how much of the arena was used.
    #[must_use]
    pub fn high_water(&self) -> Bytes {
        self.high_water
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(offset: u64, bytes: u64) -> Buffer {
        Buffer { offset: Bytes(offset), bytes: Bytes(bytes) }
    }

    #[test]
    fn counts_live_bytes_and_high_water() {
        let mut ledger = Ledger::new(true);
        ledger.alloc(BufferId(0), buffer(0, 64)).expect("nothing is alive");
        ledger.alloc(BufferId(1), buffer(128, 64)).expect("disjoint");
        ledger.free(BufferId(0), buffer(0, 64)).expect("alive");
        ledger.alloc(BufferId(2), buffer(0, 128)).expect("disjoint again");
        assert_eq!((ledger.peak(), ledger.high_water()), (Bytes(192), Bytes(192)));
    }

    #[test]
    fn strict_ledgers_refuse_overlaps_and_double_frees() {
        let mut ledger = Ledger::new(true);
        ledger.alloc(BufferId(0), buffer(0, 128)).expect("nothing is alive");
        assert!(ledger.alloc(BufferId(1), buffer(64, 128)).is_err());
        ledger.free(BufferId(0), buffer(0, 128)).expect("alive");
        assert!(ledger.free(BufferId(0), buffer(0, 128)).is_err());
    }
}
