//! Orders of a small target: random ones that run, as a source, and what they take, worked out apart from the compiler.

use super::case::{B, BW, Case, F, KINDS, W};
use crate::schedules::Dice;
use std::collections::BTreeMap;

/// What a device does next: one task, or a forward and a backward that share it. Each is a kind, a stage and a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// The task, or the forward of a pair.
    pub task: [usize; 3],
    /// The backward of a pair.
    pub beside: Option<[usize; 3]>,
}

impl Item {
    /// One task.
    #[must_use]
    pub const fn one(kind: usize, stage: usize, microbatch: usize) -> Self {
        Self { task: [kind, stage, microbatch], beside: None }
    }

    /// Where that is.
    #[must_use]
    pub fn device(&self, case: &Case) -> usize {
        case.place(self.task[1], self.task[2])
    }

    fn tasks(&self) -> impl Iterator<Item = [usize; 3]> + use<> {
        std::iter::once(self.task).chain(self.beside)
    }
}

/// Items of each device, in their order.
pub type Orders = Vec<Vec<Item>>;

/// Which forms backwards have, by stage: in halves, at once, or of some microbatches either.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forms {
    /// Whether `B` and `W` may be there.
    pub split: Vec<bool>,
    /// Whether `BW` may be there.
    pub fused: Vec<bool>,
}

impl Forms {
    /// Either form, for all stages.
    #[must_use]
    pub fn any(case: &Case) -> Self {
        Self { split: vec![true; case.stages()], fused: vec![true; case.stages()] }
    }

    /// A random choice.
    #[must_use]
    pub fn random(case: &Case, dice: &mut Dice) -> Self {
        let stages = case.stages();
        let (split, fused) = match dice.below(4) {
            0 => (vec![false; stages], vec![true; stages]),
            1 => (vec![true; stages], vec![false; stages]),
            2 => (vec![true; stages], vec![true; stages]),
            _ => {
                let split: Vec<bool> = (0..stages).map(|_| dice.below(2) == 0).collect();
                let fused = split.iter().map(|split| !split || dice.below(3) == 0).collect();
                (split, fused)
            }
        };
        Self { split, fused }
    }

    /// Those that some orders have.
    #[must_use]
    pub fn of(case: &Case, orders: &Orders) -> Self {
        let stages = case.stages();
        let mut forms = Self { split: vec![false; stages], fused: vec![false; stages] };
        for [kind, stage, _] in orders.iter().flatten().flat_map(Item::tasks) {
            forms.split[stage] |= kind == B;
            forms.fused[stage] |= kind == BW;
        }
        forms
    }

    /// Whether all that these have may be in others.
    #[must_use]
    pub fn are_in(&self, others: &Self) -> bool {
        let within = |own: &[bool], others: &[bool]| own.iter().zip(others).all(|(own, other)| !own || *other);
        within(&self.split, &others.split) && within(&self.fused, &others.fused)
    }
}

/// Whether a part is the first slice of its microbatch.
pub(super) const fn is_first(case: &Case, part: usize) -> bool {
    part.is_multiple_of(case.slices)
}

/// Whether it is the last one.
pub(super) const fn is_last(case: &Case, part: usize) -> bool {
    (part + 1).is_multiple_of(case.slices)
}

