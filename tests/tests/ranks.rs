//! Jobs of several ranks: the same losses, gradients, weights and optimizer state as one process,
//! bit for bit, in the stated memory.

use pipe_distributed::{How, Job, Lost, Rank, Settings, job_of_threads};
use pipe_ir::instruction::{Collective, Instruction};
use pipe_ir::verify::Verified;
use pipe_runtime::checkpoint::{Home, Terms, load, resume, write};
use pipe_runtime::data::Data;
use pipe_runtime::{Backend, Options, Run, RunError, StepReport};
use pipe_syntax::stdlib::SCHEDULES;
use pipe_tests::cases::report;
use pipe_tests::pipelines::{gpt, program, verified};
use pipe_tests::ranks::{held, join, on_ranks, settings, together};
use pipe_tests::slice::slice;
use pipe_tests::training::{losses, start, steps};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 6, sequence = 6, rows = 2";

/// Pipelines side by side; each takes every R-th microbatch.
const DATA_PARALLEL: &str = include_str!("../data/data_parallel.pipe");

/// Two pipelines of two devices each, with a line more.
fn replicas(line: &str) -> Arc<Verified> {
    let text = gpt(SIZES, 4, 6, "data_parallel").replace("train {", &format!("{line}\ntrain {{"));
    verified(&format!("{text}{DATA_PARALLEL}"))
}

/// The memory of every device, and how much it did.
fn memory(report: &StepReport) -> Vec<impl PartialEq + std::fmt::Debug> {
    let devices = report.devices.iter();
    devices.map(|device| (device.instructions, device.peak, device.high_water, device.host)).collect()
}

/// The first thing in which some ranks differ from one process after some steps.
fn difference(program: &Arc<Verified>, n_ranks: u32, stress: Option<u64>, n_steps: u64) -> Option<String> {
    let mut alone = start(program, None);
    let expected = steps(&mut alone, 0..n_steps);
    let ranks = on_ranks(n_ranks, |job| {
        let mut run = join(program, stress, &job);
        let reports = steps(&mut run, 0..n_steps);
        (reports, held(&run))
    });
    let (mut reports, held_by_ranks): (Vec<_>, Vec<_>) = ranks.into_iter().unzip();
    let first = reports.swap_remove(0);
    if losses(&first) != losses(&expected) {
        return Some(format!("losses {:?} and {:?}", losses(&first), losses(&expected)));
    }
    for (found, expected) in first.iter().zip(&expected) {
        if memory(found) != memory(expected) {
            return Some(format!("memory {:?} and {:?}", memory(found), memory(expected)));
        }
    }
    let pairs = held(&alone).into_iter().zip(together(held_by_ranks));
    let mut others = pairs.filter(|(one, other)| one != other);
    others.next().map(|((name, one), (_, other))| format!("{name}, on {} and {} devices", one.len(), other.len()))
}

#[test]
fn every_standard_schedule_learns_the_same_bits_over_ranks() {
    let mut failures = Vec::new();
    for (name, _) in slice(6, SCHEDULES) {
        let several = ["interleaved_1f1b", "looped_bfs", "grouped_interleaved", "interleaved_zb", "hanayo"];
        let devices = if several.contains(name) { 2 } else { 4 };
        let text = gpt(SIZES, devices, 8, name);
        let Ok(program) = program(&text).map(Arc::new) else {
            failures.push(format!("{name} on {devices} devices is rejected"));
            continue;
        };
        // As many ranks as devices, and fewer, of which some have more devices than others.
        for n_ranks in [devices, devices - 1] {
            let found = difference(&program, n_ranks, None, if program.program().n_steps > 1 { 1 } else { 2 });
            failures.extend(found.map(|found| format!("{name} on {devices} devices of {n_ranks} ranks: {found}")));
        }
    }
    report(&failures);
}

/// Lanes send to devices of other ranks, too.
#[test]
fn lanes_learn_the_same_bits_over_ranks() {
    let program = verified(include_str!("../data/lanes/experts.pipe"));
    for stress in [None, Some(3)] {
        assert_eq!(difference(&program, 2, stress, 2), None);
    }
}

#[test]
fn replicas_over_ranks_add_up_the_same_bits() {
    let mut failures = Vec::new();
    let lines = [
        "",
        "zero 1",
        "zero 2",
        "zero 3",
        "offload optimizer",
        "zero 1\n offload optimizer",
        "precision bf16 zero 3",
        "precision bf16 offload activations",
    ];
    for line in slice(3, lines) {
        let program = replicas(line);
        let n_groups = program.program().groups.len();
        assert!(n_groups > 0, "{line}");
        for (n_ranks, stress) in slice(2, [(4, None), (3, Some(5)), (2, Some(9)), (2, None), (1, None)]) {
            let found = difference(&program, n_ranks, stress, 3);
            failures.extend(found.map(|found| format!("`{line}` of {n_ranks} ranks, stress {stress:?}: {found}")));
        }
    }
    report(&failures);
}

