//! The textual form of programs: what `pipec build --emit ir` writes and `pipec check x.ir` reads.
//!
//! ```text
//! program tiny stages 2 microbatches 1
//! value activation.s0: activation of s0, 64 bytes
//! exec @F.s0 flops 128 (write activation.s0)
//! exec @F.s1 flops 128 (read activation.s0)
//! device d0 memory 1KiB arena 64 peak 64 tokens 1 {
//!   buffers { %0 64 at 0 }
//!   setup {}
//!   step {
//!     alloc %0
//!     run @F.s0 m0 (%0)
//!     send.start %0 to d1 activation -> !0
//!     ...
//! ```
//!
//! White space separates, `;` begins a comment. Printing and parsing are inverse to each other for every program whose
//! names are unique and whose numbers are finite.

pub(crate) mod cursor;
mod graph;
pub(crate) mod print;
mod read;
mod tables;

use crate::digest::Digest;
use crate::graph::Node;
use crate::ids::DeviceId;
use crate::program::Program;
use crate::verify::{List, Place, Verified, VerifyError, verify};
pub use cursor::ParseError;

/// A parsed program with the lines that its parts came from.
#[derive(Clone, PartialEq, Debug)]
pub struct Parsed {
    /// What the text says; not verified.
    pub program: Program,
    /// Where it says so.
    pub lines: Lines,
}

/// Lines of a text, counted from 1, by what they declare.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lines {
    pub(crate) header: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) values: Vec<u32>,
    pub(crate) execs: Vec<u32>,
    pub(crate) devices: Vec<DeviceLines>,
}

/// Lines of one device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DeviceLines {
    pub(crate) header: u32,
    pub(crate) buffers: Vec<u32>,
    pub(crate) setup: Vec<u32>,
    pub(crate) step: Vec<u32>,
}

impl Lines {
    /// The line of a part of the program; that of its name for the program as a whole.
    pub fn of(&self, place: Place) -> Option<u32> {
        let device = |device: DeviceId| self.devices.get(device.index());
        match place {
            Place::Program => Some(&self.header),
            Place::Group(group) => self.groups.get(group as usize),
            Place::Value(value) => self.values.get(value as usize),
            Place::Exec(exec) => self.execs.get(exec as usize),
            Place::Device(id) => device(id).map(|lines| &lines.header),
            Place::Buffer(id, buffer) => device(id)?.buffers.get(buffer as usize),
            Place::Instruction(id, List::Setup, index) => device(id)?.setup.get(index as usize),
            Place::Instruction(id, List::Step, index) => device(id)?.step.get(index as usize),
        }
        .copied()
    }
}

/// The text of a program.
pub fn print(program: &Program) -> String {
    pieces(program).collect()
}

/// The text of a program, piece by piece: its tables, then one device after the other. A program of
/// ten million tasks has gigabytes of text, which need not be in memory at once.
pub fn pieces(program: &Program) -> impl Iterator<Item = String> {
    let devices = (0..program.devices.len()).map(|device| print::device(program, device));
    std::iter::once_with(|| print::tables(program)).chain(devices)
}

/// A number that tells programs apart by their texts.
pub fn digest(program: &Program) -> Digest {
    pieces(program).fold(Digest::default(), |digest, piece| digest.and(piece.as_bytes()))
}

/// The operation of a node with its attributes: `sum axis 1`. Words of the textual IR stay what they are.
pub fn operation(node: &Node) -> String {
    let mut text = node.op.word().to_owned();
    node.op.write_attributes(node.ty.dtype, &mut text);
    text
}

/// Reads a program. Nothing is checked but its form and that names are declared before they are used.
///
/// # Errors
/// The first place where the text has not the form of a program, with what was expected there.
pub fn parse(text: &str) -> Result<Parsed, ParseError> {
    read::program(text)
}

/// Why a text is not a verified program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// It has not the form of a program.
    Parse(ParseError),
    /// It breaks rules; never empty.
    Verify(Vec<VerifyError>),
}

/// Reads and verifies a program: `pipec check x.ir`.
///
/// # Errors
/// The place where the text ends to be a program, or the rules that the program breaks, with their lines.
pub fn check(text: &str) -> Result<Verified, Rejected> {
    let parsed = parse(text).map_err(Rejected::Parse)?;
    verify(parsed.program).map_err(|mut errors| {
        for error in &mut errors {
            error.line = parsed.lines.of(error.place);
            for note in &mut error.notes {
                note.line = parsed.lines.of(note.place);
            }
        }
        Rejected::Verify(errors)
    })
}
