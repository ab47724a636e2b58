//! The optimizer over several steps: the bits of the CPU device.

use super::arena::Arena;
use super::module::{Address, Module};
use crate::devices::cpu::{Number, update, with_numbers};
use crate::devices::cuda::kernels::{Sources, StepNumbers, Update};
use crate::devices::cuda::launch::Launch;
use crate::random::Counter;
use pipe_ir::graph::DType;
use pipe_ir::kernels::Place;
use pipe_ir::training::{DataSource, LearningRate, Optimizer, Training};
use pipe_ir::units::Bytes;
use pulp::Arch;

const COUNT: usize = 1003;
/// Elements before the part that is updated, in parameters and gradients.
const BEFORE: usize = 16;

fn training(optimizer: Optimizer) -> Training {
    let learning_rate = LearningRate { peak: 0.01, warmup: 2, minimum: Some(0.001) };
    Training { steps: 5, seed: 0, optimizer, learning_rate, data: DataSource::Synthetic, checkpoint: None, model: None }
}

/// Updates for five steps on both sides; gradients are the same.
fn check<T: Number>(module: &Module, launch: &Launch, training: &Training, is_beside: bool) {
    let mut random = Counter::new(9, "updates");
    let mut numbers = |count: usize| -> Vec<T> { (0..count).map(|_| T::of(random.normal())).collect() };
    let size = |count: usize| Bytes((count * size_of::<T>()) as u64);
    let n_state = training.optimizer.state_per_parameter() as usize;
    let whole = size(BEFORE + COUNT);
    let mut sizes = vec![whole; 2 + usize::from(is_beside)];
    let (old, new, gradients, state, step_at) = (0, sizes.len() - 2, sizes.len() - 1, sizes.len(), sizes.len() + 1);
    sizes.extend([size(n_state * COUNT), StepNumbers::BYTES]);
    let arena = Arena::new(sizes);
    let mut parameters = numbers(BEFORE + COUNT);
    let mut kept = vec![T::ZERO; n_state * COUNT];
    arena.region(old).numbers_mut::<T>().copy_from_slice(&parameters);
    arena.region(new).numbers_mut::<T>().copy_from_slice(&parameters);
    arena.region(state).numbers_mut::<T>().copy_from_slice(&kept);
    for step in 0..5 {
        let g = numbers(BEFORE + COUNT);
        arena.region(gradients).numbers_mut::<T>().copy_from_slice(&g);
        arena.region(step_at).numbers_mut::<f64>().copy_from_slice(&StepNumbers::new(training, step).numbers());
        arena.launch(module, std::slice::from_ref(launch), &|address| match address {
            Address::Place(at) => match at.place {
                Place::Operand(operand) => arena.address(operand as usize, at.offset.0),
                Place::Scratch => panic!("an update has no scratch"),
            },
            Address::Step => arena.address(step_at, 0),
            _ => panic!("{address:?} in an update"),
        });
        update(Arch::new(), training, step, &mut parameters[BEFORE..], &g[BEFORE..], &mut kept);
        assert_eq!(bytes(arena.region(new).numbers::<T>()), bytes(&parameters), "parameters after step {step}");
        assert_eq!(bytes(arena.region(state).numbers::<T>()), bytes(&kept), "state after step {step}");
        if is_beside {
            assert_ne!(bytes(arena.region(old).numbers::<T>()), bytes(&parameters));
            arena.region(old).copy_from(arena.region(new));
        }
    }
}

fn bytes<T: Number>(numbers: &[T]) -> &[u8] {
    bytemuck::cast_slice(numbers)
}

#[test]
fn updates_have_the_bits_of_the_cpu() {
    let mut sources = Sources::default();
    let mut all = Vec::new();
    for optimizer in [
        Optimizer::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 },
        Optimizer::Sgd { momentum: 0.0, weight_decay: 0.1 },
        Optimizer::Sgd { momentum: 0.9, weight_decay: 0.1 },
    ] {
        for dtype in [DType::F32, DType::F64] {
            for is_beside in [false, true] {
                let element = dtype.bytes().to_usize();
                let part = (BEFORE * element) as u64..((BEFORE + COUNT) * element) as u64;
                let update = Update { dtype, from: part.start, part, is_beside };
                all.push((training(optimizer), dtype, is_beside, sources.optimizer(&optimizer, &update)));
            }
        }
    }
    assert_eq!(sources.names().count(), 6);
    let Some(module) = Module::new(sources) else { return };
    for (training, dtype, is_beside, launch) in &all {
        with_numbers!(dtype, N => check::<N>(&module, launch, training, *is_beside));
    }
}
