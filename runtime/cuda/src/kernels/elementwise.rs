//! Element-wise kernels, written from their expressions: one thread for four neighbours, for eight
//! where some are halves, or for one where they do not lie at multiples of 16 bytes.
//!
//! An expression becomes one function of numbers, shared by all kernels of it. A kernel is written
//! for a number of outer axes; their sizes and strides are arguments.

use super::{Sources, real, some_blocks, vector_bytes, word};
use crate::launch::{Argument, Launch};
use pipe_ir::graph::{Binary, DType, Unary};
use pipe_ir::kernels::{Elementwise, Expression, Step, Strided};
use std::fmt::Write as _;

/// Threads of a block.
const THREADS: u32 = 256;
/// How a kernel walks: what its text depends on beside the expression.
#[derive(Clone, Copy)]
struct Walk {
    /// Axes outside of the innermost one.
    outer: usize,
    /// Elements at once.
    lanes: u64,
    /// Type of the number of a row.
    index: &'static str,
}

impl Sources {
    pub(super) fn elementwise(&mut self, kernel: &Elementwise) -> Launch {
        let Elementwise { sizes, expression, inputs, outputs } = kernel;
        let (columns, outer) = sizes.split_last().map_or((1, &[][..]), |(columns, outer)| (*columns, outer));
        let rows: u64 = outer.iter().product();
        let lanes = lanes(kernel, columns);
        let index = if rows < 1 << 31 { "u32" } else { "u64" };
        let walk = Walk { outer: outer.len(), lanes, index };
        let mut arguments = vec![whole(index, rows), Argument::U64(columns)];
        arguments.extend(outer.iter().skip(1).map(|size| whole(index, *size)));
        for tensor in inputs.iter().chain(outputs) {
            arguments.push(Argument::Address(tensor.at));
            arguments.extend(tensor.strides.iter().take(walk.outer).map(|stride| Argument::U64(*stride)));
        }
        let per_row = columns.div_ceil(lanes);
        let wide = u32::try_from(per_row).map_or(THREADS, |count| count.next_power_of_two().min(THREADS));
        let high = THREADS / wide;
        let grid = [
            some_blocks(per_row.div_ceil(u64::from(wide)), 65535),
            some_blocks(rows.div_ceil(u64::from(high)), 65535),
            1,
        ];
        let number = self.number_of(expression);
        let name = format!("elementwise_{number}_r{}_x{lanes}{}", walk.outer, if index == "u64" { "_u64" } else { "" });
        self.add_text(name.clone(), || kernel_text(&name, number, expression, walk));
        Launch { function: self.exported(name), grid, block: [wide, high, 1], shared: 0, arguments }
    }

    /// The number of an expression, whose function is added if it is new.
    fn number_of(&mut self, expression: &Expression) -> usize {
        let next = self.expressions.len();
        let number = *self.expressions.entry(expression.clone()).or_insert(next);
        self.add_text(format!("expression_{number}"), || function_text(number, expression));
        number
    }
}

fn whole(index: &str, number: u64) -> Argument {
    match u32::try_from(number) {
        Ok(number) if index == "u32" => Argument::U32(number),
        _ => Argument::U64(number),
    }
}

/// Neighbours that one thread computes at once: eight halves are as many bytes as a thread can load
/// at once, and so are four numbers in single precision.
fn lanes(kernel: &Elementwise, columns: u64) -> u64 {
    let Expression { inputs, outputs, .. } = &kernel.expression;
    let mut types = inputs.iter().map(|load| load.dtype).chain(outputs.iter().map(|own| own.dtype));
    let most = if types.any(|dtype| dtype == DType::BF16) { 8 } else { 4 };
    [8, 4].into_iter().find(|lanes| *lanes <= most && lies_in_vectors(kernel, columns, *lanes)).unwrap_or(1)
}

/// Whether each group of so many neighbours is where vectors may be, in all tensors that are not repeated.
fn lies_in_vectors(kernel: &Elementwise, columns: u64, lanes: u64) -> bool {
    let outer = kernel.sizes.len().saturating_sub(1);
    let is_aligned = |(tensor, dtype): (&Strided, DType)| {
        let element = dtype.bytes().0;
        let strides = tensor.strides.iter().take(outer).map(|stride| stride * element);
        std::iter::once(tensor.at.offset.0).chain(strides).all(|bytes| bytes.is_multiple_of(vector_bytes(dtype, lanes)))
    };
    let inputs = kernel.inputs.iter().zip(&kernel.expression.inputs).filter(|(_, load)| !load.splat);
    let inputs = inputs.map(|(input, load)| (input, load.dtype));
    let outputs = kernel.outputs.iter().zip(&kernel.expression.outputs).map(|(output, own)| (output, own.dtype));
    columns.is_multiple_of(lanes) && inputs.chain(outputs).all(is_aligned)
}

