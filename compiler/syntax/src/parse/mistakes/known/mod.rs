//! Those who know a kind of mistake by the words around the place where the grammar gave up.

mod bindings;
mod bodies;
mod brackets;
mod comments;
mod conditions;
mod declarations;
mod imports;
mod keywords;
mod lines;
mod loops;
mod marks;
mod names;
mod numbers;
mod operators;
mod settings;
mod tasks;
mod tensors;

pub(super) use marks::candidates;

use super::view::Expert;

/// All of them, those first whose mistakes look like those of others. Lists of one file stand together.
const EXPERTS: &[&[Expert]] = &[
    comments::EXPERTS,
    brackets::BRACES,
    keywords::SPELLING,
    conditions::EXPERTS,
    loops::EXPERTS,
    tasks::EXPERTS,
    settings::EXPERTS,
    numbers::EXPERTS,
    imports::EXPERTS,
    declarations::EXPERTS,
    bindings::EXPERTS,
    names::EXPERTS,
    tensors::EXPERTS,
    bodies::EXPERTS,
    keywords::EXPERTS,
    lines::EXPERTS,
    operators::EXPERTS,
    brackets::EXPERTS,
];

/// One after the other.
pub(super) fn experts() -> impl Iterator<Item = Expert> {
    EXPERTS.iter().copied().flatten().copied()
}
