//! What the rules found so far.

use super::{List, Place, VerifyError};
use crate::ids::DeviceId;
use crate::program::Program;

/// More errors than this help nobody.
const MOST: usize = 100;

/// Findings of a verification.
#[derive(Debug, Default)]
pub(super) struct Report {
    errors: Vec<(Place, String)>,
}

impl Report {
    /// Takes a finding in.
    pub(super) fn error(&mut self, place: Place, message: impl Into<String>) {
        if self.errors.len() < MOST {
            self.errors.push((place, message.into()));
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
        self.errors.sort_by_key(|(place, _)| *place);
        let errors = self.errors.into_iter();
        errors
            .map(|(place, message)| VerifyError { place, instruction: text(place, program), line: None, message })
            .collect()
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
