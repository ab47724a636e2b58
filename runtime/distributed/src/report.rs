//! What a step did: losses, times and memory, as they were measured.

use pipe_ir::ids::{DeviceId, ExecId, GroupId, MicrobatchId};
use pipe_ir::instruction::Collective;
use pipe_ir::program::{Piece, Program};
use pipe_ir::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A duration or a moment of a step, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Nanos(pub u64);

impl Nanos {
    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 * 1e-9
    }
}

/// One executable's run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Span {
    /// What ran.
    pub exec: ExecId,
    /// On which microbatch.
    pub microbatch: MicrobatchId,
    /// From the start of the step.
    pub start: Nanos,
    /// From the start of the step.
    pub end: Nanos,
}

/// A device's part of one collective.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Joined {
    /// What they did together.
    pub collective: Collective,
    /// With whom.
    pub group: GroupId,
    /// When the device joined, from the start of the step.
    pub start: Nanos,
    /// When the device had waited for its end.
    pub end: Nanos,
}

/// Memory of one space, as it was counted since the run began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Used {
    /// The most bytes alive at once.
    pub peak: Bytes,
    /// The end of the part of the arena that was ever alive.
    pub high_water: Bytes,
}

/// A GPU that a program runs on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UsedGpu {
    /// What its driver calls it.
    pub name: String,
    /// The devices of the program that it runs.
    pub devices: Vec<DeviceId>,
    /// What multiplies matrices there, in the words of reports.
    pub products: String,
}

/// What a lane of a device did in a step.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LaneStep {
    /// Time inside executables.
    pub busy: Nanos,
    /// The part of that in which the device was inside executables of its list.
    pub hidden: Nanos,
    /// Every run, if a trace was asked for.
    pub spans: Vec<Span>,
}

impl LaneStep {
    /// What a lane ran, beside what its device ran: both in the order of time.
    pub fn new(spans: Vec<Span>, beside: &[Span]) -> Self {
        let busy = Nanos(spans.iter().map(|span| span.end.0 - span.start.0).sum());
        let (mut hidden, mut first) = (0, 0);
        for span in &spans {
            first += beside[first..].partition_point(|other| other.end <= span.start);
            let overlaps = beside[first..].iter().take_while(|other| other.start < span.end);
            hidden += overlaps.map(|other| span.end.min(other.end).0 - span.start.max(other.start).0).sum::<u64>();
        }
        Self { busy, hidden: Nanos(hidden), spans }
    }
}

/// A device's part of a step.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DeviceStep {
    /// Number of instructions.
    pub instructions: u64,
    /// Time inside executables.
    pub busy: Nanos,
    /// Time in which its GPU, if it has one, was inside executables, its own or those of other devices.
    pub gpu_busy: Nanos,
    /// When the first executable started.
    pub first_start: Nanos,
    /// When the last one ended.
    pub last_end: Nanos,
    /// The most bytes alive at once since the run began, as counted by the device.
    pub peak: Bytes,
    /// The end of the part of the arena that was ever alive.
    pub high_water: Bytes,
    /// The same of the host's memory.
    pub host: Used,
    /// Every run of its list, if a trace was asked for.
    pub spans: Vec<Span>,
    /// By lane of the program, if it has any.
    #[serde(default)]
    pub lanes: Vec<LaneStep>,
    /// Every collective, if a trace was asked for, in the order in which they were waited for.
    pub joined: Vec<Joined>,
    /// What was emitted.
    #[serde(with = "bits")]
    pub losses: Vec<(MicrobatchId, f64)>,
}

