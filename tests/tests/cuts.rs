//! `cut`: stages have the layers that the pipeline gives them, and learn the same, to the last bit.

use pipe_ir::value::ValueKind;
use pipe_tests::pipelines::{gpt, in_precision, verified};
use pipe_tests::training::learn;

/// Eight layers: an embedding, six blocks and a head.
const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 6, sequence = 8, rows = 2";

fn text(devices: u32, schedule: &str, cut: &str) -> String {
    in_precision("f64", &gpt(SIZES, devices, 5, &format!("{schedule}\n    cut {cut}")))
}

#[test]
fn a_cut_changes_who_computes_and_not_what_is_learnt() {
    let alone = learn(&verified(&text(1, "1f1b", "[D * 8]")), None);
    for (devices, schedule, cut) in [
        (4, "1f1b", "auto"),
        (4, "1f1b", "[3, 2, 2, 1]"),
        (4, "zb_h1", "[1, 1, 1, 5]"),
        (2, "v_half", "[if k == 0 then 5 else 1 for k in 0..2 * D]"),
    ] {
        let there = learn(&verified(&text(devices, schedule, cut)), Some(7));
        assert!(there == alone, "{schedule} on {devices} devices, cut {cut}");
    }
}

#[test]
fn weights_live_where_the_cut_puts_them() {
    let layers_of = |cut: &str| {
        let program = verified(&text(4, "1f1b", cut));
        let weights = program.program().values.iter().filter(|value| value.kind == ValueKind::Parameters);
        let mut layers = vec![std::collections::BTreeSet::new(); 4];
        for value in weights {
            let stage = value.stage.index();
            let numbers = value.tensors.iter().filter_map(|tensor| tensor.name.split('.').next());
            layers[stage].extend(numbers.map(str::to_owned));
        }
        layers.iter().map(|layers| layers.len()).collect::<Vec<_>>()
    };
    assert_eq!(layers_of("[3, 2, 2, 1]"), [3, 2, 2, 1]);
    assert_eq!(layers_of("[1, 2, 2, 3]"), [1, 2, 2, 3]);
    assert_eq!(layers_of("auto").iter().sum::<usize>(), 8);
}
