//! Costs as users give them: `F=1,B=1,W=1,F[7]=1.3,comm=0,comm[0-1]=0.5`.
//!
//! A name alone is about all stages or links. `F[7]` and `F[0..4]` are exceptions from it, of which
//! the last one holds, `comm[0-1]` from `comm`, both ways. Where nothing is said about it, `BW` of
//! a stage takes what its `B` and `W` take together, and `R` what its `F` takes. Where `BW` is said
//! and its halves are not, they follow from it ([`halves`]). A cost that no task takes causes a
//! warning ([`unused`]).

pub mod halves;
pub mod parts;
pub mod unused;

use crate::ratio::Ratio;
use crate::schedule::Schedule;
use crate::stage_range::{in_brackets, stages, write_stages};
use crate::step_tasks::StepTaskKind;
use crate::swaps::SwapKind;
use crate::timing::durations::{Costs, Times};
use crate::timing::latency::Latency;
use crate::timing::sharing::Sharing;
use crate::units::Ticks;
use parts::PartCost;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::TaskKind;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

/// Why a text is no list of costs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct CostError(String);

/// What an entry of a list of costs is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CostName {
    /// `F`: tasks of a kind.
    Tasks(TaskKind),
    /// `F[7]`, `F[0..4]`: tasks of a kind, of these stages.
    Stages(TaskKind, Range<u32>),
    /// `F.dispatch`, `F.dispatch[2]`: tasks of a kind, of the parts of this name.
    Part(PartCost),
    /// `F & BW`: a forward, and a backward of this kind that shares the device with it.
    Pair(TaskKind),
    /// `comm`: a transfer between two devices.
    Transfer,
    /// `copy`: a copy of 1 MiB between a device and its host, either way.
    Copy,
    /// `evict` or `fetch`: an activation that goes to wait elsewhere, or comes back.
    Swap(SwapKind),
    /// `reduce`: a sum of the gradients of a stage over its devices.
    Reduce,
    /// `comm[0-1]`: a transfer between these two devices, either way, the lower one first.
    Link(DeviceId, DeviceId),
}

impl FromStr for CostName {
    type Err = CostError;

    fn from_str(text: &str) -> Result<Self, CostError> {
        let (name, place) = in_brackets(text);
        if let Some((kind, part)) = name.split_once('.').filter(|(_, part)| !part.trim().is_empty()) {
            let kind = TaskKind::from_letters(kind.trim());
            let kind = kind.ok_or_else(|| CostError(format!("`{name}`: only tasks have parts, as in `F.dispatch`")))?;
            let stages = place.map(stages).transpose().map_err(CostError)?;
            return Ok(Self::Part(PartCost { kind, part: part.trim().into(), stages }));
        }
        let name = pair_name(name);
        let kind = TaskKind::from_letters(&name);
        match (kind, name.as_str(), place) {
            (Some(kind), _, None) => Ok(Self::Tasks(kind)),
            (Some(kind), _, Some(place)) => Ok(Self::Stages(kind, stages(place).map_err(CostError)?)),
            (_, "F & B", None) => Ok(Self::Pair(TaskKind::BackwardInput)),
            (_, "F & BW", None) => Ok(Self::Pair(TaskKind::Backward)),
            (_, "comm", None) => Ok(Self::Transfer),
            (_, "copy", None) => Ok(Self::Copy),
            (_, "comm", Some(place)) => link(place),
            (_, "reduce", None) => Ok(Self::Reduce),
            (_, swap @ ("evict" | "fetch"), None) => Ok(Self::Swap(swap_kind(swap))),
            (_, "evict" | "fetch" | "reduce" | "F & B" | "F & BW", Some(_)) => {
                Err(CostError(format!("`{name}` is the same for all stages")))
            }
            _ => Err(CostError(
                "known costs are F, B, W, BW, F&B, F&BW, R, U, comm, copy, evict, fetch and reduce".to_owned(),
            )),
        }
    }
}

