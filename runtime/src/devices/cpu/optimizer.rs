//! Optimizer updates, over all parameters of a stage at once.

use super::compile::Piece;
use super::lanes::kernel;
use super::number::Number;
use pipe_ir::muon::Matrices;
use pipe_ir::training::{Decay, DecayShape, LearningRate, Optimizer, Training};
use pulp::Arch;

/// When something is updated, and where.
#[derive(Clone, Copy)]
pub(crate) struct Update<'a> {
    /// The optimizer and its rate.
    pub(crate) training: &'a Training,
    /// Counted from 0.
    pub(crate) step: u64,
    /// What gradients are multiplied with.
    pub(crate) scale: f64,
}

impl Update<'_> {
    fn rate(&self) -> f64 {
        rate(&self.training.learning_rate, self.step, self.training.steps)
    }
}

/// Some weights with their gradients and state.
pub(super) struct Own<'a, T> {
    /// The weights.
    pub(super) p: &'a mut [T],
    /// Their gradients.
    pub(super) g: &'a [T],
    /// First moments, or velocities. Nothing where there are none.
    pub(super) first: &'a mut [T],
    /// Second moments. Nothing where there are none.
    pub(super) second: &'a mut [T],
}

impl<'a, T: Number> Own<'a, T> {
    /// The weights of a piece. `state` holds all first moments (or velocities), then all second moments.
    pub(super) fn new(piece: &Piece, p: &'a mut [T], g: &'a [T], state: &'a mut [T]) -> Self {
        let numbers = piece.bytes.start / size_of::<T>()..piece.bytes.end / size_of::<T>();
        let n_first = if piece.matrices.is_some() { state.len() } else { piece.second / size_of::<T>() };
        let (first, second) = state.split_at_mut(n_first.min(state.len()));
        Self {
            first: first.get_mut(numbers.clone()).unwrap_or_default(),
            second: second.get_mut(..numbers.len()).unwrap_or_default(),
            p: &mut p[numbers.clone()],
            g: &g[numbers],
        }
    }
}

/// Updates weights element by element; all of them decay, or none.
pub(super) fn by_number<T: Number>(arch: Arch, update: Update<'_>, decays: bool, own: Own<'_, T>) {
    let (Update { training, step, scale }, rate) = (update, update.rate());
    let Own { p, g, first, second } = own;
    let scale = T::of(scale);
    match if decays { training.optimizer } else { training.optimizer.without_decay() } {
        Optimizer::Sgd { momentum, weight_decay } => {
            let [rate, own, weight_decay] = [rate, momentum, weight_decay].map(T::of);
            let numbers = Sgd { scale, rate, momentum: own, weight_decay };
            if momentum == 0.0 { plain_sgd(arch, numbers, p, g) } else { momentum_sgd(arch, numbers, p, g, first) }
        }
        Optimizer::AdamW { beta1, beta2, epsilon, weight_decay }
        | Optimizer::Muon { beta1, beta2, epsilon, weight_decay, .. } => {
            let t = (step + 1) as f64;
            let numbers = AdamW {
                scale,
                keep: T::of(1.0 - rate * weight_decay),
                rate: T::of(-rate / (1.0 - beta1.powf(t))),
                beta1: (T::of(beta1), T::of(1.0 - beta1)),
                beta2: (T::of(beta2), T::of(1.0 - beta2)),
                root: T::of(1.0 / (1.0 - beta2.powf(t)).sqrt()),
                epsilon: T::of(epsilon),
            };
            adamw(arch, numbers, p, g, first, second);
        }
        Optimizer::Lion { beta1, beta2, weight_decay } => {
            let numbers = Lion {
                scale,
                keep: T::of(1.0 - rate * weight_decay),
                rate: T::of(rate),
                beta1: (T::of(beta1), T::of(1.0 - beta1)),
                beta2: (T::of(beta2), T::of(1.0 - beta2)),
            };
            lion(arch, numbers, p, g, first);
        }
    }
}

/// Updates the momentum of matrices, and writes Nesterov's update to `direction`, before it is orthogonalized. Does
/// nothing for other optimizers than Muon.
pub(super) fn muon_momentum<T: Number>(arch: Arch, update: Update<'_>, own: Own<'_, T>, direction: &mut [T]) {
    if let Optimizer::Muon { momentum, .. } = update.training.optimizer {
        let numbers = Momentum { scale: T::of(update.scale), kept: (T::of(momentum), T::of(1.0 - momentum)) };
        momentum_of_matrices(arch, numbers, own.g, own.first, direction);
    }
}

