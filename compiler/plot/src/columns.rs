//! Long tables by column: `{"kind": [0, 0, ..], "start": [0, 1, ..]}`. A column that is 0 in every row is left out.

use super::{Collective, Copy, DrawnTask, Gap, Transfer};
use crate::statements::Statement;
use crate::tracks::Occupancy;
use serde::Serializer;
use serde::ser::SerializeMap;

/// Which number a row has in a column.
type Column<T> = (&'static str, fn(&T) -> i64);

fn write<T, S: Serializer>(rows: &[T], columns: &[Column<T>], serializer: S) -> Result<S::Ok, S::Error> {
    let mut table = serializer.serialize_map(None)?;
    table.serialize_entry("count", &rows.len())?;
    for (name, number) in columns {
        let numbers: Vec<i64> = rows.iter().map(number).collect();
        if numbers.iter().any(|number| *number != 0) {
            table.serialize_entry(name, &numbers)?;
        }
    }
    table.end()
}

/// Times are far below 2^63, or no picture is drawn.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// `share` is 1 for the first of two tasks that share the device and 2 for the second; `after` is
/// one more than the position of the task that was waited for. `statement` is one more than the position of its
/// statement.
pub(super) fn tasks<S: Serializer>(tasks: &[DrawnTask], serializer: S) -> Result<S::Ok, S::Error> {
    let share = |task: &DrawnTask| match task.share {
        Occupancy::Whole => 0,
        Occupancy::First => 1,
        Occupancy::Second => 2,
    };
    let reason = |task: &DrawnTask| task.reason as i64;
    let columns: [Column<DrawnTask>; 12] = [
        ("kind", |task| task.kind.index() as i64),
        ("stage", |task| task.stage.into()),
        ("microbatch", |task| task.microbatch.into()),
        ("slice", |task| task.slice.into()),
        ("start", |task| signed(task.start)),
        ("duration", |task| signed(task.end - task.start)),
        ("share", share),
        ("goes_on", |task| task.goes_on.into()),
        ("reason", reason),
        ("after", |task| task.after.map_or(0, |after| i64::from(after) + 1)),
        ("late", |task| signed(task.late)),
        ("statement", |task| task.statement.map_or(0, |statement| i64::from(statement) + 1)),
    ];
    write(tasks, &columns, serializer)
}

/// `other` is one more than the device that is waited for.
pub(super) fn gaps<S: Serializer>(gaps: &[Gap], serializer: S) -> Result<S::Ok, S::Error> {
    let columns: [Column<Gap>; 5] = [
        ("device", |one| one.device.into()),
        ("cause", |one| one.cause as i64),
        ("other", |one| one.other.map_or(0, |other| i64::from(other) + 1)),
        ("start", |one| signed(one.start)),
        ("duration", |one| signed(one.end - one.start)),
    ];
    write(gaps, &columns, serializer)
}

/// Lines and columns are counted from 1, the end is one behind the last character.
pub(super) fn statements<S: Serializer>(statements: &[Statement], serializer: S) -> Result<S::Ok, S::Error> {
    let columns: [Column<Statement>; 5] = [
        ("source", |one| one.source.into()),
        ("line", |one| one.start.line.into()),
        ("column", |one| one.start.column.into()),
        ("end_line", |one| one.end.line.into()),
        ("end_column", |one| one.end.column.into()),
    ];
    write(statements, &columns, serializer)
}

/// A transfer leaves when the task ends that makes it.
pub(super) fn transfers<S: Serializer>(transfers: &[Transfer], serializer: S) -> Result<S::Ok, S::Error> {
    let columns: [Column<Transfer>; 5] = [
        ("from", |one| one.from.into()),
        ("to", |one| one.to.into()),
        ("class", |one| one.class as i64),
        ("duration", |one| signed(one.end - one.start)),
        ("bytes", |one| one.bytes.map_or(0, signed)),
    ];
    write(transfers, &columns, serializer)
}

/// `direction` is 0 to the device, and 1 from it. `stage` is one more than that of an activation that is evicted or
/// fetched, and `peer` one more than the device where it waits.
pub(super) fn copies<S: Serializer>(copies: &[Copy], serializer: S) -> Result<S::Ok, S::Error> {
    let columns: [Column<Copy>; 8] = [
        ("device", |one| one.device.into()),
        ("direction", |one| one.direction as i64),
        ("start", |one| signed(one.start)),
        ("duration", |one| signed(one.end - one.start)),
        ("stage", |one| one.swap.map_or(0, |swap| i64::from(swap.stage) + 1)),
        ("microbatch", |one| one.swap.map_or(0, |swap| swap.microbatch.into())),
        ("slice", |one| one.swap.map_or(0, |swap| swap.slice.into())),
        ("peer", |one| one.swap.and_then(|swap| swap.peer).map_or(0, |peer| i64::from(peer) + 1)),
    ];
    write(copies, &columns, serializer)
}

/// `stage` is one more than that.
pub(super) fn collectives<S: Serializer>(collectives: &[Collective], serializer: S) -> Result<S::Ok, S::Error> {
    let what = |one: &Collective| one.what as i64;
    let columns: [Column<Collective>; 5] = [
        ("device", |one| one.device.into()),
        ("what", what),
        ("stage", |one| one.stage.map_or(0, |stage| i64::from(stage) + 1)),
        ("start", |one| signed(one.start)),
        ("duration", |one| signed(one.end - one.start)),
    ];
    write(collectives, &columns, serializer)
}

/// Moments and levels.
pub(super) fn levels<S: Serializer>(levels: &[(u64, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    let columns: [Column<(u64, u64)>; 2] = [("at", |one| signed(one.0)), ("parts", |one| signed(one.1))];
    write(levels, &columns, serializer)
}
