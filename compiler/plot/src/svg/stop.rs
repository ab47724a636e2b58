//! What the picture shows of a target that cannot run: where devices stand, who waits for whom, and from when on
//! memory does not suffice.

use super::{LEFT, LINE, Sheet, TASK, TOP, escape, sizes};
use crate::figures::{number, percent};
use crate::stop::StopWait;
use crate::tracks::Track;
use crate::{DrawnTask, Picture};
use pipe_compiler::report::Report;
use pipe_compiler::stuck::Stuck;
use std::fmt::Write;

impl Sheet {
    /// How that looks.
    pub(super) fn stop_defs(&self, svg: &mut String) {
        put!(
            svg,
            "<style>\n\
             .pipec .never {{ stroke: #52606d; stroke-width: 1; stroke-dasharray: 3 2; }}\n\
             .pipec .wait {{ stroke: #c4162a; stroke-width: 2; fill: none; }}\n\
             .pipec .stuck {{ font-size: 11px; fill: #a50e20; }}\n\
             .pipec .why {{ font-size: 13px; fill: #a50e20; }}\n\
             </style>"
        );
        put!(
            svg,
            r##"<marker id="{}-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="4.5" markerHeight="4.5" orient="auto"><path d="M0 0L8 4L0 8z" fill="#c4162a"/></marker>"##,
            self.scope
        );
    }

    /// The name of a schedule that is stuck, and how far it comes.
    pub(super) fn stuck_title(&self, svg: &mut String, name: &str, report: &Report, stuck: &Stuck) {
        self.name(svg, name);
        put!(svg, r#"<text class="figures" x="{LEFT}" y="54">{}</text>"#, sizes(report),);
        let (ran, all) = (stuck.ran.iter().sum::<usize>(), stuck.hidden.iter().sum::<usize>());
        let all = all + stuck.schedule.orders.iter().map(Vec::len).sum::<usize>();
        let at = super::seconds(stuck.at);
        put!(
            svg,
            r#"<text class="why" x="{LEFT}" y="72">deadlock at {}{}: {ran} of {all} tasks run ({})</text>"#,
            number(at),
            stuck.unit.map_or_else(String::new, |unit| format!(" {unit}")),
            percent(ran as f64 / all.max(1) as f64),
        );
    }

    /// Dots where tasks that never run are left out.
    pub(super) fn left_out(&self, svg: &mut String, track: &Track, y: f64) {
        let never: Vec<_> = track.marks.iter().filter(|mark| !mark.runs).collect();
        for pair in never.windows(2).filter(|pair| pair[0].end < pair[1].start) {
            let x = (self.x(super::seconds(pair[0].end)) + self.x(super::seconds(pair[1].start))) / 2.0;
            put!(svg, r#"<text class="number" x="{x:.1}" y="{y:.1}">…</text>"#);
        }
    }

    /// Where devices stand and who waits for whom, or from when on they hold too much.
    pub(super) fn stop(&self, svg: &mut String, picture: &Picture) {
        let x = |moment: u64| self.x(moment as f64 / picture.clock.ticks_per_unit as f64);
        for misfit in &picture.misfits {
            let (x, top) = (x(misfit.from), self.top(misfit.device as usize));
            put!(svg, r#"<path class="wait" d="M{x:.1} {:.1}v{:.1}"/>"#, top - 3.0, TASK + 6.0);
            put!(svg, r##"<path d="M{x:.1} {:.1}l-5 -7h10z" fill="#c4162a"/>"##, top - 1.0);
        }
        let Some(stop) = &picture.stop else { return };
        let at = x(stop.at);
        let bottom = self.bottom();
        put!(svg, r#"<path class="wait" d="M{at:.1} {:.1}V{:.1}" stroke-dasharray="2 3"/>"#, TOP - 6.0, bottom + 5.0);
        put!(svg, r#"<text class="stuck" x="{:.1}" y="{:.1}">stuck</text>"#, at + 4.0, TOP - 1.0);
        for cycle in &stop.cycles {
            self.cycle(svg, picture, cycle, &x);
        }
    }

    /// From each task of a cycle to the one that it needs, and from that to the one before which it does not run.
    fn cycle(&self, svg: &mut String, picture: &Picture, cycle: &[StopWait], x: &impl Fn(u64) -> f64) {
        let task = |index: u32| &picture.tasks[index as usize];
        let middle = |task: &DrawnTask| (x(task.start) + x(task.end)) / 2.0;
        let top = |task: &DrawnTask| self.top(task.device as usize);
        for one in cycle.iter().flat_map(|wait| [task(wait.task), task(wait.needs)]) {
            let width = (x(one.end) - x(one.start) - 1.0).max(2.0);
            put!(
                svg,
                r#"<rect class="wait" x="{:.2}" y="{:.1}" width="{width:.2}" height="{TASK}" rx="2.5"/>"#,
                x(one.start),
                top(one)
            );
        }
        let arrow = format!(r#"class="wait" marker-end="url(#{}-arrow)""#, self.scope);
        for (wait, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            let (at, needs, behind) = (task(wait.task), task(wait.needs), task(next.task));
            let (from, to) = (middle(at), middle(needs));
            let down = needs.device > at.device;
            if at.device == needs.device {
                let y = top(at);
                let over = y - 14.0;
                put!(
                    svg,
                    r#"<path {arrow} d="M{from:.1} {y:.1}C{from:.1} {over:.1} {to:.1} {over:.1} {to:.1} {y:.1}"/>"#
                );
            } else {
                let (start, end) = if down { (top(at) + TASK, top(needs)) } else { (top(at), top(needs) + TASK) };
                // Around what lies between, where devices are not neighbours.
                let bend = (end - start) / 2.0;
                put!(
                    svg,
                    r#"<path {arrow} d="M{from:.1} {start:.1}C{from:.1} {:.1} {to:.1} {:.1} {to:.1} {end:.1}"/>"#,
                    start + bend,
                    end - bend
                );
            }
            // On the side on which no arrow comes.
            if behind.device == needs.device && behind.start < needs.start {
                let below = down || at.device == needs.device;
                let (y, away) = if below { (top(needs) + TASK, 7.0) } else { (top(needs), -7.0) };
                put!(svg, r#"<path {arrow} d="M{to:.1} {y:.1}v{away}H{:.1}v{}"/>"#, middle(behind), -away);
            }
        }
    }

    /// Why the target cannot run.
    pub(super) fn why(&self, svg: &mut String, lines: &[String]) {
        let first = self.height + LINE - 4.0 - LINE * lines.len() as f64;
        for (place, line) in lines.iter().enumerate() {
            let y = first + LINE * place as f64;
            put!(svg, r#"<text class="why" x="{LEFT}" y="{y:.1}">{}</text>"#, escape(line));
        }
    }
}
