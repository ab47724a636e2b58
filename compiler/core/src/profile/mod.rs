//! Profiles: what the tasks of a pipeline took on a machine, measured by `pipec profile` (`pipec.profile/1`).
//!
//! A unit of time is a millisecond where costs come from a profile, and a tick a nanosecond.

mod rates;

use crate::cluster;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::program::Body;
use pipe_ir::task::TaskKind;
use pipe_model::stage_set::StageSet;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::costs::{CostName, Entry, StageCosts};
use pipe_schedule::timing::sharing::Sharing;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::json::{mark, place, reason, span};
use pipe_syntax::source::{FileId, Source, Sources, Span};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::ops::Range;

/// Name and version of the form.
pub const SCHEMA: &str = "pipec.profile/1";
/// The longest text that is read.
const MAX_BYTES: usize = pipe_syntax::parse::MAX_BYTES;
/// The longest time that costs may have: 10^9 units.
const MOST_NANOS: u64 = 1_000_000_000_000_000;
const HELP: &str = "`pipec profile TARGET -o x.profile.json` measures the target and writes its profile";

/// What one kind of task of one stage took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TaskTime {
    /// Which stage.
    pub stage: u32,
    /// `F`, `B`, `W`, `BW`, `R` or `U`.
    #[serde(with = "letters")]
    pub kind: TaskKind,
    /// How long one task takes, in nanoseconds.
    pub ns: u64,
    /// The floating-point operations of its microbatch: what was measured.
    pub flops: u64,
}

/// A profile that was read, with the places of what may not fit a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// The file.
    source: Source,
    /// What it was measured with.
    target: String,
    stages: (usize, Range<usize>),
    /// By stage and kind, ascending.
    tasks: Vec<(TaskTime, Range<usize>)>,
    transfer: u64,
    /// Bytes that a copy moves in a second, where that was measured.
    copies: Option<u64>,
    /// Which devices shared a GPU.
    sharing: Option<Sharing>,
}

/// The form, as far as it gives costs.
#[derive(Deserialize)]
struct Form<'t> {
    schema: String,
    target: String,
    #[serde(borrow)]
    stages: &'t RawValue,
    transfer_ns: u64,
    #[serde(borrow)]
    tasks: Vec<&'t RawValue>,
    copy_bytes_per_second: Option<u64>,
    /// How many devices each tensor-parallel group has: its GPUs are their own then.
    tensor: Option<u32>,
    #[serde(borrow)]
    gpus: Option<&'t RawValue>,
}

/// A GPU, as far as it gives costs.
#[derive(Deserialize)]
struct FormGpu {
    devices: Vec<DeviceId>,
}

