//! Summaries: what a run found, against what was compiled, for people and as JSON (`pipec.run/1`).

use super::curve::curve;
use super::resident::Resident;
use crate::output::figures::{bytes, count, duration, grouped, percent};
use crate::output::table::{Table, apart};
use crate::training::{Bubble, BubbleParts, Clipped, Finished, Sizes, ValidationLoss, median};
use pipe_ir::program::{Extent, Program};
use pipe_ir::units::Bytes;
use pipe_runtime::{Entry, Profile, Used, UsedGpu};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Name and version of the form.
pub(crate) const SCHEMA: &str = "pipec.run/1";

/// The report of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Summary {
    /// Name and version of this form.
    pub(crate) schema: &'static str,
    /// Whether every measured peak equals the compiled one.
    pub(crate) ok: bool,
    /// What ran.
    pub(crate) name: String,
    /// On what: `cpu`, `cuda` or `null`.
    pub(crate) backend: &'static str,
    /// The GPUs that ran it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gpus: Vec<GpuSummary>,
    /// Steps done by this run.
    pub(crate) steps: u64,
    /// Steps of the whole run, as planned.
    pub(crate) planned: u64,
    /// Steps that came before, in the run that was resumed.
    pub(crate) resumed_from: u64,
    /// Whether Ctrl-C ended it.
    pub(crate) interrupted: bool,
    /// Time in steps.
    pub(crate) seconds: f64,
    /// Instructions executed on all devices.
    pub(crate) instructions: u64,
    /// Data elements per second; `None` where nothing was computed.
    pub(crate) tokens_per_second: Option<f64>,
    /// Bubble by makespan that was predicted, as a mean over the devices.
    pub(crate) predicted_bubble_mean: Option<f64>,
    /// Median over the steps of the bubble by makespan, as a mean over the devices.
    pub(crate) measured_bubble_mean: Option<f64>,
    /// Bubble by makespan that was predicted, of the busiest device.
    pub(crate) predicted_bubble: Option<f64>,
    /// Median over the steps of the bubble by makespan, of the busiest device.
    pub(crate) measured_bubble: Option<f64>,
    /// Where the bubble of the steps lay, as a mean over devices and steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured_bubble_parts: Option<BubbleParts>,
    /// How much of the time of lanes lay behind compute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) lanes: Vec<LaneSummary>,
    /// Loss of the first step, in nats per token.
    pub(crate) first_loss: Option<f64>,
    /// Loss of the last step.
    pub(crate) last_loss: Option<f64>,
    /// Losses of all steps.
    pub(crate) losses: Vec<f64>,
    /// In how many steps the norm of the gradients was larger than `clip_norm`, where that is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clipped_steps: Option<u64>,
    /// Losses on data that are not trained on, with the steps done before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) validation: Vec<ValidationLoss>,
    /// Where the bytes below come from: a model, the program as it was written, or nothing but placeholders.
    pub(crate) sizes: Sizes,
    /// Figures of every device.
    pub(crate) per_device: Vec<DeviceSummary>,
    /// The checkpoint written last.
    pub(crate) checkpoint: Option<String>,
    /// Processes that ran it together.
    pub ranks: usize,
    /// The most that the run added to the resident memory of a process: the arenas there and what
    /// comes beside them. `None` where nothing was computed, or the system does not say.
    pub(crate) resident_bytes: Option<u64>,
    /// By kind of kernel, where that was asked for: launches, time, operations and bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernels: Option<BTreeMap<Cow<'static, str>, Entry>>,
    #[serde(skip)]
    clipped: Option<Clipped>,
    #[serde(skip)]
    resident: Option<Resident>,
}

/// A GPU.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct GpuSummary {
    /// What its driver calls it.
    pub(crate) name: String,
    /// How many devices it ran.
    pub(crate) devices: usize,
    /// What multiplied matrices: cuBLASLt, kernels of pipec, or both.
    pub(crate) products: String,
    /// The part of a step in which it ran no task, in the median.
    pub(crate) idle: f64,
}

/// A lane, over all devices.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct LaneSummary {
    /// Its name.
    pub(crate) lane: String,
    /// The share of its time in which its device also computes, as predicted.
    pub(crate) predicted_hidden: Option<f64>,
    /// The same, as measured. `None` where nothing ran on it, or no clock was looked at.
    pub(crate) measured_hidden: Option<f64>,
}

