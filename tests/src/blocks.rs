//! Random building blocks, and steps of them written out task by task.

use crate::cases::no_files;
use crate::schedules::{Dice, schedule};
use pipe_compiler::certificate::{Certified, certify};
use pipe_compiler::{Request, block_family, elaborate};
use pipe_ir::ids::{DeviceId, MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::placement::{DeviceSets, Placement};
use pipe_schedule::policy::recompute::insert;
use pipe_schedule::schedule::{Block, BlockTask, Schedule};
use pipe_syntax::files;
use pipe_syntax::source::{Source, Sources};
use std::collections::BTreeSet;

/// A block drawn from all, with inputs before their readers most of the time.
#[must_use]
pub fn random_block(dice: &mut Dice) -> Schedule {
    let (n_stages, n_devices) = (1 + dice.below(3), 1 + dice.below(3));
    let (size, rows) = (1 + dice.below(3), 1 + dice.below(3));
    let period = 2 * size as u64 + dice.below(14) as u64;
    let durations = [1, 1 + dice.below(2) as u64, 1, 2, 1 + dice.below(2) as u64, 0];
    // Stages that recompute at a slot of their own, and some that do so at that of their backward.
    let (again, as_well) = (dice.below(3), dice.below(4));
    let most = if dice.below(3) == 0 { 30 } else { 4 };
    let slack = 1 + dice.below(most);
    let mut slots = Vec::new();
    for microbatch in (0..size).map(MicrobatchId::from_index) {
        let mut now = dice.below(6) as u64;
        let mut add = |kind: TaskKind, stage: usize, now: &mut u64| {
            let slot = *now + dice.below(slack) as u64;
            slots.push(BlockTask { kind, stage: StageId::from_index(stage), microbatch, slot, origin: 0 });
            *now = slot + durations[kind.index()];
        };
        (0..n_stages).for_each(|stage| add(TaskKind::Forward, stage, &mut now));
        for stage in (0..n_stages).rev() {
            if stage < again {
                add(TaskKind::Recompute, stage, &mut now);
            }
            if stage % 2 == 0 {
                add(TaskKind::Backward, stage, &mut now);
            } else {
                add(TaskKind::BackwardInput, stage, &mut now);
                add(TaskKind::BackwardWeight, stage, &mut now.clone());
            }
        }
    }
    let block = Block {
        microbatches: u32::try_from(size).expect("few"),
        period,
        every: None,
        slots,
        durations,
        of_parts: Vec::new(),
        only: None,
    };
    let places: Vec<_> = (0..rows * n_stages).map(|_| DeviceId::from_index(dice.below(n_devices))).collect();
    let mut placement = Placement::repeated(n_stages, places, u32::try_from(rows).ok());
    if rows == 1 && dice.below(2) == 0 {
        // The first stage lives on all devices at once.
        let mut sets = DeviceSets::default();
        sets.push((0..n_devices).map(DeviceId::from_index));
        (1..n_stages).for_each(|_| sets.push([DeviceId::from_index(dice.below(n_devices))]));
        placement = Placement::of_stages(sets);
    }
    let whole = size * rows;
    let orders = vec![Vec::new(); n_devices];
    let homes = vec![DeviceId(0); n_stages];
    let mut schedule = Schedule { placement, block: Some(block), ..schedule("block", homes, orders, whole) };
    if again == 0 {
        insert(&mut schedule, |stage, _| stage.index() < as_well);
    }
    schedule
}

/// Every task of a step, on each of its devices: that device, first slot, slot after the last one and itself, by start.
#[must_use]
pub fn unrolled(schedule: &Schedule, n_microbatches: u32) -> Vec<(DeviceId, u64, u64, Task)> {
    let block = schedule.block.as_ref().expect("a block");
    let mut all = Vec::new();
    for microbatch in 0..n_microbatches {
        let (turn, number) = (microbatch / block.microbatches, microbatch % block.microbatches);
        for task in block.slots.iter().filter(|task| task.microbatch.0 == number) {
            let whole = Task { kind: task.kind, stage: task.stage, microbatch: MicrobatchId(microbatch) };
            let start = task.slot + u64::from(turn) * block.period;
            for device in schedule.placement.devices(whole.stage, whole.microbatch) {
                all.push((*device, start, start + block.duration(task), whole));
            }
        }
    }
    all.sort_by_key(|(_, start, end, _)| (*start, *end));
    all
}

/// Whether two tasks of a step need the same slot of a device.
#[must_use]
pub fn collides(schedule: &Schedule, n_microbatches: u32) -> bool {
    let mut taken = BTreeSet::new();
    let all = unrolled(schedule, n_microbatches);
    !all.iter().all(|(device, start, end, _)| (*start..*end).all(|slot| taken.insert((*device, slot))))
}

/// A request with parameters set.
#[must_use]
pub fn request(settings: &[(&str, i64)]) -> Request {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Request { choice: elaborate::Request { settings, ..elaborate::Request::default() }, ..Request::default() }
}

/// A source with nothing imported.
///
/// # Panics
/// If it has another form.
#[must_use]
pub fn loaded(text: &str) -> files::Files {
    let root = Source { name: "test.pipe".to_owned(), text: text.to_owned() };
    files::load(&mut Sources::default(), root, &no_files).expect("a source")
}

/// The certificate of a source, if it has one.
///
/// # Panics
/// If the source is refused.
#[must_use]
pub fn certified(text: &str, settings: &[(&str, i64)]) -> Option<Certified> {
    let (files, request) = (loaded(text), request(settings));
    let numbers = block_family::numbers(&files, &request).unwrap_or_else(|found| panic!("{found:#?}"));
    let proof = certify(&files, &request, numbers)?;
    Some(proof.unwrap_or_else(|found| panic!("{found:#?}")).1)
}
