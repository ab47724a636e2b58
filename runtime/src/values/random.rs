//! Random numbers: counter-based, so that a tensor's numbers depend on the seed and its name only,
//! not on who asks when.

/// One step of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): hashes two words.
pub fn mix(seed: u64, word: u64) -> u64 {
    let mut z = (seed ^ word.rotate_left(32)).wrapping_add(word.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A stream of numbers named by a seed and a string.
#[derive(Clone, Debug)]
pub struct Counter {
    key: u64,
    count: u64,
}

impl Counter {
    /// The stream of this name under this seed.
    pub fn new(seed: u64, name: &str) -> Self {
        Self { key: name.bytes().fold(mix(seed, 0), |key, byte| mix(key, u64::from(byte))), count: 0 }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.count += 1;
        mix(self.key, self.count)
    }

    /// Uniform in (0, 1).
    fn uniform(&mut self) -> f64 {
        ((self.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Leaves so many standard normal numbers out.
    pub const fn skip_normals(&mut self, count: u64) {
        self.count += 2 * count;
    }

    /// Standard normal, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_mean_0_and_deviation_1() {
        let mut stream = Counter::new(7, "weights");
        let numbers: Vec<f64> = (0..100_000).map(|_| stream.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|x| x * x).sum::<f64>() / 1e5 - mean * mean;
        assert!(mean.abs() < 0.01, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.02, "variance {variance}");
    }

    #[test]
    fn numbers_that_are_left_out_are_those_that_would_come() {
        let (mut whole, mut part) = (Counter::new(7, "weights"), Counter::new(7, "weights"));
        for count in 0..5 {
            let left_out = (0..count).map(|_| whole.normal()).count();
            part.skip_normals(left_out as u64);
            assert_eq!(part.normal(), whole.normal());
        }
    }

    #[test]
    fn streams_differ_by_name_and_by_seed() {
        let first = |seed, name| Counter::new(seed, name).next_u64();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }
}