/// One device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct DeviceSummary {
    /// Which.
    pub(crate) device: usize,
    /// What it uses of its own memory.
    #[serde(flatten)]
    pub(crate) own: MemorySummary,
    /// What it uses of its host's, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<MemorySummary>,
    /// Share of the makespan in tasks.
    pub(crate) busy: f64,
}

/// The use of a memory: compiled against measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct MemorySummary {
    /// The most bytes alive, as compiled.
    pub(crate) predicted_peak_bytes: u64,
    /// As counted while it ran.
    pub(crate) measured_peak_bytes: u64,
    /// Bytes of the arena, as compiled.
    pub(crate) arena_bytes: u64,
    /// The end of the highest buffer that was used.
    pub(crate) measured_arena_bytes: u64,
}

impl MemorySummary {
    fn new(peak: Bytes, arena: Bytes, measured: Used) -> Self {
        Self {
            predicted_peak_bytes: peak.0,
            measured_peak_bytes: measured.peak.0,
            arena_bytes: arena.0,
            measured_arena_bytes: measured.high_water.0,
        }
    }

    fn is_as_predicted(&self) -> bool {
        self.predicted_peak_bytes == self.measured_peak_bytes && self.arena_bytes == self.measured_arena_bytes
    }
}

impl DeviceSummary {
    fn is_as_predicted(&self) -> bool {
        self.own.is_as_predicted() && self.host.as_ref().is_none_or(MemorySummary::is_as_predicted)
    }
}

/// What is known beside the run itself.
pub(crate) struct Circumstances<'a> {
    /// What ran.
    pub(crate) program: &'a Program,
    /// On what.
    pub(crate) backend: &'static str,
    /// The GPUs.
    pub(crate) gpus: Vec<UsedGpu>,
    /// What the kernels took, where that was asked for.
    pub(crate) kernels: Option<Profile>,
    /// Bubbles by makespan that the timeline predicts.
    pub(crate) predicted_bubble: Option<Bubble>,
    /// By lane: the share of its time behind compute that the timeline predicts, if it takes time at all.
    pub(crate) predicted_hidden: Vec<Option<f64>>,
    /// Where the sizes of its buffers come from.
    pub(crate) sizes: Sizes,
    /// Data elements of a step.
    pub(crate) tokens_per_step: u64,
    /// Steps of the whole run, those before a resumption included.
    pub(crate) planned: u64,
    /// Processes that ran it together.
    pub(crate) n_ranks: usize,
    /// What the run added to the resident memory of the process in which that is most, where the system says that.
    pub(crate) resident: Option<Resident>,
}

