//! Transfers between two processes: what a program's take, against a plain ping-pong of the same MPI library.
//!
//! `cargo bench -p pipe-benches --features mpi --bench links`; for two hosts,
//! `PIPEC_MPIRUN="mpirun --host a,b"` before it.

use mpi::traits::{Communicator, Destination, Source};
use pipe_distributed::{Lost, Rank, Settings};
use pipe_ir::units::Bytes;
use pipe_runtime::calibrate::{median, rank_link};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// From a kibibyte to 64 MiB.
const SIZES: [usize; 9] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26];

/// Rounds of a size: some megabytes in all, or some of the largest.
fn rounds(bytes: usize) -> u32 {
    u32::try_from((1 << 28) / bytes).unwrap_or(u32::MAX).clamp(11, 1001)
}

/// Half of there and back again by blocking calls on the main thread.
fn plain() {
    let universe = mpi::initialize().expect("MPI starts");
    let world = universe.world();
    let other = world.process_at_rank(1 - world.rank());
    for bytes in SIZES {
        let mut buffer = vec![1_u8; bytes];
        let mut times = Vec::new();
        for _ in 0..=rounds(bytes) {
            let started = Instant::now();
            if world.rank() == 0 {
                other.send(&buffer[..]);
                other.receive_into(&mut buffer[..]);
            } else {
                other.receive_into(&mut buffer[..]);
                other.send(&buffer[..]);
            }
            times.push(started.elapsed());
        }
        if world.rank() == 0 {
            println!("{bytes} {}", (median(times.split_off(1)) / 2).as_nanos());
        }
    }
}

/// The same by the queues of a program.
fn program() {
    let (lost, cut) = (Arc::new(|_: &[Lost]| {}), Arc::new(|_: &str| {}));
    let away = Arc::new(|stood: Duration| eprintln!("this process stood still for {stood:?}"));
    let end = Arc::new(|| std::process::exit(1));
    let settings = Settings { stall: Duration::from_secs(60), lost, cut, away, end };
    let job = pipe_mpi::join(settings).expect("mpirun started two processes");
    for bytes in SIZES {
        let time = rank_link(&job, [Rank(0), Rank(1)], Bytes(bytes as u64), rounds(bytes)).expect("both ranks live");
        if job.is_first() {
            println!("{bytes} {}", time.as_nanos());
        }
    }
}

/// What two processes say, by size, in nanoseconds.
fn measure(mode: &str) -> Vec<(u64, f64)> {
    let words = std::env::var("PIPEC_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned());
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("mpirun"));
    command.args(words).args(["-n", "2"]).arg(std::env::current_exe().expect("this file")).arg(mode);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = command.env("OMPI_MCA_rmaps_base_oversubscribe", "1").output().expect("mpirun starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = text.lines().filter_map(|line| {
        let (bytes, nanos) = line.split_once(' ')?;
        Some((bytes.parse().ok()?, nanos.parse().ok()?))
    });
    rows.collect()
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("plain") => return plain(),
        Some("program") => return program(),
        _ => {}
    }
    println!("one way between two processes, half the median of there and back again\n");
    println!(
        "{:>10} {:>14} {:>9} {:>14} {:>9} {:>8}",
        "bytes", "plain MPI, us", "GB/s", "pipec, us", "GB/s", "reached"
    );
    for ((bytes, plain), (_, own)) in measure("plain").into_iter().zip(measure("program")) {
        let rate = |nanos: f64| bytes as f64 / nanos.max(1.0);
        let size = Bytes(bytes).to_string();
        let (us, own_us) = (plain / 1e3, own / 1e3);
        println!(
            "{size:>10} {us:>14.1} {:>9.2} {own_us:>14.1} {:>9.2} {:>7.0}%",
            rate(plain),
            rate(own),
            100.0 * plain / own.max(1.0)
        );
    }
}
