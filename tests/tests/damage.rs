//! Checkpoints that are not what was saved: every bit that flips, every length, shards of other
//! saves, other models, optimizers and data.
//!
//! `PIPEC_FLIPS=1000000` before the command tries so many bits of the numbers of a file, instead of
//! 3,000, beside all bits of its header, and so many of an index and of a shard, instead of 300.

use pipe_ir::value::ValueKind;
use pipe_ir::verify::Verified;
use pipe_runtime::Run;
use pipe_runtime::checkpoint::{
    Aspect, CheckpointError, Home, Resumption, Terms, from_bytes, load, resume, resume_as, save, state, write,
};
use pipe_runtime::random::mix;
use pipe_tests::pipelines::program;
use pipe_tests::ranks::{join, on_ranks};
use pipe_tests::training::{bits, losses, start, steps};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const ADAMW: &str = "adamw(learning_rate = 0.001, beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1)";
const MOMENTUM: &str = "sgd(learning_rate = 0.001, momentum = 0.9)";

/// A small pipeline; `bend` is an operation of one number.
fn pipeline(bend: &str, optimizer: &str, schedule: &str, seed: u32) -> Arc<Verified> {
    let text = format!(
        "layer start(rows) {{
            data tokens: i32[rows, 4]
            weight table: [11, 8] = normal(0.1)
            output gather(table, tokens)
        }}
        layer middle() {{
            input x
            weight w: [8, 8] = normal(0.1)
            output {bend}(matmul(x, w)) + x
        }}
        layer finish(rows) {{
            input x
            weight up: [8, 11] = normal(0.1)
            data targets: i32[rows, 4]
            loss cross_entropy(matmul(x, up), targets)
        }}
        model net(rows = 2) {{ start(rows) repeat 2 {{ middle() }} finish(rows) }}
        pipeline test {{
            model net()
            {schedule}
            train {{ data synthetic steps 10 seed {seed} optimizer {optimizer} }}
        }}"
    );
    Arc::new(program(&text).unwrap_or_else(|why| panic!("{text}: {why}")))
}

const TWO: &str = "devices 2 memory 1GiB microbatches 4 schedule 1f1b";

fn usual() -> Arc<Verified> {
    pipeline("tanh", ADAMW, TWO, 7)
}

/// An empty folder of a test.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("damage-{test}"));
    // It exists if the test failed before.
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Saves after so many steps, one second after the other: the order of files is that of their times.
fn saved(folder: &Path, after: &[u64]) -> Vec<PathBuf> {
    let mut run = start(&usual(), None);
    let mut done = 0;
    let save_at = |step: &u64| {
        steps(&mut run, done..*step);
        done = *step;
        std::thread::sleep(Duration::from_millis(30));
        save(folder, &state(&run, *step).expect("read")).expect("saved")
    };
    after.iter().map(save_at).collect()
}

/// Saves after a step on several ranks.
fn saved_by_ranks(folder: &Path, step: u64) -> PathBuf {
    let program = usual();
    let mut paths = on_ranks(2, |job| {
        let mut run = join(&program, None, &job);
        steps(&mut run, 0..step);
        let home = Home::take(folder, Some(&job), &Terms::default()).expect("nobody has it");
        write(&run, step, &home).expect("saved")
    });
    paths.swap_remove(0)
}

/// How many bits are tried, unless it is said.
fn flips(unless_said: u64) -> u64 {
    let flips = std::env::var("PIPEC_FLIPS").ok();
    flips.map_or(unless_said, |flips| flips.parse().expect("`PIPEC_FLIPS` is a number"))
}

/// Positions of bits: all of what comes before the numbers of a safetensors file, and some of these.
fn positions(bytes: &[u8]) -> Vec<usize> {
    let length: [u8; 8] = bytes[..8].try_into().expect("8 bytes");
    let header = 8 * (8 + u64::from_le_bytes(length) as usize);
    let numbers = 8 * bytes.len() - header;
    let flips = flips(3_000);
    let some = (0..flips.min(numbers as u64)).map(|index| match flips >= numbers as u64 {
        true => header + index as usize,
        false => header + (mix(17, index) % numbers as u64) as usize,
    });
    (0..header).chain(some).collect()
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[bit / 8] ^= 1 << (bit % 8);
    bytes
}

