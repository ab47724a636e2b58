//! The race check: two works that touch the same bytes, one of which writes them, must be ordered by queues and events.
//!
//! For each run of bytes of an arena: who wrote it last, and who has read it since. Whoever touches
//! it next must come after the writer, and who writes, after the readers too. It is enough to keep
//! the last writer, because whoever comes after it comes after all before it; and of the readers
//! those that are before no other reader. Calls are taken in the order of the command list, in which
//! nothing is before its cause.

use super::access::{Access, Arena, accesses};
use super::clocks::{Clocks, Moment};
use super::text::call_text;
use super::{Call, CommandList, Queue};
use pipe_ir::program::Program;
use pipe_runtime::RunError;
use std::collections::BTreeMap;
use std::fmt;

/// Two works that are not ordered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Race {
    /// Their calls, by position in the command list.
    pub calls: [usize; 2],
    /// Their queues.
    pub queues: [Queue; 2],
    /// What they do, and where they meet.
    words: String,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl From<Race> for RunError {
    fn from(race: Race) -> Self {
        Self::Race(race.words)
    }
}

/// Who touched some bytes.
#[derive(Clone, Copy)]
struct Toucher {
    moment: Moment,
    call: usize,
}

/// Bytes with the same history, from their first one, which is the key, to this end.
#[derive(Clone)]
struct Stretch {
    end: u64,
    writer: Option<Toucher>,
    readers: Vec<Toucher>,
}

/// Looks for two works of a command list that are not ordered.
///
/// # Errors
/// The first ones in the order of the command list.
pub fn races(program: &Program, commands: &CommandList) -> Result<(), Race> {
    let mut clocks = Clocks::new(commands);
    let mut arenas: BTreeMap<Arena, BTreeMap<u64, Stretch>> = BTreeMap::new();
    for (call, what) in commands.calls.iter().enumerate() {
        match what {
            Call::Record(queue, event) => clocks.record(*queue, *event),
            Call::Wait(queue, event) => drop(clocks.wait(*queue, *event)),
            Call::Work(queue, work) => {
                clocks.tick(*queue);
                let own = Toucher { moment: clocks.now(*queue), call };
                let mut found = None;
                accesses(program, work, |access| {
                    let arena = arenas.entry(access.arena).or_default();
                    let other = touch(arena, &access, own, &clocks);
                    found = found.take().or(other.map(|other| (other, access)));
                });
                if let Some((other, access)) = found {
                    return Err(race(program, commands, [other, call], &access));
                }
            }
        }
    }
    Ok(())
}

/// Notes an access, and returns who else may touch these bytes at the same time.
fn touch(arena: &mut BTreeMap<u64, Stretch>, access: &Access, own: Toucher, clocks: &Clocks) -> Option<usize> {
    let (start, end) = (access.bytes.start, access.bytes.end);
    if start == end {
        return None;
    }
    split(arena, start);
    split(arena, end);
    let is_open = |one: &&Toucher| one.call != own.call && !clocks.is_over(one.moment, own.moment.queue);
    let mut other = None;
    for (_, stretch) in arena.range(start..end) {
        let readers = stretch.readers.iter().filter(|_| access.writes);
        other = other.or(stretch.writer.iter().chain(readers).find(is_open).map(|one| one.call));
    }
    let inside: Vec<u64> = arena.range(start..end).map(|(from, _)| *from).collect();
    if access.writes {
        inside.iter().for_each(|from| drop(arena.remove(from)));
        arena.insert(start, Stretch { end, writer: Some(own), readers: Vec::new() });
        return other;
    }
    let mut reached = start;
    for from in inside {
        let Some(stretch) = arena.get_mut(&from) else { continue };
        stretch.readers.retain(|reader| is_open(&reader));
        stretch.readers.push(own);
        let next = stretch.end;
        if reached < from {
            arena.insert(reached, Stretch { end: from, writer: None, readers: vec![own] });
        }
        reached = next;
    }
    if reached < end {
        arena.insert(reached, Stretch { end, writer: None, readers: vec![own] });
    }
    other
}

/// Cuts the stretch in which a byte lies, so that one begins there.
fn split(arena: &mut BTreeMap<u64, Stretch>, at: u64) {
    let Some((_, before)) = arena.range_mut(..at).next_back() else { return };
    if before.end > at {
        let behind = before.clone();
        before.end = at;
        arena.insert(at, behind);
    }
}

fn race(program: &Program, commands: &CommandList, calls: [usize; 2], access: &Access) -> Race {
    let queues = calls.map(|call| commands.queue(commands.calls[call].queue()));
    let words = |number: usize| {
        let (call, queue) = (calls[number], queues[number]);
        format!("`{}` (call {call}, on {queue})", call_text(program, &commands.calls[call]))
    };
    let (arena, bytes) = (access.arena, &access.bytes);
    let [one, other] = [words(0), words(1)];
    let words =
        format!("{one} and {other} are not ordered, and meet in bytes {}..{} of {arena}", bytes.start, bytes.end);
    Race { calls, queues, words }
}
