//! How many steps a window has, for blocks that run on across steps.

use super::Writer;
use pipe_schedule::block::async_window::{too_late, versions};
use pipe_schedule::schedule::Block;
use pipe_schedule::window::{StageVersions, Window};
use pipe_syntax::ast::Weights;
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::limits::{MAX_TASKS, tasks};
use pipe_syntax::source::Span;

/// Steps of a window where nobody says how many, or as many more as its versions need.
const DEFAULT_STEPS: u32 = 4;
/// The most steps of a window that only the training's steps decide: a run saves itself between windows.
const MOST_STEPS: u32 = 32;
/// Most tasks of such a window.
const MOST_TASKS: u64 = MAX_TASKS / 10;

/// The window of a block, where its schedule asks for one; the writer then has the microbatches of all its steps.
pub(super) fn window(writer: &mut Writer<'_>, block: &Block, per_step: u32) -> Option<Window> {
    let (weights, span) = writer.weights?;
    let n_stages = writer.placement.n_stages();
    if !per_step.is_multiple_of(block.microbatches) {
        writer.report.add(cut_off(weights, block.microbatches, per_step, span));
        return None;
    }
    if writer.turn {
        return Some(Window { weights, span, n_steps: 1, stages: Vec::new() });
    }
    let stages = match versions(weights, block, n_stages, per_step) {
        Ok(stages) => stages,
        Err(late) => {
            late.into_iter().for_each(|late| writer.report.add(too_late(late, span, per_step)));
            return None;
        }
    };
    let tasks_of_step = u64::from(per_step / block.microbatches) * block.slots.len() as u64;
    let n_steps = steps(writer, weights, &stages, tasks_of_step, span);
    let n_steps = writer.report.take(n_steps)?;
    writer.n_microbatches = per_step * n_steps;
    Some(Window { weights, span, n_steps, stages })
}

/// The number of steps: whole turns of all versions through their buffers, so that every window
/// begins as the first one.
fn steps(
    writer: &Writer<'_>,
    weights: Weights,
    stages: &[StageVersions],
    tasks_of_step: u64,
    span: Span,
) -> Result<u32, pipe_syntax::expr::scope::Fault> {
    let turn = stages.iter().fold(1_u32, |turn, stage| least_common_multiple(turn, stage.buffers));
    let whole = |steps: u32| steps > 0 && steps.is_multiple_of(turn);
    let error = |message: String, label: String| {
        let error = Diagnostic::error(Code::OutOfRange, span, label, message);
        let note = format!("under `weights {}`, versions of the weights take turns in {turn} buffers", weights.word());
        Err(Box::new(error.note(note).help(format!("use a multiple of {turn} steps"))))
    };
    let n_steps = match (writer.steps.set, writer.steps.of_training) {
        (Some(set), _) => match u32::try_from(set) {
            Ok(steps) if whole(steps) => steps,
            _ => return error(format!("a window of {set} steps"), format!("needs a multiple of {turn} steps")),
        },
        (None, Some(all)) => {
            let most = u64::from(MOST_STEPS).min(MOST_TASKS / tasks_of_step.max(1)).max(u64::from(turn));
            let fits = |steps: &u32| whole(*steps) && all.is_multiple_of(*steps) && u64::from(*steps) <= most;
            match (1..=all.min(MOST_STEPS.max(turn))).rev().find(fits) {
                Some(steps) => steps,
                None => {
                    return error(
                        format!("{all} training steps cannot be cut into windows of a multiple of {turn} steps"),
                        format!("needs windows of a multiple of {turn} steps"),
                    );
                }
            }
        }
        (None, None) => turn.saturating_mul(DEFAULT_STEPS.div_ceil(turn)),
    };
    tasks(u128::from(tasks_of_step) * u128::from(n_steps), span)?;
    Ok(n_steps)
}

fn least_common_multiple(one: u32, other: u32) -> u32 {
    let (mut a, mut b) = (one, other);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    (one / a.max(1)).saturating_mul(other)
}

fn cut_off(weights: Weights, size: u32, per_step: u32, span: Span) -> Diagnostic {
    let message = format!("steps of {per_step} microbatches cannot be cut into whole blocks of {size}");
    let word = weights.word();
    Diagnostic::error(Code::OutOfRange, span, "blocks run on from step to step", message)
        .note(format!("under `weights {word}`, every step has to begin with a block"))
        .help(format!("use a multiple of {size} microbatches, or `weights flush`"))
}
