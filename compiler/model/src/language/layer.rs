//! One layer: a declaration with numbers for its parameters becomes a forward graph.

use super::environment::Environment;
use super::evaluator::{Evaluator, Reported};
use super::flows::Flow;
use super::parts::Boundary;
use super::ties::Tied;
use super::value::Value;
use crate::graph::extract::reached;
use crate::{DataTensor, Layer, Leaf, Tape, Weight};
use pipe_ir::graph::{DType, TensorType};
use pipe_ir::ids::NodeId;
use pipe_ir::value::Init;
use pipe_syntax::ast::{self, LayerItem};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::source::Span;
use std::collections::BTreeMap;

/// A layer at its place in a model.
pub(super) struct Instance<'a, 'm> {
    /// What is declared.
    pub declaration: &'a ast::Layer,
    /// Type of its numbers.
    pub precision: DType,
    /// Where the model calls it.
    pub call: Span,
    /// Its name in the program.
    pub name: String,
    /// Its parameters with their numbers, as in `hidden = 64, heads = 4`.
    pub values: String,
    /// What flows in, by input: the number of a layer and the type of its output, where they are known.
    pub inputs: Vec<Option<(usize, TensorType)>>,
    /// Its weights that are those of layers before, by name.
    pub ties: BTreeMap<String, Tied>,
    /// Whether the model says that none of its weights is trained.
    pub is_frozen: bool,
    /// The model's data tensors so far, with the places of their declarations.
    pub data: &'m mut Vec<(DataTensor, Span)>,
}

/// A layer in the making.
struct Draft<'f> {
    names: Environment,
    tape: Tape,
    found: &'f mut Diagnostics,
    weights: Vec<Weight>,
    /// Leaves with where they were declared, to see that they are used.
    leaves: Vec<(NodeId, ast::Name)>,
    labels: BTreeMap<NodeId, String>,
    n_inputs: usize,
    boundaries: Vec<Boundary>,
    ends: Vec<End>,
}

/// `output` or `loss`.
struct End {
    is_loss: bool,
    node: Option<NodeId>,
    span: Span,
}

impl Instance<'_, '_> {
    /// The layer with its parts, if nothing is wrong with it, and what flows out.
    pub(super) fn elaborate(
        mut self,
        names: Environment,
        found: &mut Diagnostics,
    ) -> (Option<(Layer, Vec<Boundary>)>, Flow) {
        let mut findings = Diagnostics::new();
        let mut draft = Draft {
            names,
            tape: Tape::new(self.precision),
            found: &mut findings,
            weights: Vec::new(),
            leaves: Vec::new(),
            labels: BTreeMap::new(),
            n_inputs: 0,
            boundaries: Vec::new(),
            ends: Vec::new(),
        };
        for item in &self.declaration.items {
            self.item(&mut draft, item);
        }
        let output = self.check_end(&mut draft);
        let Draft { tape, weights, leaves, labels, boundaries, ends, .. } = draft;
        if let Some(output) = output.filter(|_| findings.is_empty()) {
            check_used(&tape, output, &leaves, &mut findings);
        }
        let flow = flow_out(&tape, output, ends.first());
        let with = if self.values.is_empty() { String::new() } else { format!(", with {}", self.values) };
        let note = format!("in the layer `{}` of the model{with}", self.name);
        let is_sound = findings.is_empty();
        found.extend(findings.into_iter().map(|finding| finding.note(note.clone())));
        let output = output.filter(|_| is_sound);
        let layer = output.map(|output| Layer {
            name: self.name,
            part: None,
            span: self.call,
            inputs: self.inputs.into_iter().flatten().map(|(layer, _)| layer).collect(),
            tape,
            output,
            weights,
            carried: Vec::new(),
            names: labels,
        });
        (layer.map(|layer| (layer, boundaries)), flow)
    }

