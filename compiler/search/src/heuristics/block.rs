//! Building blocks under real costs: modulo scheduling of one period.
//!
//! Each series gets a start for microbatch 0; microbatch `m` runs `m` periods later. So a task
//! occupies its device at its start modulo the period, and a device holds as many activations as
//! lifespans overlap modulo the period (arXiv 2405.15362, section 3). Series are placed one after
//! the other in the order of their dependencies, many alternatives at once, both forms of a
//! backward among them; those are kept whose activations live shortest.

use pipe_ir::ids::{DeviceId, IndexVec};
use pipe_schedule::dispatch::job::{Job, Mention, Orders, SeriesId, Time};

/// A building block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    /// Time between the starts of two microbatches.
    pub(crate) period: Time,
    /// Each series, or fusion, as orders mention it, with the start of microbatch 0, or of each of the first ones.
    pub starts: Vec<(Mention, Time)>,
}

#[derive(Clone)]
struct Partial {
    /// By series, as far as it is placed: where it starts and ends, and as what. Of a fusion both series start as one.
    placed: IndexVec<SeriesId, Option<Placed>>,
    /// By device: where tasks begin in the period, and how long they take.
    busy: IndexVec<DeviceId, Vec<(Time, Time)>>,
    /// Memory times time, and the end of the microbatch.
    score: (Time, Time),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Placed {
    start: Time,
    end: Time,
    mention: Mention,
}

/// Blocks with a period that fit in the memory, the best first.
pub(crate) fn blocks(job: &Job, period: Time, width: usize, go_on: &mut dyn FnMut() -> bool) -> Vec<Block> {
    if period <= 0 {
        return Vec::new();
    }
    let order = placing_order(job);
    let empty = Partial { placed: job.series.map(|_| None), busy: job.capacity.map(|_| Vec::new()), score: (0, 0) };
    let mut layer = vec![empty];
    for (step, series) in order.iter().enumerate() {
        let mut next = Vec::new();
        for partial in &layer {
            if !go_on() {
                return Vec::new();
            }
            if partial.placed[*series].is_some() {
                next.push(partial.clone());
                continue;
            }
            for mention in
                std::iter::once(Mention::Series(*series)).chain(job.fusion_from(*series).map(Mention::Fusion))
            {
                for start in candidates(job, partial, mention, period) {
                    next.extend(placed(job, partial, (mention, start), period, &order[step + 1..]));
                }
            }
        }
        next.sort_by(|one, other| (one.score, &one.placed).cmp(&(other.score, &other.placed)));
        next.dedup_by(|one, other| one.placed == other.placed);
        next.truncate(width);
        layer = next;
    }
    let block = |partial: Partial| {
        let mut starts: Vec<_> = partial.placed.iter().flatten().map(|at| (at.mention, at.start)).collect();
        starts.sort_unstable();
        starts.dedup();
        Block { period, starts }
    };
    layer.into_iter().map(block).filter(|block| fits(job, block)).collect()
}

/// Dependencies first; series that no other one needs come last, in what is left of the period.
fn placing_order(job: &Job) -> Vec<SeriesId> {
    let mut order: Vec<SeriesId> = job.series.ids().collect();
    order.sort_by_key(|series| (job.series[*series].feeds.is_empty(), *series));
    order
}

/// Starts worth trying: as early as possible, a little later, and at both ends of every gap that the device still has.
fn candidates(job: &Job, partial: &Partial, mention: Mention, period: Time) -> Vec<Time> {
    let series = job.series_of(mention).0;
    let (ready, duration) = (earliest(job, &partial.placed, series), job.duration(mention));
    let series = &job.series[series];
    let step = duration.min(period / 8).max(1);
    let mut starts: Vec<Time> = (0..=3).map(|steps| ready + steps * step).collect();
    for device in &series.devices {
        for (from, length) in gaps(&partial.busy[*device], period) {
            if length >= duration {
                let after = |residue: Time| ready + (residue - ready).rem_euclid(period);
                starts.extend([after(from), after(from + length - duration)]);
            }
        }
    }
    starts.sort_unstable();
    starts.dedup();
    let collides = |start: Time| {
        let taken = |(from, length): &(Time, Time)| {
            let apart = (start - from).rem_euclid(period);
            apart < *length || apart + duration > period
        };
        series.devices.iter().any(|device| partial.busy[*device].iter().any(taken))
    };
    starts.retain(|start| !collides(*start));
    starts
}

/// When the first task of a series could start, as far as the series are placed that it needs.
fn earliest(job: &Job, placed: &IndexVec<SeriesId, Option<Placed>>, index: SeriesId) -> Time {
    let ready = |(need, latency): &(SeriesId, Time)| Some(placed[*need]?.end + latency);
    job.series[index].needs.iter().filter_map(ready).max().unwrap_or(0)
}

/// Free parts of a period: where they begin, and how long they are.
fn gaps(busy: &[(Time, Time)], period: Time) -> Vec<(Time, Time)> {
    let mut busy = busy.to_vec();
    busy.sort_unstable();
    let Some(first) = busy.first().copied() else { return vec![(0, period)] };
    let nexts = busy.iter().skip(1).map(|(from, _)| *from).chain([first.0 + period]);
    let gap = |((from, length), next): (&(Time, Time), Time)| ((from + length) % period, next - from - length);
    busy.iter().zip(nexts).map(gap).filter(|(_, length)| *length > 0).collect()
}

/// A partial block with one task more, unless what is left cannot fit in any more.
fn placed(
    job: &Job,
    partial: &Partial,
    (mention, start): (Mention, Time),
    period: Time,
    rest: &[SeriesId],
) -> Option<Partial> {
    let mut next = partial.clone();
    let duration = job.duration(mention);
    let (series, second) = job.series_of(mention);
    for series in std::iter::once(series).chain(second) {
        next.placed[series] = Some(Placed { start, end: start + duration, mention });
    }
    for device in &job.series[series].devices {
        next.busy[*device].push((start.rem_euclid(period), duration));
        let is_left =
            |series: &&SeriesId| next.placed[**series].is_none() && job.series[**series].devices.contains(device);
        let mut needs: Vec<Time> = rest.iter().filter(is_left).map(|series| job.least[*series]).collect();
        needs.sort_unstable_by(|one, other| other.cmp(one));
        let mut lengths: Vec<Time> = gaps(&next.busy[*device], period).iter().map(|(_, length)| *length).collect();
        if !packs(&mut lengths, &needs) {
            return None;
        }
    }
    next.score = score(job, &next.placed, period)?;
    Some(next)
}

/// Whether tasks, the longest first, fit in gaps. Tries gaps of different lengths for each.
fn packs(gaps: &mut [Time], tasks: &[Time]) -> bool {
    let Some((first, rest)) = tasks.split_first() else { return true };
    if gaps.iter().sum::<Time>() < tasks.iter().sum() {
        return false;
    }
    for index in 0..gaps.len() {
        if gaps[index] < *first || gaps[..index].contains(&gaps[index]) {
            continue;
        }
        gaps[index] -= first;
        let fits = packs(gaps, rest);
        gaps[index] += first;
        if fits {
            return true;
        }
    }
    false
}

/// The share of each device's memory that lifespans take up at least, the fullest one counting more, and the end of the
/// microbatch; `None` where a device has too little memory.
fn score(job: &Job, placed: &IndexVec<SeriesId, Option<Placed>>, period: Time) -> Option<(Time, Time)> {
    let mut ends: IndexVec<SeriesId, Time> = IndexVec::default();
    // Bytes times nanoseconds do not fit in 64 bits.
    let mut areas = job.capacity.map(|_| 0_i128);
    let mut last = 0;
    for (index, series) in job.series.iter_ids() {
        let ready = series.needs.iter().map(|(need, latency)| ends[*need] + latency);
        let ready = ready.max().unwrap_or(0);
        let (start, end) = placed[index].map_or((ready, ready + job.least[index]), |at| (at.start, at.end));
        ends.push(end);
        last = last.max(end);
        let at = if series.takes > 0 { start } else { end };
        let area = i128::from(series.takes) * i128::from(at);
        series.devices.iter().for_each(|device| areas[*device] -= area);
    }
    let mut shares = Vec::with_capacity(areas.len());
    for (area, capacity) in areas.iter().zip(&job.capacity) {
        let room = i128::from(*capacity) * i128::from(period);
        if *area > room {
            return None;
        }
        shares.push((*area * 1000 / room.max(1)) as Time);
    }
    Some((2 * shares.iter().max().unwrap_or(&0) + shares.iter().sum::<Time>(), last))
}

/// Whether the steady state holds no more than the memory on any device.
fn fits(job: &Job, block: &Block) -> bool {
    job.capacity.iter_ids().all(|(device, capacity)| block.held(job, device) <= *capacity)
}

impl Block {
    /// What a device does, with the starts of microbatch 0.
    pub(crate) fn on_device(&self, job: &Job, device: DeviceId) -> impl Iterator<Item = (Mention, Time)> {
        let is_own = move |mention: Mention| job.series[job.series_of(mention).0].devices.contains(&device);
        self.starts.iter().copied().filter(move |(mention, _)| is_own(*mention))
    }

    /// The most that a device holds in the steady state, exactly.
    pub(crate) fn held(&self, job: &Job, device: DeviceId) -> i64 {
        let (mut held, mut most) = (0, 0);
        let mut events: Vec<(Time, i64)> = Vec::new();
        for (mention, start) in self.on_device(job, device) {
            let takes = job.takes(mention);
            let at = start + if takes > 0 { 0 } else { job.duration(mention) };
            held -= takes * at.div_euclid(self.period);
            events.push((at.rem_euclid(self.period), takes));
        }
        events.sort_unstable();
        for (_, takes) in events {
            held += takes;
            most = most.max(held);
        }
        most
    }
}

/// The orders of a step that repeats a block.
pub(crate) fn orders(job: &Job, block: &Block) -> Orders {
    let of_device = |device: DeviceId| {
        let tasks = block.on_device(job, device).flat_map(|(mention, start)| {
            let microbatches = 0..job.microbatches as Time;
            microbatches.map(move |microbatch| (start + microbatch * block.period, mention))
        });
        let mut tasks: Vec<(Time, Mention)> = tasks.collect();
        tasks.sort_unstable();
        tasks.into_iter().map(|(_, mention)| mention).collect()
    };
    job.capacity.map(of_device)
}