/// Random orders that run and hold no more than this on each device; none where chance leads nowhere.
#[must_use]
pub fn random(case: &Case, forms: &Forms, capacity: &[usize], dice: &mut Dice) -> Option<Orders> {
    let (stages, parts) = (case.stages(), case.parts());
    let pairs = dice.below(2) == 0;
    let mut done = vec![[false; 4]; stages * parts];
    let (mut held, mut orders) = (vec![0; case.devices], vec![Vec::new(); case.devices]);
    loop {
        let mut next: Vec<Item> = Vec::new();
        for (stage, part) in (0..stages).flat_map(|stage| (0..parts).map(move |part| (stage, part))) {
            let of = |stage: usize, part: usize| done[stage * parts + part];
            let own = of(stage, part);
            let has_room = held[case.place(stage, part)] < capacity[case.place(stage, part)];
            let is_there = (stage == 0 || of(stage - 1, part)[F]) && (is_first(case, part) || of(stage, part - 1)[F]);
            if !own[F] && is_there && has_room {
                next.push(Item::one(F, stage, part));
            }
            let goes_back = |[_, b, _, bw]: [bool; 4]| b || bw;
            let is_back = (stage + 1 == stages || goes_back(of(stage + 1, part)))
                && (is_last(case, part) || goes_back(of(stage, part + 1)));
            if own[F] && is_back && !own[B] && !own[BW] {
                next.extend(forms.split[stage].then_some(Item::one(B, stage, part)));
                next.extend(forms.fused[stage].then_some(Item::one(BW, stage, part)));
            }
            if own[B] && !own[W] {
                next.push(Item::one(W, stage, part));
            }
        }
        if next.is_empty() {
            let is_done = |done: &[bool; 4]| done[F] && (done[W] || done[BW]);
            return done.iter().all(is_done).then_some(orders);
        }
        let mut item = next[dice.below(next.len())];
        let device = item.device(case);
        let is_partner = |other: &&Item| matches!(other.task[0], B | BW) && other.device(case) == device;
        let partners: Vec<&Item> = next.iter().filter(is_partner).collect();
        if pairs && item.task[0] == F && !partners.is_empty() && dice.below(2) == 0 {
            item.beside = Some(partners[dice.below(partners.len())].task);
        }
        for [kind, stage, part] in item.tasks() {
            done[stage * parts + part][kind] = true;
            match kind {
                F => held[device] += 1,
                W | BW => held[device] -= 1,
                _ => {}
            }
        }
        orders[device].push(item);
    }
}

/// The source of a schedule with these orders.
#[must_use]
pub fn source(case: &Case, orders: &Orders) -> String {
    let task = |[kind, stage, part]: [usize; 3]| {
        let (microbatch, slice) = (part / case.slices, part % case.slices);
        let slice = if case.slices > 1 { format!(", {slice}") } else { String::new() };
        format!("{}[{stage}, {microbatch}{slice}]", KINDS[kind])
    };
    let item = |item: &Item| item.tasks().map(task).collect::<Vec<_>>().join(" & ");
    let chain = |all: &[String], name: &str| {
        let (last, others) = all.split_last().expect("there is at least one");
        let each = others.iter().enumerate().map(|(index, one)| format!("if {name} == {index} then {one} else "));
        each.chain([last.clone()]).collect::<String>()
    };
    let home = |home: &Vec<usize>| chain(&home.iter().map(usize::to_string).collect::<Vec<_>>(), "s");
    let homes: Vec<String> = case.homes.iter().map(home).collect();
    let (of, places) = match homes.len() {
        1 => ("s", homes[0].clone()),
        n => ("s, m", chain(&homes.iter().map(|home| format!("({home})")).collect::<Vec<_>>(), &format!("m % {n}"))),
    };
    let of_device = |(device, order): (usize, &Vec<Item>)| {
        let items = order.iter().map(item).collect::<Vec<_>>().join(" ");
        format!("        if d == {device} {{ {items} }}\n")
    };
    let orders: String = orders.iter().enumerate().map(of_device).collect();
    let slices = if case.slices > 1 { format!("    slices {}\n", case.slices) } else { String::new() };
    let stages = case.stages();
    format!(
        "schedule random {{\n    stages {stages}\n{slices}    place {of} on {places}\n    order d {{\n{orders}    }}\n}}\n"
    )
}

/// What orders take and hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// First start to last end, in ticks.
    pub makespan: u64,
    /// The longest time from first start to last end on one device.
    pub longest_stage: u64,
    /// Activations of single stages that each device holds at most.
    pub peaks: Vec<usize>,
}