#[test]
fn what_collectives_over_ranks_take_is_profiled() {
    let program = replicas("zero 1");
    let profiles = on_ranks(4, |job| {
        let data = Arc::new(Data::synthetic(program.program()));
        let options = Options { profile: true, ..Options::new(Backend::Cpu, 3) };
        let mut run = Run::join(Arc::clone(&program), &options, data, &job).expect("it starts");
        steps(&mut run, 0..2);
        (run.profile(), run.whole_profile().expect("all are well"))
    });
    let whole = &profiles[0].1.entries;
    for collective in Collective::ALL {
        let is_meant =
            |one: &&Instruction| matches!(one, Instruction::CollStart { collective: own, .. } if *own == collective);
        let started: usize =
            program.program().devices.iter().map(|code| code.step.iter().filter(is_meant).count()).sum();
        // Two steps, and each is of two devices.
        assert_eq!(whole.get(collective.word()).map_or(0, |entry| entry.count), started as u64, "{collective:?}");
    }
    let gemms = whole["gemm"].count;
    assert!(gemms > 0 && profiles.iter().all(|(own, _)| own.entries["gemm"].count < gemms));
}

#[test]
fn the_first_rank_has_the_times_of_all_devices() {
    let program = verified(&gpt(SIZES, 4, 4, "1f1b"));
    let reports = on_ranks(4, |job| {
        let data = Arc::new(Data::synthetic(program.program()));
        let options = Options { trace: true, ..Options::new(Backend::Cpu, 3) };
        let mut run = Run::join(Arc::clone(&program), &options, data, &job).expect("it starts");
        steps(&mut run, 0..3)
    });
    for step in &reports[0] {
        assert!(step.devices.iter().all(|device| device.spans.len() == 9), "4 forwards, 4 backwards, an update");
        assert!(step.devices.iter().flat_map(|device| &device.spans).all(|span| span.end <= step.wall), "{step:?}");
    }
}

fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ranks-{test}"));
    // It exists if the test failed before.
    drop(fs::remove_dir_all(&folder));
    folder
}

/// Trains over some ranks from the newest checkpoint of a folder, if there is one, and saves. The
/// index, and the losses.
fn train(
    program: &Arc<Verified>,
    n_ranks: u32,
    folder: &Path,
    to: u64,
) -> (PathBuf, Vec<Vec<(pipe_ir::ids::MicrobatchId, u64)>>) {
    let mut of_ranks = on_ranks(n_ranks, |job| {
        let mut run = join(program, None, &job);
        let first = if folder.exists() { resume(&mut run, folder).expect("it fits") } else { 0 };
        job.any(true).expect("all have looked");
        let reports = steps(&mut run, first..to);
        let home = Home::take(folder, Some(&job), &Terms::default()).expect("nobody has it");
        (write(&run, to, &home).expect("saved"), losses(&reports))
    });
    of_ranks.swap_remove(0)
}

#[test]
fn checkpoints_of_several_ranks_fit_every_other_number_of_them() {
    let (plain, divided, shared) = (replicas(""), replicas("zero 1"), replicas("zero 3"));
    let mut unbroken = start(&plain, None);
    let expected = losses(&steps(&mut unbroken, 0..7));
    let folder = folder("resumed");
    // Each goes on from what the one before it saved, on other ranks, and with state that is
    // divided among replicas or is not.
    for (number, (program, n_ranks)) in
        [(&divided, 4), (&plain, 2), (&divided, 3), (&shared, 4), (&shared, 2), (&plain, 4)].into_iter().enumerate()
    {
        let (saved, losses) = train(program, n_ranks, &folder, number as u64 + 1);
        assert_eq!(losses, expected[number..=number], "step {number} on {n_ranks} ranks");
        assert!(saved.display().to_string().ends_with(".index.json"));
    }
    let mut alone = start(&plain, None);
    assert_eq!(resume(&mut alone, &folder).expect("it fits"), 6);
    assert_eq!(losses(&steps(&mut alone, 6..7)), expected[6..]);
    // The two newest ones, with their files.
    let mut names: Vec<_> =
        fs::read_dir(&folder).expect("it exists").map(|entry| entry.expect("listed").file_name()).collect();
    names.sort();
    let shards =
        |step: &str| names.iter().filter(|name| name.to_string_lossy().starts_with(&format!("{step}.shard-"))).count();
    // Ranks whose devices have only what others save write nothing. The last owner's file stays.
    assert_eq!((names.len(), shards("step-00000005"), shards("step-00000006")), (2 + 2 + 2 + 1, 2, 2), "{names:?}");
}

