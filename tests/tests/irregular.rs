//! Irregular programs with every feature at once: what can run is accepted, what is accepted is
//! verified, and runs learn what one device learns, under random delays, with the stated peaks.
//! `PIPEC_PROGRAMS=5000` before it draws as many; `PIPEC_FIRST=77` begins there.

use pipe_compiler::{Compilation, Request};
use pipe_ir::graph::DType;
use pipe_ir::program::DeviceProgram;
use pipe_ir::verify::{Verified, verify};
use pipe_runtime::Run;
use pipe_runtime::checkpoint::{self, NamedTensor};
use pipe_syntax::source::Sources;
use pipe_tests::cases::report;
use pipe_tests::irregular::{Drawn, compiled, compiled_as, orders, windows::blocks};
use pipe_tests::training::{Bits, distance_above, losses, start, steps};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One in so many programs is run.
const RUN: u64 = 6;

fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("PIPEC_FIRST").unwrap_or(0);
    first..first + number("PIPEC_PROGRAMS").unwrap_or(count)
}

/// What was seen.
#[derive(Default, Debug)]
struct Tally {
    drawn: usize,
    accepted: usize,
    run: usize,
    /// How many of these have a run of both halves of a backward.
    joined: usize,
    /// By code: how many were refused because of it, and what it said first.
    refused: BTreeMap<&'static str, (usize, String)>,
    /// By feature: how many that have it were accepted.
    features: BTreeMap<&'static str, usize>,
    failures: Vec<String>,
}

impl Tally {
    /// Looks at a compilation; returns the program of one that is accepted.
    fn analyze(&mut self, seed: u64, drawn: &Drawn, found: Compilation) -> Option<Verified> {
        self.drawn += 1;
        self.failures
            .extend(found.our_mistakes.first().map(|mistake| format!("seed {seed}: {mistake}\n{}", drawn.text)));
        let errors = found.diagnostics.iter().filter(|one| one.severity.is_error());
        for error in errors.take(1) {
            let example = || format!("{} (such as seed {seed})", error.message);
            self.refused.entry(error.code.name()).or_insert_with(|| (0, example())).0 += 1;
        }
        let program = found.program?;
        self.accepted += 1;
        drawn.features.iter().for_each(|feature| *self.features.entry(feature).or_default() += 1);
        Some(program)
    }

    /// Asks that enough programs with each feature were accepted.
    fn has_every(&self, features: &[&str]) {
        let few = |feature: &&&str| self.features.get(**feature).is_none_or(|count| count * 100 < self.drawn);
        let missing: Vec<_> = features.iter().filter(few).collect();
        assert!(missing.is_empty(), "too few with {missing:?}: {self:#?}");
    }
}

/// Weights and the optimizer's state.
fn learned(run: &Run) -> Vec<Bits> {
    let tensors = checkpoint::state(run, 0).expect("the devices answer").tensors;
    let bits = |tensor: &NamedTensor| {
        let numbers: Vec<f64> = match tensor.ty.dtype {
            DType::F64 => tensor.data.as_chunks().0.iter().map(|one| f64::from_ne_bytes(*one)).collect(),
            _ => tensor.data.as_chunks().0.iter().map(|one| f64::from(f32::from_ne_bytes(*one))).collect(),
        };
        (tensor.name.clone(), numbers.into_iter().map(f64::to_bits).collect())
    };
    let mut all: Vec<Bits> = tensors.iter().map(bits).collect();
    all.sort();
    all
}

/// The program in which every half of a backward is a run of its own, if that is another one.
fn apart(drawn: &Drawn, program: &Verified) -> Option<Verified> {
    let found = compiled_as(&drawn.text, &Request { apart: true, ..Request::default() });
    let apart = found.program.expect("it is accepted with halves at once");
    (apart.program() != program.program()).then_some(apart)
}

/// Takes steps without and with random delays, and the same steps with the reference, and with halves apart.
fn agree(drawn: &Drawn, program: Verified, others: (Verified, Option<Verified>), seed: u64) -> Result<(), String> {
    let (program, reference, apart) = (Arc::new(program), Arc::new(others.0), others.1.map(Arc::new));
    let trained = |program: &Arc<Verified>, stress: Option<u64>| {
        let mut run = start(program, stress);
        let stride = u64::from(program.program().n_steps);
        let mut reports = steps(&mut run, 0..1);
        reports.extend(steps(&mut run, stride..stride + 1));
        for report in &reports {
            for (device, (measured, stated)) in report.devices.iter().zip(&program.program().devices).enumerate() {
                if measured.peak != stated.peak {
                    return Err(format!("d{device} measured {}, stated {}", measured.peak, stated.peak));
                }
            }
        }
        let losses = losses(&reports);
        Ok((losses, learned(&run)))
    };
    let (eager, delayed) = (trained(&program, None)?, trained(&program, Some(seed))?);
    if eager != delayed {
        return Err("random delays change what it learns".to_owned());
    }
    if let Some(halves) = apart {
        let more = |(one, other): (&DeviceProgram, &DeviceProgram)| one.peak > other.peak;
        if program.program().devices.iter().zip(&halves.program().devices).any(more) {
            return Err("runs of both halves take more memory".to_owned());
        }
        if trained(&halves, None)? != eager {
            return Err("runs of both halves change what it learns".to_owned());
        }
    }
    let plain = trained(&reference, None)?;
    let apart = distance_above(drawn.noise, &eager.1, &plain.1);
    if apart > drawn.tolerance { Err(format!("its weights are {apart:e} from those of the reference")) } else { Ok(()) }
}

