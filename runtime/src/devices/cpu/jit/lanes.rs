//! One element or a register of them: the operations that differ between scalars and vectors,
//! single and double precision.

use cranelift::codegen::ir::Endianness;
use cranelift::prelude::{FloatCC, FunctionBuilder, InstBuilder, MemFlagsData, Type, Value, types};
use pipe_ir::graph::DType;

/// A width of code.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    /// Number of elements.
    pub(super) count: i64,
    /// All of them.
    pub(super) float: Type,
    int: Type,
    /// One of them.
    pub(super) scalar: Type,
    scalar_int: Type,
    /// Whether the machine multiplies and adds in one rounding.
    fuses: bool,
}

impl Lanes {
    /// Code for single elements.
    pub(super) fn one(dtype: DType, fuses: bool) -> Self {
        let (scalar, scalar_int) = match dtype {
            DType::F64 => (types::F64, types::I64),
            DType::F32 | DType::BF16 | DType::I32 => (types::F32, types::I32),
        };
        Self { count: 1, float: scalar, int: scalar_int, scalar, scalar_int, fuses }
    }

    /// Code for 16 bytes of elements at once.
    pub(super) fn register(dtype: DType, fuses: bool) -> Self {
        let (count, float, int) = match dtype {
            DType::F64 => (2, types::F64X2, types::I64X2),
            DType::F32 | DType::BF16 | DType::I32 => (4, types::F32X4, types::I32X4),
        };
        Self { count, float, int, ..Self::one(dtype, fuses) }
    }

    /// Code for one element of these.
    pub(super) fn single(self) -> Self {
        Self { count: 1, float: self.scalar, int: self.scalar_int, ..self }
    }

    /// Whether the elements are double precision.
    pub(super) fn is_double(self) -> bool {
        self.scalar == types::F64
    }

    /// The same number in all lanes.
    pub(super) fn number(self, b: &mut FunctionBuilder, number: impl Into<f64>) -> Value {
        let number: f64 = number.into();
        let number = if self.is_double() { b.ins().f64const(number) } else { b.ins().f32const(number as f32) };
        self.repeat(b, number)
    }

    /// A scalar in all lanes.
    pub(super) fn repeat(self, b: &mut FunctionBuilder, scalar: Value) -> Value {
        if self.count == 1 { scalar } else { b.ins().splat(self.float, scalar) }
    }

    /// The same integer in all lanes.
    pub(super) fn integer(self, b: &mut FunctionBuilder, number: i64) -> Value {
        let number = b.ins().iconst(self.scalar_int, number);
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

    /// The bits of the nearest numbers in single precision: of four lanes at once where there are several.
    pub(super) fn bits_of_singles(self, b: &mut FunctionBuilder, x: Value) -> Value {
        let single = match (self.is_double(), self.count) {
            (false, _) => x,
            (true, 1) => b.ins().fdemote(types::F32, x),
            (true, _) => b.ins().fvdemote(x),
        };
        let to = if self.count == 1 { types::I32 } else { types::I32X4 };
        b.ins().bitcast(to, MemFlagsData::new(), single)
    }

    /// The same 32 bits in all lanes of [`Self::bits_of_singles`].
    pub(super) fn word(self, b: &mut FunctionBuilder, word: u32) -> Value {
        let word = b.ins().iconst(types::I32, i64::from(word.cast_signed()));
        if self.count == 1 { word } else { b.ins().splat(types::I32X4, word) }
    }

    /// The numbers that words below 2^24 stand for, which lie as those of [`Self::bits_of_singles`].
    pub(super) fn number_of_word(self, b: &mut FunctionBuilder, word: Value) -> Value {
        match (self.is_double(), self.count) {
            (false, _) | (true, 1) => b.ins().fcvt_from_sint(self.float, word),
            (true, _) => {
                // The low bits of 2^52, which is then taken off.
                let wide = b.ins().uwiden_low(word);
                let exponent = self.integer(b, 0x4330_0000_0000_0000);
                let bits = b.ins().bor(wide, exponent);
                let shifted = self.float_of_bits(b, bits);
                let exponent = self.number(b, 4_503_599_627_370_496.0);
                b.ins().fsub(shifted, exponent)
            }
        }
    }

    /// A number above 0 where this bit of an integer is set, else 0.
    pub(super) fn bit(self, b: &mut FunctionBuilder, integer: Value, bit: i64) -> Value {
        let mask = self.integer(b, 1 << bit);
        let set = b.ins().band(integer, mask);
        // The exponent of 1 or 2, whose other bits are 0.
        let places = b.ins().iconst(types::I32, if self.is_double() { 53 - bit } else { 24 - bit });
        let set = b.ins().ishl(set, places);
        self.float_of_bits(b, set)
    }

    /// The numbers whose upper halves lie there.
    pub(super) fn widened(self, b: &mut FunctionBuilder, flags: MemFlagsData, address: Value) -> Value {
        let halves = if self.count == 1 {
            let half = b.ins().load(types::I16, flags, address, 0);
            b.ins().uextend(types::I32, half)
        } else {
            b.ins().uload16x4(flags, address, 0)
        };
        let bits = b.ins().ishl_imm_u(halves, 16);
        self.float_of_bits(b, bits)
    }

    /// The upper halves of numbers, next to each other.
    pub(super) fn upper_halves(self, b: &mut FunctionBuilder, x: Value) -> Value {
        let bits = self.bits(b, x);
        let halves = b.ins().ushr_imm_u(bits, 16);
        if self.count == 1 {
            return b.ins().ireduce(types::I16, halves);
        }
        let packed = b.ins().unarrow(halves, halves);
        let pair = b.ins().bitcast(types::I64X2, MemFlagsData::new().with_endianness(Endianness::Little), packed);
        b.ins().extractlane(pair, 0)
    }

    /// As [`pipe_ir::graph::rounded`], in every lane.
    pub(super) fn rounded(self, b: &mut FunctionBuilder, x: Value) -> Value {
        let bits = self.bits(b, x);
        let [one, below_half, quiet, upper] = [1, 0x7fff, 0x0040_0000, -0x1_0000].map(|bits| self.integer(b, bits));
        let shifted = b.ins().ushr_imm_u(bits, 16);
        let odd = b.ins().band(shifted, one);
        let up = b.ins().iadd(bits, below_half);
        let up = b.ins().iadd(up, odd);
        let nan = b.ins().bor(bits, quiet);
        let [number, nan] = [up, nan].map(|bits| {
            let bits = b.ins().band(bits, upper);
            self.float_of_bits(b, bits)
        });
        self.select(b, (x, FloatCC::Equal, x), number, nan)
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
