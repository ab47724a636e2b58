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

/// Names of the columns that all runs have, in their order.
const HEAD: &str = "step,loss,learning_rate,tokens,seconds,tokens_per_second";
/// Those of some runs, behind them.
const MORE: [&str; 2] = ["gradient_norm", "validation_loss"];
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

/// Which of the columns of some runs a table has, in the order of [`MORE`].
type Columns = [bool; MORE.len()];

/// The first line of a table.
fn head(columns: Columns) -> String {
    let more = MORE.iter().zip(columns).filter(|(_, is_there)| *is_there);
    HEAD.to_owned() + &more.map(|(name, _)| format!(",{name}")).collect::<String>() + "\n"
}

/// The columns of a table by its first line, or by how it begins; none where it is no table of ours.
fn columns(line: &str) -> Option<Columns> {
    let all = [[false, false], [true, false], [false, true], [true, true]];
    all.into_iter().find(|columns| is_beginning(line, &head(*columns)))
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
    /// Before gradients were clipped; `None` where they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    gradient_norm: Option<f64>,
    /// On data that are not trained on; `None` where the step was not evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    validation_loss: Option<f64>,
}

impl Row {
    fn text(&self, form: Form, columns: Columns) -> String {
        let number = |value: Option<f64>| value.map(|value| format!("{value:?}")).unwrap_or_default();
        let more = [self.gradient_norm, self.validation_loss].into_iter().zip(columns);
        let more: String =
            more.filter(|(_, is_there)| *is_there).map(|(value, _)| format!(",{}", number(value))).collect();
        match form {
            Form::Csv => format!(
                "{},{},{},{},{:?},{}{more}\n",
                self.step,
                number(self.loss),
                number(self.learning_rate),
                self.tokens,
                self.seconds,
                number(self.tokens_per_second),
            ),
            Form::JsonLines => serde_json::to_string(self).expect("numbers are JSON") + "\n",
        }
    }
}

/// When steps were done, and what else is known of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// From the start of the run to the end of these steps.
    pub(super) elapsed: Duration,
    /// What these steps took.
    pub(super) took: Duration,
    /// The norm of the gradients before they were clipped; `None` where they are not.
    pub(super) gradient_norm: Option<f64>,
    /// What data lost that are not trained on, behind the last of these steps; `None` where nobody looked.
    pub(super) validation_loss: Option<f64>,
}

