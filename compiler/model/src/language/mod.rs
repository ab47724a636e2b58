//! The language of layers and models: from the syntax tree to layers with forward graphs, each
//! after those that it reads.
//!
//! All shapes are inferred and checked here, so everything after this can trust them. What is wrong in a layer is
//! reported once, however often the layer is used.

mod dropout;
mod environment;
mod evaluator;
mod flows;
mod functions;
mod images;
mod layer;
mod operators;
mod parts;
mod products;
mod routing;
mod ties;
mod value;
mod views;

pub use self::functions::usages as functions;

use self::environment::Environment;
use self::flows::{Flow, Made};
use self::layer::{Elaborated, Instance};
use self::value::Value;
use super::{DataTensor, Layer, Leaf, Model, Tape, Weight, WeightId};
use crate::pipeline::ModelCall;
use pipe_ir::graph::{Binary, DType};
use pipe_syntax::ast;
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::files::Files;
use pipe_syntax::source::Span;
use std::collections::BTreeMap;
use std::ops::Range;

/// The most turns that the loops of a model may have, all together.
const MAX_TURNS: u32 = 100_000;

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
    let layers = files.layer_names().filter_map(|name| Some((name, files.layer(name)?))).collect();
    let found = elaborate_with(model, &layers, call, parameters);
    found.map_err(|all| all.into_iter().map(|one| with_precision(one, call)).collect())
}

/// A finding with the edit of the pipeline that its help speaks of.
fn with_precision(found: Diagnostic, call: &ModelCall) -> Diagnostic {
    if found.help.as_deref() != Some(evaluator::TOO_LARGE) {
        return found;
    }
    match call.precision_line {
        Some(line) => found.edit(line, "precision f64"),
        None => found.edit(Span { start: call.span.end, ..call.span }, "\nprecision f64"),
    }
}

/// The same, given the model and the layers by their names.
pub(super) fn elaborate_with<'a>(
    model: &'a ast::Model,
    declared: &BTreeMap<&str, &'a ast::Layer>,
    call: &ModelCall,
    parameters: &BTreeMap<String, i64>,
) -> Result<Model, Diagnostics> {
    let mut assembly = Assembly {
        layers_by_name: declared,
        parameters,
        precision: call.precision,
        drops: call.drops,
        layers: Vec::new(),
        written: Vec::new(),
        data: Vec::new(),
        made: Vec::new(),
        last: 0..0,
        n_layers: 0,
        losses: Vec::new(),
        indexed: BTreeMap::new(),
        turns: 0,
        found: Vec::new(),
        declared: &model.name,
    };
    let mut names = Environment::new(parameters);
    for parameter in &model.parameters {
        let value = call.arguments.get(&parameter.name.text).map_or(Value::Unknown, |value| Value::Number(*value));
        names.define(&parameter.name, value, &mut assembly.found);
    }
    assembly.items(&model.items, &mut names);
    assembly.end();
    if assembly.found.is_empty() {
        assembly.add_losses();
        return Ok(Model {
            name: model.name.text.clone(),
            span: call.span,
            precision: call.precision,
            data: assembly.data.into_iter().map(|(tensor, _)| tensor).collect(),
            layers: assembly.layers,
            written: assembly.written,
        });
    }
    Err(in_order(assembly.found))
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

/// The layers of a model in the making.
struct Assembly<'a, 'f> {
    layers_by_name: &'f BTreeMap<&'f str, &'a ast::Layer>,
    parameters: &'f BTreeMap<String, i64>,
    precision: DType,
    drops: bool,
    layers: Vec<Layer>,
    /// By layer of the text: which of these it is.
    written: Vec<Range<usize>>,
    data: Vec<(DataTensor, Span)>,
    /// The outputs of every layer so far, also of those that are wrong.
    made: Vec<Made>,
    /// Which of these are of the last layer.
    last: Range<usize>,
    /// Layers of the text so far.
    n_layers: usize,
    /// Layers that compute losses to add to the model's loss.
    losses: Vec<usize>,
    /// Layers by name and index, whatever braces they stand in.
    indexed: BTreeMap<String, BTreeMap<i64, (usize, Span)>>,
    /// How many turns loops have had.
    turns: u32,
    found: Diagnostics,
    declared: &'a ast::Name,
}

/// A name of a layer's output, perhaps with an index.
type Named<'a> = (&'a ast::Name, Option<&'a ast::Expr>);

/// A layer as the model writes it.
struct Use<'a> {
    names: Vec<Named<'a>>,
    call: &'a ast::Call,
    sources: &'a [ast::LayerName],
    ties: &'a [ast::Tie],
    is_frozen: bool,
}

