//! Bundles: several tensors in one buffer, each on a cache line of its own.

use pipe_ir::graph::TensorType;
use pipe_ir::ids::{StageId, ValueId};
use pipe_ir::units::Bytes;
use pipe_ir::value::{Init, Split, TensorSlot, Value, ValueKind};

/// Tensors laid out one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bundle {
    slots: Vec<TensorSlot>,
    end: Bytes,
}

impl Bundle {
    /// Makes room for a tensor and says where it starts.
    pub(crate) fn add(&mut self, name: impl Into<String>, ty: &TensorType, init: Option<Init>) -> Bytes {
        let offset = self.end;
        self.end = (offset + ty.bytes()).aligned();
        self.slots.push(TensorSlot { name: name.into(), ty: ty.clone(), offset, init, part: None, split: None });
        offset
    }

    /// Makes room for a tensor that the members of a device may divide, and says where it starts.
    pub(crate) fn add_split(
        &mut self,
        name: impl Into<String>,
        (ty, split): (&TensorType, Option<Split>),
        init: Option<Init>,
    ) -> Bytes {
        let offset = self.add(name, ty, init);
        self.slots.last_mut().expect("it was just added").split = split;
        offset
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The row of the table of values for it.
    pub(crate) fn into_value(self, name: String, kind: ValueKind, stage: StageId) -> Value {
        Value { name, kind, stage, bytes: self.end, tensors: self.slots, share: None }
    }
}

/// A place in a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ValueOffset {
    /// Which value.
    pub value: ValueId,
    /// Bytes from its start.
    pub offset: Bytes,
    /// How many microbatches after that of the run it belongs to (see [`pipe_ir::program::Operand::ahead`]).
    pub ahead: i32,
}

/// Appends a row to the table of values.
pub(crate) fn add_value(values: &mut Vec<Value>, value: Value) -> ValueId {
    values.push(value);
    ValueId::from_index(values.len() - 1)
}