/// Updates matrices by their orthogonalized momentum.
pub(super) fn muon_step<T: Number>(
    arch: Arch,
    update: Update<'_>,
    (matrices, decays): (Matrices, bool),
    p: &mut [T],
    orthogonal: &[T],
) {
    let (rate, decay) = (update.rate(), if decays { update.training.optimizer.weight_decay() } else { 0.0 });
    let numbers = [1.0 - rate * decay, -rate * matrices.factor()].map(T::of);
    step_of_matrices(arch, numbers, p, orthogonal);
}

/// The learning rate of a step, counted from 0, of a run of `steps`.
pub fn rate(rate: &LearningRate, step: u64, steps: u32) -> f64 {
    let (step, last, warmup) = (step as f64, f64::from(steps) - 1.0, f64::from(rate.warmup));
    if step < warmup {
        return rate.peak * (step + 1.0) / warmup;
    }
    let Some(minimum) = rate.minimum else { return rate.peak };
    let Decay { shape, over } = rate.decay;
    let (from, length) = match over {
        None => (warmup, (last - warmup).max(1.0)),
        Some(over) if step <= last - f64::from(over) => return rate.peak,
        Some(over) => (last - f64::from(over), f64::from(over)),
    };
    let progress = ((step - from) / length).min(1.0);
    let above = match shape {
        DecayShape::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()),
        DecayShape::Linear => 1.0 - progress,
    };
    minimum + (rate.peak - minimum) * above
}

/// The sum of squares, in double precision: number i is added to sum i % 8, then those eight in their order.
pub(super) fn squares<T: Number>(numbers: &[T]) -> f64 {
    let mut sums = [0.0; 8];
    for eight in numbers.chunks(sums.len()) {
        for (sum, number) in sums.iter_mut().zip(eight) {
            let number = number.to_f64();
            *sum += number * number;
        }
    }
    sums.iter().sum()
}

#[derive(Clone, Copy)]
pub(super) struct Sgd<T> {
    scale: T,
    rate: T,
    momentum: T,
    weight_decay: T,
}

/// Numbers of a step; `scale` is what gradients are multiplied with. Pairs are a decay and 1 minus it; `root` corrects
/// the bias of the second moment's root.
#[derive(Clone, Copy)]
pub(super) struct AdamW<T> {
    scale: T,
    keep: T,
    rate: T,
    beta1: (T, T),
    beta2: (T, T),
    root: T,
    epsilon: T,
}

/// Numbers of a step; `scale` is what gradients are multiplied with. Pairs are a decay and 1 minus it.
#[derive(Clone, Copy)]
pub(super) struct Lion<T> {
    scale: T,
    keep: T,
    rate: T,
    beta1: (T, T),
    beta2: (T, T),
}

/// Numbers of a step; `scale` is what gradients are multiplied with. The pair is a decay and 1 minus it.
#[derive(Clone, Copy)]
pub(super) struct Momentum<T> {
    scale: T,
    kept: (T, T),
}

kernel! {
    /// p -= rate * (scale * g + weight_decay * p).
    fn plain_sgd<'a, T>(_s; numbers: Sgd<T>, p: &'a mut [T], g: &'a [T]) {
        for (p, g) in p.iter_mut().zip(g) {
            *p -= numbers.rate * (numbers.scale * *g + numbers.weight_decay * *p);
        }
    }
}

kernel! {
    /// v = momentum * v + (scale * g + weight_decay * p); p -= rate * v.
    fn momentum_sgd<'a, T>(_s; numbers: Sgd<T>, p: &'a mut [T], g: &'a [T], v: &'a mut [T]) {
        for ((p, g), v) in p.iter_mut().zip(g).zip(v) {
            *v = numbers.momentum * *v + (numbers.scale * *g + numbers.weight_decay * *p);
            *p -= numbers.rate * *v;
        }
    }
}

