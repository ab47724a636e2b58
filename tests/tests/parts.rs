//! Parts and lanes, against a machine of their own: devices that go through lists, and lanes that run what these start.

use pipe_compiler::Request;
use pipe_ir::ids::StageId;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::Code;
use pipe_tests::cases::{compiled, read, root};
use pipe_tests::schedules::Dice;
use pipe_tests::slice::drawn;
use std::collections::{BTreeMap, BTreeSet};

/// A part of a stage: its lane, if it has one, and what its forward and its backward take.
#[derive(Clone, Copy)]
struct Part {
    lane: Option<usize>,
    takes: [u64; 2],
}

/// A task: whether it is a backward, its stage, its part, its microbatch, and the device that runs it, or the first of
/// those that run it together.
type Task = (bool, usize, usize, usize, usize);

/// Stages with parts on devices, and the lists of these.
#[derive(Clone)]
struct Case {
    n_devices: usize,
    n_microbatches: usize,
    stages: Vec<Vec<Part>>,
    /// How many stages, the last ones, are on all devices at once.
    n_spread: usize,
    lists: Vec<Vec<Task>>,
}

const LANES: usize = 2;

impl Case {
    fn devices(&self, stage: usize) -> Vec<usize> {
        let is_spread = self.n_devices > 1 && stage + self.n_spread >= self.stages.len();
        if is_spread { (0..self.n_devices).collect() } else { vec![stage % self.n_devices] }
    }

    /// The devices that run a task together.
    fn together(&self, (_, stage, part, _, device): Task) -> Vec<usize> {
        if self.stages[stage][part].lane.is_some() { self.devices(stage) } else { vec![device] }
    }

    /// The tasks of a part of a microbatch: one for each device that runs it alone.
    fn tasks(&self, is_backward: bool, stage: usize, part: usize, microbatch: usize) -> Vec<Task> {
        let all = self.devices(stage);
        let own = if self.stages[stage][part].lane.is_some() { &all[..1] } else { &all };
        own.iter().map(|device| (is_backward, stage, part, microbatch, *device)).collect()
    }

    /// What a task reads.
    fn inputs(&self, (is_backward, stage, part, microbatch, device): Task) -> Vec<Task> {
        let last = |stage: usize| self.stages[stage].len() - 1;
        // What a device computes alone, it reads alone.
        let of = |is_backward: bool, of_stage: usize, of_part: usize| {
            let mut tasks = self.tasks(is_backward, of_stage, of_part, microbatch);
            if of_stage == stage && self.stages[stage][part].lane.is_none() && tasks.len() > 1 {
                tasks.retain(|task| task.4 == device);
            }
            tasks
        };
        if is_backward {
            let after = match (part == last(stage), stage + 1 == self.stages.len()) {
                (false, _) => of(true, stage, part + 1),
                (true, false) => of(true, stage + 1, 0),
                (true, true) => Vec::new(),
            };
            return [(false, stage, part, microbatch, device)].into_iter().chain(after).collect();
        }
        match (part, stage) {
            (0, 0) => Vec::new(),
            (0, _) => of(false, stage - 1, last(stage - 1)),
            _ => of(false, stage, part - 1),
        }
    }

    /// A lane part that nothing before trains has no backward.
    fn has_backward(&self, stage: usize, part: usize) -> bool {
        let is_first = stage == 0 && self.stages[0][..part].iter().all(|one| one.lane.is_some());
        self.stages[stage][part].lane.is_none() || !is_first
    }

