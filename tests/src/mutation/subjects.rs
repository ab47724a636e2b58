//! Subjects: sound programs of every family, with what they compute.

use super::machine::{self, Outcome, Pace};
use super::verdict::computes;
use crate::cases::{compile_text, files, read, root};
use crate::programs::{program_of, stages_with_weights};
use crate::schedules::{Dice, Size, random, replicated};
use pipe_compiler::Request;
use pipe_ir::ids::{MicrobatchId, ValueId};
use pipe_ir::program::Program;
use pipe_ir::text;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::verify;
use pipe_runtime::{Backend, Options, Run, RunError};
use pipe_syntax::stdlib::SCHEDULES;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A sound program, and what it does.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The schedule that it was compiled from, or how it came about.
    pub family: String,
    /// Its size, and whether it computes.
    pub name: String,
    /// The program.
    pub program: Program,
    /// What the machine of fingerprints makes of it.
    pub outcome: Outcome,
    /// What CPU devices make of it; `None` where executables have no bodies.
    pub learned: Option<Learned>,
}

/// What a run computed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Learned {
    /// By step: the losses of its microbatches.
    losses: Vec<Vec<(MicrobatchId, f64)>>,
    /// Gradients, weights and state after every step, by name.
    tensors: Vec<(String, Vec<f64>)>,
}

impl Learned {
    /// The first thing in which two runs differ.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        let bits = |learned: &Self| -> Vec<Vec<(MicrobatchId, u64)>> {
            learned.losses.iter().map(|step| step.iter().map(|(m, loss)| (*m, loss.to_bits())).collect()).collect()
        };
        if bits(self) != bits(other) {
            return Some(format!("losses {:?}, not {:?}", self.losses, other.losses));
        }
        let same = |one: &[f64], other: &[f64]| one.iter().map(|x| x.to_bits()).eq(other.iter().map(|x| x.to_bits()));
        let mut pairs = self.tensors.iter().zip(&other.tensors);
        pairs.find(|((_, one), (_, other))| !same(one, other)).map(|((name, _), _)| name.clone())
    }

    /// The largest difference, relative to the largest number of the same tensor; infinite where
    /// they cannot be compared.
    #[must_use]
    pub fn distance(&self, other: &Self) -> f64 {
        let losses = |learned: &Self| -> Vec<f64> { learned.losses.iter().flatten().map(|(_, loss)| *loss).collect() };
        let of = |one: &[f64], other: &[f64]| {
            let largest = other.iter().fold(f64::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
            let apart = one.iter().zip(other).map(|(x, y)| (x - y).abs() / largest);
            let apart = apart.fold(0.0_f64, |most, x| if x.is_nan() { f64::INFINITY } else { most.max(x) });
            if one.len() == other.len() { apart } else { f64::INFINITY }
        };
        let tensors = self.tensors.iter().zip(&other.tensors).map(|((_, one), (_, other))| of(one, other));
        tensors.fold(of(&losses(self), &losses(other)), f64::max)
    }
}

/// Takes two steps, and keeps all that is left after each. `original` says what to look at.
///
/// # Errors
/// If a step fails.
pub fn learn(run: &mut Run, original: &Program) -> Result<Learned, RunError> {
    let mut learned = Learned::default();
    for step in 0..2 {
        learned.losses.push(run.step(step)?.losses);
        let values = original.values.iter().enumerate().filter(|(_, value)| value.kind.is_persistent());
        for (index, value) in values {
            for (tensor, slot) in value.tensors.iter().enumerate() {
                let numbers = run.read(ValueId::from_index(index), tensor).unwrap_or_default();
                learned.tensors.push((format!("{} of {} after step {step}", slot.name, value.name), numbers));
            }
        }
    }
    Ok(learned)
}

/// The roles of all values.
#[must_use]
pub fn kinds(program: &Program) -> Vec<ValueKind> {
    program.values.iter().map(|value| value.kind).collect()
}

