//! Random targets so small that all of their schedules can be tried: places, costs of every form, latencies
//! and limits, slices and replicas. What the costs mean is worked out here from the documents
//! (`docs/language/time.md`), and shares nothing with the compiler.

use super::machines::Machines;
use crate::schedules::Dice;

/// Ticks of a unit of time.
pub const UNIT: u64 = 1_000_000;
/// Kinds of tasks, by their position in [`Case::times`].
pub const KINDS: [&str; 4] = ["F", "B", "W", "BW"];
/// Position of `F`.
pub const F: usize = 0;
/// Position of `B`.
pub const B: usize = 1;
/// Position of `W`.
pub const W: usize = 2;
/// Position of `BW`.
pub const BW: usize = 3;

/// A target without an order.
#[derive(Clone, Debug)]
pub struct Case {
    /// Number of devices.
    pub devices: usize,
    /// The device of each stage: of microbatches in turn, where stages have replicas.
    pub homes: Vec<Vec<usize>>,
    /// Number of microbatches.
    pub microbatches: usize,
    /// In how many slices each is cut.
    pub slices: usize,
    /// The costs, as `--cost` has them.
    pub costs: String,
    /// What tasks take, in ticks, by stage and kind.
    pub times: Vec<[u64; 4]>,
    /// What `F & B` and `F & BW` take, in ticks, where that was said.
    pub pairs: [Option<u64>; 2],
    /// Latency between devices, in ticks.
    pub links: Vec<Vec<u64>>,
    /// The machines that the links are from, where nothing else says them.
    pub machines: Option<Machines>,
    /// Forwards of single stages whose activations each device may hold, where that is limited.
    pub limits: Option<Vec<usize>>,
}

/// What targets may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Whole microbatches, all of which a stage runs on one device.
    Plain,
    /// Slices, replicas, or both.
    Cut,
    /// A pipeline on machines whose links differ.
    Machines,
}

/// An entry of a list of costs: a kind, the stages that it is about if not all, and ticks.
type Entry = (usize, Option<(usize, usize)>, u64);

