//! Optimizer updates, over all parameters of a stage at once.

use super::lanes::kernel;
use super::number::Number;
use pipe_ir::training::{LearningRate, Optimizer, Training};
use pulp::Arch;

/// Updates parameters from gradients for a step, counted from 0. `state` holds one or two numbers
/// per parameter: all first moments (or velocities), then all second moments.
pub(crate) fn update<T: Number>(arch: Arch, training: &Training, step: u64, p: &mut [T], g: &[T], state: &mut [T]) {
    let rate = rate(&training.learning_rate, step, training.steps);
    match training.optimizer {
        Optimizer::Sgd { momentum, weight_decay } => {
            let numbers = Sgd { rate: T::of(rate), momentum: T::of(momentum), weight_decay: T::of(weight_decay) };
            if momentum == 0.0 { plain_sgd(arch, numbers, p, g) } else { momentum_sgd(arch, numbers, p, g, state) }
        }
        Optimizer::AdamW { beta1, beta2, epsilon, weight_decay } => {
            let t = (step + 1) as f64;
            let numbers = AdamW {
                keep: T::of(1.0 - rate * weight_decay),
                rate: T::of(-rate / (1.0 - beta1.powf(t))),
                beta1: (T::of(beta1), T::of(1.0 - beta1)),
                beta2: (T::of(beta2), T::of(1.0 - beta2)),
                root: T::of(1.0 / (1.0 - beta2.powf(t)).sqrt()),
                epsilon: T::of(epsilon),
            };
            let (m, v) = state.split_at_mut(p.len());
            adamw(arch, numbers, p, g, m, v);
        }
        Optimizer::Lion { beta1, beta2, weight_decay } => {
            let numbers = Lion {
                keep: T::of(1.0 - rate * weight_decay),
                rate: T::of(rate),
                beta1: (T::of(beta1), T::of(1.0 - beta1)),
                beta2: (T::of(beta2), T::of(1.0 - beta2)),
            };
            lion(arch, numbers, p, g, state);
        }
    }
}

/// The learning rate of a step, counted from 0, of a run of `steps`.
pub fn rate(rate: &LearningRate, step: u64, steps: u32) -> f64 {
    let (step, warmup) = (step as f64, f64::from(rate.warmup));
    if step < warmup {
        return rate.peak * (step + 1.0) / warmup;
    }
    let Some(minimum) = rate.minimum else { return rate.peak };
    let length = (f64::from(steps) - 1.0 - warmup).max(1.0);
    let progress = ((step - warmup) / length).min(1.0);
    minimum + (rate.peak - minimum) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
}

#[derive(Clone, Copy)]
pub(super) struct Sgd<T> {
    rate: T,
    momentum: T,
    weight_decay: T,
}

/// Numbers of a step. Pairs are a decay and 1 minus it; `root` corrects the bias of the second moment's root.
#[derive(Clone, Copy)]
pub(super) struct AdamW<T> {
    keep: T,
    rate: T,
    beta1: (T, T),
    beta2: (T, T),
    root: T,
    epsilon: T,
}

/// Numbers of a step. Pairs are a decay and 1 minus it.
#[derive(Clone, Copy)]
pub(super) struct Lion<T> {
    keep: T,
    rate: T,
    beta1: (T, T),
    beta2: (T, T),
}

kernel! {
    /// p -= rate * (g + weight_decay * p).
    fn plain_sgd<'a, T>(_s; numbers: Sgd<T>, p: &'a mut [T], g: &'a [T]) {
        for (p, g) in p.iter_mut().zip(g) {
            *p -= numbers.rate * (*g + numbers.weight_decay * *p);
        }
    }
}

kernel! {
    /// v = momentum * v + (g + weight_decay * p); p -= rate * v.
    fn momentum_sgd<'a, T>(_s; numbers: Sgd<T>, p: &'a mut [T], g: &'a [T], v: &'a mut [T]) {
        for ((p, g), v) in p.iter_mut().zip(g).zip(v) {
            *v = numbers.momentum * *v + (*g + numbers.weight_decay * *p);
            *p -= numbers.rate * *v;
        }
    }
}

kernel! {
    /// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g; p = keep p + rate m / (root sqrt(v) + epsilon).
    fn adamw<'a, T>(_s; numbers: AdamW<T>, p: &'a mut [T], g: &'a [T], m: &'a mut [T], v: &'a mut [T]) {
        let ((b1, c1), (b2, c2)) = (numbers.beta1, numbers.beta2);
        for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            *m = b1 * *m + c1 * *g;
            *v = b2 * *v + c2 * (*g * *g);
            *p = numbers.keep * *p + numbers.rate * *m / (numbers.root * v.sqrt() + numbers.epsilon);
        }
    }
}

