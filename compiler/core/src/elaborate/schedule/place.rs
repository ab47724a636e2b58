//! `place`: the devices of each stage, or the device of each microbatch of each stage.

use super::Writer;
use super::items::PlaceLine;
use super::period;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_schedule::placement::{DeviceSets, Placement, names};
use pipe_syntax::ast::{Expr, ExprKind};
use pipe_syntax::diagnostic::{Code, Diagnostic};
use pipe_syntax::expr::scope::{Fault, Resolved};
use pipe_syntax::limits::tasks;

/// A device, or several at once, whose names are resolved.
pub(super) enum Home<'a> {
    One(Resolved<'a>),
    Range(Box<[Resolved<'a>; 2]>),
    List(Vec<Resolved<'a>>),
    If(Box<(Resolved<'a>, Home<'a>, Home<'a>)>),
}

impl<'a> Home<'a> {
    /// Numbers and conditions in it.
    fn parts(&self) -> Vec<&Resolved<'a>> {
        match self {
            Self::One(device) => vec![device],
            Self::Range(ends) => ends.iter().collect(),
            Self::List(devices) => devices.iter().collect(),
            Self::If(branches) => {
                let (condition, then, otherwise) = &**branches;
                [vec![condition], then.parts(), otherwise.parts()].concat()
            }
        }
    }
}

/// Resolves the devices of a `place`.
pub(super) fn resolve<'a>(writer: &mut Writer<'a>, expr: &'a Expr) -> Result<Home<'a>, Fault> {
    Ok(match &expr.kind {
        ExprKind::Range(first, end) => Home::Range(Box::new([writer.scope.number(first)?, writer.scope.number(end)?])),
        ExprKind::List(devices) => {
            Home::List(devices.iter().map(|device| writer.scope.number(device)).collect::<Result<_, _>>()?)
        }
        ExprKind::If { condition, then, otherwise } if has_several(then) || has_several(otherwise) => {
            let condition = writer.scope.condition(condition)?;
            Home::If(Box::new((condition, resolve(writer, then)?, resolve(writer, otherwise)?)))
        }
        _ => Home::One(writer.scope.number(expr)?),
    })
}

/// Whether several devices stand somewhere in it.
fn has_several(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Range(..) | ExprKind::List(_) => true,
        ExprKind::If { then, otherwise, .. } => has_several(then) || has_several(otherwise),
        _ => false,
    }
}

/// A task that has no device: its stage, its microbatch where it was named, and the number of a
/// device that is not there; none where there is none at all.
type Lost = (u32, Option<u32>, Option<i64>);

/// Evaluates the devices of every stage, and of every microbatch where the device depends on it.
pub(super) fn write<'a>(writer: &mut Writer<'a>, place: PlaceLine<'a>, n_stages: u32) -> Placement {
    let mut lost = Vec::new();
    let sets = sets(writer, place, n_stages, &mut lost);
    if let Some(first) = lost.first() {
        let error = off_devices(writer, place, *first);
        let others = lost.len() - 1;
        let what = match (first.1.is_some(), others) {
            (true, 1) => "task",
            (true, _) => "tasks",
            (false, 1) => "stage",
            (false, _) => "stages",
        };
        writer.report.add(if others == 0 { error } else { error.note(format!("and {others} more {what} likewise")) });
    }
    let sets = sets.and_then(|(sets, repeats)| unchanging(place, n_stages as usize, &sets).map(|()| (sets, repeats)));
    match writer.report.take(sets) {
        Some((sets, repeats)) => Placement::repeated(n_stages as usize, sets, repeats),
        None => Placement::of_stages(vec![DeviceId(0); n_stages as usize]),
    }
}

/// The devices of each stage of microbatch 0, then of microbatch 1, and so on, until they repeat; and after how many
/// microbatches they do, in every step. Each slice counts as a microbatch.
fn sets<'a>(
    writer: &mut Writer<'a>,
    place: PlaceLine<'a>,
    n_stages: u32,
    lost: &mut Vec<Lost>,
) -> Result<(DeviceSets, Option<u32>), Fault> {
    let stage = writer.variable(place.stage)?;
    let microbatch = place.microbatch.map(|name| writer.variable(name)).transpose()?;
    let home = resolve(writer, place.device)?;
    let microbatch = microbatch.filter(|slot| home.parts().iter().any(|code| code.depends >> slot & 1 == 1));
    let mut repeats = Some(1);
    if let Some(slot) = microbatch {
        writer.machine.set(slot, 0);
        for index in 0..n_stages {
            writer.machine.set(stage, i64::from(index));
            for code in home.parts() {
                let own = period::period(writer, code, slot);
                repeats =
                    own.zip(repeats).and_then(|(own, all)| period::common(own.into(), all.into())?.try_into().ok());
            }
        }
    }
    let n_rows = match (microbatch, repeats) {
        (None, _) => 1,
        // Where blocks run on from step to step, devices count on as well.
        (Some(_), Some(repeats)) if writer.turn || writer.weights.is_some() => repeats,
        (Some(_), Some(repeats)) => repeats.min(writer.n_microbatches),
        (Some(_), None) => {
            writer.turn = false;
            writer.n_microbatches
        }
    };
    let n_slices = if microbatch.is_some() { writer.slices.count() } else { 1 };
    tasks(u128::from(n_rows) * u128::from(n_stages), place.device.span)?;
    let mut sets = DeviceSets::default();
    for row in 0..n_rows {
        if let Some(slot) = microbatch {
            writer.machine.set(slot, i64::from(row));
        }
        for index in 0..n_stages {
            writer.machine.set(stage, i64::from(index));
            writer.machine.spend(1, place.device)?;
            match devices(writer, &home)? {
                Ok(devices) => sets.push(devices.into_iter().map(DeviceId)),
                Err(device) => {
                    lost.push((index, microbatch.map(|_| row), device));
                    sets.push([DeviceId(0)]);
                }
            }
            tasks(sets.n_places() as u128, place.device.span)?;
        }
        // All slices of a microbatch live together.
        let first = sets.len() - n_stages as usize;
        for _ in 1..n_slices {
            sets.repeat(first..first + n_stages as usize);
        }
    }
    [Some(stage), microbatch].into_iter().flatten().for_each(|slot| writer.machine.restore(slot, None));
    Ok((sets, repeats.and_then(|repeats| repeats.checked_mul(n_slices))))
}

/// The devices that a task occupies at the values that variables have now; if some are not there, the first of those.
fn devices<'a>(writer: &mut Writer<'a>, home: &Home<'a>) -> Result<Result<Vec<u32>, Option<i64>>, Fault> {
    let n_devices = writer.n_devices;
    let known = |value: i64| u32::try_from(value).ok().filter(|device| *device < n_devices).ok_or(Some(value));
    Ok(match home {
        Home::One(device) => known(writer.eval(device)?).map(|device| vec![device]),
        Home::Range(ends) => {
            let [first, end] = [writer.eval(&ends[0])?, writer.eval(&ends[1])?];
            if first >= end {
                return Ok(Err(None));
            }
            writer.machine.spend(u64::try_from(end - first.max(0)).unwrap_or(0).min(n_devices.into()), ends[0].expr)?;
            known(first).and_then(|first| {
                let last = known(end - 1).map_err(|_| Some(i64::from(n_devices)))?;
                Ok((first..=last).collect())
            })
        }
        Home::List(devices) if devices.is_empty() => Err(None),
        Home::List(devices) => {
            let values = devices.iter().map(|device| writer.eval(device)).collect::<Result<Vec<i64>, Fault>>()?;
            values.into_iter().map(known).collect()
        }
        Home::If(branches) => {
            let (condition, then, otherwise) = &**branches;
            let branch = if writer.eval(condition)? == 1 { then } else { otherwise };
            return devices(writer, branch);
        }
    })
}

