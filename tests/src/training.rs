//! Runs on the CPU, and every bit of what they learn.

use pipe_ir::ids::{MicrobatchId, ValueId};
use pipe_ir::program::Program;
use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run, StepReport, Used};
use std::sync::Arc;

/// A tensor's name, and the bits of its elements in double precision.
pub type Bits = (String, Vec<u64>);

/// A run on CPU devices with random data and weights.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn start(program: &Arc<Verified>, stress: Option<u64>) -> Run {
    let data = Arc::new(Data::synthetic(program.program()));
    let options = Options { stress, ..Options::new(Backend::Cpu, 3) };
    Run::start(Arc::clone(program), &options, data).unwrap_or_else(|error| panic!("{error}"))
}

/// Takes some steps.
///
/// # Panics
/// If one fails.
pub fn steps(run: &mut Run, steps: std::ops::Range<u64>) -> Vec<StepReport> {
    steps.map(|step| run.step(step).unwrap_or_else(|error| panic!("step {step}: {error}"))).collect()
}

/// Compares the measured peaks with the compiled ones, in both memories.
///
/// # Panics
/// If they differ.
pub fn assert_peaks(program: &Program, reports: &[StepReport]) {
    for report in reports {
        for (measured, code) in report.devices.iter().zip(&program.devices) {
            assert_eq!((measured.peak, measured.high_water), (code.peak, code.arena));
            assert_eq!(measured.host, Used { peak: code.host.peak, high_water: code.host.arena });
        }
    }
}

/// Losses by step and microbatch, and gradients, weights and optimizer state.
pub type Learned = (Vec<Vec<(MicrobatchId, u64)>>, [Vec<Bits>; 3]);

/// What three steps learn. Measured peaks must be the compiled ones.
#[must_use]
pub fn learn(program: &Arc<Verified>, stress: Option<u64>) -> Learned {
    let mut run = start(program, stress);
    let reports = steps(&mut run, 0..3);
    assert_peaks(run.program(), &reports);
    let kinds = [ValueKind::ParameterGradients, ValueKind::Parameters, ValueKind::OptimizerState];
    (losses(&reports), kinds.map(|kind| bits(&run, kind)))
}

/// Places of all tensors of a kind, from the first layer to the last, whatever stages they belong to.
#[must_use]
pub fn places(program: &Program, kind: ValueKind) -> Vec<(ValueId, usize)> {
    let mut values: Vec<_> = program.values.iter().enumerate().filter(|(_, value)| value.kind == kind).collect();
    values.sort_by_key(|(_, value)| value.stage);
    let tensors = |(index, value): (usize, &pipe_ir::value::Value)| {
        (0..value.tensors.len()).map(move |tensor| (ValueId::from_index(index), tensor))
    };
    values.into_iter().flat_map(tensors).collect()
}

/// All tensors of a kind, by name.
///
/// # Panics
/// If no device holds one of them.
#[must_use]
pub fn bits(run: &Run, kind: ValueKind) -> Vec<Bits> {
    let tensor = |(value, tensor): (ValueId, usize)| {
        let name = run.program().value(value).tensors[tensor].name.clone();
        let numbers = run.read(value, tensor).unwrap_or_else(|| panic!("no device holds {name}"));
        (name, numbers.into_iter().map(f64::to_bits).collect())
    };
    let mut bits: Vec<_> = places(run.program(), kind).into_iter().map(tensor).collect();
    bits.sort();
    bits
}

/// The losses of all microbatches of all steps.
#[must_use]
pub fn losses(reports: &[StepReport]) -> Vec<Vec<(MicrobatchId, u64)>> {
    let bits = |report: &StepReport| report.losses.iter().map(|(m, loss)| (*m, loss.to_bits())).collect();
    reports.iter().map(bits).collect()
}

/// The largest difference between tensors of two runs, by the largest element of each tensor.
///
/// # Panics
/// If they are not of the same tensors.
#[must_use]
pub fn distance(one: &[Bits], other: &[Bits]) -> f64 {
    distance_above(f64::MIN_POSITIVE, one, other)
}

/// The same, where every tensor counts as one whose largest element is at least `noise`: what cancels
/// leaves nothing but rounding.
///
/// # Panics
/// If they are not of the same tensors.
#[must_use]
pub fn distance_above(noise: f64, one: &[Bits], other: &[Bits]) -> f64 {
    assert_eq!(one.len(), other.len());
    let of = |((name, one), (other_name, other)): (&Bits, &Bits)| {
        assert_eq!((name, one.len()), (other_name, other.len()));
        let pairs = one.iter().zip(other).map(|(a, b)| (f64::from_bits(*a), f64::from_bits(*b)));
        let largest = pairs.clone().fold(noise, |most, (a, _)| most.max(a.abs()));
        let apart = pairs.fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()));
        assert!(apart.is_finite(), "{name}");
        apart / largest
    };
    one.iter().zip(other).map(of).fold(0.0, f64::max)
}

/// Compares the weights, gradients and optimizer states of all replicas bit by bit.
///
/// # Panics
/// If two replicas differ, or if there are replicas without collectives or the reverse.
pub fn equal_replicas(run: &Run) {
    let mut replicas = 0;
    for kind in [ValueKind::ParameterGradients, ValueKind::Parameters, ValueKind::OptimizerState] {
        for (value, tensor) in places(run.program(), kind) {
            let all = run.read_all(value, tensor);
            assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "replicas of {}", run.program().value(value).name);
            replicas += all.len() - 1;
        }
    }
    assert_eq!(replicas > 0, run.program().n_collectives() > 0);
}
