//! A job in which the form of every backward is fixed, laid out for list schedules: a *row* for
//! each series, or for both series that run at once.

use super::fusion::Part;
use super::job::{Job, Time};
use std::ops::Range;

/// What runs as one task of each microbatch.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// How orders mention it.
    pub(crate) mention: usize,
    /// Its series, or the first of both.
    pub(crate) series: usize,
    /// The first of its devices, which decides when it runs.
    pub(crate) leader: usize,
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
    pub fused: Vec<bool>,
    pub(crate) rows: Vec<Row>,
    /// By device: the rows that it leads.
    pub(crate) leads: Vec<Vec<usize>>,
    /// By device: other devices that lead a row on it.
    pub(crate) leaders: Vec<Vec<usize>>,
    others: Vec<usize>,
    needs: Vec<(usize, Time)>,
    feeds: Vec<(usize, Time)>,
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
    pub(crate) fn new(job: &Job, fused: &[bool]) -> Self {
        let (mut row_of, mut all): (Vec<usize>, Vec<(usize, Option<usize>)>) = (Vec::new(), Vec::new());
        for (series, part) in job.parts.iter().enumerate() {
            match *part {
                Part::Second(fusion) if fused[fusion] => row_of.push(row_of[job.fusions[fusion].first]),
                Part::First(fusion) if fused[fusion] => {
                    row_of.push(all.len());
                    all.push((series, Some(job.fusions[fusion].second)));
                }
                _ => {
                    row_of.push(all.len());
                    all.push((series, None));
                }
            }
        }
        let n_devices = job.capacity.len();
        let (rows, leads) = (Vec::with_capacity(all.len()), vec![Vec::new(); n_devices]);
        let (others, needs, feeds) = (Vec::new(), Vec::new(), Vec::new());
        let mut fixed =
            Self { fused: fused.to_vec(), rows, leads, leaders: vec![Vec::new(); n_devices], others, needs, feeds };
        for (row, (series, second)) in all.iter().copied().enumerate() {
            let both = || std::iter::once(series).chain(second).map(|series| &job.series[series]);
            let mention = if second.is_some() { job.mention(series).unwrap_or(series) } else { series };
            let outer =
                |(series, latency): &(usize, Time)| Some((row_of[*series], *latency)).filter(|(of, _)| *of != row);
            let leader = job.series[series].devices[0];
            fixed.leads[leader].push(row);
            for device in job.series[series].devices.iter().skip(1) {
                fixed.leaders[*device].push(leader);
            }
            fixed.rows.push(Row {
                mention,
                series,
                leader,
                duration: job.duration(mention),
                takes: job.takes(mention),
                others: added(&mut fixed.others, job.series[series].devices.iter().skip(1).copied()),
                needs: added(&mut fixed.needs, both().flat_map(|series| &series.needs).filter_map(outer)),
                feeds: added(&mut fixed.feeds, both().flat_map(|series| &series.feeds).filter_map(outer)),
            });
        }
        for leaders in &mut fixed.leaders {
            leaders.sort_unstable();
            leaders.dedup();
        }
        fixed
    }

    /// The devices of a row beside its leader.
    pub(crate) fn others(&self, row: &Row) -> &[usize] {
        all(&self.others, &row.others)
    }

    /// Rows whose task of the same microbatch must have ended, each with the latency from there.
    pub(crate) fn needs(&self, row: &Row) -> &[(usize, Time)] {
        all(&self.needs, &row.needs)
    }

    /// Rows that need this one, likewise.
    pub(crate) fn feeds(&self, row: &Row) -> &[(usize, Time)] {
        all(&self.feeds, &row.feeds)
    }
}