/// Rule: a stage on several devices at once has the same ones for all microbatches.
fn unchanging(place: PlaceLine<'_>, n_stages: usize, sets: &DeviceSets) -> Result<(), Fault> {
    let changes = (n_stages..sets.len()).find(|set| {
        let (first, own) = (sets.get(set % n_stages), sets.get(*set));
        first != own && (first.len() > 1 || own.len() > 1)
    });
    let Some(set) = changes else { return Ok(()) };
    let (stage, microbatch) = (StageId::from_index(set % n_stages), set / n_stages);
    let (first, own) = (names(sets.get(stage.index())), names(sets.get(set)));
    let message = format!("{stage} lives on {first} for m0 and on {own} for m{microbatch}");
    let label = "changes with the microbatch";
    let error = Diagnostic::error(Code::WrongType, place.device.span, label, message);
    Err(Box::new(error.help("place a stage on one device for each microbatch, or on the same devices for all")))
}

fn off_devices(writer: &Writer<'_>, place: PlaceLine<'_>, (stage, microbatch, device): Lost) -> Diagnostic {
    let last = writer.n_devices - 1;
    let (what, short) = match microbatch {
        Some(microbatch) => (format!("m{microbatch} of stage s{stage}"), format!("m{microbatch} of s{stage}")),
        None => (format!("stage s{stage}"), format!("s{stage}")),
    };
    let Some(device) = device else {
        let message = format!("{what} is placed on no device");
        let error = Diagnostic::error(Code::StageOffDevices, place.device.span, format!("none for {short}"), message);
        return error.help("a range ends before its end: `0..2` are d0 and d1");
    };
    let message = format!("{what} is placed on device {device}, but devices are d0 to d{last}");
    let error = Diagnostic::error(Code::StageOffDevices, place.device.span, format!("{device} for {short}"), message);
    error.help(format!("devices count from 0 to {last}; `x % D` begins again at 0 behind that"))
}