impl fmt::Display for CostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tasks(kind) => write!(f, "{}", kind.letters()),
            Self::Stages(kind, stages) => write_stages(f, kind.letters(), stages),
            Self::Part(PartCost { kind, part, stages }) => {
                let name = format!("{}.{part}", kind.letters());
                match stages {
                    None => f.write_str(&name),
                    Some(stages) => write_stages(f, &name, stages),
                }
            }
            Self::Pair(kind) => write!(f, "F & {}", kind.letters()),
            Self::Transfer => f.write_str("comm"),
            Self::Copy => f.write_str("copy"),
            Self::Swap(kind) => f.write_str(kind.word()),
            Self::Reduce => f.write_str(StepTaskKind::Reduce.word()),
            Self::Link(one, other) => write!(f, "comm[{}-{}]", one.0, other.0),
        }
    }
}

/// The one of the two that a word stands for.
fn swap_kind(word: &str) -> SwapKind {
    if word == SwapKind::Evict.word() { SwapKind::Evict } else { SwapKind::Fetch }
}

/// `0-1`.
fn link(text: &str) -> Result<CostName, CostError> {
    let device = |text: &str| text.trim().parse().ok().map(DeviceId);
    match text.split_once('-').and_then(|(one, other)| device(one).zip(device(other))) {
        Some((one, other)) if one != other => Ok(CostName::Link(one.min(other), one.max(other))),
        Some((one, _)) => Err(CostError(format!("no link joins {one} and {one}"))),
        None => Err(CostError("expected two devices, as in `comm[0-1]`".to_owned())),
    }
}

/// How long things take, as it was said: without regard to how many stages and devices there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageCosts {
    /// One task of one stage, by [`TaskKind::index`].
    pub tasks: [Ticks; TaskKind::ALL.len()],
    /// Whether it was said, and does not follow from that of other kinds; likewise.
    pub said: [bool; TaskKind::ALL.len()],
    /// What a forward and a backward take together that share a device, by [`TaskKind::index`] of
    /// the backward, where it was said.
    pub pairs: [Option<Ticks>; TaskKind::ALL.len()],
    /// One-way latency between two different devices; nothing where it was not said.
    pub latency: Option<Ticks>,
    /// A copy of 1 MiB between a device and its host; nothing where it was not said.
    pub copy: Option<Ticks>,
    /// To evict an activation, and to fetch it, by the position of [`SwapKind`]; nothing where it was not said.
    pub swaps: [Option<Ticks>; SwapKind::ALL.len()],
    /// To add up the gradients of a stage over its devices; nothing where it was not said.
    pub reduce: Option<Ticks>,
    /// All that was said, in the order of the text. Of entries about the same stage or link the
    /// last one holds, and each comes before those about all.
    pub entries: Vec<Entry>,
    /// Which devices share processors, where that was said.
    pub sharing: Option<Sharing>,
}

/// An entry of a list of costs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it is about.
    pub name: CostName,
    /// How long that takes.
    pub time: Ticks,
    /// Where it was written, if it was in a source.
    pub span: Option<Span>,
    /// What to remove of that source to leave it out.
    pub cut: Option<Span>,
    /// Of one stage whose microbatches differ: how long each takes, by the microbatches of a step, slices counted.
    /// `time` is the least of them.
    pub each: Option<Arc<[Ticks]>>,
    /// The rule for all stages that this entry comes from, as it was written: `F[s, m]`.
    pub rule: Option<Arc<str>>,
}

impl Entry {
    /// One that no source has.
    pub const fn new(name: CostName, time: Ticks) -> Self {
        Self { name, time, span: None, cut: None, each: None, rule: None }
    }
}

/// The longest time that may be said: 10^9 units.
const LONGEST: u64 = 1_000_000_000 * 1_000_000;

/// By [`TaskKind::index`]: whether that was said.
type Said = [bool; TaskKind::ALL.len()];

impl Default for StageCosts {
    /// One unit for `F`, `B`, `W` and `R`, two for `BW`; communication and updates are free.
    fn default() -> Self {
        let mut tasks = [Ticks::UNIT; TaskKind::ALL.len()];
        tasks[TaskKind::Backward.index()] = Ticks::UNIT + Ticks::UNIT;
        tasks[TaskKind::Update.index()] = Ticks::ZERO;
        let (said, pairs) = ([false; TaskKind::ALL.len()], [None; TaskKind::ALL.len()]);
        let swaps = [None; SwapKind::ALL.len()];
        Self { tasks, said, pairs, latency: None, copy: None, swaps, reduce: None, entries: Vec::new(), sharing: None }
    }
}

