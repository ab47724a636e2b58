//! Residency plans: equal to the reference figures to the digit, as good as the best of all plans
//! on small sequences, and always within the room that there is.

use pipe_ir::instruction::Direction;
use pipe_lower::offload::plan::{Plan, Reference, Shortage, Step, plan};
use pipe_schedule::timing::copies::{Cost, Event, cost};
use pipe_tests::cases::{read, root};
use pipe_tests::schedules::Dice;
use serde_json::Value;
use std::collections::BTreeSet;

/// Chunks of one byte that are used one after the other, with room for so many.
fn units(uses: &[(usize, bool)], room: u64) -> Reference {
    let n_chunks = uses.iter().map(|(chunk, _)| chunk + 1).max().unwrap_or(0);
    let steps = uses.iter().map(|one| Step { uses: vec![*one], room });
    Reference { chunks: vec![1; n_chunks], steps: steps.collect() }
}

fn planned(reference: &Reference) -> Plan {
    plan(reference).unwrap_or_else(|shortage| panic!("{shortage:?} in {reference:?}"))
}

/// Chunks that come, and chunks that go back.
fn copies(plan: &Plan) -> (usize, usize) {
    (plan.stays.len(), plan.stays.iter().filter(|stay| stay.changed).count())
}

fn figures() -> Value {
    serde_json::from_str(&read(&root().join("tests/data/offload/reference.json"))).expect("the reference figures")
}

fn number(row: &Value, name: &str) -> usize {
    row[name].as_u64().unwrap_or_else(|| panic!("{row} has no {name}")) as usize
}

fn rows<'a>(figures: &'a Value, name: &str) -> &'a [Value] {
    figures[name].as_array().map_or(&[], Vec::as_slice)
}

/// How often something comes where the one that was not used for longest leaves.
fn least_recently_used(uses: &[usize], room: usize) -> usize {
    let (mut held, mut misses): (Vec<usize>, usize) = (Vec::new(), 0);
    for chunk in uses {
        match held.iter().position(|other| other == chunk) {
            Some(place) => drop(held.remove(place)),
            None => misses += 1,
        }
        held.push(*chunk);
        if held.len() > room {
            held.remove(0);
        }
    }
    misses
}

#[test]
fn no_more_chunks_come_than_in_the_reference_and_fewer_than_without_foresight() {
    let figures = figures();
    assert_eq!(rows(&figures, "evictions").len(), 15);
    for case in rows(&figures, "evictions") {
        let sequence = rows(&figures["sequences"], case["reference"].as_str().expect("a name"));
        let uses: Vec<usize> = sequence.iter().map(|chunk| chunk.as_u64().expect("a chunk") as usize).collect();
        let room = number(case, "capacity");
        let plan = planned(&units(&uses.iter().map(|chunk| (*chunk, false)).collect::<Vec<_>>(), room as u64));
        assert_eq!(copies(&plan), (number(case, "min"), 0), "{case}");
        assert_eq!(least_recently_used(&uses, room), number(case, "lru"), "{case}");
    }
}

/// A forward that reads chunks, and a backward that changes them.
fn there_and_back(n_chunks: usize, room: u64) -> Reference {
    let forward = (0..n_chunks).map(|chunk| (chunk, false));
    let backward = (0..n_chunks).rev().map(|chunk| (chunk, true));
    units(&forward.chain(backward).collect::<Vec<_>>(), room)
}

#[test]
fn what_did_not_change_is_dropped() {
    let figures = figures();
    assert_eq!(rows(&figures, "clean_drop").len(), 5);
    for case in rows(&figures, "clean_drop") {
        let (n_chunks, slots) = (number(case, "param_chunks"), number(case, "gpu_chunk_slots"));
        let found = copies(&planned(&there_and_back(n_chunks, slots as u64)));
        assert_eq!(found, (number(case, "h2d_loads"), number(case, "d2h_clean_drop")), "{case}");
        assert_eq!(found, (2 * n_chunks - slots, n_chunks), "{case}");
    }
}

/// What a device does that follows a plan, as its list of instructions has it.
fn events(plan: &Plan, works: &[u64], transfer: u64) -> Vec<Event> {
    let mut events = Vec::new();
    let (n_stays, n_steps) = (plan.stays.len(), works.len());
    let stays = |is_meant: &dyn Fn(&pipe_lower::offload::plan::Stay) -> bool| -> Vec<usize> {
        (0..n_stays).filter(|stay| is_meant(&plan.stays[*stay])).collect()
    };
    let copy = |copy, direction| Event::Copy { direction, copy, from: 0, length: transfer };
    for step in 0..=n_steps {
        let back = stays(&|stay| stay.changed && stay.last + 1 == step);
        events.extend(back.iter().map(|stay| copy(n_stays + stay, Direction::DeviceToHost)));
        let gone = stays(&|stay| stay.changed && stay.until == step);
        events.extend(gone.iter().map(|stay| Event::Wait { copy: n_stays + stay }));
        events.extend(stays(&|stay| stay.from == step).iter().map(|stay| copy(*stay, Direction::HostToDevice)));
        events.extend(stays(&|stay| stay.first == step).iter().map(|stay| Event::Wait { copy: *stay }));
        events.extend(works.get(step).map(|length| Event::Work { from: 0, length: *length }));
    }
    events
}

