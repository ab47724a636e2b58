//! The trace of a plan: tasks, transfers, copies and memory when the timeline has them.
//!
//! A unit of the costs is drawn as a millisecond, which it is where the costs come from a profile or a cluster.

use super::{Queue, SCHEMA, TaskArguments, Trace, Track, rows, task_name};
use pipe_ir::ids::DeviceId;
use pipe_plot::{DrawnTask, Memory, Picture, why};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Nanoseconds of a millisecond.
const MILLISECOND: u64 = 1_000_000;

/// Writes the trace.
pub(crate) fn write(picture: &Picture, out: &mut dyn Write) -> io::Result<()> {
    let device = |task: u32| picture.tasks[task as usize].device;
    let transfers =
        picture.transfers.iter().map(|one| ((device(one.from), device(one.to), one.class), (one.start, one.end)));
    let together = picture.collectives.iter().map(|part| (part.device, (part.start, part.end)));
    let plan = Plan {
        picture,
        critical: picture.critical_path.iter().copied().collect(),
        rows: packed(transfers),
        together: packed(together),
    };
    let names: Vec<String> = (0..).zip(&picture.devices).map(|(row, _)| why::device(picture, row)).collect();
    let mut trace = Trace::begin(out, &plan.about(), &names, plan.tracks())?;
    for place in 0..picture.tasks.len() {
        plan.task(&mut trace, place)?;
    }
    for place in 0..picture.transfers.len() {
        plan.transfer(&mut trace, place)?;
    }
    for copy in &picture.copies {
        let track = (DeviceId(copy.device), Queue::Copies(copy.direction));
        let span = (plan.nanos(copy.start), plan.nanos(copy.end));
        let name = why::swap(picture, copy).unwrap_or_else(|| copy.direction.word().to_owned());
        trace.slice(track, &name, "copy", span, &json!({"device": copy.device}))?;
    }
    if let Some(closing) = &picture.closing {
        let span = (plan.nanos(closing.start), plan.nanos(closing.end));
        for device in (0..picture.devices.len()).map(DeviceId::from_index) {
            trace.slice((device, Queue::Closing), closing.what, "closing", span, &json!({"device": device.0}))?;
        }
    }
    for (part, row) in picture.collectives.iter().zip(&plan.together) {
        let track = (DeviceId(part.device), Queue::Collectives(*row));
        let arguments = json!({"device": part.device, "of_stage": part.stage});
        let span = (plan.nanos(part.start), plan.nanos(part.end));
        trace.slice(track, part.what.word(), "collective", span, &arguments)?;
    }
    for memory in &picture.memory {
        plan.memory(&mut trace, memory)?;
    }
    trace.end()
}

struct Plan<'a> {
    picture: &'a Picture,
    /// Positions of the tasks that make the step as long as it is.
    critical: BTreeSet<u32>,
    /// By transfer: in which row of its queues it is drawn.
    rows: Vec<u32>,
    /// By what devices do together: likewise.
    together: Vec<u32>,
}

/// In which row of its queue each of some spans is drawn: those of one queue may overlap, as the
/// timeline has no limit on what is under way.
fn packed<Q: Ord>(spans: impl Iterator<Item = (Q, (u64, u64))>) -> Vec<u32> {
    let (of, spans): (Vec<Q>, Vec<(u64, u64)>) = spans.unzip();
    let mut queues: BTreeMap<&Q, Vec<usize>> = BTreeMap::new();
    of.iter().enumerate().for_each(|(place, queue)| queues.entry(queue).or_default().push(place));
    let mut all = vec![0; spans.len()];
    for places in queues.into_values() {
        let own: Vec<(u64, u64)> = places.iter().map(|place| spans[*place]).collect();
        places.into_iter().zip(rows(&own)).for_each(|(place, row)| all[place] = row);
    }
    all
}

