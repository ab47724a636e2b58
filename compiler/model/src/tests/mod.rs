//! Models from text, run by a plain interpreter: gradients against finite differences, halves against the whole.

mod gradients;
mod halves;
mod identity;
mod interpreter;
mod language;
mod ports;
mod reference;

use super::language::elaborate_with;
use super::stage_set::StageSet;
use super::{Kinds, Model, StageRequest, partition, stages};
use crate::pipeline::ModelCall;
use interpreter::Memory;
use pipe_ir::graph::DType;
use pipe_ir::task::TaskKind;
use pipe_ir::value::ValueKind;
use pipe_syntax::ast::{self, Declaration};
use pipe_syntax::diagnostic::Diagnostics;
use pipe_syntax::expr::number::Number;
use pipe_syntax::parse::parse;
use pipe_syntax::source::{FileId, Span};
use std::collections::BTreeMap;

const GPT: &str = include_str!("../../../../stdlib/models/gpt.pipe");

/// The only model of a text, its parameters set by `arguments` and otherwise by their defaults, which are integers.
fn elaborate(text: &str, arguments: &[(&str, i64)]) -> Result<Model, Diagnostics> {
    let file = parse(FileId(0), text).expect("the text of a test parses");
    let mut models = file.declarations.iter().filter_map(|declaration| match declaration {
        Declaration::Model(model) => Some(model),
        _ => None,
    });
    let model = models.next().expect("a test has a model");
    let layers = file.declarations.iter().filter_map(|declaration| match declaration {
        Declaration::Layer(layer) => Some((layer.name.text.as_str(), layer)),
        _ => None,
    });
    let value = |parameter: &ast::Parameter| {
        let given = arguments.iter().find(|(name, _)| *name == parameter.name.text).map(|(_, value)| *value);
        given.or_else(|| match parameter.default.as_ref()?.kind {
            ast::ExprKind::Integer(value) => Some(value),
            _ => None,
        })
    };
    let arguments =
        model.parameters.iter().filter_map(|it| Some((it.name.text.clone(), Number::whole(value(it)?)))).collect();
    let span = Span { file: FileId(0), start: 0, end: 0 };
    let (name, precision) = (model.name.text.clone(), DType::F32);
    let call = ModelCall {
        model: name,
        span,
        config: None,
        arguments,
        precision,
        precision_line: None,
        cut: None,
        drops: true,
    };
    elaborate_with(model, &layers.collect(), &call, &BTreeMap::new())
}

/// The model of a text that has nothing wrong.
fn sound(text: &str, arguments: &[(&str, i64)]) -> Model {
    elaborate(text, arguments).unwrap_or_else(|found| panic!("{found:#?}"))
}

const SPLIT: [TaskKind; 3] = [TaskKind::Forward, TaskKind::BackwardInput, TaskKind::BackwardWeight];
const FUSED: [TaskKind; 2] = [TaskKind::Forward, TaskKind::Backward];
const SPLIT_AGAIN: [TaskKind; 4] =
    [TaskKind::Forward, TaskKind::Recompute, TaskKind::BackwardInput, TaskKind::BackwardWeight];
const FUSED_AGAIN: [TaskKind; 3] = [TaskKind::Forward, TaskKind::Recompute, TaskKind::Backward];

fn compile(model: &Model, n_stages: usize, kinds: &[TaskKind], n_microbatches: u32) -> StageSet {
    let costs: Vec<u64> = model.layers.iter().map(super::Layer::flops).collect();
    let layers = partition(&costs, n_stages).expect("a test has enough layers");
    let kinds = vec![Kinds::of(kinds); n_stages];
    stages(model, &StageRequest { layers: &layers, kinds: &kinds, n_microbatches, optimizer: None })
}

/// Losses of the microbatches of a step, and weight gradients by name.
#[derive(Clone, PartialEq, Debug, Default)]
struct Step {
    losses: Vec<f64>,
    gradients: BTreeMap<String, Vec<f64>>,
}

/// Runs one step on random data.
fn step(set: &StageSet, n_microbatches: u32, weight: &dyn Fn(&str, usize) -> f64) -> Step {
    let class = |name: &str, microbatch: u32, position: usize| {
        ((noise(&format!("{name} {microbatch}"), position) + 1.0) * 2.5).floor()
    };
    step_on(set, n_microbatches, weight, &class)
}

/// Runs one step: for each microbatch every `F`, then the backward tasks from the last stage to the first.
fn step_on(
    set: &StageSet,
    n_microbatches: u32,
    weight: &dyn Fn(&str, usize) -> f64,
    data: &dyn Fn(&str, u32, usize) -> f64,
) -> Step {
    let mut memory = Memory::new(set, weight);
    let mut result = Step::default();
    for microbatch in 0..n_microbatches {
        memory.load(microbatch, data);
        let forward = set.stages.iter().map(|stage| stage.exec_of(TaskKind::Forward));
        let kinds = [TaskKind::Recompute, TaskKind::BackwardInput, TaskKind::Backward, TaskKind::BackwardWeight];
        let backward = set.stages.iter().rev().flat_map(|stage| kinds.map(|kind| stage.exec_of(kind)));
        for exec in forward.chain(backward).flatten() {
            memory.run(&set.execs[exec.index()]);
        }
        result.losses.push(memory.loss());
    }
    for (index, value) in set.values.iter().enumerate() {
        if value.kind == ValueKind::ParameterGradients {
            for slot in &value.tensors {
                result.gradients.insert(slot.name.clone(), memory.tensor(index, slot));
            }
        }
    }
    result
}

/// A number in -1..1 that looks random, from a name and a position.
fn noise(name: &str, position: usize) -> f64 {
    let mut state = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    state = (state ^ position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((state >> 11) as f64 / (1_u64 << 52) as f64) - 1.0
}
