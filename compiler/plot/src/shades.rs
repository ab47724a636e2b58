//! Shades: how light the tasks of each stage or part are drawn.
//!
//! Later stages of a device are lighter. Where stages have parts, a part has the same shade on all devices: first come
//! the names of all parts on compute, or on one lane, and then, of one name, the parts that a device has several of.

use pipe_ir::ids::StageId;
use pipe_schedule::parts::StageParts;
use pipe_schedule::schedule::Schedule;
use std::collections::BTreeMap;

/// A name of parts on compute or on a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartName {
    /// The lane. None if these parts run on compute.
    pub lane: Option<String>,
    /// The name.
    pub name: String,
    /// Its first shade.
    pub first: usize,
    /// How many shades it has: as many as a device has parts of this name.
    pub count: usize,
    /// How many shades there are on such tracks.
    pub of: usize,
}

/// The shades of parts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shades {
    /// All names, compute first, then lane by lane. Empty if stages have no parts.
    pub names: Vec<PartName>,
    /// By part: its shade.
    pub of_parts: Vec<usize>,
}

impl Shades {
    /// Of a schedule.
    pub fn of(schedule: &Schedule) -> Self {
        let parts = &schedule.parts;
        // By lane, compute first: names in the order in which stages have them.
        let mut names: BTreeMap<Option<usize>, Vec<(&str, usize)>> = BTreeMap::new();
        // By device, lane and name: how many parts of it the device has had.
        let mut had = BTreeMap::new();
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(parts.len());
        for row in (0..parts.len()).map(StageId::from_index) {
            let Some(part) = parts.part(row) else { continue };
            let own = names.entry(part.lane).or_default();
            let place = own.iter().position(|(name, _)| *name == &*part.name).unwrap_or(own.len());
            if place == own.len() {
                own.push((&*part.name, 0));
            }
            let queues = || schedule.placement.devices_of(row).iter().map(|queue| (*queue, place));
            let nth = queues().map(|key| had.get(&key).copied().unwrap_or(0)).max().unwrap_or_default();
            had.extend(queues().map(|key| (key, nth + 1)));
            own[place].1 = own[place].1.max(nth + 1);
            places.push((place, nth));
        }
        let firsts = |own: &[(&str, usize)]| {
            let ends = own.iter().scan(0, |end, (_, count)| {
                *end += count;
                Some(*end)
            });
            ends.zip(own).map(|(end, (_, count))| end - count).collect::<Vec<usize>>()
        };
        let first: BTreeMap<Option<usize>, Vec<usize>> = names.iter().map(|(lane, own)| (*lane, firsts(own))).collect();
        let rows = (0..parts.len()).map(StageId::from_index).zip(places);
        let of_parts = rows.map(|(row, (place, nth))| first[&parts.lane(row)][place] + nth).collect();
        let named = names.iter().flat_map(|(lane, own)| {
            let of = own.iter().map(|(_, count)| count).sum();
            own.iter().zip(&first[lane]).map(move |((name, count), first)| PartName {
                lane: lane.and_then(|lane| parts.lanes().get(lane)).map(|lane| lane.to_string()),
                name: (*name).to_owned(),
                first: *first,
                count: *count,
                of,
            })
        });
        Self { names: named.collect(), of_parts }
    }

    /// How many shades the parts on compute, or on a lane, have.
    pub fn on(&self, parts: &StageParts, lane: Option<usize>) -> usize {
        let lane = lane.and_then(|lane| parts.lanes().get(lane));
        let own = self.names.iter().find(|name| name.lane.as_deref() == lane.map(|lane| &**lane));
        own.map_or(0, |name| name.of)
    }
}