/// A unit of time in its decimal form.
fn decimal(ticks: u64) -> String {
    let text = format!("{}.{:06}", ticks / UNIT, ticks % UNIT);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Case {
    /// A random target with at most so many tasks, its backwards counted as two.
    #[must_use]
    pub fn random(dice: &mut Dice, family: Family, most_tasks: usize) -> Self {
        loop {
            let case = Self::any(dice, family);
            if case.stages() * case.parts() * 3 <= most_tasks {
                return case;
            }
        }
    }

    fn any(dice: &mut Dice, family: Family) -> Self {
        let mut devices = 1 + dice.below(4).min(dice.below(4));
        let stages = devices + dice.below(devices + 1).min(dice.below(3));
        let mut microbatches = 1 + dice.below(4).min(dice.below(4));
        // Every device has a stage; the first ones are in a line, as in most schedules.
        let places: Vec<usize> = (0..stages)
            .map(|stage| match dice.below(3) {
                _ if stage < devices => stage,
                0 => dice.below(devices),
                1 => stage % devices,
                _ => devices - 1 - stage % devices,
            })
            .collect();
        let (mut homes, mut slices) = (vec![places], 1);
        if family == Family::Cut {
            let has_replicas = dice.below(3) > 0;
            slices = if has_replicas { 1 + dice.below(2) } else { 2 + dice.below(2) };
            if has_replicas {
                microbatches = microbatches.max(2);
                homes.push(replica(dice, &homes[0], &mut devices));
            }
        }
        let mut entries = entries(dice, stages);
        if family == Family::Machines {
            // What is not said would be worked out from the model's operations.
            entries = [F, B, W, BW]
                .map(|kind| (kind, None, time(dice)))
                .into_iter()
                .chain(exceptions(dice, stages))
                .collect();
        }
        let times: Vec<[u64; 4]> = (0..stages).map(|stage| meant(&entries, Some(stage))).collect();
        let pairs = pairs(dice, times.iter().chain([&meant(&entries, None)]));
        let mut costs: Vec<String> = entries.iter().map(written).collect();
        for (name, pair) in ["F&B", "F&BW"].into_iter().zip(pairs) {
            costs.extend(pair.map(|pair| format!("{name}={}", decimal(pair))));
        }
        let machines = (family == Family::Machines).then(|| Machines::random(dice, devices));
        let links = match &machines {
            Some(machines) => machines.links(&machines.nodes, devices),
            None => links(dice, devices, &mut costs),
        };
        // All slices of a microbatch go forward before the last one goes back.
        let of_home = |home: &Vec<usize>, device| home.iter().filter(|place| **place == device).count() * slices;
        let of_device = |device| homes.iter().map(|home| of_home(home, device)).max().unwrap_or_default();
        let least: Vec<usize> = (0..devices).map(of_device).collect();
        let mut limit = |least: &usize| least + dice.below(1 + least * (microbatches - 1));
        let limits: Vec<usize> = least.iter().map(&mut limit).collect();
        let limits = match dice.below(3) {
            0 => None,
            1 => limits.iter().max().map(|most| vec![*most; devices]),
            _ => Some(limits),
        };
        let costs = costs.join(",");
        Self { devices, homes, microbatches, slices, costs, times, pairs, links, machines, limits }
    }

    /// Number of stages.
    #[must_use]
    pub fn stages(&self) -> usize {
        self.homes[0].len()
    }

    /// Slices of all microbatches, or microbatches where they are whole: all of one microbatch before those
    /// of the next.
    #[must_use]
    pub const fn parts(&self) -> usize {
        self.microbatches * self.slices
    }

    /// Which replica runs a part.
    #[must_use]
    pub fn replica(&self, part: usize) -> usize {
        part / self.slices % self.homes.len()
    }

    /// The device of a part of a stage.
    #[must_use]
    pub fn place(&self, stage: usize, part: usize) -> usize {
        self.homes[self.replica(part)][stage]
    }

    /// The limits, as `--memory` has them: half a stage more than what fits, so that nothing depends on rounding.
    #[must_use]
    pub fn memory(&self) -> Option<String> {
        let share = self.devices as f64 / (self.stages() * self.slices) as f64;
        let unit = |limit: &usize| format!("{:.4}", (*limit as f64 + 0.5) * share);
        Some(self.limits.as_ref()?.iter().map(unit).collect::<Vec<_>>().join(","))
    }

    /// What a transfer of a part between two stages takes, in ticks.
    #[must_use]
    pub fn latency(&self, part: usize, from: usize, to: usize) -> u64 {
        self.links[self.place(from, part)][self.place(to, part)]
    }

    /// What a task of a stage takes, in ticks, by the position of its kind.
    #[must_use]
    pub fn time(&self, kind: usize, stage: usize) -> u64 {
        self.times[stage][kind]
    }

    /// What a forward and a backward take that share their device.
    #[must_use]
    pub fn pair(&self, forward: usize, (kind, stage): (usize, usize)) -> u64 {
        let sum = self.time(F, forward) + self.time(kind, stage);
        self.pairs[usize::from(kind == BW)].unwrap_or(sum)
    }

    /// The options that go with the target on the command line.
    #[must_use]
    pub fn options(&self) -> String {
        let mut text = format!("--set devices={} --set microbatches={}", self.devices, self.microbatches);
        if !self.costs.is_empty() {
            text.push_str(&format!(" --cost '{}'", self.costs));
        }
        text.push_str(&self.memory().map_or_else(String::new, |memory| format!(" --memory {memory}")));
        text
    }
}

/// Where every second microbatch goes: the other way round, beside, or anywhere.
fn replica(dice: &mut Dice, home: &[usize], devices: &mut usize) -> Vec<usize> {
    match dice.below(4) {
        0 => {
            let others = home.iter().map(|place| place + *devices).collect();
            *devices *= 2;
            others
        }
        1 | 2 => home.iter().map(|place| *devices - 1 - place).collect(),
        _ => home.iter().map(|_| dice.below(*devices)).collect(),
    }
}

/// Halves of units, from 0 to 4, rarely 0.
fn time(dice: &mut Dice) -> u64 {
    (dice.below(8) + usize::from(dice.below(8) > 0)) as u64 * UNIT / 2
}

/// Costs of tasks: of some kinds for all stages, and of some for some stages.
fn entries(dice: &mut Dice, stages: usize) -> Vec<Entry> {
    let kinds: &[usize] = match dice.below(8) {
        0 => &[],
        1 => &[F, B, W],
        2 => &[F, BW],
        3 => &[F, B, W, BW],
        4 => &[F, BW, B],
        5 => &[F, BW, W],
        6 => &[B, W],
        _ => &[BW],
    };
    let all: Vec<Entry> = kinds.iter().map(|kind| (*kind, None, time(dice))).collect();
    all.into_iter().chain(exceptions(dice, stages)).collect()
}

/// Those for some stages.
fn exceptions(dice: &mut Dice, stages: usize) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::new();
    for _ in 0..[0, 0, 1, 2, 3][dice.below(5)] {
        let first = dice.below(stages);
        let about = (first, first + 1 + dice.below(stages - first));
        let kind = [F, B, W, BW, BW][dice.below(5)];
        if all.iter().all(|(other, others, _)| *other != kind || *others != Some(about)) {
            all.push((kind, Some(about), time(dice)));
        }
    }
    all
}

