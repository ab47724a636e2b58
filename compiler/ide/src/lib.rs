//! What editors ask for: where each name is declared and used, what stands at a place, what can be written there, what
//! words are for their colours, and what can be folded.
//!
//! Every name of a schedule has one meaning: `s` of its `place`, of its block and of its `let`s is
//! one definition, at the first of these places. Names that nothing declares have no entry.

pub mod completion;
pub mod folds;
pub mod hover;
mod items;
mod parts;
pub mod place;
pub mod reference;
pub mod roles;
mod scopes;
pub mod settings;
pub mod signature;

use pipe_syntax::ast::{self, Declaration, ScheduleItem};
use pipe_syntax::files::Files;
use pipe_syntax::source::{FileId, Span};
use std::collections::BTreeMap;

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NameKind {
    /// `param width = 4`
    FileParameter,
    /// `schedule gpipe { .. }`
    Schedule,
    /// `layer linear { .. }`
    Layer,
    /// `model gpt { .. }`
    Model,
    /// `pipeline tiny { .. }`
    Pipeline,
    /// Of a schedule, layer or model.
    Parameter,
    /// `let warmup = ..`
    Let,
    /// `let warmup(s) = ..`
    Function,
    /// A number that takes several values, such as `s` of `place s on s`, or `k` of `for k in 0..M`.
    Variable,
    /// `input x`
    Input,
    /// `data tokens: ..`
    Data,
    /// `weight gain: ..`
    Weight,
    /// A queue beside compute: `lane link`
    Lane,
    /// A part of stages, where `parts` names it first: `parts s = attention, dispatch on link`
    Part,
}

impl NameKind {
    /// In words.
    pub const fn word(self) -> &'static str {
        match self {
            Self::FileParameter | Self::Parameter => "parameter",
            Self::Schedule => "schedule",
            Self::Layer => "layer",
            Self::Model => "model",
            Self::Pipeline => "pipeline",
            Self::Let => "let",
            Self::Function => "function",
            Self::Variable => "variable",
            Self::Input => "input",
            Self::Data => "data",
            Self::Weight => "weight",
            Self::Lane => "lane",
            Self::Part => "part",
        }
    }
}

/// One declaration of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// What it stands for.
    pub kind: NameKind,
    /// The name.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// All that declares it: the item or declaration.
    pub whole: Span,
    /// Lines of `///` above it.
    pub doc: String,
    /// The declaration that it is inside of, as a position in [`Names::definitions`].
    pub owner: Option<usize>,
}

/// The names of a compilation.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// In the order of the files and their texts, what is inside of a declaration after it.
    pub definitions: Vec<Definition>,
    /// Places with the definition that is meant, its own among them, in the order of the files and their texts.
    pub uses: Vec<(Span, usize)>,
}

impl Names {
    /// Of all files of a compilation.
    pub fn of(files: &Files) -> Self {
        let mut walker = Walker::default();
        for file in files.all() {
            file.declarations.iter().for_each(|declaration| walker.declare(declaration));
        }
        let mut declared = std::mem::take(&mut walker.declared).into_iter();
        for file in files.all() {
            for declaration in &file.declarations {
                walker.enter(declaration, &mut declared);
            }
        }
        let mut names = walker.names;
        names.uses.sort_unstable();
        names.uses.dedup();
        names
    }

    /// What is meant at a byte, or right behind a name, and the place of its name there.
    pub fn at(&self, file: FileId, byte: u32) -> Option<(Span, usize)> {
        let behind = self.uses.partition_point(|(span, _)| (span.file, span.start) <= (file, byte));
        let (span, definition) = *self.uses.get(behind.checked_sub(1)?)?;
        (span.file == file && byte <= span.end).then_some((span, definition))
    }

    /// Every place where a definition is meant.
    pub fn uses_of(&self, definition: usize) -> impl Iterator<Item = Span> {
        self.uses.iter().filter(move |(_, meant)| *meant == definition).map(|(span, _)| *span)
    }

    /// What is declared inside of a declaration.
    pub fn inside(&self, owner: usize) -> impl Iterator<Item = (usize, &Definition)> {
        self.definitions.iter().enumerate().filter(move |(_, definition)| definition.owner == Some(owner))
    }

    /// The first one of this kind and name inside of a declaration.
    pub fn find_inside(&self, kind: NameKind, name: &str) -> Option<usize> {
        self.definitions.iter().position(|found| found.owner.is_some() && found.kind == kind && found.name == name)
    }

    /// The declaration of this kind and name.
    pub fn find(&self, kind: NameKind, name: &str) -> Option<usize> {
        self.definitions.iter().position(|found| found.owner.is_none() && found.kind == kind && found.name == name)
    }
}

