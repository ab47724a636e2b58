//! The log of a run (`--log`): a row for each step, as CSV or as a line of JSON. A row is there as a whole or not at
//! all.

use crate::output::{Failure, can_write, form_of};
use pipe_ir::program::Program;
use pipe_ir::training::LearningRate;
use pipe_runtime::learning_rate;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names of the columns, in their order.
const HEAD: &str = "step,loss,learning_rate,tokens,seconds,tokens_per_second\n";
/// The same of runs that are evaluated meanwhile.
const HEAD_WITH_VALIDATION: &str = "step,loss,learning_rate,tokens,seconds,tokens_per_second,validation_loss\n";
/// How every line of JSON begins.
const BEGINNING: &str = "{\"step\":";
/// No row has more bytes.
const LONGEST: u64 = 1024;

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Csv,
    JsonLines,
}

/// A step that was done.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Row {
    /// Which, counted from 1.
    step: u64,
    /// In nats per token; `None` where nothing is computed.
    loss: Option<f64>,
    /// `None` where nothing is trained.
    learning_rate: Option<f64>,
    /// Elements of the data of all steps up to this one.
    tokens: u64,
    /// Since this run began with its first step.
    seconds: f64,
    /// Of this step; `None` where nothing is computed.
    tokens_per_second: Option<f64>,
    /// On data that are not trained on; `None` where the step was not evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    validation_loss: Option<f64>,
}

impl Row {
    fn text(&self, form: Form, is_validated: bool) -> String {
        let number = |value: Option<f64>| value.map(|value| format!("{value:?}")).unwrap_or_default();
        match form {
            Form::Csv => format!(
                "{},{},{},{},{:?},{}{}\n",
                self.step,
                number(self.loss),
                number(self.learning_rate),
                self.tokens,
                self.seconds,
                number(self.tokens_per_second),
                if is_validated { format!(",{}", number(self.validation_loss)) } else { String::new() },
            ),
            Form::JsonLines => serde_json::to_string(self).expect("numbers are JSON") + "\n",
        }
    }
}

/// When steps were done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// From the start of the run to the end of these steps.
    pub(super) elapsed: Duration,
    /// What these steps took.
    pub(super) took: Duration,
}

/// A log that is being written.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    form: Form,
    /// Whether the rows have what data lose that are not trained on.
    is_validated: bool,
    /// Bytes of the rows in it.
    length: u64,
    /// Elements of the data of a step.
    tokens_per_step: u64,
    /// The learning rate, and the steps that it is for.
    rate: Option<(LearningRate, u32)>,
}

/// Whether a log can be written there, as far as can be told before a run. Fails if the name has another ending, its
/// folder is missing, or the file is there and is no log.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let form = form(path)?;
    can_write(path)?;
    if path.exists() {
        let mut file = open(path)?;
        kept(&mut file, form, u64::MAX).map_err(|error| failure(path, error))?;
    }
    Ok(())
}

fn form(path: &Path) -> Result<Form, Failure> {
    let forms = [("csv", Form::Csv), ("jsonl", Form::JsonLines)];
    form_of(path, &forms, "a log is written as `.csv` or `.jsonl`")
}

fn failure(path: &Path, error: io::Error) -> Failure {
    Failure::Io(path.display().to_string(), error)
}

fn open(path: &Path) -> Result<File, Failure> {
    let opened = || {
        // A pipe would wait here for its other end.
        if std::fs::metadata(path).is_ok_and(|file| !file.is_file()) {
            return Err(io::Error::other("this is no regular file"));
        }
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
    };
    opened().map_err(|error| failure(path, error))
}

