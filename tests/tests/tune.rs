//! Tuning against brute force: every candidate of small problems is written out, timed and lowered,
//! and the best of them are those that `tune` finds with its bounds; what it writes is judged by
//! the ordinary compiler.

use pipe_compiler::cluster::Cluster;
use pipe_compiler::profile::Profile;
use pipe_compiler::{Request, elaborate};
use pipe_ir::units::Bytes;
use pipe_schedule::units::Ticks;
use pipe_search::Workers;
use pipe_search::tune::{
    Candidate, Misfit, Problem, StepTime, TuneRequest, TuneResult, analysis, exhaustive, problem, space, tune,
};
use pipe_syntax::diagnostic::{Code, Diagnostics};
use pipe_syntax::source::{Source, Sources};
use pipe_tests::cases::{read, root};
use pipe_tests::slice::{slice, takes_all};
use pipe_tests::team::team;
use pipe_tests::training::{assert_peaks, losses, start, steps};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// How many of the best are compared.
const BEST: usize = 10;

/// A target of the data folder, with these settings held fast, on the tiny cluster with this memory.
fn problem_of(name: &str, memory: &str, held: &[(&str, i64)]) -> Problem {
    problem_with(name, memory, held, TuneRequest::default()).expect("a problem")
}

fn problem_with(name: &str, memory: &str, held: &[(&str, i64)], asked: TuneRequest) -> Result<Problem, Diagnostics> {
    let folder = root().join("tests/data/tune");
    let text = read(&folder.join("tiny.toml")).replace("48MiB", memory);
    let cluster = Cluster::read(Source { name: "tiny.toml".to_owned(), text }).expect("a cluster");
    let settings = held.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let pipeline = Some(name.to_owned());
    let choice = elaborate::Request { settings, pipeline, ..elaborate::Request::default() };
    let request = Request { choice, cluster: Some(cluster), ..Request::default() };
    let root = Source { name: format!("{name}.pipe"), text: read(&folder.join(format!("{name}.pipe"))) };
    let loader = |path: &str| std::fs::read_to_string(folder.join(path)).map_err(|error| error.to_string());
    problem(&mut Sources::default(), root, &loader, &request, asked)
}

fn tuned(problem: &Problem, threads: usize) -> TuneResult {
    tune(problem, &space(problem), BEST, &team(threads, 1), &mut |_| ())
}

/// All candidates of a target of the data folder. What one takes does not depend on what there is.
fn all_of(name: &str) -> &'static [(Candidate, Result<StepTime, String>)] {
    static TINY: OnceLock<Vec<(Candidate, Result<StepTime, String>)>> = OnceLock::new();
    static EXPERTS: OnceLock<Vec<(Candidate, Result<StepTime, String>)>> = OnceLock::new();
    let known = if name == "tiny" { &TINY } else { &EXPERTS };
    known.get_or_init(|| exhaustive(&problem_of(name, "1GiB", &[])))
}

/// The best by brute force, each with another layout or schedule.
fn best_of(problem: &Problem, all: &[(Candidate, Result<StepTime, String>)]) -> Vec<(Ticks, Candidate)> {
    let mut best: BTreeMap<_, (Ticks, Candidate)> = BTreeMap::new();
    for (candidate, taken) in all {
        let Some(taken) = taken.as_ref().ok().filter(|taken| taken.fits(problem)) else { continue };
        let own = (taken.time, candidate.clone());
        let known = best.entry((candidate.layout, candidate.variant.clone())).or_insert_with(|| own.clone());
        *known = own.min(known.clone());
    }
    let mut best: Vec<_> = best.into_values().collect();
    best.sort();
    best.truncate(BEST);
    best
}

fn pairs(found: &TuneResult) -> Vec<(Ticks, Candidate)> {
    found.best.iter().map(|(candidate, taken)| (taken.time, candidate.clone())).collect()
}

