//! How kinds of tasks look and what they are called, in every form of a picture.
//!
//! Kinds differ in luminance, so that a picture can be read in grey print, and with every form of
//! colour blindness. From dark to light: `U`, `F`, `R`, `B`, `BW`, `W`. Later stages of a device
//! are lighter and paler, yet darker than the next kind. The tests measure all of that. A fused
//! backward, `BW`, is divided along a diagonal, in the colours of its halves.

mod colour;

#[cfg(test)]
mod tests;

pub use colour::Colour;

use pipe_ir::task::TaskKind;
use serde::Serialize;

/// A kind of task, as a picture has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Kind {
    /// `F`, `B`, ..
    pub letters: &'static str,
    /// What it does.
    pub words: &'static str,
    /// The first of `light`.
    pub colour: Colour,
    /// On a light ground: on the first stage of a device, and on the last. Stages between are on the line from one to
    /// the other.
    pub light: [Colour; 2],
    /// The same on a dark ground.
    pub dark: [Colour; 2],
    /// Of a task with two halves the kinds whose colours divide it: positions in the table of kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halves: Option<[usize; 2]>,
}

/// Every kind, by [`TaskKind::index`].
pub fn kinds() -> Vec<Kind> {
    let kind = |kind: TaskKind| {
        let light = ends(kind, Ground::Light);
        Kind {
            letters: kind.letters(),
            words: words(kind),
            colour: light[0],
            light,
            dark: ends(kind, Ground::Dark),
            halves: halves(kind).map(|halves| halves.map(TaskKind::index)),
        }
    };
    TaskKind::ALL.map(kind).to_vec()
}

/// What a picture is drawn on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ground {
    /// Paper, or a light page.
    Light,
    /// A dark page, or a terminal.
    Dark,
}

/// The colour of a kind on one of the stages of a device, counted from 0. Of a kind with halves it is their mean.
pub fn shade(kind: TaskKind, ground: Ground, nth_stage: usize, n_stages: usize) -> Colour {
    let [first, last] = ends(kind, ground);
    let last_stage = n_stages.saturating_sub(1).max(1);
    first.mix(last, nth_stage.min(last_stage) as f64 / last_stage as f64)
}

/// The kinds whose colours divide a task that does both.
pub const fn halves(kind: TaskKind) -> Option<[TaskKind; 2]> {
    match kind {
        TaskKind::Backward => Some([TaskKind::BackwardInput, TaskKind::BackwardWeight]),
        TaskKind::Forward
        | TaskKind::BackwardInput
        | TaskKind::BackwardWeight
        | TaskKind::Recompute
        | TaskKind::Update => None,
    }
}

/// On the first stage of a device, and on the last.
fn ends(kind: TaskKind, ground: Ground) -> [Colour; 2] {
    let own = |light, dark| match ground {
        Ground::Light => light,
        Ground::Dark => dark,
    };
    match kind {
        TaskKind::Update => own([0x25_2c_35, 0x34_3c_46], [0x3c_44_4e, 0x4c_54_5f]).map(Colour::new),
        TaskKind::Forward => own([0x1d_44_99, 0x3d_5f_a6], [0x15_61_ae, 0x42_73_ad]).map(Colour::new),
        TaskKind::Recompute => own([0xb0_46_7c, 0xb1_67_8e], [0xc4_5a_8c, 0xc2_73_95]).map(Colour::new),
        TaskKind::BackwardInput => own([0x1f_a8_78, 0x69_af_92], [0x3f_b9_8c, 0x80_c0_a4]).map(Colour::new),
        TaskKind::BackwardWeight => own([0xfd_c6_5f, 0xff_df_a6], [0xff_d3_6e, 0xfe_e3_a4]).map(Colour::new),
        TaskKind::Backward => {
            let [input, weight] = [TaskKind::BackwardInput, TaskKind::BackwardWeight].map(|half| ends(half, ground));
            [input[0].mix(weight[0], 0.5), input[1].mix(weight[1], 0.5)]
        }
    }
}

/// What a kind does.
pub const fn words(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Forward => "forward",
        TaskKind::BackwardInput => "backward for the input",
        TaskKind::BackwardWeight => "backward for the weights",
        TaskKind::Backward => "backward, both halves",
        TaskKind::Recompute => "recompute the forward",
        TaskKind::Update => "update",
    }
}
