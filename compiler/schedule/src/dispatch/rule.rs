//! What decides in a list schedule: how urgent series are, what they leave to others, and what they wait for.
//!
//! A microbatch is as urgent as the one before it was a period earlier. Series of one kind that have
//! the same place among those of their devices form a *leg*: what a microbatch passes on its way
//! from device to device. Rules begin as slopes, so much later per device on each leg, as building
//! blocks are described (arXiv 2405.15362, section 3), and change by legs, parts of legs and series.

use super::Objective;
use super::job::{FusionId, Job, Mention, Orders, SeriesId, Time};
use super::plan::Plan;
use super::random::Random;
use pipe_ir::ids::{IndexVec, MicrobatchId};
use pipe_ir::task::TaskKind;

/// Parts of a unit of time in which rules count.
pub const FINE: Time = 16;
/// A series that may start at once.
pub const AT_ONCE: Time = Time::MIN / 4;
/// Slopes to begin with, in halves of the mean duration.
const SLOPES: [Time; 10] = [2, 2, 3, 4, 4, 5, 6, 8, 8, 10];
/// The longest that a series is held back, and its `W` put off, in mean durations.
const MOST_HELD: usize = 36;
const MOST_PUT_OFF: usize = 13;
/// How long before their time a schedule's series are held back, in mean durations.
const HELD: [Time; 4] = [0, 6, 12, 24];
/// Activations that a task may have to leave to others.
const MOST_SPARE: usize = 4;

/// What decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// By series: the less, the more urgent.
    pub ranks: IndexVec<SeriesId, Time>,
    /// By series: memory that a task must leave, on each of its devices.
    pub spare: IndexVec<SeriesId, i64>,
    /// By series: when the first task may start, and the next ones a period later each; or [`AT_ONCE`].
    pub hold: IndexVec<SeriesId, Time>,
    /// How long a device may be idle for the sake of a more urgent task.
    pub wait: Time,
    /// By fusion: whether both halves run at once.
    pub fused: IndexVec<FusionId, bool>,
}

/// The series of a job by legs.
#[derive(Clone, Debug)]
pub struct Legs {
    /// By leg: its series in the order of their devices.
    pub series: Vec<Vec<SeriesId>>,
    /// By series: its leg, and where it is there.
    pub place: IndexVec<SeriesId, (usize, usize)>,
    /// The mean duration of a task.
    pub unit: Time,
}

impl Legs {
    /// The legs of a job.
    pub fn new(job: &Job) -> Self {
        let key = |series: SeriesId| {
            let (kind, device) = (job.series[series].kind, job.series[series].devices[0]);
            let is_alike = |other: &&SeriesId| **other < series && job.series[**other].kind == kind;
            (kind.index(), job.on_device[device].iter().filter(is_alike).count())
        };
        let mut sorted: Vec<SeriesId> = job.series.ids().collect();
        sorted.sort_by_key(|series| (key(*series), job.series[*series].devices[0], *series));
        let all: Vec<Vec<SeriesId>> =
            sorted.chunk_by(|one, other| key(*one) == key(*other)).map(<[SeriesId]>::to_vec).collect();
        let mut place = job.series.map(|_| (0, 0));
        for (leg, own) in all.iter().enumerate() {
            own.iter().enumerate().for_each(|(index, series)| place[*series] = (leg, index));
        }
        let durations: Time = job.series.iter().map(|series| series.duration).sum();
        Self { series: all, place, unit: (durations / job.series.len().max(1) as Time).max(1) }
    }
}

/// What the same microbatch takes later on the devices of a series that takes memory.
fn later(job: &Job, series: SeriesId) -> i64 {
    let own = &job.series[series];
    let others = own.devices.iter().flat_map(|device| &job.on_device[*device]).filter(|other| **other > series);
    let takes = others.map(|other| job.series[*other].takes).max().unwrap_or(0).max(0);
    if own.takes > 0 { takes } else { 0 }
}

