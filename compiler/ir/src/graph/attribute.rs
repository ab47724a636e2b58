//! Attributes: what an operation has beside its inputs, as text.

use super::DType;
use crate::text::cursor::{Cursor, ParseError};
use crate::text::print::{push_list, push_number};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// A number in double precision, whatever the type of its node.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Double(pub f64);

/// A type of attributes. `before` is the literal before it in the text, if any.
pub(super) trait Attribute: Sized {
    /// Appends its text, of a node of this type.
    fn write(&self, before: &str, dtype: DType, out: &mut String);
    /// Reads its text.
    fn parse(before: &str, what: &str, cursor: &mut Cursor<'_>) -> Result<Self, ParseError>;
    /// One of two examples.
    #[cfg(test)]
    fn example(first: bool) -> Self;
}

fn write_before(before: &str, out: &mut String) {
    out.push_str(if before.is_empty() { "" } else { " " });
    out.push_str(before);
    out.push(' ');
}

/// A cursor behind the literal.
fn after<'c, 'a>(before: &str, cursor: &'c mut Cursor<'a>) -> Result<&'c mut Cursor<'a>, ParseError> {
    if !before.is_empty() {
        cursor.expect(before)?;
    }
    Ok(cursor)
}

/// Its literal stands for `true`.
impl Attribute for bool {
    fn write(&self, before: &str, _: DType, out: &mut String) {
        if *self {
            out.push(' ');
            out.push_str(before);
        }
    }

    fn parse(before: &str, _: &str, cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        Ok(cursor.take(before))
    }

    #[cfg(test)]
    fn example(first: bool) -> Self {
        first
    }
}

macro_rules! whole_numbers {
    ($($type:ty: $number:expr, $parse:expr, $examples:expr;)*) => {$(
        impl Attribute for $type {
            fn write(&self, before: &str, _: DType, out: &mut String) {
                write_before(before, out);
                push_number(out, $number(*self));
            }

            fn parse(before: &str, what: &str, cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
                $parse(after(before, cursor)?, what)
            }

            #[cfg(test)]
            fn example(first: bool) -> Self {
                $examples[usize::from(first)]
            }
        }
    )*};
}

whole_numbers! {
    u32: u64::from, Cursor::small, [0, 2];
    u64: std::convert::identity, Cursor::number, [0, 7];
    Bytes: |bytes: Self| bytes.0, |cursor: &mut Cursor<'_>, what| cursor.number(what).map(Self), [Self(0), Self(64)];
}

/// Its literal and number, or nothing.
impl Attribute for Option<u64> {
    fn write(&self, before: &str, dtype: DType, out: &mut String) {
        if let Some(number) = self {
            number.write(before, dtype, out);
        }
    }

    fn parse(before: &str, what: &str, cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        if cursor.take(before) { cursor.number(what).map(Some) } else { Ok(None) }
    }

    #[cfg(test)]
    fn example(first: bool) -> Self {
        first.then_some(3)
    }
}

impl Attribute for Vec<u32> {
    fn write(&self, before: &str, _: DType, out: &mut String) {
        write_before(before, out);
        push_list(out, self);
    }

    fn parse(before: &str, what: &str, cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        after(before, cursor)?.list(|cursor| cursor.small(what))
    }

    #[cfg(test)]
    fn example(first: bool) -> Self {
        if first { vec![2, 0, 1] } else { Self::new() }
    }
}

/// In the shortest form from which a number of its node's type is read again.
impl Attribute for f64 {
    #[expect(clippy::cast_possible_truncation, reason = "the type says that the number is single precision")]
    fn write(&self, before: &str, dtype: DType, out: &mut String) {
        write_before(before, out);
        out.push_str(&match dtype {
            DType::F32 => format!("{:?}", *self as f32),
            DType::F64 | DType::BF16 | DType::I32 => format!("{self:?}"),
        });
    }

    /// The type of the node, which says whether it is read as a single-precision number, comes after it.
    fn parse(before: &str, what: &str, cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let cursor = after(before, cursor)?;
        let mut text = cursor.clone();
        let number = cursor.float(what)?;
        let mut ahead = cursor.clone();
        if ahead.take(":") && ahead.peek_word() == Some("f32") {
            return text.float::<f32>(what).map(Self::from);
        }
        Ok(number)
    }

    #[cfg(test)]
    fn example(first: bool) -> Self {
        Self::from(if first { -1.5e-7_f32 } else { 0.1 })
    }
}

impl Attribute for Double {
    fn write(&self, before: &str, _: DType, out: &mut String) {
        self.0.write(before, DType::F64, out);
    }

    fn parse(before: &str, what: &str, cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        after(before, cursor)?.float(what).map(Self)
    }

    #[cfg(test)]
    fn example(first: bool) -> Self {
        Self(if first { 0.1 } else { 1e-300 })
    }
}