/// Kinds as their letters.
mod letters {
    use super::TaskKind;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(kind: &TaskKind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(kind.letters())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TaskKind, D::Error> {
        let text = String::deserialize(from)?;
        TaskKind::from_letters(&text).ok_or_else(|| D::Error::custom(format!("`{text}` is not a kind of task")))
    }
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// Where it is no JSON, has another form, or says something twice; with the one source that this is about.
    pub fn read(source: Source) -> Result<Self, Box<(Diagnostic, Sources)>> {
        match parse(&source) {
            Ok(profile) => Ok(Self { source, ..profile }),
            Err(error) => Err(Box::new((error, Sources { files: vec![source] }))),
        }
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// The same times on devices with a processor each.
    #[must_use]
    pub fn unshared(self) -> Self {
        Self { sharing: None, ..self }
    }

    /// Whether devices shared a GPU, and so its time.
    pub fn is_shared(&self) -> bool {
        self.sharing.as_ref().is_some_and(Sharing::binds_any)
    }

    /// The durations. Where a backward was measured at once, its halves follow from it, as in every list of costs.
    pub fn costs(&self) -> StageCosts {
        let entry = |name, ns| Entry::new(name, Ticks(ns));
        let mut entries = vec![entry(CostName::Transfer, self.transfer)];
        let copy = self.copies.map(|per_second| cluster::copied(per_second).min(Ticks(MOST_NANOS)));
        entries.extend(copy.map(|time| Entry::new(CostName::Copy, time)));
        let of_task = |task: &TaskTime| entry(CostName::Stages(task.kind, task.stage..task.stage + 1), task.ns);
        entries.extend(self.tasks.iter().map(|(task, _)| of_task(task)));
        StageCosts { sharing: self.sharing.clone(), ..StageCosts::of(entries) }
    }

    fn of(&self, kind: TaskKind, stage: u32) -> Option<&(TaskTime, Range<usize>)> {
        let place = self.tasks.binary_search_by_key(&(stage, kind), |(task, _)| (task.stage, task.kind));
        place.ok().map(|place| &self.tasks[place])
    }

    /// Whether what a task takes follows from what others take: `BW` from both halves, a half from `BW`,
    /// and `R` from `F`. Costs that were `said` count as measured ones do.
    fn follows(&self, kind: TaskKind, stage: u32, said: Option<&StageCosts>) -> bool {
        let is_known =
            |kind: TaskKind| self.of(kind, stage).is_some() || said.is_some_and(|said| said.says(kind, StageId(stage)));
        match kind {
            TaskKind::Backward => is_known(TaskKind::BackwardInput) && is_known(TaskKind::BackwardWeight),
            TaskKind::BackwardInput | TaskKind::BackwardWeight => is_known(TaskKind::Backward),
            TaskKind::Recompute => true,
            TaskKind::Forward | TaskKind::Update => false,
        }
    }

    /// Rule: a profile is about as many stages as the target has, about the kinds of tasks that it
    /// runs, unless their costs were `said` otherwise or follow from others, and about as many
    /// operations in each.
    ///
    /// # Errors
    /// Where it is about another target.
    pub fn check(
        &self,
        sources: &mut Sources,
        schedule: &Schedule,
        stages: &StageSet,
        said: Option<&StageCosts>,
    ) -> Result<(), Diagnostics> {
        let file = sources.add(self.source.clone());
        let (n_stages, place) = &self.stages;
        let error = |place: &Range<usize>, label: String, message: String| {
            let help =
                format!("`pipec profile TARGET` measures this target; the file was measured on `{}`", self.target);
            let error = Diagnostic::error(Code::UnusableProfile, spanned(file, place), label, message);
            error.label(schedule.span, "the schedule of the target").help(help)
        };
        if !schedule.parts.is_empty() {
            let message = format!("`{}` runs parts of stages, and a profile is of whole ones", schedule.name);
            let error = Diagnostic::error(Code::UnusableProfile, schedule.span, "parts", message);
            return Err(vec![
                error.help("leave `parts` out, or give the times of parts by `cost` instead of a profile"),
            ]);
        }
        if *n_stages != schedule.n_stages() {
            let (name, own) = (&schedule.name, schedule.n_stages());
            let message = format!("this profile has {n_stages} stages, but `{name}` has {own}");
            return Err(vec![error(place, "this many".to_owned(), message)]);
        }
        let tasks = schedule.orders.iter().flatten().map(|scheduled| scheduled.task);
        let runs: BTreeSet<(u32, TaskKind)> = tasks.map(|task| (task.stage.0, task.kind)).collect();
        let mut found = Diagnostics::new();
        for (stage, kind) in runs {
            let (id, letters) = (StageId(stage), kind.letters());
            match self.of(kind, stage) {
                Some((task, place)) => {
                    found.extend(operations(stages, kind, id).filter(|own| *own != task.flops).map(|own| {
                        let message = format!(
                            "`{letters}` of {id} was measured with {} operations, but does {own} here",
                            task.flops
                        );
                        error(place, "another task".to_owned(), message)
                    }))
                }
                None if self.follows(kind, stage, said) => {}
                None if said.is_some_and(|said| said.says(kind, id)) => {}
                None => {
                    let message =
                        format!("`{}` runs `{letters}` of {id}, which this profile has no time for", schedule.name);
                    found.push(error(place, "of these stages".to_owned(), message));
                }
            }
        }
        if found.is_empty() { Ok(()) } else { Err(found) }
    }
}

/// Operations of a kind of task, over all slices of a microbatch; none where the target has no model.
fn operations(stages: &StageSet, kind: TaskKind, stage: StageId) -> Option<u64> {
    let execs = stages.execs.iter().filter(|exec| exec.kind == kind && exec.stage == stage);
    execs.filter(|exec| exec.body != Body::Abstract).map(|exec| exec.flops).reduce(u64::saturating_add)
}

fn parse(source: &Source) -> Result<Profile, Diagnostic> {
    let file = FileId(0);
    let text = source.text.as_str();
    let whole = 0..text.chars().next().map_or(0, char::len_utf8);
    let error = |place: &Range<usize>, label: &str, message: String| {
        Diagnostic::error(Code::UnusableProfile, spanned(file, place), label, message).help(HELP)
    };
    if text.len() > MAX_BYTES {
        let message = format!("`{}` has {} bytes; at most {MAX_BYTES} are read", source.name, text.len());
        return Err(error(&whole, "", message));
    }
    let form: Form<'_> = serde_json::from_str(text).map_err(|wrong| {
        let at = place(text, wrong.line(), wrong.column());
        let message = format!("`{}` is not a valid profile: {}", source.name, reason(&wrong));
        Diagnostic::error(Code::UnusableProfile, mark(file, text, at), "here", message).help(HELP)
    })?;
    if form.schema != SCHEMA {
        let message = format!("`{}` has the schema `{}`, but this version reads `{SCHEMA}`", source.name, form.schema);
        return Err(error(&whole, "this file", message));
    }
    let range = |raw: &RawValue| {
        // The value is a part of the text, so that the distance of the two beginnings is its place.
        let start = (raw.get().as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
        start..start + raw.get().len()
    };
    let stages = range(form.stages);
    let n_stages: u32 = serde_json::from_str(form.stages.get())
        .map_err(|_| error(&stages, "here", format!("`{}` is not a number of stages", form.stages.get())))?;
    if form.transfer_ns > MOST_NANOS {
        let message = format!("`transfer_ns` of `{}` is {}, more than {MOST_NANOS}", source.name, form.transfer_ns);
        return Err(error(&whole, "this file", message));
    }
    let mut tasks: Vec<(TaskTime, Range<usize>)> = Vec::new();
    for raw in form.tasks {
        let task = task(raw, n_stages).map_err(|message| error(&range(raw), "this task", message))?;
        tasks.push((task, range(raw)));
    }
    // A stable sort: of two that are the same, the later one is told.
    tasks.sort_by_key(|(task, _)| (task.stage, task.kind));
    let twice = tasks.windows(2).find(|pair| (pair[0].0.stage, pair[0].0.kind) == (pair[1].0.stage, pair[1].0.kind));
    if let Some([_, (task, place)]) = twice {
        let message = format!("`{}` of {} is in the profile twice", task.kind.letters(), StageId(task.stage));
        return Err(error(place, "again", message));
    }
    let stages = (n_stages as usize, stages);
    let (source, transfer) = (source.clone(), form.transfer_ns);
    let copies = form.copy_bytes_per_second;
    let sharing = form
        .gpus
        .filter(|_| form.tensor.is_none())
        .map(|raw| sharing(raw).map_err(|message| error(&range(raw), "these GPUs", message)));
    let sharing = sharing.transpose()?;
    Ok(Profile { source, target: form.target, stages, tasks, transfer, copies, sharing })
}

/// Reads which devices are on which GPU. Each does one task at a time: its kernels fill it.
fn sharing(raw: &RawValue) -> Result<Sharing, String> {
    let gpus: Vec<FormGpu> =
        serde_json::from_str(raw.get()).map_err(|wrong| format!("the GPUs of the profile: {}", reason(&wrong)))?;
    let processors: Vec<(Vec<DeviceId>, u64)> = gpus.into_iter().map(|gpu| (gpu.devices, 1)).collect();
    Sharing::new(&processors).ok_or_else(|| "of the devices of all GPUs, one is missing or there twice".to_owned())
}

/// Reads a task of so many stages.
fn task(raw: &RawValue, n_stages: u32) -> Result<TaskTime, String> {
    let task: TaskTime =
        serde_json::from_str(raw.get()).map_err(|wrong| format!("a task of the profile: {}", reason(&wrong)))?;
    let (stage, letters) = (StageId(task.stage), task.kind.letters());
    if task.stage >= n_stages {
        return Err(format!("`{letters}` of {stage} is in a profile of {n_stages} stages"));
    }
    if task.ns > MOST_NANOS {
        return Err(format!("`{letters}` of {stage} takes {} ns, more than {MOST_NANOS}", task.ns));
    }
    Ok(task)
}

fn spanned(file: FileId, place: &Range<usize>) -> Span {
    span(file, place.start, place.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../../../tests/ui/unusable-profile/two_stages.json");

    fn read(text: &str) -> Result<Profile, Box<(Diagnostic, Sources)>> {
        Profile::read(Source { name: "x.json".to_owned(), text: text.to_owned() })
    }

    #[test]
    fn damaged_texts_are_refused_with_a_place_in_them_or_read() {
        let whole = TEXT.trim_end();
        for end in 0..whole.len() {
            let wrong = read(&whole[..end]).expect_err("the end is missing");
            let span = wrong.0.labels[0].span;
            assert!(span.start <= span.end && span.end as usize <= end, "{end}: {span:?}");
        }
        for place in 0..whole.len() {
            for mark in ["9", "\"", "é", "}", ""] {
                if let Err(wrong) = read(&[&whole[..place], mark, &whole[place + 1..]].concat()) {
                    assert!(wrong.0.code == Code::UnusableProfile && wrong.0.help.is_some(), "{:?}", wrong.0);
                }
            }
        }
    }

    #[test]
    fn given_costs_come_before_measured_ones_kind_by_kind() {
        let measured = || read(TEXT).expect("well-formed").costs();
        let ticks = |costs: &str, kind: TaskKind| {
            let costs = StageCosts::parse(costs).expect("well-formed").or(measured());
            let costs = pipe_schedule::timing::costs::of_stages(&costs, 2);
            ([0, 1].map(|stage| costs.of(kind, StageId(stage)).0), costs.latency.times().next().copied())
        };
        let latency = Some(Ticks(50_000));
        assert_eq!(ticks("", TaskKind::Forward), ([1_000_000, 1_500_000], latency));
        assert_eq!(ticks("F=4", TaskKind::Forward), ([4_000_000; 2], latency));
        assert_eq!(ticks("F[1]=4", TaskKind::Forward), ([1_000_000, 4_000_000], latency));
        assert_eq!(ticks("B=7", TaskKind::Backward), ([2_000_000, 3_000_000], latency));
        assert_eq!(ticks("F=4", TaskKind::BackwardWeight), ([1_000_000, 1_500_000], latency));
        assert_eq!(ticks("F=4", TaskKind::Recompute), ([4_000_000; 2], latency));
        assert_eq!(ticks("comm=0", TaskKind::Backward), ([2_000_000, 3_000_000], Some(Ticks::ZERO)));
    }
}
