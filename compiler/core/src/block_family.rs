//! Families of blocks: one for every number of microbatches, where the text names `M`; and blocks
//! whose steps must not be too short.
//!
//! Nothing that is proved of one member holds for another, so every number up to the one at hand is
//! judged on its own, one turn of its block each, until a budget is spent. The smallest that breaks
//! a rule is told. Numbers that the schedule excludes by its `require`s, or that cut off a block
//! which runs on from step to step, break nothing.

use crate::{Request, elaborate};
use pipe_model::pipeline::Elaborated;
use pipe_schedule::block::async_window::too_late;
use pipe_schedule::block::chained_reductions::follow_slots;
use pipe_schedule::block::weight_versions::{Cycle, cycles};
use pipe_schedule::check;
use pipe_schedule::stage_graph::StageGraph;
use pipe_syntax::ast::{Schedule, ScheduleItem, Weights};
use pipe_syntax::diagnostic::{Code, Diagnostics};
use pipe_syntax::files::Files;
use pipe_syntax::uniform::{Dependence, dependence};
use serde::Serialize;

/// Tasks that are written out at most, over all numbers; beside, every number counts as some.
const MOST_TASKS: u64 = 200_000;
/// Tasks that a number counts as, whatever its block is.
const EACH: u64 = 20;

/// The numbers of microbatches for which a verdict holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// All.
    Every,
    /// All that the schedule's `require`s and whole blocks of a step allow.
    Allowed,
    /// Those of them up to this one, and the one at hand.
    UpTo(u32),
}

/// What is known of a number of microbatches.
enum Member {
    /// Its block is sound; it took so many tasks to find out.
    Sound(u64),
    /// Nothing speaks against its block, which took so many tasks, but sums that travel between
    /// replicas might get stuck.
    Open(u64),
    /// The schedule is not meant for it.
    Excluded,
    /// Its block is too large to be looked at.
    TooLarge,
    /// What speaks against it.
    Broken(Diagnostics),
}

/// For which numbers of microbatches the schedule at hand speaks, if it is a block.
///
/// # Errors
/// What speaks against the smallest number that breaks it.
pub fn numbers(files: &Files, request: &Request) -> Result<Option<Numbers>, Diagnostics> {
    let Some((declared, call)) = elaborate::schedule_of(files, &request.choice) else { return Ok(None) };
    let (Some(given), true) = (elaborate::microbatches_of(files, &request.choice), is_block(declared)) else {
        return Ok(None);
    };
    if elaborate::is_of_one_number(files, &request.choice) {
        return Ok(None);
    }
    let depends = dependence(files, declared, call);
    let mut graphs = Graphs::default();
    let Some((last, all)) = graphs.last(files, request, (declared, depends), given) else { return Ok(None) };
    let (mut spent, mut checked) = (0, 0);
    let (mut is_any_sound, mut is_open) = (false, false);
    for number in 1..=last {
        match graphs.member(turn(files, request, number), number) {
            Member::Sound(n_tasks) => (spent, is_any_sound) = (spent + n_tasks, true),
            Member::Open(n_tasks) => (spent, is_any_sound, is_open) = (spent + n_tasks, true, true),
            Member::Excluded => {}
            Member::TooLarge => break,
            Member::Broken(found) if number == given => {
                return if is_any_sound { Err(told(found, number, given, false)) } else { Ok(None) };
            }
            Member::Broken(found) => match graphs.member(turn(files, request, given), given) {
                // What is wrong with every number is said of the one at hand.
                Member::Broken(other) if other == found && !is_any_sound => return Ok(None),
                Member::Excluded => return Ok(None),
                other => return Err(told(found, number, given, matches!(other, Member::Sound(_)))),
            },
        }
        (spent, checked) = (spent + EACH, if is_open { checked } else { number });
        if spent > MOST_TASKS {
            break;
        }
    }
    Ok(match checked {
        _ if checked >= last => Some(all),
        0 => None,
        _ => Some(Numbers::UpTo(checked)),
    })
}

/// Whether some tasks of a block take the first slots that are free.
fn fills(declared: &Schedule) -> bool {
    declared.items.iter().any(|item| match item {
        ScheduleItem::Block(block) => block.tasks.iter().any(|task| task.at.is_none()),
        _ => false,
    })
}

fn is_block(declared: &Schedule) -> bool {
    declared.items.iter().any(|item| matches!(item, ScheduleItem::Block(_)))
}

/// A schedule that is written out, and where it is from.
type Instance<'a> = (&'a Files, Result<Elaborated, Diagnostics>);

/// The schedule of a number of microbatches, one turn of it.
fn turn<'a>(files: &'a Files, request: &Request, number: u32) -> Instance<'a> {
    written(files, request, number, true)
}

