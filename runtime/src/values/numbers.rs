//! Numbers as they lie in memory: elements of a type, one after the other.

use bytemuck::Pod;
use pipe_ir::graph::{DType, rounded};

/// Numbers as the nearest elements of a type.
pub fn encode(dtype: DType, numbers: impl Iterator<Item = f64>) -> Vec<u8> {
    match dtype {
        DType::F32 => numbers.flat_map(|number| (number as f32).to_ne_bytes()).collect(),
        DType::F64 => numbers.flat_map(f64::to_ne_bytes).collect(),
        DType::BF16 => numbers.flat_map(|number| upper_half(number as f32).to_ne_bytes()).collect(),
        DType::I32 => numbers.flat_map(|number| (number as i32).to_ne_bytes()).collect(),
    }
}

/// The numbers that elements of a type are.
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DType::F32 => elements::<f32>(bytes).map(f64::from).collect(),
        DType::F64 => elements(bytes).collect(),
        DType::BF16 => elements::<u16>(bytes).map(|half| f64::from(f32::from_bits(u32::from(half) << 16))).collect(),
        DType::I32 => elements::<i32>(bytes).map(f64::from).collect(),
    }
}

/// A number as it is stored as bfloat16.
pub(crate) const fn upper_half(number: f32) -> u16 {
    (rounded(number).to_bits() >> 16) as u16
}

fn elements<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}
