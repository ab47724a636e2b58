//! One element or four of them: the operations that differ between scalars and vectors.

use cranelift::prelude::{FloatCC, FunctionBuilder, InstBuilder, MemFlagsData, Type, Value, types};

/// A width of code.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    /// Number of elements.
    pub(super) count: i64,
    pub(super) float: Type,
    int: Type,
    /// Whether the machine multiplies and adds in one rounding.
    fuses: bool,
}

impl Lanes {
    /// Code for single elements.
    pub(super) const fn one(fuses: bool) -> Self {
        Self { count: 1, float: types::F32, int: types::I32, fuses }
    }

    /// Code for four elements at once.
    pub(super) const fn four(fuses: bool) -> Self {
        Self { count: 4, float: types::F32X4, int: types::I32X4, fuses }
    }

    /// The same number in all lanes.
    pub(super) fn number(self, b: &mut FunctionBuilder, number: f32) -> Value {
        let number = b.ins().f32const(number);
        self.repeat(b, number)
    }

    /// A scalar in all lanes.
    pub(super) fn repeat(self, b: &mut FunctionBuilder, scalar: Value) -> Value {
        if self.count == 1 { scalar } else { b.ins().splat(self.float, scalar) }
    }

    /// The same integer in all lanes.
    pub(super) fn integer(self, b: &mut FunctionBuilder, number: u32) -> Value {
        let number = b.ins().iconst(types::I32, i64::from(number));
        if self.count == 1 { number } else { b.ins().splat(self.int, number) }
    }

    /// x * y + z inside a function's polynomial; sums and products that the user wrote are never fused.
    pub(super) fn multiply_add(self, b: &mut FunctionBuilder, x: Value, y: Value, z: Value) -> Value {
        if self.fuses {
            return b.ins().fma(x, y, z);
        }
        let product = b.ins().fmul(x, y);
        b.ins().fadd(product, z)
    }

    pub(super) fn bits(self, b: &mut FunctionBuilder, x: Value) -> Value {
        b.ins().bitcast(self.int, MemFlagsData::new(), x)
    }

    pub(super) fn float_of_bits(self, b: &mut FunctionBuilder, bits: Value) -> Value {
        b.ins().bitcast(self.float, MemFlagsData::new(), bits)
    }

    /// The number that an integer stands for.
    pub(super) fn float_of_integer(self, b: &mut FunctionBuilder, integer: Value) -> Value {
        b.ins().fcvt_from_sint(self.float, integer)
    }

    /// Per lane: `yes` where the comparison holds, else `no`.
    pub(super) fn select(
        self,
        b: &mut FunctionBuilder,
        (x, cc, y): (Value, FloatCC, Value),
        yes: Value,
        no: Value,
    ) -> Value {
        let holds = b.ins().fcmp(cc, x, y);
        if self.count == 1 {
            return b.ins().select(holds, yes, no);
        }
        let mask = b.ins().bitcast(self.float, MemFlagsData::new(), holds);
        b.ins().bitselect(mask, yes, no)
    }
}