impl Subject {
    /// A subject of a program that is sound.
    ///
    /// # Errors
    /// If it is not.
    pub fn new(family: &str, name: String, program: Program) -> Result<Self, String> {
        let explain = |errors: Vec<pipe_ir::verify::VerifyError>| {
            errors.iter().map(|error| format!("{family} {name}: {error}\n")).collect::<String>()
        };
        let verified = Arc::new(verify(program).map_err(explain)?);
        let program = verified.program().clone();
        let outcome = machine::run(&program, &kinds(&program), 2, Pace::Eager)
            .map_err(|why| format!("{family} {name}: {why}"))?;
        let learned = computes(&program).then(|| {
            let data = Arc::new(pipe_runtime::data::Data::synthetic(&program));
            Run::start(Arc::new(verified.of_members()), &Options::new(Backend::Cpu, 3), data)
                .and_then(|mut run| learn(&mut run, &program))
                .map_err(|error| format!("{family} {name}: {error}"))
        });
        Ok(Self { family: family.to_owned(), name, outcome, learned: learned.transpose()?, program })
    }
}

/// How much is damaged: a few small programs, or many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Breadth {
    /// One program of each family: seconds.
    Narrow,
    /// Several sizes of each family.
    Wide,
}

/// Devices and microbatches, from small to large.
const SIZES: [(u32, u32); 4] = [(2, 4), (3, 6), (4, 8), (1, 3)];

/// Sound programs of every schedule of the standard library, without and with a model, of the examples, and of random
/// schedules.
///
/// # Errors
/// If one is not sound, or a family has none.
pub fn subjects(breadth: Breadth) -> Result<Vec<Subject>, String> {
    let sizes = if breadth == Breadth::Narrow { &SIZES[..1] } else { &SIZES[..] };
    let mut found = Vec::new();
    let standard = SCHEDULES.iter().map(|(family, _)| (*family, ""));
    for (family, declared) in standard.chain(VARIANTS) {
        let before = found.len();
        for (devices, microbatches) in sizes {
            found.extend(abstract_subject(family, declared, *devices, *microbatches)?);
        }
        for (name, model) in MODELS {
            let (devices, microbatches) = SIZES[0];
            found.extend(model_subject((family, declared), (name, model), devices, microbatches)?);
        }
        if found.len() == before {
            return Err(format!("no size of {family} is accepted"));
        }
    }
    for schedule in OFFLOADED {
        found.extend(model_subject((schedule, ""), ("with offload", MODELS[0].1), 2, 4)?);
    }
    for schedule in DIVIDED {
        found.extend(model_subject((schedule, ""), ("with zero", MODELS[0].1), 2, 4)?);
    }
    for schedule in CLIPPED {
        let text = clipped_text(schedule, 2, 4);
        found.extend(compiled(schedule, "2 devices, 4 microbatches, clipped".to_owned(), &text, Path::new("."))?);
    }
    found.extend(groups()?);
    found.extend(lanes()?);
    found.extend(examples()?);
    found.extend(written()?);
    for seed in 0..sizes.len() as u64 * 2 {
        let mut dice = Dice(seed);
        let schedule = random(Size { devices: 3, stages: 4, microbatches: 3 }, &mut dice);
        let program = program_of(&schedule, &stages_with_weights(&schedule));
        found.push(Subject::new("random", format!("seed {seed}"), program)?);
        let schedule = replicated(Size { devices: 3, stages: 3, microbatches: 4 }, &mut dice);
        let program = program_of(&schedule, &stages_with_weights(&schedule));
        found.push(Subject::new("replicated", format!("seed {seed}"), program)?);
    }
    Ok(found)
}

fn abstract_subject(family: &str, declared: &str, devices: u32, microbatches: u32) -> Result<Option<Subject>, String> {
    let text =
        format!("{declared} pipeline test {{ devices {devices} microbatches {microbatches} schedule {family} }}");
    let (compilation, _) = compile_text("test.pipe", &text, Path::new("."), &Request::default());
    let (Some(analysis), Some(verified)) = (compilation.analysis, compilation.program) else { return Ok(None) };
    let schedule = analysis.schedule;
    // Sums of gradients travel only where an update needs them, and the stages with plain weights have none.
    let travels = schedule.window.is_some() && schedule.placement.is_replicated();
    let program =
        if travels { verified.program().clone() } else { program_of(&schedule, &stages_with_weights(&schedule)) };
    Subject::new(family, format!("{devices} devices, {microbatches} microbatches"), program).map(Some)
}

/// `None` where the schedule does not go with the model.
fn model_subject(
    (family, declared): (&str, &str),
    (name, model): (&str, &str),
    devices: u32,
    microbatches: u32,
) -> Result<Option<Subject>, String> {
    let text = model_text((family, declared), model, devices, microbatches);
    let name = format!("{devices} devices, {microbatches} microbatches, {name}");
    compiled(family, name, &text, Path::new("."))
}