kernel! {
    /// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g; p = keep p + rate m / (root sqrt(v) + epsilon), with g scaled.
    fn adamw<'a, T>(_s; numbers: AdamW<T>, p: &'a mut [T], g: &'a [T], m: &'a mut [T], v: &'a mut [T]) {
        let ((b1, c1), (b2, c2)) = (numbers.beta1, numbers.beta2);
        for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = numbers.scale * *g;
            *m = b1 * *m + c1 * g;
            *v = b2 * *v + c2 * (g * g);
            *p = numbers.keep * *p + numbers.rate * *m / (numbers.root * v.sqrt() + numbers.epsilon);
        }
    }
}

kernel! {
    /// p = keep p - rate sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g, with g scaled.
    fn lion<'a, T>(_s; numbers: Lion<T>, p: &'a mut [T], g: &'a [T], m: &'a mut [T]) {
        let ((b1, c1), (b2, c2)) = (numbers.beta1, numbers.beta2);
        for ((p, g), m) in p.iter_mut().zip(g).zip(m) {
            let g = numbers.scale * *g;
            let direction = b1 * *m + c1 * g;
            let towards = if direction > T::ZERO { numbers.rate } else { T::ZERO };
            let away = if direction < T::ZERO { numbers.rate } else { T::ZERO };
            *p = numbers.keep * *p + (away - towards);
            *m = b2 * *m + c2 * g;
        }
    }
}

kernel! {
    /// m = mu m + (1 - mu) g; direction = mu m + (1 - mu) g, with g scaled.
    fn momentum_of_matrices<'a, T>(_s; numbers: Momentum<T>, g: &'a [T], m: &'a mut [T], direction: &'a mut [T]) {
        let (kept, new) = numbers.kept;
        for ((g, m), direction) in g.iter().zip(m).zip(direction) {
            let g = numbers.scale * *g;
            *m = kept * *m + new * g;
            *direction = kept * *m + new * g;
        }
    }
}

