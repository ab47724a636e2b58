//! Programs rewritten the way that naive compilers write them. Every lifespan gets a place of its
//! own and the peak is counted again, so that the verifier can judge what came out.

use pipe_ir::ids::{BufferId, ExecId, MicrobatchId, TokenId, ValueId};
use pipe_ir::instruction::{Instruction, LifespanEvent, OperandRange};
use pipe_ir::program::{Access, Body, Buffer, DeviceProgram, Exec, Operand, Program, Space};
use pipe_ir::task::TaskKind;
use pipe_ir::units::Bytes;
use pipe_ir::value::{Value, ValueKind};
use std::collections::{BTreeMap, BTreeSet};

/// Waits for the ends of all sends, and frees what was sent, at the end of the step.
#[must_use]
pub fn sends_held_to_the_end(program: &Program) -> Program {
    rewritten(program, |code| {
        let (tokens, buffers) = sends(code);
        let is_late = |one: &Instruction| match one {
            Instruction::Wait { token } => tokens.contains(token),
            Instruction::Free { buffer } => buffers.contains(buffer),
            _ => false,
        };
        let (late, mut step): (Vec<_>, Vec<_>) = std::mem::take(&mut code.step).into_iter().partition(is_late);
        let (waits, frees): (Vec<_>, Vec<_>) =
            late.into_iter().partition(|one| matches!(one, Instruction::Wait { .. }));
        step.extend(waits.into_iter().chain(frees));
        code.step = step;
    })
}

/// All transfers of a device in one queue, each received just before it is used: a transfer starts
/// when the one before it in the list has ended.
#[must_use]
pub fn received_just_before_use(program: &Program) -> Program {
    rewritten(program, |code| {
        let (sent, _) = sends(code);
        let mut receives: BTreeMap<TokenId, Instruction> = BTreeMap::new();
        let mut received = BTreeSet::new();
        for instruction in &code.step {
            if let Instruction::RecvStart { buffer, token, .. } = instruction {
                receives.insert(*token, *instruction);
                received.insert(*buffer);
            }
        }
        // Sums of gradients are sent from buffers that live for ever, and received there.
        let allocated = |one: &Instruction| match one {
            Instruction::Alloc { buffer } => Some(*buffer),
            _ => None,
        };
        let passing: BTreeSet<BufferId> = code.step.iter().filter_map(allocated).collect();
        received.retain(|buffer| passing.contains(buffer));
        let mut queue = StepWriter::default();
        for instruction in std::mem::take(&mut code.step) {
            match instruction {
                Instruction::RecvStart { .. } => {}
                Instruction::Alloc { buffer } if received.contains(&buffer) => {}
                Instruction::SendStart { buffer, token, .. } => {
                    queue.end();
                    queue.step.push(instruction);
                    queue.under_way = Some((token, buffer));
                }
                Instruction::Wait { token } if sent.contains(&token) => {
                    let lasts = |buffer: BufferId| !passing.contains(&buffer);
                    if queue.under_way.is_some_and(|(own, buffer)| own == token && lasts(buffer)) {
                        queue.end();
                    }
                }
                Instruction::Wait { token } if receives.contains_key(&token) => {
                    queue.end();
                    if let Instruction::RecvStart { buffer, .. } = receives[&token] {
                        queue.step.extend(received.contains(&buffer).then_some(Instruction::Alloc { buffer }));
                        queue.step.extend([receives[&token], instruction]);
                    }
                }
                Instruction::Free { buffer } if queue.under_way.is_some_and(|(_, sent)| sent == buffer) => {
                    queue.frees.push(instruction);
                }
                other => queue.step.push(other),
            }
        }
        queue.end();
        code.step = queue.step;
    })
}

/// A list that is being written, with the send that has not ended.
#[derive(Default)]
struct StepWriter {
    step: Vec<Instruction>,
    under_way: Option<(TokenId, BufferId)>,
    /// What to free then.
    frees: Vec<Instruction>,
}

impl StepWriter {
    fn end(&mut self) {
        if let Some((token, _)) = self.under_way.take() {
            self.step.push(Instruction::Wait { token });
        }
        self.step.append(&mut self.frees);
    }
}

