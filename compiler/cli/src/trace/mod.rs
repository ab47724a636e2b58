//! Traces: what ran when, or is to run, as trace-event JSON that Perfetto and chrome://tracing
//! open. Plans and runs have the same tracks and names.
//!
//! A process per device and a track per queue; a slice per task, transfer, copy and collective; an
//! arrow from each task to those of other devices that read what it makes; a counter per device and
//! kind of memory. Events are written one by one: plans may have millions of them.
//!
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>

pub(crate) mod links;
pub(crate) mod plan;
pub(crate) mod run;

use pipe_ir::ids::DeviceId;
use pipe_ir::instruction::{Class, Direction};
use pipe_ir::task::TaskKind;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// What `otherData` says that a file is.
pub(crate) const SCHEMA: &str = "pipec.trace/1";

/// What a track shows, top to bottom. What overlaps in one queue is drawn in rows below each other, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Queue {
    /// Tasks as they were planned, beside a run.
    Planned,
    /// Tasks as they are planned under the costs of the run.
    Refitted,
    /// Tasks as they ran, beside their plan.
    Measured,
    /// Tasks.
    Compute,
    /// What comes from another device.
    In(DeviceId, Class, u32),
    /// What goes to another device.
    Out(DeviceId, Class, u32),
    /// What devices do together.
    Collectives(u32),
    /// What is done behind the last task.
    Closing,
    /// Copies between the device and its host.
    Copies(Direction),
}

impl Queue {
    fn name(self) -> String {
        let row = |row: u32| if row == 0 { String::new() } else { format!(" ({})", row + 1) };
        match self {
            Self::Planned => "plan".to_owned(),
            Self::Refitted => "plan, refitted costs".to_owned(),
            Self::Measured => "run".to_owned(),
            Self::Compute => "compute".to_owned(),
            Self::In(from, class, nth) => format!("in {from} {}{}", class.word(), row(nth)),
            Self::Out(to, class, nth) => format!("out {to} {}{}", class.word(), row(nth)),
            Self::Collectives(nth) => format!("collectives{}", row(nth)),
            Self::Closing => "end of the step".to_owned(),
            Self::Copies(direction) => direction.word().to_owned(),
        }
    }
}

/// A track of a device.
pub(crate) type Track = (DeviceId, Queue);

/// For each of some spans the first row in which nothing else is drawn meanwhile: slices of one track must not overlap.
pub(crate) fn rows(spans: &[(u64, u64)]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|place| spans[*place]);
    let (mut ends, mut rows): (Vec<u64>, Vec<u32>) = (Vec::new(), vec![0; spans.len()]);
    for place in order {
        let (start, end) = spans[place];
        let row = ends.iter().position(|end| *end <= start).unwrap_or(ends.len());
        ends.resize(ends.len().max(row + 1), 0);
        ends[row] = end;
        rows[place] = u32::try_from(row).unwrap_or(u32::MAX);
    }
    rows
}

/// A task, as it is written into the arguments of its slice, so that readers need not take names apart.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct TaskArguments {
    /// The optimizer step, or the first one of a window, where several were run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<usize>,
    pub(crate) device: u32,
    pub(crate) stage: u32,
    /// Each slice counted as one; none for an update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) microbatch: Option<u32>,
    /// Whether it is a part of what makes the step as long as it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) critical: bool,
}

/// `F s0 m3`, with slices `F s0 m3 q1`, for updates `U s0`.
pub(crate) fn task_name(kind: TaskKind, stage: u32, microbatch: Option<u32>, n_slices: u32) -> String {
    let microbatch = microbatch.map(|at| match n_slices {
        0 | 1 => format!(" m{at}"),
        _ => format!(" m{} q{}", at / n_slices, at % n_slices),
    });
    format!("{} s{stage}{}", kind.letters(), microbatch.unwrap_or_default())
}

/// One event. Times are nanoseconds, and microseconds in the file.
#[derive(Serialize)]
struct Event<'a, A: Serialize> {
    ph: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// An arrow ends at the slice around it, and not at the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<A>,
}