    /// Random stages, with lists in which everything can run.
    fn random(dice: &mut Dice) -> Self {
        // Many devices wait for many: for few stages, or the lists are long.
        let is_wide = dice.below(4) == 0;
        let n_devices = if is_wide { 4 + dice.below(4) } else { 1 + dice.below(3) };
        let n_stages = if is_wide { 2 + dice.below(2) } else { n_devices * (1 + dice.below(2)) };
        let part = |dice: &mut Dice| {
            let lane = (dice.below(2) == 0).then(|| dice.below(LANES));
            let least = u64::from(lane.is_none());
            Part { lane, takes: [0, 1].map(|_| least + dice.below(3) as u64) }
        };
        let stage = |dice: &mut Dice| {
            let mut parts: Vec<Part> = (0..1 + dice.below(4)).map(|_| part(dice)).collect();
            let computes = dice.below(parts.len());
            parts[computes] = Part { lane: None, takes: [1, 2] };
            parts
        };
        let stages = (0..n_stages).map(|_| stage(dice)).collect();
        let n_microbatches = 1 + dice.below(if is_wide { 2 } else { 3 });
        let n_spread = if is_wide { 1 + dice.below(n_stages) } else { usize::from(dice.below(3) == 0) };
        let mut case = Self { n_devices, n_microbatches, stages, n_spread, lists: Vec::new() };
        case.order(dice);
        case
    }

    /// Other lists of the same tasks.
    fn order(&mut self, dice: &mut Dice) {
        let mut left: Vec<Task> = Vec::new();
        for (stage, parts) in self.stages.iter().enumerate() {
            for (part, microbatch) in (0..parts.len()).flat_map(|part| (0..self.n_microbatches).map(move |m| (part, m)))
            {
                left.extend(self.tasks(false, stage, part, microbatch));
                if self.has_backward(stage, part) {
                    left.extend(self.tasks(true, stage, part, microbatch));
                }
            }
        }
        self.lists = vec![Vec::new(); self.n_devices];
        let mut done: BTreeSet<Task> = BTreeSet::new();
        while !left.is_empty() {
            let is_ready = |task: &Task| self.inputs(*task).iter().all(|input| done.contains(input));
            let ready: Vec<usize> = (0..left.len()).filter(|index| is_ready(&left[*index])).collect();
            let task = left.swap_remove(ready[dice.below(ready.len())]);
            done.insert(task);
            for device in self.together(task) {
                self.lists[device].push(task);
            }
        }
    }

    /// Swaps tasks of a list, so that devices may wait forever.
    fn damage(&mut self, dice: &mut Dice) {
        for _ in 0..1 + dice.below(3) {
            let list = dice.below(self.n_devices);
            let (one, other) = (dice.below(self.lists[list].len()), dice.below(self.lists[list].len()));
            self.lists[list].swap(one, other);
        }
    }

    fn text(&self) -> String {
        let name = |stage: usize, part: usize| format!("p{stage}_{part}");
        let part = |stage: usize, (index, part): (usize, &Part)| {
            let lane = part.lane.map(|lane| format!(" on l{lane}")).unwrap_or_default();
            format!("{}{lane}", name(stage, index))
        };
        let parts = |stage: usize| {
            let own: Vec<String> = self.stages[stage].iter().enumerate().map(|own| part(stage, own)).collect();
            own.join(", ")
        };
        let last = self.stages.len() - 1;
        let branches: String = (0..last).map(|stage| format!("if s == {stage} then {} else ", parts(stage))).collect();
        let task = |(is_backward, stage, part, microbatch, _): &Task| {
            format!("{}.{}[{stage}, {microbatch}]", if *is_backward { "BW" } else { "F" }, name(*stage, *part))
        };
        let list = |(device, list): (usize, &Vec<Task>)| {
            let tasks: Vec<String> = list.iter().map(task).collect();
            format!("if d == {device} {{ {} }} ", tasks.join(" "))
        };
        let lists: String = self.lists.iter().enumerate().map(list).collect();
        let costs = self.stages.iter().enumerate().flat_map(|(stage, parts)| {
            let cost = move |(index, part): (usize, &Part)| {
                let [forward, backward] = part.takes;
                let has_backward = self.has_backward(stage, index);
                let backward = has_backward.then(|| format!(", BW.{} = {backward}", name(stage, index)));
                let backward = backward.unwrap_or_default();
                format!("F.{} = {forward}{}", name(stage, index), backward)
            };
            parts.iter().enumerate().map(cost)
        });
        let costs: Vec<String> = costs.collect();
        format!(
            "schedule random {{ stages {} place s on {} lane l0 lane l1 parts s = {branches}{} order d {{ {lists} }} }}
            pipeline p {{ devices {} microbatches {} schedule random cost {} }}",
            self.stages.len(),
            if self.n_devices > 1 {
                format!("if s >= S - {} then 0..D else s % D", self.n_spread)
            } else {
                "0".to_owned()
            },
            parts(last),
            self.n_devices,
            self.n_microbatches,
            costs.join(", ")
        )
    }

