//! Rules about started transfers, collectives and copies: each is waited for exactly once, before
//! anything disturbs its buffer.

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
        ends: Ends,
        index: u32,
    },
    Waited,
}

/// The buffers that something under way reads and replaces.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Ends {
    read: Option<BufferId>,
    /// What a collective does to its buffer is what a receive does: nobody else may touch it.
    replaced: Option<BufferId>,
}

/// What is under way in a buffer.
#[derive(Clone, Copy, Default)]
struct Transfers {
    sends: u32,
    receives: bool,
}

/// Checks one device. Set-up lists start nothing.
pub(super) fn check(program: &Program, device: DeviceId, code: &DeviceProgram, report: &mut Report) {
    let n_starts = code.step.iter().filter(|instruction| instruction.starts().is_some()).count();
    if n_starts != code.n_tokens as usize {
        let message = format!(
            "{} tokens are stated, but {n_starts} transfers, collectives and copies are started",
            code.n_tokens
        );
        report.error(Place::Device(device), message);
        return;
    }
    let mut tokens = vec![Token::Unused; n_starts];
    let mut buffers = vec![Transfers::default(); code.buffers.len()];
    for (index, instruction) in code.step.iter().enumerate() {
        let (mut found, mut ends) = (Ok(()), Ends::default());
        instruction.accesses(program, code, |buffer, touch| {
            if let Err(message) = disturbs(buffers[buffer.index()], buffer, touch) {
                found = Err(message);
            }
            match touch {
                Touch::Send => ends.read = Some(buffer),
                Touch::Receive | Touch::Reduce => ends.replaced = Some(buffer),
                Touch::Alloc | Touch::Free | Touch::Read | Touch::Write | Touch::Update => {}
            }
        });
        let started = match (*instruction, instruction.starts()) {
            (Instruction::Wait { token }, _) => wait(&mut tokens, &mut buffers, token),
            (_, Some((token, _))) => start(&mut tokens, &mut buffers, index, token, ends),
            (_, None) => Ok(()),
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
        return Err(format!("{buffer} is being received, reduced, gathered or copied to, and that was not waited for"));
    }
    let reads = matches!(touch, Touch::Read | Touch::Send);
    if transfers.sends > 0 && !reads {
        return Err(format!("{buffer} is being sent, gathered or copied, and that was not waited for"));
    }
    Ok(())
}

fn start(
    tokens: &mut [Token],
    buffers: &mut [Transfers],
    index: usize,
    token: TokenId,
    ends: Ends,
) -> Result<(), String> {
    match tokens[token.index()] {
        Token::Unused => {}
        Token::Misused => return Ok(()),
        Token::Started { .. } | Token::Waited => return Err(format!("{token} was started already in this step")),
    }
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    tokens[token.index()] = Token::Started { ends, index };
    ends.replaced.into_iter().for_each(|buffer| buffers[buffer.index()].receives = true);
    ends.read.into_iter().for_each(|buffer| buffers[buffer.index()].sends += 1);
    Ok(())
}

fn wait(tokens: &mut [Token], buffers: &mut [Transfers], token: TokenId) -> Result<(), String> {
    match std::mem::replace(&mut tokens[token.index()], Token::Waited) {
        Token::Unused | Token::Misused => {
            tokens[token.index()] = Token::Misused;
            Err(format!("{token} is not started before it is waited for"))
        }
        Token::Waited => Err(format!("{token} was waited for already")),
        Token::Started { ends, .. } => {
            ends.replaced.into_iter().for_each(|buffer| buffers[buffer.index()].receives = false);
            ends.read.into_iter().for_each(|buffer| buffers[buffer.index()].sends -= 1);
            Ok(())
        }
    }
}
