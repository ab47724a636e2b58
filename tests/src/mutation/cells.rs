//! The bytes of a device on the machine of fingerprints: what was written where, and what is alive.

use pipe_ir::ids::BufferId;
use pipe_ir::program::{Buffer, Space};
use std::collections::BTreeMap;

/// The bytes of one device.
#[derive(Default)]
pub(super) struct Cells {
    /// What was written: from the key to the first number, with its fingerprint.
    pub(super) written: BTreeMap<u64, (u64, u64)>,
    pub(super) alive: BTreeMap<u64, (u64, BufferId)>,
    /// By space.
    pub(super) bytes: [u64; 2],
    pub(super) peak: [u64; 2],
    /// Fingerprints that nothing else has.
    pub(super) garbage: u64,
}

impl Cells {
    pub(super) fn wipe(&mut self, start: u64, end: u64) {
        let hit: Vec<u64> =
            self.written.range(..end).filter(|(_, (to, _))| *to > start).map(|(from, _)| *from).collect();
        for from in hit {
            self.written.remove(&from);
        }
    }

    /// Values without bytes are taken for one byte, so that they have a fingerprint too.
    pub(super) fn write(&mut self, start: u64, bytes: u64, print: u64) {
        let end = start + bytes.max(1);
        self.wipe(start, end);
        self.written.insert(start, (end, print));
    }

    /// Fills a buffer. One without bytes is nowhere: at its address is something else.
    pub(super) fn fill(&mut self, place: Buffer, bytes: u64, print: u64) {
        if place.bytes.0 > 0 {
            self.write(address(place), bytes, print);
        }
    }

    /// What a buffer holds.
    pub(super) fn held(&mut self, place: Buffer, bytes: u64) -> u64 {
        if place.bytes.0 > 0 { self.read(address(place), bytes) } else { 0 }
    }

    pub(super) fn read(&mut self, start: u64, bytes: u64) -> u64 {
        match self.written.get(&start) {
            Some((end, print)) if *end >= start + bytes => *print,
            _ => {
                self.garbage += 1;
                mix(&[0xbad, self.garbage, start])
            }
        }
    }
}

/// Where a buffer starts: the host's memory lies far behind the device's.
pub(super) fn address(place: Buffer) -> u64 {
    place.offset.0 + if place.space == Space::Host { 1 << 50 } else { 0 }
}

/// A fingerprint of some words and of their order.
pub(super) fn mix(words: &[u64]) -> u64 {
    words.iter().fold(0x6a09_e667_f3bc_c908, |state, word| {
        let mut word = (state ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    })
}
