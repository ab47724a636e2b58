//! Trace files: what ran when, as trace-event JSON that Perfetto and chrome://tracing open.

use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_runtime::StepReport;
use pipe_runtime::job::Division;
use serde_json::{Value, json};

/// A track per device, an event per task; times in microseconds. Tracks are grouped by process, where there are several.
#[must_use]
pub(crate) fn to_json(program: &Program, n_ranks: usize, steps: &[StepReport]) -> Value {
    let n_devices = program.devices.len();
    let division = Division::new(n_devices, n_ranks);
    let rank_of = |device: usize| division.map_or(0, |division| division.rank_of(DeviceId::from_index(device)).0);
    let track = |number: usize, name: String| {
        let rank = rank_of(number % n_devices);
        json!({"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": name}})
    };
    let mut events: Vec<Value> = (0..n_devices).map(|device| track(device, format!("d{device}"))).collect();
    if !program.groups.is_empty() {
        events.extend((0..n_devices).map(|device| track(n_devices + device, format!("d{device} collectives"))));
    }
    if n_ranks > 1 {
        let process =
            |rank| json!({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": format!("rank {rank}")}});
        events.extend((0..n_ranks).map(process));
    }
    let mut begin = 0;
    for (number, step) in steps.iter().enumerate() {
        for (device, report) in step.devices.iter().enumerate() {
            for ran in &report.spans {
                let exec = program.exec(ran.exec);
                let microbatch = (exec.kind != TaskKind::Update).then(|| format!(" {}", ran.microbatch));
                events.push(json!({
                    "ph": "X", "pid": rank_of(device), "tid": device,
                    "name": format!("{} {}{}", exec.kind.letters(), exec.stage, microbatch.unwrap_or_default()),
                    "cat": exec.kind.letters(),
                    "ts": (begin + ran.start.0) as f64 / 1e3,
                    "dur": (ran.end.0 - ran.start.0) as f64 / 1e3,
                    "args": {"step": number},
                }));
            }
            for joined in &report.joined {
                events.push(json!({
                    "ph": "X", "pid": rank_of(device), "tid": program.devices.len() + device,
                    "name": format!("{} {}", joined.collective.word(), joined.group),
                    "cat": joined.collective.word(),
                    "ts": (begin + joined.start.0) as f64 / 1e3,
                    "dur": (joined.end.0 - joined.start.0) as f64 / 1e3,
                    "args": {"step": number},
                }));
            }
        }
        begin += step.wall.0;
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}