/// Numbers for each step of an expression, and its results in the parameters `y`.
fn function_text(number: usize, expression: &Expression) -> String {
    let real = real(expression.dtype);
    let inputs = (0..expression.inputs.len()).map(|input| format!("{real} x{input}"));
    let outputs = (0..expression.outputs.len()).map(|output| format!("{real}& y{output}"));
    let parameters: Vec<String> = inputs.chain(outputs).collect();
    let mut text = format!("__device__ __forceinline__ void expression_{number}({}) {{\n", parameters.join(", "));
    for (position, step) in expression.steps.iter().enumerate() {
        let value = match *step {
            Step::Load(input) => format!("x{input}"),
            Step::Constant(bits) => literal(expression.dtype, f64::from_bits(bits)),
            Step::Round(x) => format!("rounded_bf16(v{x})"),
            Step::Unary(unary, x) => unary_text(unary, real, &format!("v{x}")),
            Step::Binary(binary, a, b) => match binary {
                Binary::Add => format!("add_{real}(v{a}, v{b})"),
                Binary::Sub => format!("sub_{real}(v{a}, v{b})"),
                Binary::Mul => format!("mul_{real}(v{a}, v{b})"),
                Binary::Div => format!("v{a} / v{b}"),
                Binary::Mask => format!("v{b} > 0 ? v{a} : 0"),
                Binary::Hash => format!("hash_{real}(v{a}, v{b})"),
            },
        };
        let _ = writeln!(text, "    const {real} v{position} = {value};");
    }
    for (position, output) in expression.outputs.iter().enumerate() {
        let _ = writeln!(text, "    y{position} = v{};", output.step);
    }
    text + "}\n"
}

/// A finite number, which reads back as the same.
fn literal(dtype: DType, number: f64) -> String {
    match dtype {
        DType::F32 | DType::BF16 | DType::I32 => format!("{:e}f", number as f32),
        DType::F64 => format!("{number:e}"),
    }
}

/// As the CPU does it, special numbers too: NaN stays NaN under relu.
fn unary_text(unary: Unary, real: &str, x: &str) -> String {
    match unary {
        Unary::Neg => format!("-{x}"),
        Unary::Exp => format!("exp_{real}({x})"),
        Unary::Log => format!("log_{real}({x})"),
        Unary::Tanh => format!("tanh_{real}({x})"),
        Unary::Sqrt => format!("sqrt_{real}({x})"),
        Unary::Reciprocal => format!("1 / {x}"),
        Unary::Relu => format!("{x} < 0 ? 0 : {x}"),
        Unary::Step => format!("{x} > 0 ? 1 : 0"),
        Unary::Sin => format!("sin_{real}({x})"),
        Unary::Cos => format!("cos_{real}({x})"),
        Unary::Detach => x.to_owned(),
    }
}

