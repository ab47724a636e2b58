//! The stages of a transformer as values and executables: bytes and operations without a tensor graph.
//!
//! A stage's forward reads what flows in and leaves one value for each half of its backward pass.
//! What flows in stays where it was received until the backward of the input has read it, as the
//! input of the stage's first norm. From there on everything is as with the language's own models:
//! what is alive on a device follows from the instructions that the stages are lowered to.

use super::activations::Until;
use super::{StageAccount, Transformer, account};
use crate::Kinds;
use crate::graph::bundle::add_value;
use crate::stage_set::{StageExecs, StageSet, WeightGroup};
use pipe_ir::ids::{ExecId, StageId, ValueId};
use pipe_ir::program::{Access, Body, Exec, Operand};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use pipe_schedule::schedule::Schedule;
use pipe_schedule::stage_graph::StageGraph;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};

/// Operations of one tick of a large model: a unit of time is a million times as many, so that its
/// steps are readable figures.
const FLOPS_PER_TICK: u64 = 1_000_000;
/// Operations of a forward from which on a model is large: ticks are fine enough for it.
const LARGE: u128 = 10_000_000_000;
/// Operations that an update spends on one parameter, roughly.
const FLOPS_PER_PARAMETER: u128 = 12;
/// The most bytes that a step may allocate in all, so that sums of them stay countable.
const MOST_BYTES: u128 = 1 << 62;

/// What the devices of a pipeline run.
///
/// # Errors
/// If the layers cannot be divided among the stages, or there are too many bytes to count.
pub fn stage_set(transformer: &Transformer, schedule: &Schedule, kinds: &[Kinds]) -> Result<StageSet, Diagnostics> {
    if schedule.slices.count() > 1 {
        let (path, slices) = (&transformer.config.path, schedule.slices.count());
        let message = format!("`{path}` has no tensor graph that could be cut into {slices} slices");
        let error = Diagnostic::error(Code::NoTensorGraph, transformer.span, "this model", message);
        return Err(vec![error.label(schedule.span, "cuts microbatches").help("use a schedule without slices")]);
    }
    let mut accounts =
        account::accounts(transformer, &schedule.placement, schedule.span).map_err(|error| vec![error])?;
    for (stage, account) in (0..).map(StageId).zip(&mut accounts).filter(|(stage, _)| schedule.frozen.is_frozen(*stage))
    {
        account.freeze(schedule.frozen.has_backward(stage));
    }
    countable(transformer, &accounts, schedule)?;
    let is_large = accounts.iter().any(|account| account.flops.forward >= LARGE);
    let flops_per_tick = if is_large { FLOPS_PER_TICK } else { 1 };
    let mut set = StageSet { graph: StageGraph::chain(kinds.len()), flops_per_tick, ..StageSet::default() };
    let mut before = None;
    for ((stage, account), kinds) in (0..).map(StageId).zip(&accounts).zip(kinds) {
        let values = Values::add(&mut set.values, stage, account);
        add_stage(&mut set, stage, account, *kinds, &values, before);
        before = values.output;
    }
    // The gradient of what flows out is written by the stage behind, whose values were not there yet.
    for stage in 1..accounts.len() {
        link(&mut set, stage);
    }
    set.accounts = accounts;
    Ok(set)
}

fn countable(transformer: &Transformer, accounts: &[StageAccount], schedule: &Schedule) -> Result<(), Diagnostics> {
    let of_stage = |stage: &StageAccount| {
        let moving = stage.activations() + stage.deferred + 3 * (stage.input + stage.output);
        let scratch = stage.scratch_forward + stage.scratch_backward;
        stage.state() + scratch + moving * u128::from(schedule.n_microbatches)
    };
    let sum = accounts.iter().map(of_stage).sum::<u128>().saturating_mul(schedule.n_devices() as u128);
    if sum < MOST_BYTES {
        return Ok(());
    }
    let message = format!("a step of `{}` allocates {sum} bytes, more than can be counted", transformer.config.path);
    Err(vec![Diagnostic::error(Code::TooLarge, transformer.span, "with these settings", message)])
}

/// The values of a stage; none where it would be empty.
struct Values {
    parameters: Option<ValueId>,
    gradients: Option<ValueId>,
    optimizer: Option<ValueId>,
    for_input: Option<ValueId>,
    for_weight: Option<ValueId>,
    deferred: Option<ValueId>,
    /// What flows out.
    output: Option<ValueId>,
    /// The gradient of what flows in.
    gradient: Option<ValueId>,
}

impl Values {
    fn add(values: &mut Vec<Value>, stage: StageId, account: &StageAccount) -> Self {
        let mut add = |name: &str, kind, bytes: u128| {
            let (name, bytes) = (format!("{name}.{stage}"), Bytes(u64::try_from(bytes).unwrap_or(u64::MAX)));
            (bytes > Bytes::ZERO).then(|| add_value(values, Value::plain(name, kind, stage, bytes)))
        };
        Self {
            parameters: add("parameters", ValueKind::Parameters, account.weights),
            gradients: add("gradients", ValueKind::ParameterGradients, account.gradients),
            optimizer: add("optimizer", ValueKind::OptimizerState, account.optimizer),
            for_input: add("saved_b", ValueKind::SavedForInput, account.saved_until(Until::Input)),
            for_weight: add("saved_w", ValueKind::SavedForWeight, account.saved_until(Until::Weight)),
            deferred: add("deferred", ValueKind::DeferredGradient, account.deferred),
            output: add("activation", ValueKind::Activation, account.output),
            gradient: add("gradient", ValueKind::Gradient, account.input),
        }
    }

