//! What decides in a list schedule: how urgent lanes are, what they leave to others, and what they wait for.
//!
//! A microbatch is as urgent as the one before it was a period earlier. Lanes of one kind that have
//! the same place among those of their devices form a *leg*: what a microbatch passes on its way
//! from device to device. Rules begin as slopes, so much later per device on each leg, as building
//! blocks are described (arXiv 2405.15362, section 3), and change by legs, parts of legs and lanes.

use super::Objective;
use super::job::{Job, Orders, Time};
use super::plan::Plan;
use super::random::Random;
use pipe_ir::task::TaskKind;

/// Parts of a unit of time in which rules count.
pub const FINE: Time = 16;
/// A lane that may start at once.
pub const AT_ONCE: Time = Time::MIN / 4;
/// Slopes to begin with, in halves of the mean duration.
const SLOPES: [Time; 10] = [2, 2, 3, 4, 4, 5, 6, 8, 8, 10];
/// The longest that a lane is held back, and its `W` put off, in mean durations.
const MOST_HELD: usize = 36;
const MOST_PUT_OFF: usize = 13;
/// How long before their time a schedule's lanes are held back, in mean durations.
const HELD: [Time; 4] = [0, 6, 12, 24];
/// Activations that a task may have to leave to others.
const MOST_SPARE: usize = 4;

/// What decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// By lane: the less, the more urgent.
    pub ranks: Vec<Time>,
    /// By lane: memory that a task must leave, on each of its devices.
    pub spare: Vec<i64>,
    /// By lane: when the first task may start, and the next ones a period later each; or [`AT_ONCE`].
    pub hold: Vec<Time>,
    /// How long a device may be idle for the sake of a more urgent task.
    pub wait: Time,
    /// By fusion: whether both halves run at once.
    pub fused: Vec<bool>,
}

/// The lanes of a job by legs.
#[derive(Clone, Debug)]
pub struct Legs {
    /// By leg: its lanes in the order of their devices.
    pub lanes: Vec<Vec<usize>>,
    /// By lane: its leg, and where it is there.
    pub place: Vec<(usize, usize)>,
    /// The mean duration of a task.
    pub unit: Time,
}

impl Legs {
    /// The legs of a job.
    pub fn new(job: &Job) -> Self {
        let key = |lane: usize| {
            let (kind, device) = (job.lanes[lane].kind, job.lanes[lane].devices[0]);
            let is_alike = |other: &&usize| **other < lane && job.lanes[**other].kind == kind;
            (kind.index(), job.on_device[device].iter().filter(is_alike).count())
        };
        let mut sorted: Vec<usize> = (0..job.lanes.len()).collect();
        sorted.sort_by_key(|lane| (key(*lane), job.lanes[*lane].devices[0], *lane));
        let lanes: Vec<Vec<usize>> =
            sorted.chunk_by(|one, other| key(*one) == key(*other)).map(<[usize]>::to_vec).collect();
        let mut place = vec![(0, 0); job.lanes.len()];
        for (leg, lanes) in lanes.iter().enumerate() {
            lanes.iter().enumerate().for_each(|(index, lane)| place[*lane] = (leg, index));
        }
        let durations: Time = job.lanes.iter().map(|lane| lane.duration).sum();
        Self { lanes, place, unit: (durations / job.lanes.len().max(1) as Time).max(1) }
    }
}

/// What the same microbatch takes later on the devices of a lane that takes memory.
fn later(job: &Job, lane: usize) -> i64 {
    let own = &job.lanes[lane];
    let others = own.devices.iter().flat_map(|device| &job.on_device[*device]).filter(|other| **other > lane);
    let takes = others.map(|other| job.lanes[*other].takes).max().unwrap_or(0).max(0);
    if own.takes > 0 { takes } else { 0 }
}

