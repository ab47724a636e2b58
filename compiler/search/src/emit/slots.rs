//! Schedules that are building blocks from their first task to their last: slots for them, as people write them.
//!
//! An order is that of a block if there are slots, and a period, such that everything stands in the
//! order of its slot. Each task that follows another one on a device says how far apart two slots
//! are at least, and so does each input. Whether slots exist for a period is a question of longest
//! ways: they exist if no cycle is longer than nothing.

use pipe_ir::ids::StageId;
use pipe_ir::task::TaskKind;
use pipe_schedule::dependencies::Dependencies;
use pipe_schedule::policy::recompute::recomputing;
use pipe_schedule::schedule::Schedule;
use std::collections::BTreeMap;

/// Slots that are written down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slots {
    pub(crate) period: i64,
    /// The kinds of task of every stage, each with the slot of stage `s`, as an expression.
    pub(crate) lines: Vec<(TaskKind, String)>,
}

/// Slots that a task takes, unless a schedule says otherwise.
const fn duration(kind: TaskKind) -> i64 {
    if matches!(kind, TaskKind::Backward) { 2 } else { 1 }
}

/// Periods that are tried, from the work of the fullest device on.
const PERIODS: i64 = 8;

/// The block that a schedule repeats from its beginning to its end, if it does, and if few words say so.
pub(crate) fn slots(schedule: &Schedule) -> Option<Slots> {
    let frame = Frame::new(schedule)?;
    let load = frame.on_device.iter().map(|all| all.iter().map(|series| frame.duration(*series)).sum::<i64>()).max()?;
    (load..load + PERIODS).find_map(|period| {
        let slots = frame.slots(period).filter(|slots| frame.is_sound(slots, period))?;
        let line = |(kind, slots): (&TaskKind, &[i64])| Some((*kind, expression(slots, schedule.n_devices())?));
        let lines = frame.kinds.iter().zip(slots.chunks(frame.n_stages)).map(line).collect::<Option<_>>()?;
        Some(Slots { period, lines })
    })
}

/// What a schedule's order says about slots. Series `kind * n_stages + stage` is all tasks of a kind and stage.
struct Frame {
    kinds: Vec<TaskKind>,
    n_stages: usize,
    on_device: Vec<Vec<usize>>,
    /// By two series: by how many microbatches at most a task of the first one, that stands right
    /// before one of the second one or is an input of it, is ahead.
    ahead: BTreeMap<(usize, usize), i64>,
    /// By device: the most activations that the order holds.
    peaks: Vec<i64>,
}

impl Frame {
    /// `None` where stages differ in the kinds of their tasks, or have parts.
    fn new(schedule: &Schedule) -> Option<Self> {
        if schedule.frozen.any() || !schedule.parts.is_empty() {
            return None;
        }
        let n_stages = schedule.n_stages();
        let tasks = || schedule.orders.iter().flatten().map(|scheduled| scheduled.task);
        let is_split = tasks().any(|task| task.kind == TaskKind::BackwardInput);
        if is_split && tasks().any(|task| task.kind == TaskKind::Backward) {
            return None;
        }
        let backward =
            if is_split { &[TaskKind::BackwardInput, TaskKind::BackwardWeight][..] } else { &[TaskKind::Backward] };
        let again = recomputing(schedule);
        let recomputes = again.contains(&true).then_some(TaskKind::Recompute);
        if recomputes.is_some() && again.contains(&false) {
            return None;
        }
        let forward = std::iter::once(TaskKind::Forward).chain(recomputes);
        let kinds: Vec<TaskKind> = forward.chain(backward.iter().copied()).collect();
        let series = |kind, stage: StageId| Some(kinds.iter().position(|own| *own == kind)? * n_stages + stage.index());
        let mut frame =
            Self { kinds: kinds.clone(), n_stages, on_device: Vec::new(), ahead: BTreeMap::new(), peaks: Vec::new() };
        for order in &schedule.orders {
            let all: Vec<(usize, i64)> = order
                .iter()
                .map(|one| Some((series(one.task.kind, one.task.stage)?, i64::from(one.task.microbatch.0))))
                .collect::<Option<_>>()?;
            for pair in all.windows(2) {
                frame.follows(pair[0].0, pair[1].0, pair[0].1 - pair[1].1);
            }
            let held = all.iter().scan(0, |held, (series, _)| {
                *held += frame.takes(*series);
                Some(*held)
            });
            let peak = held.max().unwrap_or(0);
            let mut own: Vec<usize> = all.iter().map(|(series, _)| *series).collect();
            own.sort_unstable();
            own.dedup();
            frame.on_device.push(own);
            frame.peaks.push(peak);
        }
        let dependencies = Dependencies::uniform(&schedule.graph, is_split).with_recomputation(again);
        for (kind, stage) in
            kinds.iter().flat_map(|kind| (0..n_stages).map(|stage| (*kind, StageId::from_index(stage))))
        {
            for input in dependencies.input_kinds(kind, stage) {
                frame.follows(series(input.kind, input.stage)?, series(kind, stage)?, input.ahead);
            }
        }
        Some(frame)
    }

