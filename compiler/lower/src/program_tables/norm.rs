//! The sum of the squares of all gradients in the tables of the program: its value, and for each update one executable
//! that adds to it.

use super::ProgramTables;
use pipe_ir::graph::{DType, TensorType};
use pipe_ir::ids::{StageId, ValueId};
use pipe_ir::program::{Access, Body, Exec, Operand};
use pipe_ir::training::NORM_NUMBERS;
use pipe_ir::units::Bytes;
use pipe_ir::value::{TensorSlot, Value, ValueKind};

/// What the value, and its tensor, are called.
const NAME: &str = "gradient_norm";

impl ProgramTables {
    /// Lets all updates read the sum, and adds what makes it.
    pub(super) fn add_norm(&mut self) {
        let norm = ValueId::from_index(self.values.len());
        let mut squares = Vec::new();
        for update in self.execs.iter_mut().filter(|exec| exec.body == Body::Optimizer) {
            let kind = |operand: &&Operand| self.values[operand.value.index()].kind;
            let gradients = update.operands.iter().find(|operand| kind(operand) == ValueKind::ParameterGradients);
            let Some(gradients) = gradients.map(|operand| operand.value) else { continue };
            update.operands.push(Operand::new(norm, Access::Read));
            let row = &self.values[gradients.index()];
            let bytes = update.chunk.map_or(row.bytes, |chunk| Bytes(chunk.to.0 - chunk.from.0));
            let flops = 2 * (bytes.0 / row.dtype().bytes().0);
            let operands = vec![Operand::new(gradients, Access::Read), Operand::new(norm, Access::Update)];
            let own = Exec::new(update.kind, update.stage, operands, Body::Squares, flops);
            squares.push(Exec { chunk: update.chunk, ..own });
        }
        if squares.is_empty() {
            return;
        }
        let ty = TensorType::new(DType::F64, &[NORM_NUMBERS]);
        let tensor = TensorSlot { name: NAME.into(), ty, offset: Bytes::ZERO, init: None, part: None, split: None };
        let bytes = tensor.ty.bytes();
        let value = Value::plain(NAME.into(), ValueKind::GradientNorm, StageId(0), bytes);
        self.values.push(Value { tensors: vec![tensor], ..value });
        self.norm = Some(norm);
        for exec in squares {
            self.add_piece(exec);
        }
    }

    /// The sum of the squares of all gradients, where these are clipped.
    pub(crate) const fn norm(&self) -> Option<ValueId> {
        self.norm
    }

    /// Whether several members stand behind a device.
    pub(crate) const fn has_members(&self) -> bool {
        self.members > 1
    }
}
