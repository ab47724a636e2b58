//! Orders of a small target: random ones that run, as a source, and what they take, worked out apart from the compiler.

use super::case::{B, BW, Case, F, KINDS, W};
use crate::schedules::Dice;

/// What a device does next: one task, or a forward and a backward that share it. Each is a kind, a stage and a microbatch.
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
        Self { split: vec![true; case.places.len()], fused: vec![true; case.places.len()] }
    }

    /// A random choice.
    #[must_use]
    pub fn random(case: &Case, dice: &mut Dice) -> Self {
        let stages = case.places.len();
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
        let stages = case.places.len();
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

/// Random orders that run and hold no more than this on each device; none where chance leads nowhere.
#[must_use]
pub fn random(case: &Case, forms: &Forms, capacity: &[usize], dice: &mut Dice) -> Option<Orders> {
    let (stages, m) = (case.places.len(), case.microbatches);
    let pairs = dice.below(2) == 0;
    let mut done = vec![[false; 4]; stages * m];
    let (mut held, mut orders) = (vec![0; case.devices], vec![Vec::new(); case.devices]);
    loop {
        let mut next: Vec<Item> = Vec::new();
        for (stage, microbatch) in (0..stages).flat_map(|stage| (0..m).map(move |microbatch| (stage, microbatch))) {
            let of = |stage: usize| done[stage * m + microbatch];
            let own = of(stage);
            let has_room = held[case.places[stage]] < capacity[case.places[stage]];
            if !own[F] && (stage == 0 || of(stage - 1)[F]) && has_room {
                next.push(Item::one(F, stage, microbatch));
            }
            let is_back = stage + 1 == stages || of(stage + 1)[B] || of(stage + 1)[BW];
            if own[F] && is_back && !own[B] && !own[BW] {
                next.extend(forms.split[stage].then_some(Item::one(B, stage, microbatch)));
                next.extend(forms.fused[stage].then_some(Item::one(BW, stage, microbatch)));
            }
            if own[B] && !own[W] {
                next.push(Item::one(W, stage, microbatch));
            }
        }
        if next.is_empty() {
            let is_done = |done: &[bool; 4]| done[F] && (done[W] || done[BW]);
            return done.iter().all(is_done).then_some(orders);
        }
        let mut item = next[dice.below(next.len())];
        let device = case.places[item.task[1]];
        let is_partner = |other: &&Item| {
            let [kind, stage, _] = other.task;
            (kind == B || kind == BW) && case.places[stage] == device
        };
        let partners: Vec<&Item> = next.iter().filter(is_partner).collect();
        if pairs && item.task[0] == F && !partners.is_empty() && dice.below(2) == 0 {
            item.beside = Some(partners[dice.below(partners.len())].task);
        }
        for [kind, stage, microbatch] in item.tasks() {
            done[stage * m + microbatch][kind] = true;
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
    let task = |[kind, stage, microbatch]: [usize; 3]| format!("{}[{stage}, {microbatch}]", KINDS[kind]);
    let item = |item: &Item| item.tasks().map(task).collect::<Vec<_>>().join(" & ");
    let chain = |all: &[String], name: &str| {
        let (last, others) = all.split_last().expect("there is at least one");
        let each = others.iter().enumerate().map(|(index, one)| format!("if {name} == {index} then {one} else "));
        each.chain([last.clone()]).collect::<String>()
    };
    let places: Vec<String> = case.places.iter().map(usize::to_string).collect();
    let of_device = |(device, order): (usize, &Vec<Item>)| {
        let items = order.iter().map(item).collect::<Vec<_>>().join(" ");
        format!("        if d == {device} {{ {items} }}\n")
    };
    let orders: String = orders.iter().enumerate().map(of_device).collect();
    let (stages, places) = (case.places.len(), chain(&places, "s"));
    format!("schedule random {{\n    stages {stages}\n    place s on {places}\n    order d {{\n{orders}    }}\n}}\n")
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

/// Runs orders: every item starts as soon as its device and its inputs allow. None where devices wait for each other forever.
#[must_use]
pub fn run(case: &Case, orders: &Orders) -> Option<Run> {
    let (stages, m) = (case.places.len(), case.microbatches);
    let mut ends = vec![[None; 4]; stages * m];
    let (mut next, mut spans) = (vec![0; case.devices], vec![(u64::MAX, 0); case.devices]);
    let input = |ends: &[[Option<u64>; 4]], [kind, stage, microbatch]: [usize; 3]| -> Option<u64> {
        let of = |stage: usize| ends[stage * m + microbatch];
        let back = |stage: usize| of(stage)[B].or(of(stage)[BW]);
        match kind {
            F if stage == 0 => Some(0),
            F => Some(of(stage - 1)[F]? + case.latency(stage - 1, stage)),
            W => of(stage)[B],
            _ if stage + 1 == stages => of(stage)[F],
            _ => Some(of(stage)[F]?.max(back(stage + 1)? + case.latency(stage + 1, stage))),
        }
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
        item.tasks().for_each(|[kind, stage, microbatch]| ends[stage * m + microbatch][kind] = Some(start + duration));
        next[device] += 1;
    }
    let ended = next.iter().zip(orders).all(|(next, order)| *next == order.len());
    ended.then(|| Run {
        makespan: spans.iter().map(|(_, end)| *end).max().unwrap_or_default(),
        longest_stage: spans.iter().map(|(first, end)| end - first).max().unwrap_or_default(),
        peaks: orders.iter().map(|order| peak(order)).collect(),
    })
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
