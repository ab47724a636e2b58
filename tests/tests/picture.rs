//! Pictures say what the report says: over all standard schedules, and pipelines with models, offload and replicas.

use pipe_compiler::analyze::Analysis;
use pipe_compiler::elaborate::Request as Choice;
use pipe_compiler::report::Report;
use pipe_compiler::{Compilation, Request};
use pipe_ir::instruction::{Class, Instruction};
use pipe_ir::task::TaskKind;
use pipe_plot::stop::Misfit;
use pipe_plot::tracks::Occupancy;
use pipe_plot::{Cause, Collective, DrawnTask, Gap, Moments, Picture, Reason};
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::timing::costs::StageCosts;
use pipe_schedule::timing::timeline::{Together, simulate_with};
use pipe_schedule::units::Ticks;
use pipe_syntax::stdlib;
use pipe_tests::cases::{compile_text, files, read, report, requests, root, standard};
use pipec::drawing::svg;
use std::collections::BTreeSet;

const COSTS: [&str; 3] = ["", "F=2,B=3,W=1,comm=0.5", "F=1,B=1.25,W=0.7,comm=0.2,comm[0-1]=1.5"];

/// What is wrong with the picture of a compilation.
fn wrong(name: &str, compilation: &Compilation) -> Vec<String> {
    let Some(picture) = Picture::new(compilation) else { return vec![format!("{name}: no picture")] };
    let mut wrong: Vec<String> = Vec::new();
    let mut demand = |holds: bool, what: &dyn Fn() -> String| {
        if !holds {
            wrong.push(format!("{name}: {}", what()));
        }
    };
    let unit = picture.clock.ticks_per_unit as f64;
    let near = |one: f64, other: f64| (one - other).abs() <= 1e-6 * one.abs().max(1.0);
    demand(
        near(
            picture.makespan as f64 / unit,
            picture.report.as_ref().expect("a report").figures.makespan.expect("timed"),
        ),
        &|| format!("makespan {} of {unit}", picture.makespan),
    );
    for (index, device) in picture.devices.iter().enumerate() {
        let idle: u64 = device.idle.iter().map(|idle| idle.time).sum();
        demand(device.busy + idle == picture.makespan, &|| {
            format!("d{index}: busy {} and {:?} are not {}", device.busy, device.idle, picture.makespan)
        });
        demand(device.idle.iter().all(|idle| idle.device != Some(index as u32)), &|| {
            format!("d{index} waits for itself")
        });
        let reported = busy(&picture, index);
        demand(near(device.busy as f64 / unit, reported), &|| format!("d{index}: busy {reported}"));
    }
    gaps(&picture, &mut demand);
    waits(&picture, &mut demand);
    beside(&picture, &mut demand);
    memory(&picture, &mut demand);
    wrong
}

/// How long a device or lane is busy, as the report says.
fn busy(picture: &Picture, row: usize) -> f64 {
    let devices = &picture.report.as_ref().expect("a report").per_device;
    let Some(name) = &picture.devices[row].name else { return devices[row].busy.expect("timed") };
    let (device, lane) = name.split_once(' ').map_or((name.as_str(), None), |(device, lane)| (device, Some(lane)));
    let device = &devices[device.trim_start_matches('d').parse::<usize>().expect("a device")];
    let lane = lane.map(|name| device.lanes.iter().find(|lane| lane.lane == name));
    lane.map_or(device.busy, |lane| Some(lane.map_or(0.0, |lane| lane.busy))).expect("timed")
}

