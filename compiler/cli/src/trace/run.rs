//! The trace of a run: tasks and collectives as they were measured, step after step.

use super::links::{Link, links};
use super::{Queue, SCHEMA, TaskArguments, Trace, Track, rows, task_name};
use pipe_distributed::Division;
use pipe_ir::ids::DeviceId;
use pipe_ir::program::Program;
use pipe_ir::task::TaskKind;
use pipe_runtime::{DeviceStep, StepReport};
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// What was run.
pub(crate) struct TracedRun<'a> {
    /// By which devices.
    pub(crate) program: &'a Program,
    /// In so many processes.
    pub(crate) n_ranks: usize,
    /// The first step, where those before it were done by another run.
    pub(crate) first_step: u64,
    /// What it took.
    pub(crate) steps: &'a [StepReport],
}

/// Writes the trace.
pub(crate) fn write(ran: &TracedRun<'_>, out: &mut dyn Write) -> io::Result<()> {
    let TracedRun { program, n_ranks, first_step, steps } = *ran;
    let devices = || (0..program.devices.len()).map(DeviceId::from_index);
    let division = Division::new(program.devices.len(), n_ranks).filter(|_| n_ranks > 1);
    let name = |device: DeviceId| match division {
        Some(division) => format!("{device} (rank {})", division.rank_of(device).0),
        None => device.to_string(),
    };
    // Lanes stand behind the devices, as in a schedule.
    let lanes = program.lanes.iter().flat_map(|lane| devices().map(move |device| format!("{} {lane}", name(device))));
    let names: Vec<String> = devices().map(name).chain(lanes).collect();
    let joint = steps.iter().flat_map(|step| (0..).map(DeviceId).zip(&step.devices)).flat_map(|(device, own)| {
        let rows = rows(&joined(own));
        rows.into_iter().map(move |row| (device, Queue::Collectives(row)))
    });
    let queues = (0..names.len()).map(DeviceId::from_index);
    let tracks: BTreeSet<Track> = queues.map(|queue| (queue, Queue::Compute)).chain(joint).collect();
    let about = json!({
        "schema": SCHEMA, "what": "run", "target": program.name, "devices": program.devices.len(), "stages": program.n_stages,
        "microbatches": program.n_microbatches, "steps": steps.len(), "first_step": first_step,
    });
    let mut trace = Trace::begin(out, &about, &names, tracks)?;
    let links = links(program);
    let mut begin = 0;
    for (number, step) in steps.iter().enumerate() {
        let number =
            usize::try_from(first_step).unwrap_or(usize::MAX).saturating_add(number * program.n_steps as usize);
        write_step(&mut trace, program, number, begin, step)?;
        for link in &links {
            write_link(&mut trace, link, begin, step)?;
        }
        begin += step.wall.0;
    }
    trace.end()
}

fn write_step(
    trace: &mut Trace<'_>,
    program: &Program,
    number: usize,
    begin: u64,
    step: &StepReport,
) -> io::Result<()> {
    for (device, report) in (0..).map(DeviceId).zip(&step.devices) {
        let lanes = (1..).zip(&report.lanes).flat_map(|(number, lane)| lane.spans.iter().map(move |ran| (number, ran)));
        for (lane, ran) in report.spans.iter().map(|ran| (0, ran)).chain(lanes) {
            let queue = DeviceId::from_index(device.index() + lane * program.devices.len());
            let exec = program.exec(ran.exec);
            // Sums of squares are no updates; what devices do together with them is seen below.
            if exec.is_squares() {
                continue;
            }
            let microbatch = (exec.kind != TaskKind::Update).then_some(ran.microbatch.0);
            let name = task_name(exec.kind, exec.stage.0, microbatch, program.n_slices);
            let arguments = TaskArguments {
                step: Some(number),
                device: device.0,
                stage: exec.stage.0,
                microbatch,
                critical: false,
            };
            let span = (begin + ran.start.0, begin + ran.end.0);
            trace.slice((queue, Queue::Compute), &name, exec.kind.letters(), span, &arguments)?;
        }
        for (joined, row) in report.joined.iter().zip(rows(&joined(report))) {
            let word = joined.collective.word();
            let span = (begin + joined.start.0, begin + joined.end.0);
            let name = format!("{word} {}", joined.group);
            trace.slice(
                (device, Queue::Collectives(row)),
                &name,
                word,
                span,
                &json!({"step": number, "device": device.0}),
            )?;
        }
    }
    Ok(())
}

fn joined(device: &DeviceStep) -> Vec<(u64, u64)> {
    device.joined.iter().map(|joined| (joined.start.0, joined.end.0)).collect()
}

fn write_link(trace: &mut Trace<'_>, link: &Link, begin: u64, step: &StepReport) -> io::Result<()> {
    let n_devices = step.devices.len().max(1);
    let span = |(queue, run): (DeviceId, usize)| {
        let own = step.devices.get(queue.index() % n_devices)?;
        match (queue.index() / n_devices).checked_sub(1) {
            None => own.spans.get(run),
            Some(lane) => own.lanes.get(lane)?.spans.get(run),
        }
    };
    // A device of a rank that was lost may lack some.
    let Some((from, to)) = span(link.from).zip(span(link.to)) else { return Ok(()) };
    let span = (begin + from.start.0, begin + from.end.0);
    let to = ((link.to.0, Queue::Compute), begin + to.start.0);
    trace.arrow(link.class.word(), (link.from.0, Queue::Compute), span, &[to])
}