    fn follows(&mut self, one: usize, other: usize, ahead: i64) {
        let most = self.ahead.entry((one, other)).or_insert(ahead);
        *most = ahead.max(*most);
    }

    fn kind(&self, series: usize) -> TaskKind {
        self.kinds[series / self.n_stages]
    }

    fn duration(&self, series: usize) -> i64 {
        duration(self.kind(series))
    }

    fn takes(&self, series: usize) -> i64 {
        match self.kind(series) {
            TaskKind::Forward => i64::from(!self.kinds.contains(&TaskKind::Recompute)),
            TaskKind::Recompute => 1,
            TaskKind::BackwardWeight | TaskKind::Backward => -1,
            TaskKind::BackwardInput | TaskKind::Update => 0,
        }
    }

    /// The earliest slots for a period.
    fn slots(&self, period: i64) -> Option<Vec<i64>> {
        let mut slots = vec![0_i64; self.kinds.len() * self.n_stages];
        for _ in 0..=slots.len() {
            let mut is_done = true;
            for ((one, other), ahead) in &self.ahead {
                let least = slots[*one] + self.duration(*one) + ahead * period;
                if slots[*other] < least {
                    (slots[*other], is_done) = (least, false);
                }
            }
            if is_done {
                return Some(slots);
            }
        }
        None
    }

    /// Whether no tasks of a device ever meet, in steps of whatever length, and none of them holds more than this one.
    fn is_sound(&self, slots: &[i64], period: i64) -> bool {
        self.on_device.iter().zip(&self.peaks).all(|(all, peak)| {
            let meets = |one: usize, other: usize| (slots[other] - slots[one]).rem_euclid(period) < self.duration(one);
            let meets_any = |one: &usize| all.iter().any(|other| one != other && meets(*one, *other));
            let mut events: Vec<(i64, i64)> = Vec::new();
            let mut held = 0;
            for series in all {
                let at = slots[*series] + if self.takes(*series) > 0 { 0 } else { self.duration(*series) };
                held -= self.takes(*series) * at.div_euclid(period);
                events.push((at.rem_euclid(period), self.takes(*series)));
            }
            events.sort_unstable();
            let fits = events.iter().all(|(_, takes)| {
                held += takes;
                held <= *peak
            });
            fits && !all.iter().any(meets_any)
        })
    }
}

/// Slots of all stages as an expression in `s`: a straight line, or one for each half of the stages.
fn expression(slots: &[i64], n_devices: usize) -> Option<String> {
    if let Some(line) = line(slots, 0) {
        return Some(line);
    }
    let (down, up) = slots.split_at_checked(n_devices).filter(|(down, up)| down.len() == up.len())?;
    Some(format!("if s < D then {} else {}", line(down, 0)?, line(up, n_devices as i64)?))
}

/// The line through the slots of stages from `first` on, if there is one.
fn line(slots: &[i64], first: i64) -> Option<String> {
    let start = *slots.first()?;
    let step = slots.get(1).map_or(0, |second| second - start);
    if slots.windows(2).any(|pair| pair[1] - pair[0] != step) {
        return None;
    }
    let at_0 = start - step * first;
    let times = match step.abs() {
        0 => return Some(at_0.to_string()),
        1 => "s".to_owned(),
        step => format!("{step} * s"),
    };
    Some(match (step > 0, at_0) {
        (true, 0) => times,
        (true, 1..) => format!("{times} + {at_0}"),
        (true, _) => format!("{times} - {}", -at_0),
        (false, _) => format!("{at_0} - {times}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_become_expressions_that_people_write() {
        let written = |slots: &[i64]| expression(slots, 3);
        assert_eq!(written(&[0, 1, 2]).as_deref(), Some("s"));
        assert_eq!(written(&[7, 5, 3]).as_deref(), Some("7 - 2 * s"));
        assert_eq!(written(&[4, 4, 4]).as_deref(), Some("4"));
        assert_eq!(written(&[0, 2, 4, 7, 6, 5]).as_deref(), Some("if s < D then 2 * s else 10 - s"));
        assert_eq!(written(&[0, 2, 4, 1, 3, 5]).as_deref(), Some("if s < D then 2 * s else 2 * s - 5"));
        assert_eq!(written(&[0, 2, 3]), None);
        assert_eq!(written(&[5]).as_deref(), Some("5"));
    }
}
