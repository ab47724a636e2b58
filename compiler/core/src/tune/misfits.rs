//! What would be faster but does not fit: of that, what is least too large, timed and counted to the byte.

use super::evaluate::evaluate;
use super::found::{Found, Misfit};
use super::problem::Problem;
use super::queue::OTHERS;
use super::written::Written;
use crate::search::Workers;
use std::sync::{Mutex, PoisonError};

/// Those of what was found.
pub(super) fn misfits(problem: &Problem, written: &Written, found: &Found, workers: &dyn Workers) -> Vec<Misfit> {
    let last = found.best.last().map(|(_, taken)| taken.time);
    let is_faster = |one: &Misfit| last.is_none_or(|last| one.taken.time < last);
    let mut all: Vec<Misfit> = found.misfits.iter().filter(|one| is_faster(one)).cloned().collect();
    all.sort_by(|one, other| (one.taken.bytes, &one.candidate).cmp(&(other.taken.bytes, &other.candidate)));
    all.truncate(OTHERS);
    let slots: Vec<Mutex<Misfit>> = all.into_iter().map(Mutex::new).collect();
    workers.each(slots.len(), &|index| {
        let mut one = slots[index].lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(taken) = evaluate(problem, (written, &problem.request), &one.candidate, true) {
            (one.taken, one.is_timed) = (taken, true);
        }
    });
    let mut all: Vec<Misfit> =
        slots.into_iter().map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
    all.retain(|one| one.is_timed && is_faster(one));
    all.sort_by(|one, other| (one.taken.bytes, &one.candidate).cmp(&(other.taken.bytes, &other.candidate)));
    all
}
