//! `slices`: the number of slices of a microbatch, or the share of each slice.

use super::Writer;
use pipe_schedule::policy::activation::{Activations, MOST_PARTS};
use pipe_syntax::ast::{Expr, ExprKind};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::scope::{Fault, Type};
use pipe_syntax::limits::{MAX_SLICES, within};

const WHOLE: &str = "shares are whole numbers: `[2, 1, 1]` gives a half and two quarters";

/// Adds a help to the error for a list with something other than whole numbers.
fn whole(fault: Fault, written: &Expr) -> Fault {
    let is_list = matches!(written.kind, ExprKind::List(_)) && fault.code == Code::WrongType;
    if is_list { Box::new(Diagnostic { fix: None, ..*fault }.help(WHOLE)) } else { fault }
}

/// The number of slices, and the share of each. The shares are empty if all are equal.
pub(super) fn count<'a>(writer: &mut Writer<'a>, written: &'a Expr) -> Result<(u32, Vec<u32>), Fault> {
    let code = writer.scope.number_or_list(written).map_err(|fault| whole(fault, written))?;
    if !matches!(code.ty, Type::List(_)) {
        let count = within("slices", writer.eval(&code)?, 1..=MAX_SLICES, written.span)?;
        return Ok((count, Vec::new()));
    }
    let numbers = writer.machine.numbers(&writer.scope, &code, MAX_SLICES)?;
    let count = i64::try_from(numbers.len()).unwrap_or(i64::MAX);
    let count = within("slices", count, 1..=MAX_SLICES, written.span)?;
    let shares = (0..).zip(&numbers).map(|(slice, (share, place))| {
        u32::try_from(*share).ok().filter(|share| *share > 0).ok_or_else(|| {
            let message = format!("the share of q{slice} is {share}; it must be from 1 to {}", u32::MAX);
            Diagnostic::error(Code::OutOfRange, *place, format!("{share} for q{slice}"), message).help(WHOLE)
        })
    });
    let shares: Vec<u32> = shares.collect::<Result<_, _>>()?;
    if let Err(parts) = Activations::default().sliced(&shares) {
        let message = format!("these shares need {parts} parts per activation, and at most {MOST_PARTS} are possible");
        let error = Diagnostic::error(Code::TooLarge, written.span, "too many digits", message);
        return Err(Box::new(error.help("write shares with few digits, such as `[5, 4, 4, 3]`")));
    }
    let is_equal = shares.iter().all(|share| *share == shares[0]);
    Ok((count, if is_equal { Vec::new() } else { shares }))
}