impl Rule {
    /// All series alike: what decides is said elsewhere.
    pub(crate) fn level(job: &Job) -> Self {
        let (ranks, spare, hold) = (job.series.map(|_| 0), job.series.map(|_| 0), job.series.map(|_| AT_ONCE));
        Self { ranks, spare, hold, wait: 0, fused: job.fusions.map(|_| false) }
    }

    /// Changes the ranks of a leg, a part of it or one of its series, by up to two mean durations,
    /// in the order of a job or of the reversed one.
    pub(crate) fn shift(&mut self, legs: &Legs, is_reversed: bool, random: &mut Random) {
        let leg = &legs.series[random.below(legs.series.len())];
        let from = random.below(leg.len());
        let to = from + 1 + random.below(leg.len() - from);
        let most = 2 * legs.unit * FINE;
        let by = random.below(2 * most as usize + 1) as Time - most;
        let form = random.below(4);
        let last = self.ranks.len() as u32 - 1;
        for (place, series) in leg.iter().enumerate() {
            let by = match form {
                0 => by,
                1 => 2 * by * place as Time / leg.len() as Time,
                2 if (from..to).contains(&place) => by,
                3 if place == from => by,
                _ => 0,
            };
            self.ranks[if is_reversed { SeriesId(last - series.0) } else { *series }] += by;
        }
    }

    /// Some slopes.
    pub fn random(job: &Job, legs: &Legs, random: &mut Random) -> Self {
        let unit = legs.unit * FINE;
        let slopes: Vec<Time> = legs.series.iter().map(|_| SLOPES[random.below(SLOPES.len())] * unit / 2).collect();
        let put_off: Vec<Time> = legs.series.iter().map(|_| (random.below(MOST_PUT_OFF) as Time - 2) * unit).collect();
        let mut ranks: IndexVec<SeriesId, Time> = IndexVec::default();
        for (index, series) in job.series.iter_ids() {
            let (leg, _) = legs.place[index];
            let after = |&(need, _): &(SeriesId, Time)| {
                let own = &job.series[need];
                ranks[need]
                    + match series.kind {
                        TaskKind::BackwardWeight => own.duration * FINE + put_off[leg],
                        _ if own.devices == series.devices => own.duration * FINE,
                        _ => slopes[leg],
                    }
            };
            let rank = series.needs.iter().map(after).max().unwrap_or(0);
            ranks.push(rank);
        }
        let activations = random.below(MOST_SPARE) as i64;
        let spare = job.series.map(|series| activations * later(job, series));
        let is_held: Vec<bool> = legs.series.iter().map(|_| random.below(3) == 0).collect();
        let by = random.below(MOST_HELD) as Time * unit;
        let hold = |series: SeriesId| match job.series[series].takes {
            1.. if is_held[legs.place[series].0] => ranks[series] - by,
            _ => AT_ONCE,
        };
        let hold = job.series.map(hold);
        let is_fused = random.below(2) == 0;
        Self { ranks, spare, hold, wait: 0, fused: job.fusions.map(|_| is_fused) }
    }