    fn item(&mut self, draft: &mut Draft<'_>, item: &LayerItem) {
        match item {
            LayerItem::Input { name } => self.input(draft, name),
            LayerItem::Data { name, dtype, shape, span } => self.data(draft, name, *dtype, (shape, *span)),
            LayerItem::Weight { name, shape, init, frozen, span } => {
                let is_frozen = self.is_frozen || frozen.is_some();
                draft.weight(name, (shape, *span), (init, is_frozen), self.ties.get(&name.text));
            }
            LayerItem::Part { name, .. } => {
                let nodes = draft.tape.len();
                draft.boundaries.push(Boundary { name: name.clone(), nodes });
            }
            LayerItem::Let(binding) => {
                let value = draft.evaluator().value(&binding.value);
                draft.define(&binding.name, value);
            }
            LayerItem::Output { value, span } => draft.end(false, value, *span),
            LayerItem::Loss { value, span } => draft.end(true, value, *span),
        }
    }

    fn input(&self, draft: &mut Draft<'_>, name: &ast::Name) {
        let port = draft.n_inputs;
        draft.n_inputs += 1;
        let value = match self.inputs.get(port) {
            Some(Some((_, ty))) => {
                let node = draft.tape.leaf(Leaf::Activation(port), ty.clone());
                draft.leaves.push((node, name.clone()));
                Value::Tensor(node)
            }
            _ => Value::Unknown,
        };
        draft.define(name, value);
    }

    fn data(&mut self, draft: &mut Draft<'_>, name: &ast::Name, dtype: DType, (shape, span): (&[ast::Expr], Span)) {
        let Ok(shape) = draft.evaluator().shape(shape, span) else {
            return draft.define(name, Value::Unknown);
        };
        let dtype = if dtype.is_float() { draft.tape.precision() } else { dtype };
        let ty = TensorType { dtype, shape };
        let position = self.data.iter().position(|(tensor, _)| tensor.name == name.text).unwrap_or_else(|| {
            self.data.push((DataTensor { name: name.text.clone(), ty: ty.clone() }, span));
            self.data.len() - 1
        });
        let (known, first) = &self.data[position];
        if known.ty != ty {
            let message = format!("the data tensor `{}` is {} in one layer and {ty} in another", name.text, known.ty);
            let diagnostic = Diagnostic::error(Code::ShapeMismatch, span, format!("this is {ty}"), message);
            draft.found.push(diagnostic.label(*first, format!("this is {}", known.ty)));
        }
        let node = draft.tape.leaf(Leaf::Data(position), ty);
        draft.leaves.push((node, name.clone()));
        draft.define(name, Value::Tensor(node));
    }

    fn check_end(&self, draft: &mut Draft<'_>) -> Option<NodeId> {
        let name = &self.declaration.name;
        let Some(first) = draft.ends.first() else {
            let message = format!("the layer `{}` has neither `output` nor `loss`", name.text);
            let diagnostic = Diagnostic::error(Code::MissingItem, name.span, "declared here", message);
            draft
                .found
                .push(diagnostic.help("end it with `output x`, or with `loss l` if it is the last of the model"));
            return None;
        };
        for second in &draft.ends[1..] {
            let message = format!("the layer `{}` ends twice", name.text);
            let diagnostic = Diagnostic::error(Code::RepeatedItem, second.span, "the second end", message);
            draft.found.push(diagnostic.label(first.span, "the first end"));
        }
        let node = first.node?;
        if first.is_loss && !draft.tape.shape(node).is_empty() {
            let message = format!("a loss is one number, not {}", draft.tape.ty(node));
            let diagnostic = Diagnostic::error(Code::ShapeMismatch, first.span, "this loss", message);
            let help = match draft.tape.ty(node).elements() {
                1 => "`reshape(x, [])` makes a number of a tensor with one element",
                _ => "take `sum` or `mean` along each axis; `reshape(x, [])` then makes a number of it",
            };
            draft.found.push(diagnostic.help(help));
        }
        Some(node)
    }
}