impl Rule {
    /// All lanes alike: what decides is said elsewhere.
    pub(crate) fn level(job: &Job) -> Self {
        let n_lanes = job.lanes.len();
        let (ranks, spare, hold) = (vec![0; n_lanes], vec![0; n_lanes], vec![AT_ONCE; n_lanes]);
        Self { ranks, spare, hold, wait: 0, fused: vec![false; job.fusions.len()] }
    }

    /// Changes the ranks of a leg, a part of it or one of its lanes, by up to two mean durations,
    /// in the order of a job or of the reversed one.
    pub(crate) fn shift(&mut self, legs: &Legs, is_reversed: bool, random: &mut Random) {
        let lanes = &legs.lanes[random.below(legs.lanes.len())];
        let from = random.below(lanes.len());
        let to = from + 1 + random.below(lanes.len() - from);
        let most = 2 * legs.unit * FINE;
        let by = random.below(2 * most as usize + 1) as Time - most;
        let form = random.below(4);
        let last = self.ranks.len() - 1;
        for (place, lane) in lanes.iter().enumerate() {
            let by = match form {
                0 => by,
                1 => 2 * by * place as Time / lanes.len() as Time,
                2 if (from..to).contains(&place) => by,
                3 if place == from => by,
                _ => 0,
            };
            self.ranks[if is_reversed { last - lane } else { *lane }] += by;
        }
    }

    /// Some slopes.
    pub fn random(job: &Job, legs: &Legs, random: &mut Random) -> Self {
        let unit = legs.unit * FINE;
        let slopes: Vec<Time> = legs.lanes.iter().map(|_| SLOPES[random.below(SLOPES.len())] * unit / 2).collect();
        let put_off: Vec<Time> = legs.lanes.iter().map(|_| (random.below(MOST_PUT_OFF) as Time - 2) * unit).collect();
        let mut ranks: Vec<Time> = Vec::with_capacity(job.lanes.len());
        for (index, lane) in job.lanes.iter().enumerate() {
            let (leg, _) = legs.place[index];
            let after = |&(need, _): &(usize, Time)| {
                let own = &job.lanes[need];
                ranks[need]
                    + match lane.kind {
                        TaskKind::BackwardWeight => own.duration * FINE + put_off[leg],
                        _ if own.devices == lane.devices => own.duration * FINE,
                        _ => slopes[leg],
                    }
            };
            let rank = lane.needs.iter().map(after).max().unwrap_or(0);
            ranks.push(rank);
        }
        let activations = random.below(MOST_SPARE) as i64;
        let spare = (0..job.lanes.len()).map(|lane| activations * later(job, lane)).collect();
        let is_held: Vec<bool> = legs.lanes.iter().map(|_| random.below(3) == 0).collect();
        let by = random.below(MOST_HELD) as Time * unit;
        let hold = |lane: usize| match job.lanes[lane].takes {
            1.. if is_held[legs.place[lane].0] => ranks[lane] - by,
            _ => AT_ONCE,
        };
        let hold = (0..job.lanes.len()).map(hold).collect();
        let is_fused = random.below(2) == 0;
        Self { ranks, spare, hold, wait: 0, fused: vec![is_fused; job.fusions.len()] }
    }

    /// Rules behind a schedule: those of its middle microbatch, and those of a microbatch alone,
    /// with and without a hold.
    pub fn behind(job: &Job, legs: &Legs, objective: Objective, orders: &Orders) -> Vec<Self> {
        let (m, n_lanes) = (job.microbatches, job.lanes.len());
        let fused = |fusion: usize| orders.iter().flatten().any(|mention| *mention == n_lanes + fusion);
        let fused: Vec<bool> = (0..job.fusions.len()).map(fused).collect();
        let middle = m / 2;
        let mut all_ranks = vec![job.heads().iter().map(|head| head * FINE).collect::<Vec<Time>>()];
        if let Some((plan, _)) = Plan::new(job, objective, orders) {
            let rank = |lane: usize| (plan.starts()[lane * m + middle] - job.work() * middle as Time) * FINE;
            all_ranks.push((0..n_lanes).map(rank).collect());
        }
        let rule = |ranks: &[Time], leaves: bool, held: Option<Time>| {
            let spare = (0..n_lanes).map(|lane| if leaves { later(job, lane) } else { 0 }).collect();
            let hold = |lane: usize| match held {
                Some(by) if job.lanes[lane].takes > 0 => ranks[lane] - by * legs.unit * FINE,
                _ => AT_ONCE,
            };
            let hold = (0..n_lanes).map(hold).collect();
            Self { ranks: ranks.to_vec(), spare, hold, wait: 0, fused: fused.clone() }
        };
        let holds = || std::iter::once(None).chain(HELD.map(Some));
        let variants = || [false, true].into_iter().flat_map(|leaves| holds().map(move |held| (leaves, held)));
        all_ranks.iter().flat_map(|ranks| variants().map(|(leaves, held)| rule(ranks, leaves, held))).collect()
    }

