//! From a judged target to what the search orders, and back.

use crate::Progress;
use crate::bounds::first_device::least_span;
use crate::bounds::idle::least_with_pauses;
use crate::emit::lists::set_places;
use crate::emit::slots::slots;
use crate::emit::steady::steady;
use pipe_compiler::analyze::Analysis;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::TaskKind;
use pipe_schedule::bounds::{least_work, lower_bound};
use pipe_schedule::check::check;
use pipe_schedule::dependencies::Dependencies;
use pipe_schedule::dispatch::Objective;
use pipe_schedule::dispatch::job::{Job, Mention, Orders, Time};
use pipe_schedule::dispatch::plan::Plan;
use pipe_schedule::dispatch::scale::Scale;
use pipe_schedule::memory_limit::MemoryLimit;
use pipe_schedule::policy::activation::Activations;
use pipe_schedule::policy::recompute::recomputing;
use pipe_schedule::schedule::Schedule;
use pipe_schedule::stage_graph::StageGraph;
use pipe_schedule::timing::durations::Costs;
use pipe_schedule::timing::timeline::simulate;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::{Code, Diagnostic};

/// Tasks that are timed to find out which stages may fuse their backwards: the caller waits for it, after its time.
const TASKS_OF_MERGING: usize = 4_000_000;

/// A target without its order.
#[derive(Clone, Debug)]
pub struct Problem {
    /// What is to be ordered.
    pub job: Job,
    /// The unit of its times.
    pub scale: Scale,
    /// No schedule with as much memory is shorter.
    pub bound: Time,
    /// The target, with the order that it came with.
    pub schedule: Schedule,
    /// What its tasks take.
    pub costs: Costs,
    /// What a unit of these is called, where it has a name.
    pub unit: Option<&'static str>,
    /// What is to be short.
    pub objective: Objective,
    /// Whether a forward and a backward may take less if they share their device. Nothing that is
    /// found has such pairs, so bounds hold for schedules with pairs only as far as they do not
    /// come from looking for schedules.
    pub pairs_pay: bool,
    /// Whether the step ends with its tasks: else gradients are exchanged or state is copied, which
    /// no length here counts.
    pub ends_with_tasks: bool,
    /// What stages hold of a microbatch at least, in parts of activations or in bytes.
    pub held: Activations,
    /// No device may hold more, in the same.
    pub memory: Vec<u64>,
}

/// Takes the order away from a target. Without a limit, devices may hold as much as the fullest one does in the target.
/// Fails if its tasks cannot be searched, or no order fits in the memory.
pub(crate) fn problem(
    analysis: &Analysis,
    memory: Option<&MemoryLimit>,
    objective: Objective,
) -> Result<Problem, Diagnostic> {
    let schedule = &analysis.schedule;
    // With parts, stages on several devices are no chain of parts.
    let is_chain = if schedule.parts.is_empty() {
        schedule.graph.is_chain()
    } else {
        schedule.graph == schedule.parts.graph(&StageGraph::chain(schedule.n_whole_stages()))
    };
    let says_graph = !is_chain && !analysis.has_model();
    let refused = says_graph.then_some((
        "it says itself which stages read which",
        "`search` writes schedules for chains of stages and for models: leave `reads` out, or name a model",
    ));
    if let Some((reason, help)) = refused.or_else(|| unsearchable(schedule, &analysis.costs)) {
        let message = format!("the search cannot order `{}`: {reason}", schedule.name);
        return Err(Diagnostic::error(Code::CannotSearch, schedule.placement_span, "this schedule", message).help(help));
    }
    let most = analysis.peaks.iter().map(|peak| peak.activations).max().unwrap_or_default();
    if let Some(error) = memory.and_then(|limit| limit.miscounted(schedule)) {
        return Err(error);
    }
    let parts = memory.map_or_else(|| vec![most; schedule.n_devices()], |limit| limit.activations(schedule));
    let scale = Scale::new(&analysis.costs, schedule.n_tasks() * 2);
    // More than all activations together, but not so much that sums of it overflow.
    let all = schedule.activations.most().saturating_mul(schedule.n_tasks() as u64).cast_signed();
    let held = |allowed: &u64| i64::try_from(*allowed).unwrap_or(i64::MAX).min(all);
    let job = Job::new(schedule, &analysis.costs, &scale, parts.iter().map(held).collect());
    if let Some((device, least)) = too_little(&job) {
        let needs = schedule.units(least);
        let message = format!(
            "{device} needs {} for a single microbatch, and {} are allowed",
            needs.words(),
            memory.map_or_else(|| schedule.units(most), |limit| limit.of(device))
        );
        let error = Diagnostic::error(Code::MemoryExceeded, schedule.placement_span, "stages live here", message);
        return Err(error.help(format!("allow at least `--memory {needs}`, or place fewer stages on {device}")));
    }
    let (schedule, costs) = (schedule.clone(), analysis.costs.clone());
    let pairs_pay = pairs_pay(&costs);
    let offloads = analysis.pipeline.as_ref().is_some_and(|pipeline| pipeline.offload.any());
    let ends_with_tasks = analysis.timeline.reduced.is_none() && !offloads;
    let (held, memory) = (schedule.activations.clone(), parts);
    let unit = analysis.unit;
    let mut problem =
        Problem { job, scale, bound: 0, schedule, costs, unit, objective, pairs_pay, ends_with_tasks, held, memory };
    problem.set_bound();
    Ok(problem)
}

