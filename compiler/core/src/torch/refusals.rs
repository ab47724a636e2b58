//! What PyTorch's pipelining cannot run.

use crate::analyze::Analysis;
use pipe_ir::ids::{DeviceId, MicrobatchId};
use pipe_ir::task::TaskKind;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;

/// Everything that speaks against writing a schedule in the form of PyTorch.
pub(super) fn refusals(analysis: &Analysis) -> Diagnostics {
    let mut found: Diagnostics =
        [placement, neighbours, tied, tasks, parts].iter().flat_map(|rule| rule(analysis)).collect();
    if found.is_empty() {
        found.extend(losses(analysis));
    }
    found
}

fn error(span: Span, label: &str, message: String) -> Diagnostic {
    Diagnostic::error(Code::CannotExport, span, label, message)
}

fn placement(analysis: &Analysis) -> Diagnostics {
    let schedule = &analysis.schedule;
    let (placement, span) = (&schedule.placement, schedule.placement_span);
    let mut found = Diagnostics::new();
    let homes = |stage| placement.devices_of(stage);
    if let Some(stage) = placement.stages().find(|stage| homes(*stage).len() > 1) {
        let devices = pipe_schedule::placement::names(homes(stage));
        let message = format!("{stage} lives on {devices}, and PyTorch places every stage on one rank");
        found.push(
            error(span, "here", message)
                .help("PyTorch replicates the whole pipeline instead, by data parallelism around it"),
        );
    }
    for device in (0..schedule.n_devices()).map(DeviceId::from_index) {
        if placement.stages().all(|stage| !homes(stage).contains(&device)) {
            found.push(error(span, "here", format!("{device} has no stage, and PyTorch needs one for every rank")));
        }
    }
    found
}

fn neighbours(analysis: &Analysis) -> Diagnostics {
    let schedule = &analysis.schedule;
    let span = analysis.pipeline.as_ref().map_or(schedule.span, |pipeline| pipeline.span);
    if let Some(edge) = schedule.graph.earlier().first() {
        let message =
            format!("{} reads an earlier microbatch of {}, and PyTorch has no such transfers", edge.to, edge.from);
        return vec![error(schedule.span, "this schedule", message).help("`pipec run` runs it")];
    }
    let far = schedule.graph.edges().find(|(from, to)| from.0 + 1 != to.0);
    let message = match far {
        Some((from, to)) => {
            format!("{to} reads {from}, and PyTorch has transfers between stages that follow each other only")
        }
        None if !schedule.graph.is_chain() => {
            "some stages do not read the one before them, as PyTorch expects".to_owned()
        }
        None => return Diagnostics::new(),
    };
    let (span, label) =
        if analysis.has_model() { (span, "the model of this pipeline") } else { (schedule.span, "this schedule") };
    vec![error(span, label, message).help("`pipec run` runs it, and the Python package does, in PyTorch")]
}

fn tied(analysis: &Analysis) -> Diagnostics {
    let schedule = &analysis.schedule;
    let span = analysis.pipeline.as_ref().map_or(schedule.span, |pipeline| pipeline.span);
    let device = |stage| schedule.placement.device(stage, MicrobatchId(0));
    let apart = analysis.tied.iter().find(|stages| stages.iter().any(|stage| device(*stage) != device(stages[0])));
    let refuse = |stages: &Vec<pipe_ir::ids::StageId>| {
        let names: Vec<String> = stages.iter().map(ToString::to_string).collect();
        let message =
            format!("{} share weights, and PyTorch would train each copy on its own gradients", names.join(" and "));
        error(span, "the model of this pipeline", message).help("place them on one device, or run it with `pipec run`")
    };
    apart.map(refuse).into_iter().collect()
}

fn tasks(analysis: &Analysis) -> Diagnostics {
    let schedule = &analysis.schedule;
    let recomputes = schedule.orders.iter().flatten().find(|one| one.task.kind == TaskKind::Recompute);
    let refuse = |task: &pipe_schedule::schedule::ScheduledTask| {
        let span = schedule.origins.get(usize::from(task.origin)).copied().unwrap_or(schedule.span);
        let message = format!("`{}` runs a forward once more, and PyTorch has no such action", task.task);
        error(span, "recomputes", message).help("leave it out, and wrap the module in `torch.utils.checkpoint`")
    };
    recomputes.map(refuse).into_iter().collect()
}

fn parts(analysis: &Analysis) -> Diagnostics {
    let (schedule, pipeline) = (&analysis.schedule, analysis.pipeline.as_ref());
    let span = pipeline.map_or(schedule.span, |pipeline| pipeline.span);
    let mut found = Diagnostics::new();
    if schedule.slices.count() > 1 {
        let message =
            format!("microbatches are cut in {} slices, and PyTorch knows whole ones", schedule.slices.count());
        found.push(error(schedule.span, "this schedule", message));
    }
    if !schedule.parts.is_empty() {
        let message = "stages have parts, and PyTorch runs whole stages".to_owned();
        found.push(error(schedule.span, "this schedule", message).help("leave `parts` out"));
    }
    if !schedule.swaps.is_empty() {
        let message = "activations are evicted, and PyTorch keeps them on their ranks".to_owned();
        found.push(error(schedule.span, "this schedule", message).help("leave `evict` and `fetch` out"));
    }
    if !schedule.step_tasks.is_empty() {
        let message = "sums and updates have places, and PyTorch has its own".to_owned();
        found.push(error(schedule.span, "this schedule", message).help("leave `reduce` and `update` out"));
    }
    if schedule.frozen.any() && schedule.parts.is_empty() {
        let message = "some of its stages are frozen, and PyTorch runs every stage backward".to_owned();
        let help = "leave `frozen` out, and set `requires_grad = False` in PyTorch: the schedule is then the whole one";
        found.push(error(schedule.span, "this schedule", message).help(help));
    }
    if schedule.window.is_some() {
        let message = "weights change while microbatches are under way, and PyTorch runs step by step".to_owned();
        found.push(error(schedule.span, "this schedule", message));
    }
    if pipeline.is_some_and(|pipeline| pipeline.offload.any()) {
        let message = "some of the state lives with the hosts, and a schedule of PyTorch has no copies".to_owned();
        found.push(error(span, "this pipeline", message).help("add `--offload none`"));
    }
    found
}

fn losses(analysis: &Analysis) -> Option<Diagnostic> {
    let schedule = &analysis.schedule;
    let last = schedule.placement.stages().last()?;
    let forwards =
        schedule.orders.iter().flatten().filter(|one| one.task.kind == TaskKind::Forward && one.task.stage == last);
    let (_, late) =
        forwards.clone().zip(forwards.skip(1)).find(|(one, next)| one.task.microbatch > next.task.microbatch)?;
    let span = schedule.origins.get(usize::from(late.origin)).copied().unwrap_or(schedule.span);
    let message =
        format!("`{}` comes after later microbatches, and PyTorch would take the losses of others", late.task);
    Some(
        error(span, "the last stage", message)
            .help("let the last stage run its forwards in the order of the microbatches"),
    )
}
