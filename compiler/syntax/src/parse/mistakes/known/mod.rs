//! Detectors: each knows one kind of mistake by the words around the place where the grammar stopped.

mod expressions;
mod items;
mod layout;
mod vocabulary;

pub(super) use layout::marks::candidates;

use super::view::Detector;
use expressions::{bindings, conditions, loops, numbers, operators};
use items::{declarations, imports, parts, settings, slots, stages, tasks, tensors};
use layout::{bodies, brackets, comments, lines};
use vocabulary::{keywords, names};

/// All detectors, in the order in which they are asked: a special case stands before the general one.
const DETECTORS: &[&[Detector]] = &[
    comments::DETECTORS,
    brackets::BRACES,
    settings::HEADERS,
    parts::DETECTORS,
    slots::DETECTORS,
    stages::DETECTORS,
    tensors::CALLS,
    names::PATHS,
    keywords::SPELLING,
    conditions::DETECTORS,
    loops::DETECTORS,
    tasks::DETECTORS,
    settings::DETECTORS,
    numbers::DETECTORS,
    imports::DETECTORS,
    declarations::DETECTORS,
    bindings::DETECTORS,
    names::DETECTORS,
    tensors::DETECTORS,
    bodies::DETECTORS,
    keywords::DETECTORS,
    lines::DETECTORS,
    operators::DETECTORS,
    brackets::DETECTORS,
];

/// Every detector, in this order.
pub(super) fn detectors() -> impl Iterator<Item = Detector> {
    DETECTORS.iter().copied().flatten().copied()
}