fn model_text((family, declared): (&str, &str), model: &str, devices: u32, microbatches: u32) -> String {
    format!(
        "import std.models.gpt {TINY} {declared}
        pipeline test {{ model {model} devices {devices} microbatches {microbatches} schedule {family} {TRAIN} }}"
    )
}

/// The text of a pipeline whose gradients are clipped.
fn clipped_text(family: &str, devices: u32, microbatches: u32) -> String {
    model_text((family, ""), MODELS[0].1, devices, microbatches).replace("steps 2", "steps 2 clip_norm 0.1")
}

/// Pipelines of every family with a model, each with its name; some schedules do not go with some models.
#[must_use]
pub fn pipelines(devices: u32, microbatches: u32) -> Vec<(String, String)> {
    let plain = SCHEDULES.iter().map(|(family, _)| (*family, "")).chain(VARIANTS);
    let plain = plain.flat_map(|family| MODELS.map(|(_, model)| (family, model)));
    let others = OFFLOADED.iter().chain(&DIVIDED).map(|family| ((*family, ""), MODELS[0].1));
    let text = |(family, model): ((&str, &str), &str)| {
        let name = format!("{} of {model}, {devices} devices, {microbatches} microbatches", family.0);
        (name, model_text(family, model, devices, microbatches))
    };
    let clipped = CLIPPED.map(|family| {
        let name = format!("{family} clipped, {devices} devices, {microbatches} microbatches");
        (name, clipped_text(family, devices, microbatches))
    });
    plain.chain(others).map(text).chain(clipped).collect()
}

fn compiled(family: &str, name: String, text: &str, folder: &Path) -> Result<Option<Subject>, String> {
    let (compilation, _) = compile_text("test.pipe", text, folder, &Request::default());
    if !compilation.our_mistakes.is_empty() {
        return Err(format!("{family} {name}: {:#?}", compilation.our_mistakes));
    }
    let program = compilation.program.as_ref().map(|verified| verified.program().clone());
    program.filter(is_small).map(|program| Subject::new(family, name, program)).transpose()
}

/// Whether it can be trained many times a second.
fn is_small(program: &Program) -> bool {
    program.n_instructions() < 3000 && program.devices.iter().all(|code| code.arena.0 < 4 << 20)
}