impl Log {
    /// Opens the log of a run that begins behind `first_step`. Rows of later steps, which an earlier run did, go; so
    /// does half a row, which is all that a run leaves that was killed while it wrote. Fails if the file cannot be
    /// written or is no log.
    pub(super) fn open(path: &Path, program: &Program, first_step: u64, tokens_per_step: u64) -> Result<Self, Failure> {
        let form = form(path)?;
        let mut file = open(path)?;
        let validates = program.training.as_ref().is_some_and(|training| training.validation.is_some());
        let begun = |file: &mut File| {
            let mut length = kept(file, form, first_step)?;
            file.set_len(length)?;
            let has_column = length == 0 && validates || length > 0 && is_validated(file)?;
            file.seek(SeekFrom::Start(length))?;
            if length == 0 && form == Form::Csv {
                let head = if has_column { HEAD_WITH_VALIDATION } else { HEAD };
                file.write_all(head.as_bytes())?;
                length = head.len() as u64;
            }
            Ok((length, has_column))
        };
        let (length, is_validated) = begun(&mut file).map_err(|error| failure(path, error))?;
        let rate = program.training.as_ref().map(|training| (training.learning_rate, training.steps));
        Ok(Self { path: path.to_owned(), file, form, is_validated, length, tokens_per_step, rate })
    }

    /// Writes one row for each of `n_steps` steps; `done` is the last step, and what was found of it on other data
    /// stands there. Fails if the file cannot be written, and then leaves no part of these rows behind.
    pub(super) fn write(
        &mut self,
        done: u64,
        (n_steps, validated): (u64, Option<f64>),
        losses: &[f64],
        times: Times,
    ) -> Result<(), Failure> {
        let computes = !losses.is_empty();
        let rounded = |value: f64, digits: f64| (value * digits).round() / digits;
        let speed = (self.tokens_per_step * n_steps) as f64 / times.took.as_secs_f64().max(1e-9);
        let first = done - n_steps;
        let row = |index: u64| Row {
            step: first + index + 1,
            loss: losses.get(index as usize).copied(),
            learning_rate: self.rate.map(|(rate, steps)| learning_rate(&rate, first + index, steps)),
            tokens: self.tokens_per_step * (first + index + 1),
            seconds: rounded(times.elapsed.as_secs_f64(), 1e6),
            tokens_per_second: computes.then(|| rounded(speed, 10.0)),
            validation_loss: validated.filter(|_| index + 1 == n_steps),
        };
        let rows: String = (0..n_steps).map(|index| row(index).text(self.form, self.is_validated)).collect();
        if let Err(error) = self.file.write_all(rows.as_bytes()) {
            // Where even this fails, the next run that resumes here removes the half row.
            let _ = self.file.set_len(self.length);
            return Err(failure(&self.path, error));
        }
        self.length += rows.len() as u64;
        Ok(())
    }
}

/// Bytes of the rows of steps up to `last`, with what stands above them. Fails if the file is no log.
fn kept(file: &mut File, form: Form, last: u64) -> io::Result<u64> {
    let mut reader = BufReader::new(file);
    let (mut kept, mut line) = (0, Vec::new());
    for number in 1_u64.. {
        line.clear();
        reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        let text = String::from_utf8_lossy(&line);
        let step = match (form, number) {
            (Form::Csv, 1) => (is_beginning(&text, HEAD) || is_beginning(&text, HEAD_WITH_VALIDATION)).then_some(0),
            (Form::Csv, _) => text.split(',').next().and_then(|step| step.parse().ok()),
            (Form::JsonLines, _) => step(&text),
        };
        let is_whole = line.ends_with(b"\n");
        let is_half = line.len() < LONGEST as usize && !is_whole;
        match step {
            Some(step) if is_whole && step <= last => kept += line.len() as u64,
            Some(_) if is_whole => break,
            _ if line.is_empty() => break,
            // What is no row at all is none that was cut short.
            Some(_) if is_half => break,
            None if is_half && (number > 1 || is_beginning(&text, BEGINNING)) => break,
            _ => {
                let message = format!("this is no log of `pipec run`: line {number} is another; name a new file");
                return Err(io::Error::other(message));
            }
        }
    }
    Ok(kept)
}

/// Whether the first line of a log has a column for data that are not trained on. Fails if it cannot be read.
fn is_validated(file: &mut File) -> io::Result<bool> {
    file.seek(SeekFrom::Start(0))?;
    let mut line = Vec::new();
    BufReader::new(file).take(LONGEST).read_until(b'\n', &mut line)?;
    Ok(line == HEAD_WITH_VALIDATION.as_bytes())
}

