//! One layer: a declaration with numbers for its parameters becomes a forward graph.

use super::dropout::Keys;
use super::environment::Environment;
use super::evaluator::{Evaluator, Reported};
use super::flows::Flow;
use super::parts::Boundary;
use super::ties::Tied;
use super::value::Value;
use super::views;
use crate::graph::extract::reached;
use crate::{DataTensor, Layer, Leaf, Tape, Weight};
use pipe_ir::graph::{DType, Op, TensorType};
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
    /// Whether dropouts drop anything.
    pub drops: bool,
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
    /// With the model's data tensors so far.
    keys: Keys,
    boundaries: Vec<Boundary>,
    /// What flows out, and its line.
    outputs: Vec<End>,
    losses: Vec<End>,
}

/// A tensor of an `output` or a `loss`.
struct End {
    node: Option<NodeId>,
    /// Its expression.
    place: Span,
    line: Span,
}

/// A layer with what flows out of it.
pub(super) struct Elaborated {
    pub layer: Layer,
    pub boundaries: Vec<Boundary>,
    /// The outputs, and then the loss, if there is one.
    pub roots: Vec<NodeId>,
    /// Whether the layer has a loss and outputs. The model then adds this loss to its own.
    pub has_loss_beside: bool,
}

impl Instance<'_, '_> {
    /// The layer, if nothing is wrong with it, and what flows out: at least one.
    pub(super) fn elaborate(mut self, names: Environment, found: &mut Diagnostics) -> (Option<Elaborated>, Vec<Flow>) {
        let mut findings = Diagnostics::new();
        let mut draft = Draft {
            names,
            tape: Tape::new(self.precision),
            found: &mut findings,
            weights: Vec::new(),
            leaves: Vec::new(),
            labels: BTreeMap::new(),
            n_inputs: 0,
            keys: Keys::new(self.drops, &self.name, std::mem::take(self.data)),
            boundaries: Vec::new(),
            outputs: Vec::new(),
            losses: Vec::new(),
        };
        for item in &self.declaration.items {
            self.item(&mut draft, item);
        }
        let roots = self.check_ends(&mut draft);
        let Draft { tape, weights, leaves, labels, keys, boundaries, outputs, losses, .. } = draft;
        *self.data = keys.data;
        if let Some(roots) = roots.as_ref().filter(|_| findings.is_empty()) {
            check_used(&tape, roots, &leaves, &mut findings);
        }
        let flows = flows_out(&tape, roots.as_deref(), (&outputs, &losses));
        let with = if self.values.is_empty() { String::new() } else { format!(", with {}", self.values) };
        let note = format!("in the layer `{}` of the model{with}", self.name);
        let is_sound = findings.is_empty();
        found.extend(findings.into_iter().map(|finding| finding.note(note.clone())));
        let roots = roots.filter(|_| is_sound);
        let has_loss_beside = !outputs.is_empty() && !losses.is_empty();
        let elaborated = roots.map(|roots| Elaborated {
            layer: Layer {
                name: self.name,
                part: None,
                span: self.call,
                inputs: self.inputs.into_iter().flatten().map(|(layer, _)| layer).collect(),
                tape,
                output: roots[0],
                weights,
                carried: Vec::new(),
                names: labels,
            },
            boundaries,
            roots,
            has_loss_beside,
        });
        (elaborated, flows)
    }