/// Numbers as their bits, so that none of these is lost on the way.
mod bits {
    use pipe_ir::ids::MicrobatchId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(losses: &[(MicrobatchId, f64)], to: S) -> Result<S::Ok, S::Error> {
        let bits: Vec<_> = losses.iter().map(|(microbatch, loss)| (*microbatch, loss.to_bits())).collect();
        bits.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(MicrobatchId, f64)>, D::Error> {
        let bits = Vec::<(MicrobatchId, u64)>::deserialize(from)?;
        Ok(bits.into_iter().map(|(microbatch, bits)| (microbatch, f64::from_bits(bits))).collect())
    }
}

impl DeviceStep {
    /// Adds a run. One of a later piece of a task goes on with the run before, and so does what members have exchanged
    /// between the two.
    pub fn record(&mut self, span: Span, piece: Option<Piece>, trace: bool) {
        let goes_on = piece.is_some_and(|piece| piece.number > 0);
        if self.busy == Nanos::default() {
            self.first_start = span.start;
        }
        let start = if goes_on { self.last_end } else { span.start };
        self.busy.0 += span.end.0.saturating_sub(start.0);
        self.last_end = span.end;
        match self.spans.last_mut().filter(|_| goes_on) {
            Some(task) => task.end = span.end,
            None if trace => self.spans.push(span),
            None => {}
        }
    }

    /// Adds what the lanes ran, when all runs of the list are here; without a `trace`, runs are then left out.
    pub fn note_lanes(&mut self, lanes: impl IntoIterator<Item = Vec<Span>>, trace: bool) {
        for spans in lanes {
            let lane = LaneStep::new(spans, &self.spans);
            self.lanes.push(if trace { lane } else { LaneStep { spans: Vec::new(), ..lane } });
        }
        if !trace {
            self.spans.clear();
        }
    }
}

/// A step of all devices.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StepReport {
    /// From the start signal until all devices had ended.
    pub wall: Nanos,
    /// By device.
    pub devices: Vec<DeviceStep>,
    /// The loss of every microbatch that a device emitted one of, by microbatch.
    pub losses: Vec<(MicrobatchId, f64)>,
}

impl StepReport {
    /// The mean over microbatches; `None` where no loss was emitted.
    pub fn loss(&self) -> Option<f64> {
        let sum: f64 = self.losses.iter().map(|(_, loss)| loss).sum();
        (!self.losses.is_empty()).then(|| sum / self.losses.len() as f64)
    }

    /// The mean over the microbatches of each optimizer step, where any loss was emitted.
    pub fn step_losses(&self, program: &Program) -> Vec<f64> {
        let mut sums: BTreeMap<u32, (f64, u32)> = BTreeMap::new();
        for (microbatch, loss) in &self.losses {
            let (sum, count) = sums.entry(program.step_of(*microbatch)).or_default();
            *sum += loss;
            *count += 1;
        }
        sums.into_values().map(|(sum, count)| sum / f64::from(count)).collect()
    }

    /// Whether it says when executables ran. GPUs are not asked for that in every step.
    pub fn is_timed(&self) -> bool {
        self.devices.iter().any(|device| device.busy > Nanos::default())
    }

    /// The first start and the last end of any executable.
    pub fn extent(&self) -> (Nanos, Nanos) {
        let ran = self.devices.iter().filter(|device| device.busy > Nanos::default());
        let start = ran.clone().map(|device| device.first_start).min().unwrap_or_default();
        (start, ran.map(|device| device.last_end).max().unwrap_or_default())
    }

    /// The time between them.
    pub fn makespan(&self) -> Nanos {
        let (start, end) = self.extent();
        Nanos(end.0.saturating_sub(start.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lane_hides_is_where_both_run() {
        let span =
            |start, end| Span { exec: ExecId(0), microbatch: MicrobatchId(0), start: Nanos(start), end: Nanos(end) };
        let beside = [span(0, 10), span(12, 20), span(30, 40)];
        let lane = LaneStep::new(vec![span(5, 14), span(18, 25), span(25, 35)], &beside);
        assert_eq!((lane.busy, lane.hidden), (Nanos(26), Nanos(5 + 2 + 2 + 5)));
        assert_eq!(LaneStep::new(vec![span(1, 3)], &[]).hidden, Nanos(0));
    }
}