/// Collects names: first declarations with what others can name of them, then what is inside.
#[derive(Default)]
struct Walker {
    names: Names,
    /// The definition of each declaration, in their order; none for an import.
    declared: Vec<Option<usize>>,
    globals: BTreeMap<(NameKind, String), usize>,
    /// Parameters, weights, lanes and parts of declarations.
    members: BTreeMap<(usize, NameKind, String), usize>,
    /// The layer behind a name of a model.
    layers: BTreeMap<usize, usize>,
    /// Names with an index of the model at hand.
    indexed: BTreeMap<String, usize>,
    /// The schedule that the pipeline at hand names, whose lanes and parts it may name.
    schedule: Option<usize>,
    /// What names mean, from the outermost scope to the innermost.
    scopes: Vec<BTreeMap<String, usize>>,
    owner: Option<usize>,
}

impl Walker {
    fn declare(&mut self, declaration: &Declaration) {
        self.owner = None;
        let (kind, name, whole, doc, parameters) = match declaration {
            Declaration::Import(_) => return self.declared.push(None),
            Declaration::Parameter(it) => {
                let index = self.parameter(it, NameKind::FileParameter);
                self.globals.entry((NameKind::FileParameter, it.name.text.clone())).or_insert(index);
                return self.declared.push(Some(index));
            }
            Declaration::Let(it) => {
                let whole = Span { end: it.value.span.end, ..it.name.span };
                let index = self.define(NameKind::Let, &it.name, whole, &it.doc);
                self.globals.entry((NameKind::Let, it.name.text.clone())).or_insert(index);
                return self.declared.push(Some(index));
            }
            Declaration::Function(it) => (NameKind::Function, &it.name, it.span, &it.doc, &it.parameters),
            Declaration::Schedule(it) => (NameKind::Schedule, &it.name, it.span, &it.doc, &it.parameters),
            Declaration::Layer(it) => (NameKind::Layer, &it.name, it.span, &it.doc, &it.parameters),
            Declaration::Model(it) => (NameKind::Model, &it.name, it.span, &it.doc, &it.parameters),
            Declaration::Pipeline(it) => (NameKind::Pipeline, &it.name, it.span, &it.doc, &it.parameters),
        };
        let index = self.define(kind, name, whole, doc);
        self.globals.entry((kind, name.text.clone())).or_insert(index);
        self.declared.push(Some(index));
        self.owner = Some(index);
        self.parameters(index, parameters);
        match declaration {
            Declaration::Layer(layer) => self.tensors(index, layer),
            Declaration::Schedule(schedule) => schedule.items.iter().for_each(|item| match item {
                ScheduleItem::Lane(lane) => self.lane(index, lane),
                ScheduleItem::Parts(parts) => self.parts(index, parts),
                _ => {}
            }),
            Declaration::Pipeline(pipeline) => self.lanes_and_parts(index, &pipeline.items),
            _ => {}
        }
    }

    /// What a declaration can be given.
    fn parameters(&mut self, owner: usize, parameters: &[ast::Parameter]) {
        for parameter in parameters {
            let member = self.parameter(parameter, NameKind::Parameter);
            self.members.entry((owner, NameKind::Parameter, parameter.name.text.clone())).or_insert(member);
        }
    }

    fn parameter(&mut self, parameter: &ast::Parameter, kind: NameKind) -> usize {
        let end = parameter.default.as_ref().map_or(parameter.name.span.end, |value| value.span.end);
        self.define(kind, &parameter.name, Span { end, ..parameter.name.span }, &parameter.doc)
    }

    /// A new definition; its own place is a use of it.
    fn define(&mut self, kind: NameKind, name: &ast::Name, whole: Span, doc: &str) -> usize {
        let index = self.names.definitions.len();
        let (text, doc) = (name.text.clone(), doc.to_owned());
        self.names.definitions.push(Definition { kind, name: text, span: name.span, whole, doc, owner: self.owner });
        self.names.uses.push((name.span, index));
        index
    }

    fn refer(&mut self, span: Span, definition: Option<usize>) {
        self.names.uses.extend(definition.map(|definition| (span, definition)));
    }

    fn global(&self, kind: NameKind, name: &str) -> Option<usize> {
        self.globals.get(&(kind, name.to_owned())).copied()
    }

    fn member(&self, owner: usize, kind: NameKind, name: &str) -> Option<usize> {
        self.members.get(&(owner, kind, name.to_owned())).copied()
    }
}

#[cfg(test)]
mod tests;
