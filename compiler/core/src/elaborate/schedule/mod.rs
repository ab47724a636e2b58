//! One schedule: its parameters, stages and places; its tasks come from `block` or `order`.

mod block;
mod fill;
mod frozen;
mod items;
mod loops;
mod marks;
mod order;
pub(in crate::elaborate) mod parts;
mod period;
mod place;
pub(in crate::elaborate) mod reads;
mod refused_task;
mod run;
mod slices;
mod swap;
mod window;

pub(super) use period::common;

use items::{Body, Items, PlaceLine, items_of, scope_of};
use loops::idle::{self, IdleLoop};
use parts::PipelineParts;
use pipe_ir::ids::DeviceId;
use pipe_ir::task::TaskKind;
use pipe_schedule::parts::StageParts;
use pipe_schedule::placement::Placement;
use pipe_schedule::policy::activation::Activations;
use pipe_schedule::policy::freeze::freeze;
use pipe_schedule::policy::frozen::Frozen;
use pipe_schedule::schedule::{Block, Schedule, ScheduledTask};
use pipe_schedule::slices::Slices;
use pipe_schedule::stage_graph::StageGraph;
use pipe_schedule::step_tasks::StepTasks;
use pipe_schedule::swaps::Swaps;
use pipe_schedule::window::Window;
use pipe_syntax::ast::{self, Expr, Weights};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::expr::arguments::Values;
use pipe_syntax::expr::evaluate::Machine;
use pipe_syntax::expr::scope::{Fault, Resolved, Scope, Type};
use pipe_syntax::files::Files;
use pipe_syntax::limits::{MAX_STAGES, Report, tasks, within};
use pipe_syntax::source::Span;
use pipe_syntax::uniform::{Dependence, dependence};
use std::collections::BTreeMap;
use std::rc::Rc;
use swap::SwapLine;

/// How many devices and microbatches a schedule is written out for, and who asked for it.
#[derive(Clone, Copy)]
pub(super) struct ScheduleSetting<'a> {
    /// What else is declared.
    pub(super) files: &'a Files,
    pub(super) n_devices: u32,
    pub(super) n_microbatches: u32,
    /// Values of the files' parameters.
    pub(super) outside: &'a Values,
    /// How many steps a window has, if weights change while microbatches are under way.
    pub(super) steps: Steps,
    /// Where a pipeline names the schedule, and with which values.
    pub(super) call: Option<&'a ast::Call>,
    /// Whether one turn of a block is enough.
    pub(super) turn: bool,
    /// Which stages read which, for so many stages.
    pub(super) graph: &'a dyn Fn(usize) -> StageGraph,
    /// The lanes and parts that the pipeline names.
    pub(super) parts: Option<PipelineParts<'a>>,
}

impl ScheduleSetting<'_> {
    fn called(&self) -> Option<Span> {
        self.call.map(|call| call.span)
    }
}

/// Who says how many steps a window has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    /// What the caller set.
    pub(super) set: Option<i64>,
    /// Steps of the whole training, which windows divide.
    pub(super) of_training: Option<u32>,
    /// Whether each step ends with a flush, whatever the schedule says of weights.
    pub(super) flush: bool,
}

/// What the writers of tasks work with.
pub(super) struct Writer<'a> {
    pub(super) scope: Scope<'a>,
    pub(super) machine: Machine,
    pub(super) report: Report,
    pub(super) n_devices: u32,
    /// Whole ones.
    pub(super) n_microbatches: u32,
    pub(super) slices: Slices,
    /// The share of the sequence of each slice. Empty if all are equal.
    shares: Vec<u32>,
    /// The slot of `Q`, the number of slices. None if something else has that name.
    slice_count: Option<usize>,
    /// The parts of stages.
    pub(super) parts: Rc<StageParts>,
    /// Of stages, or of parts if there are any, each on a device or a lane of one.
    pub(super) placement: Placement,
    pub(super) steps: Steps,
    pub(super) weights: Option<(Weights, Span)>,
    pub(super) origins: Vec<Span>,
    /// Loops of the order that end before they begin, by device and by their count or range.
    idle: BTreeMap<(DeviceId, Span), IdleLoop>,
    /// Whether one turn of a block is enough.
    pub(super) turn: bool,
    /// Whether a block is one for this number of microbatches only.
    pub(super) is_varied: bool,
    /// The stage graph for a number of stages, if the schedule has no `reads`.
    outside: &'a dyn Fn(usize) -> StageGraph,
    /// The stage graph that `reads` gives.
    reads: Option<StageGraph>,
    /// Whether a line says where activations may wait.
    may_swap: bool,
    /// Where they may.
    swap: Option<SwapLine>,
    /// The statements of functions, by their position among the definitions; none while they are resolved.
    functions: BTreeMap<usize, Option<Rc<order::Body<'a>>>>,
}

