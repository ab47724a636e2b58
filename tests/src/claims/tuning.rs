//! What `tune` says of small models on small random clusters, against every candidate in every order of the nodes.
//!
//! `tune` claims that its first rows are the best, that nothing that may fit is below its lower bound, and,
//! where it says that it is complete, that nothing that was pruned can be faster. `check` prints what single
//! candidates take, and `check --map` claims that no order of the nodes of one is shorter.

use crate::schedules::Dice;
use crate::team::team;
use pipe_compiler::cluster::Cluster;
use pipe_compiler::mapping::{Options, steps};
use pipe_compiler::{Request, elaborate};
use pipe_ir::units::Bytes;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::timing::costs::StageCosts;
use pipe_schedule::units::Ticks;
use pipe_search::tune::{
    Candidate, Problem, StepTime, TuneRequest, TuneResult, analysis, exhaustive, problem, space, tune,
};
use pipe_syntax::source::{Source, Sources};
use std::collections::BTreeMap;

/// Rows that are asked for.
const BEST: usize = 5;
/// Rows, and other candidates, whose source is judged by `check`.
const JUDGED: usize = 2;

/// Limits to the byte that a problem is also given.
const LIMITS: usize = 3;
/// How many of the shortest those are from.
const SHORT: usize = 40;

/// Candidates in all orders of their nodes, with what they take.
type All = [(Candidate, Result<StepTime, String>)];

/// What became of some problems.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Problems.
    pub problems: usize,
    /// Candidates, in every order of their nodes.
    pub candidates: usize,
    /// Candidates whose bytes depend on the order of the nodes.
    pub differ: usize,
    /// Candidates that `check` printed the same of.
    pub checked: usize,
    /// Problems of which it was said that nothing that was pruned can be faster.
    pub complete: usize,
    /// Rows that were called final.
    pub rows: usize,
    /// Claims of `check --map` that no order of nodes is shorter.
    pub mapped: usize,
    /// What speaks against a claim.
    pub failures: Vec<String>,
}

impl Counts {
    /// Adds those of other problems.
    pub fn add(&mut self, other: Self) {
        self.problems += other.problems;
        self.candidates += other.candidates;
        self.differ += other.differ;
        self.checked += other.checked;
        self.complete += other.complete;
        self.rows += other.rows;
        self.mapped += other.mapped;
        self.failures.extend(other.failures);
    }
}

fn one<'a>(dice: &mut Dice, all: &[&'a str]) -> &'a str {
    all[dice.below(all.len())]
}

/// A `cluster.toml` with so many nodes, whose devices have so much memory.
fn cluster(dice: &mut Dice, (nodes, per_node): (usize, usize), memory: &str) -> String {
    let rates = ["0.05", "0.2", "1", "4"];
    let is_even = dice.below(5) == 0;
    let first = one(dice, &rates);
    let mut rate = |own: usize, other: usize| match own == other {
        true => "\"-\"",
        false if is_even => first,
        false => one(dice, &rates),
    };
    let row = |own: usize| format!("[{}]", (0..nodes).map(|other| rate(own, other)).collect::<Vec<_>>().join(", "));
    let rows: Vec<String> = (0..nodes).map(row).collect();
    let inside: Vec<String> = (0..nodes).map(|_| format!("\"{}GB/s\"", one(dice, &["4", "10"]))).collect();
    let inside = if dice.below(2) == 0 { inside[0].clone() } else { format!("[{}]", inside.join(", ")) };
    let between = match nodes {
        1 => "\"1GB/s\"".to_owned(),
        _ => format!("{{ unit = \"GB/s\", rows = [{}] }}", rows.join(", ")),
    };
    let host = one(dice, &["", "", "[host]\nmemory = \"1GiB\"\nbandwidth = \"3GB/s\"\n"]);
    let latency = one(dice, &["0us", "10us", "200us"]);
    format!(
        "nodes = {nodes}\ndevices = {per_node}\ndevice = {{ memory = \"{memory}\", flops = \"1TFLOPS\" }}\n{host}\
         [links.node]\nbandwidth = {inside}\nlatency = \"2us\"\n[links.cluster]\nbandwidth = {between}\nlatency = \"{latency}\"\n"
    )
}

/// Schedules that are reordered for the costs at hand, and others.
const REORDERED: [&str; 4] = ["v_half", "v_min", "zb_v", "v_zb"];
const OTHERS: [&str; 10] =
    ["1f1b", "gpipe", "eager_1f1b", "zb_h1", "zb_h2", "1f1b_v", "interleaved_1f1b", "hanayo", "chimera", "dualpipe_v"];