#[test]
fn bounds_leave_out_nothing_that_is_better() {
    for (name, limits) in [("tiny", &["48MiB", "33MiB", "1GiB"][..]), ("experts", &["10MiB", "1GiB"])] {
        let all = all_of(name);
        for memory in slice(2, limits) {
            let problem = problem_of(name, memory, &[]);
            let (best, found) = (best_of(&problem, all), tuned(&problem, 1));
            assert!(!best.is_empty(), "{name} {memory}: nothing fits");
            assert_eq!(pairs(&found), best, "{name} {memory}");
            assert!(found.is_complete && found.bound <= best[0].0, "{name} {memory}");
            assert!(found.counts.timed < all.len(), "{name} {memory}: bounds save something");
        }
    }
}

#[test]
fn bounds_leave_out_nothing_at_rates_that_differ_by_kind() {
    // It takes minutes, and others look at some of it.
    if !takes_all() {
        return;
    }
    let read = |rates: [(&str, u64); 3]| {
        let tasks =
            rates.map(|(kind, flops)| format!(r#"{{"stage": 0, "kind": "{kind}", "ns": 1, "flops": {flops}}}"#));
        let text = format!(
            r#"{{"schema": "pipec.profile/1", "target": "x", "stages": 1, "transfer_ns": 0, "tasks": [{}]}}"#,
            tasks.join(",")
        );
        Profile::read(Source { name: "x.json".to_owned(), text }).expect("well-formed")
    };
    let even = best_of(&problem_of("tiny", "1GiB", &[]), all_of("tiny"));
    for rates in slice(2, [[("F", 90), ("B", 30), ("W", 80)], [("F", 20), ("B", 90), ("W", 10)]]) {
        let mut problem = problem_of("tiny", "48MiB", &[]);
        problem.cluster = read(rates).calibrate(problem.cluster).expect("rates of all kinds");
        problem.request.cluster = Some(problem.cluster.clone());
        let (best, found) = (best_of(&problem, &exhaustive(&problem)), tuned(&problem, 1));
        assert_eq!(pairs(&found), best, "{rates:?}");
        assert!(found.is_complete && found.bound <= best[0].0, "{rates:?}");
        assert_ne!(best[0].0, even[0].0, "rates count");
    }
}

/// The tiny target with devices and hosts that have so much memory; under a few schedules.
fn with_hosts(memory: &str, host: &str, may_offload: bool) -> Result<Problem, Diagnostics> {
    let folder = root().join("tests/data/tune");
    let text = read(&folder.join("tiny.toml")).replace("48MiB", memory);
    let text = text.replace("[links.node]", &format!("[host]\n{host}\n[links.node]"));
    let cluster = Cluster::read(Source { name: "tiny.toml".to_owned(), text }).expect("a cluster");
    let request = Request { cluster: Some(cluster), ..Request::default() };
    let root = Source { name: "tiny.pipe".to_owned(), text: read(&folder.join("tiny.pipe")) };
    let loader = |path: &str| std::fs::read_to_string(folder.join(path)).map_err(|error| error.to_string());
    let schedules = ["1f1b", "zb_h1", "v_half"].map(str::to_owned).to_vec();
    problem(&mut Sources::default(), root, &loader, &request, TuneRequest { schedules, may_offload, batch: None })
}

#[test]
fn state_lives_with_the_hosts_where_nothing_better_fits() {
    // It takes minutes, and others look at some of it.
    if !takes_all() {
        return;
    }
    for (memory, host) in slice(2, [("24MiB", "40MiB"), ("16MiB", "1GiB")]) {
        is_best_with_hosts(memory, host);
    }
}

/// Compares what is found against brute force, where state may live with the hosts; and with what
/// the compiler says of it.
fn is_best_with_hosts(memory: &str, host: &str) {
    let line = format!("memory = \"{host}\"\nbandwidth = \"3GB/s\"");
    let problem = with_hosts(memory, &line, true).expect("a problem");
    let all = exhaustive(&problem);
    let (best, found) = (best_of(&problem, &all), tuned(&problem, 1));
    assert_eq!(pairs(&found), best, "{memory} {host}");
    assert!(found.is_complete && found.bound <= best[0].0 && found.counts.timed < all.len(), "{memory} {host}");
    assert!(found.best.iter().any(|(candidate, _)| candidate.keeping.offload.any()), "{memory} {host}");
    let is_short_of_host = |one: &Misfit| one.taken.bytes <= problem.limit && !one.taken.fits(&problem);
    assert_eq!(found.misfits.iter().any(is_short_of_host), host == "40MiB", "{memory} {host}");
    for (candidate, taken) in &found.best {
        let (compilation, _) = analysis(&problem, &candidate.source(&problem, ""), "best.pipe");
        let (report, timed) = (&compilation.report, compilation.analysis.as_ref().expect("it is timed"));
        assert!(report.ok && timed.timeline.makespan() == taken.time, "{memory} {host}: {candidate:?}");
        let peak = report.per_device.iter().filter_map(|row| row.peak_bytes).max();
        let of_hosts = report.per_device.iter().filter_map(|row| row.host_peak_bytes).max().unwrap_or_default();
        assert_eq!((peak, of_hosts), (Some(taken.bytes.0), taken.host.0), "{memory} {host}: {candidate:?}");
    }
}

#[test]
fn state_only_lives_with_the_hosts_where_it_must_and_copies_take_a_known_time() {
    let line = "memory = \"1GiB\"\nbandwidth = \"3GB/s\"";
    let of = |memory, may_offload| tuned(&with_hosts(memory, line, may_offload).expect("a problem"), 1);
    assert!(of("16MiB", false).best.is_empty());
    assert_eq!(of("48MiB", true).best[0], of("48MiB", false).best[0], "what fits without is not made slower");
    let unknown = with_hosts("16MiB", "memory = \"1GiB\"", true).expect_err("copies take an unknown time");
    assert_eq!(unknown[0].code, Code::CannotTune);
    assert!(
        unknown[0].message.contains("how long copies between a device and its host take"),
        "{}",
        unknown[0].message
    );
}

/// Three nodes, of which the first is far from the second, and the third has slow links inside.
const UNEVEN: &str = r#"
nodes = 3
devices = 2
device = { memory = "1GiB", flops = "1TFLOPS" }
links.node = { bandwidth = ["10GB/s", "10GB/s", "4GB/s"], latency = "2us" }
[links.cluster]
bandwidth = { unit = "GB/s", rows = [["-", 0.2, 2], [0.2, "-", 1], [2, 1, "-"]] }
latency = "10us"
"#;

#[test]
fn nodes_that_differ_are_filled_in_the_best_order() {
    let folder = root().join("tests/data/tune");
    let cluster = Source { name: "uneven.toml".to_owned(), text: UNEVEN.to_owned() };
    let mut request = Request { cluster: Some(Cluster::read(cluster).expect("a cluster")), ..Request::default() };
    if !takes_all() {
        request.choice.settings = vec![("zero".to_owned(), 1), ("recompute".to_owned(), 0)];
    }
    let of = |line: &str, schedules: &[&str]| {
        let text = read(&folder.join("tiny.pipe")).replace("rows = 2", &format!("rows = 2{line}"));
        let loader = |path: &str| std::fs::read_to_string(folder.join(path)).map_err(|error| error.to_string());
        let root = Source { name: "tiny.pipe".to_owned(), text };
        let schedules = schedules.iter().map(|name| (*name).to_owned()).collect();
        problem(
            &mut Sources::default(),
            root,
            &loader,
            &request,
            TuneRequest { batch: Some(12), schedules, ..TuneRequest::default() },
        )
        .expect("a problem")
    };
    // Their order of tasks does not depend on links.
    let free = of("", &slice(4, ["1f1b", "gpipe", "zb_h1", "interleaved_1f1b"]));
    let (best, found) = (best_of(&free, &exhaustive(&free)), tuned(&free, 1));
    let times = |pairs: &[(Ticks, Candidate)]| pairs.iter().map(|(time, _)| *time).collect::<Vec<_>>();
    assert_eq!(times(&pairs(&found)), times(&best));
    assert!(found.best.iter().any(|(candidate, _)| !candidate.nodes.is_empty()), "{:?}", found.best);
    assert!(found.is_complete && found.n_final == found.best.len() && found.bound <= best[0].0);
    for (candidate, taken) in &found.best {
        let (compilation, _) = analysis(&free, &candidate.source(&free, ""), "best.pipe");
        assert_eq!(compilation.analysis.expect("it is timed").timeline.makespan(), taken.time);
    }
    // These are ordered anew for each order of nodes.
    let free = of("", &slice(3, ["v_half", "v_min", "zb_v"]));
    let (best, found) = (best_of(&free, &exhaustive(&free)), tuned(&free, 1));
    assert_eq!(times(&pairs(&found)), times(&best));
    assert!(found.is_complete && found.are_orders_best && found.bound <= best[0].0);
    // An order that the target says stays.
    let held = tuned(&of(", nodes = [2, 1, 0]", &["1f1b"]), 1);
    assert!(held.best.iter().all(|(candidate, _)| candidate.nodes.is_empty()));
    assert!(held.best[0].1.time > found.best[0].1.time);
}

/// Of more nodes not every order is looked at where tasks are ordered anew, and nothing is then
/// said of what was left out.
#[test]
fn rows_whose_order_of_nodes_is_not_proved_are_not_final() {
    // It takes minutes, and others look at some of it.
    if !takes_all() {
        return;
    }
    let folder = root().join("tests/data/tune");
    let mut text = UNEVEN.replace("nodes = 3\ndevices = 2", "nodes = 5\ndevices = 1");
    let rows = r#"["-", 0.2, 2, 0.1, 1], [0.2, "-", 1, 2, 0.3], [2, 1, "-", 0.1, 0.2], [0.1, 2, 0.1, "-", 1], [1, 0.3, 0.2, 1, "-"]"#;
    text = text.replace(r#"["-", 0.2, 2], [0.2, "-", 1], [2, 1, "-"]"#, rows);
    text = text.replace(r#"["10GB/s", "10GB/s", "4GB/s"]"#, r#""10GB/s""#);
    let cluster = Cluster::read(Source { name: "five.toml".to_owned(), text }).expect("a cluster");
    let settings = [("devices", 5), ("zero", 1), ("recompute", 0), ("rows", 2)]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec();
    let choice = elaborate::Request { settings, ..elaborate::Request::default() };
    let request = Request { choice, cluster: Some(cluster), ..Request::default() };
    let mut config = read(&folder.join("tiny.json"));
    config = config.replace("\"num_hidden_layers\": 6", "\"num_hidden_layers\": 10");
    let loader = |_: &str| Ok(config.clone());
    for (schedule, is_proved) in slice(2, [("v_half", false), ("1f1b", true)]) {
        let root = Source { name: "tiny.pipe".to_owned(), text: read(&folder.join("tiny.pipe")) };
        let asked = TuneRequest { batch: Some(12), schedules: vec![schedule.to_owned()], ..TuneRequest::default() };
        let problem = problem(&mut Sources::default(), root, &loader, &request, asked).expect("a problem");
        let (best, found) = (best_of(&problem, &exhaustive(&problem)), tuned(&problem, 1));
        assert_eq!(found.are_orders_best, is_proved, "{schedule}");
        assert_eq!(found.is_complete, is_proved, "{schedule}");
        // What is called final is, and the bound is below everything.
        assert_eq!(
            pairs(&found)[..found.n_final].iter().map(|(time, _)| *time).collect::<Vec<_>>(),
            best[..found.n_final].iter().map(|(time, _)| *time).collect::<Vec<_>>()
        );
        assert!(found.bound <= best[0].0, "{schedule}");
    }
}

/// Time is over after so many questions.
struct Stop(AtomicUsize);

impl Workers for Stop {
    fn go_on(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..n).for_each(work);
    }
}

#[test]
fn the_first_rows_are_known_before_the_last_and_something_fits_at_once() {
    // It takes minutes, and others look at some of it.
    if !takes_all() {
        return;
    }
    let problem = problem_of("tiny", "33MiB", &[]);
    let all = tuned(&problem, 1);
    let mut rows = Vec::new();
    for waves in 0..400 {
        let stopped = tune(&problem, &space(&problem), BEST, &Stop(AtomicUsize::new(waves)), &mut |_| ());
        let n_final = stopped.n_final;
        assert_eq!(pairs(&stopped)[..n_final], pairs(&all)[..n_final], "after {waves}");
        assert!(stopped.bound <= all.best[0].1.time, "after {waves}");
        rows.push((n_final, stopped.best.len()));
        if stopped.is_complete {
            assert_eq!(stopped.best, all.best);
            break;
        }
    }
    let fits = rows.iter().position(|(_, n)| *n > 0).expect("something fits");
    let known = rows.iter().position(|(n_final, _)| *n_final > 0).expect("it is known");
    assert!(2 * fits < known && rows.is_sorted_by_key(|(n_final, _)| *n_final), "{rows:?}");
}

#[test]
fn the_result_does_not_depend_on_threads() {
    let problem = problem_of("tiny", "48MiB", &[]);
    assert_eq!(tuned(&problem, 1), tuned(&problem, 3));
}

#[test]
fn what_is_never_better_is_not() {
    // It takes minutes, and others look at some of it.
    if !takes_all() {
        return;
    }
    for name in slice(2, ["tiny", "experts"]) {
        let best = pairs(&tuned(&problem_of(name, "1GiB", &[]), 1))[0].0;
        for held in [[("zero", 0)], [("sequence_parallel", 0)]] {
            let problem = problem_of(name, "1GiB", &held);
            let least = best_of(&problem, &exhaustive(&problem))[0].0;
            assert!(least >= best, "{name} with {held:?}: {least} ms, and {best} ms without");
        }
    }
}

#[test]
fn sources_of_the_best_are_judged_alike() {
    let problem = problem_of("tiny", "48MiB", &[]);
    for (candidate, taken) in tuned(&problem, 1).best {
        let source = candidate.source(&problem, "why");
        let (compilation, _) = analysis(&problem, &source, "best.pipe");
        assert!(compilation.report.ok, "{source}\n{:#?}", compilation.report.diagnostics);
        let peak = compilation.report.per_device.iter().filter_map(|row| row.peak_bytes).max();
        assert_eq!(peak, Some(taken.bytes.0), "{source}");
        let timeline = compilation.analysis.expect("it is timed").timeline;
        assert_eq!(timeline.makespan(), taken.time, "{source}");
    }
}

#[test]
fn what_does_not_fit_would_be_faster_and_says_what_is_missing() {
    let problem = problem_of("tiny", "33MiB", &[]);
    let found = tuned(&problem, 1);
    let last = found.best.last().expect("something fits").1.time;
    assert!(!found.misfits.is_empty());
    // Ten are listed, counted to the end; whatever else would be faster and is less too large than the five
    // that are shown is of a group of which nothing fits, or keeps other things than one of the best. How
    // many others there are is known.
    let all = all_of("tiny");
    let taken: Vec<(&Candidate, &StepTime)> =
        all.iter().filter_map(|(one, taken)| Some((one, taken.as_ref().ok()?))).collect();
    let fits = |one: &Candidate| {
        let mut group = taken.iter().filter(|(other, _)| (other.layout, other.keeping) == (one.layout, one.keeping));
        group.any(|(_, taken)| taken.bytes <= problem.limit)
    };
    let is_best =
        |one: &Candidate| found.best.iter().any(|(best, _)| (best.layout, &best.variant) == (one.layout, &one.variant));
    let most = found.misfits[4].taken.bytes;
    let others = taken.iter().filter(|(one, taken)| {
        let is_listed = found.misfits.iter().any(|misfit| misfit.candidate == **one);
        taken.bytes > problem.limit && taken.bytes < most && taken.time < last && !is_listed && !is_best(one)
    });
    let others: Vec<_> = others.filter(|(one, _)| fits(one)).collect();
    assert!(found.misfits.len() == 10 && others.is_empty(), "{others:#?}");
    assert!(found.misfits.is_sorted_by_key(|one| one.taken.bytes));
    let known = found.counts.misfits + found.counts.too_large;
    assert!(found.more_misfits > 0 && found.more_misfits + 10 <= known, "{} of {known}", found.more_misfits);
    for one in &found.misfits {
        assert!(one.is_timed && one.taken.is_exact && one.taken.time < last && one.taken.bytes > problem.limit);
        let (compilation, _) = analysis(&problem, &one.candidate.source(&problem, ""), "misfit.pipe");
        let peak = compilation.report.per_device.iter().filter_map(|row| row.peak_bytes).max();
        assert_eq!(peak, Some(one.taken.bytes.0));
        assert!(!compilation.report.ok);
    }
    let nothing = tuned(&problem_of("tiny", "1MiB", &[]), 1);
    assert!(nothing.best.is_empty() && nothing.least_held.is_some_and(|held| held > Bytes(1 << 20)));
}

#[test]
fn settings_that_are_held_fast_stay() {
    let problem = problem_of("tiny", "1GiB", &[("tensor", 2), ("zero", 2), ("recompute", 2)]);
    for (candidate, _) in tuned(&problem, 1).best {
        let Candidate { layout, keeping, .. } = candidate;
        assert_eq!((layout.tensor, keeping.zero, keeping.recompute.word()), (2, 2, "full"));
        assert_eq!(layout.rows * layout.microbatches * layout.data, 8);
    }
    let none = problem_of("tiny", "1GiB", &[("tensor", 3)]);
    assert!(space(&none).layouts.is_empty());
    let refused = space(&problem_of("tiny", "1GiB", &[])).refused;
    let words: Vec<String> = refused.iter().map(|one| format!("{}: {}", one.what, one.reason)).collect();
    assert_eq!(words, ["tensor = 4: they would not fill nodes of 2 devices evenly"]);
}

/// A target that trains is counted as it runs: bounds leave nothing out, and what is written is the program that runs.
#[test]
fn what_trains_is_found_as_it_runs() {
    let schedules = ["1f1b", "zb_h1", "chimera"].map(str::to_owned).to_vec();
    let asked = TuneRequest { schedules, ..TuneRequest::default() };
    let held: &[(&str, i64)] = if takes_all() { &[] } else { &[("rows", 1), ("recompute", 0)] };
    let problem = problem_with("trained", "60KiB", held, asked).expect("a problem");
    assert_eq!((problem.batch, problem.n_layers()), (8, 6));
    let (all, found) = (exhaustive(&problem), tuned(&problem, 2));
    assert_eq!(pairs(&found), best_of(&problem, &all));
    assert!(!found.best.is_empty() && found.is_complete);
    let is_small = |taken: &Result<StepTime, String>| taken.as_ref().is_ok_and(|taken| taken.fits(&problem));
    assert!(
        all.iter().any(|(_, taken)| taken.is_ok() && !is_small(taken)),
        "some do not fit: {:?}",
        found.best.first()
    );
    // Random data is drawn by microbatch, so it depends on their rows.
    let mut learned: BTreeMap<u64, f64> = BTreeMap::new();
    for (candidate, taken) in &found.best {
        let source = candidate.source(&problem, "Found.");
        assert!(
            source.starts_with("// Found.")
                && !source.contains("other")
                && !source.contains("\n\n    ")
                && source.contains("// of each"),
            "{source}"
        );
        let (compilation, _) = analysis(&problem, &source, "best.pipe");
        let program = Arc::new(compilation.program.unwrap_or_else(|| panic!("{source}")));
        let mut run = start(&program, None);
        let reports = steps(&mut run, 0..3);
        assert_peaks(run.program(), &reports);
        let peak = program.program().devices.iter().map(|device| device.peak).max();
        assert_eq!(peak, Some(taken.bytes), "{source}");
        let last = losses(&reports).pop().expect("three steps");
        let loss = last.iter().map(|(_, loss)| f64::from_bits(*loss)).sum::<f64>() / last.len() as f64;
        let first = *learned.entry(candidate.layout.rows).or_insert(loss);
        assert!((loss - first).abs() < 1e-4, "{source}\n{loss} and {first}");
    }
}

#[test]
fn what_cannot_be_written_is_refused() {
    let refused = |held: &[(&str, i64)]| {
        let found = problem_with("trained", "1GiB", held, TuneRequest::default()).expect_err("refused");
        found.into_iter().next().expect("an error").message
    };
    assert_eq!(
        refused(&[("sequence", 16)]),
        "`sequence` is set to 16 from outside, and what is written would not say it"
    );
}