impl StageCosts {
    /// Reads `name=number` pairs between commas. What is left out keeps its default; `BW` defaults
    /// to `B` + `W`, a half to what `BW` leaves for it, `R` to `F`, and `F&BW`, a forward and a
    /// backward that share a device, to the sum.
    ///
    /// # Errors
    /// Says which pair has another form.
    pub fn parse(text: &str) -> Result<Self, CostError> {
        let mut entries: Vec<Entry> = Vec::new();
        if let Some(stages) =
            text.split('[').skip(1).filter_map(|part| Some(part.split_once(']')?.0)).find(|part| part.contains(','))
        {
            let stage = stages.split(',').next().unwrap_or_default();
            return Err(CostError(format!(
                "`[{stages}]`: a cost is for one stage or a range of stages, as in `F[{stage}]=2,F[5..8]=3`"
            )));
        }
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let error =
                |reason: &str| CostError(format!("`{pair}`: {reason}, as in `F=1,B=1,W=0.5,F[7]=1.3,comm=0.1`"));
            let (name, number) = pair.split_once('=').ok_or_else(|| error("expected name=number"))?;
            let wanted = "expected a number from 0 to 10^9 with at most 6 decimals, perhaps as a quotient such as 1/4";
            let time = number.parse().ok().and_then(Ratio::millionths).filter(|time| *time <= LONGEST);
            let time = Ticks(time.ok_or_else(|| error(wanted))?);
            let name: CostName = name.parse().map_err(|reason: CostError| error(&reason.0))?;
            if entries.iter().any(|entry| entry.name == name) {
                return Err(error(&format!("`{name}` was given before")));
            }
            entries.push(Entry::new(name, time));
        }
        let costs = Self::of(entries);
        match costs.hasty_pair() {
            Some((_, reason)) => Err(CostError(reason)),
            None => Ok(costs),
        }
    }

    /// What a list of entries comes to.
    pub fn of(entries: Vec<Entry>) -> Self {
        let mut costs = Self::default();
        for entry in &entries {
            match entry.name {
                CostName::Tasks(kind) => {
                    costs.tasks[kind.index()] = entry.time;
                    costs.said[kind.index()] = true;
                }
                CostName::Pair(kind) => costs.pairs[kind.index()] = Some(entry.time),
                CostName::Transfer => costs.latency = Some(entry.time),
                CostName::Copy => costs.copy = Some(entry.time),
                CostName::Swap(kind) => costs.swaps[kind as usize] = Some(entry.time),
                CostName::Reduce => costs.reduce = Some(entry.time),
                CostName::Stages(..) | CostName::Part(_) | CostName::Link(..) => {}
            }
        }
        follow(&mut costs.tasks, &costs.said);
        Self { entries, ..costs }
    }

    /// These costs, and others where they say nothing.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        let is_open = |entry: &Entry| match &entry.name {
            CostName::Tasks(kind) | CostName::Stages(kind, _) | CostName::Part(PartCost { kind, .. }) => {
                !self.said[kind.index()]
            }
            CostName::Pair(kind) => self.pairs[kind.index()].is_none(),
            CostName::Transfer | CostName::Link(..) => self.latency.is_none(),
            CostName::Copy => self.copy.is_none(),
            CostName::Swap(kind) => self.swaps[*kind as usize].is_none(),
            CostName::Reduce => self.reduce.is_none(),
        };
        let entries = others.entries.into_iter().filter(is_open).chain(self.entries.iter().cloned()).collect();
        Self { sharing: self.sharing.or(others.sharing), ..Self::of(entries) }
    }

    /// Whether the costs of a kind were said, for all stages or for this one.
    pub fn says(&self, kind: TaskKind, stage: StageId) -> bool {
        let is_about = |entry: &Entry| matches!(&entry.name, CostName::Stages(one, stages) if *one == kind && stages.contains(&stage.0));
        self.said[kind.index()] || self.entries.iter().any(is_about)
    }

    /// A pair that is said to end before one of its tasks could alone, and the words for it.
    pub fn hasty_pair(&self) -> Option<(TaskKind, String)> {
        [TaskKind::BackwardInput, TaskKind::Backward].into_iter().find_map(|backward| {
            let pair = self.pairs[backward.index()]?;
            let longer = |kind: &TaskKind| self.tasks[kind.index()] > pair;
            let kind = [TaskKind::Forward, backward].into_iter().find(longer)?;
            let (alone, letters, own) = (self.tasks[kind.index()], backward.letters(), kind.letters());
            Some((backward, format!("`F & {letters}` takes {pair}, but `{own}` alone takes {alone}")))
        })
    }
}