/// Whether one of two texts begins the other.
fn is_beginning(one: &str, other: &str) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// The step of a line of JSON.
fn step(line: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Numbered {
        step: u64,
    }
    serde_json::from_str(line).ok().map(|Numbered { step }| step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of a file with this text, or what is wrong with it.
    fn kept_of(name: &str, form: Form, text: &str, last: u64) -> Result<String, String> {
        let path = std::env::temp_dir().join(format!("pipec-log-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        let mut file = File::open(&path).expect("what was written");
        let found = kept(&mut file, form, last);
        let _ = std::fs::remove_file(&path);
        found.map(|kept| text[..kept as usize].to_owned()).map_err(|error| error.to_string())
    }

    const ROW: Row = Row {
        step: 7,
        loss: Some(2.5),
        learning_rate: Some(3e-5),
        tokens: 1_792,
        seconds: 1.25,
        tokens_per_second: Some(1024.0),
        validation_loss: None,
    };

    #[test]
    fn a_row_is_a_line_of_either_form() {
        assert_eq!(ROW.text(Form::Csv, false), "7,2.5,3e-5,1792,1.25,1024.0\n");
        let json =
            r#"{"step":7,"loss":2.5,"learning_rate":0.00003,"tokens":1792,"seconds":1.25,"tokens_per_second":1024.0}"#;
        let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(parsed(&ROW.text(Form::JsonLines, false)), parsed(json));
        assert!(ROW.text(Form::JsonLines, false).starts_with(BEGINNING));
        assert_eq!(ROW.text(Form::Csv, true), "7,2.5,3e-5,1792,1.25,1024.0,\n");
        let evaluated = Row { validation_loss: Some(2.75), ..ROW };
        assert_eq!(evaluated.text(Form::Csv, true), "7,2.5,3e-5,1792,1.25,1024.0,2.75\n");
        assert_eq!(parsed(&evaluated.text(Form::JsonLines, true))["validation_loss"], 2.75);
        let none = Row { loss: Some(f64::NAN), learning_rate: None, tokens_per_second: None, ..ROW };
        assert_eq!(none.text(Form::Csv, false), "7,NaN,,1792,1.25,\n");
        assert_eq!(parsed(&none.text(Form::JsonLines, false))["loss"], serde_json::Value::Null);
    }

    #[test]
    fn rows_of_later_steps_and_half_a_row_go() {
        let rows = |form: Form, steps: std::ops::Range<u64>| -> String {
            let head = if form == Form::Csv { HEAD } else { "" };
            head.to_owned() + &steps.map(|step| Row { step, ..ROW }.text(form, false)).collect::<String>()
        };
        for (name, form) in [("csv", Form::Csv), ("json", Form::JsonLines)] {
            let all = rows(form, 1..10);
            let check = |text: &str, last: u64, expected: &str| {
                assert_eq!(kept_of(name, form, text, last).as_deref(), Ok(expected), "{text}");
            };
            check("", 5, "");
            check(&all, u64::MAX, &all);
            check(&all, 4, &rows(form, 1..5));
            check(&all, 0, &rows(form, 1..1));
            // A run that was killed while it wrote.
            for cut in 0..all.len() {
                let whole = all[..cut].rfind('\n').map_or(0, |end| end + 1);
                check(&all[..cut], u64::MAX, &all[..whole]);
            }
        }
    }

    #[test]
    fn what_is_no_log_stays() {
        let long = "x".repeat(5000);
        for text in ["loss,step\n1,2\n", "hello", "hello\n", "\n", "\u{0}\u{1}", &long] {
            for (name, form) in [("other.csv", Form::Csv), ("other.json", Form::JsonLines)] {
                let found = kept_of(name, form, text, 9).expect_err(text);
                assert!(found.contains("line 1 is another"), "{found}");
            }
        }
        let found = kept_of("other.rows", Form::Csv, &format!("{HEAD}1,2,3,4,5,6\nhello\n"), 9);
        assert!(found.is_err_and(|found| found.contains("line 3 is another")));
    }
}
