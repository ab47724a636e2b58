//! Checkpoints: a resumed run learns, bit by bit, what an unbroken one does, on any layout; what is
//! no checkpoint is refused.

use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::checkpoint::{latest, resume, save, state};
use pipe_tests::pipelines::{gpt, program};
use pipe_tests::training::{Bits, bits, losses, start, steps};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 2, sequence = 5, rows = 2";

fn verified(devices: u32, schedule: &str) -> Arc<Verified> {
    Arc::new(program(&gpt(SIZES, devices, 4, schedule)).expect("accepted"))
}

/// An empty folder of this test.
fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("pipec-checkpoints-{}-{test}", std::process::id()));
    // It exists if a process with this number failed before.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    folder
}

fn learned(run: &pipe_runtime::Run) -> [Vec<Bits>; 2] {
    [ValueKind::Parameters, ValueKind::OptimizerState].map(|kind| bits(run, kind))
}

/// Saves a run of three steps. Returns the file.
fn saved(folder: &Path) -> PathBuf {
    let mut run = start(&verified(2, "1f1b"), None);
    steps(&mut run, 0..3);
    save(folder, &state(&run, 3).expect("read")).expect("saved")
}

/// What `resume` says to a file or folder.
fn refusal(program: &Arc<Verified>, from: &Path) -> String {
    let mut run = start(program, None);
    let before = learned(&run);
    let error = resume(&mut run, from).expect_err("refused").to_string();
    assert!(before == learned(&run), "a refused checkpoint leaves the run as it was");
    assert!(error.contains(&from.display().to_string()), "{error}");
    error
}

#[test]
fn a_resumed_run_learns_what_an_unbroken_one_does_on_every_layout() {
    let mut unbroken = start(&verified(2, "1f1b"), None);
    let reports = steps(&mut unbroken, 0..6);
    let folder = folder("resumed");
    saved(&folder);
    for (devices, schedule) in [(2, "1f1b"), (1, "gpipe"), (4, "zb_h1"), (2, "zb_v")] {
        let mut run = start(&verified(devices, schedule), None);
        assert_eq!(resume(&mut run, &folder).expect("fits"), 3);
        let resumed = steps(&mut run, 3..6);
        assert_eq!(losses(&resumed), losses(&reports[3..]), "{schedule} on {devices}");
        assert!(learned(&run) == learned(&unbroken), "{schedule} on {devices} learned something else");
    }
    fs::remove_dir_all(folder).expect("the folder is ours");
}

#[test]
fn what_is_no_checkpoint_of_the_model_is_refused() {
    let folder = folder("refused");
    let same = verified(2, "1f1b");
    let file = saved(&folder);
    let bytes = fs::read(&file).expect("a file");
    for length in [0, 5, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&file, &bytes[..length]).expect("written");
        assert!(refusal(&same, &file).contains("is not a checkpoint"), "cut to {length} bytes");
    }
    fs::write(&file, "{\"not\": \"safetensors\"}").expect("written");
    assert!(refusal(&same, &file).contains("is not a checkpoint"));
    fs::write(&file, &bytes).expect("written");
    let other = |sizes: &str| Arc::new(program(&gpt(sizes, 2, 4, "1f1b")).expect("accepted"));
    let wider = refusal(&other("vocab = 17, hidden = 32, heads = 2, blocks = 2, sequence = 5, rows = 2"), &file);
    assert!(wider.contains("as f32[17,16], but the program's is f32[17,32]"), "{wider}");
    let deeper = refusal(&other("vocab = 17, hidden = 16, heads = 2, blocks = 3, sequence = 5, rows = 2"), &file);
    assert!(deeper.contains("it has no tensor"), "{deeper}");
    fs::remove_dir_all(folder).expect("the folder is ours");
}

#[test]
fn leftovers_of_a_killed_save_and_other_files_are_no_checkpoints() {
    let folder = folder("leftovers");
    let same = verified(2, "1f1b");
    for name in [".step-00000009.123.partial", "step-00000008.safetensors.partial", "step-x.safetensors", "notes.txt"] {
        fs::write(folder.join(name), "half a file").expect("written");
    }
    assert!(refusal(&same, &folder).contains("there is no checkpoint"));
    assert!(refusal(&same, &folder.join("nowhere")).contains("there is no checkpoint"));
    let file = saved(&folder);
    assert_eq!(latest(&folder).expect("readable"), Some(file));
    assert_eq!(resume(&mut start(&same, None), &folder).expect("fits"), 3);
    fs::remove_dir_all(folder).expect("the folder is ours");
}

#[test]
fn the_two_checkpoints_written_last_stay_and_the_last_is_resumed() {
    let folder = folder("kept");
    let run = start(&verified(1, "1f1b"), None);
    let saved_at = |step| {
        // Further apart than the clock of any file system ticks.
        std::thread::sleep(std::time::Duration::from_millis(30));
        save(&folder, &state(&run, step).expect("read")).expect("saved")
    };
    // The second run starts anew, in the folder of a longer one.
    let files: Vec<_> = [100, 200, 300, 10, 20].into_iter().map(saved_at).collect();
    assert_eq!(latest(&folder).expect("readable").as_ref(), files.last());
    let kept: Vec<bool> = files.iter().map(|file| file.exists()).collect();
    assert_eq!(kept, [false, false, false, true, true]);
    fs::remove_dir_all(folder).expect("the folder is ours");
}
