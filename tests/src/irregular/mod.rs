//! Irregular programs: pipelines that nobody would write, as text, with every feature of the language at once.
//!
//! A model of any shape, stages anywhere, and tasks in any order that can run: pairs, slices, replicas, ties,
//! skips, backwards of both forms, recomputation, ZeRO, places of sums, updates and all-gathers, offload, three
//! precisions, links and costs of any kind. [`windows`] has blocks that run on across steps. The compiler must
//! accept what can run, the verifier what the compiler writes, and runs must learn what one device learns from the
//! same model.

mod model;
mod order;
pub mod windows;

use crate::cases;
use crate::schedules::Dice;
use model::Model;
use order::{Shape, Stages};
use pipe_compiler::{Compilation, Request};
use pipe_schedule::stage_graph::StageGraph;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A pipeline, as text.
#[derive(Clone, Debug)]
pub struct Drawn {
    /// What is asked for.
    pub text: String,
    /// The same model on one device, without anything else.
    pub reference: String,
    /// The features that it has.
    pub features: BTreeSet<&'static str>,
    /// How far a trained number may be from that of the reference, relative to the largest of its tensor.
    pub tolerance: f64,
    /// A tensor with smaller numbers only is nothing but rounding: where `a - a` flows on, gradients
    /// cancel.
    pub noise: f64,
}

/// Compiles a text that imports nothing but the standard library.
#[must_use]
pub fn compiled(text: &str) -> Compilation {
    compiled_as(text, &Request::default())
}

/// The same as it is asked for.
#[must_use]
pub fn compiled_as(text: &str, request: &Request) -> Compilation {
    cases::compiled("drawn.pipe", text, request)
}

/// One of some.
fn one_of<T: Copy>(all: &[T], dice: &mut Dice) -> T {
    all[dice.below(all.len())]
}

/// Draws an irregular order of a model's tasks.
///
/// # Errors
/// If the model is not accepted on one device, which is a mistake in the generator or in the compiler.
pub fn orders(seed: u64) -> Result<Drawn, String> {
    let mut dice = Dice(seed);
    let dice = &mut dice;
    let slices = one_of(&[1, 1, 2, 3], dice);
    let is_equal = slices == 1 || dice.below(2) == 0;
    let shares = [(); 3].map(|()| if is_equal { 1 } else { 1 + dice.below(4) });
    let shape = Shape {
        devices: 1 + dice.below(5),
        stages: 1 + dice.below(7),
        microbatches: 1 + dice.below(6),
        slices,
        shares,
        replicated: dice.below(3) == 0,
    };
    let model = Model::draw(shape.stages, shares[..slices].iter().sum(), true, dice);
    let precision = one_of(&["f64", "f64", "f64", "f32", "bf16"], dice);
    let (mut train, has_state) = training(precision, dice);
    let probe = probe(&model, &shape, &train);
    let graph = graph(&probe)?;
    let stages = Stages::draw(&shape, dice);
    let written = order::write(&graph, &shape, &stages, dice);
    let mut features = model.features.clone();
    features.extend(written.features);
    let mut lines = String::new();
    if let Some(asked) = stages.recomputed_by_line {
        let _ = writeln!(lines, "recompute {asked}");
    }
    // Updates with a place need the whole state of their weights on the device.
    let has_update = features.contains("update");
    let most = if has_update { 2 } else { 4 };
    if !has_update && dice.below(3) == 0 {
        train = train.replace("steps 4", "steps 4 clip_norm 0.05");
        features.insert("clip");
    }
    let zero = if stages.some_on_several() { dice.below(most) } else { 0 };
    if zero > 0 {
        let _ = writeln!(lines, "zero {zero}");
        features.insert("zero");
    }
    let offload = match zero {
        _ if has_update => one_of(&["", "activations"], dice),
        0 => one_of(&["", "", "activations", "optimizer", "parameters", "activations, optimizer, parameters"], dice),
        1 => one_of(&["", "activations", "optimizer", "activations, optimizer"], dice),
        _ => one_of(&["", "activations"], dice),
    };
    let offload = if has_state { offload.to_owned() } else { without_state(offload) };
    if !offload.is_empty() {
        let _ = writeln!(lines, "offload {offload}");
        features.insert("offload");
    }
    lines += &costs(shape.devices, dice);
    let Shape { devices, microbatches, .. } = shape;
    let limit = one_of(&[0, 0, 0, 60, 85], dice);
    let text = |memory: &str| {
        format!(
            "{}\n{}\npipeline drawn {{\n{train}\nmodel drawn\ndevices {devices}{memory}\nmicrobatches {microbatches}\n\
             schedule irregular\n{lines}}}\n",
            model.text, written.text
        )
    };
    let mut whole = text("");
    if limit > 0 && !offload.is_empty() {
        // Devices that lack a part of what the program would like to have.
        let largest = compiled(&whole).lowered().and_then(|all| all.devices.iter().map(|code| code.arena.0).max());
        if let Some(largest) = largest {
            whole = text(&format!(" memory {}KiB", (largest * limit / 100).div_ceil(1024)));
            features.insert("memory");
        }
    }
    let reference = reference(&model, microbatches, &train);
    let (tolerance, noise) = match precision {
        "f64" => (1e-6, 1e-9),
        "f32" => (2e-2, 1e-6),
        _ => (f64::INFINITY, 1.0),
    };
    Ok(Drawn { text: whole, reference, features, tolerance, noise })
}