    /// Rules behind a schedule: those of its middle microbatch, and those of a microbatch alone,
    /// with and without a hold.
    pub fn behind(job: &Job, legs: &Legs, objective: Objective, orders: &Orders) -> Vec<Self> {
        let fused = job.fusions.map(|fusion| orders.iter().flatten().any(|one| *one == Mention::Fusion(fusion)));
        let middle = MicrobatchId::from_index(job.microbatches / 2);
        let begin = job.work() * Time::from(middle.0);
        let mut all_ranks: Vec<IndexVec<SeriesId, Time>> = vec![job.heads().iter().map(|head| head * FINE).collect()];
        if let Some((plan, _)) = Plan::new(job, objective, orders) {
            all_ranks.push(job.series.map(|series| (plan.starts()[job.task(series, middle)] - begin) * FINE));
        }
        let rule = |ranks: &IndexVec<SeriesId, Time>, leaves: bool, held: Option<Time>| {
            let spare = job.series.map(|series| if leaves { later(job, series) } else { 0 });
            let hold = |series: SeriesId| match held {
                Some(by) if job.series[series].takes > 0 => ranks[series] - by * legs.unit * FINE,
                _ => AT_ONCE,
            };
            let hold = job.series.map(hold);
            Self { ranks: ranks.clone(), spare, hold, wait: 0, fused: fused.clone() }
        };
        let holds = || std::iter::once(None).chain(HELD.map(Some));
        let variants = || [false, true].into_iter().flat_map(|leaves| holds().map(move |held| (leaves, held)));
        all_ranks.iter().flat_map(|ranks| variants().map(|(leaves, held)| rule(ranks, leaves, held))).collect()
    }

    /// Changes something, by at most `scale`.
    pub fn change(&mut self, job: &Job, legs: &Legs, scale: Time, random: &mut Random) {
        let leg = &legs.series[random.below(legs.series.len())];
        let from = random.below(leg.len());
        let part = &leg[from..from + 1 + random.below(leg.len() - from)];
        let by = random.below(2 * scale as usize + 1) as Time - scale;
        match random.below(16) {
            0 => self.change_spare(job, &leg[from..=from], random),
            1 => self.change_spare(job, part, random),
            2 | 3 => self.tilt(leg, 2 * by / leg.len() as Time),
            4 => self.put_off(leg, by),
            5 => self.put_off(part, by),
            6 => self.tilt(&leg[from..], 2 * by / leg.len() as Time),
            7 => {
                self.put_off(part, by);
                let of_stage = |series: SeriesId, next: SeriesId| job.series[series].stage == job.series[next].stage;
                let feeds =
                    part.iter().flat_map(|series| job.series[*series].feeds.iter().map(|(next, _)| (*series, *next)));
                let own: Vec<SeriesId> =
                    feeds.filter(|(series, next)| of_stage(*series, *next)).map(|(_, next)| next).collect();
                self.put_off(&own, by);
            }
            8 => {
                let off = (random.below(MOST_HELD + 4) as Time - MOST_HELD as Time) * legs.unit * FINE;
                let is_held = random.below(3) > 0;
                leg.iter()
                    .for_each(|series| self.hold[*series] = if is_held { self.ranks[*series] + off } else { AT_ONCE });
            }
            9 => part.iter().for_each(|series| {
                let hold = self.hold[*series];
                self.hold[*series] = if hold == AT_ONCE { hold } else { hold + by / 2 };
            }),
            10 => {
                let most = [0, 1, 2, 3, 6][random.below(5)] * legs.unit / 3;
                self.wait = random.below(most as usize + 1) as Time;
            }
            11 if !self.fused.is_empty() => self.change_form(random),
            _ => self.ranks[leg[from]] += by,
        }
    }

    fn put_off(&mut self, leg: &[SeriesId], by: Time) {
        leg.iter().for_each(|series| self.ranks[*series] += by);
    }

    fn tilt(&mut self, leg: &[SeriesId], slope: Time) {
        leg.iter().zip(0..).for_each(|(series, index)| self.ranks[*series] += slope * index);
    }

    fn change_spare(&mut self, job: &Job, leg: &[SeriesId], random: &mut Random) {
        let activations = random.below(MOST_SPARE) as i64;
        for series in leg.iter().filter(|series| job.series[**series].takes > 0) {
            self.spare[*series] = activations * later(job, *series).max(job.series[*series].takes);
        }
    }

    fn change_form(&mut self, random: &mut Random) {
        let fusion = FusionId::from_index(random.below(self.fused.len()));
        let form = !self.fused[fusion];
        match random.below(3) {
            0 => self.fused.fill(form),
            _ => self.fused[fusion] = form,
        }
    }
}
