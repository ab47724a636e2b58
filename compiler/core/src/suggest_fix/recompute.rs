//! Help for errors about memory: whether `recompute all` makes the target fit, or lowers what a device needs.
//! The target is compiled with it to find out.

use super::about_memory;
use super::offload::fullest;
use crate::Request;
use crate::analyze::{Analysis, analyze};
use crate::elaborate::elaborate;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_model::pipeline::Pipeline;
use pipe_schedule::check::check;
use pipe_schedule::policy::recompute::Recomputation;
use pipe_syntax::diagnostic::Diagnostic;
use pipe_syntax::files::Files;

/// Adds to the help of errors about memory that `recompute all` would fit, or what the device then needs. Adds nothing
/// if the device does not need less. `program` is the program without it.
pub(crate) fn advise(
    files: &Files,
    (analysis, program): (&Analysis, &Program),
    request: &Request,
    found: &mut [Diagnostic],
) {
    let Some(pipeline) = analysis.pipeline.as_ref().filter(|own| own.transformer.is_none()) else { return };
    let Some((limit, span)) = pipeline.byte_limit() else { return };
    let is_recomputed = analysis.schedule.orders.iter().flatten().any(|one| one.task.kind == TaskKind::Recompute);
    let found = about_memory(analysis, found, span);
    if found.is_empty() || is_recomputed {
        return;
    }
    let Some((pipeline, recomputing)) = with_recomputation(files, request) else { return };
    let fit = fullest(&pipeline, &recomputing, &limit);
    for one in found {
        let words = match &fit {
            Some((device, needed, _)) => format!("`recompute all` would fit: {device} then needs {needed}"),
            None => match lower(&one.message, &pipeline, [program, &recomputing]) {
                Some(words) => words,
                None => continue,
            },
        };
        let before = one.help.take().map_or_else(String::new, |help| format!("{help}; "));
        one.help = Some(before + &words);
    }
}

/// The pipeline that recomputes all stages, and its program. None if the target cannot recompute.
fn with_recomputation(files: &Files, request: &Request) -> Option<(Pipeline, Program)> {
    let mut request = request.clone();
    request.choice.recompute = Some(Recomputation::All);
    let mut elaborated = elaborate(files, &request.choice).ok()?;
    request.check(&elaborated).ok()?;
    request.furnish(&mut elaborated);
    let stages = pipe_model::stage_set(files, &elaborated).ok()?;
    stages.tell(&mut elaborated.schedule);
    let order = check(&elaborated.schedule).ok()?;
    let analysis = analyze(files, elaborated, order, &stages, &request);
    let program = analysis.program(&stages, &analysis.lowering());
    Some((analysis.pipeline?, program))
}

/// What the device of an error about memory needs with recomputation, if that is less.
fn lower(message: &str, pipeline: &Pipeline, [program, recomputing]: [&Program; 2]) -> Option<String> {
    let needed = |program: &Program| program.devices.iter().map(|code| pipeline.needed(code)).collect::<Vec<_>>();
    let mut devices = (0..).map(DeviceId).zip(needed(program).into_iter().zip(needed(recomputing)));
    let is_about = |device: DeviceId, bytes| message.starts_with(&format!("{device} needs {bytes}, but "));
    let (device, (before, after)) = devices.find(|(device, (before, _))| is_about(*device, *before))?;
    (after < before).then(|| format!("with `recompute all`, {device} still needs {after}"))
}
