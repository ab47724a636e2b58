//! What `reorder` does to a block with a model: no device saves more bytes of activations than in the order
//! of the block. Messages on their way, at most two in each of the four channels of a device, are beside
//! that.

use pipe_compiler::Request;
use pipe_syntax::stdlib;
use pipe_tests::cases::compiled;
use pipe_tests::slice::slice;

/// By device: the most bytes of activations. And the makespan.
fn measured(schedule: &str, model: &str, settings: &str, reorders: bool) -> (Vec<u64>, f64) {
    let text = stdlib::schedule(schedule)
        .expect("a standard schedule")
        .replace(&format!("schedule {schedule} "), "schedule own ");
    let text = if reorders { text } else { text.replace("    reorder\n", "") };
    let text = format!(
        "import std.models.gpt\n\npipeline small {{\n    model gpt({model})\n    {settings}\n    schedule own\n}}\n\n{text}"
    );
    let compilation = compiled("small.pipe", &text, &Request::default());
    assert!(compilation.program.is_some(), "{schedule} {settings}: {:?}", compilation.diagnostics);
    let bytes = compilation.report.per_device.iter().map(|device| device.peak_activation_bytes.expect("a model"));
    (bytes.collect(), compilation.report.figures.makespan.expect("it was timed"))
}

#[test]
fn no_device_saves_more_bytes_than_in_the_order_of_the_block() {
    // With the bytes of a message between stages.
    let models = [
        ("vocab = 256, hidden = 128, heads = 4, blocks = 8, sequence = 128, rows = 4", 128 * 128 * 4 * 4),
        ("vocab = 2000, hidden = 16, heads = 2, blocks = 8, sequence = 16, rows = 2", 16 * 16 * 2 * 4),
        ("vocab = 16, hidden = 64, heads = 2, blocks = 10, sequence = 8, rows = 1", 64 * 8 * 4),
    ];
    let settings = [
        "devices 4\n    microbatches 8",
        "devices 3\n    microbatches 11",
        "devices 4\n    microbatches 9\n    recompute all",
    ];
    let (mut shorter, mut all) = (0, 0);
    for schedule in ["v_min", "v_half", "v_zb", "zb_v"] {
        for (model, message) in slice(2, models) {
            for settings in settings {
                let (plain, before) = measured(schedule, model, settings, false);
                let (better, after) = measured(schedule, model, settings, true);
                let holds_no_more = better.iter().zip(&plain).all(|(better, plain)| *better <= plain + 8 * message);
                assert!(holds_no_more && after <= before, "{schedule} {model} {settings}: {better:?}, {plain:?}");
                shorter += u32::from(after < before);
                all += 1;
            }
        }
    }
    assert!(2 * shorter > all, "{shorter} of {all}");
}
