//! Rules about started transfers and collectives: each is waited for exactly once, before anything disturbs its buffer.

use super::Place;
use super::report::Report;
use crate::ids::{BufferId, DeviceId, TokenId};
use crate::instruction::Instruction;
use crate::operand::Touch;
use crate::program::{DeviceProgram, Program};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    Unused,
    /// Waited for before its start, which was reported.
    Misused,
    Started {
        buffer: BufferId,
        receives: bool,
        index: u32,
    },
    Waited,
}

/// What is under way in a buffer.
#[derive(Clone, Copy, Default)]
struct Transfers {
    sends: u32,
    receives: bool,
}

/// Checks one device. Set-up lists start nothing.
pub(super) fn check(program: &Program, device: DeviceId, code: &DeviceProgram, report: &mut Report) {
    let starts = |instruction: &&Instruction| {
        use Instruction::{CollStart, RecvStart, SendStart};
        matches!(instruction, SendStart { .. } | RecvStart { .. } | CollStart { .. })
    };
    let n_starts = code.step.iter().filter(starts).count();
    if n_starts != code.n_tokens as usize {
        let message =
            format!("{} tokens are stated, but {n_starts} transfers and collectives are started", code.n_tokens);
        report.error(Place::Device(device), message);
        return;
    }
    let mut tokens = vec![Token::Unused; n_starts];
    let mut buffers = vec![Transfers::default(); code.buffers.len()];
    for (index, instruction) in code.step.iter().enumerate() {
        let mut found = Ok(());
        instruction.accesses(program, code, |buffer, touch| {
            if let Err(message) = disturbs(buffers[buffer.index()], buffer, touch) {
                found = Err(message);
            }
        });
        let started = match *instruction {
            Instruction::SendStart { buffer, token, .. } => {
                start(&mut tokens, &mut buffers, index, token, buffer, false)
            }
            // What a collective does to its buffer is what a receive does: nobody else may touch it.
            Instruction::RecvStart { buffer, token, .. } | Instruction::CollStart { buffer, token, .. } => {
                start(&mut tokens, &mut buffers, index, token, buffer, true)
            }
            Instruction::Wait { token } => wait(&mut tokens, &mut buffers, token),
            Instruction::Alloc { .. }
            | Instruction::Free { .. }
            | Instruction::Fill { .. }
            | Instruction::Load { .. }
            | Instruction::Run { .. }
            | Instruction::Emit { .. } => Ok(()),
        };
        if let Err(message) = found.and(started) {
            report.step(device, index, message);
        }
    }
    for token in tokens {
        if let Token::Started { index, .. } = token {
            report.step(device, index as usize, "is never waited for");
        }
    }
}

fn disturbs(transfers: Transfers, buffer: BufferId, touch: Touch) -> Result<(), String> {
    if transfers.receives {
        return Err(format!("{buffer} is being received or reduced, and that was not waited for"));
    }
    let reads = matches!(touch, Touch::Read | Touch::Send);
    if transfers.sends > 0 && !reads {
        return Err(format!("{buffer} is being sent, and that was not waited for"));
    }
    Ok(())
}

fn start(
    tokens: &mut [Token],
    buffers: &mut [Transfers],
    index: usize,
    token: TokenId,
    buffer: BufferId,
    receives: bool,
) -> Result<(), String> {
    match tokens[token.index()] {
        Token::Unused => {}
        Token::Misused => return Ok(()),
        Token::Started { .. } | Token::Waited => return Err(format!("{token} was started already in this step")),
    }
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    tokens[token.index()] = Token::Started { buffer, receives, index };
    let transfers = &mut buffers[buffer.index()];
    if receives {
        transfers.receives = true;
    } else {
        transfers.sends += 1;
    }
    Ok(())
}

fn wait(tokens: &mut [Token], buffers: &mut [Transfers], token: TokenId) -> Result<(), String> {
    match std::mem::replace(&mut tokens[token.index()], Token::Waited) {
        Token::Unused | Token::Misused => {
            tokens[token.index()] = Token::Misused;
            Err(format!("{token} is not started before it is waited for"))
        }
        Token::Waited => Err(format!("{token} was waited for already")),
        Token::Started { buffer, receives: true, .. } => {
            buffers[buffer.index()].receives = false;
            Ok(())
        }
        Token::Started { buffer, receives: false, .. } => {
            buffers[buffer.index()].sends -= 1;
            Ok(())
        }
    }
}