/// The examples that are small enough.
fn examples() -> Result<Vec<Subject>, String> {
    let folder = root().join("examples");
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let subject = |path: &PathBuf| compiled("examples", name(path), &read(path), &folder);
    Ok(files(&folder, "pipe").iter().map(subject).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// A model whose tensors two devices divide.
fn groups() -> Result<Vec<Subject>, String> {
    let model = "model gpt(vocab = 8, hidden = 8, heads = 2, blocks = 1, sequence = 4, rows = 1)";
    let all = ["1f1b", "zb_h1"].map(|schedule| {
        let text = format!(
            "import std.models.gpt
            pipeline test {{ {model} devices 2 tensor 2 microbatches 2 schedule {schedule} {TRAIN} }}"
        );
        compiled("groups", schedule.to_owned(), &text, Path::new("."))
    });
    let text = read(&root().join("examples/expert_parallel.pipe"));
    let layers = text.split("\npipeline").next().unwrap_or_default();
    let text = format!(
        "{layers}
        pipeline test {{
            model mixture(hidden = 8, heads = 2, experts = 2, blocks = 1, sequence = 4, rows = 1)
            devices 1 tensor 2 microbatches 1 schedule gpipe {TRAIN}
        }}"
    );
    let all = all.into_iter().chain([compiled("groups", "all_to_all".to_owned(), &text, Path::new("."))]);
    Ok(all.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// A model whose parts run on lanes.
fn lanes() -> Result<Option<Subject>, String> {
    let folder = root().join("tests/data/lanes");
    compiled("lanes", "experts".to_owned(), &read(&folder.join("experts.pipe")), &folder)
}

/// Programs in their textual form that show what gatherings may do.
fn written() -> Result<Vec<Subject>, String> {
    let name = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let paths = files(&root().join("tests/ir/verify"), "ir");
    let gathers = paths.iter().filter(|path| name(path).starts_with("gather") && name(path).ends_with("_accepted"));
    let subject = |path: &PathBuf| {
        let program = text::parse(&read(path)).map_err(|error| format!("{}: {error}", path.display()))?;
        Subject::new("gathers", name(path), program.program)
    };
    gathers.map(subject).collect()
}

/// Schedules that the standard library does not have, with their declarations.
const VARIANTS: [(&str, &str); 7] = [
    (
        "recomputed_halves",
        "schedule recomputed_halves {
            stages 2 * D
            place s on min(s, 2 * D - 1 - s)
            order d {
                repeat M { F[d] F[2 * D - 1 - d] R[2 * D - 1 - d] }
                repeat M { B[2 * D - 1 - d] if d == 0 { R[d] } B[d] W[2 * D - 1 - d] }
                repeat M { W[d] }
            }
        }",
    ),
    (
        "decoded",
        "schedule decoded {
            stages D
            place s on s
            frozen all
            reads s from if s == 0 then S - 1 behind 2 else s - 1
            block every D { F[s] at s }
        }",
    ),
    (
        "recurrent",
        "schedule recurrent {
            stages D
            place s on s
            reads s from s - 1, s behind 1, S - 1 - s behind 3
            order d { repeat M { F[d] } for m in 0..M { B[d, M - 1 - m] W[d, M - 1 - m] } }
        }",
    ),
    (
        "sliced_gpipe",
        "schedule sliced_gpipe {
            stages D
            slices 4
            place s on s
            order d { repeat 4 * M { F[d] } repeat 4 * M { BW[d] } }
        }",
    ),
    (
        "sliced_halves",
        "schedule sliced_halves {
            stages 2 * D
            slices 2
            place s on min(s, 2 * D - 1 - s)
            order d {
                repeat 2 * M { F[d] }
                repeat 2 * M { F[2 * D - 1 - d] }
                repeat 2 * M { B[2 * D - 1 - d] }
                repeat 2 * M { B[d] W[2 * D - 1 - d] }
                repeat 2 * M { W[d] }
            }
        }",
    ),
    (
        "weights_newest",
        "schedule weights_newest {
            stages D
            place s on s
            weights newest
            block every 3 { F[s] at s  BW[s] at D + 2 * (D - 1 - s) }
        }",
    ),
    (
        "weights_previous",
        "schedule weights_previous {
            require M >= D - 1
            stages D
            place s on s
            weights previous
            block every 3 { F[s] at s  B[s] at D + 2 * (D - 1 - s)  W[s] at s + 3 * D - 1 }
        }",
    ),
];

/// Schedules whose state lives in the memory of hosts, or whose activations leave for it.
const OFFLOADED: [&str; 5] = [
    "1f1b offload optimizer, parameters",
    "interleaved_1f1b(chunks = 3) offload optimizer",
    "gpipe offload activations",
    "interleaved_1f1b(chunks = 2) offload activations, optimizer",
    "zb_v offload activations",
];

/// Schedules whose replicas divide the state of their weights.
const DIVIDED: [&str; 5] = ["dp_1f1b zero 1", "chimera zero 2", "dp_1f1b zero 2", "chimera zero 3", "dp_1f1b zero 3"];

/// Schedules whose gradients are clipped.
const CLIPPED: [&str; 5] = ["1f1b", "zb_h1", "chimera", "dp_1f1b zero 1", "chimera zero 3"];

/// Models, each as it is called.
const MODELS: [(&str, &str); 2] =
    [("a chain", "tiny"), ("a GPT", "gpt(vocab = 7, hidden = 8, heads = 2, blocks = 4, sequence = 4, rows = 1)")];

/// Small enough to be compiled and trained many times a second.
const TINY: &str = "
    layer lookup(width, rows) {
        data drawn: i32[rows]
        weight table: [7, width] = normal(1)
        output gather(table, drawn)
    }
    layer dense(width) {
        input x
        weight matrix: [width, width] = normal(0.7)
        weight bias: [width] = zeros
        output tanh(matmul(x, matrix) + bias)
    }
    layer guess(width, rows) {
        input x
        data drawn: i32[rows]
        weight matrix: [width, 7] = normal(0.7)
        loss cross_entropy(matmul(x, matrix), drawn)
    }
    model tiny(width = 5, rows = 3) {
        lookup(width, rows)
        repeat 4 { dense(width) }
        guess(width, rows)
    }";

const TRAIN: &str = "
    train {
        data synthetic
        steps 2
        seed 7
        optimizer adamw(learning_rate = 0.01)
    }";
