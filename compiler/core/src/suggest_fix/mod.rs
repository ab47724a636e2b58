//! Remedies: which other settings of a transformer would fit where it does not, and what they cost.
//!
//! Each change is tried by compiling the target with it, as `--set` would: stages are cut and
//! accounted anew, the step is written out and lowered, and every device's peak is compared with
//! what it has. Changes are tried one at a time; if none is enough, or none without a price, the
//! one that takes most off the fullest device is kept (one without a price, if there is any) and
//! the others are tried beside it, and so on. Of those that fit, one without more devices is
//! cheaper than one with, then the one with least extra time by the timeline, then the one that was
//! tried first.

mod blocks;
mod change;
pub(crate) mod offload;
pub(crate) mod order;
pub(crate) mod recompute;
pub(crate) mod statements;

use crate::Request;
use crate::analyze::{Analysis, analyze};
use crate::elaborate::elaborate;
use pipe_ir::ids::DeviceId;
use pipe_ir::units::Bytes;
use pipe_model::pipeline::Pipeline;
use pipe_model::transformer::{Recompute, Settings};
use pipe_schedule::check::check;
use pipe_syntax::diagnostic::{Code, Diagnostic, Fix};
use pipe_syntax::files::Files;
use pipe_syntax::source::Span;

/// Tasks of a step up to which changes are tried.
const MOST_TASKS: usize = 200_000;
/// Changes that are joined at most.
const ROUNDS: usize = 6;

/// Values to be set together, as `--set` has them.
type Change = Vec<(&'static str, i64)>;

/// A target with other settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alternative {
    /// What is set.
    pub change: Change,
    /// The device that needs most.
    pub device: DeviceId,
    /// What it needs.
    pub peak: Bytes,
    /// What it has.
    pub limit: Bytes,
    /// How much longer a step takes all devices together, in thousandths.
    pub extra: u64,
    /// How many times as many devices it takes.
    pub times_devices: u64,
    /// The same as options of the command that the target was made of.
    options: Option<Vec<String>>,
    settings: Settings,
    n_microbatches: u32,
    n_devices: usize,
}

impl Alternative {
    /// Whether every device has room for it.
    pub fn fits(&self) -> bool {
        self.peak <= self.limit
    }

    /// How much more it needs than it has, or less.
    const fn excess(&self) -> i128 {
        self.peak.0 as i128 - self.limit.0 as i128
    }

    /// As a pipeline would say it, `` `rows = 1`, `microbatches 16` ``, or the command that it was made of.
    pub fn words(&self) -> String {
        if let Some(options) = &self.options {
            return format!("`{}`", options.join(" "));
        }
        let word = |(name, _): &(&'static str, i64)| match *name {
            "devices" | "microbatches" => format!("`{name} {}`", self.value(name)),
            _ => format!("`{name} = {}`", self.value(name)),
        };
        self.change.iter().map(word).collect::<Vec<_>>().join(", ")
    }

    /// The value of something that is set, as a pipeline would say it.
    fn value(&self, name: &str) -> String {
        let value = self.change.iter().find(|(set, _)| *set == name).map_or(0, |(_, value)| *value);
        if name == "recompute" { self.settings.recompute.word().to_owned() } else { value.to_string() }
    }
}

/// Tries other settings where devices hold more than they have, and puts the cheapest that fits
/// into the help of what was found.
pub(crate) fn advise(
    files: &Files,
    analysis: &Analysis,
    request: &Request,
    found: &mut [Diagnostic],
) -> Vec<Alternative> {
    let limit = analysis.pipeline.as_ref().filter(|own| own.transformer.is_some()).and_then(Pipeline::byte_limit);
    let Some((_, span)) = limit else { return Vec::new() };
    let mut found = about_memory(analysis, found, span);
    if found.is_empty() {
        return Vec::new();
    }
    let Some(tried) = (Trials { files, request, base: None }).run() else { return Vec::new() };
    let help = help(&tried);
    let name = analysis.pipeline.as_ref().map(|own| own.name.as_str());
    let declared = files.root_pipelines().find(|declared| Some(declared.name.text.as_str()) == name);
    // Nobody wrote the pipeline of a command.
    let cheapest = tried.first().filter(|first| first.fits() && request.megatron.is_none());
    let edits = declared.zip(cheapest).and_then(|(declared, one)| change::edits(declared, one, request));
    for one in &mut found {
        one.help = Some(help.clone());
        one.fix = edits.clone().map(|edits| Box::new(Fix { edits }));
    }
    tried
}

