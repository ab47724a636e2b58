//! Random numbers that are the same on every machine: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The source that a seed stands for.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.draw()) * n as u128) >> 64) as usize
    }

    /// 256 times the number of bits of surprise in a random event: at least `n` with probability 2^(-n / 256), nearly.
    pub fn surprise(&mut self) -> u64 {
        let number = self.draw() | 1;
        let zeros = u64::from(number.leading_zeros());
        let fraction = ((number << zeros) >> 55) & 255;
        (zeros + 1) * 256 - fraction
    }
}