/// Gaps fill the time of a device that its tasks leave, and come to its sums.
fn gaps(picture: &Picture, demand: &mut dyn FnMut(bool, &dyn Fn() -> String)) {
    for (index, device) in (0..).zip(&picture.devices) {
        let gaps: Vec<&Gap> = picture.gaps.iter().filter(|gap| gap.device == index).collect();
        let tasks = &picture.tasks[device.tasks[0] as usize..][..device.tasks[1] as usize];
        let stretches =
            gaps.iter().map(|gap| (gap.start, gap.end)).chain(tasks.iter().map(|task| (task.start, task.end)));
        let mut stretches: Vec<(u64, u64)> = stretches.collect();
        stretches.sort_unstable();
        // Two tasks that share the device are one stretch.
        stretches.dedup();
        let ends = [0].into_iter().chain(stretches.iter().map(|(_, end)| *end));
        let starts = stretches.iter().map(|(start, _)| *start).chain([picture.makespan]);
        let is_full = ends.zip(starts).all(|(end, start)| end == start);
        demand(is_full, &|| format!("d{index}: {stretches:?}"));
        for idle in &device.idle {
            let of_cause = gaps.iter().filter(|gap| (gap.cause, gap.other) == (idle.cause, idle.device));
            let time: u64 = of_cause.map(|gap| gap.end - gap.start).sum();
            demand(time == idle.time, &|| format!("d{index}: {idle:?} is {time} in gaps"));
        }
    }
}

/// Every task starts when what it waited for ended, or arrived.
fn waits(picture: &Picture, demand: &mut dyn FnMut(bool, &dyn Fn() -> String)) {
    let arrivals: BTreeSet<(u32, u64)> = picture.transfers.iter().map(|one| (one.from, one.end)).collect();
    for (index, task) in picture.tasks.iter().enumerate() {
        let after = |task: &DrawnTask| task.after.map(|after| picture.tasks[after as usize]);
        let holds = match task.reason {
            Reason::Nothing => task.start == 0,
            Reason::Device | Reason::Input => after(task).is_some_and(|before| before.end == task.start),
            Reason::Transfer => task.after.is_some_and(|from| arrivals.contains(&(from, task.start))),
            Reason::Weights | Reason::Copy => after(task).is_none_or(|before| before.end <= task.start),
        };
        demand(holds, &|| format!("task {index} {task:?} waited for {:?}", after(task)));
    }
    for pair in picture.critical_path.windows(2) {
        let [before, next] = [pair[0], pair[1]].map(|index| picture.tasks[index as usize]);
        demand(before.end <= next.start, &|| format!("the critical path goes from {before:?} to {next:?}"));
    }
}

/// Copies of a queue follow each other, and nobody does together what he does alone.
fn beside(picture: &Picture, demand: &mut dyn FnMut(bool, &dyn Fn() -> String)) {
    let mut free = vec![[0; 2]; picture.devices.len()];
    for copy in &picture.copies {
        let free = &mut free[copy.device as usize][copy.direction as usize];
        demand(*free <= copy.start && copy.end <= picture.makespan, &|| format!("{copy:?} before {free}"));
        *free = copy.end;
    }
    for part in &picture.collectives {
        demand(part.start < part.end && part.end <= picture.makespan, &|| format!("{part:?}"));
        let is_same = |one: &&Collective| (one.what, one.stage, one.end) == (part.what, part.stage, part.end);
        let devices: BTreeSet<u32> = picture.collectives.iter().filter(is_same).map(|one| one.device).collect();
        demand(devices.len() > 1, &|| format!("{part:?} is of {devices:?}"));
    }
}

