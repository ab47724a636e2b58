//! Syntax tree to schedule and pipeline: names become values, loops become tasks.
//!
//! The language is total: every operation and every task is counted, and a text that asks for too many is refused.

mod parameters;
mod pipeline;
mod schedule;
mod target;
mod unused_lanes;

#[cfg(test)]
mod tests;

pub use unused_lanes::unused_lanes;

use crate::megatron::layout::Layout;
use pipe_model::pipeline::Elaborated;
use pipe_schedule::policy::activation::Shares;
use pipe_schedule::policy::offload::Wanted;
use pipe_schedule::policy::recompute::Recomputation;
use pipe_schedule::policy::zero::Zero;
use pipe_syntax::ast::{Call, PipelineItem, Recomputed};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::files::Files;

/// Devices where neither the text nor the caller says how many.
pub const DEFAULT_DEVICES: u32 = 4;
/// Microbatches where neither the text nor the caller says how many.
pub const DEFAULT_MICROBATCHES: u32 = 8;

/// What the caller asks for, beside the text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Which pipeline, where the root file declares several.
    pub pipeline: Option<String>,
    /// Which schedule, where the root file declares several, or instead of its pipeline.
    pub schedule: Option<String>,
    /// Values for parameters: `devices`, `microbatches`, and those of the files, the schedule and the model.
    pub settings: Vec<(String, i64)>,
    /// The stages that recompute, beside those of which the schedule says so itself, and instead of
    /// those that the pipeline names.
    pub recompute: Option<Recomputation>,
    /// What activations count, instead of what the pipeline says.
    pub activation: Option<Shares>,
    /// What lives in the memory of hosts, instead of what the pipeline says.
    pub offload: Option<Wanted>,
    /// What devices with the same weights divide, instead of what the pipeline says.
    pub zero: Option<Zero>,
    /// The layers of each stage, instead of what the pipeline says behind its `config.json`.
    pub layout: Option<Layout>,
    /// Of a block whose devices repeat, only one turn is written out, however many microbatches a
    /// step has; and no window, only what its tasks read. The schedule then has the microbatches of
    /// that turn.
    pub turn: bool,
    /// It only runs forward, as with `frozen all`: what limits or divides the state of a training is not taken.
    pub forward_only: bool,
}

/// The schedule that is written out, and where a pipeline names it. None where nothing clear is asked for.
pub fn schedule_of<'a>(
    files: &'a Files,
    request: &Request,
) -> Option<(&'a pipe_syntax::ast::Schedule, Option<&'a Call>)> {
    match target::choose(files, request).ok()? {
        target::Target::Schedule(declared) => Some((declared, None)),
        target::Target::Pipeline(declared) => {
            let call = declared.items.iter().find_map(|item| match item {
                PipelineItem::Schedule(call) => Some(call),
                _ => None,
            })?;
            Some((files.schedule(&call.name.text)?, Some(call)))
        }
    }
}

/// Whether a pipeline names the microbatches that recompute, or the parts of stages, which a block of whole stages does
/// not place, or stands several times side by side. A block then proves nothing for other numbers of microbatches.
pub fn is_of_one_number(files: &Files, request: &Request) -> bool {
    let Ok(target::Target::Pipeline(declared)) = target::choose(files, request) else { return false };
    let is_parts = |item: &PipelineItem| matches!(item, PipelineItem::Parts(_));
    if declared.items.iter().any(is_parts) || pipeline::is_repeated(declared, request) {
        return true;
    }
    let names_it =
        |recomputed: &Recomputed| matches!(recomputed, Recomputed::Tasks(tasks) if tasks.variables.len() > 1);
    request.recompute.is_none()
        && declared.items.iter().any(|item| match item {
            PipelineItem::Recompute { tasks, .. } => tasks.iter().flatten().any(names_it),
            _ => false,
        })
}

/// How many microbatches a step has. None where nothing clear is asked for.
pub fn microbatches_of(files: &Files, request: &Request) -> Option<u32> {
    let values = parameters::of_files(files, request).ok()?;
    let number = match target::choose(files, request).ok()? {
        target::Target::Schedule(_) => parameters::chosen(request, &values, "microbatches"),
        target::Target::Pipeline(declared) => Some(pipeline::microbatches(files, declared, request, &values)?),
    };
    u32::try_from(number.unwrap_or(i64::from(DEFAULT_MICROBATCHES))).ok()
}

/// Elaborates the pipeline or schedule that the request names, or the only one of the root file.
///
/// A schedule that stands alone has [`DEFAULT_DEVICES`] and [`DEFAULT_MICROBATCHES`] where the
/// settings say nothing else.
pub fn elaborate(files: &Files, request: &Request) -> Result<Elaborated, Diagnostics> {
    let target = target::choose(files, request)?;
    parameters::check_settings(files, target, request)?;
    let parameters = parameters::of_files(files, request)?;
    let elaborated = match target {
        target::Target::Pipeline(declared) => pipeline::elaborate(files, declared, request, parameters)?,
        target::Target::Schedule(declared) => {
            let schedule = pipeline::stand_alone(files, declared, request, &parameters)?;
            Elaborated { schedule, pipeline: None, parameters }
        }
    };
    let transformer = elaborated.pipeline.as_ref().and_then(|pipeline| pipeline.transformer.as_ref());
    if request.layout.is_some() && transformer.is_none() {
        let message = "a layout is given, but there is no model from a `config.json` to cut";
        let span = elaborated.pipeline.as_ref().map_or(elaborated.schedule.span, |pipeline| pipeline.span);
        return Err(vec![Diagnostic::error(Code::WrongArguments, span, "here", message).help("leave `--layout` out")]);
    }
    Ok(elaborated)
}
