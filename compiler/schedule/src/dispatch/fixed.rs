//! A job in which the form of every backward is fixed, laid out for list schedules: a *row* for
//! each series, or for both series that run at once.

use super::fusion::Part;
use super::job::{FusionId, Job, Mention, SeriesId, Time};
use pipe_ir::ids;
use pipe_ir::ids::{DeviceId, IndexVec};
use std::ops::Range;

ids! {
    /// A row.
    RowId "row "
}

/// What runs as one task of each microbatch.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// How orders mention it.
    pub(crate) mention: Mention,
    /// Its series, or the first of both.
    pub(crate) series: SeriesId,
    /// The first of its devices, which decides when it runs.
    pub(crate) leader: DeviceId,
    pub(crate) duration: Time,
    pub(crate) takes: i64,
    others: Range<u32>,
    needs: Range<u32>,
    feeds: Range<u32>,
}

/// All rows.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    /// By fusion: whether both halves run at once.
    pub fused: IndexVec<FusionId, bool>,
    pub(crate) rows: IndexVec<RowId, Row>,
    /// By device: the rows that it leads.
    pub(crate) leads: IndexVec<DeviceId, Vec<RowId>>,
    /// By device: other devices that lead a row on it.
    pub(crate) leaders: IndexVec<DeviceId, Vec<DeviceId>>,
    others: Vec<DeviceId>,
    needs: Vec<(RowId, Time)>,
    feeds: Vec<(RowId, Time)>,
}

fn all<'a, T>(items: &'a [T], range: &Range<u32>) -> &'a [T] {
    items.get(range.start as usize..range.end as usize).unwrap_or_default()
}

fn added<T>(items: &mut Vec<T>, more: impl Iterator<Item = T>) -> Range<u32> {
    let start = items.len() as u32;
    items.extend(more);
    start..items.len() as u32
}

impl Fixed {
    pub(crate) fn new(job: &Job, fused: &IndexVec<FusionId, bool>) -> Self {
        let mut mentions: IndexVec<RowId, Mention> = IndexVec::default();
        let mut row_of: IndexVec<SeriesId, RowId> = IndexVec::default();
        for (series, part) in job.parts.iter_ids() {
            let row = match *part {
                Part::Second(fusion) if fused[fusion] => row_of[job.fusions[fusion].first],
                Part::First(fusion) if fused[fusion] => mentions.push(Mention::Fusion(fusion)),
                _ => mentions.push(Mention::Series(series)),
            };
            row_of.push(row);
        }
        let mut fixed = Self {
            fused: fused.clone(),
            rows: IndexVec::default(),
            leads: job.capacity.map(|_| Vec::new()),
            leaders: job.capacity.map(|_| Vec::new()),
            others: Vec::new(),
            needs: Vec::new(),
            feeds: Vec::new(),
        };
        for (row, mention) in mentions.iter_ids() {
            let (series, second) = job.series_of(*mention);
            let both = || std::iter::once(series).chain(second).map(|series| &job.series[series]);
            let outer =
                |(series, latency): &(SeriesId, Time)| Some((row_of[*series], *latency)).filter(|of| of.0 != row);
            let [leader, others @ ..] = &job.series[series].devices[..] else { continue };
            fixed.leads[*leader].push(row);
            others.iter().for_each(|device| fixed.leaders[*device].push(*leader));
            fixed.rows.push(Row {
                mention: *mention,
                series,
                leader: *leader,
                duration: job.duration(*mention),
                takes: job.takes(*mention),
                others: added(&mut fixed.others, others.iter().copied()),
                needs: added(&mut fixed.needs, both().flat_map(|series| &series.needs).filter_map(outer)),
                feeds: added(&mut fixed.feeds, both().flat_map(|series| &series.feeds).filter_map(outer)),
            });
        }
        for leaders in fixed.leaders.iter_mut() {
            leaders.sort_unstable();
            leaders.dedup();
        }
        fixed
    }

    /// The devices of a row beside its leader.
    pub(crate) fn others(&self, row: &Row) -> &[DeviceId] {
        all(&self.others, &row.others)
    }

    /// Rows whose task of the same microbatch must have ended, each with the latency from there.
    pub(crate) fn needs(&self, row: &Row) -> &[(RowId, Time)] {
        all(&self.needs, &row.needs)
    }

    /// Rows that need this one, likewise.
    pub(crate) fn feeds(&self, row: &Row) -> &[(RowId, Time)] {
        all(&self.feeds, &row.feeds)
    }
}