/// Levels reach the peak that is reported, what is alive there adds up to it, and everything is given back.
fn memory(picture: &Picture, demand: &mut dyn FnMut(bool, &dyn Fn() -> String)) {
    for memory in &picture.memory {
        let measure = memory.measure;
        for (index, track) in memory.devices.iter().enumerate() {
            // Lanes hold nothing.
            let devices = &picture.report.as_ref().expect("a report").per_device;
            let name = picture.devices[index].name.as_ref();
            let own = name.map_or(Some(index), |name| name.trim_start_matches('d').parse().ok());
            let Some(reported) = own.map(|own: usize| &devices[own]) else {
                demand(track.peak == 0, &|| format!("row {index} holds {}", track.peak));
                continue;
            };
            let reported = match measure.unit {
                "bytes" => reported.peak_bytes.map(|bytes| bytes as f64),
                _ => reported.peak_activation,
            };
            let shown = track.peak as f64 * measure.times as f64 / measure.over as f64;
            let highest = track.levels.iter().map(|(_, parts)| *parts).max().unwrap_or(0);
            demand(reported.is_some_and(|reported| (reported - shown).abs() <= 1e-6 * shown.max(1.0)), &|| {
                format!("d{index}: {} {shown} shown, {reported:?} reported", measure.unit)
            });
            demand(highest == track.peak, &|| {
                format!("d{index}: {highest} {} drawn, peak {}", measure.unit, track.peak)
            });
            let alive: u64 = track.alive.iter().map(|one| one.parts).sum();
            demand(alive == track.peak, &|| format!("d{index}: {alive} {} alive, peak {}", measure.unit, track.peak));
            let around = track
                .alive
                .iter()
                .all(|one| one.since.unwrap_or(0) <= track.at && one.until.unwrap_or(u64::MAX) >= track.at);
            demand(around, &|| format!("d{index}: {:?} around {}", track.alive, track.at));
            let ascending = track.levels.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 != pair[1].1);
            demand(ascending, &|| format!("d{index}: {:?}", track.levels));
            // Places for activations of others are kept all step long.
            if measure.unit == "units" && picture.report.as_ref().is_none_or(|report| report.swaps.is_empty()) {
                demand(track.levels.last().is_none_or(|(_, parts)| *parts == 0), &|| format!("d{index} keeps some"));
            }
        }
    }
}

#[test]
fn pictures_of_standard_schedules_agree_with_their_reports() {
    let mut failures = Vec::new();
    for (name, _) in stdlib::SCHEDULES {
        for (sizes, costs) in [[4, 8], [8, 16], [2, 4]].into_iter().flat_map(|sizes| COSTS.map(|costs| (sizes, costs)))
        {
            let compilation = standard(name, sizes, costs);
            if compilation.analysis.is_some() {
                failures.extend(wrong(&format!("{name} {sizes:?} {costs}"), &compilation));
            }
        }
    }
    report(&failures);
}

#[test]
fn pictures_of_pipelines_agree_with_their_reports_and_programs() {
    let mut failures = Vec::new();
    let mut with_bytes = 0;
    for path in files(&root().join("examples"), "pipe") {
        let folder = path.parent().expect("a folder");
        let (whole, text) = (path.display().to_string(), read(&path));
        let name = path.file_name().expect("a name").display().to_string();
        for request in requests(&whole, &text, folder) {
            let (compilation, _) = compile_text(&whole, &text, folder, &request);
            failures.extend(wrong(&name, &compilation));
            let picture = Picture::new(&compilation).expect("a picture");
            with_bytes += usize::from(picture.memory.iter().any(|memory| memory.measure.unit == "bytes"));
            failures.extend(sends(&name, &compilation, &picture));
        }
    }
    report(&failures);
    assert!(with_bytes >= 5, "{with_bytes} examples have bytes");
}

/// The program sends what the picture says, class by class, and as many bytes.
fn sends(name: &str, compilation: &Compilation, picture: &Picture) -> Option<String> {
    let program = compilation.program.as_ref()?.program();
    let count = |class: Class| {
        let starts = program.devices.iter().flat_map(|device| &device.step);
        starts.filter(|one| matches!(one, Instruction::SendStart { class: own, .. } if *own == class)).count()
    };
    let drawn = |class: Class| picture.transfers.iter().filter(|one| one.class == class).count();
    let classes = [Class::Activation, Class::Gradient];
    let (sent, drawn) = (classes.map(count), classes.map(drawn));
    // A stage may send several values after one task.
    let covered = sent.iter().zip(drawn).all(|(sent, drawn)| drawn <= *sent);
    let sized = picture.memory.len() < 2 || picture.transfers.iter().all(|one| one.bytes.is_some());
    (!covered || !sized).then(|| format!("{name}: {sent:?} sent, {drawn:?} drawn, all with bytes: {sized}"))
}