/// What follows from other kinds, where it was not said.
fn follow(tasks: &mut Times, said: &Said) {
    let is_said = |kind: TaskKind| said[kind.index()];
    if is_said(TaskKind::Backward) {
        for (half, time) in halves::of(tasks, said) {
            tasks[half.index()] = time;
        }
    } else {
        let both = [TaskKind::BackwardInput, TaskKind::BackwardWeight].map(|half| tasks[half.index()]);
        tasks[TaskKind::Backward.index()] = both[0] + both[1];
    }
    if !is_said(TaskKind::Recompute) {
        tasks[TaskKind::Recompute.index()] = tasks[TaskKind::Forward.index()];
    }
}

/// `F & BW` for `BW&F`, other names as they are.
fn pair_name(name: &str) -> String {
    match name.split_once('&').map(|(one, other)| (one.trim(), other.trim())) {
        Some(("F", other)) => format!("F & {other}"),
        Some((one, "F")) => format!("F & {one}"),
        Some((one, other)) => format!("{one} & {other}"),
        None => name.trim().to_owned(),
    }
}

/// What the tasks of a stage take.
struct OfStage {
    /// By kind; where microbatches differ, not of any of them.
    times: Times,
    /// Whether that was said.
    said: Said,
    /// By microbatch, where these differ.
    each: Option<Arc<[Times]>>,
}

/// What tasks of so many stages take. Exceptions about other stages are left out: see [`check`].
fn by_stage(costs: &StageCosts, n_stages: usize) -> impl Iterator<Item = OfStage> {
    type Each<'c> = [Option<&'c [Ticks]>; TaskKind::ALL.len()];
    let none: Each<'_> = [None; TaskKind::ALL.len()];
    let mut stages = vec![(costs.tasks, costs.said, none); n_stages];
    for Entry { name, time, each, .. } in &costs.entries {
        if let CostName::Stages(kind, about) = name {
            for (tasks, said, by_microbatch) in stages.iter_mut().take(about.end as usize).skip(about.start as usize) {
                tasks[kind.index()] = *time;
                said[kind.index()] = true;
                by_microbatch[kind.index()] = each.as_deref();
            }
        }
    }
    stages.into_iter().map(|(usual, said, each)| {
        let mut times = usual;
        follow(&mut times, &said);
        let count = each.iter().flatten().map(|times| times.len()).max();
        let of = |microbatch: usize| {
            let mut times = usual;
            for (time, each) in times.iter_mut().zip(&each) {
                *time = each.map_or(*time, |each| each[microbatch]);
            }
            follow(&mut times, &said);
            times
        };
        OfStage { times, said, each: count.map(|count| (0..count).map(of).collect()) }
    })
}

