//! The compiler of element-wise expressions to machine code, by Cranelift. Nothing outside this
//! module sees its interface.
//!
//! A function walks one run of elements: two registers at a time, then one, then single elements.
//! All three bodies are written by the same code, so that an element's bits do not depend on where
//! in the run it stands.

mod lanes;
mod math;

use super::foreign::Code;
use cranelift::codegen::settings::{self, Configurable};
use cranelift::prelude::{
    AbiParam, Block, FunctionBuilder, FunctionBuilderContext, InstBuilder, IntCC, MemFlagsData, Value, types,
};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, default_libcall_names};
use lanes::Lanes;
use pipe_distributed::RunError;
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Expression, Load, Step};
use std::collections::BTreeMap;

/// Code of all expressions of a run; alive as long as they are called.
pub(crate) struct Jit {
    module: JITModule,
    known: BTreeMap<Expression, Code>,
    /// Whether the machine multiplies and adds in one instruction.
    fuses: bool,
}

impl Jit {
    /// A compiler for this machine.
    pub(crate) fn new() -> Result<Self, RunError> {
        let mut flags = settings::builder();
        for (name, value) in [("opt_level", "speed"), ("is_pic", "false"), ("use_colocated_libcalls", "false")] {
            flags.set(name, value).map_err(failed)?;
        }
        let isa = cranelift_native::builder().map_err(failed)?.finish(settings::Flags::new(flags)).map_err(failed)?;
        let has_fma = isa.isa_flags().iter().any(|flag| flag.name == "has_fma" && flag.as_bool() == Some(true));
        let fuses = has_fma || cfg!(target_arch = "aarch64");
        let module = JITModule::new(JITBuilder::with_isa(isa, default_libcall_names()));
        Ok(Self { module, known: BTreeMap::new(), fuses })
    }

    /// The code of an expression; compiled when it is first asked for.
    pub(super) fn code(&mut self, expression: &Expression) -> Result<Code, RunError> {
        if let Some(code) = self.known.get(expression) {
            return Ok(*code);
        }
        let pointer = self.module.target_config().pointer_type();
        let mut context = self.module.make_context();
        context.func.signature.params.extend([AbiParam::new(pointer); 2]);
        let id = self.module.declare_anonymous_function(&context.func.signature).map_err(failed)?;
        let mut scratch = FunctionBuilderContext::new();
        let builder = FunctionBuilder::new(&mut context.func, &mut scratch);
        Body { builder, expression, pointer, fuses: self.fuses, addresses: Vec::new() }.write(&self.module);
        self.module.define_function(id, &mut context).map_err(failed)?;
        self.module.clear_context(&mut context);
        self.module.finalize_definitions().map_err(failed)?;
        let code = Code::new(self.module.get_finalized_function(id));
        self.known.insert(expression.clone(), code);
        Ok(code)
    }
}

impl Drop for Jit {
    fn drop(&mut self) {
        // Cranelift keeps code memory until the process ends, so that no caller can outlive it. A
        // run compiles some tens of kilobytes.
        self.known.clear();
    }
}

fn failed(error: impl std::fmt::Display) -> RunError {
    RunError::Unsupported(format!("cannot compile element-wise kernels for this machine: {error}"))
}

/// A function that is being written.
struct Body<'a> {
    builder: FunctionBuilder<'a>,
    expression: &'a Expression,
    pointer: types::Type,
    fuses: bool,
    /// Of all inputs, then of all outputs.
    addresses: Vec<Value>,
}

/// Expressions with more steps are not unrolled.
const UNROLLED_STEPS: usize = 24;

