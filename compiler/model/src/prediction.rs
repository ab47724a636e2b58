//! Predictions: what a language model computes before its loss, for one row of tokens.
//!
//! The graph is that of the forward pass of all layers in one stage, up to the logits that go into the cross-entropy.
//! Every number is computed as it is in training.

use crate::pipeline::ModelCall;
use crate::stages::{Kinds, StageRequest, stages};
use crate::{Model, Weight, elaborate, identity, mixed};
use pipe_ir::graph::{DType, Graph, Op, Store, TensorType};
use pipe_ir::ids::{NodeId, ValueId};
use pipe_ir::prediction::Prediction;
use pipe_ir::program::{Body, Exec};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use pipe_syntax::diagnostic::{Code, Diagnostic, Diagnostics};
use pipe_syntax::expr::arguments::Values;
use pipe_syntax::expr::number::Number;
use pipe_syntax::files::Files;
use std::collections::BTreeMap;

/// What a model predicts for a row of tokens. It has one row without documents, and `positions` of them, where `rows`,
/// `documents` and `sequence` are parameters of the model that change no weight.
///
/// # Errors
/// What is wrong with the model, or why it predicts no tokens.
pub fn prediction(
    files: &Files,
    call: &ModelCall,
    parameters: &Values,
    positions: Option<u64>,
) -> Result<Prediction, Diagnostics> {
    let mut call = ModelCall { drops: false, ..call.clone() };
    let whole = elaborate(files, &call, parameters)?;
    let (digest, mut model) = (identity::digest(&whole), whole);
    // A text is one document.
    let sequence = positions.and_then(|number| i64::try_from(number).ok());
    let smaller = [("rows", Some(1)), ("documents", Some(0)), ("sequence", sequence)];
    for (name, number) in smaller {
        let own = call.arguments.get(name).and_then(|own| own.as_whole());
        let Some(number) = number.filter(|number| own.is_some_and(|own| *number < own)) else { continue };
        let mut other = call.clone();
        other.arguments.insert(name.to_owned(), Number::whole(number));
        if let Ok(found) = elaborate(files, &other, parameters)
            && has_weights_of(&found, &model)
        {
            (call, model) = (other, found);
        }
    }
    let (name, span) = (model.name.clone(), model.span);
    let (found, data) = (of_model(model), "`data tokens: i32[rows, sequence]` and `cross_entropy(logits, targets)`");
    let found = found.map_err(|reason| {
        let message = format!("`{name}` predicts no tokens: {reason}");
        let error = Diagnostic::error(Code::UnusableData, span, "no language model", message);
        vec![error.help(format!("a language model has {data} in its loss"))]
    });
    found.map(|found| Prediction { model: digest, ..found })
}

fn has_weights_of(one: &Model, other: &Model) -> bool {
    let weights = |model: &Model| -> Vec<Vec<Weight>> {
        let weights = model.layers.iter().map(|layer| layer.weights.clone());
        // First values may depend on sizes; they are read from elsewhere.
        weights
            .map(|own| own.into_iter().map(|weight| Weight { init: pipe_ir::value::Init::Zeros, ..weight }).collect())
            .collect()
    };
    weights(one) == weights(other)
}

/// The graph of the forward pass up to the logits, or why there is none.
fn of_model(model: Model) -> Result<Prediction, String> {
    let all = 0..model.layers.len();
    let kinds = [Kinds::of(&[TaskKind::Forward])];
    let request =
        StageRequest { layers: std::slice::from_ref(&all), kinds: &kinds, n_microbatches: 1, optimizer: None };
    let set = stages(&mixed::stored(model), &request);
    let forward = set.stages.first().and_then(|stage| stage.exec_of(TaskKind::Forward));
    let forward = forward.map(|id| &set.execs[id.index()]);
    let Some((forward, Body::Graph(graph))) = forward.map(|exec| (exec, &exec.body)) else {
        return Err("it has no forward pass".to_owned());
    };
    let losses: Vec<NodeId> =
        (0..graph.nodes.len()).map(NodeId::from_index).filter(|id| graph.node(*id).op == Op::CrossEntropy).collect();
    let [loss] = losses[..] else {
        return Err(match losses.len() {
            0 => "its loss is no `cross_entropy`".to_owned(),
            count => format!("its loss has {count} terms that are a `cross_entropy`"),
        });
    };
    let logits = graph.node(loss).inputs[0];
    before(graph, forward, &set.values, logits)
        .map(|found| Prediction { is_loss: graph.stores.iter().any(|store| store.node == loss), ..found })
}

