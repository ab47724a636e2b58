//! What the search writes: sources that mean the orders they were written for, and whose words
//! about the steady state hold; and what it takes programs to hold.

use pipe_compiler::{Compilation, Request, compile};
use pipe_ir::task::{Task, TaskKind};
use pipe_schedule::dispatch::Objective;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::timing::costs::StageCosts;
use pipe_schedule::units::Units;
use pipe_search::driver::run::prepare;
use pipe_search::emit::source::{self, OfPipeline};
use pipe_search::{Options, Workers};
use pipe_syntax::format::format;
use pipe_syntax::source::{FileId, Source, Sources};
use pipe_syntax::stdlib;
use pipe_tests::blocks;
use pipe_tests::cases::{self, no_files, read, root};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

fn compiled(text: &str, request: &Request) -> Compilation {
    cases::compiled("x.pipe", text, request)
}

fn request(devices: i64, microbatches: i64) -> Request {
    blocks::request(&[("devices", devices), ("microbatches", microbatches)])
}

/// The tasks of each device, in their order.
fn orders(compilation: &Compilation) -> Vec<Vec<Task>> {
    let analysis = compilation.analysis.as_ref().unwrap_or_else(|| panic!("{:?}", compilation.diagnostics));
    analysis.schedule.orders.iter().map(|order| order.iter().map(|one| one.task).collect()).collect()
}

#[test]
fn sources_compile_to_the_orders_that_they_were_written_for() {
    let mut blocks = Vec::new();
    for (name, text) in stdlib::SCHEDULES {
        for microbatches in [8, 24] {
            let request = request(4, microbatches);
            let compilation = compiled(text, &request);
            let Some(analysis) = &compilation.analysis else { continue };
            let schedule = &analysis.schedule;
            let is_paired = schedule.orders.iter().flatten().any(|one| one.with_next);
            let is_sliced = schedule.slices.count() > 1 || schedule.window.is_some();
            if is_paired || is_sliced || schedule.placement.period() > 1 {
                continue;
            }
            let source = source::source(schedule, "found", "As it was.", &OfPipeline::default());
            assert_eq!(format(FileId(0), &source).as_ref(), Ok(&source), "{name} is not in the style");
            let again = compiled(&source, &request);
            assert_eq!(orders(&again), orders(&compilation), "{name}\n{source}");
            let peak = |compilation: &Compilation| compilation.report.figures.peak_activation;
            assert_eq!(peak(&again), peak(&compilation), "{name}\n{source}");
            if source.contains("block every") {
                blocks.push(*name);
            }
        }
    }
    blocks.dedup();
    for name in ["1f1b", "eager_1f1b", "zb_h1", "zb_h2"] {
        assert!(blocks.contains(&name), "{name} is written as an order: only {blocks:?} are blocks");
    }
}

/// As many questions whether to go on as are allowed.
struct Patient(AtomicUsize);

impl Workers for Patient {
    fn go_on(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..n).for_each(work);
    }
}

/// What the words about a steady state say: its microbatches, its period, and by device the tasks
/// with their starts and the activations.
struct Words {
    microbatches: (u32, u32),
    size: u32,
    period: f64,
    devices: Vec<(Vec<(String, f64)>, i64)>,
}

fn words(source: &str) -> Option<Words> {
    let mut lines = source.lines().skip_while(|line| !line.starts_with("/// Microbatches "));
    let numbers = |line: &str| -> Vec<f64> {
        line.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|word| word.parse().ok()).collect()
    };
    let first = numbers(lines.next()?);
    let size = if first.len() == 4 { first[2] as u32 } else { 1 };
    let modulo = numbers(lines.next()?);
    assert_eq!(Some(&modulo[0]), first.last());
    let device = |line: &str| {
        let (_, rest) = line.split_once(": ")?;
        let (tasks, held) = rest.split_once("; ")?;
        let task =
            |text: &str| text.split_once(' ').map(|(name, start)| (name.to_owned(), start.parse().expect("a time")));
        Some((tasks.split(", ").filter_map(task).collect(), held.parse().expect("a count")))
    };
    let devices = lines.map_while(|line| device(line.strip_prefix("///   d")?)).collect();
    Some(Words { microbatches: (first[0] as u32, first[1] as u32), size, period: modulo[0], devices })
}