impl Plan<'_> {
    fn nanos(&self, ticks: u64) -> u64 {
        let nanos = u128::from(ticks) * u128::from(MILLISECOND) / u128::from(self.picture.clock.ticks_per_unit.max(1));
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    fn about(&self) -> Value {
        let Picture { title, clock, makespan, microbatches: [microbatches, slices, _], report, .. } = self.picture;
        json!({
            "schema": SCHEMA, "what": "plan", "target": title,
            "devices": report.as_ref().and_then(|report| report.sizes.devices),
            "stages": report.as_ref().and_then(|report| report.sizes.stages), "microbatches": microbatches * slices, "makespan_ns": self.nanos(*makespan),
            "one_ms_is": clock.unit.map_or("one unit of the costs", |_| "one millisecond"), "accepted": report.as_ref().is_some_and(|report| report.ok),
        })
    }

    fn tracks(&self) -> BTreeSet<Track> {
        let picture = self.picture;
        let devices = || (0..picture.devices.len()).map(DeviceId::from_index);
        let mut tracks: BTreeSet<Track> = devices().map(|device| (device, Queue::Compute)).collect();
        for (place, _) in picture.transfers.iter().enumerate().filter(|(_, one)| one.end > one.start) {
            tracks.extend(self.ends(place));
        }
        tracks.extend(picture.copies.iter().map(|copy| (DeviceId(copy.device), Queue::Copies(copy.direction))));
        let together = picture.collectives.iter().zip(&self.together);
        tracks.extend(together.map(|(part, row)| (DeviceId(part.device), Queue::Collectives(*row))));
        if picture.closing.is_some() {
            tracks.extend(devices().map(|device| (device, Queue::Closing)));
        }
        tracks
    }

    /// The queues of a transfer, where it leaves and where it arrives.
    fn ends(&self, place: usize) -> [Track; 2] {
        let (transfer, row) = (&self.picture.transfers[place], self.rows[place]);
        let device = |task: u32| DeviceId(self.picture.tasks[task as usize].device);
        let (from, to) = (device(transfer.from), device(transfer.to));
        [(from, Queue::Out(to, transfer.class, row)), (to, Queue::In(from, transfer.class, row))]
    }

    fn name(&self, task: &DrawnTask) -> (String, u32) {
        let n_slices = self.picture.microbatches[1];
        let microbatch = task.microbatch * n_slices + task.slice;
        if self.picture.parts.is_empty() {
            return (task_name(task.kind, task.stage, Some(microbatch), n_slices), microbatch);
        }
        (why::name(self.picture, task), microbatch)
    }

    fn task(&self, trace: &mut Trace<'_>, place: usize) -> io::Result<()> {
        let task = &self.picture.tasks[place];
        let (name, microbatch) = self.name(task);
        let critical = u32::try_from(place).is_ok_and(|place| self.critical.contains(&place));
        let arguments = TaskArguments {
            step: None,
            device: task.device,
            stage: task.stage,
            microbatch: Some(microbatch),
            critical,
        };
        let category = task.kind.letters().to_owned() + if critical { ",critical" } else { "" };
        let span = (self.nanos(task.start), self.nanos(task.end));
        trace.slice((DeviceId(task.device), Queue::Compute), &name, &category, span, &arguments)
    }

    /// Slices on both queues, where it takes time, and the arrow from task to task.
    fn transfer(&self, trace: &mut Trace<'_>, place: usize) -> io::Result<()> {
        let transfer = &self.picture.transfers[place];
        let [from, to] = [transfer.from, transfer.to].map(|task| &self.picture.tasks[task as usize]);
        let compute = |task: &DrawnTask| (DeviceId(task.device), Queue::Compute);
        let (start, end) = (self.nanos(transfer.start), self.nanos(transfer.end));
        let mut way = Vec::new();
        if end > start {
            let name = self.name(from).0;
            let arguments = transfer.bytes.map_or(json!({}), |bytes| json!({"bytes": bytes}));
            for track in self.ends(place) {
                trace.slice(track, &name, transfer.class.word(), (start, end), &arguments)?;
                way.push((track, start));
            }
        }
        way.push((compute(to), self.nanos(to.start)));
        let span = (self.nanos(from.start), self.nanos(from.end));
        trace.arrow(transfer.class.word(), compute(from), span, &way)
    }

    fn memory(&self, trace: &mut Trace<'_>, memory: &Memory) -> io::Result<()> {
        let measure = memory.measure;
        let name = if measure.unit == "bytes" { "memory in bytes" } else { "activations in units" };
        for (device, track) in (0..).map(DeviceId).zip(&memory.devices) {
            for (at, parts) in &track.levels {
                // Whole numbers stay whole.
                let level = match measure.over {
                    1 => json!(parts * measure.times),
                    over => json!((parts * measure.times) as f64 / over as f64),
                };
                trace.level(device, name, self.nanos(*at), &level)?;
            }
        }
        Ok(())
    }
}
