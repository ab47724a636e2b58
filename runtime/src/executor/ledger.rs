//! The ledger: what a device really holds, counted at run time and independently of what the compiler said.

use pipe_distributed::{Fault, Used};
use pipe_ir::ids::BufferId;
use pipe_ir::program::{Buffer, Space};
use pipe_ir::units::Bytes;
use std::collections::BTreeMap;

/// Live buffers of one device.
#[derive(Clone, Debug)]
pub struct Ledger {
    places: Vec<Buffer>,
    alive: Vec<bool>,
    /// By space.
    live: [Bytes; Space::ALL.len()],
    used: [Used; Space::ALL.len()],
    /// Live buffers by space and offset, with their ends: kept where overlaps are looked for.
    ranges: Option<BTreeMap<(Space, Bytes), (Bytes, BufferId)>>,
}

impl Ledger {
    /// Nothing is alive. `strict` looks for overlaps too.
    pub fn new(places: Vec<Buffer>, strict: bool) -> Self {
        let alive = vec![false; places.len()];
        let ranges = strict.then(BTreeMap::new);
        Self { places, alive, live: Default::default(), used: Default::default(), ranges }
    }

    /// Begins the lifespan of a buffer.
    pub fn alloc(&mut self, buffer: BufferId) -> Result<(), Fault> {
        if std::mem::replace(&mut self.alive[buffer.index()], true) {
            return Err(Fault::new(format!("{buffer} is allocated, but it is alive already")));
        }
        let place = self.places[buffer.index()];
        let (live, used) = (&mut self.live[place.space.index()], &mut self.used[place.space.index()]);
        *live += place.bytes;
        used.peak = used.peak.max(*live);
        used.high_water = used.high_water.max(place.offset + place.bytes);
        if let Some(ranges) = &mut self.ranges {
            let end = place.offset + place.bytes;
            let before = ranges.range((place.space, Bytes::ZERO)..(place.space, end)).next_back();
            if let Some(((_, start), (_, other))) = before.filter(|(_, (end, _))| *end > place.offset) {
                return Err(Fault::new(format!(
                    "{buffer} at {} overlaps {other} at {start}, which is alive",
                    place.offset
                )));
            }
            ranges.insert((place.space, place.offset), (end, buffer));
        }
        Ok(())
    }

    /// Ends it.
    pub fn free(&mut self, buffer: BufferId) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.alive[buffer.index()], false) {
            return Err(Fault::new(format!("{buffer} is freed, but it is not alive")));
        }
        let place = self.places[buffer.index()];
        self.live[place.space.index()] -= place.bytes;
        if let Some(ranges) = &mut self.ranges {
            ranges.remove(&(place.space, place.offset));
        }
        Ok(())
    }

    /// What was used of a space so far.
    pub const fn used(&self, space: Space) -> Used {
        self.used[space.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let place = |offset, bytes| Buffer { offset: Bytes(offset), bytes: Bytes(bytes), space: Space::Device };
        Ledger::new(vec![place(0, 128), place(128, 64), place(64, 128)], true)
    }

    #[test]
    fn the_peak_is_what_was_alive_at_once() {
        let mut ledger = ledger();
        ledger.alloc(BufferId(0)).unwrap();
        ledger.free(BufferId(0)).unwrap();
        ledger.alloc(BufferId(1)).unwrap();
        assert_eq!(ledger.used(Space::Device).peak, Bytes(128));
        ledger.alloc(BufferId(0)).unwrap();
        assert_eq!(ledger.used(Space::Device), Used { peak: Bytes(192), high_water: Bytes(192) });
        assert_eq!(ledger.used(Space::Host), Used::default());
    }

    #[test]
    fn double_lifespans_and_overlaps_are_faults() {
        let mut ledger = ledger();
        ledger.alloc(BufferId(0)).unwrap();
        assert!(ledger.alloc(BufferId(0)).unwrap_err().to_string().contains("alive already"));
        assert!(ledger.alloc(BufferId(2)).unwrap_err().to_string().contains("overlaps %0"));
        assert!(ledger.free(BufferId(1)).unwrap_err().to_string().contains("not alive"));
    }
}
