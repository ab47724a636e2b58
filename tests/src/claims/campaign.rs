//! One case of the campaign: what `check` and `search` say of a random target, of other orders of
//! it and of standard schedules.

use super::case::{Case, Family};
use super::machines::{Machines, config, orders as orders_of_nodes};
use super::oracle::{Goal, Scope};
use super::order::{Forms, Item, Orders, Run, random, run, source};
use super::{Claim, Printed, Verdict};
use crate::schedules::Dice;
use crate::team::team;
use pipe_compiler::cluster::Cluster;
use pipe_compiler::mapping::{Options as Mapping, steps};
use pipe_compiler::{Compilation, Request, compile};
use pipe_ir::task::TaskKind;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::timing::costs::StageCosts;
use pipe_search::Options;
use pipe_search::driver::run::prepare;
use pipe_syntax::source::{Source, Sources};
use pipe_syntax::stdlib;

/// Steps with more tasks have too many schedules.
const TASKS: usize = 18;
/// The same where slices, which are not alike, and replicas, which have fewer microbatches each, leave fewer.
const CUT: usize = 24;
/// Attempts to find orders that run in the memory that there is.
const ATTEMPTS: usize = 30;
/// Other orders of the same target.
const OTHERS: usize = 3;
/// Standard schedules with a stage on each device.
const LINE: [&str; 5] = ["gpipe", "1f1b", "eager_1f1b", "zb_h1", "zb_h2"];
/// Standard schedules whose stages go there and back.
const V: [&str; 6] = ["1f1b_v", "v_half", "v_min", "v_zb", "zb_v", "dualpipe_v"];

/// What became of one case.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Targets.
    pub cases: usize,
    /// Schedules for which a command printed figures.
    pub printed: usize,
    /// Claims for which all schedules were tried.
    pub decided: usize,
    /// Claims with too many schedules to try all.
    pub open: usize,
    /// Claims that what was found is optimal.
    pub proved: usize,
    /// Bounds that hold for the forms of backwards that they name, and not for others: so the words are needed.
    pub narrow: usize,
    /// What speaks against a claim or a figure.
    pub failures: Vec<String>,
}

impl Counts {
    /// Adds those of other cases.
    pub fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.printed += other.printed;
        self.decided += other.decided;
        self.open += other.open;
        self.proved += other.proved;
        self.narrow += other.narrow;
        self.failures.extend(other.failures);
    }
}

/// Judges the target of a family and a seed. Looks at so many partial schedules for each claim.
#[must_use]
pub fn analysis(family: Family, seed: u64, patience: usize) -> Counts {
    let mut dice = Dice(seed);
    let case = Case::random(&mut dice, family, if family == Family::Cut { CUT } else { TASKS });
    let all = vec![case.stages() * case.parts(); case.devices];
    let room = case.limits.clone().unwrap_or(all);
    let orders = |dice: &mut Dice| {
        let forms = Forms::random(&case, dice);
        (0..ATTEMPTS).find_map(|_| random(&case, &forms, &room, dice))
    };
    let mut counts = Counts::default();
    let Some(target) = orders(&mut dice) else { return counts };
    counts.cases = 1;
    let text = text(&case, &target);
    let mut said = Said { case: &case, claims: Vec::new(), printed: Vec::new(), failures: Vec::new() };
    said.check(&text, &target);
    for other in (0..OTHERS).filter_map(|_| orders(&mut dice)) {
        said.check(&self::text(&case, &other), &other);
    }
    said.standard();
    if let Some(machines) = &case.machines {
        let (decided, failures) = mapped(&case, machines, &target, &said);
        counts.decided += decided;
        said.failures.extend(failures);
    }
    // Slices and replicas are not searched.
    let objectives = [Objective::Makespan, Objective::LongestStage].into_iter().filter(|_| family != Family::Cut);
    for objective in objectives {
        // Proofs of the first round take long, and differ from those before it.
        counts.proved += usize::from(said.search(&text, objective, u32::from(seed.is_multiple_of(5))));
    }
    let Said { claims, printed, mut failures, .. } = said;
    counts.printed = printed.len();
    for claim in &claims {
        let of_any = Scope { forms: Forms::any(&case), ..claim.scope.clone() };
        let of_any = Claim { scope: of_any, ..claim.clone() };
        counts.narrow += usize::from(matches!(of_any.verdict(&case, &printed, 0), Verdict::False(_)));
        match claim.verdict(&case, &printed, patience) {
            Verdict::True => counts.decided += 1,
            Verdict::Open => counts.open += 1,
            Verdict::False(why) => failures.push(why),
        }
    }
    failures.extend([Goal::Makespan, Goal::LongestStage].into_iter().filter_map(|goal| {
        let scope = Scope { goal, forms: Forms::any(&case), capacity: room.clone() };
        blind(&case, scope, &printed, patience)
    }));
    let told = |why: String| format!("case {seed}: {why}\nthe target, with `{}`:\n{text}", case.options());
    counts.failures = failures.into_iter().map(told).collect();
    counts
}

