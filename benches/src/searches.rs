//! Cases for the search: what is to be ordered, what others published for it, and what the search must reach.

use crate::jobs::{bound, stages, tessel};
use pipe_compiler::Request;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::job::{Job, Time};
use pipe_schedule::dispatch::plan::Plan;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::policy::activation::ActivationError;
use pipe_schedule::timing::costs::StageCosts;
use pipe_schedule::units::{Units, parse_decimal};
use pipe_search::driver::run::{Prepared, prepare};
use pipe_search::{Options, Progress, Workers, search};
use pipe_syntax::source::{Source, Sources};
use pipe_syntax::stdlib;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The published figures for one stage per device (arXiv 2401.10241, Table 5).
const ZERO_BUBBLE: &str = include_str!("../../tests/data/zb_table5.json");

/// What its list schedules give for the rest.
const RECOMPUTED: &str = include_str!("../../tests/data/zb_recomputed.json");

/// What is to be ordered.
enum Question {
    /// A standard schedule's placement, with settings, costs, what activations count, and units of memory.
    Standard {
        name: &'static str,
        devices: usize,
        microbatches: usize,
        costs: String,
        shares: &'static str,
        memory: String,
    },
    /// A job by itself.
    Job(Job),
}

/// What the figure of a case is.
#[derive(Clone, Copy)]
pub enum Figure {
    /// A length.
    Length(Objective),
    /// The idle share, for so much work.
    Bubble {
        /// The busy time of each device.
        work: f64,
        /// Of what.
        objective: Objective,
    },
}

/// A line of the table.
pub struct Case {
    /// The part of the table that it belongs to.
    pub part: &'static str,
    /// Which case.
    pub name: String,
    question: Question,
    /// In what the other figures are.
    pub figure: Figure,
    /// The best that others have.
    pub published: Option<f64>,
    /// What must be reached.
    pub target: f64,
}

/// What the search says.
pub struct Answer {
    /// The best.
    pub found: f64,
    /// Nothing is better than this.
    pub bound: f64,
    /// Whether nothing is better than what was found.
    pub proved: bool,
    /// Since the search began.
    pub seconds: f64,
    /// Seconds until the target was reached.
    pub reached: Option<f64>,
}

/// Threads until the time is over.
struct Clock {
    begun: Instant,
    allowed: Duration,
    threads: usize,
}

impl Workers for Clock {
    fn go_on(&self) -> bool {
        self.begun.elapsed() < self.allowed
    }

    fn each(&self, n: usize, work: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let run = || {
            let index = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < n);
            std::iter::from_fn(index).for_each(work);
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(n) {
                scope.spawn(run);
            }
            run();
        });
    }
}

impl Figure {
    fn of(self, length: f64) -> f64 {
        match self {
            Self::Length(_) => length,
            Self::Bubble { work, .. } => 1.0 - work / length,
        }
    }

    const fn objective(self) -> Objective {
        match self {
            Self::Length(objective) | Self::Bubble { objective, .. } => objective,
        }
    }
}

impl Case {
    /// Whether a figure is as good as the target, in as many digits as were published.
    pub fn is_reached(&self, found: f64) -> bool {
        let rounding = if matches!(self.figure, Figure::Bubble { .. }) { 0.000_05 } else { 0.0 };
        found <= self.target + rounding
    }

    /// Searches.
    ///
    /// # Errors
    /// If the case is refused, or nothing was found in time.
    pub fn run(&self, allowed: Duration, threads: usize, seed: u64) -> Result<Answer, String> {
        let clock = Clock { begun: Instant::now(), allowed, threads };
        let options = Options { objective: self.figure.objective(), seed, rounds: 12 };
        let mut reached = None;
        let mut note = |length: f64| {
            if reached.is_none() && self.is_reached(self.figure.of(length)) {
                reached = Some(clock.begun.elapsed().as_secs_f64());
            }
        };
        let (found, length, bound) = match &self.question {
            Question::Job(job) => {
                let found = search(job, bound(job), &(), options, &clock, &mut |now| note(now.length as f64));
                let found = found.ok_or("nothing was found in time")?;
                (found.length == found.bound, found.length as f64, found.bound as f64)
            }
            Question::Standard { .. } => {
                let prepared = self.question.prepared(options.objective)?;
                let units = |time| prepared.problem.ticks(time).0 as f64 / 1e6;
                let found = prepared.search(options, &clock, &mut |now: &Progress| note(units(now.length)));
                let found = found.ok_or("nothing was found in time")?;
                (found.length == found.bound, units(found.length), units(found.bound))
            }
        };
        let seconds = clock.begun.elapsed().as_secs_f64();
        Ok(Answer { found: self.figure.of(length), bound: self.figure.of(bound), proved: found, seconds, reached })
    }
}

