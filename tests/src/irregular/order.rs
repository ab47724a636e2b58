//! Any order of tasks that can run, written out task by task. Shares nothing with the compiler but the stage graph.

use super::one_of;
use crate::schedules::Dice;
use pipe_schedule::stage_graph::StageGraph;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// How large a schedule is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) devices: usize,
    pub(super) stages: usize,
    pub(super) microbatches: usize,
    pub(super) slices: usize,
    /// The share of the sequence of each slice. Only the first `slices` of them count.
    pub(super) shares: [usize; 3],
    pub(super) replicated: bool,
}

impl Shape {
    /// What stands behind `slices`.
    pub(super) fn slices(&self) -> String {
        let shares = &self.shares[..self.slices];
        if self.is_equal() { self.slices.to_string() } else { format!("{shares:?}") }
    }

    /// Whether all slices have the same length.
    pub(super) fn is_equal(&self) -> bool {
        self.shares[..self.slices].iter().all(|share| *share == 1)
    }
}

/// Where stages live, and what their tasks are.
pub(super) struct Stages {
    /// By microbatch, as long as they differ: the device of each stage.
    rows: Vec<Vec<usize>>,
    /// By stage and microbatch: whether its backward runs in halves.
    split: Vec<Vec<bool>>,
    /// By stage and microbatch: whether its order recomputes it.
    again: Vec<Vec<bool>>,
    /// The entries of the pipeline's `recompute`, if it has one.
    pub(super) recomputed_by_line: Option<&'static str>,
    /// One in how many forwards and backwards that could share a device does not.
    apart: usize,
}

impl Stages {
    pub(super) fn draw(shape: &Shape, dice: &mut Dice) -> Self {
        let period = if shape.replicated { (1 + dice.below(3)).min(shape.microbatches) } else { 1 };
        let row = |dice: &mut Dice| (0..shape.stages).map(|_| dice.below(shape.devices)).collect();
        let rows = (0..period).map(|_| row(dice)).collect();
        let form = dice.below(4);
        let split = (0..shape.stages).map(|_| {
            let own = dice.below(2) == 0;
            let of = |dice: &mut Dice| match form {
                0 => false,
                1 => true,
                2 => own,
                _ => dice.below(2) == 0,
            };
            (0..shape.microbatches).map(|_| of(dice)).collect()
        });
        let split = split.collect();
        let lines = ["all", "F[s, m] if (s + m) % 2 == 0", "F[s] if s > 0, F[s, m, q] if m + q == 0"];
        let recomputed_by_line = (dice.below(5) == 0).then(|| one_of(&lines, dice));
        let some = recomputed_by_line.is_none() && dice.below(3) == 0;
        let again = (0..shape.stages).map(|_| {
            let (own, all) = (some && dice.below(2) == 0, dice.below(2) == 0);
            (0..shape.microbatches).map(|_| own && (all || dice.below(2) == 0)).collect()
        });
        let again = again.collect();
        Self { rows, split, again, recomputed_by_line, apart: one_of(&[1, 2, 9], dice) }
    }

    fn device(&self, stage: usize, microbatch: usize) -> usize {
        self.rows[microbatch % self.rows.len()][stage]
    }

    /// The devices that have a stage, ascending.
    fn devices(&self, stage: usize, microbatches: usize) -> BTreeSet<usize> {
        (0..microbatches).map(|microbatch| self.device(stage, microbatch)).collect()
    }

