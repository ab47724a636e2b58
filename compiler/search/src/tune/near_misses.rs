//! What would be faster but does not fit: of that, what is least too large, timed and counted to the byte.

use super::evaluate::evaluate;
use super::problem::Problem;
use super::queue::OTHERS;
use crate::Workers;
use crate::tune::instantiate::Instance;
use crate::tune::result::{Misfit, TuneResult};
use std::sync::{Mutex, PoisonError};

/// How often so many are looked at.
const WAVES: usize = 8;

/// Those of what was found, and how many more there are. What was counted of a candidate before it was
/// clear that it does not fit is the least that it holds, so the least too large of these are counted to
/// the end, until the first ones of all are.
pub(super) fn misfits(
    problem: &Problem,
    written: &Instance,
    found: &TuneResult,
    workers: &dyn Workers,
) -> (Vec<Misfit>, usize) {
    let last = found.best.last().map(|(_, taken)| taken.time);
    let is_faster = |one: &Misfit| last.is_none_or(|last| one.taken.time < last);
    let is_counted = |one: &Misfit| one.is_timed && one.taken.is_exact;
    let mut all: Vec<Misfit> = found.misfits.iter().filter(|one| is_faster(one)).cloned().collect();
    let sort = |all: &mut [Misfit]| {
        all.sort_by(|one, other| (one.taken.bytes, &one.candidate).cmp(&(other.taken.bytes, &other.candidate)));
    };
    sort(&mut all);
    for _ in 0..WAVES {
        let rest = all.split_off(all.len().min(OTHERS));
        let slots: Vec<Mutex<Option<Misfit>>> = all.into_iter().map(|one| Mutex::new(Some(one))).collect();
        workers.each(slots.len(), &|index| {
            let mut slot = slots[index].lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(one) = slot.take_if(|one| !is_counted(one)) {
                let taken = evaluate(problem, (written, &problem.request), &one.candidate, true).ok();
                *slot = taken.map(|taken| Misfit { taken, is_timed: true, ..one }).filter(is_faster);
            }
        });
        let first = slots.into_iter().filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
        all = first.chain(rest).collect();
        sort(&mut all);
        if all.iter().take(OTHERS).all(is_counted) {
            break;
        }
    }
    let (mut listed, others): (Vec<Misfit>, Vec<Misfit>) = all.into_iter().partition(is_counted);
    let more = others.len() + listed.len().saturating_sub(OTHERS);
    listed.truncate(OTHERS);
    (listed, more)
}