impl Question {
    fn prepared(&self, objective: Objective) -> Result<Prepared, String> {
        let Self::Standard { name, devices, microbatches, costs, shares, memory } = self else {
            return Err("a job needs no preparation".to_owned());
        };
        let text = stdlib::schedule(name).ok_or("no such schedule")?.to_owned();
        let mut request = Request::default();
        let settings = [("devices", *devices), ("microbatches", *microbatches)];
        request.choice.settings = settings.map(|(name, value)| (name.to_owned(), value as i64)).to_vec();
        request.costs = Some(StageCosts::parse(costs).map_err(|error| error.to_string())?);
        request.choice.activation = Some(shares.parse().map_err(|error: ActivationError| error.to_string())?);
        request.memory = Some(MemoryLimit::of_all(Units(parse_decimal(memory).ok_or("no number of units")?)));
        let root = Source { name: format!("std:{name}"), text };
        let no_files = |path: &str| Err(path.to_owned());
        let prepared = prepare(&mut Sources::default(), root, &no_files, &request, objective);
        prepared.map_err(|compilation| format!("{:?}", compilation.diagnostics))
    }
}

/// A V of two stages per device, with room for `k` activations of one stage.
fn v(devices: usize, microbatches: usize, k: usize, costs: &str) -> Question {
    let memory = format!("{}.{}", k / 2, k % 2 * 5);
    Question::Standard { name: "v_half", devices, microbatches, costs: costs.to_owned(), shares: "", memory }
}

/// One stage per device.
fn line(devices: usize, microbatches: usize, memory: usize, costs: &str) -> Question {
    let (costs, memory) = (costs.to_owned(), memory.to_string());
    Question::Standard { name: "zb_h1", devices, microbatches, costs, shares: "", memory }
}

impl Question {
    /// The same where activations count something else.
    fn counting(mut self, what: &'static str) -> Self {
        if let Self::Standard { shares, .. } = &mut self {
            *shares = what;
        }
        self
    }
}

/// All lines of the table. Those with stages of unequal costs need a search of their own to compare with: they are left
/// out where they are not wanted.
///
/// # Panics
/// If the published figures cannot be read.
pub fn cases(with_unequal: bool) -> Vec<Case> {
    let makespan = Figure::Length(Objective::Makespan);
    let case = |part, name, question, published, target| Case {
        part,
        name,
        question,
        figure: makespan,
        published: Some(published),
        target,
    };
    let mut cases = Vec::new();
    for (p, m, k, costs, published, target) in [
        (4, 8, 4, [1, 2, 1], 103.0, 90.0),
        (4, 8, 4, [5, 6, 4], 334.0, 321.0),
        (4, 8, 6, [1, 2, 1], 78.0, 74.0),
        (4, 32, 4, [1, 2, 1], 391.0, 334.0),
        (8, 64, 8, [1, 2, 1], 785.0, 616.0),
        (4, 32, 4, [2, 2, 1], 403.0, 403.0),
    ] {
        let [f, b, w] = costs;
        let name = format!("V, p = {p}, m = {m}, k = {k}, {f}:{b}:{w}");
        cases.push(case("V", name, v(p, m, k, &format!("F={f},B={b},W={w}")), published, target));
    }
    let name = "one stage per device, p = 4, m = 8, limit 3, 1:1:1".to_owned();
    cases.push(case("line", name, line(4, 8, 3, "F=1,B=1,W=1"), 37.0, 31.0));
    for (name, memory, published, target) in
        [("V", 4, 46.0, 44.0), ("X", 4, 76.0, 71.0), ("K", 6, 55.0, 52.0), ("M", 6, 60.0, 60.0), ("NN", 6, 76.0, 76.0)]
    {
        let words = format!("Tessel's {name}, memory {memory}");
        cases.push(case("tessel", words, Question::Job(tessel(name, memory)), published, target));
    }
    for (p, all_k) in [(4, vec![4, 6, 8]), (8, vec![8, 12, 16]), (16, vec![12, 20, 32]), (32, vec![24, 44, 64])] {
        for k in all_k {
            let (m, question) = (2 * p, v(p, 2 * p, k, "F=1,B=1,W=1"));
            let target = (6 * m + 6 * p - 3 * k - 1) as f64;
            let name = format!("V, p = {p}, m = {m}, k = {k}, 1:1:1");
            cases.push(Case { published: None, ..case("unit", name, question, 0.0, target) });
        }
    }
    cases.extend(zero_bubble().expect("the published figures"));
    if with_unequal {
        cases.extend(unequal());
    }
    cases
}