#[test]
fn copies_hide_behind_work_as_in_the_reference() {
    let figures = figures();
    let mut found = Vec::new();
    for case in rows(&figures, "prefetch") {
        let of = |name| number(case, name) as u64;
        let n_chunks = number(case, "L");
        let reference = there_and_back(n_chunks, of("K"));
        let plan = planned(&reference);
        let works: Vec<u64> = [of("tF"), of("tB")].into_iter().flat_map(|work| vec![work; n_chunks]).collect();
        let Cost { end, waited, copying } = cost(&events(&plan, &works, of("transfer")));
        let compute: u64 = works.iter().sum();
        assert_eq!((end, compute), (of("prefetch_two_engines"), of("compute")), "{case}");
        assert_eq!((waited, of("lower_bound")), (end - compute, compute.max(copying[0])), "{case}");
        // Without queues of their own, copies take their time between the work.
        let (come, back) = copies(&plan);
        assert_eq!(compute + (come + back) as u64 * of("transfer"), of("sync_clean_drop"), "{case}");
        assert_eq!(compute + 2 * come as u64 * of("transfer"), of("sync_single_copy"), "{case}");
        found.push(end);
    }
    assert_eq!(found, [20, 20, 38, 74, 99]);
}

/// The fewest chunks that come, over every choice of what leaves.
fn fewest(uses: &[usize], room: usize) -> usize {
    let mut held: BTreeSet<(Vec<usize>, usize)> = BTreeSet::from([(Vec::new(), 0)]);
    for chunk in uses {
        let mut next = BTreeSet::new();
        for (kept, misses) in held {
            if kept.contains(chunk) {
                next.insert((kept, misses));
            } else if kept.len() < room {
                next.insert((with(&kept, *chunk, None), misses + 1));
            } else {
                next.extend(kept.iter().map(|leaves| (with(&kept, *chunk, Some(*leaves)), misses + 1)));
            }
        }
        held = next;
    }
    held.into_iter().map(|(_, misses)| misses).min().unwrap_or(0)
}

fn with(kept: &[usize], comes: usize, leaves: Option<usize>) -> Vec<usize> {
    let mut all: Vec<usize> = kept.iter().copied().filter(|chunk| Some(*chunk) != leaves).chain([comes]).collect();
    all.sort_unstable();
    all
}

#[test]
fn no_plan_for_a_small_sequence_lets_fewer_chunks_come() {
    for seed in 0..600 {
        let mut dice = Dice(seed);
        let (n_chunks, length, room) = (2 + dice.below(5), 4 + dice.below(14), 1 + dice.below(4));
        let uses: Vec<(usize, bool)> = (0..length).map(|_| (dice.below(n_chunks), dice.below(3) == 0)).collect();
        let chunks: Vec<usize> = uses.iter().map(|(chunk, _)| *chunk).collect();
        let plan = planned(&units(&uses, room as u64));
        assert_eq!(copies(&plan).0, fewest(&chunks, room), "seed {seed}: {chunks:?} in {room}");
    }
}

/// Everything that a plan promises.
fn analyze(reference: &Reference, plan: &Plan) -> Result<(), String> {
    for (step, (taken, own)) in plan.taken(reference).iter().zip(&reference.steps).enumerate() {
        if *taken > own.room {
            return Err(format!("step {step} holds {taken} of {}", own.room));
        }
        for (chunk, changes) in &own.uses {
            let is_there = |stay: &&pipe_lower::offload::plan::Stay| {
                stay.chunk == *chunk && (stay.first..=stay.last).contains(&step) && (stay.changed || !changes)
            };
            if plan.stays.iter().filter(is_there).count() != 1 {
                return Err(format!("chunk {chunk} is not there once at step {step}"));
            }
        }
    }
    let mut before = (0, vec![0; reference.chunks.len()]);
    for stay in &plan.stays {
        if stay.from < before.0 || stay.from < before.1[stay.chunk] || stay.from > stay.first || stay.until <= stay.last
        {
            return Err(format!("{stay:?} is out of order"));
        }
        before.0 = stay.from;
        before.1[stay.chunk] = stay.until;
    }
    Ok(())
}

#[test]
fn chunks_of_any_size_fit_in_room_that_changes() {
    let mut short = 0;
    for seed in 0..2000 {
        let mut dice = Dice(seed);
        let n_chunks = 1 + dice.below(8);
        let chunks: Vec<u64> = (0..n_chunks).map(|_| 1 + dice.below(9) as u64).collect();
        let steps = (0..dice.below(40)).map(|_| {
            let mut uses: Vec<(usize, bool)> = Vec::new();
            for _ in 0..dice.below(4) {
                let chunk = dice.below(n_chunks);
                if uses.iter().all(|(other, _)| *other != chunk) {
                    uses.push((chunk, dice.below(3) == 0));
                }
            }
            Step { uses, room: 8 + dice.below(30) as u64 }
        });
        let reference = Reference { steps: steps.collect(), chunks };
        match plan(&reference) {
            Ok(plan) => analyze(&reference, &plan).unwrap_or_else(|why| panic!("seed {seed}: {why}")),
            Err(Shortage { step, needed }) => {
                short += 1;
                assert!(needed > reference.steps[step].room, "seed {seed}");
            }
        }
    }
    assert!((50..1500).contains(&short), "{short} have no room");
}