#[test]
fn a_target_that_does_not_fit_is_drawn_with_its_limit() {
    let example = read(&root().join("examples/shakespeare.pipe"));
    let small = example.lines().map(|line| {
        let devices = line.trim_start().starts_with("devices ");
        if devices { "    devices 4 memory 1MiB".to_owned() } else { line.to_owned() }
    });
    let small = small.collect::<Vec<_>>().join("\n");
    let (compilation, _) = compile_text("small.pipe", &small, &root().join("examples"), &Request::default());
    assert!(!compilation.report.ok && compilation.program.is_none(), "{:#?}", compilation.diagnostics);
    report(&wrong("small.pipe", &compilation));
    let picture = Picture::new(&compilation).expect("a picture");
    let bytes = picture.memory.iter().find(|memory| memory.measure.unit == "bytes").expect("bytes");
    assert!(bytes.devices.iter().all(|track| track.limit == Some(1_048_576.0) && track.peak > 1_048_576));
}

#[test]
fn limits_and_causes_are_those_that_were_given() {
    let text = stdlib::schedule("1f1b").expect("a standard schedule");
    let memory = Some(MemoryLimit::parse("3").expect("a limit"));
    let costs = Some(StageCosts::parse("comm=0.5").expect("costs"));
    let settings = vec![("devices".to_owned(), 4), ("microbatches".to_owned(), 8)];
    let choice = Choice { settings, ..Choice::default() };
    let (compilation, _) =
        compile_text("std:1f1b", text, &root(), &Request { choice, memory, costs, ..Request::default() });
    let picture = Picture::new(&compilation).expect("a picture");
    assert!(
        !picture.report.as_ref().expect("a report").ok
            && picture.memory[0].devices.iter().all(|track| track.limit == Some(3.0))
    );
    let ticks = picture.clock.ticks_per_unit as f64;
    let of = |device: usize| {
        let idle = picture.devices[device].idle.iter();
        idle.map(|idle| (idle.cause, idle.device, idle.time as f64 / ticks)).collect::<Vec<_>>()
    };
    // Three forwards and three transfers come before the first task of d3, and three backwards and
    // transfers after its last.
    assert_eq!(of(3)[0], (Cause::WarmUp, None, 4.5));
    assert!(of(3).contains(&(Cause::CoolDown, None, 7.5)), "{:?}", of(3));
    assert!(of(0).iter().any(|(cause, device, _)| *cause == Cause::Waiting && *device == Some(1)), "{:?}", of(0));
    assert!(of(0).iter().any(|(cause, ..)| *cause == Cause::Communication), "{:?}", of(0));
}

#[test]
fn where_memory_does_not_suffice_says_since_when_and_by_how_much() {
    let text = stdlib::schedule("1f1b").expect("a standard schedule");
    let settings = vec![("devices".to_owned(), 4), ("microbatches".to_owned(), 8)];
    let misfits = |limit: &str| {
        let memory = Some(MemoryLimit::parse(limit).expect("a limit"));
        let choice = Choice { settings: settings.clone(), ..Choice::default() };
        let (compilation, _) =
            compile_text("std:1f1b", text, &root(), &Request { choice, memory, ..Request::default() });
        let picture = Picture::new(&compilation).expect("a picture");
        let one = |one: &Misfit| (one.device, one.from, one.limit, one.over);
        picture.misfits.iter().map(one).collect::<Vec<_>>()
    };
    // A device takes a forward in every slot from its first one on.
    assert_eq!(misfits("2"), [(0, 2, 2.0, 2.0), (1, 3, 2.0, 1.0)]);
    assert_eq!(misfits("4"), []);
}

