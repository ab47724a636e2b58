//! Writes figures, which [`figure`](crate::figure) has laid out, as SVG, PDF and TikZ.

pub mod pdf;
pub mod svg;
pub mod tikz;
