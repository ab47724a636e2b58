//! Verdicts: what becomes of a damaged program.

use super::Mutant;
use super::kinds::Promise;
use super::machine::{self, Outcome, Pace};
use super::subjects::{Learned, Subject, kinds, learn};
use pipe_ir::ids::{ExecId, MicrobatchId, ValueId};
use pipe_ir::instruction::Instruction;
use pipe_ir::program::{Body, Program, Space};
use pipe_ir::value::ValueKind;
use pipe_ir::verify::{Verified, verify};
use pipe_runtime::{Backend, Options, Run, RunError};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// What became of a damaged program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The verifier found the damage.
    Rejected,
    /// It does what it did before, bit by bit.
    Same,
    /// It adds gradients in another order, so that results differ by rounding.
    Reordered,
    /// It is a sound program of another computation.
    Sound,
    /// It was accepted, and does what it must not do.
    Wrong(String),
}

/// Verification that takes longer hangs.
const LONGEST_VERIFICATION: Duration = Duration::from_secs(5);
/// A run that takes longer hangs.
const LONGEST_RUN: Duration = Duration::from_secs(60);
/// Steps of every run: whatever one leaves behind, the next one finds.
const STEPS: u64 = 2;
/// How far apart sums in different orders may be, relative to the largest number of the tensor.
/// Rounding of a step passes through the optimizer, which divides by the root of small numbers.
const ROUNDING: f64 = 1e-3;

/// Verifies a damaged program and, if it is accepted, runs it in every way.
#[must_use]
pub fn analyze(subject: &Subject, mutant: Mutant, seed: u64) -> Verdict {
    let started = Instant::now();
    let (promise, damaged) = (mutant.kind.promise(), mutant.program.clone());
    let verified = match catch_unwind(|| verify(damaged)) {
        Ok(Ok(verified)) => Arc::new(verified),
        Ok(Err(_)) if started.elapsed() > LONGEST_VERIFICATION => {
            return Verdict::Wrong("its verification hangs".into());
        }
        Ok(Err(_)) => return Verdict::Rejected,
        Err(panic) => return Verdict::Wrong(format!("the verifier panics: {}", words(&*panic))),
    };
    let checked = symbolic(subject, &mutant.program, promise, seed).and_then(|()| match &subject.learned {
        Some(learned) => real(learned, &subject.program, &verified, promise, seed),
        None => null(&subject.program, &verified, seed).map(|()| Verdict::Same),
    });
    match checked {
        Err(wrong) => Verdict::Wrong(wrong),
        Ok(_) if promise == Promise::Sound => Verdict::Sound,
        Ok(Verdict::Same) if accumulations(&mutant.program) != accumulations(&subject.program) => Verdict::Reordered,
        Ok(verdict) => verdict,
    }
}

/// Runs it on the machine of fingerprints, at every pace.
fn symbolic(subject: &Subject, program: &Program, promise: Promise, seed: u64) -> Result<(), String> {
    let kinds = kinds(if promise == Promise::SameResults { &subject.program } else { program });
    for pace in [Pace::Eager, Pace::Lazy, Pace::Random(seed), Pace::Random(seed ^ 1)] {
        let outcome = catch_unwind(AssertUnwindSafe(|| machine::run(program, &kinds, STEPS, pace)));
        let outcome = outcome.map_err(|panic| format!("{pace:?}: {}", words(&*panic)))?;
        let outcome = outcome.map_err(|why| format!("{pace:?}: {why}"))?;
        for (device, measured) in outcome.peaks.iter().enumerate() {
            let stated = Space::ALL.map(|space| program.devices[device].extent(space).peak.0);
            if *measured != stated {
                return Err(format!("{pace:?}: d{device} measures peaks of {measured:?} bytes, and states {stated:?}"));
            }
        }
        if promise == Promise::SameResults {
            compare(&subject.outcome, &outcome).map_err(|why| format!("{pace:?}: {why}"))?;
        }
    }
    Ok(())
}

fn compare(sound: &Outcome, damaged: &Outcome) -> Result<(), String> {
    if let Some(step) = (0..sound.losses.len()).find(|step| sound.losses[*step] != damaged.losses[*step]) {
        return Err(format!("other losses in step {step}"));
    }
    // By value, on whichever devices.
    let by_value = |outcome: &Outcome, step: usize| {
        let mut values: BTreeMap<ValueId, Vec<u64>> = BTreeMap::new();
        for ((value, _), print) in &outcome.persistent[step] {
            values.entry(*value).or_default().push(*print);
        }
        values
    };
    for step in 0..sound.persistent.len() {
        let (one, other) = (by_value(sound, step), by_value(damaged, step));
        if let Some((value, _)) = one.iter().find(|(value, prints)| other.get(value) != Some(prints)) {
            return Err(format!("{value} differs after step {step}"));
        }
    }
    Ok(())
}