    fn item(&mut self, draft: &mut Draft<'_>, item: &LayerItem) {
        match item {
            LayerItem::Input { name } => self.input(draft, name),
            LayerItem::Data { name, given, .. } | LayerItem::Weight { name, given, .. }
                if !draft.is_given(given.as_ref()) =>
            {
                draft.names.without(name);
            }
            LayerItem::Data { name, dtype, shape, span, .. } => Self::data(draft, name, *dtype, (shape, *span)),
            LayerItem::Loss { given, .. } if !draft.is_given(given.as_ref()) => {}
            LayerItem::Weight { name, shape, split, init, frozen, trained, span, .. } => {
                let is_frozen = (self.is_frozen && !trained) || frozen.is_some();
                let ends = (init, split.as_deref(), is_frozen);
                draft.weight(name, (shape, *span), ends, self.ties.get(&name.text));
            }
            LayerItem::Part { name, .. } => {
                let nodes = draft.tape.len();
                draft.boundaries.push(Boundary { name: name.clone(), nodes });
            }
            LayerItem::Let(binding) => {
                let value = draft.evaluator().value(&binding.value);
                draft.define(&binding.name, value);
            }
            LayerItem::Output { values, span } => {
                for value in values {
                    let end = draft.end(value, *span);
                    draft.outputs.push(end);
                }
            }
            LayerItem::Loss { value, span, .. } => {
                let end = draft.end(value, *span);
                draft.losses.push(end);
            }
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

    fn data(draft: &mut Draft<'_>, name: &ast::Name, dtype: DType, (shape, span): (&[ast::Expr], Span)) {
        let Ok(shape) = draft.evaluator().shape(shape, span) else {
            return draft.define(name, Value::Unknown);
        };
        let dtype = if dtype.is_float() { draft.tape.precision() } else { dtype };
        let ty = TensorType { dtype, shape };
        let data = &mut draft.keys.data;
        let position = data.iter().position(|(tensor, _)| tensor.name == name.text).unwrap_or_else(|| {
            data.push((DataTensor { name: name.text.clone(), ty: ty.clone() }, span));
            data.len() - 1
        });
        let (known, first) = &data[position];
        if known.ty != ty {
            let message = format!("the data tensor `{}` is {} in one layer and {ty} in another", name.text, known.ty);
            let diagnostic = Diagnostic::error(Code::ShapeMismatch, span, format!("this is {ty}"), message);
            draft.found.push(diagnostic.label(*first, format!("this is {}", known.ty)));
        }
        let node = draft.tape.leaf(Leaf::Data(position), ty);
        draft.leaves.push((node, name.clone()));
        draft.define(name, Value::Tensor(node));
    }

    /// What flows out, if that is known.
    fn check_ends(&self, draft: &mut Draft<'_>) -> Option<Vec<NodeId>> {
        let name = &self.declaration.name;
        if draft.outputs.is_empty() && draft.losses.is_empty() {
            let message = format!("the layer `{}` has neither `output` nor `loss`", name.text);
            let diagnostic = Diagnostic::error(Code::MissingItem, name.span, "declared here", message);
            draft
                .found
                .push(diagnostic.help("end it with `output x`, or with `loss l` if it is the last of the model"));
            return None;
        }
        for (ends, help) in [
            (&mut draft.outputs, "write them in one line: `output a, b`"),
            (&mut draft.losses, "add them up in one line: `loss a + b`"),
        ] {
            let Some(first) = ends.first().map(|end| end.line) else { continue };
            for second in ends.iter().filter(|end| end.line != first) {
                let message = format!("the layer `{}` ends twice", name.text);
                let diagnostic = Diagnostic::error(Code::RepeatedItem, second.line, "the second end", message);
                draft.found.push(diagnostic.label(first, "the first end").help(help));
            }
            ends.retain(|end| end.line == first);
        }
        let loss = draft.losses.first().and_then(|loss| Some((loss.node?, loss.line)));
        if let Some((node, line)) = loss.filter(|(node, _)| !draft.tape.shape(*node).is_empty()) {
            let message = format!("a loss is one number, not {}", draft.tape.ty(node));
            let diagnostic = Diagnostic::error(Code::ShapeMismatch, line, "this loss", message);
            let help = match draft.tape.ty(node).elements() {
                1 => "`reshape(x, [])` makes a number of a tensor with one element",
                _ => "take `sum` or `mean` along each axis; `reshape(x, [])` then makes a number of it",
            };
            draft.found.push(diagnostic.help(help));
        }
        let ends = || draft.outputs.iter().chain(&draft.losses);
        if ends().count() > 1 {
            let is_given = |node: NodeId| matches!(draft.tape.node(node).op, Op::Input { .. } | Op::Constant(_));
            for end in ends().filter(|end| end.node.is_some_and(is_given)) {
                let message = "of several tensors that flow out, each is one that the layer computes";
                let error = Diagnostic::error(Code::WrongType, end.place, "not computed here", message);
                draft.found.push(error.help("let its readers take it from where it comes"));
            }
        }
        ends().map(|end| end.node).collect()
    }
}

/// What flows out, in the order of the outputs.
fn flows_out(tape: &Tape, roots: Option<&[NodeId]>, (outputs, losses): (&[End], &[End])) -> Vec<Flow> {
    if outputs.is_empty() {
        return vec![if losses.is_empty() { Flow::Unknown } else { Flow::Loss }];
    }
    let flow = |output: usize| roots.map_or(Flow::Unknown, |roots| Flow::Tensor(tape.ty(roots[output]).clone()));
    (0..outputs.len()).map(flow).collect()
}

impl Draft<'_> {
    fn evaluator(&mut self) -> Evaluator<'_> {
        Evaluator { names: &self.names, tape: &mut self.tape, found: self.found, keys: &mut self.keys }
    }

    /// Whether a line counts.
    fn is_given(&mut self, given: Option<&ast::Expr>) -> bool {
        let Some(given) = given else { return true };
        let mut evaluator = self.evaluator();
        match evaluator.value(given) {
            Value::Condition(holds) => holds,
            Value::Unknown => true,
            other => {
                evaluator.report(other.is_not(given.span, "a condition"));
                true
            }
        }
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
        (init, split, is_frozen): (&ast::Init, Option<&ast::WeightSplit>, bool),
        tied: Option<&Tied>,
    ) {
        let shape = self.evaluator().shape(shape, span);
        let init = self.init(init);
        let (Ok(shape), Ok(init)) = (shape, init) else {
            return self.define(name, Value::Unknown);
        };
        let ty = TensorType { dtype: self.tape.precision(), shape };
        let split = split.and_then(|split| views::split_of_weight(&mut self.evaluator(), split, &ty).ok());
        let node = self.tape.leaf(Leaf::Weight(self.weights.len()), ty.clone());
        if let Some(tied) = tied.filter(|tied| tied.ty != ty) {
            let message = format!("`{}` is {ty}, but the weight that it is tied to is {}", name.text, tied.ty);
            let diagnostic = Diagnostic::error(Code::ShapeMismatch, tied.span, format!("this is {}", tied.ty), message);
            self.found.push(diagnostic.label(span, format!("this is {ty}")).help("tied weights have one shape"));
        }
        let owner = tied.map(|tied| tied.owner);
        self.weights.push(Weight { name: name.text.clone(), ty, split, init, is_frozen, owner });
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

    fn end(&mut self, value: &ast::Expr, line: Span) -> End {
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
        End { node, place: value.span, line }
    }
}

/// Everything declared must matter for the output: else it has no gradient, and is a mistake.
fn check_used(tape: &Tape, roots: &[NodeId], leaves: &[(NodeId, ast::Name)], found: &mut Diagnostics) {
    let used = reached(tape, &BTreeMap::new(), roots.iter().copied());
    for (node, name) in leaves {
        if used.binary_search(node).is_err() {
            let message = format!("`{}` has no effect on what flows out of the layer", name.text);
            let diagnostic = Diagnostic::error(Code::UnusedTensor, name.span, "declared here", message);
            found.push(diagnostic.help("use it, or remove its line"));
        }
    }
}