    fn takes(&self, (is_backward, stage, part, ..): Task) -> u64 {
        self.stages[stage][part].takes[usize::from(is_backward)]
    }
}

/// What the machine finds: when each task ends, and how many activations each device holds at most. None if some task
/// never runs.
fn machine(case: &Case) -> Option<(BTreeMap<Task, u64>, Vec<u64>)> {
    let mut ends: BTreeMap<Task, u64> = BTreeMap::new();
    let mut cursors = vec![(0, 0); case.n_devices];
    // By device and lane: what was started, each with the moment.
    let mut lanes: Vec<Vec<(Task, u64)>> = vec![Vec::new(); case.n_devices * LANES];
    // Likewise: how many of these have ended, and when the last of them did.
    let (mut ran, mut free) = (vec![0; lanes.len()], vec![0; lanes.len()]);
    let arrived = |ends: &BTreeMap<Task, u64>, task: Task| {
        case.inputs(task).into_iter().try_fold(0, |latest: u64, input| Some(latest.max(*ends.get(&input)?)))
    };
    loop {
        let before = (ends.len(), cursors.clone());
        for (device, (place, now)) in cursors.iter_mut().enumerate() {
            while let Some(task) = case.lists[device].get(*place) {
                match case.stages[task.1][task.2].lane {
                    None => {
                        let Some(arrived) = arrived(&ends, *task) else { break };
                        *now = arrived.max(*now) + case.takes(*task);
                        ends.insert(*task, *now);
                    }
                    Some(lane) => {
                        let started = &mut lanes[device * LANES + lane];
                        // Two may be under way.
                        if let Some((before, _)) = started.len().checked_sub(2).map(|index| started[index]) {
                            let Some(end) = ends.get(&before) else { break };
                            *now = (*now).max(*end);
                        }
                        started.push((*task, *now));
                    }
                }
                *place += 1;
            }
        }
        // What several devices run together is first on the lanes of all of them.
        let heads: BTreeMap<usize, (Task, u64)> =
            (0..lanes.len()).filter_map(|queue| Some((queue, *lanes[queue].get(ran[queue])?))).collect();
        for (queue, (task, _)) in &heads {
            let queues: Vec<usize> = case.together(*task).iter().map(|device| device * LANES + queue % LANES).collect();
            let meet: Option<Vec<u64>> = queues
                .iter()
                .map(|own| heads.get(own).filter(|(other, _)| other == task).map(|(_, from)| (*from).max(free[*own])))
                .collect();
            if let (Some(meet), Some(arrived), false) = (meet, arrived(&ends, *task), ends.contains_key(task)) {
                let end = meet.into_iter().fold(arrived, u64::max) + case.takes(*task);
                ends.insert(*task, end);
                for own in queues {
                    ran[own] += 1;
                    free[own] = end;
                }
            }
        }
        if before == (ends.len(), cursors.clone()) {
            break;
        }
    }
    let n_tasks = case.lists.iter().flatten().collect::<BTreeSet<_>>().len();
    let peak = |list: &Vec<Task>| {
        // The first part on compute holds the activation of its stage.
        let holds = |task: &&Task| case.stages[task.1].iter().position(|part| part.lane.is_none()) == Some(task.2);
        let alive = list.iter().filter(holds).scan(0, |alive: &mut u64, task| {
            *alive = if task.0 { *alive - 1 } else { *alive + 1 };
            Some(*alive)
        });
        alive.max().unwrap_or(0)
    };
    (ends.len() == n_tasks).then(|| (ends, case.lists.iter().map(peak).collect()))
}