impl Summary {
    /// Compares a run with its program.
    pub(crate) fn new(circumstances: &Circumstances<'_>, finished: &Finished) -> Self {
        let program = circumstances.program;
        let steps = finished.steps;
        let seconds = finished.elapsed.as_secs_f64();
        let computes = !finished.losses.is_empty();
        let resident = circumstances.resident.filter(|_| computes);
        let tokens = (circumstances.tokens_per_step * steps) as f64;
        let devices = program.devices.iter().zip(&finished.measured).zip(&finished.busy).enumerate();
        let per_device: Vec<_> = devices
            .map(|(device, ((compiled, measured), busy))| DeviceSummary {
                device,
                own: MemorySummary::new(compiled.peak, compiled.arena, measured.device),
                host: (compiled.host != Extent::default() || measured.host != Used::default())
                    .then(|| MemorySummary::new(compiled.host.peak, compiled.host.arena, measured.host)),
                busy: *busy,
            })
            .collect();
        let measured = |of: fn(&Bubble) -> f64| {
            let bubbles: Vec<f64> = finished.bubbles.iter().map(of).collect();
            computes.then(|| median(&bubbles)).flatten()
        };
        Self {
            schema: SCHEMA,
            // Without a step nothing was measured.
            ok: steps == 0 || per_device.iter().all(DeviceSummary::is_as_predicted),
            name: program.name.clone(),
            backend: circumstances.backend,
            gpus: circumstances
                .gpus
                .iter()
                .map(|gpu| GpuSummary {
                    name: gpu.name.clone(),
                    devices: gpu.devices.len(),
                    products: gpu.products.clone(),
                    idle: gpu.devices.first().map_or(1.0, |device| finished.gpu_idle[device.index()]),
                })
                .collect(),
            steps,
            planned: circumstances.planned,
            resumed_from: finished.first_step,
            interrupted: finished.interrupted,
            seconds,
            instructions: finished.instructions,
            tokens_per_second: (computes && seconds > 0.0).then(|| tokens / seconds),
            predicted_bubble_mean: circumstances.predicted_bubble.map(|bubble| bubble.mean),
            measured_bubble_mean: measured(|bubble| bubble.mean),
            predicted_bubble: circumstances.predicted_bubble.map(|bubble| bubble.busiest),
            measured_bubble: measured(|bubble| bubble.busiest),
            measured_bubble_parts: computes.then(|| BubbleParts::mean(&finished.parts)),
            lanes: (0..)
                .zip(&program.lanes)
                .map(|(number, lane)| LaneSummary {
                    lane: lane.clone(),
                    predicted_hidden: circumstances.predicted_hidden.get(number).copied().flatten(),
                    measured_hidden: finished.lanes.get(number).and_then(|[busy, hidden]| share(*hidden, *busy)),
                })
                .collect(),
            first_loss: finished.losses.first().copied(),
            last_loss: finished.losses.last().copied(),
            losses: finished.losses.clone(),
            clipped_steps: finished.clipped.map(|clipped| clipped.steps),
            clipped: finished.clipped,
            validation: finished.validations.clone(),
            sizes: circumstances.sizes,
            per_device,
            checkpoint: finished.saved.as_ref().map(|path| path.display().to_string()),
            ranks: circumstances.n_ranks,
            resident_bytes: resident.map(|resident| resident.bytes.0),
            kernels: circumstances.kernels.as_ref().map(|kernels| {
                let ran = kernels.entries.iter().filter(|(_, entry)| entry.count > 0);
                ran.map(|(kind, entry)| (kind.clone(), *entry)).collect()
            }),
            resident,
        }
    }

    /// The table for people.
    pub(crate) fn table(&self) -> String {
        if self.steps == 0 {
            let why = if self.interrupted { "stopped before its next step" } else { "nothing is left to do" };
            return format!("{} has done {} of {} steps: {why}\n", self.name, self.resumed_from, self.planned);
        }
        let rate = self
            .tokens_per_second
            .map_or_else(|| self.dispatch(), |rate| format!(", {} tokens/s", grouped(rate.max(0.0).round() as u64)));
        let ended = if self.interrupted { " stopped after" } else { "" };
        let devices = count(self.per_device.len(), &format!("{} device", self.backend));
        let ranks = if self.ranks == 1 { String::new() } else { format!(" of {} processes", self.ranks) };
        let steps = count(self.steps as usize, "step");
        let head =
            format!("{}{ended} {steps} on {devices}{ranks} in {}{rate}", self.name, duration(1e3 * self.seconds));
        let verdict = match self.ok {
            true => self.sizes.verdict(self.measured_bubble.is_some()),
            false => "a measured peak differs from its prediction: this is a bug in pipec, please report it".to_owned(),
        };
        let facts = Table::new(false)
            .left("", 0, 9, |(name, _): &(&str, String)| *name)
            .left("", 0, 0, |(_, text)| text.clone());
        apart([head + "\n", facts.rows(&self.facts()), self.devices(), format!("  {verdict}\n")])
    }

