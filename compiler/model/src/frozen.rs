//! Frozen stages of a model: finds those whose weights are all frozen, and freezes the weights of frozen stages.

use crate::pipeline::ModelCall;
use crate::{Model, Weight, elaborate, layers_of};
use pipe_ir::ids::StageId;
use pipe_schedule::schedule::Schedule;
use pipe_syntax::ast::{Declaration, File, LayerItem, ModelItem};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::arguments::Values;
use pipe_syntax::files::Files;
use std::ops::Range;

/// By stage or part of a schedule, whether all of its weights are frozen. Empty if no weight is frozen, if the model
/// has an error, or if its layers lack the parts that the schedule names.
pub fn of_model(files: &Files, call: &ModelCall, parameters: &Values, schedule: &Schedule) -> Vec<bool> {
    // Most models are not asked.
    if !files.all().any(mentions) {
        return Vec::new();
    }
    let Ok(model) = elaborate(files, call, parameters) else { return Vec::new() };
    if !model.layers.iter().flat_map(|layer| &layer.weights).any(|weight| is_frozen(&model, weight)) {
        return Vec::new();
    }
    let layers = layers_of(&model, call, schedule).unwrap_or_default();
    let trains = |layers: &Range<usize>| {
        let mut weights = model.layers[layers.clone()].iter().flat_map(|layer| &layer.weights);
        weights.any(|weight| !is_frozen(&model, weight))
    };
    layers.iter().map(|layers| !trains(layers)).collect()
}

/// Whether a weight is never trained. Of a tied one, its owner says so.
pub(crate) fn is_frozen(model: &Model, weight: &Weight) -> bool {
    match weight.owner {
        Some(owner) => model.layers[owner.layer].weights[owner.weight].is_frozen,
        None => weight.is_frozen,
    }
}

/// Whether `frozen` stands behind some weight or layer.
fn mentions(file: &File) -> bool {
    fn in_model(items: &[ModelItem]) -> bool {
        items.iter().any(|item| match item {
            ModelItem::Layer(layer) => layer.frozen.is_some(),
            ModelItem::Repeat { body, .. } | ModelItem::For { body, .. } => in_model(body),
            ModelItem::Let(_) => false,
        })
    }
    let is_frozen = |item: &LayerItem| matches!(item, LayerItem::Weight { frozen: Some(_), .. });
    file.declarations.iter().any(|declaration| match declaration {
        Declaration::Layer(layer) => layer.items.iter().any(is_frozen),
        Declaration::Model(model) => in_model(&model.items),
        _ => false,
    })
}

/// Freezes the weights of all layers in frozen stages.
///
/// # Errors
/// A weight that a frozen stage shares with one before that trains it: its gradient would lack a part.
pub(crate) fn freeze(model: &mut Model, layers: &[Range<usize>], schedule: &Schedule) -> Result<(), Diagnostic> {
    let stages = (0..).map(StageId).zip(layers);
    for (_, layers) in stages.clone().filter(|(stage, _)| schedule.frozen.is_frozen(*stage)) {
        model.layers[layers.clone()]
            .iter_mut()
            .flat_map(|layer| &mut layer.weights)
            .for_each(|own| own.is_frozen = true);
    }
    for (stage, layers) in stages.clone().filter(|(stage, _)| schedule.frozen.is_frozen(*stage)) {
        let shared =
            model.layers[layers.clone()].iter().flat_map(|layer| layer.weights.iter().map(move |own| (layer, own)));
        let mut trained = shared.filter(|(_, weight)| !is_frozen(model, weight));
        let Some((layer, weight)) = trained.next() else { continue };
        let owner = weight.owner.map_or(0, |owner| owner.layer);
        let other = stages.clone().find(|(_, layers)| layers.contains(&owner)).map_or(stage, |(other, _)| other);
        let (name, owner) = (&weight.name, &model.layers[owner]);
        let message = format!("{stage} is frozen, but it shares `{name}` with {other}, which trains it");
        let error = Diagnostic::error(Code::FrozenTask, layer.span, format!("in {stage}"), message);
        let error = error.label(owner.span, format!("in {other}"));
        return Err(error.help(format!("freeze {other} too, or leave {stage} out of `frozen`")));
    }
    Ok(())
}