fn learned(run: &Run) -> [Vec<pipe_tests::training::Bits>; 2] {
    [ValueKind::Parameters, ValueKind::OptimizerState].map(|kind| bits(run, kind))
}

/// What is said to a checkpoint that is refused; the run stays as it was.
fn refusal(program: &Arc<Verified>, from: &Path, how: &Resumption) -> CheckpointError {
    let mut run = start(program, None);
    let before = learned(&run);
    let error = resume_as(&mut run, from, how).expect_err("refused");
    assert!(before == learned(&run), "a refused checkpoint leaves the run as it was");
    error
}

#[test]
fn no_flipped_bit_and_no_cut_of_a_file_is_accepted() {
    let folder = folder("flips");
    let file = saved(&folder, &[1]).remove(0);
    let bytes = fs::read(&file).expect("a file");
    let whole = from_bytes(&bytes).expect("it is sound");
    assert!(whole.is_verified);
    let positions = positions(&bytes);
    let accepted: Vec<usize> =
        positions.iter().copied().filter(|bit| from_bytes(&flipped(&bytes, *bit)).is_ok()).collect();
    println!("one file: {} bits tried, {} accepted", positions.len(), accepted.len());
    assert!(accepted.is_empty(), "{accepted:?} of {} bits", positions.len());
    let cuts = (0..bytes.len()).filter(|length| from_bytes(&bytes[..*length]).is_ok()).count();
    println!("one file: {} lengths tried, {cuts} accepted", bytes.len());
    assert_eq!(cuts, 0);
    // The same through a run.
    for bit in [8 * bytes.len() - 9, 8 * bytes.len() / 2] {
        fs::write(&file, flipped(&bytes, bit)).expect("written");
        let error = refusal(&usual(), &folder, &Resumption::default()).to_string();
        assert!(error.contains("is damaged: the numbers of `"), "{error}");
        assert!(error.contains("no checkpoint before it is sound"), "{error}");
    }
}

#[test]
fn no_flipped_bit_of_an_index_or_a_shard_is_accepted() {
    let folder = folder("shards");
    let index = saved_by_ranks(&folder, 1);
    assert!(load(&index).expect("it is whole").is_verified);
    let listed = fs::read_dir(&folder).expect("it exists").map(|entry| entry.expect("listed").path());
    let files: Vec<PathBuf> = listed.filter(|path| path.display().to_string().contains(".shard-")).collect();
    assert_eq!(files.len(), 2);
    for path in [&index, &files[0]] {
        let bytes = fs::read(path).expect("a file");
        let every = (8 * bytes.len()).div_ceil(flips(300) as usize);
        let positions: Vec<usize> = (0..8 * bytes.len()).step_by(every).collect();
        let is_accepted = |bit: &&usize| {
            fs::write(path, flipped(&bytes, **bit)).expect("written");
            load(&index).is_ok()
        };
        let accepted: Vec<&usize> = positions.iter().filter(is_accepted).collect();
        println!("{}: {} bits tried, {} accepted", path.display(), positions.len(), accepted.len());
        assert!(accepted.is_empty(), "{}: {accepted:?} of {}", path.display(), positions.len());
        fs::write(path, bytes).expect("written");
    }
    assert!(load(&index).is_ok());
}