/// A log that is being written.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    form: Form,
    /// What its rows have, if it is a table.
    columns: Columns,
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
        let training = program.training.as_ref();
        let wanted =
            training.map_or([false; 2], |training| [training.clip_norm.is_some(), training.validation.is_some()]);
        let begun = |file: &mut File| {
            let mut length = kept(file, form, first_step)?;
            file.set_len(length)?;
            let mut found = wanted;
            if form == Form::Csv && length > 0 {
                // A log that is there keeps its columns.
                file.seek(SeekFrom::Start(0))?;
                let mut line = String::new();
                BufReader::new(&mut *file).take(LONGEST).read_line(&mut line)?;
                found = columns(&line).unwrap_or_default();
            }
            file.seek(SeekFrom::Start(length))?;
            if length == 0 && form == Form::Csv {
                let head = head(found);
                file.write_all(head.as_bytes())?;
                length = head.len() as u64;
            }
            Ok((length, found))
        };
        let (length, columns) = begun(&mut file).map_err(|error| failure(path, error))?;
        let rate = program.training.as_ref().map(|training| (training.learning_rate, training.steps));
        Ok(Self { path: path.to_owned(), file, form, columns, length, tokens_per_step, rate })
    }

    /// Writes one row for each of `n_steps` steps; `done` is the last step. Fails if the file cannot be written, and
    /// then leaves no part of these rows behind.
    pub(super) fn write(&mut self, done: u64, n_steps: u64, losses: &[f64], figures: Figures) -> Result<(), Failure> {
        let computes = !losses.is_empty();
        let rounded = |value: f64, digits: f64| (value * digits).round() / digits;
        let speed = (self.tokens_per_step * n_steps) as f64 / figures.took.as_secs_f64().max(1e-9);
        let first = done - n_steps;
        let row = |index: u64| Row {
            step: first + index + 1,
            loss: losses.get(index as usize).copied(),
            learning_rate: self.rate.map(|(rate, steps)| learning_rate(&rate, first + index, steps)),
            tokens: self.tokens_per_step * (first + index + 1),
            seconds: rounded(figures.elapsed.as_secs_f64(), 1e6),
            tokens_per_second: computes.then(|| rounded(speed, 10.0)),
            gradient_norm: figures.gradient_norm,
            validation_loss: figures.validation_loss.filter(|_| index + 1 == n_steps),
        };
        let rows: String = (0..n_steps).map(|index| row(index).text(self.form, self.columns)).collect();
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
            (Form::Csv, 1) => columns(&text).map(|_| 0),
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
        gradient_norm: None,
        validation_loss: None,
    };
    const PLAIN: Columns = [false; 2];

    #[test]
    fn a_row_is_a_line_of_either_form() {
        assert_eq!(ROW.text(Form::Csv, PLAIN), "7,2.5,3e-5,1792,1.25,1024.0\n");
        let json =
            r#"{"step":7,"loss":2.5,"learning_rate":0.00003,"tokens":1792,"seconds":1.25,"tokens_per_second":1024.0}"#;
        let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(parsed(&ROW.text(Form::JsonLines, PLAIN)), parsed(json));
        assert!(ROW.text(Form::JsonLines, PLAIN).starts_with(BEGINNING));
        assert_eq!(ROW.text(Form::Csv, [false, true]), "7,2.5,3e-5,1792,1.25,1024.0,\n");
        let more = Row { gradient_norm: Some(1.5), validation_loss: Some(2.75), ..ROW };
        assert_eq!(more.text(Form::Csv, [true, true]), "7,2.5,3e-5,1792,1.25,1024.0,1.5,2.75\n");
        assert_eq!(more.text(Form::Csv, [true, false]), "7,2.5,3e-5,1792,1.25,1024.0,1.5\n");
        let json = parsed(&more.text(Form::JsonLines, [true, true]));
        assert_eq!((&json["gradient_norm"], &json["validation_loss"]), (&1.5.into(), &2.75.into()));
        let none = Row { loss: Some(f64::NAN), learning_rate: None, tokens_per_second: None, ..ROW };
        assert_eq!(none.text(Form::Csv, PLAIN), "7,NaN,,1792,1.25,\n");
        assert_eq!(parsed(&none.text(Form::JsonLines, PLAIN))["loss"], serde_json::Value::Null);
    }

    #[test]
    fn rows_of_later_steps_and_half_a_row_go() {
        let tables = [[false, false], [true, false], [false, true], [true, true]];
        let tables = tables.map(|columns| (format!("csv{columns:?}"), Form::Csv, columns));
        for (name, form, columns) in tables.into_iter().chain([("json".to_owned(), Form::JsonLines, PLAIN)]) {
            let rows = |steps: std::ops::Range<u64>| -> String {
                let head = if form == Form::Csv { head(columns) } else { String::new() };
                head + &steps.map(|step| Row { step, ..ROW }.text(form, columns)).collect::<String>()
            };
            let all = rows(1..10);
            let check = |text: &str, last: u64, expected: &str| {
                assert_eq!(kept_of(&name, form, text, last).as_deref(), Ok(expected), "{text}");
            };
            check("", 5, "");
            check(&all, u64::MAX, &all);
            check(&all, 4, &rows(1..5));
            check(&all, 0, &rows(1..1));
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
        let found = kept_of("other.rows", Form::Csv, &format!("{HEAD}\n1,2,3,4,5,6\nhello\n"), 9);
        assert!(found.is_err_and(|found| found.contains("line 3 is another")));
    }
}