    /// What is said of the whole run, by its name.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = Vec::new();
        if let (Some(first), Some(last)) = (self.first_loss, self.last_loss) {
            facts.push(("loss", format!("{first:.4} in the first step, {last:.4} in the last")));
            facts.extend(curve(&self.losses).map(|curve| ("", curve)));
        }
        if let [.., last] = self.validation.as_slice() {
            let lowest = self.validation.iter().min_by(|one, other| one.loss.total_cmp(&other.loss)).unwrap_or(last);
            let words = format!("loss {:.4} after step {}", last.loss, grouped(last.step));
            let lowest = format!("lowest {:.4} after step {}", lowest.loss, grouped(lowest.step));
            facts.push(("held out", format!("{words}, {lowest}")));
        }
        if let Some(step) = self.losses.iter().position(|loss| !loss.is_finite()) {
            let step = self.resumed_from + step as u64 + 1;
            facts.push(("", format!("no number from step {step} on: a smaller learning rate may help")));
        }
        if let Some(Clipped { most, steps, largest }) = self.clipped {
            let (steps, all) = (grouped(steps), count(self.steps as usize, "step"));
            facts.push((
                "clipped",
                format!("in {steps} of {all}, to a norm of {most}; the largest norm was {largest:.4}"),
            ));
        }
        let both = |(predicted, measured)| format!("{} predicted, {} measured", percent(predicted), percent(measured));
        let mean = self.predicted_bubble_mean.zip(self.measured_bubble_mean);
        if let (Some(mean), Some(busiest)) = (mean, self.predicted_bubble.zip(self.measured_bubble)) {
            facts.push(("bubble", format!("mean over devices: {} (by makespan, median of the steps)", both(mean))));
            facts.push(("", format!("busiest device: {}", both(busiest))));
        }
        if let Some(BubbleParts { warm_up, waits, cool_down }) = self.measured_bubble_parts {
            let [warm_up, waits, cool_down] = [warm_up, waits, cool_down].map(percent);
            let parts = format!("measured: {warm_up} warm-up, {waits} waits between tasks, {cool_down} cool-down");
            facts.push(("", parts));
        }
        for LaneSummary { lane, predicted_hidden, measured_hidden } in &self.lanes {
            let Some(measured) = measured_hidden else { continue };
            let predicted = predicted_hidden.map(|share| format!("{} predicted, ", percent(share)));
            let said = format!("{}{} measured", predicted.unwrap_or_default(), percent(*measured));
            facts.push(("lane", format!("{lane}, behind compute: {said} (of its time, over all devices)")));
        }
        for GpuSummary { name, devices, products, idle } in &self.gpus {
            let (devices, idle) = (count(*devices, "device"), percent(*idle));
            facts.push(("gpu", format!("{name}: {devices}, products by {products}, idle {idle} of a step")));
        }
        facts.extend(self.checkpoint.iter().map(|path| ("saved", path.clone())));
        if let Some(Resident { rank, bytes: most, arenas }) = self.resident {
            let (most, beside) = (bytes(most.0), bytes(most.0.saturating_sub(arenas.0)));
            let whose =
                if self.ranks == 1 { "this process".to_owned() } else { format!("one process, that of {rank}") };
            facts.push(("memory", format!("{most} at most in {whose}, {beside} of it beside the arenas")));
        }
        facts
    }

    fn dispatch(&self) -> String {
        let per_device = self.instructions as f64 / self.per_device.len().max(1) as f64;
        let each = duration(if per_device > 0.0 { 1e3 * self.seconds / per_device } else { 0.0 });
        format!(", {} instructions, {each} per instruction and device", grouped(self.instructions))
    }

    /// A row for each device, and one for its host's memory where it uses any.
    fn devices(&self) -> String {
        let mut rows = Vec::new();
        for row in &self.per_device {
            let verdict = if row.is_as_predicted() { "" } else { "DIFFERS" };
            rows.push((format!("d{}", row.device), row.own, format!("{:.0}%", 100.0 * row.busy), verdict));
            rows.extend(row.host.map(|host| ("host".to_owned(), host, String::new(), "")));
        }
        Table::new(false)
            .left("device", 0, 6, |(name, ..): &(String, MemorySummary, String, &str)| name.clone())
            .right("peak predicted", 2, 14, |(_, memory, ..)| bytes(memory.predicted_peak_bytes))
            .right("peak measured", 2, 14, |(_, memory, ..)| bytes(memory.measured_peak_bytes))
            .right("arena", 2, 14, |(_, memory, ..)| bytes(memory.arena_bytes))
            .rank(1)
            .right("busy", 2, 5, |(_, _, busy, _)| busy.clone())
            .left("", 3, 0, |(.., verdict)| *verdict)
            .draw(&rows)
    }
}

/// A part of a whole; none of nothing.
pub(crate) fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
