//! Exact numbers: one whole number over another, as `/` makes them wherever it does not round down.
#![expect(clippy::float_arithmetic, reason = "in the end a fraction may be asked for as a floating-point number")]

use crate::ast::Decimal;
use crate::diagnostic::{Code, Diagnostic};
use crate::source::Span;
use std::cmp::Ordering;
use std::fmt;

/// A number in lowest terms, with a divisor above 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fraction {
    above: i64,
    below: i64,
}

impl Fraction {
    /// A whole number.
    pub const fn whole(value: i64) -> Self {
        Self { above: value, below: 1 }
    }

    /// One number over another; none if that is 0, or where either does not fit in 64 bits in lowest terms.
    fn new(above: i128, below: i128) -> Option<Self> {
        let (mut a, mut b) = (above.unsigned_abs(), below.unsigned_abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let divisor = i128::try_from(a).ok().filter(|divisor| *divisor > 0)? * below.signum();
        let (above, below) = (above.checked_div(divisor)?, below.checked_div(divisor)?);
        Some(Self { above: i64::try_from(above).ok()?, below: i64::try_from(below).ok()? })
    }

    /// What a decimal says.
    pub fn decimal(decimal: Decimal) -> Option<Self> {
        Self::new(i128::from(decimal.digits), 10i128.checked_pow(decimal.scale)?)
    }

    /// The whole number that this is, if it is one.
    pub fn as_whole(self) -> Option<i64> {
        (self.below == 1).then_some(self.above)
    }

    /// The nearest floating-point number, to one rounding of each part.
    #[expect(clippy::cast_precision_loss, reason = "the nearest one is wanted")]
    pub fn to_f64(self) -> f64 {
        self.above as f64 / self.below as f64
    }

    /// The number, and the divisor that it is over.
    pub fn parts(self) -> (i128, i128) {
        (i128::from(self.above), i128::from(self.below))
    }

    /// `self + other`; none where that does not fit.
    pub fn plus(self, other: Self) -> Option<Self> {
        let ((a, b), (c, d)) = (self.parts(), other.parts());
        Self::new((a * d).checked_add(c * b)?, b * d)
    }

    /// `self - other`; none where that does not fit.
    pub fn minus(self, other: Self) -> Option<Self> {
        let ((a, b), (c, d)) = (self.parts(), other.parts());
        Self::new((a * d).checked_sub(c * b)?, b * d)
    }

    /// `self * other`; none where that does not fit.
    pub fn times(self, other: Self) -> Option<Self> {
        let ((a, b), (c, d)) = (self.parts(), other.parts());
        Self::new(a * c, b * d)
    }

    /// `self / other`, exact; none where that does not fit, or `other` is 0.
    pub fn over(self, other: Self) -> Option<Self> {
        let ((a, b), (c, d)) = (self.parts(), other.parts());
        Self::new(a * d, b * c)
    }

    /// `self % other`: what is left when `other` is subtracted as often as it goes, with the sign of `other`.
    pub fn modulo(self, other: Self) -> Option<Self> {
        let (above, below) = self.over(other)?.parts();
        let times = Self::new(above.div_euclid(below), 1)?;
        self.minus(times.times(other)?)
    }

    /// The error where a whole number is needed.
    pub fn is_not_whole(self, span: Span) -> Diagnostic {
        let message = format!("expected a whole number, found {self}");
        Diagnostic::error(Code::WrongType, span, format!("this is {self}"), message)
            .help("`/` is exact here; to round a number down, subtract its rest: `x - x % 1`")
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((a, b), (c, d)) = (self.parts(), other.parts());
        (a * d).cmp(&(c * b))
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.below {
            1 => write!(f, "{}", self.above),
            below => write!(f, "{}/{below}", self.above),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Fraction;

    fn of(above: i64, below: i64) -> Fraction {
        Fraction::whole(above).over(Fraction::whole(below)).expect("small")
    }

    #[test]
    fn arithmetic_is_exact() {
        assert_eq!(of(1, 3).times(Fraction::whole(3)), Some(Fraction::whole(1)));
        assert_eq!(of(1, 2).plus(of(1, 3)), Some(of(5, 6)));
        assert_eq!(of(1, 2).minus(of(-1, -2)), Some(Fraction::whole(0)));
        assert_eq!(
            (of(6, -4).to_string(), of(6, 3).as_whole(), of(7, 2).as_whole()),
            ("-3/2".to_owned(), Some(2), None)
        );
        assert!(of(1, 3) < of(1, 2) && of(-1, 2) < of(-1, 3));
        assert_eq!(of(1, 256).to_f64(), 0.003_906_25);
    }

    #[test]
    fn the_rest_has_the_sign_of_the_divisor() {
        let rest = |a, b| Fraction::whole(a).modulo(Fraction::whole(b)).and_then(Fraction::as_whole);
        assert_eq!([rest(7, 3), rest(-7, 3), rest(7, -3), rest(-1, 4)], [Some(1), Some(2), Some(-2), Some(3)]);
        assert_eq!(of(7, 2).modulo(Fraction::whole(1)), Some(of(1, 2)));
        assert_eq!(of(-7, 2).modulo(Fraction::whole(1)), Some(of(1, 2)));
    }

    #[test]
    fn what_does_not_fit_has_no_value() {
        let (least, one) = (Fraction::whole(i64::MIN), Fraction::whole(1));
        assert_eq!(least.over(Fraction::whole(-1)), None);
        assert_eq!(one.over(Fraction::whole(0)), None);
        assert_eq!(one.modulo(Fraction::whole(0)), None);
        assert_eq!(Fraction::whole(i64::MAX).plus(one), None);
        assert_eq!(least.times(least), None);
        assert_eq!(least.over(least), Some(one));
    }
}