/// The part of a graph that computes a node.
fn before(graph: &Graph, forward: &Exec, values: &[Value], logits: NodeId) -> Result<Prediction, String> {
    let mut is_needed = vec![false; graph.nodes.len()];
    is_needed[logits.index()] = true;
    for id in (0..=logits.index()).rev().filter(|id| *id < graph.nodes.len()) {
        if is_needed[id] {
            graph.nodes[id].inputs.iter().for_each(|input| is_needed[input.index()] = true);
        }
    }
    let (mut own, mut images) = (Graph::default(), BTreeMap::<NodeId, NodeId>::new());
    let (mut operands, mut numbers) = (Vec::<Value>::new(), BTreeMap::<u32, u32>::new());
    for id in (0..graph.nodes.len()).filter(|id| is_needed[*id]).map(NodeId::from_index) {
        let node = graph.node(id);
        let op = match &node.op {
            Op::Input { operand, offset } => {
                let number = *numbers.entry(*operand).or_insert_with(|| {
                    let value: ValueId = forward.operands[*operand as usize].value;
                    operands.push(values[value.index()].clone());
                    u32::try_from(operands.len() - 1).unwrap_or(u32::MAX)
                });
                Op::Input { operand: number, offset: *offset }
            }
            op => op.clone(),
        };
        let inputs = node.inputs.iter().map(|input| images[input]).collect();
        images.insert(id, own.push(op, inputs, node.ty.clone()));
    }
    let read = |value: &Value| value.tensors.iter().map(|slot| slot.name.clone()).collect::<Vec<_>>();
    let data: Vec<usize> = (0..operands.len()).filter(|at| operands[*at].kind == ValueKind::Data).collect();
    let names: Vec<String> = data.iter().flat_map(|at| read(&operands[*at])).collect();
    let ([tokens], [name]) = (&data[..], &names[..]) else {
        return Err(format!("what goes into its `cross_entropy` depends on the data {}", listed(&names)));
    };
    let ty = operands[*tokens].tensors[0].ty.clone();
    let (DType::I32, [rows, sequence]) = (ty.dtype, ty.shape.as_slice()) else {
        return Err(format!("its data `{name}: {ty}` is not `i32[rows, sequence]`"));
    };
    let result: TensorType = graph.node(logits).ty.clone();
    let positions: u64 = result.shape.iter().rev().skip(1).product();
    if name != "tokens" || positions != rows * sequence {
        return Err(format!(
            "its `cross_entropy` is of {result}, and its data `{name}: {ty}`: each token needs a prediction"
        ));
    }
    let (sequence, tokens) = (*sequence, *tokens);
    let operand = u32::try_from(operands.len()).unwrap_or(u32::MAX);
    let (node, offset, own_offset) = (images[&logits], Bytes::ZERO, Bytes::ZERO);
    own.stores.push(Store { node, operand, offset, accumulate: false, own: own_offset });
    operands.push(Value::plain("logits".to_owned(), ValueKind::Activation, forward.stage, result.bytes()));
    Ok(Prediction {
        graph: own,
        operands,
        tokens,
        sequence,
        logits: result,
        is_loss: false,
        model: pipe_ir::digest::Digest::default(),
    })
}

fn listed(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    if quoted.is_empty() { "no data".to_owned() } else { quoted.join(" and ") }
}
