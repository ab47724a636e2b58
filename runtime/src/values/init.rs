//! Initial contents of parameters: a function of the run's seed and the tensor's name, whatever the layout.

use crate::devices::cpu::{Number, with_numbers};
use crate::values::random::Counter;
use pipe_distributed::memory::Region;
use pipe_ir::value::{Init, Value};
use std::thread::{available_parallelism, scope};

/// Random numbers that are worth a thread of their own: about 2 ms.
const THREAD: usize = 1 << 16;

/// Fills a zeroed buffer of a value, which a member of a device holds.
pub fn fill(value: &Value, seed: u64, (buffer, member): (Region, u32)) {
    for slot in &value.tensors {
        let tensor = buffer.part(slot.offset.to_usize(), slot.ty.bytes().to_usize());
        with_numbers!(slot.ty.dtype, N => match slot.init {
            None | Some(Init::Zeros) => {}
            Some(Init::Ones) => {
                let own = slot.numbers(member.into()).into_iter().map(|numbers| numbers.end - numbers.start);
                tensor.numbers_mut()[..own.sum::<u64>() as usize].fill(N::ONE);
            }
            Some(Init::Normal(deviation)) => {
                // A part has the numbers that the whole tensor has there.
                let mut rest = tensor.numbers_mut();
                for numbers in slot.numbers(member.into()) {
                    let mut stream = Counter::new(seed, &slot.name);
                    stream.skip_normals(numbers.start);
                    let (own, others) = rest.split_at_mut((numbers.end - numbers.start) as usize);
                    fill_normals(own, &stream, |normal| N::of(N::of(normal).to_f64() * deviation));
                    rest = others;
                }
            }
        });
    }
}

/// The next normal numbers of a stream, each made into one of another type. All cores draw them, with the bits that one
/// would draw.
fn fill_normals<N: Send>(numbers: &mut [N], stream: &Counter, number: impl Fn(f64) -> N + Copy + Send) {
    let threads = available_parallelism().map_or(1, usize::from).min(numbers.len() / THREAD).max(1);
    let share = numbers.len().div_ceil(threads).max(1);
    let draw = move |position: usize, part: &mut [N]| {
        let mut stream = stream.clone();
        stream.skip_normals((position * share) as u64);
        part.fill_with(|| number(stream.normal()));
    };
    let mut parts = numbers.chunks_mut(share).enumerate();
    // This thread draws the first part.
    let own = parts.next();
    scope(|scope| {
        for (position, part) in parts {
            scope.spawn(move || draw(position, part));
        }
        if let Some((position, part)) = own {
            draw(position, part);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{Counter, THREAD, fill_normals};

    #[test]
    fn many_threads_draw_what_one_draws() {
        for size in [0, 1, THREAD - 1, 3 * THREAD + 5] {
            let (mut stream, mut numbers) = (Counter::new(7, "weights"), vec![0.0; size]);
            stream.skip_normals(3);
            fill_normals(&mut numbers, &stream, |normal| normal);
            assert!(numbers.iter().all(|number| *number == stream.normal()));
        }
    }
}