/// What the compiler says of it: the makespan, the lower bound and the peaks in stages; none if it is stuck.
fn judged(case: &Case) -> Option<(u64, u64, Vec<u64>)> {
    let found = compiled("random.pipe", &case.text(), &Request::default());
    let errors = found.diagnostics.iter().filter(|one| one.severity.is_error());
    let codes: BTreeSet<&str> = errors.map(|one| one.code.name()).collect();
    assert!(found.report.ok || codes == BTreeSet::from(["deadlock"]), "{:#?}\n{}", found.diagnostics, case.text());
    assert_eq!(found.report.ok, codes.is_empty(), "{:#?}\n{}", found.diagnostics, case.text());
    let analysis = found.analysis.filter(|_| found.report.ok)?;
    let units = |ticks: Ticks| ticks.0 / Ticks::UNIT.0;
    let peaks = analysis.peaks.iter().map(|peak| peak.activations).collect();
    Some((units(analysis.timeline.makespan()), units(analysis.bound.makespan), peaks))
}

#[test]
fn random_lists_with_lanes_run_as_the_machine_says_and_hold_no_more() {
    let (mut accepted, mut stuck) = (0, 0);
    for seed in 0..drawn(120, 6_000) as u64 {
        let mut dice = Dice(seed);
        let mut case = Case::random(&mut dice);
        if seed % 2 == 1 {
            case.damage(&mut dice);
        }
        match (machine(&case), judged(&case)) {
            (Some((ends, peaks)), Some((makespan, bound, held))) => {
                assert_eq!(ends.values().copied().max(), Some(makespan), "seed {seed}: {}", case.text());
                assert!(bound <= makespan, "seed {seed}: {bound} of {makespan}, {}", case.text());
                assert_eq!(held, peaks, "seed {seed}: {}", case.text());
                accepted += 1;
            }
            (None, None) => stuck += 1,
            (ran, _) => panic!("seed {seed}: the machine {:?}, {}", ran.map(|_| "runs"), case.text()),
        }
    }
    assert!(accepted > 50 && stuck > 10, "{accepted} accepted, {stuck} stuck");
}

#[test]
fn no_order_of_tasks_on_lanes_is_shorter_than_a_bound() {
    for seed in 0..drawn(8, 300) as u64 {
        let mut dice = Dice(10_000 + seed);
        let mut case = Case::random(&mut dice);
        let mut found = Vec::new();
        for _ in 0..12 {
            found.extend(judged(&case).map(|judged| (judged, case.clone())));
            case.order(&mut dice);
        }
        let most = |peaks: &Vec<u64>| peaks.iter().copied().max();
        for (((_, bound, allowed), _), ((makespan, _, held), case)) in
            found.iter().flat_map(|one| found.iter().map(move |other| (one, other)))
        {
            let fits = most(held) <= most(allowed);
            assert!(!fits || bound <= makespan, "seed {seed}: {bound} above {makespan}, {}", case.text());
        }
    }
}

/// A block of three parts, the second on a lane, at random slots.
fn random_block(dice: &mut Dice) -> String {
    let (period, forward, backward) = (8 + dice.below(8), 3 + dice.below(3), 5 + dice.below(4));
    let mut line = |name: &str, base: &str| format!("{name}[s] at {base} + {} ", dice.below(6) / 5);
    let tasks: String = [
        line("F.a", &format!("{forward} * s")),
        line("F.x", &format!("{forward} * s + 1")),
        line("F.b", &format!("{forward} * s + 2")),
        line("BW.b", &format!("{forward} * D + {backward} * (D - 1 - s)")),
        line("BW.x", &format!("{forward} * D + {backward} * (D - 1 - s) + 2")),
        line("BW.a", &format!("{forward} * D + {backward} * (D - 1 - s) + 3")),
    ]
    .concat();
    format!("schedule b {{ stages D place s on s lane l parts s = a, x on l, b block every {period} {{ {tasks} }} }}")
}

