//! Predictions: the language model of a pipeline as a graph for one device.

use crate::{Request, elaborate, library_fault};
use pipe_ir::prediction::Prediction;
use pipe_model::pipeline::Pipeline;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::files;
use pipe_syntax::source::{Source, Sources};

/// What the model of the pipeline predicts, in rows of so many positions where the model allows it; and the pipeline.
///
/// # Errors
/// What is wrong with the text, or why its model predicts no tokens.
pub fn prediction(
    sources: &mut Sources,
    root: Source,
    loader: &files::Loader<'_>,
    request: &Request,
    positions: Option<u64>,
) -> Result<(Prediction, Pipeline), Diagnostics> {
    let files = files::load(sources, root, loader)?;
    let elaborated = elaborate::elaborate(&files, &request.choice)?;
    let Some(pipeline) = &elaborated.pipeline else {
        let message = format!("`{}` is a schedule, and has no model", elaborated.schedule.name);
        let error = Diagnostic::error(Code::NoTensorGraph, elaborated.schedule.span, "a schedule alone", message);
        return Err(vec![error.help("name a pipeline with a `model`")]);
    };
    let Some(call) = &pipeline.model else {
        let of_config = pipeline.transformer.as_ref();
        let (message, help) = match of_config {
            Some(config) => (
                format!("`{}` says the sizes of a model, and not what it computes", config.config.path),
                "add `train { .. }` to the pipeline: it then has the model itself",
            ),
            None => (format!("pipeline `{}` has no model", pipeline.name), "write `model`"),
        };
        let span = of_config.map_or(pipeline.span, |config| config.span);
        return Err(vec![Diagnostic::error(Code::NoTensorGraph, span, "this has no tensor graph", message).help(help)]);
    };
    let found = pipe_model::prediction::prediction(&files, call, &elaborated.parameters, positions);
    let found = found.map_err(|found| library_fault::at_the_call(found, &elaborated, sources))?;
    Ok((found, elaborated.pipeline.expect("it has a model")))
}