impl<'a> Assembly<'a, '_> {
    fn items(&mut self, items: &'a [ast::ModelItem], names: &mut Environment) {
        for item in items {
            if self.is_full() {
                return;
            }
            match item {
                ast::ModelItem::Let(binding) => match &binding.value.kind {
                    ast::ExprKind::Call(call) if self.is_layer(call) => {
                        let own = vec![(&binding.name, None)];
                        self.layer(&Use { names: own, call, sources: &[], ties: &[], is_frozen: false }, names);
                    }
                    _ => {
                        let value = names.number(&binding.value, &mut self.found);
                        names.define(&binding.name, value, &mut self.found);
                    }
                },
                ast::ModelItem::Layer(ast::LayerUse { names: own, call, sources, ties, frozen }) => {
                    let own = own.iter().map(|it| (&it.name, it.index.as_ref())).collect();
                    let is_frozen = frozen.as_ref().is_some_and(|frozen| self.is_given(frozen.given.as_ref(), names));
                    self.layer(&Use { names: own, call, sources, ties, is_frozen }, names);
                }
                ast::ModelItem::For { variable, start, end, body } => {
                    self.count(variable, (start, end), body, names);
                }
                ast::ModelItem::Repeat { count, body, .. } => self.repeat(count, body, names),
            }
        }
    }

    /// Whether a condition holds, or none is given.
    fn is_given(&mut self, given: Option<&ast::Expr>, names: &Environment) -> bool {
        let Some(given) = given else { return true };
        match names.number(given, &mut self.found) {
            Value::Condition(holds) => holds,
            Value::Unknown => false,
            other => {
                self.found.push(other.is_not(given.span, "a condition"));
                false
            }
        }
    }

    fn is_full(&self) -> bool {
        self.n_layers > MAX_LAYERS
    }

    fn is_layer(&self, call: &ast::Call) -> bool {
        self.layers_by_name.contains_key(call.name.text.as_str()) || !functions::is_function(&call.name.text)
    }

    fn repeat(&mut self, count: &'a ast::Expr, body: &'a [ast::ModelItem], names: &Environment) {
        // Once is enough to find what is wrong inside.
        let times = self.whole(count, names).unwrap_or(1);
        for _ in 0..times.max(0) {
            let before = self.made.len();
            self.items(body, &mut names.clone());
            if self.made.len() == before || self.is_full() {
                break;
            }
        }
    }

    /// `for k in 0..depth { .. }`
    fn count(
        &mut self,
        variable: &'a ast::Name,
        (start, end): (&'a ast::Expr, &'a ast::Expr),
        body: &'a [ast::ModelItem],
        names: &Environment,
    ) {
        let (first, behind) = (self.whole(start, names), self.whole(end, names));
        let (Some(first), Some(behind)) = (first, behind) else { return };
        for number in first..behind {
            if self.is_full() || self.turns > MAX_TURNS {
                return;
            }
            self.turns += 1;
            if self.turns > MAX_TURNS {
                let message = format!("the loops of the model have more than {MAX_TURNS} turns");
                let error = Diagnostic::error(Code::TooLarge, end.span, format!("this is {behind}"), message);
                self.found.push(error.help(format!("a model has at most {MAX_LAYERS} layers")));
                return;
            }
            let mut inside = names.clone();
            inside.define(variable, Value::whole(number), &mut self.found);
            self.items(body, &mut inside);
        }
    }

    /// The value of an expression that must be a whole number.
    fn whole(&mut self, expr: &ast::Expr, names: &Environment) -> Option<i64> {
        let value = names.number(expr, &mut self.found);
        if value.as_whole().is_none() && value != Value::Unknown {
            self.found.push(value.is_not_whole(expr.span));
        }
        value.as_whole()
    }

    /// The next layer.
    fn layer(&mut self, layer: &Use<'a>, names: &mut Environment) {
        let first = self.made.len();
        let made = self.make(self.n_layers, layer, names);
        made[0].sources.iter().for_each(|source| self.made[*source].n_readers += 1);
        self.made.extend(made);
        self.last = first..self.made.len();
        self.n_layers += 1;
        let (n_names, n_outputs) = (layer.names.len(), self.last.len());
        if n_names > 0 && n_names != n_outputs && self.made[first].flow != Flow::Unknown {
            let plural = |count: usize| if count == 1 { "" } else { "s" };
            let message = format!(
                "`{}` has {n_outputs} output{}, and {n_names} name{}",
                layer.call.name.text,
                plural(n_outputs),
                plural(n_names)
            );
            let error = Diagnostic::error(Code::WrongArguments, layer.call.span, "this layer", message);
            self.found.push(error.help("give each output a name, as in `let a, b = ..`"));
        }
        for (nth, named) in layer.names.iter().enumerate() {
            self.define_output(*named, first + nth.min(n_outputs - 1), names);
        }
    }

    /// Gives an output a name.
    fn define_output(&mut self, (name, index): Named<'a>, output: usize, names: &mut Environment) {
        if let Some(index) = index {
            return self.define_indexed(name, index, output, names);
        }
        if let Some((_, first)) = self.indexed.get(&name.text).and_then(|all| all.values().next()) {
            let message = format!("`{}` has an index already", name.text);
            let error = Diagnostic::error(Code::DuplicateName, name.span, "without an index", message);
            let error = error.label(*first, "declared here").help("give one of them another name");
            self.found.push(error);
        }
        names.define(name, Value::Layer(output), &mut self.found);
    }

    /// The outputs of a layer with this number; at least one.
    fn make(&mut self, number: usize, layer: &Use<'a>, names: &Environment) -> Vec<Made> {
        let call = layer.call;
        let unknown = Made {
            flow: Flow::Unknown,
            nth: (0, 1),
            call: call.span,
            sources: Vec::new(),
            n_readers: 0,
            output: 0,
            weights: Vec::new(),
        };
        if number >= MAX_LAYERS {
            let message = format!("the model has more than {MAX_LAYERS} layers");
            self.found.push(Diagnostic::error(Code::TooLarge, call.span, "this one is too many", message));
            return vec![unknown];
        }
        let Some(declaration) = self.layers_by_name.get(call.name.text.as_str()).copied() else {
            let ast::Name { text, span } = &call.name;
            let error =
                Diagnostic::error(Code::UnknownName, *span, "used here", format!("no layer is called `{text}`"));
            self.found.push(error.suggest(*span, text, self.layers_by_name.keys().copied()));
            return vec![unknown];
        };
        let name = format!("{number}.{}", declaration.name.text);
        let arguments = names.arguments(call, &declaration.parameters, self.parameters, &mut self.found);
        let sources = self.sources(declaration, (call, layer.sources), names).map_err(|diagnostic| {
            self.found.push(diagnostic.note(format!("in the layer `{name}` of the model")));
        });
        let sources = sources.unwrap_or_default();
        let inputs = sources.iter().map(|source| {
            let source = (*source)?;
            let Made { flow, output, .. } = &self.made[source];
            if let Flow::Tensor(ty) = flow { Some((*output, ty.clone())) } else { None }
        });
        let inputs = inputs.collect();
        let precision = self.precision;
        let ties = self.ties(declaration, layer.ties, names);
        let values =
            declaration.parameters.iter().filter_map(|parameter| match arguments.get(&parameter.name.text)? {
                Value::Number(number) => Some(format!("{} = {number}", parameter.name.text)),
                Value::Condition(_) | Value::Tensor(_) | Value::Layer(_) | Value::Unknown => None,
            });
        let values = values.collect::<Vec<_>>().join(", ");
        let (drops, data) = (self.drops, &mut self.data);
        let is_frozen = layer.is_frozen;
        let instance =
            Instance { declaration, precision, call: call.span, name, values, inputs, ties, is_frozen, drops, data };
        let (elaborated, flows) = instance.elaborate(arguments, &mut self.found);
        let (weights, outputs) = elaborated.map_or_else(Default::default, |elaborated| self.take(elaborated));
        let sources: Vec<usize> = sources.into_iter().flatten().collect();
        let count = flows.len();
        let of_flow = |(nth, flow)| Made {
            flow,
            nth: (nth, count),
            sources: sources.clone(),
            output: outputs.get(nth).copied().unwrap_or(0),
            weights: weights.clone(),
            ..unknown.clone()
        };
        flows.into_iter().enumerate().map(of_flow).collect()
    }

    /// Adds a layer, or what its parts and outputs become; says where each of its weights is, and which layers have its
    /// outputs.
    fn take(&mut self, elaborated: Elaborated) -> (Vec<(Weight, WeightId)>, Vec<usize>) {
        let Elaborated { layer, boundaries, roots, has_loss_beside } = elaborated;
        let first = self.layers.len();
        let weights = layer.weights.clone().into_iter();
        if boundaries.is_empty() && roots.len() == 1 {
            self.layers.push(layer);
            self.written.push(first..first + 1);
            let weights = weights.enumerate().map(|(weight, own)| (own, WeightId { layer: first, weight }));
            return (weights.collect(), vec![first]);
        }
        match parts::split(&layer, &roots, &boundaries, first) {
            Ok(split) => {
                self.layers.extend(split.layers);
                self.written.push(first..self.layers.len());
                let mut outputs = split.outputs;
                if has_loss_beside {
                    self.losses.extend(outputs.pop());
                }
                (weights.zip(split.weights).collect(), outputs)
            }
            Err(idle) => {
                let ast::Name { text, span } = &boundaries[idle].name;
                let message = format!("the part `{text}` computes nothing that is read");
                let error = Diagnostic::error(Code::WrongPart, *span, "begins here", message);
                self.found.push(error.help("write the lines that belong to it below, or leave its line out"));
                Default::default()
            }
        }
    }

    /// Adds the losses of layers with outputs to the model's loss, in one more layer. It belongs to the last layer of
    /// the text.
    fn add_losses(&mut self) {
        let Some(last) = self.layers.last().filter(|_| !self.losses.is_empty()) else { return };
        let inputs: Vec<usize> = std::iter::once(self.layers.len() - 1).chain(self.losses.iter().copied()).collect();
        let mut tape = Tape::new(self.precision);
        let leaf = |(port, layer): (usize, &usize)| (Leaf::Activation(port), self.layers[*layer].ty().clone());
        let leaves: Vec<_> = inputs.iter().enumerate().map(leaf).collect();
        let mut numbers = leaves.into_iter().map(|(leaf, ty)| tape.leaf(leaf, ty)).collect::<Vec<_>>().into_iter();
        let Some(first) = numbers.next() else { return };
        let output = numbers.fold(first, |sum, next| tape.binary(Binary::Add, sum, next));
        let sum = Layer {
            name: last.name.clone(),
            part: last.part.clone(),
            span: last.span,
            inputs,
            tape,
            output,
            weights: Vec::new(),
            carried: Vec::new(),
            names: BTreeMap::new(),
        };
        self.layers.push(sum);
        self.written.last_mut().into_iter().for_each(|written| written.end += 1);
    }
}
