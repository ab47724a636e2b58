//! Long steps from short ones: a window of a short schedule that holds every series equally often is repeated.
//!
//! Repeating it keeps every dependency that the short schedule keeps in its order, and every peak:
//! what a device holds is the same before and after the window.

use super::Objective;
use super::job::{Job, Mention, Orders, Time};
use super::plan::{Length, Plan};
use pipe_ir::ids::{DeviceId, IndexVec};
use std::ops::Range;

/// Parts of the orders: the places of each device.
pub type Frozen = IndexVec<DeviceId, Range<usize>>;

/// Windows hold at most this many microbatches.
pub(crate) const MOST: usize = 4;
/// Moments at which windows may begin that are tried.
const MOMENTS: usize = 48;

/// The long step that a schedule of a short one stands for.
#[derive(Clone, Debug)]
pub struct Stretched {
    /// How long the long step takes.
    pub length: Length,
    /// The window, if it was repeated. None if the step is short as it is.
    pub window: Option<Frozen>,
    /// The orders of the long step.
    pub orders: Orders,
}

/// The best way to make a schedule of `short` one of `long`, if there is any. Of long steps it
/// measures fewer where `go_on` says so.
pub fn stretch(
    short: &Job,
    long: &Job,
    objective: Objective,
    orders: &Orders,
    go_on: &mut dyn FnMut() -> bool,
) -> Option<Stretched> {
    let (plan, length) = Plan::new(short, objective, orders)?;
    let missing = long.microbatches.checked_sub(short.microbatches)?;
    let mut best: Option<Stretched> = None;
    for microbatches in (1..=MOST).filter(|count| missing.is_multiple_of(*count)) {
        for moment in moments(&plan, length.length) {
            if !go_on() {
                break;
            }
            let Some(window) = window(short, &plan, orders, moment, microbatches) else { continue };
            let orders = repeated(orders, &window, missing / microbatches);
            let Some((_, length)) = Plan::new(long, objective, &orders) else { continue };
            if best.as_ref().is_none_or(|best| length < best.length) {
                best = Some(Stretched { length, window: Some(window), orders });
            }
        }
        if best.is_some() {
            break;
        }
    }
    best.filter(|best| long.fits(&best.orders))
}

/// A window of a schedule to be repeated, and how many microbatches it holds: as near to the middle
/// as there is one, and as small.
pub(crate) fn middle(plan: &Plan<'_>, length: Time, orders: &Orders, missing: usize) -> Option<(Frozen, usize)> {
    let mut moments = moments(plan, length);
    moments.sort_by_key(|moment| (2 * moment - length).abs());
    let sizes = (1..=MOST).filter(|count| missing.is_multiple_of(*count));
    let mut all = sizes.flat_map(|size| moments.iter().map(move |moment| (size, *moment)));
    all.find_map(|(size, moment)| Some((window(plan.job, plan, orders, moment, size)?, size)))
}

/// Moments in the middle of a schedule at which tasks start.
fn moments(plan: &Plan<'_>, length: Time) -> Vec<Time> {
    let is_middle = |start: &Time| (length / 6..length - length / 6).contains(start);
    let mut moments: Vec<Time> = plan.starts().iter().copied().filter(is_middle).collect();
    moments.sort_unstable();
    moments.dedup();
    let step = moments.len().div_ceil(MOMENTS).max(1);
    moments.into_iter().step_by(step).collect()
}

/// From the first task of each device that starts at a moment or later: as many as hold each series equally often.
fn window(job: &Job, plan: &Plan<'_>, orders: &Orders, moment: Time, microbatches: usize) -> Option<Frozen> {
    let mut window = Frozen::default();
    for (device, order) in orders.iter_ids() {
        let from = plan.first_at(device, moment)?;
        let mut counts = job.series.map(|_| 0);
        let (mut to, mut missing) = (from, microbatches * job.on_device[device].len());
        while missing > 0 {
            let (first, second) = job.series_of(*order.get(to)?);
            for series in std::iter::once(first).chain(second) {
                counts[series] += 1;
                missing = missing.checked_sub(1).filter(|_| counts[series] <= microbatches)?;
            }
            to += 1;
        }
        window.push(from..to);
    }
    Some(window)
}

/// The same orders with so many more repetitions of a window.
pub(crate) fn repeated(orders: &Orders, window: &Frozen, more: usize) -> Orders {
    let of_device = |(order, part): (&Vec<Mention>, &Range<usize>)| {
        let turns = order[part.clone()].repeat(more);
        [&order[..part.end], &turns, &order[part.end..]].concat()
    };
    orders.iter().zip(window).map(of_device).collect()
}