impl Body<'_> {
    fn write(mut self, module: &JITModule) {
        let entry = self.builder.create_block();
        self.builder.append_block_params_for_function_params(entry);
        self.builder.switch_to_block(entry);
        let (table, length) = (self.builder.block_params(entry)[0], self.builder.block_params(entry)[1]);
        let tensors = self.expression.inputs.len() + self.expression.outputs.len();
        for position in 0..tensors {
            let offset = i32::try_from(position * size_of::<usize>()).expect("an expression has few tensors");
            self.addresses.push(self.builder.ins().load(self.pointer, trusted(), table, offset));
        }
        let dtype = self.expression.dtype;
        let register = Lanes::register(dtype, self.fuses);
        let mut start = self.builder.ins().iconst(self.pointer, 0);
        if self.expression.steps.len() <= UNROLLED_STEPS {
            start = self.walk(start, length, register, 2);
        }
        start = self.walk(start, length, register, 1);
        self.walk(start, length, Lanes::one(dtype, self.fuses), 1);
        self.builder.ins().return_(&[]);
        self.builder.seal_all_blocks();
        self.builder.finalize(module.target_config());
    }

    /// A loop over as many whole groups of `unroll` times these lanes as there are from `start`;
    /// returns where it ended.
    fn walk(&mut self, start: Value, length: Value, lanes: Lanes, unroll: i64) -> Value {
        let (head, body, end) = (self.new_head(), self.builder.create_block(), self.builder.create_block());
        self.builder.ins().jump(head, &[start.into()]);
        self.builder.switch_to_block(head);
        let index = self.builder.block_params(head)[0];
        let next = self.builder.ins().iadd_imm_s(index, lanes.count * unroll);
        let fits = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, next, length);
        self.builder.ins().brif(fits, body, &[], end, &[]);
        self.builder.switch_to_block(body);
        for group in 0..unroll {
            let at = self.builder.ins().iadd_imm_s(index, group * lanes.count);
            self.elements(at, lanes);
        }
        self.builder.ins().jump(head, &[next.into()]);
        self.builder.switch_to_block(end);
        index
    }

    fn new_head(&mut self) -> Block {
        let head = self.builder.create_block();
        self.builder.append_block_param(head, self.pointer);
        head
    }

    /// Computes the elements from `index` on.
    fn elements(&mut self, index: Value, lanes: Lanes) {
        let mut values: Vec<Value> = Vec::with_capacity(self.expression.steps.len());
        for step in &self.expression.steps {
            let value = match *step {
                Step::Load(input) => self.load(input as usize, index, lanes),
                Step::Constant(bits) => lanes.number(&mut self.builder, f64::from_bits(bits)),
                Step::Round(x) => lanes.rounded(&mut self.builder, values[x as usize]),
                Step::Unary(unary, x) => math::unary(&mut self.builder, lanes, unary, values[x as usize]),
                Step::Binary(binary, a, b) => {
                    math::binary(&mut self.builder, lanes, binary, values[a as usize], values[b as usize])
                }
            };
            values.push(value);
        }
        let first = self.expression.inputs.len();
        for (position, output) in self.expression.outputs.iter().enumerate() {
            let address = self.address(first + position, index, output.dtype);
            let mut value = values[output.step as usize];
            if output.accumulate {
                let before = self.builder.ins().load(lanes.float, trusted(), address, 0);
                value = self.builder.ins().fadd(before, value);
            }
            if output.dtype == DType::BF16 {
                value = lanes.upper_halves(&mut self.builder, value);
            }
            self.builder.ins().store(unaligned(), value, address, 0);
        }
    }

    /// Where an input or output has its element number `index`.
    fn address(&mut self, tensor: usize, index: Value, dtype: DType) -> Value {
        let places = i64::from(dtype.bytes().0.trailing_zeros());
        let offset = self.builder.ins().ishl_imm_u(index, places);
        self.builder.ins().iadd(self.addresses[tensor], offset)
    }

    fn load(&mut self, input: usize, index: Value, lanes: Lanes) -> Value {
        let Load { dtype, splat } = self.expression.inputs[input];
        let (address, lanes_of_load) = match splat {
            true => (self.addresses[input], lanes.single()),
            false => (self.address(input, index, dtype), lanes),
        };
        let numbers = match dtype {
            DType::BF16 => lanes_of_load.widened(&mut self.builder, unaligned(), address),
            DType::F32 | DType::F64 | DType::I32 => {
                self.builder.ins().load(lanes_of_load.float, unaligned(), address, 0)
            }
        };
        if splat { lanes.repeat(&mut self.builder, numbers) } else { numbers }
    }
}

/// Accesses that never trap.
fn trusted() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// Accesses that never trap and are aligned to an element only.
fn unaligned() -> MemFlagsData {
    trusted()
}
