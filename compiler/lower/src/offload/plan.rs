//! The residency plan: which chunks are on a device during which tasks, given the order in which it uses them.
//!
//! Where room is needed, what is used furthest in the future leaves first (Belady, IBM Systems
//! Journal 5, 1966: no other choice loads less often where all chunks have one size), and of
//! several, one that did not change, because it needs no copy back. What did not change is dropped.
//! So far a chunk comes right before its first use and leaves right after its last one. What
//! changed then stays one task longer where there is room, so that the copy back hides behind that
//! task; and every chunk comes as early as there is room for it, in the order of their first uses,
//! at most [`AHEAD`] tasks early: one queue carries them one after the other.

use std::cmp::Reverse;

/// How many tasks before its first use a chunk comes at most.
pub const AHEAD: usize = 32;

/// A task of the device, in its order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// The chunks that it needs, each once, and whether it changes them.
    pub uses: Vec<(usize, bool)>,
    /// Bytes that chunks may take while it runs.
    pub room: u64,
}

/// What is to be planned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reference {
    /// Bytes of each chunk. At first and at last, all are in the memory of the host only.
    pub chunks: Vec<u64>,
    /// What the device does.
    pub steps: Vec<Step>,
}

/// A time that a chunk spends on the device. Positions count steps; the one behind the last step is its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stay {
    /// Which chunk.
    pub chunk: usize,
    /// It takes room, and its copy is queued, right before this step.
    pub from: usize,
    /// The first step that uses it.
    pub first: usize,
    /// The last one.
    pub last: usize,
    /// Its room is given back right before this step.
    pub until: usize,
    /// Whether it is copied back, from right behind its last use on.
    pub changed: bool,
}

/// What is on the device when, in the order in which it comes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// By first use, and in the order of the uses of a step.
    pub stays: Vec<Stay>,
}

/// A step whose own chunks have no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// Which.
    pub step: usize,
    /// What its chunks take.
    pub needed: u64,
}

/// Plans when chunks come and go.
///
/// # Errors
/// If a step needs more chunks at once than it has room for.
pub fn plan(reference: &Reference) -> Result<Plan, Shortage> {
    let mut plan = Plan { stays: demanded(reference)? };
    let mut taken = plan.taken(reference);
    linger(reference, &mut plan, &mut taken);
    prefetch(reference, &mut plan, &mut taken);
    Ok(plan)
}

impl Plan {
    /// Bytes on the device during each step.
    pub fn taken(&self, reference: &Reference) -> Vec<u64> {
        let mut taken = vec![0; reference.steps.len()];
        for stay in &self.stays {
            for bytes in taken.iter_mut().take(stay.until).skip(stay.from) {
                *bytes += reference.chunks[stay.chunk];
            }
        }
        taken
    }
}

/// What the device holds while the plan is made: by chunk, its stay.
struct DeviceChunks {
    stays: Vec<Stay>,
    /// By chunk: its stay, if it is on the device.
    of: Vec<Option<usize>>,
    bytes: u64,
}

/// Stays from first to last use, with as few copies as possible.
fn demanded(reference: &Reference) -> Result<Vec<Stay>, Shortage> {
    let n_steps = reference.steps.len();
    // By chunk: the steps that use it, last first, as far as they are still to come.
    let mut ahead: Vec<Vec<usize>> = vec![Vec::new(); reference.chunks.len()];
    for (index, step) in reference.steps.iter().enumerate().rev() {
        step.uses.iter().for_each(|(chunk, _)| ahead[*chunk].push(index));
    }
    let mut held = DeviceChunks { stays: Vec::new(), of: vec![None; reference.chunks.len()], bytes: 0 };
    for (index, step) in reference.steps.iter().enumerate() {
        let needed: u64 = step.uses.iter().map(|(chunk, _)| reference.chunks[*chunk]).sum();
        if needed > step.room {
            return Err(Shortage { step: index, needed });
        }
        for (chunk, changes) in &step.uses {
            ahead[*chunk].pop();
            let new = held.stays.len();
            let stay = *held.of[*chunk].get_or_insert(new);
            if stay == new {
                let stay = Stay { chunk: *chunk, from: index, first: index, last: index, until: 0, changed: false };
                held.stays.push(stay);
                held.bytes += reference.chunks[*chunk];
            }
            let stay = &mut held.stays[stay];
            (stay.last, stay.changed) = (index, stay.changed || *changes);
        }
        while held.bytes > step.room {
            let idle = held.of.iter().flatten().map(|stay| held.stays[*stay]).filter(|stay| stay.last != index);
            let next = |stay: &Stay| ahead[stay.chunk].last().copied().unwrap_or(n_steps);
            let leaves = idle.max_by_key(|stay| (next(stay), !stay.changed, Reverse(stay.last)));
            let Some(leaves) = leaves else { return Err(Shortage { step: index, needed }) };
            held.of[leaves.chunk] = None;
            held.bytes -= reference.chunks[leaves.chunk];
        }
    }
    held.stays.iter_mut().for_each(|stay| stay.until = stay.last + 1);
    Ok(held.stays)
}

/// Lets what changed stay during one more step, where there is room.
fn linger(reference: &Reference, plan: &mut Plan, taken: &mut [u64]) {
    let mut changed: Vec<&mut Stay> = plan.stays.iter_mut().filter(|stay| stay.changed).collect();
    changed.sort_by_key(|stay| stay.last);
    for stay in changed {
        let (Some(taken), Some(step)) = (taken.get_mut(stay.until), reference.steps.get(stay.until)) else { continue };
        let is_back = step.uses.iter().any(|(chunk, _)| *chunk == stay.chunk);
        if !is_back && *taken + reference.chunks[stay.chunk] <= step.room {
            *taken += reference.chunks[stay.chunk];
            stay.until += 1;
        }
    }
}

/// Lets chunks come earlier, where there is room.
fn prefetch(reference: &Reference, plan: &mut Plan, taken: &mut [u64]) {
    let mut gone = vec![0; reference.chunks.len()];
    let mut before = 0;
    for stay in &mut plan.stays {
        let bytes = reference.chunks[stay.chunk];
        let earliest = before.max(gone[stay.chunk]).max(stay.first.saturating_sub(AHEAD));
        while stay.from > earliest && taken[stay.from - 1] + bytes <= reference.steps[stay.from - 1].room {
            stay.from -= 1;
            taken[stay.from] += bytes;
        }
        (before, gone[stay.chunk]) = (stay.from, stay.until);
    }
}
