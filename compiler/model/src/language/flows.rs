//! What flows where: every input of a layer takes the output of one before it, and every output is read.

use super::Assembly;
use super::environment::Environment;
use super::value::Value;
use crate::{Weight, WeightId};
use pipe_ir::graph::TensorType;
use pipe_syntax::ast::{self, LayerItem};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::source::Span;

/// What comes out of a layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// A tensor.
    Tensor(TensorType),
    /// The loss, which no layer reads.
    Loss,
    /// Something that an error kept from being known.
    Unknown,
}

/// An output of a layer that the model has called.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// What it is.
    pub flow: Flow,
    /// Which of how many outputs of the layer.
    pub nth: (usize, usize),
    /// Where it was called.
    pub call: Span,
    /// The outputs that the layer reads.
    pub sources: Vec<usize>,
    /// How many inputs read it.
    pub n_readers: usize,
    /// The layer of the model that has this output, if nothing is wrong with it.
    pub output: usize,
    /// The weights of the layer, and where each is, if nothing is wrong with it.
    pub weights: Vec<(Weight, WeightId)>,
}

impl Assembly<'_, '_> {
    /// The output that flows into each input of the next layer, where it is known. Without `from`, inputs take what the
    /// layer before computes, if that is as many, and a layer without inputs begins a branch.
    pub(super) fn sources(
        &mut self,
        declaration: &ast::Layer,
        (call, given): (&ast::Call, &[ast::LayerName]),
        names: &Environment,
    ) -> Result<Vec<Option<usize>>, Diagnostic> {
        let name = &declaration.name.text;
        if let Some(loss) = self.made.last().filter(|made| made.flow == Flow::Loss) {
            let message = format!("`{name}` comes after the loss");
            let diagnostic = Diagnostic::error(Code::BrokenChain, call.span, "nothing flows in here", message);
            let diagnostic = diagnostic.label(loss.call, "this layer computes the loss");
            return Err(diagnostic.help("let only the last layer of the model end in `loss`"));
        }
        let inputs = declaration.items.iter().filter_map(|item| match item {
            LayerItem::Input { name } => Some(name),
            _ => None,
        });
        let inputs: Vec<&ast::Name> = inputs.collect();
        match (given, &inputs[..]) {
            ([], []) => Ok(Vec::new()),
            ([], inputs) if inputs.len() == self.last.len() => Ok(self.last.clone().map(Some).collect()),
            ([], [input]) => match self.made.last() {
                Some(before) => Err(several_outputs(name, call, before)),
                None => {
                    let message = format!("`{name}` has an input, but it is the first layer");
                    let diagnostic = Diagnostic::error(Code::BrokenChain, call.span, "nothing flows in here", message);
                    let diagnostic = diagnostic.label(input.span, "this input");
                    Err(diagnostic.help("begin with a layer that makes its output from `data`"))
                }
            },
            (given, inputs) if given.len() == inputs.len() => {
                Ok(given.iter().map(|name| self.source(name, names)).collect())
            }
            (given, inputs) => Err(wrong_number(name, call, given, inputs)),
        }
    }

    /// Gives a layer's output a name with an index, which it has in the whole model.
    pub(super) fn define_indexed(&mut self, name: &ast::Name, index: &ast::Expr, layer: usize, names: &Environment) {
        if names.get(&name.text).is_some() {
            let message = format!("`{}` is one layer or number already, and has no index", name.text);
            let error = Diagnostic::error(Code::DuplicateName, name.span, "with an index", message);
            self.found.push(error.help("give one of them another name"));
            return;
        }
        let Some(number) = self.whole(index, names) else { return };
        let all = self.indexed.entry(name.text.clone()).or_default();
        let span = Span { end: index.span.end, ..name.span };
        if let Some((_, first)) = all.insert(number, (layer, span)) {
            let message = format!("`{}[{number}]` is declared twice", name.text);
            let error = Diagnostic::error(Code::DuplicateName, span, "declared again", message);
            // In a loop it is the same place.
            let error = if first == span { error } else { error.label(first, "declared here") };
            self.found.push(error.help("each number has one layer: let the index count them"));
        }
    }

    /// The layer that a name stands for.
    pub(super) fn source(&mut self, layer: &ast::LayerName, names: &Environment) -> Option<usize> {
        let ast::LayerName { name, index, span } = layer;
        let of_name = self.indexed.get(&name.text);
        match (index, of_name) {
            (Some(index), Some(_)) => {
                let number = self.whole(index, names)?;
                let all = &self.indexed[&name.text];
                if let Some((layer, _)) = all.get(&number) {
                    return Some(*layer);
                }
                let message = format!("no layer before it is called `{}[{number}]`", name.text);
                let error = Diagnostic::error(Code::UnknownName, *span, format!("this is {number}"), message);
                let help = format!("`{}` has {} so far", name.text, numbers(all.keys().copied()));
                self.found.push(error.help(help));
                return None;
            }
            (None, Some(all)) => {
                let message = format!("`{}` has an index", name.text);
                let error = Diagnostic::error(Code::WrongType, *span, "which one?", message);
                let help = format!("write `{}[..]`: it has {} so far", name.text, numbers(all.keys().copied()));
                self.found.push(error.help(help));
                return None;
            }
            (Some(_), None) if names.get(&name.text).is_some() => {
                let message = format!("`{}` has no index", name.text);
                let error = Diagnostic::error(Code::WrongType, *span, "an index of it", message);
                self.found.push(error.help(format!("write `{}`", name.text)));
                return None;
            }
            (_, None) => {}
        }
        match names.get(&name.text) {
            Some(Value::Layer(number)) => return Some(number),
            Some(Value::Unknown) => {}
            Some(other) => self.found.push(other.is_not(name.span, "a layer")),
            None => {
                let message = format!("no layer before it is called `{}`", name.text);
                let diagnostic = Diagnostic::error(Code::UnknownName, name.span, "used here", message);
                let all = names.layers().chain(self.indexed.keys().map(String::as_str));
                let mut error = diagnostic.suggest(name.span, &name.text, all);
                let meant = if index.is_some() { "[..]" } else { "" };
                error.help.get_or_insert_with(|| format!("write `let {}{meant} = ..` before the layer", name.text));
                self.found.push(error);
            }
        }
        None
    }