/// Orders of all devices, and the block that they repeat.
#[derive(Default)]
pub(super) struct WrittenOrders {
    pub orders: Vec<Vec<ScheduledTask>>,
    swaps: Swaps,
    step_tasks: StepTasks,
    pub(super) block: Option<Block>,
    pub window: Option<Window>,
}

/// Writes a schedule out: every task of every device.
pub(super) fn elaborate<'a>(
    schedule: &'a ast::Schedule,
    arguments: &Values,
    setting: ScheduleSetting<'a>,
) -> Result<Schedule, Diagnostics> {
    let mut report = Report::default();
    let items = items_of(schedule, &mut report);
    let mut scope = scope_of(schedule, &items, arguments, setting, &mut report);
    let is_free = items.slices.is_some() && scope.meaning("Q").is_none();
    let slice_count = if is_free { scope.variable("Q") } else { None };
    let writer = Writer {
        scope,
        machine: Machine::default(),
        report,
        n_devices: setting.n_devices,
        n_microbatches: setting.n_microbatches,
        slices: Slices::ONE,
        shares: Vec::new(),
        slice_count,
        parts: Rc::default(),
        placement: Placement::of_stages(Vec::new()),
        steps: setting.steps,
        weights: None,
        origins: Vec::new(),
        idle: BTreeMap::new(),
        turn: setting.turn && items.block().is_some(),
        is_varied: dependence(setting.files, schedule, setting.call) == Dependence::Varied,
        outside: setting.graph,
        reads: None,
        may_swap: items.swap.is_some(),
        swap: None,
        functions: BTreeMap::new(),
    };
    writer.write(schedule, &items, setting)
}

impl<'a> Writer<'a> {
    fn write(
        mut self,
        schedule: &ast::Schedule,
        items: &Items<'a>,
        setting: ScheduleSetting<'a>,
    ) -> Result<Schedule, Diagnostics> {
        let faults = self.scope.resolve_lets(false);
        if !faults.is_empty() {
            self.report.extend(faults.into_iter().map(|fault| *fault));
            self.resolve(items);
            return Err(self.report.into_errors());
        }
        let allowed = self.conditions(schedule, items, setting);
        let n_stages = if allowed && self.slices(items) { self.stages(items) } else { None };
        let (Some(n_stages), Some(place), Some((body, _))) = (n_stages, items.place, items.body) else {
            return Err(self.report.into_errors());
        };
        self.weights = self.weights(items).filter(|_| !self.steps.flush);
        // Every stage has a forward and a backward of every microbatch, or the schedule is incomplete.
        let least = 2 * u128::from(n_stages) * if self.turn { 1 } else { self.n_numbered() };
        let within_limit = tasks(least, setting.called().unwrap_or(schedule.name.span));
        if self.report.take(within_limit).is_none() {
            return Err(self.report.into_errors());
        }
        self.placement = place::write(&mut self, place, n_stages);
        if let Some(line) = items.reads {
            let graph = reads::graph(&mut self, line, n_stages as usize);
            self.reads = self.report.take(graph);
        }
        if let Some(line) = items.swap {
            let line = swap::line(&mut self, line, n_stages);
            self.swap = self.report.take(line);
        }
        let carried = parts::carried(items, setting.parts);
        let carried = self.report.take(carried).unwrap_or_default();
        let parts = parts::parts(&mut self, items, setting.parts, n_stages);
        let Some(parts) = self.report.take(parts) else { return Err(self.report.into_errors()) };
        let outside = setting.parts.and_then(|outside| outside.parts);
        let parted = items.parts.or(outside).filter(|_| !parts.is_empty());
        swap::allowed(&mut self, items, parted.map(|line| line.span));
        // A block of whole stages does not place the parts that its pipeline names: they follow each other.
        let is_whole = items.parts.is_none() && matches!(body, Body::Block(_)) && !parts.is_empty();
        let later = if is_whole { Some(parts) } else { self.divide(parts) };
        let written = match body {
            Body::Block(block) => {
                let durations = block::durations(&mut self, items.slots.map_or(&[], |(lines, _)| lines));
                block::write(&mut self, block, durations)
            }
            Body::Order(order) => order::write(&mut self, order, place.span),
        };
        let written = self.report.take(written);
        let mut written = written.unwrap_or_default();
        if let Some(parts) = later {
            let orders = parts.divided(written.orders);
            written = WrittenOrders { orders, ..WrittenOrders::default() };
            self.divide(parts);
        }
        let WrittenOrders { orders, swaps, step_tasks, block, window } = written;
        let graph = self.graph();
        let activations = Activations::of_parts(&self.parts).sliced(&self.shares).unwrap_or_default();
        let mut schedule = Schedule {
            name: schedule.name.text.clone(),
            span: schedule.name.span,
            n_microbatches: self.n_microbatches * self.slices.count(),
            slices: self.slices,
            activations,
            shares: std::mem::take(&mut self.shares),
            graph: self.parts.graph(&self.reads.clone().unwrap_or_else(|| StageGraph::chain(n_stages as usize))),
            parts: StageParts::clone(&self.parts),
            window,
            placement: std::mem::replace(&mut self.placement, Placement::of_stages(Vec::new())),
            placement_span: place.span,
            orders,
            swaps,
            step_tasks,
            carried,
            origins: std::mem::take(&mut self.origins),
            block,
            frozen: Frozen::default(),
            reorder: items.reorder,
            pipelines: 1,
        };
        if !self.parts.lanes().is_empty() {
            // What is on a lane has no weights.
            freeze(&mut schedule, &graph, |row| self.parts.lane(row).is_some());
        }
        if let Some(line) = items.frozen {
            frozen::apply(&mut self, line, &graph, &mut schedule);
        }
        let mut again = schedule.orders.iter().flatten().filter(|one| one.task.kind == TaskKind::Recompute);
        if let Some(again) = again.next().filter(|_| !schedule.recomputed_microbatches().is_empty()) {
            let line = schedule.origins[usize::from(again.origin)];
            reads::all_alike(&schedule, line).into_iter().for_each(|found| self.report.add(found));
        }
        if self.report.is_empty() {
            idle::check(&schedule, &self.idle).into_iter().for_each(|found| self.report.add(found));
        }
        self.report.finish(schedule)
    }

