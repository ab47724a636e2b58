//! The language of layers and models: from the syntax tree to a chain of layers with forward graphs.
//!
//! All shapes are inferred and checked here, so everything after this can trust them. What is wrong in a layer is
//! reported once, however often the layer is used.

mod environment;
mod evaluator;
mod functions;
mod layer;
mod number;
mod operators;
mod products;
mod value;

use self::environment::Environment;
use self::layer::{Flow, Instance};
use self::value::Value;
use super::{DataTensor, Layer, Model};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::files::Files;
use crate::pipeline::ModelCall;
use crate::source::Span;
use crate::syntax::ast;
use std::collections::BTreeMap;

/// The most layers that a model may have.
pub const MAX_LAYERS: usize = 512;

/// Elaborates the model that a pipeline calls. `parameters` are those of the files.
///
/// # Errors
/// Everything that is wrong with the model and its layers, in the order of the text.
pub fn elaborate(files: &Files, call: &ModelCall, parameters: &BTreeMap<String, i64>) -> Result<Model, Diagnostics> {
    let Some(model) = files.model(&call.model) else {
        let message = format!("no model is called `{}`", call.model);
        return Err(vec![Diagnostic::error(Code::UnknownName, call.span, "called here", message)]);
    };
    elaborate_with(model, &|name| files.layer(name), call, parameters)
}

/// The same, given the model and a way to find layers.
pub(super) fn elaborate_with<'a>(
    model: &'a ast::Model,
    find: &dyn Fn(&str) -> Option<&'a ast::Layer>,
    call: &ModelCall,
    parameters: &BTreeMap<String, i64>,
) -> Result<Model, Diagnostics> {
    let mut chain = Chain {
        find,
        parameters,
        layers: Vec::new(),
        data: Vec::new(),
        flow: Flow::Start,
        count: 0,
        found: Vec::new(),
        declared: &model.name,
    };
    let mut names = Environment::new(parameters);
    for parameter in &model.parameters {
        let value = call.arguments.get(&parameter.name.text).map_or(Value::Unknown, |value| Value::Integer(*value));
        names.define(&parameter.name, value, &mut chain.found);
    }
    chain.items(&model.items, &mut names);
    chain.end();
    if chain.found.is_empty() {
        return Ok(Model {
            name: model.name.text.clone(),
            span: call.span,
            data: data_tensors(chain.data),
            layers: chain.layers,
        });
    }
    Err(in_order(chain.found))
}

fn data_tensors(data: Vec<(DataTensor, Span)>) -> Vec<DataTensor> {
    data.into_iter().map(|(tensor, _)| tensor).collect()
}

/// Each finding once, in the order of the text.
fn in_order(mut found: Diagnostics) -> Diagnostics {
    let place = |diagnostic: &Diagnostic| {
        diagnostic.labels.first().map(|label| (label.span.file, label.span.start, label.span.end))
    };
    found.sort_by_key(place);
    found.dedup_by(|later, first| later.code == first.code && place(later) == place(first));
    found
}

/// A chain of layers in the making.
struct Chain<'a, 'f> {
    find: &'f dyn Fn(&str) -> Option<&'a ast::Layer>,
    parameters: &'f BTreeMap<String, i64>,
    layers: Vec<Layer>,
    data: Vec<(DataTensor, Span)>,
    flow: Flow,
    /// Layers so far, with those that are wrong.
    count: usize,
    found: Diagnostics,
    declared: &'a ast::Name,
}

impl<'a> Chain<'a, '_> {
    fn items(&mut self, items: &'a [ast::ModelItem], names: &mut Environment) {
        for item in items {
            if self.count > MAX_LAYERS {
                return;
            }
            match item {
                ast::ModelItem::Let(binding) => {
                    let value = names.number(&binding.value, &mut self.found);
                    names.define(&binding.name, value, &mut self.found);
                }
                ast::ModelItem::Layer(call) => self.layer(call, names),
                ast::ModelItem::Repeat { count, body, .. } => {
                    let times = match names.number(count, &mut self.found) {
                        Value::Integer(times) => times,
                        // Once is enough to find what is wrong inside.
                        Value::Unknown => 1,
                        other => {
                            self.found.push(other.is_not(count.span, "an integer"));
                            1
                        }
                    };
                    for _ in 0..times.max(0) {
                        let before = self.count;
                        self.items(body, &mut names.clone());
                        if self.count == before || self.count > MAX_LAYERS {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn layer(&mut self, call: &'a ast::Call, names: &Environment) {
        self.count += 1;
        if self.count > MAX_LAYERS {
            let message = format!("the model has more than {MAX_LAYERS} layers");
            self.found.push(Diagnostic::error(Code::TooLarge, call.span, "this one is too many", message));
            self.flow = Flow::Unknown;
            return;
        }
        let Some(declaration) = (self.find)(&call.name.text) else {
            let message = format!("no layer is called `{}`", call.name.text);
            self.found.push(Diagnostic::error(Code::UnknownName, call.name.span, "used here", message));
            self.flow = Flow::Unknown;
            return;
        };
        let name = format!("{}.{}", self.count - 1, declaration.name.text);
        let arguments = names.arguments(call, &declaration.parameters, self.parameters, &mut self.found);
        let inputs = self.layers.len().checked_sub(1).into_iter().collect();
        let instance = Instance { declaration, call: call.span, name, inputs, flow: &self.flow, data: &mut self.data };
        let (layer, flow) = instance.elaborate(arguments, &mut self.found);
        self.layers.extend(layer);
        self.flow = flow;
    }

    /// The chain must end in a loss.
    fn end(&mut self) {
        let message = match &self.flow {
            Flow::Loss(_) | Flow::Unknown => return,
            Flow::Start => format!("the model `{}` has no layer", self.declared.text),
            Flow::Tensor(..) => format!("the model `{}` has no loss", self.declared.text),
        };
        let diagnostic =
            Diagnostic::error(Code::BrokenChain, self.declared.span, "its last layer must end in `loss`", message)
                .help(
                    "write `loss` instead of `output` in the last layer, such as `loss cross_entropy(logits, targets)`",
                );
        self.found.push(diagnostic);
    }
}