/// Every fused backward leaves its weight gradients in a buffer of its microbatch; they are added
/// up at the end of the step.
#[must_use]
pub fn weight_gradients_kept(program: &Program) -> Program {
    let mut program = program.clone();
    // By executable: what it adds to, which operand that is, what it writes instead, and what adds that up.
    let mut kept: BTreeMap<ExecId, (usize, ValueId, ExecId)> = BTreeMap::new();
    for index in 0..program.execs.len() {
        let exec = &program.execs[index];
        let adds = |operand: &Operand| program.value(operand.value).kind == ValueKind::ParameterGradients;
        let Some(position) = exec.operands.iter().position(adds).filter(|_| exec.kind == TaskKind::Backward) else {
            continue;
        };
        let (stage, sum) = (exec.stage, exec.operands[position]);
        let bytes = program.value(sum.value).bytes;
        let kind = ValueKind::DeferredGradient;
        program.values.push(Value {
            name: format!("kept.{stage}"),
            kind,
            stage,
            bytes,
            tensors: Vec::new(),
            share: None,
        });
        let value = ValueId::from_index(program.values.len() - 1);
        let operands = vec![Operand::new(value, Access::Read), sum];
        program.execs.push(Exec::new(TaskKind::BackwardWeight, stage, operands, Body::Abstract, 1));
        let adds = ExecId::from_index(program.execs.len() - 1);
        let exec = &mut program.execs[index];
        exec.kind = TaskKind::BackwardInput;
        exec.operands[position] = Operand::new(value, Access::Write);
        kept.insert(ExecId::from_index(index), (position, value, adds));
    }
    let bytes: Vec<Bytes> = program.values.iter().map(|value| value.bytes.aligned()).collect();
    rewritten(&program, |code| {
        let mut sums = Vec::new();
        for instruction in std::mem::take(&mut code.step) {
            if let Instruction::Run { exec, microbatch, operands } = instruction
                && let Some((position, value, adds)) = kept.get(&exec)
            {
                let buffer = BufferId::from_index(code.buffers.len());
                let offset = code.arena;
                code.buffers.push(Buffer { bytes: bytes[value.index()], offset, ..Buffer::default() });
                code.arena += bytes[value.index()];
                let sum = std::mem::replace(&mut code.operands[operands.start as usize + position], buffer);
                code.step.push(Instruction::Alloc { buffer });
                sums.push((*adds, microbatch, buffer, sum));
            }
            code.step.push(instruction);
        }
        sums.into_iter().for_each(|sum| add_up(code, sum));
    })
}

fn add_up(code: &mut DeviceProgram, (exec, microbatch, kept, sum): (ExecId, MicrobatchId, BufferId, BufferId)) {
    let start = u32::try_from(code.operands.len()).unwrap_or(u32::MAX);
    code.operands.extend([kept, sum]);
    let operands = OperandRange { start, len: 2 };
    code.step.extend([Instruction::Run { exec, microbatch, operands }, Instruction::Free { buffer: kept }]);
}

/// Activations and gradients in the same channels.
#[must_use]
pub fn without_classes(program: &Program) -> Program {
    let mut program = program.clone();
    for instruction in program.devices.iter_mut().flat_map(|code| &mut code.step) {
        if let Instruction::SendStart { class, .. } | Instruction::RecvStart { class, .. } = instruction {
            *class = pipe_ir::instruction::Class::Activation;
        }
    }
    program
}

/// The tokens of sends, and what is sent.
fn sends(code: &DeviceProgram) -> (BTreeSet<TokenId>, BTreeSet<BufferId>) {
    let sends = code.step.iter().filter_map(|one| match one {
        Instruction::SendStart { buffer, token, .. } => Some((*token, *buffer)),
        _ => None,
    });
    sends.unzip()
}

/// The program with every lifespan in a place of its own, then rewritten, with the peaks that it has then.
fn rewritten(program: &Program, rewrite: impl Fn(&mut DeviceProgram)) -> Program {
    let mut program = program.clone();
    for code in &mut program.devices {
        spread(code);
        rewrite(code);
        let (mut alive, mut peak) = (Bytes::ZERO, Bytes::ZERO);
        for instruction in code.setup.iter().chain(&code.step) {
            match instruction.lifespan() {
                Some(LifespanEvent::Begins(buffer)) => alive += code.buffers[buffer.index()].bytes,
                Some(LifespanEvent::Ends(buffer)) => alive -= code.buffers[buffer.index()].bytes,
                None => {}
            }
            peak = peak.max(alive);
        }
        code.peak = peak;
    }
    program
}

/// A buffer of its own for every lifespan, one behind the other.
fn spread(code: &mut DeviceProgram) {
    let old = std::mem::take(&mut code.buffers);
    let old_operands = std::mem::take(&mut code.operands);
    let mut now = vec![BufferId(u32::MAX); old.len()];
    (code.limit, code.arena) = (None, Bytes::ZERO);
    (code.host.limit, code.host.arena) = (None, Bytes::ZERO);
    for instruction in code.setup.iter_mut().chain(&mut code.step) {
        if let Some(LifespanEvent::Begins(buffer)) = instruction.lifespan() {
            let Buffer { bytes, space, .. } = old[buffer.index()];
            let arena = if space == Space::Host { &mut code.host.arena } else { &mut code.arena };
            now[buffer.index()] = BufferId::from_index(code.buffers.len());
            code.buffers.push(Buffer { bytes, offset: *arena, space });
            *arena += bytes;
        }
        if let Instruction::Run { operands, .. } = instruction {
            let own = &old_operands[operands.start as usize..][..operands.len as usize];
            operands.start = u32::try_from(code.operands.len()).unwrap_or(u32::MAX);
            code.operands.extend(own.iter().map(|buffer| now[buffer.index()]));
        }
        instruction.fields(|buffer, _| *buffer = now[buffer.index()]);
    }
}