/// What commands are given.
fn text(case: &Case, orders: &Orders) -> String {
    let own = source(case, orders);
    case.machines.as_ref().map_or(own.clone(), |machines| machines.pipeline(case, "random", &own))
}

/// The brute force is judged as well: it must see a schedule as short as the shortest that was printed.
fn blind(case: &Case, scope: Scope, printed: &[Printed], patience: usize) -> Option<String> {
    let best = printed.iter().map(|one| one.length(scope.goal)).min()?;
    let claim = Claim { by: "nobody".to_owned(), bound: best + 1, scope };
    (claim.verdict(case, &[], patience) == Verdict::True).then(|| format!("{best} is printed, but no orders take it"))
}

/// What `check --map` says of the order of nodes, against all orders. How many claims that is, and what
/// speaks against it.
fn mapped(case: &Case, machines: &Machines, target: &Orders, said: &Said<'_>) -> (usize, Vec<String>) {
    let root = Source { name: "x.pipe".to_owned(), text: text(case, target) };
    let found = steps::map(root, &|path| said.load(path), &said.request(), Mapping::default(), &mut || true);
    let Some(found) = found else { return (0, vec!["check --map: nothing".to_owned()]) };
    let takes = |nodes: &[usize]| {
        let links = machines.links(nodes, case.devices);
        run(&Case { links, ..case.clone() }, target).map(|run| run.makespan)
    };
    let all: Vec<(u64, Vec<usize>)> =
        orders_of_nodes(machines.nodes.len()).into_iter().filter_map(|nodes| Some((takes(&nodes)?, nodes))).collect();
    let own: Vec<usize> = found.nodes.iter().map(|node| *node as usize).collect();
    let mut failures = Vec::new();
    if takes(&own) != Some(found.time.0) || takes(&machines.nodes) != Some(found.before.0) {
        failures.push(format!("check --map: {found:?}, but {:?} from {:?}", takes(&own), takes(&machines.nodes)));
    }
    let least = all.iter().min();
    if !found.is_best || least.is_none_or(|(least, _)| *least < found.time.0) {
        failures.push(format!("check --map: {found:?}, and {least:?}"));
    }
    (1, failures)
}

/// What was said of a case so far.
struct Said<'a> {
    case: &'a Case,
    claims: Vec<Claim>,
    printed: Vec<Printed>,
    failures: Vec<String>,
}