/// Why a schedule cannot be searched, and what to do about it.
fn unsearchable(schedule: &Schedule, costs: &Costs) -> Option<(&'static str, &'static str)> {
    let help = "every stage must have the same devices for all microbatches, which must be alike and end with a flush";
    if schedule.placement.period() > 1 {
        return Some(("it has a stage whose microbatches run on different devices", help));
    }
    if schedule.slices.count() > 1 {
        return Some(("its microbatches are cut into slices", help));
    }
    if !schedule.swaps.is_empty() {
        return Some(("it evicts activations", "leave `evict` and `fetch` out: the search counts all on the devices"));
    }
    if !schedule.carried.is_empty() {
        return Some(("its transfers take turns on a lane", "leave `send` and `reduce` out of the line `lane`"));
    }
    if !schedule.step_tasks.is_empty() {
        return Some((
            "it places sums of gradients or updates",
            "leave `reduce` and `update` out: sums follow by themselves",
        ));
    }
    if !schedule.recomputed_microbatches().is_empty() {
        let help = "leave that out, and let the search choose stages that recompute with `--may-recompute`";
        return Some(("some of its stages recompute only some microbatches", help));
    }
    if costs.differ() {
        let help = "search with costs of kinds or stages alone, as in `--cost F=1,B=1,W=1,F[0]=1.5`";
        return Some(("its microbatches differ in how long they take", help));
    }
    schedule.window.as_ref().map(|_| ("its steps follow each other without a flush", help))
}

/// Whether some forward and backward take less if they share a device.
fn pairs_pay(costs: &Costs) -> bool {
    let longest = |kind: TaskKind| costs.tasks.iter().map(|stage| stage[kind.index()]).max().unwrap_or_default();
    let pays = |kind: TaskKind| {
        costs.pairs[kind.index()].is_some_and(|pair| pair < longest(TaskKind::Forward) + longest(kind))
    };
    TaskKind::ALL.into_iter().any(pays)
}

/// A warning where a target's pairs are left out.
pub(crate) fn without_pairs(problem: &Problem, makespan: Ticks) -> Option<Diagnostic> {
    let schedule = &problem.schedule;
    let n_pairs = schedule.orders.iter().flatten().filter(|scheduled| scheduled.with_next).count();
    if n_pairs == 0 && !problem.pairs_pay {
        return None;
    }
    let message = match n_pairs {
        0 => "the search lets no two tasks share a device, and by the costs some pairs would pay".to_owned(),
        _ => format!("the search lets no two tasks share a device, as {n_pairs} pairs of `{}` do", schedule.name),
    };
    let warning = Diagnostic::warning(Code::PairsLeftOut, schedule.span, "ordered without pairs", message);
    let as_it_is = format!("as it is, `{}` takes {makespan}", schedule.name);
    Some(warning.note(as_it_is).help("compare both, or write `&` between tasks of what is found"))
}

