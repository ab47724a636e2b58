//! Damage to instructions: the fields of each, by kind.

use super::kinds::Kind;
use super::near;
use crate::schedules::Dice;
use pipe_ir::ids::{BufferId, DeviceId, ExecId, GroupId, MicrobatchId, TokenId, ValueId};
use pipe_ir::instruction::{Class, Collective, Count, Direction, Fill, Instruction, OperandRange};
use pipe_ir::program::Program;

/// A field of an instruction.
enum Field<'a> {
    Buffer(&'a mut BufferId),
    Value(&'a mut ValueId),
    Microbatch(&'a mut MicrobatchId),
    Fill(&'a mut Fill),
    Exec(&'a mut ExecId),
    Operands(&'a mut OperandRange),
    Peer(&'a mut DeviceId),
    Class(&'a mut Class),
    Token(&'a mut TokenId),
    Group(&'a mut GroupId),
    Direction(&'a mut Direction),
    Collective(&'a mut Collective),
    Count(&'a mut Count),
}

impl Field<'_> {
    /// The kind of damage that changes it.
    const fn kind(&self) -> Kind {
        match self {
            Self::Buffer(_) => Kind::FieldBuffer,
            Self::Value(_) => Kind::FieldValue,
            Self::Microbatch(_) => Kind::FieldMicrobatch,
            Self::Fill(_) => Kind::FieldFill,
            Self::Exec(_) => Kind::FieldExec,
            Self::Operands(_) => Kind::FieldOperands,
            Self::Peer(_) => Kind::FieldPeer,
            Self::Class(_) => Kind::FieldClass,
            Self::Token(_) => Kind::FieldToken,
            Self::Group(_) => Kind::FieldGroup,
            Self::Direction(_) => Kind::FieldDirection,
            Self::Collective(_) => Kind::FieldCollective,
            Self::Count(_) => Kind::FieldOperands,
        }
    }
}

/// All fields. A new instruction has to say here which damage it can take.
fn fields(instruction: &mut Instruction) -> Vec<Field<'_>> {
    match instruction {
        Instruction::Alloc { buffer } | Instruction::Free { buffer } | Instruction::Emit { buffer } => {
            vec![Field::Buffer(buffer)]
        }
        Instruction::Fill { buffer, value, with } => {
            vec![Field::Buffer(buffer), Field::Value(value), Field::Fill(with)]
        }
        Instruction::Load { buffer, value, microbatch } => {
            vec![Field::Buffer(buffer), Field::Value(value), Field::Microbatch(microbatch)]
        }
        Instruction::Run { exec, microbatch, operands } => {
            vec![Field::Exec(exec), Field::Microbatch(microbatch), Field::Operands(operands)]
        }
        Instruction::SendStart { buffer, to, class, token } => {
            vec![Field::Buffer(buffer), Field::Peer(to), Field::Class(class), Field::Token(token)]
        }
        Instruction::RecvStart { buffer, value, microbatch, from, class, token } => vec![
            Field::Buffer(buffer),
            Field::Value(value),
            Field::Microbatch(microbatch),
            Field::Peer(from),
            Field::Class(class),
            Field::Token(token),
        ],
        Instruction::CollStart { buffer, collective, group, token } => {
            vec![Field::Buffer(buffer), Field::Collective(collective), Field::Group(group), Field::Token(token)]
        }
        Instruction::GatherStart { buffer, share, group, token } => {
            vec![Field::Buffer(buffer), Field::Buffer(share), Field::Group(group), Field::Token(token)]
        }
        Instruction::CopyStart { buffer, from, direction, token } => {
            vec![Field::Buffer(buffer), Field::Buffer(from), Field::Direction(direction), Field::Token(token)]
        }
        Instruction::LaneStart { lane: _, count, token } => vec![Field::Count(count), Field::Token(token)],
        Instruction::Wait { token } => vec![Field::Token(token)],
    }
}

/// The kind that moves such an instruction. A new instruction has to say here how it is moved.
pub(super) const fn mover(instruction: &Instruction) -> Kind {
    match instruction {
        Instruction::Alloc { .. } => Kind::MoveAlloc,
        Instruction::Free { .. } => Kind::MoveFree,
        Instruction::Fill { .. } | Instruction::Load { .. } | Instruction::Emit { .. } => Kind::MoveData,
        Instruction::Run { .. } => Kind::MoveRun,
        Instruction::SendStart { .. }
        | Instruction::RecvStart { .. }
        | Instruction::CollStart { .. }
        | Instruction::GatherStart { .. }
        | Instruction::CopyStart { .. }
        | Instruction::LaneStart { .. } => Kind::MoveStart,
        Instruction::Wait { .. } => Kind::MoveWait,
    }
}

/// Whether the instruction has a field that this kind changes.
pub(super) fn has(kind: Kind, mut instruction: Instruction) -> bool {
    fields(&mut instruction).iter().any(|field| field.kind() == kind)
}

/// Changes one field of this kind, if the instruction has one.
pub(super) fn change(kind: Kind, instruction: &mut Instruction, program: &Program, device: usize, dice: &mut Dice) {
    let mut found: Vec<_> = fields(instruction).into_iter().filter(|field| field.kind() == kind).collect();
    if found.is_empty() {
        return;
    }
    let code = &program.devices[device];
    match found.swap_remove(dice.below(found.len())) {
        Field::Buffer(buffer) => buffer.0 = near(buffer.0, code.buffers.len(), dice),
        Field::Value(value) => value.0 = near(value.0, program.values.len(), dice),
        Field::Microbatch(microbatch) => microbatch.0 = near(microbatch.0, program.n_microbatches as usize, dice),
        Field::Fill(fill) => *fill = if *fill == Fill::Zero { Fill::Init } else { Fill::Zero },
        Field::Exec(exec) => exec.0 = near(exec.0, program.execs.len(), dice),
        Field::Operands(range) => match dice.below(2) {
            0 => range.start = near(range.start, code.operands.len(), dice),
            _ => range.len = near(range.len, code.operands.len(), dice),
        },
        Field::Peer(peer) => peer.0 = near(peer.0, program.devices.len(), dice),
        Field::Class(class) => {
            let others = Class::ALL.into_iter().filter(|other| other != class).collect::<Vec<_>>();
            *class = others[dice.below(others.len())];
        }
        Field::Direction(direction) => {
            let [one, other] = Direction::ALL;
            *direction = if *direction == one { other } else { one };
        }
        Field::Collective(collective) => {
            let others = Collective::ALL.into_iter().filter(|other| other != collective).collect::<Vec<_>>();
            *collective = others[dice.below(others.len())];
        }
        Field::Count(count) => count.0 = near(count.0, 5, dice),
        Field::Group(group) => group.0 = near(group.0, program.groups.len(), dice),
        Field::Token(token) => token.0 = near(token.0, code.n_tokens as usize, dice),
    }
}
