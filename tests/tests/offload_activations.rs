//! Activations that leave between two uses: the plan hides every copy, leaves no more than it must,
//! and takes the longest gaps first, against looking at each moment.

use pipe_ir::instruction::Direction;
use pipe_lower::offload::activations::{Away, Course, Gap, copied, plan};
use pipe_schedule::timing::copies::{Clock, Event};
use pipe_tests::schedules::Dice;
use std::cmp::Reverse;

/// A device with some tasks, gaps between random ones of them, and queues that are busy at times.
fn course(seed: u64, limited: bool) -> Course {
    let mut dice = Dice(seed);
    let mut now = 0;
    let task = |dice: &mut Dice, now: &mut u64| {
        let start = *now + dice.below(3) as u64 * dice.below(2) as u64;
        *now = start + dice.below(5) as u64;
        (start, *now)
    };
    let tasks: Vec<(u64, u64)> = (0..4 + dice.below(9)).map(|_| task(&mut dice, &mut now)).collect();
    let n_tasks = tasks.len();
    let gaps = (0..dice.below(12)).map(|_| {
        let before = dice.below(n_tasks - 2);
        let after = before + 2 + dice.below(n_tasks - before - 2);
        let unsent = if dice.below(4) == 0 { 2 * before + dice.below(6) } else { 0 };
        // One of 1 MiB takes 1 moment.
        Gap { bytes: (1 + dice.below(4) as u64) << 20, before, after, unsent }
    });
    let gaps: Vec<Gap> = gaps.collect();
    let held = |moment: usize| {
        let holds = |gap: &&Gap| (2 * gap.before + 1..2 * gap.after + 2).contains(&moment);
        gaps.iter().filter(holds).map(|gap| gap.bytes).sum::<u64>()
    };
    let device: Vec<u64> = (0..=2 * n_tasks).map(|moment| held(moment) + dice.below(2) as u64).collect();
    let most = device.iter().max().copied().unwrap_or(0);
    let mut busy = || if dice.below(3) == 0 { vec![(2, 4), (now.max(1) - 1, now + 2)] } else { Vec::new() };
    let busy = [busy(), busy()];
    let limits = if limited { [Some(most * (2 + seed % 7) / 8), Some(6 << 20)] } else { [None; 2] };
    Course { alive: [device, vec![0; 2 * n_tasks + 1]], tasks, gaps, limits, busy, copy: 1 }
}

/// What a plan leaves alive on the device, and on its host, at each moment.
fn left(course: &Course, aways: &[Away]) -> [Vec<u64>; 2] {
    let mut alive = course.alive.clone();
    for away in aways {
        let Gap { bytes, after, .. } = course.gaps[away.gap];
        alive[0][away.moments()].iter_mut().for_each(|level| *level -= bytes);
        alive[1][away.leaves..2 * after + 2].iter_mut().for_each(|level| *level += bytes);
    }
    alive
}

/// Works through the tasks with all copies, each queued at its point: when each task ends.
fn work(course: &Course, aways: &[Away]) -> Vec<u64> {
    let mut clock = Clock::default();
    let mut ends = Vec::new();
    let mut back: Vec<usize> = (0..aways.len()).collect();
    back.sort_by_key(|one| aways[*one].copies[1]);
    let copy = |copy: usize, direction, bytes: u64| Event::Copy {
        direction,
        copy,
        from: 0,
        length: copied(bytes, course.copy),
    };
    for (task, (start, end)) in course.tasks.iter().enumerate() {
        for point in [2 * task, 2 * task + 1] {
            for (one, _) in aways.iter().enumerate().filter(|(_, away)| away.gone == point) {
                clock.run(Event::Wait { copy: 2 * one });
            }
            for (one, away) in aways.iter().enumerate().filter(|(_, away)| away.leaves == point) {
                clock.run(copy(2 * one, Direction::DeviceToHost, course.gaps[away.gap].bytes));
            }
            for one in back.iter().filter(|one| aways[**one].comes == point) {
                clock.run(copy(2 * one + 1, Direction::HostToDevice, course.gaps[aways[*one].gap].bytes));
            }
        }
        for (one, _) in aways.iter().enumerate().filter(|(_, away)| course.gaps[away.gap].after == task) {
            clock.run(Event::Wait { copy: 2 * one + 1 });
        }
        clock.run(Event::Work { from: *start, length: end - start });
        ends.push(clock.now());
    }
    ends
}

#[test]
fn no_task_waits_for_a_copy_and_every_value_is_there_for_its_uses() {
    let mut moved = 0;
    for seed in 0..3000 {
        let course = Course { busy: [Vec::new(), Vec::new()], ..course(seed, seed % 2 == 0) };
        let aways = plan(&course);
        moved += aways.len();
        for away in &aways {
            let Gap { before, after, unsent, .. } = course.gaps[away.gap];
            assert!(2 * before + 1 < away.leaves && away.leaves < away.gone, "seed {seed}: {away:?}");
            assert!(
                unsent <= away.gone && away.gone < away.comes && away.comes < 2 * after + 1,
                "seed {seed}: {away:?}"
            );
            assert!(
                (away.gone..away.comes).any(|moment| moment % 2 == 1),
                "seed {seed}: {away:?} hides behind nothing"
            );
        }
        let ends: Vec<u64> = course.tasks.iter().map(|(_, end)| *end).collect();
        assert_eq!(work(&course, &aways), ends, "seed {seed}");
    }
    assert!(moved > 2000, "{moved} values leave");
}

