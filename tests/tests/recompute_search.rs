//! The search orders recomputation: what it finds and proves for small targets is what all orders of them show.

use pipe_compiler::{Request, compile};
use pipe_ir::task::Task;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::policy::recompute::Recomputation;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::timing::costs::StageCosts;
use pipe_search::Options;
use pipe_search::driver::alternatives::{Moves, SearchTarget};
use pipe_search::emit::source::{OfPipeline, source};
use pipe_syntax::source::{Source, Sources};
use pipe_syntax::stdlib;
use pipe_tests::blocks::request;
use pipe_tests::cases::{compiled, read, root};
use pipe_tests::slice::slice;
use pipe_tests::team::team;

/// Stages in a chain, one after the other on their devices.
#[derive(Debug)]
struct Small {
    devices: &'static [usize],
    recomputes: &'static [bool],
    microbatches: usize,
    /// Of `F`, `B`, `W` and `R`.
    costs: [u64; 4],
    /// Activations that each device may hold.
    capacity: usize,
}

/// What all orders come to: every task is appended to its device in turn.
struct All<'a> {
    small: &'a Small,
    /// By stage and kind, `F`, `B`, `W` and `R`: when each microbatch's task ended.
    ends: Vec<[Vec<u64>; 4]>,
    free: Vec<u64>,
    held: Vec<usize>,
    best: u64,
}

impl All<'_> {
    fn of(small: &Small) -> u64 {
        let n_devices = small.devices.iter().max().map_or(0, |device| device + 1);
        let ends = vec![[(); 4].map(|()| Vec::new()); small.devices.len()];
        let mut all = All { small, ends, free: vec![0; n_devices], held: vec![0; n_devices], best: u64::MAX };
        all.append(0, 0);
        all.best
    }

    /// The end of what the next task of a kind waits for; none where that has not run, or the task is not there.
    fn ready(&self, stage: usize, kind: usize) -> Option<u64> {
        let number = self.ends[stage][kind].len();
        let end = |stage: usize, kind: usize| self.ends[stage][kind].get(number).copied();
        let own = if self.small.recomputes[stage] { 3 } else { 0 };
        match kind {
            _ if number == self.small.microbatches => None,
            0 => {
                if stage == 0 {
                    Some(0)
                } else {
                    end(stage - 1, 0)
                }
            }
            1 if stage + 1 == self.small.devices.len() => end(stage, own),
            1 => Some(end(stage, own)?.max(end(stage + 1, 1)?)),
            2 => end(stage, 1),
            _ => end(stage, 0).filter(|_| own == 3),
        }
    }

    /// Appends every task that starts no earlier than the one before, in turn.
    fn append(&mut self, longest: u64, since: u64) {
        if longest >= self.best {
            return;
        }
        let n_tasks = |stage: usize| if self.small.recomputes[stage] { 4 } else { 3 } * self.small.microbatches;
        let done: usize = self.ends.iter().flatten().map(Vec::len).sum();
        if done == (0..self.small.devices.len()).map(n_tasks).sum::<usize>() {
            self.best = longest;
            return;
        }
        for stage in 0..self.small.devices.len() {
            for kind in 0..4 {
                let Some(ready) = self.ready(stage, kind) else { continue };
                let device = self.small.devices[stage];
                let takes = kind == if self.small.recomputes[stage] { 3 } else { 0 };
                if takes && self.held[device] == self.small.capacity {
                    continue;
                }
                let (free, held) = (self.free[device], self.held[device]);
                let start = ready.max(free);
                if start < since {
                    continue;
                }
                let end = start + self.small.costs[kind];
                self.ends[stage][kind].push(end);
                self.free[device] = end;
                self.held[device] = held + usize::from(takes) - usize::from(kind == 2);
                self.append(longest.max(end), start);
                self.ends[stage][kind].pop();
                (self.free[device], self.held[device]) = (free, held);
            }
        }
    }
}

fn found(small: &Small) -> (f64, bool) {
    let n_devices = small.devices.iter().max().map_or(0, |device| device + 1);
    let place: Vec<String> =
        small.devices.iter().enumerate().map(|(s, d)| format!("if s == {s} then {d} else ")).collect();
    let text = format!(
        "schedule small {{ stages {} place s on {}0 order d {{
            for s in 0..S {{ if {} {{ repeat M {{ F[s] }} }} }}
            for k in 0..S {{ let s = S - 1 - k if {} {{ repeat M {{ BW[s] }} }} }} }} }}",
        small.devices.len(),
        place.join(""),
        on_device(small),
        on_device(small)
    );
    let [f, b, w, r] = small.costs;
    let stages = (0..).zip(small.recomputes).filter(|(_, recomputes)| **recomputes).map(|(stage, _)| stage..stage + 1);
    let settings =
        [("devices", n_devices), ("microbatches", small.microbatches)].map(|(name, value)| (name, value as i64));
    let per_device = small.devices.iter().filter(|device| **device == 0).count();
    let units = small.capacity as f64 / (small.devices.len() as f64 / n_devices as f64);
    assert_eq!(per_device * n_devices, small.devices.len(), "units are whole");
    let mut request = Request {
        costs: Some(StageCosts::parse(&format!("F={f},B={b},W={w},R={r}")).expect("costs")),
        memory: Some(MemoryLimit::parse(&units.to_string()).expect("a limit")),
        ..request(&settings)
    };
    request.choice.recompute = Some(Recomputation::Stages(stages.collect()));
    let root = Source { name: "small.pipe".to_owned(), text };
    let loader = |path: &str| Err(path.to_owned());
    let target = SearchTarget {
        root: &root,
        loader: &loader,
        request: &request,
        objective: Objective::Makespan,
        may: Moves { recompute: true, offload: false },
    };
    let prepared = target.prepare(&mut Sources::default()).unwrap_or_else(|found| panic!("{:#?}", found.diagnostics));
    let options = Options { objective: Objective::Makespan, seed: 1, rounds: 4 };
    let progress = prepared.search(options, &team(1, usize::MAX), &mut |_| ()).expect("something fits");
    let (source, compilation) = prepared.finish(&progress, &mut Sources::default(), &loader);
    assert!(compilation.report.ok, "{small:?}: {:#?}\n{source}", compilation.diagnostics);
    (compilation.report.figures.makespan.expect("a step"), prepared.problem.is_proved(&progress))
}