impl Said<'_> {
    fn request(&self) -> Request {
        let Case { devices, microbatches, costs, machines, .. } = self.case;
        let mut request = Request::default();
        match machines {
            Some(machines) => {
                let source = Source { name: "cluster.toml".to_owned(), text: machines.text() };
                request.cluster = Some(Cluster::read(source).expect("a cluster"));
            }
            None => {
                let settings = [("devices", *devices), ("microbatches", *microbatches)];
                request.choice.settings = settings.map(|(name, value)| (name.to_owned(), value as i64)).to_vec();
            }
        }
        request.costs = Some(StageCosts::parse(costs).expect("the costs are well-formed"));
        let memory = self.case.memory();
        request.memory = memory.map(|memory| MemoryLimit::parse(&memory).expect("the limits are well-formed"));
        request
    }

    fn load(&self, path: &str) -> Result<String, String> {
        if path == "model.json" { Ok(config(self.case)) } else { Err(path.to_owned()) }
    }

    fn compiled(&self, name: &str, text: &str, request: &Request) -> Compilation {
        let root = Source { name: name.to_owned(), text: text.to_owned() };
        compile(&mut Sources::default(), root, &|path| self.load(path), request)
    }

    /// What `check` says of an order.
    fn check(&mut self, text: &str, orders: &Orders) {
        let compilation = self.compiled("x.pipe", text, &self.request());
        self.note(&format!("check of\n{text}"), &compilation, Some(orders));
    }

    /// What it says of standard schedules with the same places.
    fn standard(&mut self) {
        let Case { devices, homes, slices, .. } = self.case;
        let is = |home: usize, place: &dyn Fn(usize) -> usize| {
            homes.get(home).is_some_and(|home| home.iter().enumerate().all(|(stage, own)| *own == place(stage)))
        };
        let (stages, is_line) = (self.case.stages(), is(0, &|stage| stage));
        let is_whole = homes.len() == 1 && *slices == 1;
        let turn = |stage: usize| if stage < *devices { stage } else { 2 * devices - 1 - stage };
        let names: &[&str] = match () {
            () if is_whole && is_line && stages == *devices => &LINE,
            () if is_whole && is(0, &turn) && stages == 2 * devices => &V,
            () if homes.len() == 1 && is_line && stages == *devices => &["seq_1f1b"],
            () if *slices > 1 => &[],
            () if is_line && stages == *devices && is(1, &|stage| devices - 1 - stage) => &["chimera"],
            () if is_line && 2 * stages == *devices && is(1, &|stage| stages + stage) => &["dp_1f1b"],
            () => &[],
        };
        for name in names {
            let standard = stdlib::schedule(name).expect("a standard schedule");
            let pipeline = self.case.machines.as_ref().map(|machines| machines.pipeline(self.case, name, ""));
            let text = pipeline.as_deref().unwrap_or(standard);
            let mut request = self.request();
            if *slices > 1 {
                request.choice.settings.push(("slices".to_owned(), *slices as i64));
            }
            let compilation = self.compiled(name, text, &request);
            // Not every one fits, or takes every number of microbatches.
            if compilation.report.ok {
                self.note(&format!("check std:{name}"), &compilation, None);
            }
        }
    }

    /// What `search` finds and says. Whether it says that nothing is shorter.
    fn search(&mut self, text: &str, objective: Objective, rounds: u32) -> bool {
        let name = format!("search --objective {}", objective.name());
        let root = Source { name: "x.pipe".to_owned(), text: text.to_owned() };
        let prepared = match prepare(&mut Sources::default(), root, &|path| self.load(path), &self.request(), objective)
        {
            Ok(prepared) => prepared,
            Err(compilation) => {
                self.failures.push(format!("{name}: {:?}", compilation.diagnostics));
                return false;
            }
        };
        let options = Options { objective, seed: 1, rounds };
        let found = prepared.search(options, &team(1, 30), &mut |_| ()).expect("one microbatch after the other fits");
        let (_, compilation) = prepared.finish(&found, &mut Sources::default(), &|path| self.load(path));
        let Some(printed) = self.print(&name, &compilation, None) else { return false };
        let goal = goal(objective);
        let figures = &compilation.report.figures;
        let (own, most) = (printed.length(goal), self.printed.first().map(|target| target.peaks.iter().max().copied()));
        let most = most.flatten().unwrap_or_default();
        // Machines have room for everything.
        let most = if self.case.machines.is_some() { self.case.stages() * self.case.parts() } else { most };
        let capacity = self.case.limits.clone().unwrap_or_else(|| vec![most; self.case.devices]);
        let is_proved = prepared.is_proved(&found, &compilation);
        let scope = |goal| Scope { goal, forms: Forms::any(self.case), capacity: capacity.clone() };
        let (bound, makespan) = (ticks(figures.lower_bound), ticks(figures.makespan_lower_bound));
        // The report, what stands above the source, and the last line agree: each is about what was written.
        let told = (prepared.problem.ticks(found.length).0, prepared.problem.is_proved(&found));
        if figures.objective != Some(objective.name()) || is_proved != (bound == own) || told != (own, is_proved) {
            let what = figures.objective;
            let proved = format!("bound {bound}, proved optimal: {is_proved}, told {told:?}");
            self.failures.push(format!("{name}: of {what:?} {own}, {proved}"));
        }
        let gap = if bound > 0 { Some(own as f64 / bound as f64 - 1.0) } else { (own == 0).then_some(0.0) };
        let is_gap = |one: (f64, f64)| (one.0 - one.1).abs() < 1e-9;
        if gap.is_some() != figures.gap.is_some() || !gap.zip(figures.gap).is_none_or(is_gap) {
            self.failures.push(format!("{name}: of {own}, bound {bound}, gap {:?}", figures.gap));
        }
        let (own, whole) = (scope(goal), scope(Goal::Makespan));
        self.claims.push(Claim { by: format!("{name}, lower_bound"), bound, scope: own });
        self.claims.push(Claim { by: format!("{name}, makespan_lower_bound"), bound: makespan, scope: whole });
        self.printed.push(printed);
        is_proved
    }

    /// Notes what `check` prints of a schedule, and claims of others.
    fn note(&mut self, name: &str, compilation: &Compilation, orders: Option<&Orders>) {
        let Some(printed) = self.print(name, compilation, orders) else { return };
        let most = printed.peaks.iter().max().copied().unwrap_or_default();
        let limits = self.case.limits.clone().unwrap_or_else(|| vec![most; self.case.devices]);
        let capacity: Vec<usize> = limits.into_iter().map(|limit| limit.min(most)).collect();
        let figures = &compilation.report.figures;
        let goal = Goal::Makespan;
        let forms = if figures.lower_bound_form.is_some() { printed.forms.clone() } else { Forms::any(self.case) };
        let scope = Scope { goal, forms, capacity: capacity.clone() };
        self.claims.push(Claim { by: format!("lower_bound, {name}"), bound: ticks(figures.lower_bound), scope });
        if figures.lower_bound_any_form.is_some() {
            let scope = Scope { goal, forms: Forms::any(self.case), capacity };
            let bound = ticks(figures.lower_bound_any_form);
            self.claims.push(Claim { by: format!("lower_bound_any_form, {name}"), bound, scope });
        }
        self.printed.push(printed);
    }

    /// The figures of a schedule, which must be those that its orders have here.
    fn print(&mut self, name: &str, compilation: &Compilation, orders: Option<&Orders>) -> Option<Printed> {
        let report = &compilation.report;
        let own = compilation.analysis.as_ref().map(orders_of);
        let (Some(own), true) = (own, report.ok) else {
            self.failures.push(format!("{name}: {:?}", compilation.diagnostics));
            return None;
        };
        if orders.is_some_and(|orders| *orders != own) {
            self.failures.push(format!("{name}: read as {own:?}"));
        }
        let makespan = ticks(report.figures.makespan);
        let longest_stage = ticks(report.figures.longest_stage);
        let figures = Run { makespan, longest_stage, peaks: peaks(compilation) };
        let expected = run(self.case, &own);
        if expected.as_ref() != Some(&figures) {
            self.failures.push(format!("{name}: {figures:?}, but {expected:?}"));
        }
        let Run { makespan, longest_stage, peaks } = figures;
        let forms = Forms::of(self.case, &own);
        Some(Printed { by: name.to_owned(), makespan, longest_stage, forms, peaks })
    }
}

