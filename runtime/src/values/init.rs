//! Initial contents of parameters: a function of the run's seed and the tensor's name, whatever the layout.

use crate::devices::cpu::{Number, with_numbers};
use crate::values::random::Counter;
use pipe_distributed::memory::Region;
use pipe_ir::value::{Init, Value};

/// Fills a zeroed buffer of a value.
pub fn fill(value: &Value, seed: u64, buffer: Region) {
    for slot in &value.tensors {
        let tensor = buffer.part(slot.offset.to_usize(), slot.ty.bytes().to_usize());
        with_numbers!(slot.ty.dtype, N => match slot.init {
            None | Some(Init::Zeros) => {}
            Some(Init::Ones) => tensor.numbers_mut().fill(N::ONE),
            Some(Init::Normal(deviation)) => {
                // A part has the numbers that the whole tensor has there.
                let mut stream = Counter::new(seed, &slot.name);
                stream.skip_normals(slot.part.as_ref().map_or(0, |part| part.from));
                tensor.numbers_mut().fill_with(|| N::of(N::of(stream.normal()).to_f64() * deviation));
            }
        });
    }
}