    /// Changes something, by at most `scale`.
    pub fn change(&mut self, job: &Job, legs: &Legs, scale: Time, random: &mut Random) {
        let lanes = &legs.lanes[random.below(legs.lanes.len())];
        let from = random.below(lanes.len());
        let part = &lanes[from..from + 1 + random.below(lanes.len() - from)];
        let by = random.below(2 * scale as usize + 1) as Time - scale;
        match random.below(16) {
            0 => self.change_spare(job, &lanes[from..=from], random),
            1 => self.change_spare(job, part, random),
            2 | 3 => self.tilt(lanes, 2 * by / lanes.len() as Time),
            4 => self.put_off(lanes, by),
            5 => self.put_off(part, by),
            6 => self.tilt(&lanes[from..], 2 * by / lanes.len() as Time),
            7 => {
                self.put_off(part, by);
                let of_stage = |lane: usize, next: usize| job.lanes[lane].stage == job.lanes[next].stage;
                let feeds = part.iter().flat_map(|lane| job.lanes[*lane].feeds.iter().map(|(next, _)| (*lane, *next)));
                let own: Vec<usize> =
                    feeds.filter(|(lane, next)| of_stage(*lane, *next)).map(|(_, next)| next).collect();
                self.put_off(&own, by);
            }
            8 => {
                let off = (random.below(MOST_HELD + 4) as Time - MOST_HELD as Time) * legs.unit * FINE;
                let is_held = random.below(3) > 0;
                lanes
                    .iter()
                    .for_each(|lane| self.hold[*lane] = if is_held { self.ranks[*lane] + off } else { AT_ONCE });
            }
            9 => part.iter().for_each(|lane| {
                let hold = self.hold[*lane];
                self.hold[*lane] = if hold == AT_ONCE { hold } else { hold + by / 2 };
            }),
            10 => {
                let most = [0, 1, 2, 3, 6][random.below(5)] * legs.unit / 3;
                self.wait = random.below(most as usize + 1) as Time;
            }
            11 if !self.fused.is_empty() => self.change_form(random),
            _ => self.ranks[lanes[from]] += by,
        }
    }

    fn put_off(&mut self, lanes: &[usize], by: Time) {
        lanes.iter().for_each(|lane| self.ranks[*lane] += by);
    }

    fn tilt(&mut self, lanes: &[usize], slope: Time) {
        lanes.iter().zip(0..).for_each(|(lane, index)| self.ranks[*lane] += slope * index);
    }

    fn change_spare(&mut self, job: &Job, lanes: &[usize], random: &mut Random) {
        let activations = random.below(MOST_SPARE) as i64;
        for lane in lanes.iter().filter(|lane| job.lanes[**lane].takes > 0) {
            self.spare[*lane] = activations * later(job, *lane).max(job.lanes[*lane].takes);
        }
    }

    fn change_form(&mut self, random: &mut Random) {
        let fusion = random.below(self.fused.len());
        let form = !self.fused[fusion];
        match random.below(3) {
            0 => self.fused.fill(form),
            _ => self.fused[fusion] = form,
        }
    }
}