#[test]
fn shards_of_another_save_are_refused() {
    let (one, other) = (folder("mixed-1"), folder("mixed-2"));
    let (index, _) = (saved_by_ranks(&one, 1), saved_by_ranks(&other, 2));
    // The same step, saved anew from the same seed but after another number of steps: only the numbers differ.
    let program = usual();
    let third = folder("mixed-3");
    on_ranks(2, |job| {
        let mut run = join(&program, None, &job);
        steps(&mut run, 0..2);
        let home = Home::take(&third, Some(&job), &Terms::default()).expect("nobody has it");
        write(&run, 1, &home).expect("saved");
    });
    let shard = |folder: &Path, rank: u32| {
        let mut listed = fs::read_dir(folder).expect("it exists").map(|entry| entry.expect("listed").path());
        listed.find(|path| path.display().to_string().contains(&format!("shard-{rank}-"))).expect("a shard")
    };
    let (own, next) = (shard(&one, 0), shard(&one, 1));
    let sound = fs::read(&own).expect("a file");
    for from in [shard(&other, 0), shard(&third, 0), next] {
        fs::copy(&from, &own).expect("copied");
        let error = load(&index).expect_err("mixed").to_string();
        assert!(error.contains("not of the same save as its index"), "{}: {error}", from.display());
    }
    fs::write(&own, sound).expect("written");
    assert!(load(&index).is_ok());
}

#[test]
fn ranks_refuse_together_what_one_of_them_finds_damaged() {
    let folder = folder("together");
    let index = saved_by_ranks(&folder, 1);
    std::thread::sleep(Duration::from_millis(30));
    let newest = saved_by_ranks(&folder, 2);
    let listed = fs::read_dir(&folder).expect("it exists").map(|entry| entry.expect("listed").path());
    let shard = listed.filter(|path| path.display().to_string().contains("step-00000002.shard-1")).last();
    let shard = shard.expect("of rank 1");
    let mut bytes = fs::read(&shard).expect("a file");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(&shard, bytes).expect("written");
    let program = usual();
    let errors = on_ranks(2, |job| {
        let mut run = join(&program, None, &job);
        resume(&mut run, &folder).expect_err("damaged").to_string()
    });
    for error in &errors {
        assert!(error.contains("is damaged: the numbers of `"), "{errors:?}");
        assert!(error.ends_with(&format!("that is sound is {}", index.display())), "{errors:?}");
    }
    let how = Resumption { skips_damaged: true, ..Resumption::default() };
    let resumed = on_ranks(2, |job| {
        let mut run = join(&program, None, &job);
        resume_as(&mut run, &folder, &how).expect("the one before it")
    });
    assert!(resumed.iter().all(|resumed| resumed.step == 1 && resumed.path == index), "{resumed:?}");
    assert!(newest.exists());
}

#[test]
fn the_newest_sound_checkpoint_is_named_and_taken_if_asked_for() {
    let folder = folder("sound");
    let files = saved(&folder, &[1, 2]);
    let mut bytes = fs::read(&files[1]).expect("a file");
    *bytes.last_mut().expect("not empty") ^= 0x40;
    fs::write(&files[1], bytes).expect("written");
    for from in [&folder, &files[1]] {
        match refusal(&usual(), from, &Resumption::default()) {
            CheckpointError::Damaged { sound, .. } => assert_eq!(sound.as_ref(), Some(&files[0])),
            error => panic!("{error}"),
        }
    }
    let mut run = start(&usual(), None);
    let how = Resumption { skips_damaged: true, ..Resumption::default() };
    let resumed = resume_as(&mut run, &folder, &how).expect("the one before it");
    assert_eq!((resumed.step, &resumed.path), (1, &files[0]));
    assert!(resumed.notes.iter().any(|note| note.ends_with("it is skipped")), "{:?}", resumed.notes);
    let mut unbroken = start(&usual(), None);
    let expected = losses(&steps(&mut unbroken, 0..3));
    assert_eq!(losses(&steps(&mut run, 1..3)), expected[1..]);
}