#[test]
fn a_checkpoint_with_a_damaged_file_is_refused() {
    let folder = folder("damaged");
    let (index, _) = train(&replicas("zero 1"), 4, &folder, 1);
    let whole = load(&index).expect("it is whole");
    assert_eq!(whole.step, 1);
    let names: Vec<String> = fs::read_dir(&folder)
        .expect("it exists")
        .map(|entry| entry.expect("listed").file_name().to_string_lossy().into_owned())
        .collect();
    let shard = folder.join(names.iter().find(|name| name.contains("shard-2-of-4")).expect("of rank 2"));
    let bytes = fs::read(&shard).expect("a file");
    fs::write(&shard, &bytes[..bytes.len() / 2]).expect("written");
    assert!(load(&index).expect_err("cut").to_string().contains("is not a checkpoint"));
    assert!(load(&shard).expect_err("cut").to_string().contains("is not a checkpoint"));
    fs::write(&shard, &bytes).expect("written");
    assert!(load(&shard).expect_err("a part").to_string().contains("its index names all parts"));
    fs::remove_file(&shard).expect("it exists");
    assert!(load(&index).expect_err("a file is missing").to_string().contains("shard-2-of-4"));
    fs::write(&shard, &bytes).expect("written");
    let text = fs::read_to_string(&index).expect("text");
    let broken = [
        (text.replace("\"step\": 1", "\"step\": 2"), "is damaged: it has the checksum"),
        (text.replace("pipec.checkpoint.index/2", "pipec.checkpoint.index/9"), "its format is"),
        (text.replace("step-00000001.shard-", "../step-00000001.shard-"), "is not a file of a checkpoint"),
        (
            text.lines().filter(|line| !line.contains("shard-2-of-4")).collect::<String>().replace(",  }", "}"),
            "is damaged: it has the checksum",
        ),
    ];
    for (text, why) in broken {
        fs::write(&index, text).expect("written");
        let found = load(&index).expect_err(why).to_string();
        assert!(found.contains(why), "{why}: {found}");
    }
}

#[test]
fn a_rank_that_cannot_save_fails_all_of_them_and_loses_nothing() {
    let program = verified(&gpt(SIZES, 4, 4, "1f1b"));
    let folder = folder("unsaved");
    train(&program, 2, &folder, 1);
    let other = folder.join("other");
    let errors = on_ranks(2, |job| {
        let mut run = join(&program, None, &job);
        steps(&mut run, 0..1);
        let own = if job.is_first() { &folder } else { &other };
        let home = Home::take(own, Some(&job), &Terms::default()).expect("both are there");
        if !job.is_first() {
            fs::remove_dir(&other).expect("it is empty");
            fs::write(&other, "not a folder").expect("written");
        }
        write(&run, 1, &home).expect_err("one rank cannot").to_string()
    });
    assert!(errors.iter().all(|error| error.contains("rank 1: ") && error.contains("other")), "{errors:?}");
    // Nor does one that cannot from the beginning let the others begin.
    let errors = on_ranks(2, |job| {
        let own = if job.is_first() { &folder } else { &other };
        Home::take(own, Some(&job), &Terms::default()).err().map(|error| error.to_string())
    });
    assert!(errors[0].as_ref().is_some_and(|error| error.contains("rank 1: ")), "{errors:?}");
    assert!(errors[1].as_ref().is_some_and(|error| error.contains("other")), "{errors:?}");
    let mut alone = start(&program, None);
    assert_eq!(resume(&mut alone, &folder).expect("it is as it was"), 1);
    drop(Home::take(&folder, None, &Terms::default()).expect("nobody has it"));
    let is_shard = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().contains(".shard-");
    let left = fs::read_dir(&folder).expect("it exists").map(|entry| entry.expect("listed")).filter(is_shard).count();
    assert_eq!(left, 2, "what the failed save had written is gone");
}

