//! Rule: the last stage runs its forwards in the order of the microbatches.
//!
//! PyTorch appends the loss of each forward of the last stage to a list, and the backward of
//! microbatch m takes what stands at position m (`_maybe_get_loss`).

use super::action::ActionKind;
use super::table::{Cell, Table};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};

/// The first backward of the last stage that gets the loss of another microbatch, or none.
pub(super) fn check(table: &Table) -> Diagnostics {
    let Some(last) = table.n_stages().checked_sub(1) else { return Diagnostics::new() };
    let mut losses: Vec<(u32, &Cell)> = Vec::new();
    let own = table.actions().filter(|(_, _, action, _)| action.stage as usize == last);
    for (_, _, action, cell) in own {
        let Some(microbatch) = action.microbatch else { continue };
        if action.kind == ActionKind::Forward {
            losses.push((microbatch, cell));
        }
        if !action.kind.is_backward() {
            continue;
        }
        let help = format!("run the forwards of stage {last} in the order of the microbatches");
        let Some((other, forward)) = losses.get(microbatch as usize) else {
            let n = losses.len();
            let message = format!("`{action}` takes loss {microbatch} of a list that has {n} by then");
            let error = Diagnostic::error(Code::LossOrder, cell.span, "PyTorch stops here", message);
            return vec![error.help(help)];
        };
        if *other != microbatch {
            let message =
                format!("`{action}` gets the loss of microbatch {other}, and the gradients are silently wrong");
            let error =
                Diagnostic::error(Code::LossOrder, cell.span, format!("takes loss {microbatch} of the list"), message);
            let error = error.label(forward.span, format!("made loss {microbatch} of the list"));
            return vec![error.note("PyTorch keeps losses in the order of the forwards, not by microbatch").help(help)];
        }
    }
    Diagnostics::new()
}