fn written((kind, about, time): &Entry) -> String {
    let (name, time) = (KINDS[*kind], decimal(*time));
    match about {
        None => format!("{name}={time}"),
        Some((first, end)) if first + 1 == *end => format!("{name}[{first}]={time}"),
        Some((first, end)) => format!("{name}[{first}..{end}]={time}"),
    }
}

/// What tasks of a stage take, or, of none, of all stages that no exception is about.
fn meant(entries: &[Entry], stage: Option<usize>) -> [u64; 4] {
    let holds = |(_, about, _): &&Entry| match (about, stage) {
        (Some((first, end)), Some(stage)) => (*first..*end).contains(&stage),
        (about, _) => about.is_none(),
    };
    let said = |kind: usize| {
        let own = entries.iter().filter(|entry| entry.0 == kind).filter(holds);
        // Exceptions come before what is said of all stages, and the last one holds.
        own.max_by_key(|(_, about, _)| about.is_some()).map(|(_, _, time)| *time)
    };
    let (forward, both) = (said(F).unwrap_or(UNIT), said(BW));
    let halves = match (both, said(B), said(W)) {
        (Some(both), None, None) => [both - both / 2, both / 2],
        (Some(both), Some(input), None) => [input, both.saturating_sub(input)],
        (Some(both), None, Some(weight)) => [both.saturating_sub(weight), weight],
        (_, input, weight) => [input.unwrap_or(UNIT), weight.unwrap_or(UNIT)],
    };
    [forward, halves[0], halves[1], both.unwrap_or(halves[0] + halves[1])]
}

/// Costs of pairs: no less than either task alone.
fn pairs<'a>(dice: &mut Dice, times: impl Iterator<Item = &'a [u64; 4]> + Clone) -> [Option<u64>; 2] {
    [B, BW].map(|kind| {
        let longest = |kind: usize| times.clone().map(|stage| stage[kind]).max().unwrap_or_default();
        let (forward, backward) = (longest(F), longest(kind));
        let (least, sum) = (forward.max(backward), forward + backward);
        // Not always a multiple of what single tasks take.
        let more = dice.below(((sum - least) / (UNIT / 5)) as usize + 2) as u64 * (UNIT / 5);
        (dice.below(3) == 0).then_some(least + more)
    })
}

/// Latencies between devices, in the list of costs and as a table.
fn links(dice: &mut Dice, devices: usize, costs: &mut Vec<String>) -> Vec<Vec<u64>> {
    let usual = if dice.below(2) == 0 { 0 } else { time(dice) };
    let mut links = vec![vec![usual; devices]; devices];
    if usual > 0 {
        costs.push(format!("comm={}", decimal(usual)));
    }
    if devices > 1 && dice.below(3) == 0 {
        let one = dice.below(devices);
        let other = (one + 1 + dice.below(devices - 1)) % devices;
        let own = time(dice);
        costs.push(format!("comm[{one}-{other}]={}", decimal(own)));
        (links[one][other], links[other][one]) = (own, own);
    }
    links.iter_mut().enumerate().for_each(|(device, row)| row[device] = 0);
    links
}
