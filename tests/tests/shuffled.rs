//! `data "train.bin" shuffled`: each window once in an epoch, in one order under every layout.

use pipe_compiler::Request;
use pipe_ir::instruction::Instruction;
use pipe_ir::program::Program;
use pipe_runtime::data::Data;
use pipe_tests::cases::compile_text;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// 48 windows of 6 tokens, and a rest.
const WINDOWS: i32 = 48;
const SEQUENCE: i32 = 6;

/// Devices, schedule, microbatches and rows: 8 windows in each step.
const LAYOUTS: [(u32, &str, u32, u32); 9] = [
    (1, "gpipe", 4, 2),
    (1, "gpipe", 1, 8),
    (2, "1f1b", 8, 1),
    (2, "1f1b", 2, 4),
    (4, "zb_h1", 8, 1),
    (2, "interleaved_1f1b(chunks = 2)", 4, 2),
    (2, "v_half", 4, 2),
    (4, "chimera", 8, 1),
    (2, "seq_1f1b(slices = 2)", 8, 1),
];

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("shuffled");
    fs::create_dir_all(&folder).expect("a folder");
    let tokens = 0..u16::try_from(WINDOWS * SEQUENCE + 4).expect("few");
    fs::write(folder.join("train.bin"), tokens.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).expect("a file");
    folder
}

fn text((devices, schedule, microbatches, rows): (u32, &str, u32, u32), seed: u32) -> String {
    format!(
        "import std.models.gpt
        pipeline p {{
            model gpt(vocab = 300, hidden = 8, heads = 2, blocks = 4, sequence = {SEQUENCE}, rows = {rows})
            devices {devices} microbatches {microbatches} schedule {schedule}
            train {{ data \"train.bin\" shuffled steps 12 seed {seed} optimizer sgd(learning_rate = 0.1) }}
        }}"
    )
}

/// The tokens of a step, in the order of microbatches, as the devices load them.
fn step(program: &Program, data: &Data, step: u64) -> Vec<i32> {
    let mut rows: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
    for instruction in program.devices.iter().flat_map(|device| &device.step) {
        let Instruction::Load { value, microbatch, .. } = instruction else { continue };
        let mut bytes = vec![0; program.value(*value).bytes.to_usize()];
        data.load(step, *value, *microbatch, &mut bytes).expect("data");
        for slot in program.value(*value).tensors.iter().filter(|slot| slot.name == "tokens") {
            let own = &bytes[slot.offset.to_usize()..][..slot.ty.bytes().to_usize()];
            let own = own.chunks_exact(4).map(|token| i32::from_ne_bytes([token[0], token[1], token[2], token[3]]));
            assert!(rows.insert(microbatch.0, own.collect()).is_none(), "a microbatch comes once");
        }
    }
    rows.into_values().flatten().collect()
}

/// The tokens of two epochs.
fn tokens(layout: (u32, &str, u32, u32), seed: u32, folder: &Path) -> Vec<i32> {
    let (compilation, _) = compile_text("x.pipe", &text(layout, seed), Path::new("."), &Request::default());
    let program = compilation.program.unwrap_or_else(|| panic!("{:#?}", compilation.diagnostics));
    let data = Data::open(program.program(), folder).expect("it can be opened");
    assert!(data.identity().is_some_and(|identity| identity.ends_with(", shuffled")));
    (0..12).flat_map(|number| step(program.program(), &data, number)).collect()
}

#[test]
fn each_window_comes_once_in_an_epoch_and_in_one_order_under_every_layout() {
    let folder = folder();
    let all = tokens(LAYOUTS[0], 7, &folder);
    let epoch = (WINDOWS * SEQUENCE) as usize;
    for tokens in all.chunks(epoch) {
        let mut sorted = tokens.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..WINDOWS * SEQUENCE).collect::<Vec<_>>());
        assert!(tokens.chunks(SEQUENCE as usize).all(|row| row[0] % SEQUENCE == 0 && row[5] == row[0] + 5));
    }
    assert_ne!(all[..epoch], all[epoch..], "the second epoch has another order");
    for layout in LAYOUTS {
        assert_eq!(tokens(layout, 7, &folder), all, "{layout:?}");
    }
    assert_ne!(tokens(LAYOUTS[0], 8, &folder), all, "another seed has another order");
}
