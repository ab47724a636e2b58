//! Emission of fused element-wise kernels: members become the steps of one expression.

use super::Emitter;
use crate::graph::{DType, Op};
use crate::ids::NodeId;
use crate::kernels::view::collapse;
use crate::kernels::{Dim, Elementwise, Expression, Kernel, Load, Output, Step, Strided, View};

/// An expression whose tensors are still views of the full shape.
struct Draft {
    dtype: DType,
    steps: Vec<Step>,
    inputs: Vec<View>,
    outputs: Vec<(View, Output)>,
}

impl Draft {
    /// A draft for tensors of this type.
    const fn new(dtype: DType) -> Self {
        Self { dtype: dtype.arithmetic(), steps: Vec::new(), inputs: Vec::new(), outputs: Vec::new() }
    }

    fn push(&mut self, step: Step) -> u32 {
        let position = self.steps.iter().position(|known| *known == step).unwrap_or_else(|| {
            self.steps.push(step);
            self.steps.len() - 1
        });
        index(position)
    }

    fn load(&mut self, view: View) -> u32 {
        let position = self.inputs.iter().position(|known| *known == view).unwrap_or_else(|| {
            self.inputs.push(view);
            self.inputs.len() - 1
        });
        self.push(Step::Load(index(position)))
    }
}

fn index(position: usize) -> u32 {
    u32::try_from(position).expect("an expression has few steps and inputs")
}

impl Emitter<'_> {
    /// One kernel for element-wise nodes (or constants) of one type of arithmetic.
    pub(super) fn group(&mut self, members: &[NodeId]) {
        let mut draft = Draft::new(members.first().map_or(DType::F32, |&id| self.graph.node(id).ty.dtype));
        let mut values: Vec<u32> = Vec::with_capacity(members.len());
        for &id in members {
            let node = self.graph.node(id);
            let mut operand = |position: usize| {
                let input = node.inputs[position];
                match members.iter().position(|&member| member == input) {
                    Some(member) => values[member],
                    None => self.outside(&mut draft, input, &node.ty.shape),
                }
            };
            let step = match node.op {
                Op::Constant(number) => Step::Constant(number.to_bits()),
                Op::Convert if node.ty.dtype == DType::BF16 => Step::Round(operand(0)),
                // Loads widen, and what was rounded is a number of the expression's type already.
                Op::Convert => {
                    let widened = operand(0);
                    values.push(widened);
                    continue;
                }
                Op::Unary(unary) => Step::Unary(unary, operand(0)),
                Op::Binary(binary) => Step::Binary(binary, operand(0), operand(1)),
                _ => unreachable!("only element-wise nodes are grouped"),
            };
            values.push(draft.push(step));
        }
        for (&id, &step) in members.iter().zip(&values) {
            if self.is_read_outside(id, members) {
                let home = self.place(id);
                let output = Output { dtype: home.view.dtype, step, accumulate: home.accumulate };
                draft.outputs.push((home.view, output));
            }
        }
        self.finish(draft);
    }

    /// `to += from`.
    pub(super) fn add(&mut self, from: &View, to: &View) {
        let mut draft = Draft::new(to.dtype);
        let step = draft.load(from.clone());
        draft.outputs.push((to.clone(), Output { dtype: to.dtype, step, accumulate: true }));
        self.finish(draft);
    }

    /// An input that no member computes: a number, or a tensor repeated to the shape of the group.
    fn outside(&self, draft: &mut Draft, input: NodeId, shape: &[u64]) -> u32 {
        if let Op::Constant(number) = self.graph.node(input).op {
            return draft.push(Step::Constant(number.to_bits()));
        }
        draft.load(self.view(input).broadcast(shape))
    }

    fn is_read_outside(&self, id: NodeId, members: &[NodeId]) -> bool {
        let inside = members.iter().flat_map(|&member| &self.graph.node(member).inputs);
        self.liveness.uses(id.index()) > inside.filter(|&&input| input == id).count()
    }

    /// Emits a draft once every tensor of it has a run that can be vectorised.
    fn finish(&mut self, mut draft: Draft) {
        for position in 0..draft.inputs.len() {
            let view = &draft.inputs[position];
            let last = view.dims.iter().rev().find(|dim| dim.size > 1);
            if last.is_some_and(|dim| dim.stride > 1) {
                draft.inputs[position] = self.materialized(&view.clone());
            }
        }
        let views: Vec<&View> = draft.inputs.iter().chain(draft.outputs.iter().map(|(view, _)| view)).collect();
        let dims: Vec<&[Dim]> = views.iter().map(|view| view.dims.as_slice()).collect();
        let mut runs = collapse(&dims);
        if runs.is_empty() {
            runs.push(vec![Dim { size: 1, stride: 1 }; views.len()]);
        }
        let strided = |position: usize| Strided {
            at: views[position].at,
            strides: runs.iter().map(|run| run[position].stride).collect(),
        };
        let n_inputs = draft.inputs.len();
        let inputs: Vec<Strided> = (0..n_inputs).map(strided).collect();
        let loads = inputs.iter().zip(&views);
        self.out.kernels.push(Kernel::Elementwise(Elementwise {
            sizes: runs.iter().map(|run| run[0].size).collect(),
            expression: Expression {
                dtype: draft.dtype,
                inputs: loads
                    .map(|(input, view)| Load { dtype: view.dtype, splat: input.strides.last() == Some(&0) })
                    .collect(),
                steps: draft.steps,
                outputs: draft.outputs.iter().map(|(_, output)| *output).collect(),
            },
            inputs,
            outputs: (n_inputs..views.len()).map(strided).collect(),
        }));
    }
}
