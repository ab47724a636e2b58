//! Mutation testing of the verifier as a command:
//! `cargo run --release -p pipe-tests --example mutate -- --count 100000`.

use clap::Parser;
use pipe_tests::mutation::campaign::{run, seed_of};
use pipe_tests::mutation::subjects::{Breadth, subjects};
use std::process::ExitCode;
use std::time::Instant;

/// Damages sound programs of every family in one place each. The verifier must find the damage, or
/// the program must run to its end with the same results and the stated peak. Exits with 1 if one
/// does neither.
#[derive(Parser)]
struct Arguments {
    /// Number of damaged programs.
    #[arg(long, default_value_t = 100_000)]
    count: u64,
    /// Of the campaign.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One mutant, by the seed that a campaign printed.
    #[arg(long)]
    only: Option<u64>,
    /// Only this family.
    #[arg(long)]
    family: Option<String>,
    /// Only the smallest program of each family.
    #[arg(long)]
    narrow: bool,
    /// Number of threads.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let started = Instant::now();
    let breadth = if arguments.narrow { Breadth::Narrow } else { Breadth::Wide };
    let mut sound = match subjects(breadth) {
        Ok(sound) => sound,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    sound.retain(|subject| arguments.family.as_ref().is_none_or(|family| subject.family == *family));
    if sound.is_empty() {
        eprintln!("there is no such family");
        return ExitCode::from(2);
    }
    println!("{} sound programs in {:.1} s", sound.len(), started.elapsed().as_secs_f64());
    // Panics are findings, and are told with them.
    std::panic::set_hook(Box::new(|_| {}));
    let seeds: Vec<u64> = match arguments.only {
        Some(seed) => vec![seed],
        None => (0..arguments.count).map(|number| seed_of(arguments.seed, number)).collect(),
    };
    let progress = |done: u64, wrong: u64| {
        if done.is_multiple_of(5000) {
            println!("{done} mutants in {:.0} s, {wrong} wrong", started.elapsed().as_secs_f64());
        }
    };
    let findings = run(&sound, &seeds, arguments.jobs, &progress);
    let scope = arguments.family.iter().map(|family| format!(" --family {family}"));
    let scope: String = scope.chain(arguments.narrow.then(|| " --narrow".to_owned())).collect();
    for hole in &findings.holes {
        println!("WRONG {}  again: --only {}{scope}\n", hole.text, hole.seed);
    }
    println!("{}in {:.0} s", findings.tables(), started.elapsed().as_secs_f64());
    if findings.all.wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