/// What is wrong with the picture of a schedule that is stuck.
fn wrong_stop(name: &str, compilation: &Compilation) -> Vec<String> {
    let Some(picture) = Picture::new(compilation) else { return vec![format!("{name}: no picture")] };
    let Some(stop) = &picture.stop else { return vec![format!("{name}: it is not stuck")] };
    let mut wrong: Vec<String> = Vec::new();
    let mut demand = |holds: bool, what: &dyn Fn() -> String| {
        if !holds {
            wrong.push(format!("{name}: {}", what()));
        }
    };
    let runs = |index: u32| {
        let task = &picture.tasks[index as usize];
        index - picture.devices[task.device as usize].tasks[0] < stop.ran[task.device as usize]
    };
    for (index, task) in (0..).zip(&picture.tasks) {
        let is_before = if runs(index) { task.end <= stop.at } else { task.start >= stop.at };
        demand(is_before, &|| format!("{task:?} and the stop at {}", stop.at));
    }
    let of_all: u32 =
        picture.devices.iter().map(|device| device.tasks[1]).sum::<u32>() + stop.hidden.iter().sum::<u32>();
    let tasks = picture.report.as_ref().expect("a report").sizes.tasks;
    // A task of several devices is shown on each of them.
    demand(tasks.is_some_and(|tasks| tasks <= of_all as usize), &|| format!("{of_all} of {tasks:?} tasks"));
    demand(!stop.cycles.is_empty(), &|| "nobody waits".to_owned());
    for cycle in &stop.cycles {
        for (wait, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            let task = |index: u32| &picture.tasks[index as usize];
            demand(!runs(wait.task) && !runs(wait.needs), &|| format!("{wait:?} runs"));
            demand(task(next.task).device == task(wait.needs).device, &|| format!("{wait:?}, then {next:?}"));
            demand(task(next.task).start <= task(wait.needs).start, &|| format!("{next:?} is behind {wait:?}"));
            demand(wait.line > 0 && wait.needs_line > 0, &|| format!("{wait:?} has no line"));
        }
    }
    demand(picture.memory.is_empty() && picture.critical_path.is_empty(), &|| "figures of a whole step".to_owned());
    match svg::draw(compilation) {
        Ok(svg) => demand(svg.matches(r##"Z" fill="#c4162a""##).count() > 1, &|| "no arrows are drawn".to_owned()),
        Err(why) => demand(false, &|| why.clone()),
    }
    wrong
}

#[test]
fn a_schedule_that_is_stuck_is_drawn_up_to_where_its_devices_stand() {
    let mut failures = Vec::new();
    let folder = root().join("tests/ui/deadlock");
    let mut n_drawn = 0;
    for path in files(&folder, "pipe") {
        let (compilation, _) = compile_text("stuck.pipe", &read(&path), &folder, &Request::default());
        failures.extend(wrong_stop(&path.display().to_string(), &compilation));
        n_drawn += 1;
    }
    report(&failures);
    assert!(n_drawn >= 8, "{n_drawn} sources");
}

#[test]
fn the_form_for_programs_has_a_column_for_each_fact() {
    let compilation = standard("seq_1f1b", [4, 8], "comm=0.5");
    let picture = Picture::new(&compilation).expect("a picture");
    let json: serde_json::Value =
        serde_json::from_str(&serde_json::to_string(&picture).expect("plain data")).expect("well-formed");
    assert_eq!(json["schema"], "pipec.picture/1");
    assert_eq!(json["clock"]["ticks_per_unit"], 2);
    let column = |name: &str| json["tasks"][name].as_array().expect("a column").clone();
    assert_eq!(json["tasks"]["count"], picture.tasks.len());
    let slices = column("slice");
    assert!(slices.iter().zip(&picture.tasks).all(|(slice, task)| *slice == task.slice) && slices.contains(&1.into()));
    let ends = column("start").into_iter().zip(column("duration"));
    let ends = ends.map(|(start, duration)| start.as_u64().unwrap_or(0) + duration.as_u64().unwrap_or(0));
    assert!(ends.zip(&picture.tasks).all(|(end, task)| end == task.end));
    let after = column("after").into_iter().map(|after| after.as_u64().unwrap_or(0).checked_sub(1));
    assert!(after.zip(&picture.tasks).all(|(after, task)| after == task.after.map(u64::from)));
    assert!(json["tasks"].get("share").is_none() && json["tasks"].get("goes_on").is_none());
    assert_eq!(json["report"]["schema"], Report::new("").schema);
}

/// A run of the same order: some tasks take longer than their cost or shorter, and some start later than they could.
fn ran(analysis: &Analysis) -> Analysis {
    let Analysis { schedule, order, costs, .. } = analysis;
    let timeline = simulate_with(schedule, order, &costs.latency, |slot, ready| {
        let [late, longer] = [7, 5].map(|prime| u64::from(slot.device.0 * 3 + slot.position * 5) % prime);
        let cost = costs.of_node(schedule.node(slot.device, slot.position as usize));
        let late = if late > 3 { Ticks(late * 91_003) } else { Ticks::ZERO };
        let start = ready.free.max(ready.arrived) + late;
        (start, start + Ticks(cost.0 / 4 * (2 + longer)))
    });
    Analysis { timeline, ..analysis.clone() }
}

#[test]
fn of_a_plan_and_a_run_every_idle_moment_has_a_cause_and_every_late_start_is_told() {
    let mut failures = Vec::new();
    let mut late_ticks = 0;
    for (name, _) in stdlib::SCHEDULES {
        let compilation = standard(name, [4, 8], "F=2,B=3,W=1,comm=0.5");
        let Some(analysis) = &compilation.analysis else { continue };
        let run = ran(analysis);
        let pictures = Picture::versions(&compilation, &[(analysis, Moments::Placed), (&run, Moments::Measured)], "ms");
        let [plan, run] = &pictures[..] else { panic!("two pictures") };
        let mut demand = |holds: bool, what: &dyn Fn() -> String| {
            if !holds {
                failures.push(format!("{name}: {}", what()));
            }
        };
        demand(plan.clock == run.clock && plan.clock.unit == Some("ms"), &|| format!("{:?}", run.clock));
        demand(plan.tasks.iter().all(|task| task.late == 0), &|| "a plan is late".to_owned());
        for picture in [plan, run] {
            for (index, device) in picture.devices.iter().enumerate() {
                let idle: u64 = device.idle.iter().map(|idle| idle.time).sum();
                demand(device.busy + idle == picture.makespan, &|| {
                    format!("d{index}: busy {} and {:?} are not {}", device.busy, device.idle, picture.makespan)
                });
            }
        }
        waits(plan, &mut demand);
        for (device, own) in run.devices.iter().enumerate() {
            let tasks = &run.tasks[own.tasks[0] as usize..][..own.tasks[1] as usize];
            // The first task of a device is warmed up for; the second of a pair starts with the first.
            let later = tasks.iter().skip(1).filter(|task| task.share != Occupancy::Second);
            let late: u64 = later.map(|task| task.late).sum();
            let told: u64 = own.idle.iter().filter(|idle| idle.cause == Cause::Late).map(|idle| idle.time).sum();
            demand(told == late, &|| format!("d{device}: {told} of {late} ticks late"));
            late_ticks += late;
        }
        for (index, task) in run.tasks.iter().enumerate() {
            let after = task.after.map(|after| &run.tasks[after as usize]);
            let possible = task.start - task.late;
            let holds = match task.reason {
                Reason::Nothing => possible == 0,
                Reason::Device | Reason::Input => after.is_some_and(|after| after.end == possible),
                Reason::Transfer => after.is_some_and(|after| {
                    let way = analysis
                        .costs
                        .latency
                        .between_sets(&[pipe_ir::ids::DeviceId(after.device)], &[pipe_ir::ids::DeviceId(task.device)]);
                    after.end + way.0 * run.clock.ticks_per_unit / Ticks::UNIT.0 == possible
                }),
                Reason::Weights | Reason::Copy => false,
            };
            demand(holds, &|| format!("task {index} {task:?} waited for {after:?}"));
        }
    }
    report(&failures);
    assert!(late_ticks > 0, "nothing was late");
}

#[test]
fn every_task_says_which_statement_it_comes_from() {
    let mut failures = Vec::new();
    for (name, text) in stdlib::SCHEDULES {
        let settings = [("devices", 4), ("microbatches", 8)].map(|(name, size)| (name.to_owned(), size));
        let choice = Choice { settings: settings.to_vec(), ..Choice::default() };
        let request = Request { choice, ..Request::default() };
        let (compilation, sources) = compile_text(name, text, &root(), &request);
        let picture = Picture::with_sources(&compilation, &sources).expect("a picture");
        assert_eq!((picture.sources[0].name.as_str(), picture.sources[0].text.as_deref()), (*name, Some(*text)));
        let lines: Vec<&str> = text.lines().collect();
        for task in &picture.tasks {
            let statement = task.statement.map(|statement| picture.statements[statement as usize]);
            let Some(statement) = statement else {
                failures.push(format!("{name}: {task:?} has none"));
                continue;
            };
            let line = lines[statement.start.line as usize - 1];
            let written: String = line.chars().skip(statement.start.column as usize - 1).collect();
            // What is computed again comes from the backward that needs it.
            if task.kind != TaskKind::Recompute && !written.starts_with(&format!("{}[", task.kind.letters())) {
                failures.push(format!("{name}: {task:?} comes from `{written}`"));
            }
        }
    }
    report(&failures);
    let folder = root().join("tests/ui/deadlock");
    let (stuck, sources) = compile_text("ring.pipe", &read(&folder.join("ring.pipe")), &folder, &Request::default());
    let picture = Picture::with_sources(&stuck, &sources).expect("a picture");
    let line =
        |task: u32| picture.tasks[task as usize].statement.map(|one| picture.statements[one as usize].start.line);
    for wait in picture.stop.iter().flat_map(|stop| stop.cycles.iter().flatten()) {
        assert_eq!((line(wait.task), line(wait.needs)), (Some(wait.line), Some(wait.needs_line)), "{wait:?}");
    }
    // Without its sources, a picture is as it was.
    let json = serde_json::to_value(Picture::new(&stuck).expect("a picture")).expect("plain data");
    assert!(json.get("statements").is_none() && json["tasks"].get("statement").is_none());
}

#[test]
fn what_devices_do_together_ends_the_step_of_replicas() {
    let compilation = standard("dp_1f1b", [4, 8], "F=1,B=1,W=1,comm=0.5");
    let picture = Picture::new(&compilation).expect("a picture");
    let closing = picture.closing.expect("sums of gradients come last");
    let ticks = picture.clock.ticks_per_unit;
    // Two pipelines of two stages: each stage adds up its gradients when both have done their last backward.
    let parts: Vec<_> =
        picture.collectives.iter().map(|part| (part.device, part.stage, part.end - part.start)).collect();
    let half = ticks / 2;
    assert_eq!(parts.len(), 4, "{parts:?}");
    for part in [(0, Some(0), half), (2, Some(0), half), (1, Some(1), half), (3, Some(1), half)] {
        assert!(parts.contains(&part), "{part:?} of {parts:?}");
    }
    assert!(picture.collectives.iter().all(|part| part.what == Together::Sum));
    let last = picture.collectives.iter().map(|part| part.end).max();
    assert_eq!((last, closing.end), (Some(picture.makespan), picture.makespan));
}
