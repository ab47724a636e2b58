//! A pipeline's `model "config.json"(..)`: the file read, its settings evaluated, and one compared with the other.

use crate::elaborate::Request;
use pipe_model::transformer::{Layers, Transformer, check, read, settings};
use pipe_syntax::ast::Call;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::known::Known;
use pipe_syntax::files::Files;
use pipe_syntax::limits::Report;
use pipe_syntax::source::Span;

/// What the line says; none where something is wrong with it.
pub(super) fn transformer(
    files: &Files,
    call: &Call,
    request: &Request,
    parameters: &Known<'_>,
    report: &mut Report,
) -> Option<Transformer> {
    let (file, text) = files.config(&call.name.text)?;
    let config = read(file, &call.name.text, text).map_err(|found| report.extend(found)).ok();
    let settings = settings(call, &request.settings, parameters).map_err(|found| report.extend(found)).ok();
    let (mut settings, places) = settings?;
    if let Some(layout) = &request.layout {
        settings.layers = Layers::List(layout.layers.clone());
    }
    let transformer = Transformer { config: config?, settings, span: call.name.span, places };
    check(&transformer).map_err(|found| report.extend(found)).ok()?;
    Some(transformer)
}

/// Refuses lines of a pipeline that say how a tensor graph is computed, where its model has none.
pub(super) fn without_graph(call: &Call, lines: [(&str, Option<Span>); 2], report: &mut Report) {
    for (word, span) in lines {
        let Some(span) = span else { continue };
        let path = &call.name.text;
        let message = format!("`{word}` is for tensor graphs, but the model from `{path}` has none");
        let error = Diagnostic::error(Code::NoTensorGraph, span, "of no effect", message);
        report.add(error.label(call.name.span, "only its sizes are known").help("leave the line out").edit(span, ""));
    }
}