#[test]
fn another_model_optimizer_or_other_data_are_refused_and_another_schedule_is_not() {
    let folder = folder("foreign");
    saved(&folder, &[2]);
    let aspects = |error: CheckpointError| match error {
        CheckpointError::Foreign { differences, .. } => {
            differences.into_iter().map(|difference| difference.aspect).collect::<Vec<_>>()
        }
        error => panic!("{error}"),
    };
    let (model, optimizer) = (pipeline("relu", ADAMW, TWO, 7), pipeline("tanh", MOMENTUM, TWO, 7));
    let nothing = Resumption::default();
    assert_eq!(aspects(refusal(&model, &folder, &nothing)), [Aspect::Model]);
    assert_eq!(aspects(refusal(&optimizer, &folder, &nothing)), [Aspect::Optimizer]);
    let both = pipeline("relu", MOMENTUM, TWO, 7);
    assert_eq!(aspects(refusal(&both, &folder, &nothing)), [Aspect::Model, Aspect::Optimizer]);
    let despite = |aspect| Resumption { despite: [aspect].into(), ..Resumption::default() };
    assert_eq!(aspects(refusal(&both, &folder, &despite(Aspect::Model))), [Aspect::Optimizer]);
    let resumed = resume_as(&mut start(&model, None), &folder, &despite(Aspect::Model)).expect("accepted");
    assert!(resumed.notes.iter().any(|note| note.contains("another model")), "{:?}", resumed.notes);
    // Weights alone: no step is done, and the optimizer has no state.
    let mut run = start(&optimizer, None);
    let fresh = bits(&run, ValueKind::OptimizerState);
    let weights_only = Resumption { weights_only: true, ..Resumption::default() };
    assert_eq!(resume_as(&mut run, &folder, &weights_only).expect("accepted").step, 0);
    let mut saver = start(&usual(), None);
    steps(&mut saver, 0..2);
    assert!(bits(&run, ValueKind::Parameters) == bits(&saver, ValueKind::Parameters));
    assert!(bits(&run, ValueKind::OptimizerState) == fresh);
    // What may change: learning rate, betas, schedule, devices, microbatches, rows. Another seed is said.
    let slower = ADAMW.replace("0.001", "0.5").replace("0.95", "0.99");
    let four = "devices 4 memory 1GiB microbatches 6 schedule gpipe";
    for changed in [pipeline("tanh", &slower, TWO, 7), pipeline("tanh", ADAMW, four, 7)] {
        let resumed = resume_as(&mut start(&changed, None), &folder, &nothing).expect("the same model");
        assert_eq!((resumed.step, resumed.notes), (2, Vec::new()));
    }
    let resumed = resume_as(&mut start(&pipeline("tanh", ADAMW, TWO, 8), None), &folder, &nothing).expect("accepted");
    assert!(resumed.notes[0].contains("with the seed 7, and this run has 8"), "{:?}", resumed.notes);
}

/// A file as versions before checksums wrote it.
fn without_checksums(bytes: &[u8]) -> Vec<u8> {
    let length: [u8; 8] = bytes[..8].try_into().expect("8 bytes");
    let end = 8 + u64::from_le_bytes(length) as usize;
    let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..end]).expect("JSON");
    let text = header["__metadata__"]["pipec"].as_str().expect("text");
    let own: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let old = serde_json::json!({"format": "pipec.checkpoint/1", "step": own["step"], "seed": own["seed"]});
    header["__metadata__"]["pipec"] = old.to_string().into();
    let mut header = header.to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes(), header.as_slice(), &bytes[end..]].concat()
}

#[test]
fn checkpoints_without_checksums_are_resumed_and_said_to_be_unverified() {
    let folder = folder("old");
    let file = saved(&folder, &[2]).remove(0);
    let bytes = fs::read(&file).expect("a file");
    fs::write(&file, without_checksums(&bytes)).expect("written");
    let (mut run, mut other) = (start(&usual(), None), start(&pipeline("relu", ADAMW, TWO, 7), None));
    let resumed = resume_as(&mut run, &folder, &Resumption::default()).expect("it fits");
    assert_eq!(resumed.step, 2);
    let said = format!("{} has no checksums, so it could not be verified that it is as it was saved", file.display());
    assert_eq!(resumed.notes, [said]);
    assert_eq!(resume(&mut other, &folder).expect("nothing says that it is another model"), 2);
    // One that an earlier version wrote.
    let seed = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/checkpoint/model.safetensors");
    let old = load(Path::new(seed)).expect("a checkpoint");
    assert!(!old.is_verified);
    assert_eq!(old.origin, Default::default());
}
