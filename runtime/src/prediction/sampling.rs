//! Sampling: the choice of the next token from logits. Equal logits and an equal seed give an equal choice.

use crate::values::random::Counter;

/// How tokens are chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampling {
    /// What logits are divided by; at 0 the most likely token is taken.
    pub temperature: f64,
    /// Only the most likely tokens that have this probability together are chosen from (arXiv 1904.09751).
    pub top_p: f64,
    /// Of the draws.
    pub seed: u64,
}

/// Chooses one token after another.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: Counter,
}

impl Sampler {
    /// At the first token.
    pub fn new(sampling: Sampling) -> Self {
        Self { sampling, random: Counter::new(sampling.seed, "sample") }
    }

    /// The next token; 0 where there are no logits.
    pub fn choose(&mut self, logits: &[f64]) -> usize {
        let mut order: Vec<usize> = (0..logits.len()).collect();
        // Of equal ones the first.
        order.sort_by(|one, other| logits[*other].total_cmp(&logits[*one]).then(one.cmp(other)));
        let first = order.first().copied().unwrap_or(0);
        // A draw for every token, so that a later one does not depend on the temperature of an earlier one.
        let draw = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        if self.sampling.temperature <= 0.0 || order.is_empty() {
            return first;
        }
        let most = logits[first];
        let weight = |token: &usize| ((logits[*token] - most) / self.sampling.temperature).exp();
        let weights: Vec<f64> = order.iter().map(weight).collect();
        let all: f64 = weights.iter().sum();
        let mut kept = 0.0;
        let n_kept = weights.iter().position(|weight| {
            kept += weight;
            kept >= self.sampling.top_p * all
        });
        let n_kept = n_kept.map_or(weights.len(), |last| last + 1);
        let mut rest = draw * weights[..n_kept].iter().sum::<f64>();
        let chosen = weights[..n_kept].iter().position(|weight| {
            rest -= weight;
            rest < 0.0
        });
        order[chosen.unwrap_or(n_kept - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::{Sampler, Sampling};

    fn drawn(temperature: f64, top_p: f64, seed: u64) -> Vec<usize> {
        let mut sampler = Sampler::new(Sampling { temperature, top_p, seed });
        // Probabilities 0.1, 0.2, 0.4, 0.2, 0.1.
        let logits: Vec<f64> = [0.1_f64, 0.2, 0.4, 0.2, 0.1].iter().map(|p| p.ln()).collect();
        (0..10_000).map(|_| sampler.choose(&logits)).collect()
    }

    fn share(drawn: &[usize], token: usize) -> f64 {
        drawn.iter().filter(|own| **own == token).count() as f64 / drawn.len() as f64
    }

    #[test]
    fn tokens_come_as_often_as_they_are_likely() {
        let all = drawn(1.0, 1.0, 1);
        for (token, expected) in [0.1, 0.2, 0.4, 0.2, 0.1].into_iter().enumerate() {
            assert!((share(&all, token) - expected).abs() < 0.02, "{token}: {}", share(&all, token));
        }
        // Squares of probabilities, at half the temperature.
        assert!((share(&drawn(0.5, 1.0, 1), 2) - 0.16 / 0.26).abs() < 0.02);
    }

    #[test]
    fn top_p_leaves_out_what_is_unlikely() {
        // 0.4 and 0.2 are 0.6: of the two tokens with 0.2 the first one comes before.
        let some = drawn(1.0, 0.55, 1);
        assert_eq!(some.iter().filter(|token| [1, 2].contains(*token)).count(), some.len());
        assert!(drawn(1.0, 1e-9, 1).iter().all(|token| *token == 2));
    }

    #[test]
    fn seeds_repeat_and_zero_is_greedy() {
        assert_eq!(drawn(1.0, 1.0, 3), drawn(1.0, 1.0, 3));
        assert_ne!(drawn(1.0, 1.0, 3), drawn(1.0, 1.0, 4));
        assert!(drawn(0.0, 1.0, 3).iter().all(|token| *token == 2));
        assert_eq!(Sampler::new(Sampling { temperature: 1.0, top_p: 1.0, seed: 0 }).choose(&[]), 0);
    }
}
