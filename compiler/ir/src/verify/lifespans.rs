//! Rules about memory: lifespans of buffers, their places in the arena of their space, and the stated peaks.

use super::report::{Report, at};
use super::{List, Place};
use crate::ids::{BufferId, DeviceId};
use crate::operand::Touch;
use crate::program::{DeviceProgram, Extent, Program, Space};
use crate::units::{ALIGNMENT, Bytes};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Dead,
    /// Since the set-up.
    Persistent,
    /// Since this instruction of the step.
    Step(u32),
}

/// Buffers of one device that are alive at the current instruction.
struct Live<'a> {
    code: &'a DeviceProgram,
    lives: Vec<Life>,
    /// By space.
    used: [Used; Space::ALL.len()],
}

/// Live buffers of one space.
#[derive(Default)]
struct Used {
    /// Where they start, with the buffer; empty buffers are nowhere.
    places: BTreeMap<u64, BufferId>,
    /// Wide enough for broken programs whose buffers overlap.
    bytes: u128,
    peak: u128,
}

/// Checks one device.
pub(super) fn check(program: &Program, device: DeviceId, code: &DeviceProgram, report: &mut Report) {
    let sound = Space::ALL.map(|space| arena(device, code, space, report));
    if sound.contains(&false) {
        return;
    }
    let lives = vec![Life::Dead; code.buffers.len()];
    let mut live = Live { code, lives, used: Default::default() };
    let mut sound = true;
    for (list, instructions) in [(List::Setup, &code.setup), (List::Step, &code.step)] {
        for (index, instruction) in instructions.iter().enumerate() {
            instruction.accesses(program, code, |buffer, touch| {
                if let Err(message) = live.touch(list, index, buffer, touch) {
                    report.error(at(device, list, index), message);
                    sound = false;
                }
            });
        }
    }
    for life in &live.lives {
        if let Life::Step(index) = life {
            report.step(device, *index as usize, "is never freed, so the step could not be repeated");
            sound = false;
        }
    }
    for space in Space::ALL.into_iter().filter(|_| sound) {
        let (peak, stated) = (live.used[space.index()].peak, code.extent(space).peak.0);
        if peak != u128::from(stated) {
            let of_host = of_host(space);
            report.error(Place::Device(device), format!("the peak{of_host} is {peak} bytes, not {stated}"));
        }
    }
}

/// What messages about the host's memory say in addition.
const fn of_host(space: Space) -> &'static str {
    match space {
        Space::Device => "",
        Space::Host => " of the host's memory",
    }
}

/// Checks the buffers of a space; whether later checks can rely on them.
fn arena(device: DeviceId, code: &DeviceProgram, space: Space, report: &mut Report) -> bool {
    let (Extent { limit, arena, .. }, of_host) = (code.extent(space), of_host(space));
    let mut end = Bytes::ZERO;
    let mut sound = true;
    for (index, buffer) in code.buffers.iter().enumerate().filter(|(_, buffer)| buffer.space == space) {
        let place = Place::Buffer(device, u32::try_from(index).unwrap_or(u32::MAX));
        let aligned = buffer.offset.0.is_multiple_of(ALIGNMENT.0) && buffer.bytes.0.is_multiple_of(ALIGNMENT.0);
        if !aligned {
            let message = format!("offset and size are not both multiples of {} bytes", ALIGNMENT.0);
            report.error(place, message);
            sound = false;
        }
        match buffer.offset.0.checked_add(buffer.bytes.0) {
            Some(buffer_end) if buffer_end <= arena.0 => end = end.max(Bytes(buffer_end)),
            _ => {
                report.error(place, format!("is not inside the arena{of_host} of {} bytes", arena.0));
                sound = false;
            }
        }
    }
    let place = Place::Device(device);
    if sound && end != arena {
        report.error(place, format!("the buffers end at {}, but the arena{of_host} at {}", end.0, arena.0));
    }
    if let Some(limit) = limit.filter(|limit| arena > *limit) {
        let owner = if space == Space::Host { "host" } else { "device" };
        report.error(place, format!("the arena{of_host} takes {} bytes, but the {owner} has {}", arena.0, limit.0));
    }
    sound
}

impl Live<'_> {
    fn touch(&mut self, list: List, index: usize, buffer: BufferId, touch: Touch) -> Result<(), String> {
        let life = self.lives[buffer.index()];
        match touch {
            Touch::Alloc => self.alloc(list, index, buffer, life),
            Touch::Free => self.free(buffer, life),
            Touch::Read | Touch::Write | Touch::Update | Touch::Send | Touch::Receive | Touch::Reduce => {
                if life == Life::Dead { Err(format!("{buffer} is not alive here")) } else { Ok(()) }
            }
        }
    }

    fn alloc(&mut self, list: List, index: usize, id: BufferId, life: Life) -> Result<(), String> {
        if life != Life::Dead {
            return Err(format!("{id} is alive already"));
        }
        let buffer = self.code.buffers[id.index()];
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.lives[id.index()] = if list == List::Setup { Life::Persistent } else { Life::Step(index) };
        let used = &mut self.used[buffer.space.index()];
        used.bytes += u128::from(buffer.bytes.0);
        used.peak = used.peak.max(used.bytes);
        if buffer.bytes == Bytes::ZERO {
            return Ok(());
        }
        let end = buffer.offset + buffer.bytes;
        // Live buffers are disjoint, so that of all that start before the end only the last can reach in.
        if let Some((_, other)) = used.places.range(..end.0).next_back() {
            let place = self.code.buffers[other.index()];
            if place.offset + place.bytes > buffer.offset {
                return Err(format!("{id} overlaps {other}, which is alive"));
            }
        }
        used.places.insert(buffer.offset.0, id);
        Ok(())
    }

    fn free(&mut self, id: BufferId, life: Life) -> Result<(), String> {
        let buffer = self.code.buffers[id.index()];
        match life {
            Life::Dead => return Err(format!("{id} is not alive here")),
            Life::Persistent => return Err(format!("{id} lives since the set-up and must outlive the step")),
            Life::Step(_) => self.lives[id.index()] = Life::Dead,
        }
        let used = &mut self.used[buffer.space.index()];
        used.bytes -= u128::from(buffer.bytes.0);
        if used.places.get(&buffer.offset.0) == Some(&id) {
            used.places.remove(&buffer.offset.0);
        }
        Ok(())
    }
}