/// A random problem, with the texts that it is from.
fn random(dice: &mut Dice) -> (Result<Problem, String>, String) {
    let sizes = [(1, 2), (2, 1), (2, 2), (3, 1), (3, 1), (3, 2), (4, 1), (4, 1), (5, 1)][dice.below(9)];
    let layers = sizes.0 * sizes.1 * (1 + dice.below(2)) + dice.below(3);
    let has_experts = dice.below(8) == 0;
    let hidden = [64, 128, 256][dice.below(3)];
    let (kind, experts) = match has_experts {
        true => ("mixtral", ", \"num_local_experts\": 2, \"num_experts_per_tok\": 1"),
        false => ("llama", ""),
    };
    let vocabulary = [500, 2000][dice.below(2)];
    let config = format!(
        "{{\"model_type\": \"{kind}\", \"hidden_size\": {hidden}, \"intermediate_size\": {}, \"num_hidden_layers\": {layers}, \
         \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": {vocabulary}{experts}}}",
        2 * hidden,
    );
    // About what the state of all weights takes, evenly divided, and some more.
    let state = 16 * (9 * layers * hidden * hidden + 2 * vocabulary * hidden) / (sizes.0 * sizes.1);
    let more = [0, 11, 13, 15, 18, 22, 30, 50][dice.below(8)];
    let memory = if more == 0 { "1GiB".to_owned() } else { format!("{}KiB", (state * more / 10) >> 10) };
    let machines = cluster(dice, sizes, &memory);
    let flash = dice.below(2);
    let target = format!(
        "pipeline x {{\n    model \"x.json\"(sequence = 64, flash = {flash})\n    devices {}\n    microbatches 4\n    schedule 1f1b\n}}\n",
        sizes.0
    );
    let n_schedules = 1 + dice.below(3);
    let mut schedule = |_| {
        let is_reordered = dice.below(2) == 0;
        one(dice, if is_reordered { &REORDERED } else { &OTHERS }).to_owned()
    };
    let schedules: Vec<String> = (0..n_schedules).map(&mut schedule).collect();
    let mut settings: Vec<(String, i64)> = Vec::new();
    // Of many nodes there are many orders: less of the rest is free.
    let many = sizes.0 > 3;
    let mut hold = |name: &str, value: usize, is_held: bool| {
        settings.extend(is_held.then(|| (name.to_owned(), value as i64)));
    };
    hold("devices", sizes.0 * sizes.1, sizes.0 > 4 || dice.below(4) == 0);
    hold("recompute", [0, 2][dice.below(2)], many && dice.below(2) == 0 || dice.below(3) == 0);
    hold("zero", 1, many && dice.below(2) == 0 || dice.below(3) == 0);
    hold("rows", 1, many || dice.below(3) == 0);
    let batch = [4, 6, 8][dice.below(3)];
    let costs = one(dice, &["", "", "", "", "F=0.5,B=0.7,W=0.4,BW=1", "F=0.01,B=0.02,W=0.01,BW=0.025"]);
    let memory = one(dice, &["", "", "", "", "", "2.5"]);
    let may_offload = machines.contains("[host]") && dice.below(2) == 0;
    let told = format!(
        "batch {batch}, schedules {schedules:?}, held {settings:?}, costs `{costs}`, memory `{memory}`, may offload: {may_offload}\n\
         {target}{config}\n{machines}"
    );
    let choice = elaborate::Request { settings, ..elaborate::Request::default() };
    let source = Source { name: "x.toml".to_owned(), text: machines };
    let request = Request {
        choice,
        cluster: Some(Cluster::read(source).unwrap_or_else(|wrong| panic!("{:#?}\n{told}", wrong.0))),
        costs: (!costs.is_empty()).then(|| StageCosts::parse(costs).expect("costs")),
        memory: (!memory.is_empty()).then(|| MemoryLimit::parse(memory).expect("a limit")),
        ..Request::default()
    };
    let root = Source { name: "x.pipe".to_owned(), text: target };
    let asked = TuneRequest { batch: Some(batch), schedules, may_offload };
    let read = problem(&mut Sources::default(), root, &|_| Ok(config.clone()), &request, asked);
    (read.map_err(|found| format!("{found:#?}")), told)
}

/// The shortest that fit, each with another layout or schedule, and how long they are.
fn best_of(problem: &Problem, all: &All) -> Vec<Ticks> {
    let mut best: BTreeMap<_, Ticks> = BTreeMap::new();
    for (candidate, taken) in all {
        let Some(taken) = taken.as_ref().ok().filter(|taken| taken.fits(problem)) else { continue };
        let known = best.entry((candidate.layout, candidate.variant.clone())).or_insert(taken.time);
        *known = taken.time.min(*known);
    }
    let mut best: Vec<Ticks> = best.into_values().collect();
    best.sort_unstable();
    best
}

/// Judges the problem of a seed.
#[must_use]
pub fn analysis_of(seed: u64) -> Counts {
    let mut dice = Dice(seed);
    let (problem, told) = random(&mut dice);
    let mut counts = Counts { problems: 1, ..Counts::default() };
    match problem {
        Ok(problem) => with_limits(problem, &mut dice, &mut counts),
        Err(refused) => counts.failures.push(refused),
    }
    counts.failures.iter_mut().for_each(|why| *why = format!("problem {seed}: {why}\n{told}"));
    counts
}