kernel! {
    /// p = keep p + rate direction; the numbers are both factors.
    fn step_of_matrices<'a, T>(_s; numbers: [T; 2], p: &'a mut [T], direction: &'a [T]) {
        let [keep, rate] = numbers;
        for (p, direction) in p.iter_mut().zip(direction) {
            *p = keep * *p + rate * *direction;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipe_ir::training::{DataSource, DecayedWeights};

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
        let learning_rate = LearningRate { peak: 0.01, warmup: 3, minimum: Some(0.001), decay: Decay::default() };
        Training {
            steps: 6,
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

    /// Learning rates of the six steps: three of warm-up, then a cosine over three.
    const RATES: [f64; 6] = [0.01 / 3.0, 0.02 / 3.0, 0.01, 0.01, 0.0055, 0.001];

    /// Weights between these do not decay.
    const UNDECAYED: std::ops::Range<usize> = 100..117;

    /// What a step changes of a parameter, by (rate, decay, step, p, g, state).
    type Reference<'a> = &'a dyn Fn(f64, f64, i32, &mut f64, f64, &mut [f64; 2]);

    /// Updates for six steps, and compares with `reference`, whose decay is 0.1 or nothing.
    fn check(optimizer: Optimizer, n_state: usize, reference: Reference<'_>) {
        check_to::<f32>(1e-6, optimizer, n_state, reference);
        check_to::<f64>(1e-14, optimizer, n_state, reference);
    }

    /// All parameters in pieces, of which one does not decay.
    fn pieces<T>() -> Vec<Piece> {
        let ends = [0, UNDECAYED.start, UNDECAYED.end, WIDTH].map(|end| end * size_of::<T>());
        let all = WIDTH * size_of::<T>();
        let piece = |(index, ends): (usize, &[usize])| {
            let (bytes, second) = (ends[0]..ends[1], all + ends[0]);
            Piece { bytes, decays: index != 1, second, matrices: None }
        };
        ends.windows(2).enumerate().map(piece).collect()
    }

    fn check_to<T: Number>(tolerance: f64, optimizer: Optimizer, n_state: usize, reference: Reference<'_>) {
        let training = training(optimizer);
        let mut parameters = numbers::<T>(1, WIDTH);
        let mut state = vec![T::ZERO; n_state * WIDTH];
        let mut expected = exact(&parameters);
        let mut expected_state = vec![[0.0; 2]; WIDTH];
        for (step, rate) in RATES.into_iter().enumerate() {
            let gradients = numbers::<T>(2 + step as u64, WIDTH);
            let update = Update { training: &training, step: step as u64, scale: 1.0 };
            for piece in pieces::<T>() {
                let own = Own::new(&piece, &mut parameters, &gradients, &mut state);
                by_number(Arch::new(), update, piece.decays, own);
            }
            for (at, ((p, g), state)) in expected.iter_mut().zip(exact(&gradients)).zip(&mut expected_state).enumerate()
            {
                let decay = if UNDECAYED.contains(&at) { 0.0 } else { 0.1 };
                reference(rate, decay, step as i32 + 1, p, g, state);
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
        check(optimizer, 2, &|rate, decay, count, p, g, [m, v]| {
            *p -= rate * decay * *p;
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.95 * *v + 0.05 * g * g;
            let (m, v) = (*m / (1.0 - 0.9_f64.powi(count)), *v / (1.0 - 0.95_f64.powi(count)));
            *p -= rate * m / (v.sqrt() + 1e-8);
        });
    }

    #[test]
    fn lion() {
        check(Optimizer::Lion { beta1: 0.9, beta2: 0.99, weight_decay: 0.1 }, 1, &|rate, decay, _, p, g, [m, _]| {
            let direction = 0.9 * *m + 0.1 * g;
            *p -= rate * (direction.signum() + decay * *p);
            *m = 0.99 * *m + 0.01 * g;
        });
    }

    /// Weights that are no matrices follow AdamW.
    #[test]
    fn muon_by_number() {
        let optimizer = Optimizer::Muon { momentum: 0.95, weight_decay: 0.1, beta1: 0.8, beta2: 0.9, epsilon: 1e-8 };
        check(optimizer, 2, &|rate, decay, count, p, g, [m, v]| {
            *p -= rate * decay * *p;
            *m = 0.8 * *m + 0.2 * g;
            *v = 0.9 * *v + 0.1 * g * g;
            let (m, v) = (*m / (1.0 - 0.8_f64.powi(count)), *v / (1.0 - 0.9_f64.powi(count)));
            *p -= rate * m / (v.sqrt() + 1e-8);
        });
    }

    #[test]
    fn sgd_with_and_without_momentum() {
        check(Optimizer::Sgd { momentum: 0.0, weight_decay: 0.1 }, 0, &|rate, decay, _, p, g, _| {
            *p -= rate * (g + decay * *p);
        });
        check(Optimizer::Sgd { momentum: 0.9, weight_decay: 0.1 }, 1, &|rate, decay, _, p, g, [v, _]| {
            *v = 0.9 * *v + (g + decay * *p);
            *p -= rate * *v;
        });
    }

    #[test]
    fn the_rate_warms_up_then_follows_a_cosine_to_its_minimum() {
        let rate = LearningRate { peak: 0.01, warmup: 3, minimum: Some(0.001), decay: Decay::default() };
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
    fn the_rate_falls_along_a_line_or_over_the_last_steps_only() {
        let check = |shape, over, expected: &[f64]| {
            let rate = LearningRate { peak: 1.0, warmup: 2, minimum: Some(0.2), decay: Decay { shape, over } };
            for (step, expected) in expected.iter().enumerate() {
                let got = super::rate(&rate, step as u64, 8);
                assert!((got - expected).abs() < 1e-12, "{got} instead of {expected} at step {step}");
            }
            assert_eq!(super::rate(&rate, 100, 8), 0.2, "the rate stays where the run goes on");
        };
        check(DecayShape::Linear, None, &[0.5, 1.0, 1.0, 0.84, 0.68, 0.52, 0.36, 0.2]);
        check(DecayShape::Linear, Some(4), &[0.5, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2]);
        check(DecayShape::Cosine, Some(2), &[0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.6, 0.2]);
        check(DecayShape::Linear, Some(1), &[0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.2]);
        // All steps behind the warm-up.
        check(DecayShape::Linear, Some(6), &[0.5, 1.0, 13.0 / 15.0, 11.0 / 15.0, 0.6, 7.0 / 15.0, 1.0 / 3.0, 0.2]);
    }

    #[test]
    fn no_parameters() {
        for optimizer in [
            Optimizer::AdamW { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 },
            Optimizer::Sgd { momentum: 0.9, weight_decay: 0.0 },
        ] {
            let piece = Piece { bytes: 0..0, decays: true, second: 0, matrices: None };
            let update = Update { training: &training(optimizer), step: 0, scale: 1.0 };
            by_number::<f32>(Arch::new(), update, true, Own::new(&piece, &mut [], &[], &mut []));
        }
    }
}
