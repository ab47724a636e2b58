//! Mutation testing of the verifier.
//!
//! A sound program is damaged in one place. The verifier must reject it, or it must run to its end with the results of
//! the sound one (see [`kinds::Promise`]) and with the peak that it states.

pub mod campaign;
mod cells;
mod fields;
pub mod kinds;
pub mod machine;
pub mod subjects;
mod tables;
pub mod verdict;

use crate::schedules::Dice;
use kinds::Kind;
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;

/// A damaged program, and how it was damaged.
#[derive(Clone, PartialEq, Debug)]
pub struct Mutant {
    /// How.
    pub kind: Kind,
    /// What came out.
    pub program: Program,
}

/// Damages a program in one place; it is not the same afterwards.
#[must_use]
pub fn damage(program: &Program, dice: &mut Dice) -> Mutant {
    loop {
        let kind = Kind::ALL[dice.below(Kind::ALL.len())];
        let mut damaged = program.clone();
        let device = dice.below(damaged.devices.len());
        if !list(kind, program, &mut damaged, device, dice) {
            tables::device(kind, &mut damaged.devices[device], dice);
            tables::program(kind, &mut damaged, dice);
        }
        // Numbers that are not numbers differ from themselves, so that those count as damage too.
        if damaged != *program {
            return Mutant { kind, program: damaged };
        }
    }
}

/// Damages the instructions of a device; whether that is what the kind does.
fn list(kind: Kind, original: &Program, program: &mut Program, device: usize, dice: &mut Dice) -> bool {
    let to_device = dice.below(program.devices.len());
    // Set-ups are short, and steps long: one in eight damages goes to the set-up.
    let in_setup = dice.below(8) == 0;
    let code = &mut program.devices[device];
    let (step, other) = if in_setup { (&mut code.setup, &mut code.step) } else { (&mut code.step, &mut code.setup) };
    if step.is_empty() {
        return false;
    }
    let len = step.len();
    let (from, to) = (dice.below(len), dice.below(len));
    match kind {
        Kind::SwapAny => step.swap(from, to),
        Kind::SwapNext => step.swap(from, (from + 1) % len),
        Kind::Drop => drop(step.remove(from)),
        Kind::CutTail => step.truncate(from),
        Kind::Duplicate => step.insert(to, step[from]),
        Kind::MoveAny => moved(step, from, to),
        Kind::MoveAlloc | Kind::MoveFree | Kind::MoveWait | Kind::MoveStart | Kind::MoveRun | Kind::MoveData => {
            let places: Vec<usize> = (0..step.len()).filter(|place| fields::mover(&step[*place]) == kind).collect();
            if !places.is_empty() {
                moved(step, places[dice.below(places.len())], to);
            }
        }
        Kind::Squares => {
            let adds =
                |one: &Instruction| matches!(one, Instruction::Run { exec, .. } if original.exec(*exec).is_squares());
            let places: Vec<usize> = (0..step.len()).filter(|place| adds(&step[*place])).collect();
            if let Some(place) = (!places.is_empty()).then(|| places[dice.below(places.len())]) {
                match dice.below(3) {
                    0 => drop(step.remove(place)),
                    1 => step.insert(to, step[place]),
                    _ => moved(step, place, to),
                }
            }
        }
        Kind::ToDevice => {
            let moved = step.remove(from);
            let step = &mut program.devices[to_device].step;
            step.insert(to.min(step.len()), moved);
        }
        Kind::ToList => {
            let moved = step.remove(from);
            other.insert(to.min(other.len()), moved);
        }
        Kind::Become => step[from] = step[to],
        Kind::FieldBuffer
        | Kind::FieldValue
        | Kind::FieldMicrobatch
        | Kind::FieldFill
        | Kind::FieldExec
        | Kind::FieldOperands
        | Kind::FieldPeer
        | Kind::FieldClass
        | Kind::FieldGroup
        | Kind::FieldDirection
        | Kind::FieldCollective
        | Kind::FieldToken => {
            let places: Vec<usize> = (0..len).filter(|place| fields::has(kind, step[*place])).collect();
            if !places.is_empty() {
                fields::change(kind, &mut step[places[dice.below(places.len())]], original, device, dice);
            }
        }
        _ => return false,
    }
    true
}

fn moved(list: &mut Vec<Instruction>, from: usize, to: usize) {
    let moved = list.remove(from);
    list.insert(to, moved);
}

/// Another number of a table with so many entries: a neighbour, any other, or one that is outside.
fn near(number: u32, entries: usize, dice: &mut Dice) -> u32 {
    match dice.below(8) {
        0..=2 => number.wrapping_add(1),
        3..=4 => number.saturating_sub(1),
        5..=6 => u32::try_from(dice.below(entries + 1)).unwrap_or(u32::MAX),
        _ => [0, u32::MAX][dice.below(2)],
    }
}

/// One item, if there is any.
fn pick<'a, T>(items: &'a mut [T], dice: &mut Dice) -> Option<&'a mut T> {
    let n_items = items.len();
    if n_items == 0 { None } else { items.get_mut(dice.below(n_items)) }
}

/// The item, or none.
fn some<T>(item: T, dice: &mut Dice) -> Option<T> {
    (dice.below(3) > 0).then_some(item)
}