    /// Whether any stage lives on several devices.
    pub(super) fn some_on_several(&self) -> bool {
        self.rows.iter().any(|row| *row != self.rows[0])
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    F,
    R,
    B,
    W,
    BW,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Task {
    kind: Kind,
    stage: usize,
    microbatch: usize,
    slice: usize,
}

/// The text of a schedule, and what it has.
pub(super) struct DrawnOrder {
    pub(super) text: String,
    pub(super) features: BTreeSet<&'static str>,
}

/// Draws an order and writes it.
pub(super) fn write(graph: &StageGraph, shape: &Shape, stages: &Stages, dice: &mut Dice) -> DrawnOrder {
    let mut features = BTreeSet::new();
    let mut lists = vec![String::new(); shape.devices];
    let mut open = tasks(shape, stages);
    let mut done = BTreeSet::new();
    // Whether all-gathers have a place, and sums and updates: none, sums, or both.
    let (gathers, places) = (one_of(&[1, 1, 3], dice), one_of(&[0, 0, 1, 2], dice));
    // Forwards first, backwards first, or neither.
    let prefer = one_of(&[None, None, Some(Kind::F), Some(Kind::BW)], dice);
    while !open.is_empty() {
        let ready: Vec<Task> =
            open.iter().copied().filter(|task| is_ready(graph, shape, stages, &done, *task)).collect();
        let is_preferred = |task: &&Task| Some(task.kind) == prefer;
        let liked: Vec<Task> = ready.iter().filter(is_preferred).copied().collect();
        let from = if liked.is_empty() || dice.below(4) == 0 { &ready } else { &liked };
        let task = one_of(from, dice);
        let device = stages.device(task.stage, task.microbatch);
        let fits = |other: &&Task| {
            let kinds = [task.kind, other.kind];
            let pairs = kinds.contains(&Kind::F) && (kinds.contains(&Kind::B) || kinds.contains(&Kind::BW));
            // Ready at once, so that neither needs the other; two tasks of one microbatch and stage never are.
            pairs && stages.device(other.stage, other.microbatch) == device
        };
        let partners: Vec<Task> = ready.iter().filter(fits).copied().collect();
        let partner = (!partners.is_empty() && dice.below(stages.apart) == 0).then(|| one_of(&partners, dice));
        lists[device] += &text(task, shape);
        if let Some(partner) = partner {
            lists[device] += "& ";
            lists[device] += &text(partner, shape);
            features.insert("pair");
        }
        for task in [Some(task), partner].into_iter().flatten() {
            done.insert(task);
            open.remove(&task);
        }
        if dice.below(gathers) == 1 {
            let own = (0..shape.stages).filter(|stage| stages.devices(*stage, shape.microbatches).contains(&device));
            let stage = one_of(&own.collect::<Vec<_>>(), dice);
            lists[device] += &format!("gather[{stage}] ");
            features.insert("gather");
        }
        for stage in [Some(task), partner].into_iter().flatten().map(|task| task.stage).collect::<BTreeSet<_>>() {
            let adds = |one: &Task| one.stage == stage && matches!(one.kind, Kind::W | Kind::BW);
            if places == 0 || open.iter().any(adds) || dice.below(2) == 0 {
                continue;
            }
            // All devices have it behind what they have so far, and so in the same order.
            features.insert("reduce");
            let has_update = places == 2 && dice.below(2) == 0;
            for device in stages.devices(stage, shape.microbatches) {
                lists[device] += &format!("reduce[{stage}] ");
                if has_update {
                    features.insert("update");
                    lists[device] += &format!("update[{stage}] ");
                }
            }
        }
    }
    for (is_there, name) in [
        (shape.slices > 1, "slices"),
        (!shape.is_equal(), "unequal slices"),
        (stages.rows.len() > 1, "replicas"),
        (stages.recomputed_by_line.is_some() || stages.again.iter().any(|own| own.contains(&true)), "recompute"),
        (stages.split.iter().any(|split| split.contains(&true)), "split"),
    ] {
        features.extend(is_there.then_some(name));
    }
    let orders =
        lists.iter().enumerate().map(|(device, list)| format!("if d == {device} {{ {list}}}\n")).collect::<String>();
    let text = format!(
        "schedule irregular {{\nstages {}\nslices {}\nplace {}\norder d {{\n{orders}}}\n}}",
        shape.stages,
        shape.slices(),
        place(stages)
    );
    DrawnOrder { text, features }
}

fn tasks(shape: &Shape, stages: &Stages) -> BTreeSet<Task> {
    let mut open = BTreeSet::new();
    for stage in 0..shape.stages {
        for microbatch in 0..shape.microbatches {
            let backward: &[Kind] = if stages.split[stage][microbatch] { &[Kind::B, Kind::W] } else { &[Kind::BW] };
            let again = stages.again[stage][microbatch].then_some(Kind::R);
            for kind in backward.iter().copied().chain([Kind::F]).chain(again) {
                open.extend((0..shape.slices).map(|slice| Task { kind, stage, microbatch, slice }));
            }
        }
    }
    open
}

fn is_ready(graph: &StageGraph, shape: &Shape, stages: &Stages, done: &BTreeSet<Task>, task: Task) -> bool {
    let ran = |kind, stage, slice| done.contains(&Task { kind, stage, slice, ..task });
    let back = |stage, slice| ran(Kind::B, stage, slice) || ran(Kind::BW, stage, slice);
    let Task { stage, slice, .. } = task;
    match task.kind {
        Kind::F => {
            let before = slice == 0 || ran(Kind::F, stage, slice - 1);
            before && graph.edges().all(|(from, to)| to.index() != stage || ran(Kind::F, from.index(), slice))
        }
        Kind::R => ran(Kind::F, stage, slice),
        Kind::B | Kind::BW => {
            let behind = slice + 1 == shape.slices || back(stage, slice + 1);
            let first = if stages.again[stage][task.microbatch] { Kind::R } else { Kind::F };
            let read = graph.edges().all(|(from, to)| from.index() != stage || back(to.index(), slice));
            behind && ran(first, stage, slice) && read
        }
        Kind::W => ran(Kind::B, stage, slice),
    }
}

fn text(task: Task, shape: &Shape) -> String {
    let Task { kind, stage, microbatch, slice } = task;
    if shape.slices == 1 {
        format!("{kind:?}[{stage}, {microbatch}] ")
    } else {
        format!("{kind:?}[{stage}, {microbatch}, {slice}] ")
    }
}

/// The device of each stage, and of each microbatch where these differ, as a choice among numbers.
fn place(stages: &Stages) -> String {
    let period = stages.rows.len();
    let mut text = String::new();
    for (turn, row) in stages.rows.iter().enumerate() {
        for (stage, device) in row.iter().enumerate() {
            if turn + 1 == period && stage + 1 == row.len() {
                let _ = write!(text, "{device}");
            } else {
                let _ = write!(text, "if s == {stage} and m % {period} == {turn} then {device} else ");
            }
        }
    }
    if period == 1 { format!("s on {}", text.replace(" and m % 1 == 0", "")) } else { format!("s, m on {text}") }
}