/// Whether a value could leave and come back in its gap, by trying all moments for both copies beside those of others.
fn could_leave(course: &Course, others: &[Away], index: usize) -> bool {
    let Gap { bytes, before, after, unsent } = course.gaps[index];
    let length = copied(bytes, course.copy).max(1);
    let (from, until) = (course.tasks[before].1, course.tasks[after].0);
    let is_free = |queue: usize, start: u64| {
        let own = others.iter().map(|away| away.copies[1 - queue]).chain(course.busy[queue].iter().copied());
        own.into_iter().all(|(begin, end)| start + length <= begin || end <= start)
    };
    let points: Vec<u64> = [0].into_iter().chain(course.tasks.iter().flat_map(|(start, end)| [*start, *end])).collect();
    let starts = |queue: usize| (from..until).filter(move |start| start + length <= until && is_free(queue, *start));
    starts(1).any(|out| {
        starts(0).any(|back| {
            // Gone from some point on, back from another: a task starts between them.
            (0..points.len()).any(|gone| {
                let starts_between = |point: usize| gone <= point && points[point] <= back && point % 2 == 1;
                let works =
                    |point: usize| starts_between(point) && point + 1 < points.len() && points[point + 1] <= back;
                unsent <= gone && out + length <= points[gone] && (0..points.len()).any(works)
            })
        })
    })
}

#[test]
fn whatever_stays_could_not_hide_beside_those_with_longer_gaps() {
    for seed in 0..3000 {
        let course = course(seed, false);
        let aways = plan(&course);
        let mut order: Vec<usize> = (0..course.gaps.len()).collect();
        let length = |gap: &Gap| course.tasks[gap.after].0.saturating_sub(course.tasks[gap.before].1);
        order.sort_by_key(|one| (Reverse(length(&course.gaps[*one])), Reverse(course.gaps[*one].bytes), *one));
        let mut before = Vec::new();
        for index in order {
            match aways.iter().find(|away| away.gap == index) {
                Some(away) => before.push(*away),
                None => assert!(!could_leave(&course, &before, index), "seed {seed}: gap {index} of {course:?}"),
            }
        }
    }
}

#[test]
fn nothing_leaves_that_need_not_and_nobody_holds_more_than_before() {
    let (mut fits, mut none) = (0, 0);
    for seed in 0..3000 {
        let course = course(seed, true);
        let [Some(limit), Some(host)] = course.limits else { panic!("both are limited") };
        let aways = plan(&course);
        let alive = left(&course, &aways);
        assert!(alive[0].iter().zip(&course.alive[0]).all(|(after, before)| after <= before), "seed {seed}");
        assert!(alive[1].iter().all(|level| *level <= host), "seed {seed}");
        for away in &aways {
            let others: Vec<Away> = aways.iter().copied().filter(|other| other != away).collect();
            let without = left(&course, &others);
            assert!(without[0][away.moments()].iter().any(|level| *level > limit), "seed {seed}: {away:?}");
        }
        // With room for everything, everything stays.
        let roomy = Course { limits: [course.alive[0].iter().max().copied(), None], ..course };
        assert_eq!(plan(&roomy), [], "seed {seed}");
        fits += usize::from(alive[0].iter().all(|level| *level <= limit));
        none += usize::from(aways.is_empty());
    }
    assert!(fits > 300 && none < 2000, "{fits} fit, {none} keep everything");
}

#[test]
fn the_longest_of_two_gaps_leaves_where_only_one_can() {
    // Tasks of 4, one copy of 3 fits before the task behind it.
    let tasks: Vec<(u64, u64)> = (0..8).map(|task| (4 * task, 4 * task + 4)).collect();
    let gap = |bytes: u64, before, after| Gap { bytes: bytes << 20, before, after, unsent: 0 };
    let with = |gaps: Vec<Gap>| {
        let alive = [vec![9 << 20; 17], vec![0; 17]];
        plan(&Course { tasks: tasks.clone(), gaps, alive, copy: 1, ..Course::default() })
    };
    let found = with(vec![gap(3, 0, 6), gap(3, 0, 7)]);
    let times: Vec<_> = found.iter().map(|away| (away.gap, away.leaves, away.gone, away.comes, away.copies)).collect();
    // The first one is out from 4 to 7, and gone when the task behind ends; the other one follows it.
    assert_eq!(times, [(1, 2, 4, 13, [(4, 7), (25, 28)]), (0, 2, 6, 11, [(7, 10), (21, 24)])]);
    // There is no task between the copies of a short gap.
    assert_eq!(with(vec![gap(3, 0, 2)]), []);
    assert_eq!(with(vec![gap(5, 0, 4)]), []);
}