#[test]
fn blocks_with_lanes_that_are_certified_run_for_every_number_of_microbatches() {
    let mut certified = 0;
    for seed in 0..drawn(80, 3_000) as u64 {
        let text = random_block(&mut Dice(seed));
        let of = |microbatches: i64| {
            let mut request = Request::default();
            request.choice.settings = vec![("devices".to_owned(), 3), ("microbatches".to_owned(), microbatches)];
            compiled("block.pipe", &text, &request)
        };
        let found = of(4);
        let Some(certificate) = &found.report.certificate else {
            assert!(!found.report.ok, "{text}");
            continue;
        };
        certified += 1;
        for microbatches in 1..=7 {
            let found = of(microbatches);
            assert!(found.report.ok, "{microbatches} microbatches: {text} {:#?}", found.diagnostics);
            let held = found.report.per_device.iter().filter_map(|device| device.peak_activation);
            let allowed = certificate.per_device.iter().map(|device| device.peak_activation);
            assert!(held.zip(allowed).all(|(held, allowed)| held <= allowed), "{microbatches}: {text}");
        }
    }
    assert!(certified > 2, "{certified} are certified");
}

#[test]
fn vocabulary_parallelism_holds_what_was_published() {
    // Arithmetic of arXiv 2411.05288, section 5.2: p + 2 microbatches with two barriers, p + 1 with one.
    for (name, barriers) in [("vocabulary", 2.0), ("vocabulary_one_barrier", 1.0)] {
        let text = read(&root().join(format!("examples/{name}.pipe")));
        for devices in 2..=9 {
            let mut request = Request::default();
            request.choice.settings = vec![("devices".to_owned(), devices), ("microbatches".to_owned(), 24)];
            let found = compiled(name, &text, &request);
            assert!(found.report.ok, "{:#?}", found.diagnostics);
            assert_eq!(found.report.valid_for_all_microbatches, Some(true), "{name} {devices}");
            assert_eq!(found.report.figures.peak_activation, Some(devices as f64 + barriers), "{name} {devices}");
        }
    }
}

#[test]
fn a_cut_counts_layers_of_stages_that_have_parts() {
    let text = |first: &str, last: &str, cut: &str| {
        format!(
            "import std.models.gpt
            pipeline p {{ model gpt(blocks = 4, hidden = 8, heads = 2, sequence = 4, rows = 1)
                devices 2 microbatches 4 schedule 1f1b parts s = if s == 0 then {first} else {last} {cut} }}"
        )
    };
    let even = text("embedding, block, block", "block, block, head", "cut [3, 3]");
    let uneven = text("embedding, block", "block, block, block, head", "cut [2, 4]");
    let n_layers = |text: &str| {
        let found = compiled("cut.pipe", text, &Request::default());
        assert!(found.report.ok, "{:#?}", found.diagnostics);
        let schedule = found.analysis.expect("accepted").schedule;
        (0..2).map(|stage| schedule.parts.rows(StageId(stage)).len()).collect::<Vec<_>>()
    };
    assert_eq!((n_layers(&even), n_layers(&uneven)), (vec![3, 3], vec![2, 4]));
    // Parts of another cut are not those of the model's stages.
    let found = compiled("cut.pipe", &even.replace("[3, 3]", "[2, 4]"), &Request::default());
    assert_eq!(found.diagnostics.iter().map(|one| one.code).collect::<Vec<_>>(), [Code::WrongPart]);
}

#[test]
fn a_pair_of_stages_with_parts_is_the_merge_that_one_would_write_by_hand() {
    let text = read(&root().join("examples/experts.pipe"));
    let by_hand = "BW.combine[d] F.attention[d] F.dispatch[d] BW.experts[d] BW.dispatch[d] F.experts[d] F.combine[d]
        BW.attention[d]";
    let written = text.replace("F[d] & BW[d]", by_hand);
    assert_ne!(text, written);
    let orders = |text: &str| {
        let found = compiled("experts.pipe", text, &Request::default());
        let schedule = found.analysis.expect("accepted").schedule;
        schedule.orders.into_iter().flatten().map(|one| (one.task, one.at)).collect::<Vec<_>>()
    };
    assert_eq!(orders(&text), orders(&written));
}