    /// A sound model ends in a loss, and all that its layers compute is read.
    pub(super) fn end(&mut self) {
        let message = match self.made.last().map(|made| &made.flow) {
            Some(Flow::Loss | Flow::Unknown) => return self.find_unread(),
            None => format!("the model `{}` has no layer", self.declared.text),
            Some(Flow::Tensor(_)) => format!("the model `{}` has no loss", self.declared.text),
        };
        let diagnostic =
            Diagnostic::error(Code::BrokenChain, self.declared.span, "its last layer must end in `loss`", message)
                .help(
                    "write `loss` instead of `output` in the last layer, such as `loss cross_entropy(logits, targets)`",
                );
        self.found.push(diagnostic);
    }

    /// Where something else is wrong, nobody knows who reads what.
    fn find_unread(&mut self) {
        if !self.found.is_empty() {
            return;
        }
        for (number, unread) in self.made.iter().enumerate() {
            if unread.n_readers > 0 || unread.flow == Flow::Loss {
                continue;
            }
            let mut first = unread;
            while let [before] = first.sources[..]
                && self.made[before].n_readers == 1
            {
                first = &self.made[before];
            }
            let message = match unread.nth {
                (_, 1) => "no layer reads what this one computes".to_owned(),
                (nth, count) => format!("no layer reads output {} of the {count} that this one has", nth + 1),
            };
            let diagnostic = Diagnostic::error(Code::BrokenChain, unread.call, "this goes nowhere", message);
            let diagnostic = match self.made.get(number + 1) {
                Some(next) if next.sources.is_empty() => diagnostic.label(next.call, "this has no `input`"),
                _ => diagnostic,
            };
            let diagnostic = if first.sources.is_empty() && first.call != unread.call {
                diagnostic.label(first.call, "the branch that begins here never joins another one")
            } else {
                diagnostic
            };
            self.found.push(diagnostic.help("give it a name with `let`, and let a later layer read it with `from`"));
        }
    }
}

/// A layer with one input takes one output.
fn several_outputs(name: &str, call: &ast::Call, before: &Made) -> Diagnostic {
    let message = format!("`{name}` has one input, and the layer before has {} outputs", before.nth.1);
    let error = Diagnostic::error(Code::WrongArguments, call.span, "nothing says what flows in", message);
    let error = error.label(before.call, format!("{} outputs", before.nth.1));
    error.help("name them, as in `let a, b = ..`, and write the one that flows in behind `from`")
}

/// Indices in words: `the numbers 0 to 3`.
fn numbers(all: impl Iterator<Item = i64>) -> String {
    let all: Vec<i64> = all.collect();
    match all.as_slice() {
        [only] => format!("the number {only}"),
        [first, .., last] if last - first + 1 == all.len() as i64 => format!("the numbers {first} to {last}"),
        _ => format!("the numbers {}", all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// An input takes one tensor, and all inputs are written where there are several.
fn wrong_number(name: &str, call: &ast::Call, given: &[ast::LayerName], inputs: &[&ast::Name]) -> Diagnostic {
    let written = match inputs {
        [] => "no input".to_owned(),
        [input] => format!("one input, `{}`", input.text),
        several => {
            let names: Vec<String> = several.iter().map(|input| format!("`{}`", input.text)).collect();
            format!("{} inputs, {}", names.len(), names.join(", "))
        }
    };
    let span = match given {
        [] => call.span,
        [first, .., last] => Span { end: last.span.end, ..first.span },
        [only] => only.span,
    };
    let (label, message) = match given.len() {
        0 => ("nothing says what flows in".to_owned(), format!("`{name}` has {written}, and no `from`")),
        1 => ("1 layer".to_owned(), format!("`{name}` has {written}, but reads 1 layer")),
        n => (format!("{n} layers"), format!("`{name}` has {written}, but reads {n} layers")),
    };
    let diagnostic = Diagnostic::error(Code::WrongArguments, span, label, message);
    let diagnostic = inputs.iter().fold(diagnostic, |diagnostic, input| diagnostic.label(input.span, "an input"));
    match inputs.len() {
        0 => diagnostic.help("write `input x` in the layer, or leave out `from`"),
        1 => diagnostic.help("name one layer behind `from`, or leave it out to read the layer before"),
        n => diagnostic.help(format!("name {n} layers with `let`, and write them behind `from`")),
    }
}