#[test]
fn what_is_said_of_a_steady_state_is_so() {
    let mut said = 0;
    for (name, costs, memory) in
        [("v_half", "F=1,B=2,W=1", 2), ("v_min", "F=1,B=1,W=1,BW=1.5", 2), ("1f1b", "F=2,B=2,W=1,comm=0.5", 3)]
    {
        let mut request = request(4, 32);
        request.costs = Some(StageCosts::parse(costs).expect("well-formed"));
        request.memory = Some(MemoryLimit::of_all(Units(memory * Units::UNIT.0)));
        let text = stdlib::schedule(name).expect("a schedule");
        let prepared = cases::prepared(name, text, &request, Objective::Makespan);
        let options = Options { objective: Objective::Makespan, seed: 1, rounds: 1 };
        let team = Patient(AtomicUsize::new(6000));
        let found = prepared.search(options, &team, &mut |_| ()).expect("something fits");
        let (source, compilation) = prepared.finish(&found, &mut Sources::default(), &no_files);
        let Some(words) = words(&source) else { continue };
        said += 1;
        let analysis = compilation.analysis.expect("it can run");
        let mut starts: BTreeMap<(String, u32), f64> = BTreeMap::new();
        for (order, times) in analysis.schedule.orders.iter().zip(&analysis.timeline.starts) {
            for (one, start) in order.iter().zip(times) {
                let Task { kind, stage, microbatch } = one.task;
                starts.insert((format!("{}[{}]", kind.letters(), stage.0), microbatch.0), start.0 as f64 / 1e6);
            }
        }
        let (from, to) = words.microbatches;
        let origin = starts[&("F[0]".to_owned(), from)];
        for (device, (tasks, held)) in words.devices.iter().enumerate() {
            let order = &analysis.schedule.orders[device];
            for (task, residue) in tasks {
                let is_so = |microbatch: u32| {
                    let start = starts.get(&(task.clone(), microbatch)).map(|start| start - origin - residue);
                    start.is_some_and(|start| (start / words.period - (start / words.period).round()).abs() < 1e-6)
                };
                assert!((from..from + words.size).any(is_so), "{task} does not start at {residue}\n{source}");
                for microbatch in from..=to - words.size {
                    let at = |microbatch| starts.get(&(task.clone(), microbatch));
                    let (one, next) = (at(microbatch), at(microbatch + words.size));
                    let later = next.zip(one).map(|(next, one)| next - one - words.period);
                    assert!(
                        later.is_none_or(|later| later.abs() < 1e-6) && one.is_some() == next.is_some(),
                        "{source}"
                    );
                }
            }
            let n_tasks = order.iter().filter(|one| (from..from + words.size).contains(&one.task.microbatch.0)).count();
            assert_eq!(tasks.len(), n_tasks, "{source}");
            // What the device holds from the first forward of the last microbatches of the steady
            // state on, for a period.
            let begin = starts[&("F[0]".to_owned(), to)];
            let (mut alive, mut most) = (0, 0);
            for one in order {
                let key = (format!("{}[{}]", one.task.kind.letters(), one.task.stage.0), one.task.microbatch.0);
                alive += match one.task.kind {
                    TaskKind::Forward => 1,
                    TaskKind::BackwardWeight | TaskKind::Backward => -1,
                    _ => 0,
                };
                if (begin - words.period..begin).contains(&starts[&key]) {
                    most = most.max(alive);
                }
            }
            assert_eq!(most, *held, "d{device}\n{source}");
        }
    }
    assert!(said >= 2, "{said} of the schedules have a steady state");
}

#[test]
fn what_bounds_in_bytes_assume_that_devices_hold_is_held_in_every_program() {
    let mut all = 0;
    for example in ["mlp", "shakespeare", "unet"] {
        let text = read(&root().join("examples").join(example).with_extension("pipe"));
        for name in ["gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2"] {
            let call = text.lines().find(|line| line.trim_start().starts_with("schedule ")).expect("a schedule");
            // Where a peak is required, units count and not bytes.
            let text: Vec<&str> = text.lines().filter(|line| !line.contains("require peak")).collect();
            let text = text.join("\n").replace(call, &format!("    schedule {name}"));
            let source = Source { name: example.to_owned(), text };
            // Halves that run at once hold less, as `BW` does, which the search counts as a form of its own.
            let (mut sources, request) = (Sources::default(), Request { apart: true, ..Request::default() });
            let compilation = compile(&mut sources, source.clone(), &no_files, &request);
            let Ok(prepared) = prepare(&mut sources, source, &no_files, &request, Objective::Makespan) else {
                continue;
            };
            let (problem, analysis) = (prepared.problem, compilation.analysis.expect("it can run"));
            let job = &problem.job;
            let limit = if example == "shakespeare" { 64 << 20 } else { 1 << 20 };
            let orders = job.orders(&analysis.schedule).expect("its tasks");
            for (device, order) in orders.iter_ids() {
                let held = order.iter().scan(0, |held, mention| {
                    *held += job.takes(*mention);
                    Some(*held)
                });
                let most = held.max().unwrap_or(0);
                assert!(most > 0 && job.most[device] < limit, "{example} {name}");
                let peak = compilation.report.per_device[device.index()].peak_bytes.expect("a program");
                assert!(limit - job.most[device] + most <= peak as i64, "{example} {name}: {most} beside {peak}");
                all += 1;
            }
        }
    }
    assert!(all >= 40, "{all}");
}

#[test]
fn a_models_backward_takes_its_time_in_either_form() {
    for (example, name) in [("mlp", "1f1b"), ("mlp", "zb_h1"), ("unet", "1f1b"), ("shakespeare", "zb_h1")] {
        let text = read(&root().join("examples").join(example).with_extension("pipe"));
        let call = text.lines().find(|line| line.trim_start().starts_with("schedule ")).expect("a schedule");
        let text: Vec<&str> = text.lines().filter(|line| !line.contains("require peak")).collect();
        let text = text.join("\n").replace(call, &format!("    schedule {name}"));
        let prepared = cases::prepared(example, &text, &Request::default(), Objective::Makespan);
        for stage in prepared.problem.schedule.placement.stages() {
            let of = |kind| prepared.problem.costs.of(kind, stage).0;
            let halves = of(TaskKind::BackwardInput) + of(TaskKind::BackwardWeight);
            let apart = of(TaskKind::Backward).abs_diff(halves);
            assert!(apart * 10 <= halves && halves > 0, "{example} {name} {stage}: {apart} of {halves}");
        }
        let options = Options { objective: Objective::Makespan, seed: 1, rounds: 1 };
        let team = Patient(AtomicUsize::new(300));
        let found = prepared.search(options, &team, &mut |_| ()).expect("something fits");
        let (_, compilation) = prepared.finish(&found, &mut Sources::default(), &no_files);
        let makespan = compilation.analysis.expect("it can run").timeline.makespan();
        assert_eq!(prepared.problem.ticks(found.length), makespan, "{example} {name}");
        assert!(prepared.problem.ticks(prepared.problem.bound(&found)) <= makespan, "{example} {name}");
    }
}