#[test]
fn a_job_is_one_owner_of_its_folder() {
    let folder = folder("owner");
    let alone = Home::take(&folder, None, &Terms::default()).expect("nobody has it");
    let take = |job: &Job| Home::take(&folder, Some(job), &Terms::default());
    let errors = on_ranks(2, |job| take(&job).err().map(|error| error.to_string()).unwrap_or_default());
    assert!(
        errors.iter().all(|error| error.contains(" belongs to run ") && error.contains("still runs")),
        "{errors:?}"
    );
    assert!(errors[1].starts_with("rank 0: "), "{errors:?}");
    drop(alone);
    on_ranks(2, |job| {
        let home = take(&job).expect("it was let go");
        // The others have it as long as the first one has, and no other job has it.
        assert!(job.any(!job.is_first()).expect("all are well"));
        if job.is_first() {
            let refused = Home::take(&folder, None, &Terms::default()).err().expect("refused").to_string();
            assert!(refused.contains(" belongs to run "), "{refused}");
        }
        job.any(true).expect("all are well");
        drop(home);
    });
}

#[test]
fn more_ranks_than_devices_are_refused() {
    let program = verified(&gpt(SIZES, 2, 4, "1f1b"));
    let errors = on_ranks(3, |job| {
        let data = Arc::new(Data::synthetic(program.program()));
        Run::join(Arc::clone(&program), &Options::new(Backend::Cpu, 3), data, &job).err().map(|error| error.to_string())
    });
    let told = "3 ranks cannot divide 2 devices: every rank needs at least one, so start no more than 2";
    assert!(errors.iter().all(|error| error.as_deref() == Some(told)), "{errors:?}");
}

#[test]
fn a_rank_that_cannot_go_on_ends_the_steps_of_all() {
    let program = verified(&gpt(SIZES, 4, 4, "1f1b"));
    let errors = on_ranks(4, |job| {
        let mut run = join(&program, None, &job);
        steps(&mut run, 0..1);
        job.any(false).expect("all are well");
        let error = if job.rank().0 == 2 {
            job.fail("it has no more");
            None
        } else {
            (1..100).find_map(|step| run.step(step).err())
        };
        drop(run);
        job.part(true);
        error
    });
    for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != 2) {
        let found =
            matches!(error, Some(RunError::Remote { rank, message }) if rank.0 == 2 && message == "it has no more");
        assert!(found, "rank {rank}: {error:?}");
    }
}

#[test]
fn a_rank_that_falls_silent_is_told_once_with_what_it_was_doing() {
    let program = verified(&gpt(SIZES, 3, 4, "1f1b"));
    // A launcher that asks the others to end gives them no time for the whole timeout.
    for (stall, is_hurried) in [(2, false), (60, true)] {
        let told = lose(&program, Duration::from_secs(stall), is_hurried);
        let is_told = matches!(&told[..], [lost] if matches!(&lost[..],
            [Lost { rank: Rank(1), how: How::Silent(_), positions, .. }] if positions.len() == 1));
        assert!(is_told, "{told:?}");
    }
}

/// What is told of three ranks, of which the second falls silent.
fn lose(program: &Arc<Verified>, stall: Duration, is_hurried: bool) -> Vec<Vec<Lost>> {
    let told: Arc<Mutex<Vec<Vec<Lost>>>> = Arc::default();
    let settings = |rank: Rank| {
        let known = Arc::clone(&told);
        let lost = move |lost: &[Lost]| known.lock().expect("no rank panics").push(lost.to_vec());
        let stall = if rank.0 == 1 { Duration::from_secs(60) } else { stall };
        Settings { stall, lost: Arc::new(lost), ..settings() }
    };
    let mut jobs = job_of_threads(3, settings);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let silent = jobs.remove(1);
        let hurries: Vec<_> = jobs.iter().map(Job::hurry).collect();
        let others: Vec<_> = jobs.into_iter().map(|job| scope.spawn(|| outlive(program, job))).collect();
        let mut run = join(program, None, &silent);
        steps(&mut run, 0..1);
        // Its place is told some times a second.
        std::thread::sleep(Duration::from_millis(500));
        // It ends without a word, as if it were killed.
        std::mem::forget(run);
        silent.vanish();
        if is_hurried {
            hurries.iter().for_each(|hurry| hurry());
        }
        for other in others {
            assert!(matches!(other.join().expect("no rank panics"), RunError::Remote { rank, .. } if rank.0 == 1));
        }
    });
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    told.lock().expect("no rank panics").clone()
}

/// Takes steps until that fails.
fn outlive(program: &Arc<Verified>, job: Job) -> RunError {
    let mut run = join(program, None, &job);
    let error = (0..).find_map(|step| run.step(step).err()).expect("a rank is lost");
    drop(run);
    drop(job);
    error
}
