//! The optimizer over several steps: the bits of the CPU device.

use super::arena::Arena;
use super::module::{Address, Module};
use crate::kernels::{Sources, StepNumbers};
use crate::launch::Launch;
use pipe_ir::graph::DType;
use pipe_ir::kernels::{Location, Storage};
use pipe_ir::muon::Matrices;
use pipe_ir::training::{DataSource, Decay, DecayedWeights, LearningRate, NORM_NUMBERS, Optimizer, Training};
use pipe_ir::units::Bytes;
use pipe_runtime::numbers::{decode, encode};
use pipe_runtime::random::Counter;
use pipe_runtime::{Piece, SquaredPart, UpdatedPart, run_squares, run_update};

const COUNT: usize = 1003;
/// Stands for the operand of the sum of squares.
const NORM: u32 = 9;
/// Elements before the part that is updated, in parameters and gradients.
const BEFORE: usize = 16;

pub(super) fn training(optimizer: Optimizer) -> Training {
    let learning_rate = LearningRate { peak: 0.01, warmup: 2, minimum: Some(0.001), decay: Decay::default() };
    Training {
        steps: 5,
        seed: 0,
        optimizer,
        decayed: DecayedWeights::Matrices,
        learning_rate,
        clip_norm: None,
        data: DataSource::Synthetic,
        shuffled: false,
        document: None,
        tokenizer: None,
        validation: None,
        init: None,
        config: None,
        checkpoint: None,
        model: None,
    }
}

/// Of the parameters, some that decay, some that do not, and some more that do; or all of them.
fn pieces(element: usize, are_mixed: bool) -> Vec<Piece> {
    let ends: &[usize] = if are_mixed { &[0, 300, 317, COUNT] } else { &[0, COUNT] };
    let piece = |(index, ends): (usize, &[usize])| Piece {
        bytes: ends[0] * element..ends[1] * element,
        decays: index % 2 == 0,
        second: (COUNT + ends[0]) * element,
        matrices: None,
    };
    ends.windows(2).enumerate().map(piece).collect()
}

/// Updates for five steps on both sides; gradients are the same.
fn check(module: &Module, launches: &[Launch], training: &Training, part: &UpdatedPart, is_beside: bool) {
    let dtype = part.dtype;
    let mut random = Counter::new(9, "updates");
    let size = |count: usize| Bytes(count as u64 * dtype.bytes().0);
    let mut numbers = || encode(dtype, std::iter::repeat_with(|| random.normal()).take(BEFORE + COUNT));
    let n_state = training.optimizer.state_per_parameter() as usize;
    let whole = size(BEFORE + COUNT);
    let mut sizes = vec![whole; 2 + usize::from(is_beside)];
    let (old, new, gradients, state, step_at) = (0, sizes.len() - 2, sizes.len() - 1, sizes.len(), sizes.len() + 1);
    sizes.extend([size(n_state * COUNT), StepNumbers::BYTES]);
    // Behind the state there is the sum of squares, where gradients are clipped.
    let norm_at = sizes.len();
    sizes.push(Bytes(8));
    let (arena, cpu) = (Arena::new(sizes.clone()), Arena::new(sizes));
    let parameters = numbers();
    for region in [arena.region(old), arena.region(new), cpu.region(new)] {
        region.bytes_mut().copy_from_slice(&parameters);
    }
    [&arena, &cpu].into_iter().for_each(|arena| arena.region(state).bytes_mut().fill(0));
    for step in 0..5 {
        let g = numbers();
        [&arena, &cpu].into_iter().for_each(|arena| arena.region(gradients).bytes_mut().copy_from_slice(&g));
        // Norms of 0 to 2, one of which is scaled down to 1.
        let squares = training.clip_norm.map(|_| (step * step) as f64 / 4.0);
        arena.region(norm_at).numbers_mut::<f64>()[0] = squares.unwrap_or(f64::NAN);
        arena.region(step_at).numbers_mut::<f64>().copy_from_slice(&StepNumbers::new(training, step).numbers());
        arena.launch(module, launches, &|address| match address {
            Address::Place(at) => match at.place {
                Storage::Operand(NORM) => arena.address(norm_at, at.offset.0),
                Storage::Operand(operand) => arena.address(operand as usize, at.offset.0),
                Storage::Scratch => panic!("an update has no scratch"),
            },
            Address::Step => arena.address(step_at, 0),
            _ => panic!("{address:?} in an update"),
        });
        let operands = [new, gradients, state, norm_at].map(|operand| cpu.region(operand));
        run_update(part, (training, squares), step, operands).expect("an update");
        for operand in [new, state] {
            assert_eq!(
                arena.region(operand).bytes(),
                cpu.region(operand).bytes(),
                "operand {operand} after step {step}"
            );
        }
        if is_beside {
            assert_ne!(arena.region(old).bytes(), cpu.region(new).bytes());
            arena.region(old).copy_from(arena.region(new));
        }
    }
}

