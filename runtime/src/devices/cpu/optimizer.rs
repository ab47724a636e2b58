//! Optimizer updates, over all parameters of a stage at once.

use super::lanes::{LANES, div, fma, kernel, load, mul, splat, sqrt, store};
use pipe_ir::training::{LearningRate, Optimizer, Training};
use pulp::Arch;

/// Updates parameters from gradients for a step, counted from 0. `state` holds one or two numbers per parameter: all first
/// moments (or velocities), then all second moments.
pub(super) fn update(arch: Arch, training: &Training, step: u64, p: &mut [f32], g: &[f32], state: &mut [f32]) {
    let rate = rate(&training.learning_rate, step, training.steps);
    match training.optimizer {
        Optimizer::Sgd { momentum, weight_decay } => {
            let numbers = Sgd { rate: rate as f32, momentum: momentum as f32, weight_decay: weight_decay as f32 };
            if momentum == 0.0 { plain_sgd(arch, numbers, p, g) } else { momentum_sgd(arch, numbers, p, g, state) }
        }
        Optimizer::AdamW { beta1, beta2, epsilon, weight_decay } => {
            let t = (step + 1) as f64;
            let numbers = AdamW {
                keep: (1.0 - rate * weight_decay) as f32,
                rate: (-rate / (1.0 - beta1.powf(t))) as f32,
                beta1: (beta1 as f32, (1.0 - beta1) as f32),
                beta2: (beta2 as f32, (1.0 - beta2) as f32),
                root: (1.0 / (1.0 - beta2.powf(t)).sqrt()) as f32,
                epsilon: epsilon as f32,
            };
            let (m, v) = state.split_at_mut(p.len());
            adamw(arch, numbers, p, g, m, v);
        }
    }
}

/// The learning rate of a step, counted from 0, of a run of `steps`.
fn rate(rate: &LearningRate, step: u64, steps: u32) -> f64 {
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
pub(super) struct Sgd {
    rate: f32,
    momentum: f32,
    weight_decay: f32,
}

/// Numbers of a step. Pairs are a decay and 1 minus it; `root` corrects the bias of the second moment's root.
#[derive(Clone, Copy)]
pub(super) struct AdamW {
    keep: f32,
    rate: f32,
    beta1: (f32, f32),
    beta2: (f32, f32),
    root: f32,
    epsilon: f32,
}

kernel! {
    /// p -= rate * (g + weight_decay * p).
    fn plain_sgd<'a>(s; numbers: Sgd, p: &'a mut [f32], g: &'a [f32]) {
        let (decay, rate) = (splat(s, numbers.weight_decay), splat(s, -numbers.rate));
        for at in (0..p.len()).step_by(LANES) {
            let old = load(s, p, at, 0.0);
            let direction = fma(s, decay, old, load(s, g, at, 0.0));
            store(s, p, at, fma(s, rate, direction, old));
        }
    }
}

kernel! {
    /// v = momentum * v + (g + weight_decay * p); p -= rate * v.
    fn momentum_sgd<'a>(s; numbers: Sgd, p: &'a mut [f32], g: &'a [f32], v: &'a mut [f32]) {
        let (decay, rate) = (splat(s, numbers.weight_decay), splat(s, -numbers.rate));
        let momentum = splat(s, numbers.momentum);
        for at in (0..p.len()).step_by(LANES) {
            let old = load(s, p, at, 0.0);
            let direction = fma(s, decay, old, load(s, g, at, 0.0));
            let velocity = fma(s, momentum, load(s, v, at, 0.0), direction);
            store(s, v, at, velocity);
            store(s, p, at, fma(s, rate, velocity, old));
        }
    }
}

kernel! {
    /// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g; p = keep p + rate m / (root sqrt(v) + epsilon).
    fn adamw<'a>(s; numbers: AdamW, p: &'a mut [f32], g: &'a [f32], m: &'a mut [f32], v: &'a mut [f32]) {
        let (b1, c1) = (splat(s, numbers.beta1.0), splat(s, numbers.beta1.1));
        let (b2, c2) = (splat(s, numbers.beta2.0), splat(s, numbers.beta2.1));
        let (keep, rate) = (splat(s, numbers.keep), splat(s, numbers.rate));
        let (root, epsilon) = (splat(s, numbers.root), splat(s, numbers.epsilon));
        for at in (0..p.len()).step_by(LANES) {
            let g = load(s, g, at, 0.0);
            let first = fma(s, b1, load(s, m, at, 0.0), mul(s, c1, g));
            let second = fma(s, b2, load(s, v, at, 0.0), mul(s, c2, mul(s, g, g)));
            store(s, m, at, first);
            store(s, v, at, second);
            // Lanes past the end divide 0 by epsilon; what they give is not stored.
            let change = div(s, mul(s, rate, first), fma(s, sqrt(s, second), root, epsilon));
            let old = load(s, p, at, 0.0);
            store(s, p, at, fma(s, keep, old, change));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_warms_up_then_follows_a_cosine_to_its_minimum() {
        let schedule = LearningRate { peak: 1.0, warmup: 4, minimum: Some(0.1) };
        assert_eq!(rate(&schedule, 0, 20), 0.25);
        assert_eq!(rate(&schedule, 3, 20), 1.0);
        assert_eq!(rate(&schedule, 4, 20), 1.0);
        assert!((rate(&schedule, 19, 20) - 0.1).abs() < 1e-12);
        assert_eq!(rate(&LearningRate { peak: 2.0, warmup: 0, minimum: None }, 7, 20), 2.0);
    }
}
