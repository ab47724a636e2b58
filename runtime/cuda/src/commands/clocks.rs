//! Vector clocks: what each queue of a command list knows to be over, of itself and of every other queue.
//!
//! A queue counts what it does: its works, and its waits that bring news. An event keeps what its
//! queue knew when it was recorded, and whoever waits for it then knows that too. So whether one
//! thing is before another is one comparison of numbers (Mattern, Virtual Time and Global States of
//! Distributed Systems, 1989). An event is forgotten with its last wait: as many are kept as are
//! under way, not as there are.

use super::{Call, CommandList, EventId, QueueId};

/// A moment of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    pub(super) queue: QueueId,
    tick: u32,
}

/// What all queues know.
pub(super) struct Clocks {
    /// By queue: how many things of each queue it knows to be over; of itself, how many it has done.
    known: Vec<Vec<u32>>,
    /// By event: the queue that recorded it and what it knew, while somebody waits for it.
    events: Vec<Option<(QueueId, Vec<u32>)>>,
    /// By event: waits that are still to come.
    waits: Vec<u32>,
    /// Clocks of events that are forgotten.
    spare: Vec<Vec<u32>>,
}

impl Clocks {
    /// Nothing has happened.
    pub(super) fn new(commands: &CommandList) -> Self {
        let mut waits = vec![0; commands.n_events as usize];
        for call in &commands.calls {
            if let Call::Wait(_, event) = call {
                waits[event.0 as usize] += 1;
            }
        }
        let (queues, events) = (commands.queues.len(), waits.len());
        Self { known: vec![vec![0; queues]; queues], events: vec![None; events], waits, spare: Vec::new() }
    }

    /// A queue does something.
    pub(super) fn tick(&mut self, queue: QueueId) {
        self.known[queue.0 as usize][queue.0 as usize] += 1;
    }

    /// The last thing that a queue did.
    pub(super) fn now(&self, queue: QueueId) -> Moment {
        Moment { queue, tick: self.known[queue.0 as usize][queue.0 as usize] }
    }

    /// A queue records an event.
    pub(super) fn record(&mut self, queue: QueueId, event: EventId) {
        if self.waits[event.0 as usize] == 0 {
            return;
        }
        let mut clock = self.spare.pop().unwrap_or_default();
        clock.clone_from(&self.known[queue.0 as usize]);
        self.events[event.0 as usize] = Some((queue, clock));
    }

    /// A queue waits for an event. Whether that brings news: not if the event is its own, if an
    /// earlier wait covers it, or if nobody recorded it.
    pub(super) fn wait(&mut self, queue: QueueId, event: EventId) -> bool {
        let waits = &mut self.waits[event.0 as usize];
        *waits = waits.saturating_sub(1);
        let is_last = *waits == 0;
        let Some((from, clock)) = self.events[event.0 as usize].take() else { return false };
        let known = &mut self.known[queue.0 as usize];
        let is_news = known[from.0 as usize] < clock[from.0 as usize];
        if is_news {
            known.iter_mut().zip(&clock).for_each(|(own, other)| *own = (*own).max(*other));
            known[queue.0 as usize] += 1;
        }
        if is_last {
            self.spare.push(clock);
        } else {
            self.events[event.0 as usize] = Some((from, clock));
        }
        is_news
    }

    /// Whether a moment is before what a queue does next.
    pub(super) fn is_over(&self, moment: Moment, queue: QueueId) -> bool {
        self.known[queue.0 as usize][moment.queue.0 as usize] >= moment.tick
    }
}
