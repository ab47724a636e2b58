//! What a kernel works on, in a few words.

use super::{Attention, Elementwise, Gemm, Kernel, Routed, RowKernel, Sum};
use std::fmt;

/// Sizes side by side.
struct Sizes<'a>(&'a [u64]);

impl fmt::Display for Sizes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, size) in self.0.iter().enumerate() {
            write!(f, "{}{size}", if position > 0 { " x " } else { "" })?;
        }
        Ok(())
    }
}

/// Sizes and types: `4096 x 768 by 768 x 2304, bf16 to bf16`.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gemm(gemm) => gemm.fmt(f),
            Self::Elementwise(kernel) => kernel.fmt(f),
            Self::Copy { from, to } => {
                let sizes: Vec<u64> = to.dims.iter().map(|dim| dim.size).collect();
                let strides: Vec<u64> = from.dims.iter().map(|dim| dim.stride).collect();
                write!(f, "{} of {}, strides {}", Sizes(&sizes), to.dtype, Sizes(&strides))
            }
            Self::Sum(sum) => sum.fmt(f),
            Self::Rows(rows) => rows.fmt(f),
            Self::Attention(attention) => attention.fmt(f),
            Self::Routed(routed) => routed.fmt(f),
        }
    }
}

const fn added(accumulate: bool) -> &'static str {
    if accumulate { ", added" } else { "" }
}

impl fmt::Display for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, k, factors, result, .. } = self;
        if !self.batch.is_empty() {
            write!(f, "{} times ", Sizes(&self.batch))?;
        }
        write!(f, "{m} x {k} by {k} x {n}, {factors} to {result}{}", added(self.accumulate))
    }
}

impl fmt::Display for Elementwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from", Sizes(&self.sizes))?;
        for (tensor, load) in self.inputs.iter().zip(&self.expression.inputs) {
            let is_repeated = tensor.strides.iter().zip(&self.sizes).any(|(stride, size)| *stride == 0 && *size > 1);
            write!(f, " {}{}", load.dtype, if is_repeated { " repeated" } else { "" })?;
        }
        write!(f, " to")?;
        for output in &self.expression.outputs {
            write!(f, " {}{}", output.dtype, if output.accumulate { " added" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = Sizes(&[self.outer, self.reduced, self.inner]).to_string();
        write!(f, "{sizes} along the middle, {} to {}{}", self.stored, self.dtype, added(self.accumulate))
    }
}

impl fmt::Display for RowKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.op.signature().what;
        let Self { rows, width, stored, result, .. } = self;
        write!(f, "{what}, {rows} x {width}, {stored} to {result}{}", added(self.accumulate))
    }
}

impl fmt::Display for Routed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { matrices, rows, inner, width, factors, dtype, .. } = self;
        write!(f, "{rows} rows by {matrices} of {inner} x {width}, {factors} to {dtype}{}", added(self.accumulate))
    }
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, columns, width, factors, result, .. } = self;
        let mut masked = if self.causal { ", causal" } else { "" }.to_owned();
        if let Some(window) = self.window {
            masked += &format!(", window {window}");
        }
        if self.starts.is_some() {
            masked += ", starts";
        }
        write!(
            f,
            "{} times {rows} queries, {columns} keys of {width}, {factors} to {result}{masked}",
            Sizes(&self.batch)
        )
    }
}