kernel! {
    /// p = keep p - rate sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g.
    fn lion<'a, T>(_s; numbers: Lion<T>, p: &'a mut [T], g: &'a [T], m: &'a mut [T]) {
        let ((b1, c1), (b2, c2)) = (numbers.beta1, numbers.beta2);
        for ((p, g), m) in p.iter_mut().zip(g).zip(m) {
            let direction = b1 * *m + c1 * *g;
            let towards = if direction > T::ZERO { numbers.rate } else { T::ZERO };
            let away = if direction < T::ZERO { numbers.rate } else { T::ZERO };
            *p = numbers.keep * *p + (away - towards);
            *m = b2 * *m + c2 * *g;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipe_ir::training::DataSource;

    const WIDTH: usize = 257;

    /// Numbers between -2 and 2, the same for equal seeds.
    fn numbers<T: Number>(seed: u64, n: usize) -> Vec<T> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..n)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                T::of((state >> 40) as f64 / f64::from(1 << 22) - 2.0)
            })
            .collect()
    }

    /// Fails where a result is further off than `tolerance`, relative to the expected number or to
    /// 1, whichever is larger.
    fn assert_close<T: Number>(got: &[T], expected: &[f64], tolerance: f64) {
        assert_eq!(got.len(), expected.len());
        for (position, (got, &expected)) in got.iter().map(|got| got.to_f64()).zip(expected).enumerate() {
            let error = (got - expected).abs() / expected.abs().max(1.0);
            assert!(error <= tolerance, "element {position}: {got} instead of {expected}");
        }
    }

    /// In double precision.
    fn exact<T: Number>(x: &[T]) -> Vec<f64> {
        x.iter().map(|x| x.to_f64()).collect()
    }

    fn training(optimizer: Optimizer) -> Training {
        let learning_rate = LearningRate { peak: 0.01, warmup: 3, minimum: Some(0.001) };
        Training {
            steps: 6,
            seed: 0,
            optimizer,
            learning_rate,
            data: DataSource::Synthetic,
            init: None,
            config: None,
            checkpoint: None,
            model: None,
        }
    }

    /// Learning rates of the six steps: three of warm-up, then a cosine over three.
    const RATES: [f64; 6] = [0.01 / 3.0, 0.02 / 3.0, 0.01, 0.01, 0.0055, 0.001];

    /// Updates for six steps, and compares with `reference` of (rate, step, p, g, state).
    fn check(optimizer: Optimizer, n_state: usize, reference: impl Fn(f64, i32, &mut f64, f64, &mut [f64; 2])) {
        check_to::<f32>(1e-6, optimizer, n_state, &reference);
        check_to::<f64>(1e-14, optimizer, n_state, &reference);
    }

    fn check_to<T: Number>(
        tolerance: f64,
        optimizer: Optimizer,
        n_state: usize,
        reference: &impl Fn(f64, i32, &mut f64, f64, &mut [f64; 2]),
    ) {
        let training = training(optimizer);
        let mut parameters = numbers::<T>(1, WIDTH);
        let mut state = vec![T::ZERO; n_state * WIDTH];
        let mut expected = exact(&parameters);
        let mut expected_state = vec![[0.0; 2]; WIDTH];
        for (step, rate) in RATES.into_iter().enumerate() {
            let gradients = numbers::<T>(2 + step as u64, WIDTH);
            update(Arch::new(), &training, step as u64, &mut parameters, &gradients, &mut state);
            for ((p, g), state) in expected.iter_mut().zip(exact(&gradients)).zip(&mut expected_state) {
                reference(rate, step as i32 + 1, p, g, state);
            }
        }
        assert_close(&parameters, &expected, tolerance);
        for position in 0..n_state {
            let expected: Vec<f64> = expected_state.iter().map(|state| state[position]).collect();
            assert_close(&state[position * WIDTH..][..WIDTH], &expected, tolerance);
        }
    }

    #[test]
    fn adamw() {
        let optimizer = Optimizer::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 };
        check(optimizer, 2, |rate, count, p, g, [m, v]| {
            *p -= rate * 0.1 * *p;
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.95 * *v + 0.05 * g * g;
            let (m, v) = (*m / (1.0 - 0.9_f64.powi(count)), *v / (1.0 - 0.95_f64.powi(count)));
            *p -= rate * m / (v.sqrt() + 1e-8);
        });
    }

    #[test]
    fn lion() {
        check(Optimizer::Lion { beta1: 0.9, beta2: 0.99, weight_decay: 0.1 }, 1, |rate, _, p, g, [m, _]| {
            let direction = 0.9 * *m + 0.1 * g;
            *p -= rate * (direction.signum() + 0.1 * *p);
            *m = 0.99 * *m + 0.01 * g;
        });
    }

    #[test]
    fn sgd_with_and_without_momentum() {
        check(Optimizer::Sgd { momentum: 0.0, weight_decay: 0.1 }, 0, |rate, _, p, g, _| {
            *p -= rate * (g + 0.1 * *p);
        });
        check(Optimizer::Sgd { momentum: 0.9, weight_decay: 0.1 }, 1, |rate, _, p, g, [v, _]| {
            *v = 0.9 * *v + (g + 0.1 * *p);
            *p -= rate * *v;
        });
    }

    #[test]
    fn the_rate_warms_up_then_follows_a_cosine_to_its_minimum() {
        let rate = LearningRate { peak: 0.01, warmup: 3, minimum: Some(0.001) };
        let check = |rate: &LearningRate, steps, step, expected: f64| {
            let got = super::rate(rate, step, steps);
            assert!((got - expected).abs() < 1e-12, "{got} instead of {expected} at step {step} of {steps}");
        };
        for (step, expected) in RATES.into_iter().enumerate() {
            check(&rate, 6, step as u64, expected);
        }
        check(&rate, 6, 100, 0.001);
        check(&LearningRate { warmup: 0, ..rate }, 1, 0, 0.01);
        check(&LearningRate { minimum: None, ..rate }, 6, 5, 0.01);
    }

    #[test]
    fn no_parameters() {
        for optimizer in [
            Optimizer::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 },
            Optimizer::Sgd { momentum: 0.9, weight_decay: 0.0 },
        ] {
            update::<f32>(Arch::new(), &training(optimizer), 0, &mut [], &[], &mut []);
        }
    }
}
