//! Elements: how a number lies in a file of somebody else.

use half::{bf16, f16};
use safetensors::tensor::Dtype;

/// The type of a number in a file. All are little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Element {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

impl Element {
    /// What NumPy calls it.
    pub(super) fn of_numpy(descr: &str) -> Option<Self> {
        Some(match descr {
            "|b1" => Self::Bool,
            "|u1" => Self::U8,
            "|i1" => Self::I8,
            "<u2" => Self::U16,
            "<i2" => Self::I16,
            "<u4" => Self::U32,
            "<i4" => Self::I32,
            "<u8" => Self::U64,
            "<i8" => Self::I64,
            "<f2" => Self::F16,
            "<f4" => Self::F32,
            "<f8" => Self::F64,
            _ => return None,
        })
    }

    /// What a safetensors file calls it.
    pub(super) fn of_safetensors(dtype: Dtype) -> Option<Self> {
        Some(match dtype {
            Dtype::BOOL => Self::Bool,
            Dtype::U8 => Self::U8,
            Dtype::I8 => Self::I8,
            Dtype::U16 => Self::U16,
            Dtype::I16 => Self::I16,
            Dtype::U32 => Self::U32,
            Dtype::I32 => Self::I32,
            Dtype::U64 => Self::U64,
            Dtype::I64 => Self::I64,
            Dtype::F16 => Self::F16,
            Dtype::BF16 => Self::BF16,
            Dtype::F32 => Self::F32,
            Dtype::F64 => Self::F64,
            _ => return None,
        })
    }

    /// Its name: `f32`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Bytes of a number.
    pub(super) const fn bytes(self) -> u64 {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether it is a whole number.
    pub(super) const fn is_whole(self) -> bool {
        !matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }

    /// Whether single precision has each of its numbers, or it is a float itself, which may be rounded.
    pub(super) const fn is_real(self) -> bool {
        !self.is_whole() || self.bytes() <= 2
    }

    /// The number in these bytes.
    pub(super) fn decode(self, bytes: &[u8]) -> f64 {
        let two = || [bytes[0], bytes[1]];
        let four = || [bytes[0], bytes[1], bytes[2], bytes[3]];
        let eight = || [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]];
        match self {
            Self::Bool | Self::U8 => f64::from(bytes[0]),
            Self::I8 => f64::from(bytes[0].cast_signed()),
            Self::U16 => f64::from(u16::from_le_bytes(two())),
            Self::I16 => f64::from(i16::from_le_bytes(two())),
            Self::U32 => f64::from(u32::from_le_bytes(four())),
            Self::I32 => f64::from(i32::from_le_bytes(four())),
            Self::U64 => u64::from_le_bytes(eight()) as f64,
            Self::I64 => i64::from_le_bytes(eight()) as f64,
            Self::F16 => f16::from_le_bytes(two()).to_f64(),
            Self::BF16 => bf16::from_le_bytes(two()).to_f64(),
            Self::F32 => f64::from(f32::from_le_bytes(four())),
            Self::F64 => f64::from_le_bytes(eight()),
        }
    }

    /// The whole number in these bytes as an index; what no table can have becomes -1.
    pub(super) fn index(self, bytes: &[u8]) -> i32 {
        // Numbers that a double rounds are far beyond every table.
        let number = self.decode(bytes);
        if (0.0..=f64::from(i32::MAX)).contains(&number) { number as i32 } else { -1 }
    }
}