fn written<'a>(files: &'a Files, request: &Request, number: u32, turn: bool) -> Instance<'a> {
    let mut choice = elaborate::Request { turn, ..request.choice.clone() };
    choice.settings.push(("microbatches".to_owned(), i64::from(number)));
    (files, elaborate::elaborate(files, &choice))
}

/// The last stage graph of a model: most members have as many stages as the one before.
#[derive(Default)]
struct Graphs(Option<StageGraph>);

impl Graphs {
    /// The last number that has to be looked at on its own, and for which numbers the verdict then holds.
    fn last(
        &mut self,
        files: &Files,
        request: &Request,
        (declared, depends): (&Schedule, Dependence),
        given: u32,
    ) -> Option<(u32, Numbers)> {
        let all = match depends {
            Dependence::Nothing => Numbers::Every,
            Dependence::Conditions => Numbers::Allowed,
            Dependence::Varied => return Some((given, Numbers::UpTo(given))),
        };
        let schedule = turn(files, request, given).1.ok()?.schedule;
        schedule.placement.repeats()?;
        let (Some(block), Some(window)) = (&schedule.block, &schedule.window) else {
            let whole = schedule.n_microbatches;
            let is_alike = !fills(declared) || whole <= given && self.shorter_are_sound(files, request, whole);
            return is_alike.then_some((0, all));
        };
        // Steps are whole blocks.
        let all = if block.microbatches == 1 { all } else { Numbers::Allowed };
        if window.weights != Weights::Previous {
            return Some((0, all));
        }
        // From so many blocks on, every version is there in time.
        let enough = cycles(block, schedule.n_stages()).iter().map(Cycle::enough_for_previous).max()?;
        Some((u32::try_from(enough - 1).unwrap_or(u32::MAX).min(given), all))
    }

    /// Whether all steps that end before the devices repeat are sound: `fill` puts tasks elsewhere in them.
    fn shorter_are_sound(&mut self, files: &Files, request: &Request, whole: u32) -> bool {
        let mut spent = 0;
        (1..whole).all(|number| {
            spent += EACH;
            match self.member(written(files, request, number, false), number) {
                Member::Sound(n_tasks) => spent += n_tasks,
                Member::Excluded => {}
                Member::Open(_) | Member::TooLarge | Member::Broken(_) => return false,
            }
            spent <= MOST_TASKS
        })
    }

    fn member(&mut self, (files, written): Instance<'_>, number: u32) -> Member {
        let Elaborated { mut schedule, pipeline, parameters, .. } = match written {
            Ok(elaborated) => elaborated,
            Err(found) if found.iter().any(|one| one.code == Code::ConditionFailed) => return Member::Excluded,
            Err(found) if found.iter().any(|one| one.code == Code::TooLarge) => return Member::TooLarge,
            Err(found) => return Member::Broken(found),
        };
        let n_stages = schedule.n_stages();
        if self.0.as_ref().is_none_or(|graph| graph.n_stages() != n_stages) {
            let call = pipeline.as_ref().and_then(|pipeline| pipeline.model.as_ref());
            // What is wrong with the model is said of the step at hand.
            let graph = call.and_then(|call| pipe_model::graph_of_rows(files, call, &parameters, &schedule));
            self.0 = Some(graph.unwrap_or_else(|| schedule.graph.clone()));
        }
        schedule.graph.clone_from(self.0.get_or_insert_default());
        let window = schedule.window.take();
        let size = schedule.block.as_ref().map_or(1, |block| block.microbatches.max(1));
        if window.is_some() && !number.is_multiple_of(size) {
            return Member::Excluded;
        }
        let n_tasks = schedule.n_tasks() as u64;
        let mut found = check::check(&schedule).err().unwrap_or_default();
        let mut follows = true;
        if let (Some(window), Some(block)) = (window, &schedule.block) {
            follows = follow_slots(block, &schedule.placement, |_| true);
            let kept = cycles(block, n_stages);
            let late = kept.iter().filter_map(|cycle| cycle.kept(window.weights, u64::from(number / size)).err());
            found.extend(late.map(|late| too_late(late, window.span, number)));
        }
        match found.is_empty() {
            true if follows => Member::Sound(n_tasks),
            true => Member::Open(n_tasks),
            false => Member::Broken(found),
        }
    }
}

/// Says with how many microbatches something breaks.
fn told(mut found: Diagnostics, number: u32, given: u32, is_given_sound: bool) -> Diagnostics {
    let count = |number: u32| if number == 1 { "1 microbatch".to_owned() } else { format!("{number} microbatches") };
    let breaks = format!("breaks with {}, the fewest that break it", count(number));
    let note = if is_given_sound {
        format!(
            "the schedule is sound with {}, but {breaks}; `require` says which numbers it is meant for",
            count(given)
        )
    } else {
        format!("the schedule {breaks}")
    };
    found.iter_mut().for_each(|one| one.notes.insert(0, note.clone()));
    found
}