/// A device that cannot hold what one microbatch takes there, with that.
fn too_little(job: &Job) -> Option<(DeviceId, u64)> {
    job.on_device.iter_ids().find_map(|(device, all)| {
        // Forwards first, then each stage's backward: whoever recomputes holds one after the other.
        let held = all.iter().scan(0, |held, series| {
            *held += job.series[*series].takes;
            Some(*held)
        });
        let most = held.max().unwrap_or(0);
        (most > job.capacity[device]).then(|| (device, most.unsigned_abs()))
    })
}

/// No schedule has a shorter longest span.
fn least_stage(job: &Job) -> Time {
    let work = job.work() * job.microbatches as Time;
    work.max(least_span(job)).max(least_with_pauses(job))
}

impl Problem {
    /// Sets the lower bound for this memory.
    pub fn set_bound(&mut self) {
        // What takes as long as some device does is no shorter.
        let longest_stage = if self.is_narrow() {
            self.scale.at_least(least_work(&self.schedule, &self.forms(), &self.costs))
        } else {
            least_stage(&self.job.relaxed())
        };
        self.bound = match self.objective {
            Objective::Makespan => self.scale.at_least(self.makespan_bound()).max(longest_stage),
            Objective::LongestStage => longest_stage,
        };
    }

    /// The lower bound on the makespan for this memory, in the unit of the costs.
    pub fn makespan_bound(&self) -> Ticks {
        let memory = (&self.held, self.memory.as_slice());
        lower_bound(&self.schedule, &self.forms(), &self.costs, memory).makespan
    }

    /// Backwards in either form, where both may pay.
    fn forms(&self) -> Dependencies {
        let may_fuse = |stage| self.pairs_pay || self.costs.saved_by_fusing(stage) > Ticks::ZERO;
        let dependencies = Dependencies::of_either(&self.schedule.graph, self.schedule.n_microbatches, may_fuse);
        dependencies.with_recomputation(recomputing(&self.schedule)).with_frozen(&self.schedule.frozen)
    }

    /// No schedule is shorter, with pairs or without.
    pub fn bound(&self, found: &Progress) -> Time {
        if self.is_narrow() { self.bound.min(found.bound) } else { found.bound }
    }

    /// Whether the search leaves out schedules that could be shorter. If so, an exhaustive search proves nothing about
    /// them, and only general bounds hold. It leaves out pairs, and other orders of parts with one name.
    fn is_narrow(&self) -> bool {
        self.pairs_pay || self.schedule.parts.has_several_of_a_name()
    }

    /// Whether nothing is shorter than what was found. Where costs are too large to be counted exactly, nobody knows.
    pub fn is_proved(&self, found: &Progress) -> bool {
        self.scale.is_exact && self.bound(found) == found.length
    }

    /// What lengths are.
    pub fn words(&self) -> String {
        let of = if self.ends_with_tasks { "" } else { " of the tasks" };
        format!("{}{of}", self.objective.words())
    }

    /// A length in the unit of the costs.
    pub fn ticks(&self, length: Time) -> Ticks {
        self.scale.ticks(length)
    }

    /// The schedule that was found, and what is to be said of its steady state, if it has one. Of a
    /// known schedule that is as short and a block from beginning to end there is no need of
    /// another one. Where it costs nothing, all backwards of a stage run at once.
    pub fn schedule(&self, found: &Progress) -> (Schedule, String) {
        let (job, orders, schedule) = self.written(found);
        let plan = Plan::new(&job, self.objective, &orders);
        let plan = plan.filter(|(plan, _)| self.scale.is_exact && self.is_as_planned(&schedule, plan));
        let steady = plan.and_then(|(plan, _)| steady(&plan));
        let words = steady.map(|steady| steady.words(&job, &self.schedule, |time| self.ticks(time).to_string()));
        (schedule, words.unwrap_or_default())
    }

    /// The same with the length of the schedule that is written of it: backwards that run at once may have
    /// made it shorter, and lists of devices with lanes longer.
    pub(crate) fn measured(&self, found: Progress) -> Progress {
        let (job, orders, schedule) = self.written(&found);
        let length = if schedule.parts.any_on_lanes() {
            self.length_of_lists(&schedule).unwrap_or(Time::MAX)
        } else {
            self.length((&job, &orders)).map_or(found.length, |length| length.min(found.length))
        };
        debug_assert!(found.bound <= length, "a bound of {} passes for a proof of {length}", found.bound);
        Progress { length, bound: found.bound.min(length), ..found }
    }