impl<'a, A: Serialize> Event<'a, A> {
    const fn new(ph: &'a str, name: &'a str, pid: u32, tid: u32, args: Option<A>) -> Self {
        Self { ph, name, cat: None, pid, tid, ts: None, dur: None, id: None, bp: None, args }
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// A trace that is being written.
pub(crate) struct Trace<'o> {
    out: &'o mut dyn Write,
    tracks: BTreeMap<Track, u32>,
    is_first: bool,
    arrows: u64,
}

/// Number of a device's process; 0 means something else to some readers.
fn process(device: DeviceId) -> u32 {
    device.0 + 1
}

impl<'o> Trace<'o> {
    /// Begins a trace of these devices, with what they are called and these tracks.
    pub(crate) fn begin(
        out: &'o mut dyn Write,
        about: &Value,
        devices: &[String],
        tracks: impl IntoIterator<Item = Track>,
    ) -> io::Result<Self> {
        write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{about},\"traceEvents\":[")?;
        let mut tracks: BTreeMap<Track, u32> = tracks.into_iter().map(|track| (track, 0)).collect();
        tracks.values_mut().zip(1..).for_each(|(track, number)| *track = number);
        let mut trace = Self { out, tracks, is_first: true, arrows: 0 };
        for (device, name) in (0..).map(DeviceId).zip(devices) {
            trace.describe("process_name", process(device), 0, &json!({"name": name}))?;
            trace.describe("process_sort_index", process(device), 0, &json!({"sort_index": device.0}))?;
        }
        for ((device, queue), number) in trace.tracks.clone() {
            trace.describe("thread_name", process(device), number, &json!({"name": queue.name()}))?;
            trace.describe("thread_sort_index", process(device), number, &json!({"sort_index": number}))?;
        }
        Ok(trace)
    }

    fn write<A: Serialize>(&mut self, event: &Event<'_, A>) -> io::Result<()> {
        self.out.write_all(if self.is_first { b"\n" } else { b",\n" })?;
        self.is_first = false;
        serde_json::to_writer(&mut *self.out, event)?;
        Ok(())
    }

    fn describe(&mut self, name: &str, pid: u32, tid: u32, args: &Value) -> io::Result<()> {
        self.write(&Event::new("M", name, pid, tid, Some(args)))
    }

    /// Something that takes time on a track that was announced.
    pub(crate) fn slice<A: Serialize>(
        &mut self,
        track: Track,
        name: &str,
        category: &str,
        span: (u64, u64),
        arguments: &A,
    ) -> io::Result<()> {
        self.write(&Event {
            cat: Some(category),
            ts: Some(micros(span.0)),
            dur: Some(micros(span.1.saturating_sub(span.0))),
            ..Event::new("X", name, process(track.0), self.tracks[&track], Some(arguments))
        })
    }

    /// An arrow through slices that were written before: out of the first one at its end, into the
    /// others where the moments say.
    pub(crate) fn arrow(
        &mut self,
        category: &str,
        from: Track,
        span: (u64, u64),
        to: &[(Track, u64)],
    ) -> io::Result<()> {
        self.arrows += 1;
        // The end of a slice is no longer a part of it.
        let leaves = span.0.max(span.1.saturating_sub(1));
        self.arrow_point("s", category, from, leaves)?;
        let last = to.len().saturating_sub(1);
        for (number, (track, at)) in to.iter().enumerate() {
            self.arrow_point(if number == last { "f" } else { "t" }, category, *track, *at)?;
        }
        Ok(())
    }

    fn arrow_point(&mut self, ph: &str, category: &str, track: Track, at: u64) -> io::Result<()> {
        self.write(&Event {
            cat: Some(category),
            ts: Some(micros(at)),
            id: Some(self.arrows),
            bp: (ph != "s").then_some("e"),
            ..Event::new(ph, category, process(track.0), self.tracks[&track], None::<()>)
        })
    }

    /// The level of something of a device from a moment on.
    pub(crate) fn level(&mut self, device: DeviceId, name: &str, at: u64, level: &Value) -> io::Result<()> {
        let level = Some(json!({"alive": level}));
        self.write(&Event { ts: Some(micros(at)), ..Event::new("C", name, process(device), 0, level) })
    }

    /// Ends the trace.
    pub(crate) fn end(self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }
}
