//! What copies cost: a device that works through its list with one queue each way for copies, apart from what it waits for others.

use pipe_ir::instruction::Direction;

/// What a device does, in its order; lengths in any one unit of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It works for some time, and begins no earlier than that.
    Work {
        /// When it could begin, if it did not wait for copies.
        from: u64,
        /// How long that takes.
        length: u64,
    },
    /// It queues a copy.
    Copy {
        /// On this queue.
        direction: Direction,
        /// Its number, from 0.
        copy: usize,
        /// How long that takes.
        length: u64,
    },
    /// It waits until a copy has ended.
    Wait {
        /// Which one.
        copy: usize,
    },
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// When the device has done everything.
    pub end: u64,
    /// Time that it did not work although it could have, but for copies.
    pub waited: u64,
    /// Time in copies to the device, and back.
    pub copying: [u64; 2],
}

/// Runs the events of a device.
#[must_use]
pub fn cost(events: &[Event]) -> Cost {
    let mut cost = Cost::default();
    let mut queues = [0_u64; 2];
    let mut ends: Vec<u64> = Vec::new();
    let (mut now, mut idle) = (0_u64, 0_u64);
    for event in events {
        match *event {
            Event::Work { from, length } => {
                // While it waits for others, it may as well wait for copies.
                cost.waited = cost.waited.saturating_add(idle.min(now.saturating_sub(from)));
                idle = 0;
                now = now.max(from).saturating_add(length);
            }
            Event::Copy { direction, copy, length } => {
                let queue = direction as usize;
                queues[queue] = queues[queue].max(now).saturating_add(length);
                cost.copying[queue] = cost.copying[queue].saturating_add(length);
                ends.resize(ends.len().max(copy + 1), 0);
                ends[copy] = queues[queue];
            }
            Event::Wait { copy } => {
                let end = ends.get(copy).copied().unwrap_or_default();
                idle = idle.saturating_add(end.saturating_sub(now));
                now = now.max(end);
            }
        }
    }
    (cost.end, cost.waited) = (now, cost.waited.saturating_add(idle));
    cost
}
