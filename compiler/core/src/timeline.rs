//! Timelines: when every task of a schedule starts and ends.

use crate::units::Ticks;

/// When tasks run, under some costs, each as soon as its device is free and its inputs have arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// Start of each task, by device and position in the device's order.
    pub starts: Vec<Vec<Ticks>>,
    /// End of each task, likewise.
    pub ends: Vec<Vec<Ticks>>,
}
