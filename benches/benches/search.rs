//! What `pipec search` finds, beside what others published and what must be reached. Prints the
//! table of `docs/search/reaches.md`.
//!
//! `cargo bench -p pipe-benches --bench search -- --time 10 zb tessel` gives each case 10 seconds,
//! and takes only those whose part of the table or name has one of the words. `-- survey` prints
//! another table: Vs at unit cost in every memory.

use pipe_benches::searches::{Answer, Case, Figure, cases, survey};
use std::process::ExitCode;
use std::time::Duration;

/// What the arguments ask for.
struct Arguments {
    seconds: f64,
    threads: usize,
    seed: u64,
    words: Vec<String>,
}

fn arguments() -> Result<Arguments, String> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut arguments = Arguments { seconds: 10.0, threads: cores, seed: 1, words: Vec::new() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let wrong = |error: &dyn std::fmt::Display| format!("{word}: {error}");
        match word.as_str() {
            // Cargo says so.
            "--bench" => {}
            "--time" => arguments.seconds = value()?.parse().map_err(|error| wrong(&error))?,
            "--jobs" => arguments.threads = value()?.parse().map_err(|error| wrong(&error))?,
            "--seed" => arguments.seed = value()?.parse().map_err(|error| wrong(&error))?,
            _ if word.starts_with('-') => return Err(format!("no option `{word}`: --time, --jobs or --seed")),
            _ => arguments.words.push(word),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let words = &arguments.words;
    if words.iter().any(|word| word == "survey") {
        surveyed(&arguments);
        return ExitCode::SUCCESS;
    }
    let is_wanted = |case: &Case| {
        let has = |word: &String| case.part == word || case.name.contains(word.as_str());
        words.is_empty() || words.iter().any(has)
    };
    let with_unequal = words.is_empty() || words.iter().any(|word| word == "unequal");
    println!("| case | published | to reach | found | bound | gap | proved | reached after | ended after |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let (mut reached, mut beyond, mut all) = (0, 0, 0);
    for case in cases(with_unequal).into_iter().filter(is_wanted) {
        let allowed = Duration::from_secs_f64(arguments.seconds);
        match case.run(allowed, arguments.threads, arguments.seed) {
            Ok(answer) => {
                all += 1;
                reached += usize::from(case.is_reached(answer.found));
                beyond += usize::from(!case.is_reached(answer.bound));
                println!("{}", line(&case, &answer));
            }
            Err(error) => eprintln!("{}: {error}", case.name),
        }
    }
    println!("\n{reached} of {all} reached, {beyond} shown to be out of reach");
    ExitCode::SUCCESS
}

/// How many devices the Vs of the survey have.
const DEVICES: [usize; 11] = [4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32];

/// For every number of devices, in how many memories the bound is reached, and how far the others are from it.
fn surveyed(arguments: &Arguments) {
    println!("| p | m | k from | to | at the bound | longest search | open |");
    println!("|---|---|---|---|---|---|---|");
    for p in DEVICES {
        let cases = survey(p);
        let (mut reached, mut longest, mut open) = (0, 0.0_f64, Vec::new());
        for case in &cases {
            match case.run(Duration::from_secs_f64(arguments.seconds), arguments.threads, arguments.seed) {
                Ok(answer) => {
                    longest = longest.max(answer.seconds);
                    reached += usize::from(answer.proved);
                    if !answer.proved {
                        open.push(format!("{}: {} of {}", case.name, answer.found, answer.bound));
                    }
                }
                Err(error) => open.push(format!("{}: {error}", case.name)),
            }
        }
        let (first, all) = ((p + 4) / 3 * 2, cases.len());
        let open = if open.is_empty() { "-".to_owned() } else { open.join(", ") };
        println!("| {p} | {} | {first} | {} | {reached} of {all} | {longest:.2} s | {open} |", 2 * p, 2 * p);
    }
}

/// A line of the table.
fn line(case: &Case, answer: &Answer) -> String {
    let figure = |value: f64| match case.figure {
        Figure::Length(_) => format!("{value}"),
        Figure::Bubble { .. } => format!("{:.4}", value.max(0.0)),
    };
    let gap = match case.figure {
        Figure::Length(_) => format!("{:.1}%", (answer.found / answer.bound - 1.0) * 100.0),
        Figure::Bubble { .. } => figure(answer.found - answer.bound),
    };
    let cells = [
        case.name.clone(),
        case.published.map_or_else(|| "-".to_owned(), figure),
        figure(case.target),
        figure(answer.found),
        figure(answer.bound),
        gap,
        if answer.proved { "yes" } else { "no" }.to_owned(),
        answer.reached.map_or_else(|| "not reached".to_owned(), |seconds| format!("{seconds:.1} s")),
        format!("{:.1} s", answer.seconds),
    ];
    format!("| {} |", cells.join(" | "))
}
