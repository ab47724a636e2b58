//! How a text is laid out: lines, brackets, bodies, comments, and single marks.

pub(super) mod bodies;
pub(super) mod brackets;
pub(super) mod comments;
pub(super) mod lines;
pub(super) mod marks;
