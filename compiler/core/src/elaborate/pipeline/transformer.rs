//! A pipeline's `model "config.json"(..)`: the file read, its settings evaluated, and one compared with the other.

use super::parallel::degrees::Placed;
use crate::elaborate::Request;
use pipe_ir::graph::DType;
use pipe_model::pipeline::ModelCall;
use pipe_model::transformer::{GraphCall, Layers, SETTINGS_OF_GRAPH, Transformer, check, graph, read, settings};
use pipe_syntax::ast::Call;
use pipe_syntax::diagnostic::{Code, Diagnostic, Edit};
use pipe_syntax::expr::arguments::{Callee, bind};
use pipe_syntax::expr::evaluate;
use pipe_syntax::expr::known::Known;
use pipe_syntax::expr::number::Number;
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
    if let Some((name, place)) = places.iter().find(|(name, _)| name.starts_with("lora")) {
        let message =
            format!("`{name}` is about training, and without `train` only sizes are counted, with all weights");
        let error = Diagnostic::error(Code::UnusableConfig, place.value, "of no effect", message);
        let edit = place.cut.map(|span| Edit { span, text: String::new() });
        report.add(error.help("say how to `train`, or leave it out").edit_with(edit));
    }
    let transformer = Transformer { config: config?, settings, span: call.name.span, places };
    check(&transformer).map_err(|found| report.extend(found)).ok()?;
    Some(transformer)
}

/// The same line as a model of the standard library: of a pipeline with `train`, which runs it. Also how many devices
/// are to stand behind each, and how many pipelines side by side, as far as the line says so.
pub(super) fn graph_call(
    files: &Files,
    (call, (precision, precision_line), has_documents): (&Call, (DType, Option<Span>), bool),
    request: &Request,
    parameters: &Known<'_>,
    report: &mut Report,
) -> Option<(ModelCall, [Placed; 2])> {
    let (file, text) = files.config(&call.name.text)?;
    let settings = settings(call, &request.settings, parameters).map_err(|found| report.extend(found)).ok();
    let (settings, places) = settings?;
    for (name, place) in places.iter().filter(|(name, _)| !SETTINGS_OF_GRAPH.contains(name)) {
        let message = format!("`{name}` describes a job of Megatron-LM, but with `train` pipec runs the model itself");
        let error = Diagnostic::error(Code::UnusableConfig, place.value, "of no effect", message);
        let edit = place.cut.map(|span| Edit { span, text: String::new() });
        report.add(error.help("leave it out").edit_with(edit));
    }
    let found = graph(file, &call.name.text, text, &settings).map_err(|found| report.extend(found)).ok();
    let GraphCall { model, config, mut arguments } = found?;
    arguments.insert("sequence_parallel".to_owned(), Number::whole(i64::from(settings.sequence_parallel)));
    if settings.lora > 0 && arguments.get("latent").is_some_and(|latent| *latent != Number::whole(0)) {
        let span = places.get("lora").map_or(call.name.span, |place| place.value);
        let message = "`lora` updates queries and values, and latent attention has no matrices of these";
        let error = Diagnostic::error(Code::UnusableConfig, span, "this rank", message);
        report.add(error.help("train all weights, or write layers with updates of your own"));
    }
    let rate = arguments.get("attention_dropout").map_or(0.0, |rate| rate.to_f64());
    if has_documents && rate > 0.0 {
        let path = &call.name.text;
        let message =
            format!("`{path}` drops {rate} of the scores of attention, which documents keep apart: both is not known");
        let error = Diagnostic::error(Code::UnusableConfig, call.name.span, "this model", message);
        report.add(error.help("set `attention_dropout` in the file to 0, or `attn_pdrop` of GPT-2"));
    }
    arguments.insert("documents".to_owned(), Number::whole(i64::from(has_documents)));
    arguments.insert("lora".to_owned(), Number::whole(i64::try_from(settings.lora).unwrap_or_default()));
    let declared = files.model(model)?;
    let known = Known::default();
    let empty = Call { arguments: Vec::new(), ..call.clone() };
    let callee = Callee {
        declared: &declared.name,
        parameters: &declared.parameters,
        settings: &[],
        evaluate: evaluate::number,
    };
    let defaults = bind(callee, Some(&empty), &known).map_err(|errors| report.extend(errors)).ok()?;
    for (name, value) in defaults {
        arguments.entry(name).or_insert(value);
    }
    let (model, span) = (declared.name.text.clone(), call.span);
    let degree =
        |name, value: u64| places.get(name).map(|place| (u32::try_from(value).unwrap_or(u32::MAX), place.value));
    let degrees = [degree("tensor", settings.tensor), degree("data", settings.data)];
    let call =
        ModelCall { model, span, config: Some(config), arguments, precision, precision_line, cut: None, drops: true };
    Some((call, degrees))
}

/// Refuses the precision of numbers that nothing computes.
pub(super) fn without_graph(call: &Call, span: Span, report: &mut Report) {
    let path = &call.name.text;
    let message = format!("`precision` is for models that run, and of `{path}` only the sizes are asked for");
    let error = Diagnostic::error(Code::NoTensorGraph, span, "of no effect", message);
    let error = error.label(call.name.span, "the sizes of a model");
    report.add(error.help("leave the line out; or write `train { .. }`, and the model itself can run").edit(span, ""));
}