const fn goal(objective: Objective) -> Goal {
    match objective {
        Objective::Makespan => Goal::Makespan,
        Objective::LongestStage => Goal::LongestStage,
    }
}

fn ticks(figure: Option<f64>) -> u64 {
    (figure.unwrap_or_default() * super::case::UNIT as f64).round() as u64
}

/// The orders of a schedule.
fn orders_of(analysis: &pipe_compiler::analyze::Analysis) -> Orders {
    let of_device = |order: &Vec<pipe_schedule::schedule::ScheduledTask>| {
        let mut items: Vec<Item> = Vec::new();
        let mut is_second = false;
        for one in order {
            let kind = match one.task.kind {
                TaskKind::BackwardInput => super::case::B,
                TaskKind::BackwardWeight => super::case::W,
                TaskKind::Backward => super::case::BW,
                TaskKind::Forward | TaskKind::Recompute | TaskKind::Update => super::case::F,
            };
            let task = [kind, one.task.stage.index(), one.task.microbatch.index()];
            match items.last_mut().filter(|_| is_second) {
                Some(first) => first.beside = Some(task),
                None => items.push(Item { task, beside: None }),
            }
            is_second = one.with_next;
        }
        items
    };
    analysis.schedule.orders.iter().map(of_device).collect()
}

/// What each device holds at most, in activations of single stages.
fn peaks(compilation: &Compilation) -> Vec<usize> {
    let sizes = &compilation.report.sizes;
    let slices = sizes.slices.unwrap_or(1) as usize;
    let share = (sizes.stages.unwrap_or_default() * slices) as f64 / sizes.devices.unwrap_or(1) as f64;
    let rows = compilation.report.per_device.iter();
    rows.map(|row| (row.peak_activation.unwrap_or_default() * share).round() as usize).collect()
}