/// Runs orders: every item starts as soon as its device and its inputs allow. None where devices
/// wait for each other forever.
#[must_use]
pub fn run(case: &Case, orders: &Orders) -> Option<Run> {
    let (stages, parts) = (case.stages(), case.parts());
    let mut ends = vec![[None; 4]; stages * parts];
    let (mut next, mut spans) = (vec![0; case.devices], vec![(u64::MAX, 0); case.devices]);
    let input = |ends: &[[Option<u64>; 4]], [kind, stage, part]: [usize; 3]| -> Option<u64> {
        let of = |stage: usize, part: usize| ends[stage * parts + part];
        let back = |stage: usize, part: usize| of(stage, part)[B].or(of(stage, part)[BW]);
        let beside = match kind {
            F if !is_first(case, part) => of(stage, part - 1)[F]?,
            B | BW if !is_last(case, part) => back(stage, part + 1)?,
            _ => 0,
        };
        let before = match kind {
            F if stage == 0 => 0,
            F => of(stage - 1, part)[F]? + case.latency(part, stage - 1, stage),
            W => of(stage, part)[B]?,
            _ if stage + 1 == stages => of(stage, part)[F]?,
            _ => of(stage, part)[F]?.max(back(stage + 1, part)? + case.latency(part, stage + 1, stage)),
        };
        Some(before.max(beside))
    };
    loop {
        let ready = |device: usize| {
            let item = orders[device].get(next[device])?;
            let inputs: Option<Vec<u64>> = item.tasks().map(|task| input(&ends, task)).collect();
            Some((device, *item, inputs?.into_iter().max()?))
        };
        let Some((device, item, arrived)) = (0..case.devices).find_map(ready) else { break };
        let (first, free) = &mut spans[device];
        let start = arrived.max(*free);
        let [kind, stage, _] = item.task;
        let duration = match item.beside {
            Some([kind, of, _]) => case.pair(stage, (kind, of)),
            None => case.time(kind, stage),
        };
        (*first, *free) = ((*first).min(start), start + duration);
        item.tasks().for_each(|[kind, stage, part]| ends[stage * parts + part][kind] = Some(start + duration));
        next[device] += 1;
    }
    let ended = next.iter().zip(orders).all(|(next, order)| *next == order.len());
    ended.then(|| Run {
        makespan: spans.iter().map(|(_, end)| *end).chain([reduced(case, &ends)]).max().unwrap_or_default(),
        longest_stage: spans.iter().map(|(first, end)| end - first).max().unwrap_or_default(),
        peaks: orders.iter().map(|order| peak(order)).collect(),
    })
}

/// When gradients are added up between replicas: of the stages whose devices could all join first, each
/// device joins those first, and each sum ends when what the last one adds has come to the others.
fn reduced(case: &Case, ends: &[[Option<u64>; 4]]) -> u64 {
    let parts = case.parts();
    let mut all = Vec::new();
    for stage in 0..case.stages() {
        let mut joins = BTreeMap::new();
        for part in 0..parts {
            let end = ends[stage * parts + part][W].or(ends[stage * parts + part][BW]).unwrap_or_default();
            let own = joins.entry(case.place(stage, part)).or_insert(0);
            *own = end.max(*own);
        }
        all.push((joins.values().copied().max(), stage, joins));
    }
    all.retain(|(_, _, joins)| joins.len() > 1);
    all.sort();
    let (mut joined, mut last) = (vec![0; case.devices], 0);
    for (_, _, joins) in all {
        let members: Vec<usize> = joins.keys().copied().collect();
        for (device, join) in joins {
            joined[device] = join.max(joined[device]);
            let farthest = members.iter().map(|member| case.links[device][*member]).max().unwrap_or_default();
            last = last.max(joined[device] + farthest);
        }
    }
    last
}

/// The most activations that an order holds.
fn peak(order: &[Item]) -> usize {
    let (mut held, mut most) = (0, 0);
    for [kind, ..] in order.iter().flat_map(Item::tasks) {
        match kind {
            F => held += 1,
            W | BW => held -= 1,
            _ => {}
        }
        most = most.max(held);
    }
    most
}