#[test]
fn parts_live_where_their_stage_does_for_every_microbatch() {
    for table in 0..32 {
        let devices: Vec<String> = (0..5).map(|microbatch| (table >> microbatch & 1).to_string()).collect();
        let place = format!("[{}][m]", devices.join(", "));
        let text = |parts: &str, lines: &str| {
            format!(
                "schedule x {{ stages 1 place s, m on {place} {parts} order d {{ for m in 0..M {{ if {place} == d {{ {lines} }} }} }} }}
                pipeline p {{ devices 2 microbatches 5 schedule x }}"
            )
        };
        let of = |text: &str| compiled("p.pipe", text, &Request::default());
        let (whole, parts) = (of(&text("", "F[0, m] BW[0, m]")), of(&text("parts s = a, b", "F[0, m] BW[0, m]")));
        assert!(whole.report.ok && parts.report.ok, "{place}: {:#?}", parts.diagnostics);
        let busy = |found: &pipe_compiler::Compilation| -> Vec<_> {
            found.report.per_device.iter().map(|device| device.busy.map(|busy| busy as u64)).collect()
        };
        let twice: Vec<_> = busy(&whole).into_iter().map(|busy| busy.map(|busy| 2 * busy)).collect();
        assert_eq!(busy(&parts), twice, "{place}");
    }
}

#[test]
fn several_parts_of_one_name_take_turns_for_each_slice() {
    let text = |order: &str| {
        format!(
            "schedule x {{ stages 1 slices 2 place s on 0 parts s = b, b order d {{ {order} BW[0] BW[0] }} }}
            pipeline p {{ devices 1 microbatches 1 schedule x }}"
        )
    };
    for order in [
        "F.b[0, 0, 0] F.b[0, 0, 0] F.b[0, 0, 1] F.b[0, 0, 1]",
        "F.b[0, 0, 0] F.b[0, 0, 1] F.b[0, 0, 0] F.b[0, 0, 1]",
        "F[0] F[0]",
    ] {
        let found = compiled("p.pipe", &text(order), &Request::default());
        assert!(found.report.ok, "{order}: {:#?}", found.diagnostics);
    }
}

#[test]
fn a_lane_part_without_a_backward_drops_out_beside_frozen_stages() {
    let text = "schedule x { stages 2 place s on s lane l parts s = if s == 0 then a else x on l, a frozen s if s == 0
        order d { repeat M { F[d] } if d == 1 { repeat M { BW[d] } } } }";
    let mut request = Request::default();
    request.choice.settings = vec![("devices".to_owned(), 2)];
    let found = compiled("x.pipe", text, &request);
    assert!(found.report.ok, "{:#?}", found.diagnostics);
}

#[test]
fn parts_on_compute_alone_change_no_makespan() {
    for schedule in ["gpipe", "1f1b", "zb_h1", "interleaved_1f1b", "dualpipe"] {
        let text = |parts: &str, costs: &str| {
            let sizes = "devices 4 microbatches 12";
            format!("pipeline p {{ {sizes} schedule {schedule} {parts} cost {costs} }}")
        };
        let of = |text: &str| {
            let found = compiled("p.pipe", text, &Request::default());
            assert!(found.report.ok, "{schedule}: {:#?}", found.diagnostics);
            (found.report.figures.makespan, found.report.figures.peak_activation)
        };
        let whole = of(&text("", "F = 2, B = 2, W = 2, BW = 4, F & BW = 6, F & B = 4"));
        let parts = of(&text("parts s = one, two", "F = 1, B = 1, W = 1, BW = 2"));
        // Backwards of parts may start before all of the next stage has ended, and pairs take turns.
        assert!(parts.0 <= whole.0, "{schedule}: {parts:?} for {whole:?}");
        assert_eq!(parts.1, whole.1, "{schedule}");
    }
}
