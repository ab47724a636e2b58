//! A plain interpreter of stage graphs, in double precision: what every operation means, without any cleverness.

use crate::stage_set::StageSet;
use pipe_ir::graph::Op;
use pipe_ir::program::{Access, Body, Exec};
use pipe_ir::reference::{Tensor, evaluate};
use pipe_ir::value::{TensorSlot, ValueKind};
use std::collections::BTreeMap;

/// What buffers hold: tensors by value and offset.
pub(super) struct Memory<'a> {
    set: &'a StageSet,
    tensors: BTreeMap<(usize, u64), Vec<f64>>,
}

impl<'a> Memory<'a> {
    /// Weights from a function of name and position, gradients zero, nothing else.
    pub(super) fn new(set: &'a StageSet, weight: &dyn Fn(&str, usize) -> f64) -> Self {
        let mut memory = Self { set, tensors: BTreeMap::new() };
        for (index, value) in set.values.iter().enumerate() {
            for slot in &value.tensors {
                let elements = 0..slot.ty.elements() as usize;
                let data = match value.kind {
                    ValueKind::Parameters => elements.map(|position| weight(&slot.name, position)).collect(),
                    ValueKind::ParameterGradients => elements.map(|_| 0.0).collect(),
                    _ => continue,
                };
                memory.tensors.insert((index, slot.offset.0), data);
            }
        }
        memory
    }

    /// Forgets what belongs to the last microbatch and loads the data of the next one: a function of the tensor's name,
    /// the microbatch and the position.
    pub(super) fn load(&mut self, microbatch: u32, data: &dyn Fn(&str, u32, usize) -> f64) {
        let values = &self.set.values;
        self.tensors.retain(|(value, _), _| values[*value].kind.is_persistent());
        for (index, value) in values.iter().enumerate().filter(|(_, value)| value.kind == ValueKind::Data) {
            for slot in &value.tensors {
                let elements = (0..slot.ty.elements() as usize).map(|position| data(&slot.name, microbatch, position));
                self.tensors.insert((index, slot.offset.0), elements.collect());
            }
        }
    }

    pub(super) fn tensor(&self, value: usize, slot: &TensorSlot) -> Vec<f64> {
        self.tensors[&(value, slot.offset.0)].clone()
    }

    pub(super) fn loss(&self) -> f64 {
        let value = self.set.values.iter().position(|value| value.kind == ValueKind::Loss).expect("a loss");
        self.tensors[&(value, 0)][0]
    }

    /// Runs an executable. Reads must find what was written, under the same type.
    pub(super) fn run(&mut self, exec: &Exec) {
        let Body::Graph(graph) = &exec.body else { panic!("only graphs are interpreted") };
        let mut done: Vec<Tensor> = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            let data = match &node.op {
                Op::Input { operand, offset } => {
                    let operand = exec.operands[*operand as usize];
                    assert_eq!(operand.access, Access::Read, "{} reads what it writes", exec.name());
                    let value = &self.set.values[operand.value.index()];
                    let slot = value.tensors.iter().find(|slot| slot.offset == *offset).expect("a slot");
                    assert_eq!(slot.ty, node.ty, "{} reads {} of {}", exec.name(), slot.name, value.name);
                    let key = (operand.value.index(), offset.0);
                    self.tensors.get(&key).unwrap_or_else(|| panic!("{} needs {}", exec.name(), value.name)).clone()
                }
                _ => {
                    let inputs: Vec<&Tensor> = node.inputs.iter().map(|input| &done[input.index()]).collect();
                    evaluate(node, &inputs)
                }
            };
            done.push(Tensor::new(&node.ty.shape, data));
        }
        for store in &graph.stores {
            let value = exec.operands[store.operand as usize].value;
            let new = done[store.node.index()].data();
            let slot = &self.set.values[value.index()].tensors.iter().find(|slot| slot.offset == store.offset);
            assert_eq!(slot.expect("a slot").ty, graph.nodes[store.node.index()].ty);
            let old = self.tensors.entry((value.index(), store.offset.0)).or_insert_with(|| vec![0.0; new.len()]);
            for (old, new) in old.iter_mut().zip(new) {
                *old = if store.accumulate { *old + new } else { *new };
            }
        }
    }
}
