//! Convolution and pooling: what the definitions say, computed element by element.

use pipe_compiler::Request;
use pipe_ir::graph::DType;
use pipe_ir::value::TensorSlot;
use pipe_runtime::checkpoint;
use pipe_runtime::data::Data;
use pipe_runtime::numbers::{decode, encode};
use pipe_runtime::{Backend, Options, Run};
use pipe_tests::cases::compile_text;
use pipe_tests::training::{losses, steps};
use std::path::Path;
use std::sync::Arc;

/// Images of 7 by 6 with 2 channels.
const IMAGES: [usize; 4] = [2, 7, 6, 2];
const KERNEL: [usize; 4] = [3, 2, 2, 3];

/// Numbers without a pattern.
fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|index| ((index * index * 7 + index * 3) % 23) as f64 / 10.0 - 1.0).collect()
}

/// The loss of a layer with the images `x`, and a weight `kernel`.
fn loss(expression: &str) -> (f64, Vec<f64>) {
    let text = format!(
        "layer only() {{
            data x: f32[2, 7, 6, 2]
            weight kernel: [3, 2, 2, 3] = normal(1)
            let y = {expression}
            loss sum(y * y * reshape(positions(size(y, 0) * size(y, 1) * size(y, 2) * size(y, 3)),
                [size(y, 0), size(y, 1), size(y, 2), size(y, 3)])) + sum(kernel) * 0
        }}
        model images() {{ only() }}
        pipeline p {{
            model images
            precision f64
            devices 1
            microbatches 1
            schedule gpipe
            train {{ data synthetic steps 1 optimizer sgd(learning_rate = 0.1) }}
        }}"
    );
    let (compilation, _) = compile_text("x.pipe", &text, Path::new("."), &Request::default());
    let program = Arc::new(compilation.program.unwrap_or_else(|| panic!("{:#?}", compilation.diagnostics)));
    let fill = |_: u64, _, _: &TensorSlot, out: &mut [u8]| {
        out.copy_from_slice(&encode(DType::F64, numbers(IMAGES.iter().product()).into_iter()));
    };
    let data = Arc::new(Data::from_fn(program.program(), Box::new(fill)));
    let mut run = Run::start(program, &Options::new(Backend::Cpu, 3), data).expect("it starts");
    let state = checkpoint::state(&run, 0).expect("a state");
    let kernel = state.tensors.iter().find(|tensor| tensor.name.ends_with("kernel")).expect("a kernel");
    let kernel = decode(kernel.ty.dtype, &kernel.data);
    let losses = losses(&steps(&mut run, 0..1));
    (f64::from_bits(losses[0][0].1), kernel)
}

/// What the loss is of these elements.
fn weighed(y: &[f64]) -> f64 {
    y.iter().enumerate().map(|(position, y)| y * y * position as f64).sum()
}

/// The element of an image, 0 outside of it.
fn at(x: &[f64], [row, h, w, channel]: [i64; 4]) -> f64 {
    let [_, height, width, channels] = IMAGES.map(|size| size as i64);
    if !(0..height).contains(&h) || !(0..width).contains(&w) {
        return 0.0;
    }
    x[(((row * height + h) * width + w) * channels + channel) as usize]
}

#[test]
fn convolutions_are_sums_over_windows() {
    let x = numbers(IMAGES.iter().product());
    for (stride, padding) in [(1, 0), (1, 2), (2, 0), (2, 1), (3, 1), (4, 3)] {
        let (found, kernel) = loss(&format!("conv2d(x, kernel, {stride}, {padding})"));
        let count = |size: usize, window: usize| ((size + 2 * padding - window) / stride + 1) as i64;
        let (rows, columns) = (count(IMAGES[1], KERNEL[0]), count(IMAGES[2], KERNEL[1]));
        let mut y = Vec::new();
        for image in 0..IMAGES[0] as i64 {
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                for to in 0..KERNEL[3] {
                    let mut sum = 0.0;
                    for (index, weight) in kernel.iter().enumerate().skip(to).step_by(KERNEL[3]) {
                        let from = index / KERNEL[3];
                        let (high, wide) = (from / (KERNEL[1] * KERNEL[2]), from / KERNEL[2] % KERNEL[1]);
                        let start = [row, column].map(|place| place * stride as i64 - padding as i64);
                        let (h, w) = (start[0] + high as i64, start[1] + wide as i64);
                        sum += weight * at(&x, [image, h, w, (from % KERNEL[2]) as i64]);
                    }
                    y.push(sum);
                }
            }
        }
        let expected = weighed(&y);
        assert!((found - expected).abs() < 1e-9 * expected, "{stride}, {padding}: {found} and {expected}");
    }
}

#[test]
fn pools_reduce_squares() {
    let x = numbers(IMAGES.iter().product());
    for function in ["max_pool", "mean_pool"] {
        let reduce = |square: &[f64]| match function {
            "max_pool" => square.iter().copied().fold(f64::MIN, f64::max),
            _ => square.iter().sum::<f64>() / square.len() as f64,
        };
        for size in [1, 2, 3, 5] {
            let (found, _) = loss(&format!("{function}(x, {size})"));
            let mut y = Vec::new();
            for image in 0..IMAGES[0] as i64 {
                for row in 0..IMAGES[1] as i64 / size {
                    for column in 0..IMAGES[2] as i64 / size {
                        for channel in 0..IMAGES[3] as i64 {
                            let places = (0..size * size).map(|place| (place / size, place % size));
                            let square: Vec<f64> = places
                                .map(|(h, w)| at(&x, [image, row * size + h, column * size + w, channel]))
                                .collect();
                            y.push(reduce(&square));
                        }
                    }
                }
            }
            let expected = weighed(&y);
            assert!((found - expected).abs() < 1e-9 * expected.abs(), "{function} {size}: {found} and {expected}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |expression: &str| {
        let text = format!(
            "layer only() {{ data x: f32[2, 7, 6, 2]  weight kernel: [3, 2, 2, 3] = normal(1)  loss sum({expression}) + sum(kernel) }}
            model images() {{ only() }}
            pipeline p {{ model images  devices 1  microbatches 1  schedule gpipe }}"
        );
        let (compilation, _) = compile_text("x.pipe", &text, Path::new("."), &Request::default());
        assert!(compilation.program.is_none(), "{expression}");
        compilation.diagnostics.into_iter().next().expect("an error").message
    };
    let cases = [
        ("conv2d(x, reshape(kernel, [3, 2, 3, 2]))", "`conv2d` cannot move a kernel f32[3,2,3,2] over f32[2,7,6,2]"),
        ("conv2d(slice(x, 1, 0, 2), kernel)", "`conv2d` cannot move a kernel f32[3,2,2,3] over f32[2,2,6,2]"),
        ("conv2d(x, kernel, 1, -1)", "the padding is -1; it must be 0 to 65536"),
        ("conv2d(x, kernel, 2, 9223372036854775807)", "the padding is 9223372036854775807; it must be 0 to 65536"),
        ("conv2d(x, kernel, 0)", "the stride is 0; it must be 1 to 65536"),
        ("conv2d(reshape(x, [14, 6, 2]), kernel)", "`conv2d` wants images: `[rows, height, width, channels]`"),
        ("conv2d(x, reshape(kernel, [6, 6]))", "a kernel of `conv2d` has four axes: `[high, wide, from, to]`"),
        ("max_pool(x, 7)", "no square of 7 by 7 is in an image of 7 by 6"),
    ];
    for (expression, message) in cases {
        assert_eq!(refused(expression), message);
    }
    assert!(refused("conv2d(x)").contains("2 to 4 arguments"));
}