    /// From here on, stages have these parts.
    fn divide(&mut self, parts: StageParts) -> Option<StageParts> {
        if !parts.is_empty() {
            self.placement = parts.placement(&self.placement, self.n_devices as usize);
            self.parts = Rc::new(parts);
        }
        None
    }

    /// Reports what is wrong with names outside of `let`s, where nothing can be evaluated.
    fn resolve(&mut self, items: &Items<'a>) {
        let mut names: Vec<&'a ast::Name> = items.place.into_iter().flat_map(PlaceLine::names).collect();
        let mut numbers: Vec<&'a Expr> = items.stages.iter().map(|(count, _)| *count).collect();
        if let Some((written, _)) = items.slices {
            let resolved = self.scope.number_or_list(written);
            self.report.take(resolved);
        }
        if let Some(place) = items.place {
            let resolved = place::resolve(self, place.device);
            self.report.take(resolved);
        }
        numbers.extend(items.swap.and_then(|swap| swap.device.as_ref()));
        names.extend(items.swap.map(|swap| &swap.stage));
        if let Some(reads) = items.reads {
            let resolved = reads::resolve(self, &reads.sources);
            self.report.take(resolved);
        }
        numbers.extend(items.slots.iter().flat_map(|(lines, _)| lines.iter().map(|line| &line.slots)));
        match items.body {
            Some((Body::Block(block), _)) => {
                numbers.extend(&block.microbatches);
                numbers.push(&block.period);
                names.extend(block.names());
                numbers.extend(block.tasks.iter().filter_map(|task| task.at.as_ref()));
            }
            Some((Body::Order(order), _)) => {
                let resolved = self.variable(&order.device).and_then(|_| order::resolve(self, &order.body));
                self.report.take(resolved);
            }
            None => {}
        }
        for name in names {
            let resolved = self.variable(name);
            self.report.take(resolved);
        }
        for number in numbers {
            let resolved = self.scope.number(number);
            self.report.take(resolved);
        }
        let frozen = items.frozen.into_iter().flat_map(|frozen| &frozen.rule).map(|(_, condition)| condition);
        let of_weights =
            items.weights.iter().flat_map(|versions| versions.branches.iter().map(|(condition, _)| condition));
        for condition in items.conditions.iter().map(|(condition, _)| *condition).chain(of_weights).chain(frozen) {
            let resolved = self.scope.condition(condition);
            self.report.take(resolved);
        }
    }

    /// The stage graph.
    pub(super) fn graph(&self) -> StageGraph {
        let n_stages = self.n_stages();
        self.parts.graph(&self.reads.clone().unwrap_or_else(|| (self.outside)(n_stages)))
    }

    /// The number of stages, whatever parts they have.
    pub(super) fn n_stages(&self) -> usize {
        self.parts.n_stages(self.placement.n_stages())
    }

    /// Adds a statement that tasks come from.
    pub(super) fn origin(&mut self, span: Span) -> Result<u16, Fault> {
        if self.origins.last() != Some(&span) {
            self.origins.push(span);
        }
        u16::try_from(self.origins.len() - 1).map_err(|_| {
            let message = "a schedule has more than 65536 statements with tasks";
            Box::new(Diagnostic::error(Code::TooLarge, span, "one too many", message))
        })
    }

