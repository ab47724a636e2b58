//! Reads a trace: the tasks of its steps, whatever else is in the file.

use crate::commands::profile::steps::{MeasuredSteps, of_group};
use pipe_ir::ids::{MicrobatchId, StageId};
use pipe_ir::task::{Task, TaskKind};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;

/// The latest moment that is read, in microseconds: eleven days.
const LAST_MICROS: f64 = 1e12;

/// What one step of a trace has.
#[derive(Clone, Debug, Default)]
pub(crate) struct TracedStep {
    /// By device: what it ran, in the order in which it started, updates included.
    pub(crate) tasks: BTreeMap<u32, Vec<MeasuredSteps>>,
    /// When the last collective ended, if there were any.
    pub(crate) joined: Option<u64>,
}

/// A trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traced {
    /// What `otherData` says of the file, if it says anything.
    pub(crate) about: Value,
    /// By number.
    pub(crate) steps: BTreeMap<u64, TracedStep>,
    /// All events, also those that mean nothing here.
    pub(crate) n_events: usize,
}

/// Reads a trace in either form of the format: an object with `traceEvents`, or the events alone. An error says what is
/// wrong, with line and column.
pub(crate) fn read(from: impl Read) -> Result<Traced, String> {
    let mut trace: Traced = serde_json::from_reader(from).map_err(|error| error.to_string())?;
    for own in trace.steps.values_mut().flat_map(|step| step.tasks.values_mut()) {
        own.sort_by_key(|ran| (ran.start, ran.end));
    }
    Ok(trace)
}

impl Traced {
    /// The same by tensor-parallel group, where it is of the devices of `n_groups` groups of `members` devices.
    pub(crate) fn in_groups(mut self, n_groups: usize, members: u32) -> Self {
        if members < 2 || self.about["devices"].as_u64() != Some(n_groups as u64 * u64::from(members)) {
            return self;
        }
        for step in self.steps.values_mut() {
            let mut groups: BTreeMap<u32, Vec<Vec<MeasuredSteps>>> = BTreeMap::new();
            for (device, own) in std::mem::take(&mut step.tasks) {
                groups.entry(device / members).or_default().push(own);
            }
            step.tasks = groups.into_iter().map(|(group, own)| (group, of_group(&own))).collect();
        }
        self
    }
}

impl<'de> Deserialize<'de> for Traced {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Whole;
        impl<'de> Visitor<'de> for Whole {
            type Value = Traced;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a trace: an object with `traceEvents`, or a list of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<Traced, A::Error> {
                let mut trace = Traced::default();
                while let Some(event) = events.next_element::<Value>()? {
                    trace.n_events += 1;
                    trace.take(&event).map_err(A::Error::custom)?;
                }
                Ok(trace)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Traced, A::Error> {
                let (mut trace, mut about) = (None, Value::Null);
                while let Some(name) = fields.next_key::<String>()? {
                    match name.as_str() {
                        "traceEvents" => trace = Some(fields.next_value::<Traced>()?),
                        "otherData" => about = fields.next_value()?,
                        _ => drop(fields.next_value::<IgnoredAny>()?),
                    }
                }
                let trace: Traced = trace.ok_or_else(|| A::Error::custom("there is no `traceEvents`"))?;
                Ok(Traced { about, ..trace })
            }
        }
        from.deserialize_any(Whole)
    }
}

impl Traced {
    /// Takes an event in, if it is a task or a collective of ours.
    fn take(&mut self, event: &Value) -> Result<(), String> {
        let arguments = &event["args"];
        let Some(device) = arguments["device"].as_u64().filter(|_| event["ph"] == "X") else { return Ok(()) };
        let name = event["name"].as_str().unwrap_or_default();
        let word = event["cat"].as_str().and_then(|category| category.split(',').next()).unwrap_or_default();
        let wrong = |what: String| format!("event {} of the trace, `{name}`: {what}", self.n_events);
        let number = |number: u64, what: &str| {
            u32::try_from(number).map_err(|_| wrong(format!("{number} is not the number of a {what}")))
        };
        let nanos = |key: &str| match event[key].as_f64() {
            Some(micros) if (0.0..=LAST_MICROS).contains(&micros) => Ok((micros * 1e3).round() as u64),
            Some(_) => Err(wrong(format!("`{key}` is {} us, and 0 to {LAST_MICROS:e} are read", event[key]))),
            None => Err(wrong(format!("`{key}` is not a number of microseconds"))),
        };
        let step = self.steps.entry(arguments["step"].as_u64().unwrap_or_default());
        let (kind, stage) = (TaskKind::from_letters(word), arguments["stage"].as_u64());
        let (Some(kind), Some(stage)) = (kind, stage) else {
            // Transfers and copies of plans have no place in a run; what devices do together ends the step.
            if arguments["step"].is_u64() {
                let end = nanos("ts")? + nanos("dur")?;
                let joined = &mut step.or_default().joined;
                *joined = (*joined).max(Some(end));
            }
            return Ok(());
        };
        let task = Task {
            kind,
            stage: StageId(number(stage, "stage")?),
            microbatch: MicrobatchId(number(arguments["microbatch"].as_u64().unwrap_or_default(), "microbatch")?),
        };
        let start = nanos("ts")?;
        let ran = MeasuredSteps { task, start, end: start + nanos("dur")? };
        step.or_default().tasks.entry(number(device, "device")?).or_default().push(ran);
        Ok(())
    }
}
