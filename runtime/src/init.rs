//! Initial contents of parameters: a function of the run's seed and the tensor's name, whatever the layout.

use crate::random::Counter;
use pipe_ir::value::{Init, Value};

/// Fills a zeroed buffer of a value.
pub(crate) fn fill(value: &Value, seed: u64, buffer: &mut [f32]) {
    for slot in &value.tensors {
        let start = slot.offset.to_usize() / size_of::<f32>();
        let tensor = &mut buffer[start..start + slot.ty.elements() as usize];
        match slot.init {
            None | Some(Init::Zeros) => {}
            Some(Init::Ones) => tensor.fill(1.0),
            Some(Init::Normal(deviation)) => {
                let mut stream = Counter::new(seed, &slot.name);
                tensor.fill_with(|| (f64::from(stream.normal()) * deviation) as f32);
            }
        }
    }
}