fn flow_out(tape: &Tape, output: Option<NodeId>, end: Option<&End>) -> Flow {
    match (output, end) {
        (_, Some(End { is_loss: true, .. })) => Flow::Loss,
        (Some(node), Some(_)) => Flow::Tensor(tape.ty(node).clone()),
        _ => Flow::Unknown,
    }
}

impl Draft<'_> {
    fn evaluator(&mut self) -> Evaluator<'_> {
        Evaluator { names: &self.names, tape: &mut self.tape, found: self.found }
    }

    fn define(&mut self, name: &ast::Name, value: Value) {
        if let Value::Tensor(node) = value {
            self.labels.entry(node).or_insert_with(|| name.text.clone());
        }
        self.names.define(name, value, self.found);
    }

    fn weight(
        &mut self,
        name: &ast::Name,
        (shape, span): (&[ast::Expr], Span),
        (init, is_frozen): (&ast::Init, bool),
        tied: Option<&Tied>,
    ) {
        let shape = self.evaluator().shape(shape, span);
        let init = self.init(init);
        let (Ok(shape), Ok(init)) = (shape, init) else {
            return self.define(name, Value::Unknown);
        };
        let ty = TensorType { dtype: self.tape.precision(), shape };
        let node = self.tape.leaf(Leaf::Weight(self.weights.len()), ty.clone());
        if let Some(tied) = tied.filter(|tied| tied.ty != ty) {
            let message = format!("`{}` is {ty}, but the weight that it is tied to is {}", name.text, tied.ty);
            let diagnostic = Diagnostic::error(Code::ShapeMismatch, tied.span, format!("this is {}", tied.ty), message);
            self.found.push(diagnostic.label(span, format!("this is {ty}")).help("tied weights have one shape"));
        }
        let owner = tied.map(|tied| tied.owner);
        self.weights.push(Weight { name: name.text.clone(), ty, init, is_frozen, owner });
        self.leaves.push((node, name.clone()));
        self.define(name, Value::Tensor(node));
    }

    fn init(&mut self, init: &ast::Init) -> Result<Init, Reported> {
        let deviation = match init {
            ast::Init::Zeros => return Ok(Init::Zeros),
            ast::Init::Ones => return Ok(Init::Ones),
            ast::Init::Normal { deviation } => deviation,
        };
        let mut evaluator = self.evaluator();
        let value = evaluator.value(deviation);
        match value.to_f64() {
            Some(number) if number >= 0.0 => Ok(Init::Normal(number)),
            Some(number) => {
                let message = format!("a standard deviation is not negative, and this one is {number}");
                evaluator.fail(Diagnostic::error(Code::OutOfRange, deviation.span, "this deviation", message))
            }
            None if value == Value::Unknown => Err(Reported),
            None => evaluator.fail(value.is_not(deviation.span, "a number")),
        }
    }

    fn end(&mut self, is_loss: bool, value: &ast::Expr, span: Span) {
        let mut evaluator = self.evaluator();
        let result = evaluator.value(value);
        let node = match result {
            Value::Tensor(node) => Some(node),
            Value::Unknown => None,
            other => {
                evaluator.report(other.is_not(value.span, "a tensor"));
                None
            }
        };
        self.ends.push(End { is_loss, node, span });
    }
}

/// Everything declared must matter for the output: else it has no gradient, and is a mistake.
fn check_used(tape: &Tape, output: NodeId, leaves: &[(NodeId, ast::Name)], found: &mut Diagnostics) {
    let used = reached(tape, &BTreeMap::new(), [output]);
    for (node, name) in leaves {
        if used.binary_search(node).is_err() {
            let message = format!("`{}` has no effect on what flows out of the layer", name.text);
            let diagnostic = Diagnostic::error(Code::UnusedTensor, name.span, "declared here", message);
            found.push(diagnostic.help("use it, or remove its line"));
        }
    }
}