    /// What a task reads and writes.
    fn operands(&self, kind: TaskKind, input: Option<ValueId>, recomputes: bool) -> Vec<Operand> {
        let saved = [self.for_input, self.for_weight];
        let (read, write): (Vec<Option<ValueId>>, Vec<Option<ValueId>>) = match kind {
            TaskKind::Forward if recomputes => (vec![input], vec![self.output]),
            TaskKind::Forward => (vec![input], vec![self.output, saved[0], saved[1]]),
            TaskKind::Recompute => (vec![input], saved.to_vec()),
            TaskKind::BackwardInput => (vec![input, saved[0], saved[1]], vec![self.gradient, self.deferred]),
            TaskKind::BackwardWeight => (vec![saved[1], self.deferred], Vec::new()),
            TaskKind::Backward => (vec![input, saved[0], saved[1]], vec![self.gradient]),
            TaskKind::Update => return self.update(),
        };
        let adds = matches!(kind, TaskKind::BackwardWeight | TaskKind::Backward);
        let operand = |access| move |value| Operand::new(value, access);
        let reads = [self.parameters].into_iter().chain(read).flatten().map(operand(Access::Read));
        let writes = write.into_iter().flatten().map(operand(Access::Write));
        let adds = self.gradients.filter(|_| adds).into_iter().map(operand(Access::Update));
        reads.chain(writes).chain(adds).collect()
    }

    /// What the update reads and writes, as that of a declared model does: the weights come first, by which it is cut.
    fn update(&self) -> Vec<Operand> {
        let all = [(self.parameters, Access::Update), (self.gradients, Access::Read), (self.optimizer, Access::Update)];
        all.into_iter().filter_map(|(value, access)| Some(Operand::new(value?, access))).collect()
    }
}

fn add_stage(
    set: &mut StageSet,
    stage: StageId,
    account: &StageAccount,
    kinds: Kinds,
    values: &Values,
    input: Option<ValueId>,
) {
    let mut row = StageExecs::default();
    let recomputes = kinds.has(TaskKind::Recompute);
    let mut add = |kind: TaskKind, scratch: u128, is_repeated: bool| {
        let operands = values.operands(kind, input, is_repeated);
        let flops = u64::try_from(flops(account, kind)).unwrap_or(u64::MAX);
        let is_repeated = is_repeated && kind == TaskKind::Forward && kinds.keeps_some();
        set.execs.push(Exec { is_repeated, ..Exec::new(kind, stage, operands, Body::Abstract, flops) });
        set.scratch.push(Bytes(u64::try_from(scratch).unwrap_or(u64::MAX)));
        ExecId::from_index(set.execs.len() - 1)
    };
    // Of all kinds, whatever the schedule uses: the search may split a backward pass or not, so it asks what both take.
    for kind in TaskKind::ALL.into_iter().filter(|kind| *kind != TaskKind::Update) {
        let is_forward = matches!(kind, TaskKind::Forward | TaskKind::Recompute);
        let scratch = if is_forward { account.scratch_forward } else { account.scratch_backward };
        row.execs[kind.index()] = Some(add(kind, scratch, recomputes));
    }
    row.keeping = kinds.keeps_some().then(|| add(TaskKind::Forward, account.scratch_forward, false));
    row.both = row.exec_of(TaskKind::Backward);
    if let Some(parameters) = values.parameters {
        let update = (kinds.has_backward() && values.gradients.is_some()).then(|| add(TaskKind::Update, 0, false));
        set.weights.push(WeightGroup { parameters, gradients: values.gradients, update, stages: vec![stage] });
    }
    set.stages.push(row);
}

fn flops(account: &StageAccount, kind: TaskKind) -> u128 {
    let flops = &account.flops;
    match kind {
        TaskKind::Forward | TaskKind::Recompute => flops.forward,
        TaskKind::BackwardInput => flops.backward_input,
        TaskKind::BackwardWeight => flops.backward_weight,
        TaskKind::Backward => flops.backward_input + flops.backward_weight,
        TaskKind::Update => FLOPS_PER_PARAMETER * (account.dense + account.expert),
    }
}

/// Lets the backward of the stage before read the gradient that a stage writes.
fn link(set: &mut StageSet, stage: usize) {
    let writes = |value: &Value| value.kind == ValueKind::Gradient && value.stage.index() == stage;
    let Some(gradient) = set.values.iter().position(writes).map(ValueId::from_index) else { return };
    let is_backward = |kind| matches!(kind, TaskKind::BackwardInput | TaskKind::Backward);
    let before = set.execs.iter_mut().filter(|exec| exec.stage.index() + 1 == stage && is_backward(exec.kind));
    before.for_each(|exec| exec.operands.insert(0, Operand::new(gradient, Access::Read)));
}