fn kernel_text(name: &str, number: usize, expression: &Expression, walk: Walk) -> String {
    let Walk { outer, lanes, index } = walk;
    let inputs = expression.inputs.iter().enumerate().map(|(i, load)| (format!("in{i}"), "const ", word(load.dtype)));
    let outputs = expression.outputs.iter().enumerate().map(|(i, own)| (format!("out{i}"), "", word(own.dtype)));
    let tensors: Vec<(String, &str, &str)> = inputs.chain(outputs).collect();
    let mut text =
        format!("extern \"C\" __global__ void __launch_bounds__({THREADS})\n{name}({index} rows, u64 columns");
    for axis in 1..outer {
        let _ = write!(text, ", {index} size{axis}");
    }
    for (tensor, constant, word) in &tensors {
        let _ = write!(text, ",\n    {constant}{word}* {tensor}");
        for axis in 0..outer {
            let _ = write!(text, ", u64 {tensor}_{axis}");
        }
    }
    let _ = writeln!(text, ") {{");
    let _ = writeln!(
        text,
        "    for ({index} row = ({index})blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += gridDim.y * blockDim.y) {{"
    );
    if outer > 0 {
        let _ = writeln!(text, "        {index} rest = row;");
    }
    for axis in (0..outer).rev() {
        let (at, next) = if axis > 0 {
            (format!("rest % size{axis}"), format!(" rest /= size{axis};"))
        } else {
            ("rest".into(), String::new())
        };
        let _ = writeln!(text, "        {index} at{axis} = {at};{next}");
    }
    for (tensor, constant, word) in &tensors {
        let terms: String = (0..outer).map(|axis| format!(" + at{axis} * {tensor}_{axis}")).collect();
        let _ = writeln!(text, "        {constant}{word}* row_of_{tensor} = {tensor}{terms};");
    }
    let step = format!("(u64)gridDim.x * blockDim.x * {lanes}");
    let _ = writeln!(
        text,
        "        for (u64 column = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * {lanes}; column < columns; column += {step}) {{"
    );
    text += &elements_text(number, expression, lanes);
    text + "        }\n    }\n}\n"
}

/// Loads, computes and stores the elements from `column` on.
fn elements_text(number: usize, expression: &Expression, lanes: u64) -> String {
    let real = real(expression.dtype);
    let indent = "            ";
    let vector = |dtype| match lanes {
        1 => word(dtype).to_owned(),
        _ => format!("Neighbours<{}, {lanes}>", word(dtype)),
    };
    let lane = if lanes == 1 { "" } else { ".at[lane]" };
    let mut text = String::new();
    for (input, load) in expression.inputs.iter().enumerate() {
        let _ = if load.splat {
            writeln!(text, "{indent}{} x{input} = *row_of_in{input};", word(load.dtype))
        } else {
            let vector = vector(load.dtype);
            writeln!(text, "{indent}{vector} x{input} = *(const {vector}*)(row_of_in{input} + column);")
        };
    }
    for (output, own) in expression.outputs.iter().enumerate() {
        let vector = vector(own.dtype);
        let _ = writeln!(text, "{indent}{vector} y{output};");
        if own.accumulate {
            let _ = writeln!(text, "{indent}{vector} z{output} = *({vector}*)(row_of_out{output} + column);");
        }
    }
    if lanes > 1 {
        let _ = writeln!(text, "#pragma unroll\n{indent}for (u32 lane = 0; lane < {lanes}; lane++) {{");
    }
    text += &lane_text(number, expression, real, lane);
    if lanes > 1 {
        let _ = writeln!(text, "{indent}}}");
    }
    for (output, own) in expression.outputs.iter().enumerate() {
        let _ = writeln!(text, "{indent}*({}*)(row_of_out{output} + column) = y{output};", vector(own.dtype));
    }
    text
}

/// Computes one element of what was loaded: what is stored as bfloat16 is widened before, and its
/// upper half taken after.
fn lane_text(number: usize, expression: &Expression, real: &str, lane: &str) -> String {
    let indent = "            ";
    let mut text = String::new();
    let inputs = expression.inputs.iter().enumerate().map(|(input, load)| {
        let element = format!("x{input}{}", if load.splat { "" } else { lane });
        if load.dtype == DType::BF16 { format!("widened_bf16({element})") } else { element }
    });
    let outputs = expression.outputs.iter().enumerate().map(|(output, own)| match own.dtype {
        DType::BF16 => format!("wide{output}"),
        DType::F32 | DType::F64 | DType::I32 => format!("y{output}{lane}"),
    });
    let arguments: Vec<String> = inputs.chain(outputs).collect();
    let narrowed = || expression.outputs.iter().enumerate().filter(|(_, own)| own.dtype == DType::BF16);
    for (output, _) in narrowed() {
        let _ = writeln!(text, "{indent}{real} wide{output};");
    }
    let _ = writeln!(text, "{indent}expression_{number}({});", arguments.join(", "));
    for (output, _) in narrowed() {
        let _ = writeln!(text, "{indent}y{output}{lane} = upper_half(wide{output});");
    }
    for (output, _) in expression.outputs.iter().enumerate().filter(|(_, own)| own.accumulate) {
        let _ = writeln!(text, "{indent}y{output}{lane} = add_{real}(z{output}{lane}, y{output}{lane});");
    }
    text
}
