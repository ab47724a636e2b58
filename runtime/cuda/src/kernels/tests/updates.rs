//! The optimizer over several steps: the bits of the CPU device.

use super::arena::Arena;
use super::module::{Address, Module};
use crate::kernels::{Sources, StepNumbers};
use crate::launch::Launch;
use pipe_ir::graph::DType;
use pipe_ir::kernels::Storage;
use pipe_ir::training::{DataSource, Decay, DecayedWeights, LearningRate, Optimizer, Training};
use pipe_ir::units::Bytes;
use pipe_runtime::numbers::encode;
use pipe_runtime::random::Counter;
use pipe_runtime::{Piece, UpdatedPart, run_update};

const COUNT: usize = 1003;
/// Elements before the part that is updated, in parameters and gradients.
const BEFORE: usize = 16;

fn training(optimizer: Optimizer) -> Training {
    let learning_rate = LearningRate { peak: 0.01, warmup: 2, minimum: Some(0.001), decay: Decay::default() };
    Training {
        steps: 5,
        seed: 0,
        optimizer,
        decayed: DecayedWeights::Matrices,
        learning_rate,
        data: DataSource::Synthetic,
        shuffled: false,
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
    let (arena, cpu) = (Arena::new(sizes.clone()), Arena::new(sizes));
    let parameters = numbers();
    for region in [arena.region(old), arena.region(new), cpu.region(new)] {
        region.bytes_mut().copy_from_slice(&parameters);
    }
    [&arena, &cpu].into_iter().for_each(|arena| arena.region(state).bytes_mut().fill(0));
    for step in 0..5 {
        let g = numbers();
        [&arena, &cpu].into_iter().for_each(|arena| arena.region(gradients).bytes_mut().copy_from_slice(&g));
        arena.region(step_at).numbers_mut::<f64>().copy_from_slice(&StepNumbers::new(training, step).numbers());
        arena.launch(module, launches, &|address| match address {
            Address::Place(at) => match at.place {
                Storage::Operand(operand) => arena.address(operand as usize, at.offset.0),
                Storage::Scratch => panic!("an update has no scratch"),
            },
            Address::Step => arena.address(step_at, 0),
            _ => panic!("{address:?} in an update"),
        });
        let operands = [new, gradients, state].map(|operand| cpu.region(operand));
        run_update(part, training, step, operands).expect("an update");
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
                let launches = sources.optimizer(&optimizer, &part, is_beside);
                assert_eq!(launches.len(), part.pieces.len());
                all.push((training(optimizer), part, is_beside, launches));
            }
        }
    }
    let functions = 2 * (Optimizer::NAMES.len() + 1);
    assert_eq!(
        sources.names().count(),
        functions,
        "`sgd` has one without momentum, and each is there in two precisions"
    );
    let Some(module) = Module::new(sources) else { return };
    for (training, part, is_beside, launches) in &all {
        check(&module, launches, training, part, *is_beside);
    }
}
