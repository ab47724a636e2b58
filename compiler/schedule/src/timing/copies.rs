//! What copies cost a device that works through its list with one queue each way for them.

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
        /// When it could begin, if its queue and the device did not hold it up.
        from: u64,
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

/// A device, as far as it has come.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    cost: Cost,
    /// When each queue has carried what it was given.
    queues: [u64; 2],
    /// When each copy has ended, by its number.
    ends: Vec<u64>,
    /// Copies that nobody asked for yet: on which queue, from when until when.
    carried: Vec<(Direction, u64, u64)>,
    /// How long it has waited for copies since it last worked.
    idle: u64,
}

impl Clock {
    /// Moment at which the device is free.
    pub const fn now(&self) -> u64 {
        self.cost.end
    }

    /// Does one thing more.
    pub fn run(&mut self, event: Event) {
        let Self { cost, queues, ends, carried, idle } = self;
        match event {
            Event::Work { from, length } => {
                // While it waits for others, it may as well wait for copies.
                cost.waited = cost.waited.saturating_add((*idle).min(cost.end.saturating_sub(from)));
                *idle = 0;
                cost.end = cost.end.max(from).saturating_add(length);
            }
            Event::Copy { direction, copy, from, length } => {
                let queue = direction as usize;
                let start = queues[queue].max(cost.end).max(from);
                queues[queue] = start.saturating_add(length);
                carried.push((direction, start, queues[queue]));
                cost.copying[queue] = cost.copying[queue].saturating_add(length);
                ends.resize(ends.len().max(copy + 1), 0);
                ends[copy] = queues[queue];
            }
            Event::Wait { copy } => {
                let end = ends.get(copy).copied().unwrap_or_default();
                *idle = idle.saturating_add(end.saturating_sub(cost.end));
                cost.end = cost.end.max(end);
            }
        }
    }

    /// When a copy has ended that was queued; 0 of one that was not.
    pub fn end_of(&self, copy: usize) -> u64 {
        self.ends.get(copy).copied().unwrap_or_default()
    }

    /// The copies that were queued since this was asked last: on which queue, from when until when.
    pub fn carried(&mut self) -> Vec<(Direction, u64, u64)> {
        std::mem::take(&mut self.carried)
    }

    /// What everything cost.
    pub const fn cost(&self) -> Cost {
        Cost { waited: self.cost.waited.saturating_add(self.idle), ..self.cost }
    }
}

/// Runs the events of a device by itself.
pub fn cost(events: &[Event]) -> Cost {
    let mut clock = Clock::default();
    events.iter().for_each(|event| clock.run(*event));
    clock.cost()
}