/// Compares a problem as it is, and with memory to the byte: as much as one of the shortest takes, in one
/// of its orders of nodes, or a byte less.
fn with_limits(problem: Problem, dice: &mut Dice, counts: &mut Counts) {
    let all = exhaustive(&problem);
    counts.candidates = all.len();
    compare(&problem, &all, dice, counts);
    // What is away with the hosts depends on what there is.
    if problem.may_offload {
        return;
    }
    let mut short: Vec<StepTime> = all.iter().filter_map(|(_, taken)| taken.clone().ok()).collect();
    short.sort_unstable_by_key(|taken| taken.time);
    short.truncate(SHORT);
    // Which order fits may depend on the order of the nodes.
    let mut each: BTreeMap<_, Vec<Bytes>> = BTreeMap::new();
    for (candidate, taken) in &all {
        let key = (candidate.layout, &candidate.variant, candidate.keeping);
        each.entry(key).or_default().extend(taken.as_ref().ok().map(|taken| taken.bytes));
    }
    let differs = |all: &&Vec<Bytes>| all.iter().min() < all.iter().max();
    let between: Vec<Bytes> = each.values().filter(differs).filter_map(|all| all.iter().min().copied()).collect();
    counts.differ += between.len();
    for _ in 0..LIMITS.min(short.len()) {
        let limit = Bytes(short[dice.below(short.len())].bytes.0 - dice.below(2) as u64);
        let limit = if dice.below(2) == 0 {
            limit
        } else {
            between.get(dice.below(between.len().max(1))).copied().unwrap_or(limit)
        };
        counts.problems += 1;
        compare(&Problem { limit, ..problem.clone() }, &all, dice, counts);
    }
}

fn compare(problem: &Problem, all: &All, dice: &mut Dice, counts: &mut Counts) {
    let found = tune(problem, &space(problem), BEST, &team(1, 1), &mut |_| ());
    let best = best_of(problem, all);
    let limit = problem.limit;
    let rows: Vec<Ticks> = found.best.iter().map(|(_, taken)| taken.time).collect();
    let TuneResult { bound, is_complete, n_final, .. } = found;
    let least = best.first().copied();
    if least.is_some_and(|least| least < bound) {
        counts.failures.push(format!("in {limit}: no candidate is below {bound}, but {least:?} fits"));
    }
    if rows[..n_final] != best[..n_final.min(best.len())] {
        counts.failures.push(format!("in {limit}: the first {n_final} of {rows:?} are final, but {best:?}"));
    }
    if is_complete && rows != best[..best.len().min(BEST)] {
        counts.failures.push(format!("in {limit}: complete: {rows:?}, but {best:?}"));
    }
    counts.complete += usize::from(is_complete);
    counts.rows += n_final;
    let others: Vec<&(Candidate, Result<StepTime, String>)> = all.iter().filter(|(_, taken)| taken.is_ok()).collect();
    let some = (0..JUDGED.min(others.len())).map(|_| others[dice.below(others.len())]);
    let rows = found.best.iter().map(|(candidate, taken)| (candidate, *taken)).take(JUDGED);
    let some = some.filter_map(|(candidate, taken)| Some((candidate, taken.clone().ok()?)));
    let analysis: Vec<(&Candidate, StepTime)> = rows.chain(some).collect();
    for (candidate, taken) in &analysis {
        counts.failures.extend(check(problem, candidate, taken));
        counts.checked += 1;
    }
    if let Some((candidate, _)) = analysis.get(dice.below(analysis.len().max(1))).filter(|_| problem.is_order_free()) {
        counts.failures.extend(map(problem, candidate, all));
        counts.mapped += 1;
    }
}

/// What `check` prints of a candidate.
fn check(problem: &Problem, candidate: &Candidate, taken: &StepTime) -> Option<String> {
    let (compilation, _) = analysis(problem, &candidate.source(problem, ""), "x.pipe");
    let report = &compilation.report;
    let makespan = compilation.analysis.as_ref().map(|analysis| analysis.timeline.makespan());
    let peak = report.per_device.iter().filter_map(|row| row.peak_bytes).max();
    let same = (report.ok, makespan, peak) == (taken.fits(problem), Some(taken.time), Some(taken.bytes.0));
    let printed = (report.ok, makespan, peak);
    (!same).then(|| format!("{candidate:?}: {taken:?}, but check prints {printed:?}"))
}

/// What `check --map` says of it.
fn map(problem: &Problem, candidate: &Candidate, all: &All) -> Option<String> {
    let root = Source { name: "x.pipe".to_owned(), text: candidate.source(problem, "") };
    let loader = |path: &str| problem.load(path);
    let found = steps::map(root, &loader, &problem.request, Options::default(), &mut || true)?;
    let key = |one: &Candidate| (one.layout, one.variant.clone(), one.keeping);
    let same = all.iter().filter(|(other, _)| key(other) == key(candidate));
    let least = same.filter_map(|(_, taken)| Some(taken.as_ref().ok()?.time)).min();
    (found.is_best && least != Some(found.time)).then(|| format!("{candidate:?}: {found:?}, but {least:?}"))
}
