//! Blocks that run on across steps, of several microbatches, on devices that change from one to the next.

use super::{Drawn, costs, model::Model, one_of, training};
use crate::schedules::Dice;
use std::fmt::Write as _;

/// Draws a block in any slots; many are refused. The reference is the same block with nothing but
/// what decides which weights tasks read.
#[must_use]
pub fn blocks(seed: u64) -> Drawn {
    let mut dice = Dice(seed);
    let dice = &mut dice;
    let (devices, stages, size) = (1 + dice.below(4), 1 + dice.below(4), 1 + dice.below(3));
    let microbatches = size * (1 + dice.below(3));
    let model = Model::draw(stages, 1, dice.below(8) == 0, dice);
    let mut features = model.features.clone();
    features.insert("window");
    let (train, _) = training(one_of(&["f64", "f64", "f32"], dice), dice);
    let (step, late) = (one_of(&[0, 1, 2, 5, 9], dice), one_of(&[0, 0, 1, 3, 8], dice));
    let (along, across) = (dice.below(devices + 1), dice.below(devices));
    if across > 0 && size > 1 {
        features.insert("replicas");
    }
    let period = size * stages * 2 + dice.below(6);
    let weights = one_of(&["newest", "previous"], dice);
    let split = dice.below(2) == 0;
    let backward = format!("at {} + {late} * m + {step} * m + 3 * ({} - s)", 2 * stages, stages - 1);
    let backward = if split { format!("B[s, m] {backward}\nW[s, m] fill") } else { format!("BW[s, m] {backward}") };
    let schedule = format!(
        "schedule irregular {{\nrequire M % {size} == 0\nstages {stages}\nplace s, m on ({along} * s + {across} * m) % D\nweights {weights}\n\
         slots F = 1, B = 1, W = 1, BW = 1\nblock of {size} every {period} {{\nF[s, m] at s + {step} * m\n{backward}\n}}\n}}"
    );
    let mut lines = String::new();
    let again = one_of(&["", "", "recompute all\n", "recompute 0\n"], dice);
    if !again.is_empty() {
        features.insert("recompute");
    }
    lines += again;
    let offload = one_of(&["", "activations"], dice);
    if !offload.is_empty() {
        features.insert("offload");
        let _ = writeln!(lines, "offload {offload}");
    }
    lines += &costs(devices, dice);
    let text = |lines: &str| {
        format!(
            "{}\n{schedule}\npipeline drawn {{\n{train}\nmodel drawn\ndevices {devices}\nmicrobatches {microbatches}\n\
             schedule irregular\n{lines}}}\n",
            model.text
        )
    };
    Drawn { text: text(&lines), reference: text(""), features, tolerance: 0.0, noise: f64::MIN_POSITIVE }
}
