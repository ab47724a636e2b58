//! What the GPUs of one process move when they do something together: as many bytes each, and the same bits as on one.

use crate::machine::Machine;
use crate::{losses, source};
use std::fs;

const GPUS: usize = 4;

/// A model large enough for pages of memory to be counted, on as many devices as GPUs.
fn large(line: &str) -> String {
    source("f32", 4, 4, line).replace("hidden = 16", "hidden = 64")
}

/// Bytes between GPUs in two steps: moved by each, and arrived at each. What is learned is what one GPU learns.
#[track_caller]
fn moved(machine: &Machine, peers: &str) -> [[u64; GPUS]; 2] {
    let file = machine.folder.join(format!("links-{peers}"));
    let line = "--backend cuda --steps 2 --no-cublas --checkpoint";
    let alone = machine.run(&format!("{line} alone"), &[]);
    let variables = [
        ("PIPEC_FAKE_DEVICES", "4"),
        ("PIPEC_FAKE_PEERS", peers),
        ("PIPEC_FAKE_LINKS", file.to_str().expect("a path of words")),
    ];
    let together = machine.run(&format!("{line} together"), &variables);
    assert_eq!(losses(&together), losses(&alone));
    assert!(machine.learned("together") == machine.learned("alone"), "{peers}");
    let mut all = [[0; GPUS]; 2];
    for line in fs::read_to_string(file).expect("bytes between GPUs").lines() {
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
        all[0][numbers[0] as usize] += numbers[3];
        all[1][numbers[2] as usize] += numbers[3];
    }
    all
}

#[test]
fn every_gpu_moves_its_share_of_what_a_group_does() {
    for zero in ["", "zero 1", "zero 2", "zero 3"] {
        let name = format!("share-{}", zero.replace(' ', ""));
        let Some(machine) = Machine::new(&name, &large(&format!("dp_1f1b(replicas = 4) {zero}"))) else { return };
        for all in moved(&machine, "1") {
            let [most, least] = [all.iter().max(), all.iter().min()].map(|found| *found.expect("four GPUs"));
            // Shares differ by an alignment, and bytes are counted by the page.
            assert!(least > 0 && most < least + least / 4, "{zero}: {all:?}");
        }
    }
}

/// Members give each other parts of the sequence, and tokens to their experts.
#[test]
fn every_gpu_gives_its_parts_away() {
    let text = include_str!("../../../../examples/expert_parallel.pipe")
        .replace("data \"data/shakespeare.txt\"", "data synthetic");
    let sizes = "mixture(hidden = 32, heads = 4, experts = 4, blocks = 1, sequence = 16, rows = 1)";
    let text = text.replace("model mixture()", &format!("model {sizes}")).replace("microbatches 8", "microbatches 2");
    let text = text.replace("devices 2", "devices 1").replace("tensor 2", "tensor 4");
    let Some(machine) = Machine::new("parts", &text) else { return };
    for all in moved(&machine, "1") {
        let [most, least] = [all.iter().max(), all.iter().min()].map(|found| *found.expect("four GPUs"));
        // Sums are small here, and their bytes are counted by the page; the last shares may be empty.
        assert!(least > 0 && most < 3 * least, "{all:?}");
    }
}

/// Where the others do not reach each other, the first one does it for them.
#[test]
fn a_gpu_that_all_reach_does_it_for_others() {
    for zero in ["", "zero 2"] {
        let name = format!("first-{}", zero.replace(' ', ""));
        let Some(machine) = Machine::new(&name, &large(&format!("dp_1f1b(replicas = 4) {zero}"))) else { return };
        let [by, _] = moved(&machine, "first");
        assert!(by[0] > 0, "{by:?}");
    }
}