/// The costs of so many stages. Exceptions about other stages are left out, and those about other
/// devices say nothing: see [`check`].
pub fn of_stages(costs: &StageCosts, n_stages: usize) -> Costs {
    let mut tasks = Vec::with_capacity(n_stages);
    let mut all = Vec::with_capacity(n_stages);
    for OfStage { mut times, each, .. } in by_stage(costs, n_stages) {
        if let Some(each) = &each {
            // What follows from several kinds is least where their sum is.
            let least = |index: usize| each.iter().map(|times| times[index]).min().unwrap_or_default();
            times.iter_mut().enumerate().for_each(|(index, time)| *time = least(index));
        }
        tasks.push(times);
        all.push(each);
    }
    let links = costs.entries.iter().filter_map(|entry| match entry.name {
        CostName::Link(one, other) => Some((one, other, entry.time)),
        _ => None,
    });
    let latency = Latency::with_links(costs.latency.unwrap_or_default(), links).with_sum(costs.reduce);
    let (copy, sharing) = (costs.copy.unwrap_or_default(), costs.sharing.clone().unwrap_or_default());
    let swaps = costs.swaps.map(Option::unwrap_or_default);
    Costs { tasks, each: all, pairs: costs.pairs, latency, copy, swaps, sharing }
}

/// Rule: exceptions are about stages and devices that are there, and two tasks that share a device
/// end no earlier than either of them could alone.
///
/// # Errors
/// Every exception about another stage or device, or else a pair that is too short.
pub fn check(costs: &StageCosts, schedule: &Schedule) -> Result<(), Diagnostics> {
    let found: Diagnostics = costs.entries.iter().filter_map(|entry| absent(entry, schedule)).collect();
    let found = if found.is_empty() { hasty(costs, schedule) } else { found };
    if found.is_empty() { Ok(()) } else { Err(found) }
}

fn absent(entry: &Entry, schedule: &Schedule) -> Option<Diagnostic> {
    if let Some(found) = parts::absent(entry, schedule) {
        return Some(found);
    }
    let (name, n_stages, n_devices) = (&schedule.name, schedule.n_whole_stages(), schedule.n_devices());
    let (about, last) = match &entry.name {
        CostName::Stages(_, stages) | CostName::Part(PartCost { stages: Some(stages), .. })
            if stages.end as usize > n_stages =>
        {
            (StageId(stages.end - 1).to_string(), format!("stage of `{name}` is s{}", n_stages.saturating_sub(1)))
        }
        CostName::Link(_, other) if other.index() >= n_devices => {
            (other.to_string(), format!("device of `{name}` is d{}", n_devices.saturating_sub(1)))
        }
        _ => return None,
    };
    let label = if entry.span.is_some() { format!("there is no {about}") } else { "this schedule".to_owned() };
    let message = format!("`{}` includes {about}, but the last {last}", entry.name);
    Some(Diagnostic::error(Code::OutOfRange, entry.span.unwrap_or(schedule.span), label, message))
}

