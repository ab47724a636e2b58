//! Sliding windows: whatever the layout, a model with them learns the same, and one as long as a row hides nothing.

use pipe_tests::layouts::{LAYOUTS, compare, learn, verified};

const SIZES: &str = "vocab = 24, hidden = 16, heads = 4, kv_heads = 2, blocks = 4, sequence = 8, rows = 2";

fn llama(settings: &str, lines: &str) -> String {
    // Pipelines side by side divide the batch.
    let microbatches = if lines.contains("data 2") { 2 } else { 4 };
    format!(
        "import std.models.llama
        pipeline p {{
            model llama({SIZES}{settings})
            microbatches {microbatches}
            precision f64
            {lines}
            train {{ data synthetic steps 20 seed 5 optimizer sgd(learning_rate = 0.5, momentum = 0.9) }}
        }}"
    )
}

#[test]
fn every_layout_sees_the_same_window() {
    let windows = ", window = 3, window_from = 1, window_every = 2";
    let one = |settings: &str| learn(&verified(&llama(settings, "devices 1 schedule gpipe")), None);
    let expected = one(windows);
    assert_ne!(one("").0, expected.0);
    assert_eq!(one("").0, one(", window = 8").0, "a window of a whole row hides nothing");
    for (settings, lines) in LAYOUTS {
        let found = learn(&verified(&llama(&format!("{windows}{settings}"), lines)), None);
        compare(lines, &expected, &found);
    }
}
