//! Leaves out the calls that a command list can do without.
//!
//! A wait that brings no news is none: for an event of the own queue, or for one that an earlier
//! wait covers. An event for which nobody waits then is not recorded, and two events of the same
//! moment are one.

use super::clocks::{Clocks, Moment};
use super::{Call, CommandList, EventId};

/// The same command list without superfluous calls; its events are numbered anew, in the order in
/// which they are recorded.
pub(super) fn prune(commands: CommandList) -> CommandList {
    let mut clocks = Clocks::new(&commands);
    // By event: the first one of its moment, if that is another.
    let mut same: Vec<EventId> = (0..commands.n_events).map(EventId).collect();
    let mut last: Vec<Option<(Moment, EventId)>> = vec![None; commands.queues.len()];
    let mut is_needed = vec![false; commands.n_events as usize];
    let mut calls = commands.calls;
    calls.retain_mut(|call| match call {
        Call::Work(queue, _) => {
            clocks.tick(*queue);
            true
        }
        Call::Record(queue, event) => {
            clocks.record(*queue, *event);
            let now = clocks.now(*queue);
            let last = &mut last[queue.0 as usize];
            let first = last.filter(|(moment, _)| *moment == now).map(|(_, event)| event);
            same[event.0 as usize] = first.unwrap_or(*event);
            *last = Some((now, same[event.0 as usize]));
            first.is_none()
        }
        Call::Wait(queue, event) => {
            let is_news = clocks.wait(*queue, *event);
            *event = same[event.0 as usize];
            is_needed[event.0 as usize] |= is_news;
            is_news
        }
    });
    let mut numbers = vec![EventId(0); commands.n_events as usize];
    let mut n_events = 0;
    calls.retain_mut(|call| match call {
        Call::Work(..) => true,
        Call::Record(_, event) if !is_needed[event.0 as usize] => false,
        Call::Record(_, event) => {
            numbers[event.0 as usize] = EventId(n_events);
            *event = EventId(n_events);
            n_events += 1;
            true
        }
        Call::Wait(_, event) => {
            *event = numbers[event.0 as usize];
            true
        }
    });
    CommandList { queues: commands.queues, n_events, calls }
}