    fn length(&self, (job, orders): (&Job, &Orders)) -> Option<Time> {
        Plan::new(job, self.objective, orders).map(|(_, length)| length.length)
    }

    /// Whether all tasks of a schedule start when the plan says. A list with lanes may delay some.
    fn is_as_planned(&self, schedule: &Schedule, plan: &Plan<'_>) -> bool {
        if !schedule.parts.any_on_lanes() {
            return true;
        }
        let Ok(order) = check(schedule) else { return false };
        let starts = simulate(schedule, &order, &self.costs).starts;
        plan.orders
            .iter()
            .zip(&starts)
            .all(|(tasks, starts)| tasks.iter().map(|task| self.ticks(plan.starts[*task])).eq(starts.iter().copied()))
    }

    /// The length of a schedule with lanes. Its lists may add waits that the plan does not have.
    fn length_of_lists(&self, schedule: &Schedule) -> Option<Time> {
        let timeline = simulate(schedule, &check(schedule).ok()?, &self.costs);
        Some(self.scale.of(match self.objective {
            Objective::Makespan => timeline.makespan(),
            Objective::LongestStage => timeline.longest_stage(),
        }))
    }

    fn written(&self, found: &Progress) -> (Job, Orders, Schedule) {
        let written = |(job, orders): (Job, Orders)| {
            let mut tasks = job.tasks(&orders);
            if self.schedule.parts.any_on_lanes()
                && let Some((plan, _)) = Plan::new(&job, self.objective, &orders)
            {
                set_places(&mut tasks, &plan, self.schedule.n_devices());
            }
            let schedule = Schedule { orders: tasks, block: None, reorder: None, ..self.schedule.clone() };
            (job, orders, Schedule { name: "found".to_owned(), ..schedule })
        };
        let (job, orders) = self.merged(&found.orders);
        let least = self.length((&job, &orders));
        let is_as_short = |(job, orders): &(Job, Orders)| self.length((job, orders)) <= least;
        let known = found.known.iter().flat_map(|orders| [self.merged(orders), (self.job.clone(), orders.clone())]);
        let block = known.filter(is_as_short).map(written).find(|(_, _, schedule)| slots(schedule).is_some());
        block.unwrap_or_else(|| written((job, orders)))
    }

    /// Orders of a job in which all stages may fuse their backwards that lose no time by it, and
    /// where fusing all of those of a stage makes nothing longer, it does.
    fn merged(&self, orders: &Orders) -> (Job, Orders) {
        let halves =
            |stage| self.costs.of(TaskKind::BackwardInput, stage) + self.costs.of(TaskKind::BackwardWeight, stage);
        let both = |stage| self.costs.of(TaskKind::Backward, stage);
        let is_known = |stage| self.job.fusions.iter().any(|fusion| self.job.series[fusion.first].stage == stage);
        let may_fuse = |stage| both(stage) <= halves(stage) || is_known(stage);
        let fusions = self.job.backwards(may_fuse, |stage| self.scale.of(both(stage)));
        let job = self.job.clone().with_fusions(fusions);
        let mention = |mention: &Mention| match *mention {
            Mention::Fusion(fusion) => {
                job.fusion_from(self.job.fusions[fusion].first).map_or(*mention, Mention::Fusion)
            }
            Mention::Series(_) => *mention,
        };
        let mut orders: Orders = orders.iter().map(|order| order.iter().map(mention).collect()).collect();
        let length = |orders: &Orders| Plan::new(&job, self.objective, orders).map(|(_, length)| length.length);
        let Some(limit) = length(&orders) else { return (job, orders) };
        let is_no_longer = |orders: &Orders| length(orders).is_some_and(|length| length <= limit);
        let all = job.fused(&orders, |_| true);
        if is_no_longer(&all) {
            return (job, all);
        }
        for fusion in job.fusions.ids().take(TASKS_OF_MERGING / job.n_tasks().max(1)) {
            let candidate = job.fused(&orders, |other| other == fusion);
            if candidate != orders && is_no_longer(&candidate) {
                orders = candidate;
            }
        }
        (job, orders)
    }
}