/// What can be offloaded where the optimizer keeps nothing.
fn without_state(offload: &str) -> String {
    offload.split(", ").filter(|part| *part != "optimizer").collect::<Vec<_>>().join(", ")
}

/// Settings of the training, and the precision; whether its optimizer keeps anything.
fn training(precision: &str, dice: &mut Dice) -> (String, bool) {
    let optimizer = one_of(
        &[
            "sgd(learning_rate = 0.1)",
            "sgd(learning_rate = 0.1, momentum = 0.9)",
            "adamw(learning_rate = 0.01, epsilon = 0.001)",
        ],
        dice,
    );
    let seed = dice.below(9);
    let text = format!("precision {precision}\ntrain {{ data synthetic steps 4 seed {seed} optimizer {optimizer} }}");
    (text, !optimizer.ends_with("0.1)"))
}

/// All stages on one device, in a plain order.
fn probe(model: &Model, shape: &Shape, train: &str) -> String {
    let Shape { stages, slices, .. } = shape;
    let written = shape.slices();
    format!(
        "{}
        schedule probe {{
            stages {stages}
            slices {written}
            place s on 0
            order d {{
                repeat {slices} {{ for s in 0..S {{ F[s] }} }}
                repeat {slices} {{ for s in 0..S {{ BW[S - 1 - s] }} }}
            }}
        }}
        pipeline probe {{ {train} model drawn devices 1 microbatches 1 schedule probe }}",
        model.text
    )
}

/// The same model in one stage on one device.
fn reference(model: &Model, microbatches: usize, train: &str) -> String {
    format!(
        "{}
        schedule plain {{ stages 1 place s on 0 order d {{ repeat M {{ F[0] BW[0] }} }} }}
        pipeline plain {{ {train} model drawn devices 1 microbatches {microbatches} schedule plain }}",
        model.text
    )
}

/// Which stages of a model read which.
fn graph(probe: &str) -> Result<StageGraph, String> {
    let found = compiled(probe);
    let analysis = found.analysis.filter(|_| found.report.ok);
    let graph = analysis.map(|analysis| analysis.schedule.graph);
    graph.ok_or_else(|| format!("{:#?} {:#?}\n{probe}", found.diagnostics, found.our_mistakes))
}

/// Durations that have nothing in common, or none.
fn costs(devices: usize, dice: &mut Dice) -> String {
    let mut line = match dice.below(4) {
        0 => return String::new(),
        1 => "cost F = 0, B = 0, W = 0, BW = 0, R = 0".to_owned(),
        _ => {
            let mut number = || one_of(&["0", "0.5", "1", "1", "2", "7"], dice);
            format!("cost F = {}, B = {}, W = {}, BW = {}, R = {}", number(), number(), number(), number(), number())
        }
    };
    let _ =
        write!(line, ", comm = {}, copy = {}", one_of(&["0", "0.1", "1", "6"], dice), one_of(&["0", "1", "900"], dice));
    if devices > 1 && dice.below(3) == 0 {
        let _ = write!(line, ", comm[0-1] = {}", one_of(&["0", "9"], dice));
    }
    if dice.below(3) == 0 {
        let _ = write!(line, ", F & BW = {}", one_of(&["7", "8", "14"], dice));
    }
    line + "\n"
}