/// Of each pair, the first stage that is too long for it.
fn hasty(costs: &StageCosts, schedule: &Schedule) -> Diagnostics {
    if !schedule.parts.is_empty() {
        return Vec::new();
    }
    let all = of_stages(costs, schedule.n_stages());
    let hasty = |backward: TaskKind| {
        let pair = all.pairs[backward.index()]?;
        let mut tasks = schedule.placement.stages().flat_map(|stage| [(TaskKind::Forward, stage), (backward, stage)]);
        let (kind, stage) = tasks.find(|(kind, stage)| all.most(*kind, *stage) > pair)?;
        let (letters, own, alone) = (backward.letters(), kind.letters(), all.most(kind, stage));
        let message = format!("`F & {letters}` takes {pair}, but `{own}[{}]` alone takes {alone}", stage.0);
        let is_about = |entry: &&Entry| matches!(&entry.name, CostName::Stages(_, stages) if stages.contains(&stage.0));
        let span = costs.entries.iter().rfind(is_about).and_then(|entry| entry.span);
        let error =
            Diagnostic::error(Code::OutOfRange, span.unwrap_or(schedule.span), "too long for the pair", message);
        Some(error.help("two tasks that share a device end together, so no earlier than either could alone"))
    };
    [TaskKind::BackwardInput, TaskKind::Backward].into_iter().filter_map(hasty).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_exactly_and_fused_backward_follows_from_its_halves() {
        let costs = StageCosts::parse("F=1.5, B=2,W=0.000001,comm=.25").expect("well-formed");
        assert_eq!(costs.tasks[TaskKind::Forward.index()], Ticks(1_500_000));
        assert_eq!(costs.tasks[TaskKind::Backward.index()], Ticks(2_000_001));
        assert_eq!(costs.latency, Some(Ticks(250_000)));
        assert_eq!(StageCosts::parse(""), Ok(StageCosts::default()));
        let pair = StageCosts::parse("BW & F = 2.5").expect("well-formed");
        assert_eq!(pair.pairs[TaskKind::Backward.index()], Some(Ticks(2_500_000)));
        assert_eq!(StageCosts::parse("F&BW=2.5"), Ok(pair));
        let fused = StageCosts::parse("BW=7,B=1").expect("well-formed");
        assert_eq!(fused.tasks[TaskKind::Backward.index()], Ticks(7_000_000));
    }

    #[test]
    fn stages_have_costs_of_their_own_and_later_ones_hold() {
        let kinds = [TaskKind::Forward, TaskKind::BackwardInput, TaskKind::BackwardWeight, TaskKind::Backward];
        let row = |costs: &Costs, stage| kinds.map(|kind| costs.of(kind, StageId(stage)).0 / 100_000);
        let costs =
            StageCosts::parse("F[0..3]=2,F[1]=3,F=1.5,B=1,W[ 2 .. 4 ]=0.5,BW[3]=9,B[0]=7").expect("well-formed");
        let costs = of_stages(&costs, 4);
        assert_eq!(
            [0, 1, 2, 3].map(|stage| row(&costs, stage)),
            [[20, 70, 10, 80], [30, 10, 10, 20], [20, 10, 5, 15], [15, 10, 5, 90],]
        );
        // A fused backward that is said for all stages does not follow from halves that are said
        // for one; the other half does from both.
        let costs = of_stages(&StageCosts::parse("BW=5,B[1]=4").expect("well-formed"), 2);
        assert_eq!([0, 1].map(|stage| row(&costs, stage)), [[10, 25, 25, 50], [10, 40, 10, 50]]);
    }

    #[test]
    fn links_have_latencies_of_their_own() {
        let costs = StageCosts::parse("comm[2-1]=0.5,comm=0.25,comm[ 0 - 2 ]=0").expect("well-formed");
        let latency = of_stages(&costs, 3).latency;
        let between = |one, other| latency.between(DeviceId(one), DeviceId(other)).0 / 10_000;
        assert_eq!([between(1, 2), between(2, 1), between(0, 1), between(2, 0)], [50, 50, 25, 0]);
        let error = StageCosts::parse("comm[0-1]=1,comm[1-0]=2").expect_err("both ways are one link");
        assert!(error.to_string().starts_with("`comm[1-0]=2`: `comm[0-1]` was given before"), "{error}");
    }

    #[test]
    fn malformed_costs_name_the_pair() {
        for text in [
            "F",
            "F=",
            "F=-1",
            "G=1",
            "F=1e9",
            "F==1",
            "F&W=1",
            "F&F=1",
            "&=1",
            "F[1]",
            "F[]=1",
            "F[1=2",
            "F[3..3]=1",
            "F[-1]=1",
            "comm[2]=1",
            "comm[2-2]=1",
            "comm[0..1]=1",
            "F[0-1]=1",
            "F&BW[1]=4",
            "G[1]=1",
            "F[4294967295]=1",
        ] {
            let error = StageCosts::parse(text).expect_err("malformed");
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
        let error = StageCosts::parse("B=1,F[1,3]=2").expect_err("a range is meant, or two costs");
        assert!(
            error.0.starts_with("`[1,3]`: a cost is for one stage or a range of stages, as in `F[1]=2"),
            "{error:?}"
        );
        let error = StageCosts::parse("F=1,B=1,F=2").expect_err("contradicts itself");
        assert!(error.to_string().starts_with("`F=2`: `F` was given before"), "{error}");
        let error = StageCosts::parse("F[1]=1,F[0..2]=1,F[1..2]=2").expect_err("contradicts itself");
        assert!(error.to_string().starts_with("`F[1..2]=2`: `F[1]` was given before"), "{error}");
        let error = StageCosts::parse("F&BW=1.5").expect_err("too short");
        assert_eq!(error.to_string(), "`F & BW` takes 1.5, but `BW` alone takes 2");
    }
}