/// Vs at unit cost on so many devices, for every memory from V-Min's to V-ZB's.
pub fn survey(p: usize) -> Vec<Case> {
    let case = |k: usize| Case {
        part: "survey",
        name: format!("k = {k}"),
        question: v(p, 2 * p, k, "F=1,B=1,W=1"),
        figure: Figure::Length(Objective::Makespan),
        published: None,
        target: (12 * p + (6 * p - 3 * k).max(3 * p - k) - 1) as f64,
    };
    ((p + 4) / 3 * 2..=2 * p).map(case).collect()
}

/// A row of a table about the zero-bubble paper.
struct Row {
    sizes: (usize, usize),
    /// Of a stage: `F`, `B`, `W`, and of a transfer.
    durations: [u64; 4],
    figures: serde_json::Value,
}

impl Row {
    fn all(text: &str) -> Option<Vec<Self>> {
        let table: serde_json::Value = serde_json::from_str(text).ok()?;
        let row = |row: &serde_json::Value| {
            let number = |name: &str| row[name].as_u64();
            let sizes = (number("devices")? as usize, number("microbatches")? as usize);
            let durations = [number("F")?, number("B")?, number("W")?, number("comm")?];
            Some(Self { sizes, durations, figures: row.clone() })
        };
        table["rows"].as_array()?.iter().map(row).collect()
    }

    /// What waits for `W`: of (34h + 5as) bytes a token in a layer 32h, with hidden 2304, 24 heads,
    /// 1024 tokens; the larger models have 128 in a head.
    fn shares(&self) -> &'static str {
        if self.durations[0] < 20_000 && self.sizes.0 == 8 { "W=48/131" } else { "W=16/37" }
    }

    fn work(&self) -> f64 {
        let [f, b, w, _] = self.durations;
        (self.sizes.1 as u64 * (f + b + w)) as f64
    }

    /// One stage per device and so many activations, or two in a V; what waits for `W` counts as in
    /// the paper, if wanted. Against a figure that is published or not.
    fn case(&self, part: &'static str, limit: Option<usize>, shares: &'static str, figure: (f64, bool)) -> Case {
        let ((p, m), [f, b, w, c]) = (self.sizes, self.durations);
        let half = |time: u64| format!("{}.{}", time / 2, time % 2 * 5);
        let words = if shares.is_empty() { String::new() } else { format!(", {}", shares.replace('=', " ")) };
        let (name, question) = match limit {
            Some(limit) => {
                let question = line(p, m, limit, &format!("F={f},B={b},W={w},comm={c}"));
                (format!("p = {p}, m = {m}, limit {limit}, F = {f}{words}"), question)
            }
            None => {
                let question = v(p, m, 2 * p, &format!("F={},B={},W={},comm={c}", half(f), half(b), half(w)));
                (format!("V, p = {p}, m = {m}, limit {p}, F = {f} / 2{words}"), question)
            }
        };
        let objective = if part == "zb-makespan" { Objective::Makespan } else { Objective::LongestStage };
        Case {
            part,
            name,
            question: question.counting(shares),
            figure: Figure::Bubble { work: self.work(), objective },
            published: Some(figure.0).filter(|_| figure.1),
            target: figure.0,
        }
    }
}

