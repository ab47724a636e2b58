//! Colours in sRGB: mixed, compared as WCAG 2 does, and said as `#1d4499`.

use serde::{Serialize, Serializer};
use std::fmt;

/// A colour in sRGB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Colour {
    /// Red, green and blue.
    pub parts: [u8; 3],
}

impl Colour {
    /// Ink on light colours: black, because black or white has a contrast of 4.5 with every colour.
    pub const DARK_INK: Self = Self::new(0x00_00_00);
    /// Ink on dark colours.
    pub const LIGHT_INK: Self = Self::new(0xff_ff_ff);

    /// The colour with the digits `0xrrggbb`.
    pub const fn new(digits: u32) -> Self {
        let [_, red, green, blue] = digits.to_be_bytes();
        Self { parts: [red, green, blue] }
    }

    /// The colour that lies between this one and another: this one at 0, the other at 1.
    #[must_use]
    pub fn mix(self, other: Self, share: f64) -> Self {
        let part = |one: u8, other: u8| (f64::from(one) + (f64::from(other) - f64::from(one)) * share) as u8;
        let ([red, green, blue], [to_red, to_green, to_blue]) = (self.parts, other.parts);
        Self { parts: [part(red, to_red), part(green, to_green), part(blue, to_blue)] }
    }

    /// The ink that can be read best on this colour.
    pub fn ink(self) -> Self {
        if self.contrast(Self::LIGHT_INK) > self.contrast(Self::DARK_INK) { Self::LIGHT_INK } else { Self::DARK_INK }
    }

    /// Contrast with another colour, from 1 to 21 (WCAG 2.2, "contrast ratio").
    pub fn contrast(self, other: Self) -> f64 {
        let (one, other) = (self.luminance() + 0.05, other.luminance() + 0.05);
        one.max(other) / one.min(other)
    }

    /// Relative luminance, from 0 to 1 (WCAG 2.2).
    pub fn luminance(self) -> f64 {
        let [red, green, blue] = self.linear();
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// How different another colour looks, as a distance in OKLab: 0.02 can just be seen.
    pub fn distance(self, other: Self) -> f64 {
        let (one, other) = (oklab(self.linear()), oklab(other.linear()));
        one.iter().zip(other).map(|(one, other)| (one - other).powi(2)).sum::<f64>().sqrt()
    }

    /// Red, green and blue as shares of light (IEC 61966-2-1).
    pub(super) fn linear(self) -> [f64; 3] {
        self.parts.map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        })
    }
}

/// Lightness, green to red and blue to yellow of linear light (Ottosson, "A perceptual color space for image
/// processing", 2020).
pub(super) fn oklab(light: [f64; 3]) -> [f64; 3] {
    const TO_CONES: Matrix = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ];
    const TO_LAB: Matrix = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ];
    times(&TO_LAB, times(&TO_CONES, light).map(f64::cbrt))
}

/// Rows.
pub(super) type Matrix = [[f64; 3]; 3];

/// A matrix times a vector.
pub(super) fn times(matrix: &Matrix, vector: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row.iter().zip(vector).map(|(one, other)| one * other).sum())
}

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.parts;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

impl Serialize for Colour {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