/// Runs it on null devices with random delays.
fn null(sound: &Program, verified: &Arc<Verified>, seed: u64) -> Result<(), String> {
    let options = Options { stress: Some(seed), ..Options::new(Backend::Null, 3) };
    let emitted = |run: &mut Run| -> Result<Vec<MicrobatchId>, RunError> {
        let mut last = Vec::new();
        for step in 0..STEPS {
            last = run.step(step)?.losses.into_iter().map(|(microbatch, _)| microbatch).collect();
        }
        Ok(last)
    };
    let expected = losses_of(sound);
    let found = watched(verified, options, emitted)?.map_err(|error| error.to_string())?;
    if found == expected { Ok(()) } else { Err(format!("emits losses of {found:?}, not of {expected:?}")) }
}

/// The microbatches of the losses of a step.
fn losses_of(program: &Program) -> Vec<MicrobatchId> {
    let mut found = Vec::new();
    for code in &program.devices {
        for instruction in &code.step {
            let Instruction::Run { exec, microbatch, .. } = *instruction else { continue };
            let kind = |operand: &pipe_ir::program::Operand| program.value(operand.value).kind;
            if program.exec(exec).operands.iter().any(|operand| kind(operand) == ValueKind::Loss) {
                found.push(microbatch);
            }
        }
    }
    found.sort_unstable();
    found
}

/// Trains on CPU devices with random delays.
fn real(
    sound: &Learned,
    original: &Program,
    verified: &Arc<Verified>,
    promise: Promise,
    seed: u64,
) -> Result<Verdict, String> {
    let options = Options { stress: Some(seed), ..Options::new(Backend::Cpu, 3) };
    let values = original.clone();
    let found = match watched(verified, options, move |run| learn(run, &values))? {
        Ok(found) => found,
        // Another computation may be one that this backend does not offer, or that the data does not fit.
        Err(RunError::Unsupported(_) | RunError::Instruction { .. }) if promise == Promise::Sound => {
            return Ok(Verdict::Sound);
        }
        Err(error) => return Err(error.to_string()),
    };
    match (found.difference(sound), promise) {
        (None, _) => Ok(Verdict::Same),
        (Some(_), Promise::Sound) => Ok(Verdict::Sound),
        (Some(why), Promise::SameResults) => {
            let reordered = accumulations(original) != accumulations(verified.program());
            match found.distance(sound) {
                distance if reordered && distance <= ROUNDING => Ok(Verdict::Reordered),
                distance => Err(format!("learns something else: {why}, {distance} apart")),
            }
        }
    }
}

/// Runs something in a thread of its own; a run that hangs is left behind.
fn watched<T: Send + 'static>(
    verified: &Arc<Verified>,
    options: Options,
    body: impl FnOnce(&mut Run) -> Result<T, RunError> + Send + 'static,
) -> Result<Result<T, RunError>, String> {
    let (sender, receiver) = mpsc::channel();
    let program = Arc::new(verified.of_members());
    std::thread::spawn(move || {
        let stated: Vec<_> = program.program().devices.iter().map(|code| (code.peak, code.host.peak)).collect();
        let result = catch_unwind(AssertUnwindSafe(|| {
            let data = Arc::new(pipe_runtime::data::Data::synthetic(program.program()));
            let mut run = match Run::start(Arc::clone(&program), &options, data) {
                Ok(run) => run,
                Err(error) => return Ok(Err(error)),
            };
            let result = body(&mut run);
            // One more step, which is not looked at, tells the peaks.
            match (result, run.step(STEPS)) {
                (Ok(result), Ok(report)) => {
                    let measured: Vec<_> =
                        report.devices.iter().map(|device| (device.peak, device.host.peak)).collect();
                    if measured == stated {
                        Ok(Ok(result))
                    } else {
                        Err(format!("measures {measured:?}, states {stated:?}"))
                    }
                }
                (Err(error), _) | (_, Err(error)) => Ok(Err(error)),
            }
        }));
        // Nobody listens any more if it took too long.
        let _ = sender.send(result.unwrap_or_else(|panic| Err(format!("the run panics: {}", words(&*panic)))));
    });
    receiver.recv_timeout(LONGEST_RUN).unwrap_or_else(|_| Err("the run hangs".to_owned()))
}

/// By value that is summed up: what is added to it, in order.
fn accumulations(program: &Program) -> BTreeMap<(usize, ValueId), Vec<(ExecId, MicrobatchId)>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (device, code) in program.devices.iter().enumerate() {
        for instruction in &code.step {
            let Instruction::Run { exec, microbatch, .. } = *instruction else { continue };
            for operand in &program.exec(exec).operands {
                if program.value(operand.value).kind == ValueKind::ParameterGradients {
                    found.entry((device, operand.value)).or_default().push((exec, microbatch));
                }
            }
        }
    }
    found
}

/// Whether the CPU can run it.
pub(super) fn computes(program: &Program) -> bool {
    program.execs.iter().all(|exec| exec.body != Body::Abstract)
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