/// Against ZB-1p, ZB-2p and ZB-V, by the idle share of the longest span and of the whole step. By
/// the longest span once all of an activation waits for `W`, once as much as the paper counts.
/// What is not published is recomputed.
fn zero_bubble() -> Option<Vec<Case>> {
    let mut cases = Vec::new();
    let published = Row::all(ZERO_BUBBLE)?;
    for row in &published {
        for (part, shares) in [("zb", ""), ("zb-paper", row.shares())] {
            for (limit, name) in [(row.sizes.0, "zb_1p_published"), (2 * row.sizes.0, "zb_2p_published")] {
                cases.push(row.case(part, Some(limit), shares, (row.figures[name].as_f64()?, true)));
            }
        }
    }
    for row in Row::all(RECOMPUTED)? {
        let figure = |objective: &str, name: &str| row.figures[objective][name].as_f64();
        let is_published = published.iter().any(|other| (other.sizes, other.durations) == (row.sizes, row.durations));
        for (limit, name) in [(row.sizes.0, "zb_1p"), (2 * row.sizes.0, "zb_2p")] {
            for (part, shares) in [("zb", ""), ("zb-paper", row.shares())].into_iter().filter(|_| !is_published) {
                cases.push(row.case(part, Some(limit), shares, (figure("longest_stage", name)?, false)));
            }
            cases.push(row.case("zb-makespan", Some(limit), row.shares(), (figure("makespan", name)?, false)));
        }
        // Of ZB-V, one figure is.
        let is_known = (row.sizes, row.durations[0]) == ((8, 24), 18_522);
        let (part, figure) =
            (|shares: &str| if shares.is_empty() { "zb" } else { "zb-v" }, figure("longest_stage", "zb_v")?);
        let all = ["", row.shares()].into_iter().filter(|shares| !shares.is_empty() || row.sizes == (8, 24));
        cases.extend(all.map(|shares| row.case(part(shares), None, shares, (figure, is_known))));
    }
    Some(cases)
}

/// Stages of unequal costs, against the best schedule for equal costs with as much memory, run with the real ones: 3%
/// better.
fn unequal() -> Vec<Case> {
    let mut cases = Vec::new();
    let p = 4;
    type Durations = fn(usize, usize) -> [Time; 3];
    let kinds: [(&str, Durations); 3] = [
        ("a device 1.3 times slower", |device, _| if device == 1 { [13, 13, 13] } else { [10, 10, 10] }),
        ("a last stage 1.5 times as long", |_, stage| if stage == 7 { [15, 15, 15] } else { [10, 10, 10] }),
        ("layers that alternate", |_, stage| if stage % 2 == 0 { [8, 8, 8] } else { [12, 12, 12] }),
    ];
    for (words, durations) in kinds {
        let device = |stage: usize| stage.min(2 * p - 1 - stage);
        let own: Vec<_> = (0..2 * p).map(|stage| (device(stage), durations(device(stage), stage))).collect();
        let equal: Vec<_> = own.iter().map(|(device, _)| (*device, [10, 10, 10])).collect();
        let (m, k) = (16, 6);
        let (own, equal) = (stages(&own, m, k), stages(&equal, m, k));
        let alone = Clock { begun: Instant::now(), allowed: Duration::from_secs(600), threads: 1 };
        let options = Options { objective: Objective::Makespan, seed: 1, rounds: 1 };
        let found = search(&equal, 0, &(), options, &alone, &mut |_| ());
        let plan = found.and_then(|found| Plan::new(&own, Objective::Makespan, &found.orders));
        let Some(best) = plan.map(|(_, length)| length.length) else { continue };
        cases.push(Case {
            part: "unequal",
            name: format!("V, p = {p}, m = {m}, k = {k}, {words}"),
            question: Question::Job(own),
            figure: Figure::Length(Objective::Makespan),
            published: Some(best as f64),
            target: (best as f64 / 1.03).floor(),
        });
    }
    cases
}