/// What was found about memory, by a limit of the devices or by what the pipeline requires of their
/// bytes; nothing where a step has too many tasks to try anything.
fn about_memory<'f>(analysis: &Analysis, found: &'f mut [Diagnostic], limit: Span) -> Vec<&'f mut Diagnostic> {
    let is_about = |one: &Diagnostic| one.labels.first().is_some_and(|label| label.span == limit);
    let is_memory = |one: &&mut Diagnostic| one.code == Code::MemoryExceeded || is_about(one);
    found.iter_mut().filter(|one| is_memory(one) && analysis.schedule.n_tasks() <= MOST_TASKS).collect()
}

struct Trials<'a> {
    files: &'a Files,
    request: &'a Request,
    /// The time that a step takes all devices together, and the devices, as the target is.
    base: Option<(u128, u64)>,
}

impl Trials<'_> {
    /// Everything that takes less than the target as it is, the cheapest that fits first.
    fn run(&mut self) -> Option<Vec<Alternative>> {
        let mut best = self.attempt(&[])?;
        let mut tried: Vec<Alternative> = Vec::new();
        for _ in 0..ROUNDS {
            let joined = |change: Change| {
                best.change.iter().filter(|(name, _)| !has(&change, name)).copied().chain(change.clone()).collect()
            };
            let may = |change: &Change| {
                let job = self.request.megatron.as_ref();
                job.is_none_or(|job| job.options(change, &best.settings, best.n_microbatches).is_some())
            };
            let changes: Vec<Change> = candidates(&best).into_iter().filter(may).map(joined).collect();
            let round: Vec<Alternative> = changes
                .iter()
                .filter_map(|change| self.attempt(change))
                .filter(|one| one.excess() < best.excess())
                .collect();
            let is_free = |one: &&Alternative| one.extra == 0 && one.times_devices == 1;
            let free = round.iter().filter(is_free).min_by_key(|one| one.excess()).cloned();
            let any = round.iter().min_by_key(|one| (one.times_devices, one.excess())).cloned();
            tried.extend(round);
            let fit = tried.iter().filter(|one| one.fits());
            if fit.clone().any(|one| is_free(&one)) {
                break;
            }
            // Something fits at a price: perhaps several things together do without.
            let next = if fit.count() > 0 { free } else { free.or(any) };
            let Some(next) = next else { break };
            best = next;
        }
        tried.sort_by_key(|one| (!one.fits(), one.times_devices, one.extra));
        Some(tried)
    }

    /// The target with these settings; none where they do not go with it.
    fn attempt(&mut self, change: &[(&'static str, i64)]) -> Option<Alternative> {
        let mut request = self.request.clone();
        request.choice.settings.extend(change.iter().map(|(name, value)| ((*name).to_owned(), *value)));
        let mut elaborated = elaborate(self.files, &request.choice).ok()?;
        request.check(&elaborated).ok()?;
        request.furnish(&mut elaborated);
        let settings = elaborated.pipeline.as_ref()?.transformer.as_ref()?.settings.clone();
        let stages = pipe_model::stage_set(self.files, &elaborated).ok()?;
        stages.tell(&mut elaborated.schedule);
        let order = check(&elaborated.schedule).ok()?;
        let mut analysis = analyze(self.files, elaborated, order, &stages, &request);
        if analysis.schedule.n_tasks() > MOST_TASKS {
            return None;
        }
        let program = analysis.program(&stages, &analysis.lowering());
        let program = offload::settle(&mut analysis, program, &stages, &request);
        let schedule = &analysis.schedule;
        let (limit, _) = analysis.pipeline.as_ref()?.byte_limit()?;
        let peaks = (0..).map(DeviceId).zip(program.devices.iter().map(|device| device.peak));
        let excess = |device: DeviceId, peak: Bytes| i128::from(peak.0) - i128::from(limit.of(device).0);
        let (device, peak) = peaks.max_by_key(|(device, peak)| (excess(*device, *peak), std::cmp::Reverse(*device)))?;
        let devices = schedule.n_devices() as u64 * settings.tensor;
        // Smaller models are timed in smaller units, unless the costs are said.
        let is_said = request.cluster.is_some() || request.given(analysis.pipeline.as_ref()).is_some();
        let unit = if is_said { 1 } else { stages.flops_per_tick };
        let time = u128::from(analysis.timeline.makespan().0) * u128::from(devices) * u128::from(unit);
        let (base_time, base_devices) = *self.base.get_or_insert((time, devices));
        let extra = time.saturating_sub(base_time) * 1_000 / base_time.max(1);
        let n_microbatches = schedule.microbatches_of_step();
        let job = request.megatron.as_ref();
        Some(Alternative {
            options: job.and_then(|job| job.options(change, &settings, n_microbatches)),
            change: change.to_vec(),
            device,
            peak,
            limit: limit.of(device),
            extra: u64::try_from(extra).unwrap_or(u64::MAX),
            times_devices: devices / base_devices.max(1),
            n_microbatches,
            n_devices: schedule.n_devices(),
            settings,
        })
    }
}

fn has(change: &[(&str, i64)], name: &str) -> bool {
    change.iter().any(|(other, _)| *other == name)
}

/// What may be changed of a target: what costs nothing first.
fn candidates(target: &Alternative) -> Vec<Change> {
    let Alternative { settings, n_microbatches, n_devices, .. } = target;
    let mut all: Vec<Change> = Vec::new();
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    if settings.tensor > 1 && !settings.sequence_parallel {
        all.push(vec![("sequence_parallel", 1)]);
    }
    if !settings.flash {
        all.push(vec![("flash", 1)]);
    }
    if settings.recompute == Recompute::None && !settings.flash {
        all.push(vec![("recompute", 1)]);
    }
    if settings.recompute < Recompute::Full {
        all.push(vec![("recompute", 2)]);
    }
    if settings.data > 1 {
        all.extend((settings.zero + 1..=3).map(|zero| vec![("zero", number(zero))]));
    }
    if settings.rows.is_multiple_of(2) {
        all.push(vec![("rows", number(settings.rows / 2)), ("microbatches", 2 * i64::from(*n_microbatches))]);
    }
    all.push(vec![("tensor", number(2 * settings.tensor))]);
    all.push(vec![("devices", number(2 * *n_devices as u64))]);
    all
}

fn help(tried: &[Alternative]) -> String {
    let Some(first) = tried.first() else { return "no other setting that was tried takes less".to_owned() };
    let Alternative { device, peak, limit, .. } = first;
    if !first.fits() {
        let least = tried.iter().min_by_key(|one| one.excess()).unwrap_or(first);
        let (words, peak, device) = (least.words(), least.peak, least.device);
        return format!("no change of the settings that was tried fits; least is {peak} on {device}, with {words}");
    }
    let time = match (first.extra, first.times_devices) {
        (0, 1) => "for no more time".to_owned(),
        (extra, 1) => format!("for {}.{}% more time", extra / 10, extra % 10),
        (_, times) => format!("on {times} times as many devices"),
    };
    format!("the cheapest change that fits is {}: {device} then needs {peak} of {limit}, {time}", first.words())
}
