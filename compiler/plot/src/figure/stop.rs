//! What a figure shows of a target that cannot run: where devices stand, who waits for whom, and from when on memory
//! does not suffice.

use super::scene::{Anchor, Paint, Part, Step, Text};
use super::sheet::Sheet;
use super::{FAINT, WRONG, WRONG_INK, legend, units};
use crate::numbers::{percent, time};
use crate::stop::StopWait;
use crate::tracks::Track;
use crate::{DrawnTask, Picture};
use pipe_compiler::stuck::Stuck;

/// How far a schedule comes that is stuck.
pub(super) fn words(stuck: &Stuck) -> String {
    let (ran, hidden) = (stuck.ran.iter().sum::<usize>(), stuck.hidden.iter().sum::<usize>());
    let all = hidden + stuck.schedule.orders.iter().map(Vec::len).sum::<usize>();
    let share = percent(ran as f64 / all.max(1) as f64);
    format!("deadlock at {}: {ran} of {all} tasks run ({share})", time(units(stuck.at), stuck.unit))
}

impl Sheet<'_> {
    /// Dots where tasks that never run are left out.
    pub(super) fn left_out(&self, part: &mut Part, track: &Track, y: f64) {
        let never: Vec<_> = track.marks.iter().filter(|mark| !mark.runs).collect();
        for pair in never.windows(2).filter(|pair| pair[0].end < pair[1].start) {
            let x = (self.axis.x(units(pair[0].end)) + self.axis.x(units(pair[1].start))) / 2.0;
            let (size, words) = (self.sizes.number, "…".to_owned());
            part.text(Text { at: [x, y], anchor: Anchor::Middle, size, bold: false, colour: FAINT, words });
        }
    }

    /// Where devices stand and who waits for whom, or from when on they hold too much.
    pub(super) fn stop(&self, part: &mut Part) {
        let Some(picture) = &self.shown.picture else { return };
        let x = |moment: u64| self.axis.x(moment as f64 / picture.clock.ticks_per_unit as f64);
        let (paint, size) = (legend::wrong(&self.sizes), self.sizes.small);
        for misfit in &picture.misfits {
            let (x, top) = (x(misfit.from), self.top(misfit.device as usize));
            part.line([x, top - 0.27 * size], [x, top + self.task + 0.27 * size], paint);
            let (tip, up) = (top - 0.1 * size, top - 0.73 * size);
            let head = [
                Step::Move([x, tip]),
                Step::Line([x - 0.45 * size, up]),
                Step::Line([x + 0.45 * size, up]),
                Step::Close,
            ];
            part.path(head.to_vec(), Paint::filled(WRONG));
        }
        let Some(stop) = &picture.stop else { return };
        let (at, top) = (x(stop.at), self.tracks_top());
        let dash = [0.18 * size, 0.27 * size];
        part.line([at, top - 0.55 * size], [at, self.bottom() + 0.45 * size], paint.dashed(dash));
        let at = [at + 0.36 * size, top - 0.1 * size];
        let words = "stuck".to_owned();
        part.text(Text { at, anchor: Anchor::Start, size, bold: false, colour: WRONG_INK, words });
        for cycle in &stop.cycles {
            self.cycle(part, picture, cycle, &x);
        }
    }

    /// From each task of a cycle to the one that it needs, and from that to the one before which it does not run.
    fn cycle(&self, part: &mut Part, picture: &Picture, cycle: &[StopWait], x: &impl Fn(u64) -> f64) {
        let task = |index: u32| &picture.tasks[index as usize];
        let middle = |task: &DrawnTask| (x(task.start) + x(task.end)) / 2.0;
        let top = |task: &DrawnTask| self.top(task.device as usize);
        let (paint, size, sizes) = (legend::wrong(&self.sizes), self.sizes.small, &self.sizes);
        for one in cycle.iter().flat_map(|wait| [task(wait.task), task(wait.needs)]) {
            let width = (x(one.end) - x(one.start) - sizes.hair).max(2.0 * sizes.hair);
            part.rectangle([x(one.start), top(one), width, self.task], sizes.round, paint);
        }
        for (wait, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            let (at, needs, behind) = (task(wait.task), task(wait.needs), task(next.task));
            let (from, to) = (middle(at), middle(needs));
            let down = needs.device > at.device;
            let mut arrow = |steps: Vec<Step>| part.arrow(steps, legend::arrow(sizes), paint);
            if at.device == needs.device {
                let y = top(at);
                let over = y - 1.27 * size;
                arrow(vec![Step::Move([from, y]), Step::Curve([[from, over], [to, over], [to, y]])]);
            } else {
                let (start, end) =
                    if down { (top(at) + self.task, top(needs)) } else { (top(at), top(needs) + self.task) };
                // Around what lies between, where devices are not neighbours.
                let bend = (end - start) / 2.0;
                let curve = [[from, start + bend], [to, end - bend], [to, end]];
                arrow(vec![Step::Move([from, start]), Step::Curve(curve)]);
            }
            // On the side on which no arrow comes.
            if behind.device == needs.device && behind.start < needs.start {
                let below = down || at.device == needs.device;
                let (y, away) = if below { (top(needs) + self.task, 0.64) } else { (top(needs), -0.64) };
                let (back, aside) = (middle(behind), y + away * size);
                arrow(vec![
                    Step::Move([to, y]),
                    Step::Line([to, aside]),
                    Step::Line([back, aside]),
                    Step::Line([back, y]),
                ]);
            }
        }
    }
}