#[test]
fn updates_have_the_bits_of_the_cpu() {
    let mut sources = Sources::default();
    let mut all = Vec::new();
    for optimizer in pipe_kernel_cases::optimizers() {
        for dtype in [DType::F32, DType::F64] {
            for (is_beside, are_mixed) in [(false, false), (true, false), (false, true), (true, true)] {
                let element = dtype.bytes().to_usize();
                let bytes = BEFORE * element..(BEFORE + COUNT) * element;
                let part = UpdatedPart { from: bytes.start, bytes, dtype, pieces: pieces(element, are_mixed) };
                // Where some weights decay, gradients are clipped.
                let clip_norm = are_mixed.then_some(1.0);
                let training = Training { clip_norm, ..training(optimizer) };
                let launches = sources.optimizer(&optimizer, &part, (is_beside, clip_norm.map(|most| (NORM, most))));
                assert_eq!(launches.len(), part.pieces.len());
                all.push((training, part, is_beside, launches));
            }
        }
    }
    let functions = 2 * Optimizer::NAMES.len();
    assert_eq!(
        sources.names().count(),
        functions,
        "`sgd` has one without momentum, `muon` that of `adamw`, and each is there in two precisions"
    );
    let Some(module) = Module::new(sources) else { return };
    for (training, part, is_beside, launches) in &all {
        check(&module, launches, training, part, *is_beside);
    }
}

