//! Which activations leave a device between two uses, and when: longest gap first, and only where both copies hide.
//!
//! A value of a microbatch that no task uses for a while may be copied to the host and back
//! meanwhile. When tasks run is known, and each of the two queues carries one copy at a time, so
//! that a copy out takes the first time that is free behind the use before, and a copy back the
//! last one before the next use. What does not find both, with a task between them, stays. So no
//! task waits for any of these copies, whoever starts earlier than it should: copies are queued in
//! the order of their times, each no later than its time, and by induction none ends later than its
//! own.
//!
//! Where memory is limited, only what covers a moment at which too much is alive leaves, and in the
//! end nothing that need not.
//!
//! # Points and moments
//!
//! Task `k` of a device has two points: 2k, where the task before has ended, and 2k + 1, where it
//! starts. Moment `m` lasts from point `m` to the next: before a task the device may wait, and then
//! it works. Copies are queued, and room is given back, at points only.

use super::levels::Levels;
use super::queue::CopyTimetable;
use std::cmp::Reverse;
use std::ops::Range;

/// A time in which no task uses some value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// What its buffer takes.
    pub bytes: u64,
    /// The task that used it last.
    pub before: usize,
    /// The next one that uses it.
    pub after: usize,
    /// The first point at which nobody sends it any more.
    pub unsent: usize,
}

/// What is known of a device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Course {
    /// Start and end of each task, in their order. Two that share the device are one.
    pub tasks: Vec<(u64, u64)>,
    /// What could leave.
    pub gaps: Vec<Gap>,
    /// The most bytes alive at each moment on the device, and on its host: one moment more than
    /// there are points of tasks.
    pub alive: [Vec<u64>; 2],
    /// What may be alive there, where that is limited.
    pub limits: [Option<u64>; 2],
    /// When the queues to the device and from there carry something else.
    pub busy: [Vec<(u64, u64)>; 2],
    /// How long a copy of 1 MiB takes.
    pub copy: u64,
}

/// A value that leaves in a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Away {
    /// Which gap.
    pub gap: usize,
    /// The point at which its copy out is queued.
    pub leaves: usize,
    /// The one at which that has ended and its room is given back.
    pub gone: usize,
    /// The one at which it takes room again, and its copy back is queued.
    pub comes: usize,
    /// When it is copied out at the latest, and back: copies are queued in this order.
    pub copies: [(u64, u64); 2],
}

impl Away {
    /// Moments at which it takes no room on the device.
    pub const fn moments(&self) -> Range<usize> {
        self.gone..self.comes
    }
}

/// Decides what leaves, in the order in which it does.
pub fn plan(course: &Course) -> Vec<Away> {
    let mut planner = Planner::new(course);
    let mut order: Vec<usize> = (0..course.gaps.len()).collect();
    let length = |gap: &Gap| course.tasks[gap.after].0.saturating_sub(course.tasks[gap.before].1);
    order.sort_by_key(|index| {
        let gap = &course.gaps[*index];
        (Reverse(length(gap)), Reverse(gap.bytes), *index)
    });
    let mut taken: Vec<Away> = order.into_iter().filter_map(|gap| planner.take(gap)).collect();
    planner.keep_what_fits(&mut taken);
    taken.sort_by_key(|away| away.copies[0]);
    // The queue carries copies out in the order of their times.
    let mut last = 0;
    for away in &mut taken {
        away.leaves = away.leaves.max(last);
        last = away.leaves;
    }
    taken
}

struct Planner<'a> {
    course: &'a Course,
    /// When each point comes.
    points: Vec<u64>,
    /// Of the device, and of its host.
    levels: [Levels; 2],
    /// To the device, and from there.
    queues: [CopyTimetable; 2],
}

impl<'a> Planner<'a> {
    fn new(course: &'a Course) -> Self {
        let mut points = vec![0];
        points.extend(course.tasks.iter().flat_map(|(start, end)| [*start, *end]));
        Self {
            course,
            points,
            levels: course.alive.each_ref().map(|alive| Levels::new(alive)),
            queues: course.busy.each_ref().map(|busy| CopyTimetable::new(busy)),
        }
    }

    /// The first point at this time or later.
    fn first(&self, time: u64) -> usize {
        self.points.partition_point(|point| *point < time)
    }

    /// The last point at this time or earlier.
    fn last(&self, time: u64) -> usize {
        self.points.partition_point(|point| *point <= time).saturating_sub(1)
    }

    /// Whether the device has too little room at one of these moments, or says nothing of how much it has.
    fn is_full(&self, moments: &Range<usize>) -> bool {
        self.course.limits[0].is_none_or(|limit| self.levels[0].most(moments) > i128::from(limit))
    }

    /// Lets a value leave, if both copies hide and that is of use.
    fn take(&mut self, index: usize) -> Option<Away> {
        let Gap { bytes, before, after, unsent } = self.course.gaps[index];
        if bytes == 0 || !self.is_full(&(2 * before + 2..2 * after + 1)) {
            return None;
        }
        let (from, until) = (self.course.tasks[before].1, self.course.tasks[after].0);
        let length = copied(bytes, self.course.copy).max(1);
        let out = self.queues[1].earliest(from, length, until)?;
        let back = self.queues[0].latest(until, length, from)?;
        // Of several points at the same time, the first one: nothing stands between the task and the copy.
        let leaves = self.first(self.points[self.last(out)]).max(2 * before + 2);
        let (gone, comes) = (self.first(out + length).max(unsent), self.last(back));
        let is_between = gone | 1 < comes;
        if !is_between || !self.is_full(&(gone..comes)) {
            return None;
        }
        let on_host = leaves..2 * after + 2;
        let more = i128::from(bytes);
        let has_room = |limit| self.levels[1].most(&on_host) + more <= i128::from(limit);
        if !self.course.limits[1].is_none_or(has_room) {
            return None;
        }
        self.levels[0].add(&(gone..comes), -more);
        self.levels[1].add(&on_host, more);
        self.queues[1].take(out, out + length);
        self.queues[0].take(back, back + length);
        Some(Away { gap: index, leaves, gone, comes, copies: [(out, out + length), (back, back + length)] })
    }

    /// Leaves on the device what it has room for after all, the shortest gap first.
    fn keep_what_fits(&mut self, taken: &mut Vec<Away>) {
        let Some(limit) = self.course.limits[0] else { return };
        taken.reverse();
        taken.retain(|away| {
            let (moments, bytes) = (away.moments(), i128::from(self.course.gaps[away.gap].bytes));
            let fits = self.levels[0].most(&moments) + bytes <= i128::from(limit);
            if fits {
                self.levels[0].add(&moments, bytes);
            }
            !fits
        });
    }
}

/// How long a copy takes, given how long one of 1 MiB does.
pub fn copied(bytes: u64, copy: u64) -> u64 {
    let time = (u128::from(bytes) * u128::from(copy)).div_ceil(1 << 20);
    u64::try_from(time).unwrap_or(u64::MAX)
}