#[test]
fn irregular_orders_run_and_learn_what_one_device_learns() {
    let mut tally = Tally::default();
    for seed in seeds(60) {
        let drawn = match orders(seed) {
            Ok(drawn) => drawn,
            Err(why) => {
                tally.failures.push(format!("seed {seed}: {why}"));
                continue;
            }
        };
        let Some(program) = tally.analyze(seed, &drawn, compiled(&drawn.text)) else { continue };
        if seed % RUN > 0 {
            continue;
        }
        tally.run += 1;
        let reference = compiled(&drawn.reference).program.expect("the model is accepted on one device");
        let halves = apart(&drawn, &program);
        tally.joined += usize::from(halves.is_some());
        let why = agree(&drawn, program, (reference, halves), seed).err();
        tally.failures.extend(why.map(|why| format!("seed {seed}: {why}\n{}", drawn.text)));
    }
    println!("{tally:#?}");
    report(&tally.failures);
    let others: Vec<_> = tally.refused.iter().filter(|(code, _)| **code != "memory-exceeded").collect();
    assert!(others.is_empty(), "what can run is refused: {others:?}");
    assert!(tally.accepted * 4 > tally.drawn * 3, "{tally:#?}");
    tally.has_every(&[
        "clip",
        "memory",
        "offload",
        "pair",
        "recompute",
        "replicas",
        "skip",
        "slices",
        "split",
        "tie",
        "zero",
    ]);
    tally.has_every(&["gather", "reduce", "update"]);
}

#[test]
fn windows_learn_the_same_with_every_feature_and_without() {
    let mut tally = Tally::default();
    for seed in seeds(60) {
        let drawn = blocks(seed);
        let Some(program) = tally.analyze(seed, &drawn, compiled(&drawn.text)) else { continue };
        if seed % RUN > 0 {
            continue;
        }
        let found = compiled(&drawn.reference);
        let Some(reference) = found.program else {
            tally
                .failures
                .push(format!("seed {seed}: accepted, but not without its features: {:#?}", found.diagnostics));
            continue;
        };
        tally.run += 1;
        let why = agree(&drawn, program, (reference, None), seed).err();
        tally.failures.extend(why.map(|why| format!("seed {seed}: {why}\n{}", drawn.text)));
    }
    println!("{tally:#?}");
    report(&tally.failures);
    assert!(tally.accepted * 6 > tally.drawn, "{tally:#?}");
    tally.has_every(&["offload", "recompute", "replicas", "skip"]);
}

/// Two devices and four microbatches: the second backward reads a gradient that comes while the pair before it runs.
const PAIRS: &str = "
schedule pairs {
    stages D
    place s on s
    order d {
        if d == 0 { F[0, 2] F[0, 1] F[0, 3] F[0, 0] & BW[0, 1] BW[0, 3] BW[0, 2] BW[0, 0] }
        else { F[1, 2] F[1, 1] BW[1, 2] F[1, 3] & BW[1, 1] BW[1, 3] F[1, 0] BW[1, 0] }
    }
}
pipeline p { devices 2 microbatches 4 schedule pairs }";

#[test]
fn a_receive_inside_a_pair_waits_for_the_slot_that_the_pair_frees() {
    let found = compiled(PAIRS);
    assert!(found.report.ok, "{:#?} {:#?}", found.report.diagnostics, found.our_mistakes);
    assert!(compiled(&PAIRS.replace('&', "")).report.ok, "without pairs");
}

/// Three microbatches, then the same devices again, and each in two slices.
const SLICES_OF_REPLICAS: &str = "
schedule slices_of_replicas {
    stages 1
    slices 2
    place s, m on if m % 3 == 1 then 1 else 0
    order d { for k in 0..M { if (if k % 3 == 1 then 1 else 0) == d { repeat 2 { F[0, k] } repeat 2 { BW[0, k] } } } }
}
pipeline p { devices 2 microbatches 4 schedule slices_of_replicas }";

#[test]
fn slices_of_the_fourth_microbatch_run_where_the_first_does() {
    let found = compiled(SLICES_OF_REPLICAS);
    assert!(found.report.ok, "{:#?}", found.report.diagnostics);
}

#[test]
fn a_mistake_of_ours_is_a_finding_too() {
    let mut found = compiled(PAIRS);
    let mut program = found.program.take().expect("accepted").program().clone();
    program.devices[0].step.pop();
    found.our_mistakes = verify(program).expect_err("it lacks an instruction");
    found.conclude(&Sources::default());
    let [first, ..] = &found.report.diagnostics[..] else { panic!("no findings") };
    assert_eq!((found.report.ok, &first.code[..], &first.file[..]), (false, "internal-error", "drawn.pipe"));
    assert!(first.message.contains("this is a bug in pipec"), "{}", first.message);
}
