//! What the rules found so far.

use super::{List, Note, Place, VerifyError};
use crate::ids::DeviceId;
use crate::program::Program;

/// More errors than this help nobody.
const MOST: usize = 100;

/// Findings of a verification.
#[derive(Debug, Default)]
pub(super) struct Report {
    errors: Vec<Finding>,
}

#[derive(Debug)]
struct Finding {
    place: Place,
    message: String,
    /// Other places, with the words that follow them.
    notes: Vec<(Place, &'static str)>,
}

impl Report {
    /// Takes a finding in.
    pub(super) fn error(&mut self, place: Place, message: impl Into<String>) {
        self.error_at(place, message, Vec::new());
    }

    /// Takes a finding in that several instructions make together; each is followed by its words.
    pub(super) fn error_at(&mut self, place: Place, message: impl Into<String>, notes: Vec<(Place, &'static str)>) {
        if self.errors.len() < MOST {
            self.errors.push(Finding { place, message: message.into(), notes });
        }
    }

    /// Takes a finding about an instruction of the step in.
    pub(super) fn step(&mut self, device: DeviceId, index: usize, message: impl Into<String>) {
        self.error(at(device, List::Step, index), message);
    }

    /// Whether anything was found.
    pub(super) const fn found(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Ends the verification if anything was found.
    pub(super) fn checkpoint(&mut self) -> Result<(), Self> {
        if self.errors.is_empty() { Ok(()) } else { Err(std::mem::take(self)) }
    }

    /// The findings in the order of the program.
    pub(super) fn into_errors(mut self, program: &Program) -> Vec<VerifyError> {
        self.errors.sort_by_key(|finding| finding.place);
        let note = |(place, words): (Place, &'static str)| {
            let instruction = text(place, program).unwrap_or_default();
            Note { place, instruction, line: None, words }
        };
        let errors = self.errors.into_iter().map(|Finding { place, message, notes }| VerifyError {
            place,
            instruction: text(place, program),
            line: None,
            message,
            notes: notes.into_iter().map(note).collect(),
        });
        errors.collect()
    }
}

/// The place of an instruction. Lists are shorter than 2^32: positions beyond are cut.
pub(super) fn at(device: DeviceId, list: List, index: usize) -> Place {
    Place::Instruction(device, list, u32::try_from(index).unwrap_or(u32::MAX))
}

fn text(place: Place, program: &Program) -> Option<String> {
    let Place::Instruction(device, list, index) = place else { return None };
    let code = program.devices.get(device.index())?;
    let instructions = match list {
        List::Setup => &code.setup,
        List::Step => &code.step,
    };
    Some(instructions.get(index as usize)?.text(program, code))
}