/// The condition that a stage lives on the device at hand.
fn on_device(small: &Small) -> String {
    let here = small.devices.iter().enumerate().map(|(s, d)| format!("s == {s} and d == {d}"));
    here.collect::<Vec<_>>().join(" or ")
}

#[test]
fn small_targets_that_recompute_are_ordered_best_and_proved() {
    let cases: [(&[usize], &[bool], usize, usize); 7] = [
        (&[0, 1], &[true, true], 2, 1),
        (&[0, 1], &[true, false], 3, 1),
        (&[0, 1], &[false, true], 2, 2),
        (&[0, 1, 1, 0], &[true, true, false, false], 1, 1),
        (&[0, 1, 1, 0], &[true, true, true, true], 1, 1),
        (&[0, 0], &[true, false], 2, 1),
        (&[0, 1, 2], &[true, true, false], 1, 1),
    ];
    for (devices, recomputes, microbatches, capacity) in slice(4, cases) {
        for costs in slice(2, [[2, 3, 1, 2], [1, 1, 1, 1]]) {
            let small = Small { devices, recomputes, microbatches, costs, capacity };
            let (makespan, is_proved) = found(&small);
            assert_eq!(makespan, All::of(&small) as f64, "{small:?}");
            assert!(is_proved, "{small:?}");
        }
    }
}

#[test]
fn bytes_that_bounds_count_are_held_in_programs_that_recompute() {
    let mut all = 0;
    let examples = [("mlp", 1 << 20), ("shakespeare", 64 << 20), ("unet", 1 << 20), ("tied", 1 << 20)];
    for (example, limit) in examples {
        let text = read(&root().join("examples").join(example).with_extension("pipe"));
        let call = text.lines().find(|line| line.trim_start().starts_with("schedule ")).expect("a schedule");
        let memory = text.lines().find(|line| line.trim_start().starts_with("devices ")).expect("devices");
        let sized = if memory.contains("memory") { memory.to_owned() } else { format!("{memory} memory 1MiB") };
        // Where a peak is required, units count and not bytes.
        let text: Vec<&str> = text.lines().filter(|line| !line.contains("require peak")).collect();
        let text = text.join("\n").replace(memory, &sized);
        for name in ["gpipe", "1f1b", "zb_h1"] {
            let text = text.replace(call, &format!("    schedule {name}\n    recompute all"));
            let source = Source { name: example.to_owned(), text };
            // Halves that run at once hold less, as `BW` does, which the search counts as a form of its own.
            let (mut sources, request) = (Sources::default(), Request { apart: true, ..Request::default() });
            let loader = |path: &str| Err(path.to_owned());
            let compilation = compile(&mut sources, source.clone(), &loader, &request);
            let target = SearchTarget {
                root: &source,
                loader: &loader,
                request: &request,
                objective: Objective::Makespan,
                may: Moves { recompute: true, offload: false },
            };
            let Ok(prepared) = target.prepare(&mut sources) else { continue };
            let (job, analysis) = (prepared.problem.job, compilation.analysis.expect("it can run"));
            let orders = job.orders(&analysis.schedule).expect("its tasks");
            for (device, order) in orders.iter_ids() {
                let held = order.iter().scan(0, |held, mention| {
                    *held += job.takes(*mention);
                    Some(*held)
                });
                let most = held.max().expect("tasks");
                let peak = compilation.report.per_device[device.index()].peak_bytes.expect("a program");
                assert!(
                    most > 0 && limit - job.most[device] + most <= peak as i64,
                    "{example} {name}: {most} of {peak}"
                );
                all += 1;
            }
        }
    }
    assert!(all >= 20, "{all}");
}

#[test]
fn sources_that_recompute_compile_to_the_orders_that_they_were_written_for() {
    let mut blocks = 0;
    for name in ["gpipe", "1f1b", "zb_h1", "v_half"] {
        for asked in ["all", "0..2", "1"] {
            let with = |text: &str, recompute: Option<&str>| {
                let mut request = request(&[("devices", 4), ("microbatches", 9)]);
                request.choice.recompute = recompute.map(|text| text.parse::<Recomputation>().expect("stages"));
                let found = compiled("test.pipe", text, &request);
                found.analysis.unwrap_or_else(|| panic!("{text}: {:#?}", found.diagnostics)).schedule
            };
            let schedule = with(stdlib::schedule(name).expect("it exists"), Some(asked));
            let text = source(&schedule, "again", "", &OfPipeline::default());
            blocks += usize::from(text.contains("block every"));
            let tasks = |schedule: &Schedule| -> Vec<Vec<Task>> {
                schedule.orders.iter().map(|order| order.iter().map(|one| one.task).collect()).collect()
            };
            assert_eq!(tasks(&with(&text, None)), tasks(&schedule), "{name} {asked}\n{text}");
        }
    }
    assert!(blocks > 0, "a block in which all stages recompute is written as one");
}
