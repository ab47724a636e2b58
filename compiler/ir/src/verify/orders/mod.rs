//! Rules about what devices do together: transfers and collectives meet their partners, and nobody waits forever.

mod channels;
mod collectives;
mod progress;
mod stuck;

pub use channels::receive_slots;
pub(super) use collectives::Holders;

use super::contents::{Content, Joined};
use super::report::Report;
use super::{List, Place, devices, report};
use crate::program::Program;

/// Checks the whole program. `sent` and `joined` are what each device's instructions send and join, in their order.
pub(super) fn check(
    program: &Program,
    holders: &Holders,
    sent: &[Vec<Content>],
    joined: &[Vec<Joined>],
    report: &mut Report,
) {
    collectives::check(program, holders, joined, report);
    let channels = channels::check(program, sent, report);
    if !report.found() {
        progress::check(program, &channels, report);
    }
}