/// Muon over several steps: matrices with more columns than rows, with more rows, and several of a shape.
#[test]
fn matrices_are_those_of_the_cpu() {
    let optimizer = Optimizer::Muon { momentum: 0.9, weight_decay: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8 };
    let shapes = [(1, 12, 40), (1, 33, 8), (3, 16, 16)];
    let mut sources = Sources::default();
    let mut all = Vec::new();
    for dtype in [DType::F32, DType::F64] {
        for ((count, rows, columns), is_beside) in shapes.into_iter().zip([false, true, true]) {
            let matrices = Matrices { dtype, count, rows, columns };
            let bytes = 0..matrices.bytes().to_usize();
            let piece = Piece { bytes: bytes.clone(), decays: true, second: 0, matrices: Some(matrices) };
            let part = UpdatedPart { bytes, from: 0, dtype, pieces: vec![piece.clone()] };
            let training = Training { clip_norm: Some(1.0), ..training(optimizer) };
            let scratch = 3 + u32::from(is_beside);
            let made = matrices.orthogonalization(scratch);
            let places = [made.from, made.to].map(|offset| Location { place: Storage::Operand(scratch), offset });
            let how = (is_beside, Some((NORM, 1.0)));
            assert_eq!(sources.optimizer(&optimizer, &part, how).len(), 0, "no number is updated for itself");
            let [momentum, last] = sources.matrices(&optimizer, (&part, &piece, matrices), how, places);
            let mut launches = vec![momentum];
            made.kernels.iter().for_each(|kernel| launches.extend(sources.launches(kernel)));
            launches.push(last);
            all.push((training, part, matrices, is_beside, launches, made.scratch));
        }
    }
    let Some(module) = Module::new(sources) else { return };
    for (training, part, matrices, is_beside, launches, scratch) in &all {
        let (size, beside) = (matrices.bytes(), usize::from(*is_beside));
        // Parameters, perhaps new ones, gradients, momentum; scratch; the numbers of the step; the sum of squares.
        let mut sizes = vec![size; 3 + beside];
        sizes.extend([*scratch, StepNumbers::BYTES, Bytes(8)]);
        let (state, scratch_at, step_at, norm_at) = (2 + beside, 3 + beside, 4 + beside, 5 + beside);
        let (arena, cpu) = (Arena::new(sizes.clone()), Arena::new(sizes));
        let mut random = Counter::new(9, "matrices");
        let mut numbers =
            || encode(part.dtype, std::iter::repeat_with(|| random.normal()).take(matrices.elements() as usize));
        let first = numbers();
        for arena in [&arena, &cpu] {
            arena.region(0).bytes_mut().copy_from_slice(&first);
            arena.region(state).bytes_mut().fill(0);
        }
        for step in 0..3 {
            let g = numbers();
            for arena in [&arena, &cpu] {
                arena.region(1 + beside).bytes_mut().copy_from_slice(&g);
                arena.region(norm_at).numbers_mut::<f64>()[0] = 4.0;
            }
            arena.region(step_at).numbers_mut::<f64>().copy_from_slice(&StepNumbers::new(training, step).numbers());
            arena.launch(&module, launches, &|address| match address {
                Address::Place(at) => match at.place {
                    Storage::Operand(NORM) => arena.address(norm_at, at.offset.0),
                    Storage::Operand(operand) => arena.address(operand as usize, at.offset.0),
                    Storage::Scratch => arena.address(scratch_at, at.offset.0),
                },
                Address::Step => arena.address(step_at, 0),
                _ => panic!("{address:?} in an update"),
            });
            if *is_beside {
                assert_ne!(arena.region(0).bytes(), arena.region(1).bytes());
                arena.region(0).copy_from(arena.region(1));
            }
            let operands = [0, 1 + beside, state, scratch_at].map(|operand| cpu.region(operand));
            run_update(part, (training, Some(4.0)), step, operands).expect("an update");
            assert_eq!(arena.region(state).bytes(), cpu.region(state).bytes(), "momentum after step {step}");
            let decoded = |arena: &Arena| decode(part.dtype, arena.region(0).bytes());
            let tolerance = if part.dtype == DType::F32 { 1e-5 } else { 1e-12 };
            for (at, (own, expected)) in decoded(&arena).into_iter().zip(decoded(&cpu)).enumerate() {
                assert!((own - expected).abs() <= tolerance, "{matrices:?}, {at}: {own} instead of {expected}");
            }
        }
    }
}

/// Sums of squares, of which the second one adds to the first, against those of the CPU; each time the same bits.
#[test]
fn squares_are_added_up() {
    let mut sources = Sources::default();
    let mut all = Vec::new();
    for dtype in [DType::F32, DType::F64] {
        let element = dtype.bytes().to_usize();
        for count in [1, 255, 4097, 3 * COUNT, 2_000_000] {
            let bytes = vec![element..2 * element, 5 * element..(5 + count) * element];
            let part = SquaredPart { dtype, bytes };
            all.push((sources.squares(&part), part, count));
        }
    }
    let Some(module) = Module::new(sources) else { return };
    for (launches, part, count) in &all {
        let size = Bytes((5 + *count as u64) * part.dtype.bytes().0);
        let arena = Arena::new(vec![size, Bytes(8 * NORM_NUMBERS)]);
        let mut random = Counter::new(9, "squares");
        let numbers = encode(part.dtype, std::iter::repeat_with(|| random.normal()).take(5 + count));
        arena.region(0).bytes_mut().copy_from_slice(&numbers);
        let sum = || arena.region(1).numbers::<f64>()[0];
        arena.region(1).bytes_mut().fill(0);
        run_squares(part, arena.region(0), arena.region(1));
        let expected = sum();
        let mut found = Vec::new();
        for _ in 0..2 {
            arena.region(1).bytes_mut().fill(0);
            arena.launch(&module, launches, &|address| match address {
                Address::Place(at) => match at.place {
                    Storage::Operand(operand) => arena.address(operand as usize, at.offset.0),
                    Storage::Scratch => panic!("squares have no scratch"),
                },
                _ => panic!("{address:?} in a sum of squares"),
            });
            found.push(sum());
        }
        assert_eq!(found[0].to_bits(), found[1].to_bits());
        assert!((found[0] - expected).abs() <= 1e-13 * expected, "{} instead of {expected}", found[0]);
    }
}