    /// The slot of a variable that holds a number.
    pub(super) fn variable(&mut self, name: &ast::Name) -> Result<usize, Fault> {
        let slot = self.scope.variable(&name.text).ok_or_else(|| too_many_variables(name))?;
        self.scope.set_type(slot, Type::Number);
        Ok(slot)
    }

    pub(super) fn eval(&mut self, code: &Resolved<'a>) -> Result<i64, Fault> {
        self.machine.eval(&self.scope, code)
    }

    /// Resolves and evaluates at once: for what is used once.
    pub(super) fn number(&mut self, expr: &'a Expr) -> Result<i64, Fault> {
        let code = self.scope.number(expr)?;
        self.eval(&code)
    }

    /// Whether everything that the schedule requires holds.
    fn conditions(&mut self, schedule: &ast::Schedule, items: &Items<'a>, setting: ScheduleSetting<'_>) -> bool {
        let mut allowed = true;
        for (condition, span) in &items.conditions {
            let holds = self.scope.condition(condition).and_then(|code| self.eval(&code));
            match self.report.take(holds) {
                Some(1) => continue,
                Some(_) => {
                    let error = self.refusal(schedule, condition, *span, setting);
                    self.report.add(error);
                }
                None => {}
            }
            allowed = false;
        }
        allowed
    }

    fn refusal(
        &mut self,
        schedule: &ast::Schedule,
        condition: &'a Expr,
        span: Span,
        setting: ScheduleSetting<'_>,
    ) -> Diagnostic {
        let values = self.with_values(condition).unwrap_or_else(|| "the condition".to_owned());
        let message = format!("`{}` does not allow these numbers: {values} does not hold", schedule.name.text);
        let error = match setting.called() {
            Some(called) => {
                Diagnostic::error(Code::ConditionFailed, called, "used here", message).label(span, "required here")
            }
            None => Diagnostic::error(Code::ConditionFailed, span, "required here", message),
        };
        match self.machine.values_of(&self.scope, condition) {
            Some(note) => error.note(note),
            None => error,
        }
    }

    /// A condition with the values of what it compares; none where it compares nothing.
    fn with_values(&mut self, condition: &'a Expr) -> Option<String> {
        let ast::ExprKind::Binary(op, left, right) = &condition.kind else { return None };
        let (left, right) = match op {
            ast::BinaryOp::And | ast::BinaryOp::Or => (self.with_values(left)?, self.with_values(right)?),
            _ => (self.number(left).ok()?.to_string(), self.number(right).ok()?.to_string()),
        };
        Some(format!("{left} {} {right}", op.symbol()))
    }

    /// Which version of the weights tasks read, where blocks run on across steps.
    fn weights(&mut self, items: &Items<'a>) -> Option<(Weights, Span)> {
        let versions = items.weights?;
        let mut chosen = versions.otherwise;
        for (condition, weights) in versions.branches.iter().rev() {
            let holds = self.scope.condition(condition).and_then(|code| self.eval(&code));
            if self.report.take(holds)? == 1 {
                chosen = *weights;
            }
        }
        Some((chosen, versions.span)).filter(|(weights, _)| *weights != Weights::Flush)
    }

    /// Microbatches, each slice counted as one.
    pub(super) fn n_numbered(&self) -> u128 {
        u128::from(self.n_microbatches) * u128::from(self.slices.count())
    }

    /// In how many slices microbatches are cut. Whether that is a number that is possible.
    fn slices(&mut self, items: &Items<'a>) -> bool {
        let Some((written, span)) = items.slices else { return true };
        let value = slices::count(self, written);
        let Some((value, shares)) = self.report.take(value) else { return false };
        (self.slices, self.shares) = (Slices::new(value), shares);
        if let Some(slot) = self.slice_count {
            self.machine.set(slot, i64::from(value));
        }
        let Some((Body::Block(block), _)) = items.body.filter(|_| value > 1) else { return true };
        let message = format!("the {value} slices of a microbatch need an `order`, and this schedule has a `block`");
        let error = Diagnostic::error(Code::RepeatedItem, span, format!("{value} slices"), message);
        self.report.add(error.label(block.span, "repeats whole microbatches"));
        false
    }

    fn stages(&mut self, items: &Items<'a>) -> Option<u32> {
        let (count, _) = items.stages?;
        let n_stages = self.number(count).and_then(|value| within("stages", value, 1..=MAX_STAGES, count.span));
        let n_stages = self.report.take(n_stages)?;
        if let Some(slot) = self.scope.variable("S") {
            self.machine.set(slot, i64::from(n_stages));
        }
        Some(n_stages)
    }
}

/// Says that a name is one variable too many.
pub(super) fn too_many_variables(name: &ast::Name) -> Fault {
    let message = format!("a schedule has more than {} variables", pipe_syntax::expr::scope::MAX_VARIABLES);
    Box::new(Diagnostic::error(Code::TooLarge, name.span, "one too many", message))
}
