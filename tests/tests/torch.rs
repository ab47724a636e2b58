//! Schedules in the form of PyTorch: what is written is sound for PyTorch and says the same; what
//! PyTorch writes itself is accepted, or refused where it computes something else; and the verdict
//! on a damaged one is that of a replay that knows no rule.

use pipe_compiler::torch::export::{Form, export};
use pipe_syntax::diagnostic::{Code, Diagnostic, Severity};
use pipe_syntax::torch::action::{Action, ActionKind};
use pipe_syntax::torch::lowered::lowered;
use pipe_syntax::torch::read::read;
use pipe_syntax::torch::table::{Cell, Table};
use pipe_syntax::torch::transport::Transport;
use pipe_syntax::torch::version::Version;
use pipe_syntax::torch::{Runtime, transports};
use pipe_tests::blocks::request;

use pipe_compiler::{Compilation, Request};
use pipe_syntax::stdlib;
use pipe_tests::cases::{compile_text, compiled, report, root};
use pipe_tests::schedules::{Dice, SPAN};
use pipe_tests::slice::{drawn, slice};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const VERSIONS: [&str; 5] = ["2.7", "2.9", "2.10", "2.14", "2.15"];

fn standard(name: &str, devices: i64, microbatches: i64) -> Compilation {
    let text = stdlib::schedule(name).expect("a standard schedule");
    compiled(name, text, &request(&[("devices", devices), ("microbatches", microbatches)]))
}

/// Tasks of each device, in order.
fn orders(compilation: &Compilation) -> Vec<Vec<String>> {
    let analysis = compilation.analysis.as_ref().expect("an accepted schedule");
    let order =
        |tasks: &Vec<pipe_schedule::schedule::ScheduledTask>| tasks.iter().map(|one| one.task.to_string()).collect();
    analysis.schedule.orders.iter().map(order).collect()
}

/// What may be said of a table of ours: what older versions leave undone, and in a note, what
/// deferred receives would do to one without transfers.
fn is_told(found: &Diagnostic, form: Form) -> bool {
    let defers = form == Form::Tasks && [Code::TransferOrder, Code::Deadlock].contains(&found.code);
    (defers && found.severity == Severity::Note) || found.code == Code::MissingReduction
}

#[test]
fn what_is_written_comes_back_as_the_same_schedule() {
    let (mut failures, mut n_written) = (Vec::new(), 0);
    for (name, _) in stdlib::SCHEDULES {
        for (devices, microbatches) in slice(2, [(4, 8), (2, 4), (8, 16)]).into_iter().take(drawn(1, 3)) {
            let compilation = standard(name, devices, microbatches);
            let Some(analysis) = compilation.analysis.as_ref().filter(|_| compilation.report.ok) else { continue };
            for version in VERSIONS.map(|version| version.parse::<Version>().expect("a version")) {
                for form in [Form::Tasks, Form::Transfers] {
                    let Ok((table, _)) = export(analysis, form, version.into()) else { continue };
                    n_written += 1;
                    let torch = version.into();
                    let back = compiled("x.csv", &table.to_string(), &Request { torch, ..Request::default() });
                    if !back.report.ok || back.diagnostics.iter().any(|found| !is_told(found, form)) {
                        failures.push(format!("{name} {devices} {form:?} {version}: {:?}\n{table}", back.diagnostics));
                    } else if orders(&back) != orders(&compilation) && version.has_pairs() {
                        failures.push(format!("{name} {devices} {form:?} {version} says something else\n{table}"));
                    } else if form == Form::Transfers && replay(&table, Transport::Eager) != Replay::Sound {
                        failures.push(format!(
                            "{name} {devices} {version}: {:?}\n{table}",
                            replay(&table, Transport::Eager)
                        ));
                    }
                }
            }
        }
    }
    assert!(n_written > drawn(100, 300), "only {n_written} were written");
    report(&failures);
}

#[test]
fn schedules_with_more_than_pytorch_knows_are_refused() {
    let refused = ["chimera", "dualpipe", "dp_1f1b", "cyclic_dp", "seq_1f1b"];
    for (name, _) in stdlib::SCHEDULES {
        let compilation = standard(name, 4, 8);
        let analysis = compilation.analysis.as_ref().unwrap_or_else(|| panic!("{name}: {:?}", compilation.diagnostics));
        let written = export(analysis, Form::Tasks, Version::NEWEST.into());
        assert_eq!(written.is_err(), refused.contains(name), "{name}");
        let codes: BTreeSet<Code> = written.err().into_iter().flatten().map(|found| found.code).collect();
        assert!(codes.iter().all(|code| *code == Code::CannotExport), "{name}: {codes:?}");
    }
}

#[test]
fn transfers_are_put_in_where_pytorch_puts_them() {
    let stock = |name: &str| {
        let text = pipe_tests::cases::read(&root().join(format!("tests/data/torch/{name}.csv")));
        read(SPAN.file, &text).expect("a table")
    };
    let shown = |table: &Table| -> Vec<Vec<String>> {
        let is_told =
            |cell: &&Cell| cell.partner.is_some() || cell.action.kind.task().is_some() || cell.action.is_transfer();
        table.rows.iter().map(|row| row.cells.iter().filter(is_told).map(Cell::to_string).collect()).collect()
    };
    for (folder, version) in [("", Version::NEWEST), ("2.14/", Version::REDUCES)] {
        for name in ["DualPipeV", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble"] {
            let tasks = stock(&format!("{folder}{name}_compute"));
            for (defers, written) in [(false, format!("{folder}{name}")), (true, format!("{folder}{name}_defer"))] {
                let made = lowered(&tasks, version, defers).expect("an order");
                assert_eq!(shown(&made), shown(&stock(&written)), "{written}");
            }
        }
    }
}

#[test]
fn stock_schedules_run_or_wait_forever_by_transport() {
    // Those of PyTorch 2.15 on 4 ranks: what it inserts runs with each transport. Deferred, transfers of two chunks
    // wait in a cycle where both directions share a communicator; ZBV and DualPipeV exchange numbers with any.
    let all = Transport::ALL.to_vec();
    let cases = [
        ("DualPipeV", vec![]),
        ("ZBVZeroBubble", vec![]),
        ("Interleaved1F1B", vec![Transport::Edge]),
        ("InterleavedZeroBubble", vec![Transport::Edge]),
    ];
    for (name, deferred) in cases {
        let of = |file: &str| {
            let text = pipe_tests::cases::read(&root().join(format!("tests/data/torch/{file}.csv")));
            read(SPAN.file, &text).expect("a table")
        };
        let told = transports(&of(&format!("{name}_compute")), Version::NEWEST);
        assert_eq!(told, (all.clone(), Some(deferred.clone())), "{name}");
        assert_eq!(transports(&of(name), Version::NEWEST), (all.clone(), None), "{name}");
        for transport in Transport::ALL {
            let sound = replay(&of(&format!("{name}_defer")), transport) == Replay::Sound;
            assert_eq!(sound, deferred.contains(&transport), "{name} {}", transport.word());
        }
    }
}

#[test]
fn a_table_may_be_the_schedule_of_a_pipeline() {
    let folder = std::env::temp_dir().join(format!("pipec-torch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("by_torch.csv"), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n").expect("a file");
    let text = "import \"by_torch.csv\"\nimport std.models.gpt\npipeline small {\n    model gpt\n    devices 2\n    microbatches 2\n    \
                schedule by_torch\n}\n";
    let (compilation, _) = compile_text("small.pipe", text, &folder, &Request::default());
    std::fs::remove_dir_all(&folder).expect("the folder is there");
    assert!(compilation.report.ok, "{:?}", compilation.diagnostics);
    assert!(compilation.program.is_some());
}

#[test]
fn tables_of_any_size_are_read() {
    let (ranks, microbatches) = (64, 600);
    let row = |rank: usize| {
        let cells: Vec<String> = (0..microbatches).map(|one| format!("{rank}F{one}")).collect();
        let back: Vec<String> = (0..microbatches).map(|one| format!("{rank}B{one}")).collect();
        format!("{},{}\n", cells.join(","), back.join(","))
    };
    let compilation = compiled("big.csv", &(0..ranks).map(row).collect::<String>(), &Request::default());
    assert!(compilation.report.ok, "{:?}", compilation.diagnostics);
}

/// What comes of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Replay {
    Sound,
    Wrong,
    Stops,
}

/// Runs a table as ranks with queues that nothing has a name in. Numbers are words that say what they are.
fn replay(table: &Table, transport: Transport) -> Replay {
    let placement = table.placement();
    let mut machine = Machine::new(table, placement, transport);
    while machine.advance() {}
    if machine.stopped || machine.next.iter().zip(&table.rows).any(|(next, row)| *next < row.cells.len()) {
        return Replay::Stops;
    }
    if machine.wire.iter().flatten().any(|(_, queue)| !queue.is_empty()) {
        return Replay::Stops;
    }
    if machine.wrong { Replay::Wrong } else { Replay::Sound }
}

/// Something under way: who takes part, and what it is.
type Posted = (Action, usize);

/// What the queues of a rank are told apart by: who is at the other end, and whether it sends.
type Queue = (Option<usize>, Option<bool>);

fn queue_of(transport: Transport, peer: usize, sends: bool) -> Queue {
    match transport {
        Transport::Eager => (None, None),
        Transport::Pair => (Some(peer), None),
        Transport::Edge => (Some(peer), Some(sends)),
    }
}

struct Machine<'a> {
    table: &'a Table,
    placement: BTreeMap<u32, usize>,
    next: Vec<usize>,
    transport: Transport,
    /// By rank, by queue: transfers that it has come to, in order.
    wire: Vec<BTreeMap<Queue, VecDeque<Posted>>>,
    /// What has arrived where, and what that is.
    arrived: BTreeMap<(usize, Action), Action>,
    left: BTreeSet<(usize, Action)>,
    done: BTreeSet<Action>,
    wrong: bool,
    stopped: bool,
}

impl<'a> Machine<'a> {
    fn new(table: &'a Table, placement: BTreeMap<u32, usize>, transport: Transport) -> Self {
        Self {
            table,
            placement,
            transport,
            next: vec![0; table.rows.len()],
            wire: vec![BTreeMap::new(); table.rows.len()],
            arrived: BTreeMap::new(),
            left: BTreeSet::new(),
            done: BTreeSet::new(),
            wrong: false,
            stopped: false,
        }
    }

    fn advance(&mut self) -> bool {
        let mut moved = self.meet();
        for rank in 0..self.next.len() {
            while let Some(cell) = self.table.rows[rank].cells.get(self.next[rank]) {
                if self.stopped || !self.handle(rank, cell) {
                    break;
                }
                self.next[rank] += 1;
                moved = true;
            }
        }
        moved && !self.stopped
    }

    /// The foremost transfers of two ranks meet, if one sends to the other and that one receives
    /// from it: whatever they are.
    fn meet(&mut self) -> bool {
        for rank in 0..self.wire.len() {
            for (queue, (send, to)) in self.foremost(rank) {
                if !send.is_send() {
                    continue;
                }
                let meets = self.foremost(to).into_iter().find(|(_, (end, from))| end.is_receive() && *from == rank);
                let Some((other, (receive, _))) = meets.filter(|_| to != rank) else { continue };
                self.wire[rank].get_mut(&queue).and_then(VecDeque::pop_front);
                self.wire[to].get_mut(&other).and_then(VecDeque::pop_front);
                self.left.insert((rank, send));
                self.arrived.insert((to, receive), send);
                return true;
            }
        }
        false
    }

    /// The first of every queue of a rank.
    fn foremost(&self, rank: usize) -> Vec<(Queue, Posted)> {
        let queues = self.wire.get(rank).into_iter().flatten();
        queues.filter_map(|(queue, posted)| Some((*queue, *posted.front()?))).collect()
    }

    fn is_under_way(&self, rank: usize, action: Action) -> bool {
        self.wire[rank].values().flatten().any(|(posted, _)| *posted == action)
    }

    fn handle(&mut self, rank: usize, cell: &Cell) -> bool {
        let is_there = |machine: &Self, action: Action| match (action.receive(), action.awaited()) {
            (Some(receive), _) if machine.crosses(rank, receive) => {
                let is_posted = machine.is_under_way(rank, receive);
                machine.arrived.contains_key(&(rank, receive)) || !is_posted
            }
            (_, Some(send)) => machine.left.contains(&(rank, send)) || !machine.is_under_way(rank, send),
            _ => true,
        };
        if !cell.actions().all(|action| is_there(self, action)) {
            return false;
        }
        cell.actions().for_each(|action| self.run(rank, action));
        true
    }

    fn crosses(&self, rank: usize, end: Action) -> bool {
        let other = end.other_end().and_then(|other| self.placement.get(&other.stage));
        other.is_some_and(|other| *other != rank)
    }

    fn run(&mut self, rank: usize, action: Action) {
        let crosses = |machine: &Self, end: Option<Action>| end.is_some_and(|end| machine.crosses(rank, end));
        if action.is_transfer() {
            let other = action.other_end().and_then(|other| self.placement.get(&other.stage)).copied();
            let computed = ActionKind::ALL.iter().any(|kind| {
                let task = Action { kind: *kind, ..action };
                task.send() == Some(action) && self.done.contains(&task)
            });
            let is_home = self.placement.get(&action.stage) == Some(&rank);
            let Some(other) = other.filter(|other| *other != rank && is_home && (action.is_receive() || computed))
            else {
                self.stopped = true;
                return;
            };
            let is_new = !self.left.contains(&(rank, action)) && !self.arrived.contains_key(&(rank, action));
            self.stopped |= !is_new || self.is_under_way(rank, action);
            let queue = queue_of(self.transport, other, action.is_send());
            self.wire[rank].entry(queue).or_default().push_back((action, other));
        } else if let Some(send) = action.awaited() {
            self.stopped |= !self.left.contains(&(rank, send));
        } else if action.kind.task().is_some() {
            if crosses(self, action.receive()) {
                let Some(receive) = action.receive() else { return };
                match self.arrived.get(&(rank, receive)) {
                    Some(what) => self.wrong |= what.other_end() != Some(receive),
                    None => self.stopped = true,
                }
            }
            self.done.insert(action);
        }
    }
}

/// Damages a table in one of a few ways.
fn damage(table: &mut Table, dice: &mut Dice) {
    let rank = dice.below(table.rows.len());
    let others = table.rows.len();
    let cells = &mut table.rows[rank].cells;
    let transfers: Vec<usize> = (0..cells.len()).filter(|one| cells[*one].action.is_transfer()).collect();
    let Some(at) = transfers.get(dice.below(transfers.len().max(1))).copied() else { return };
    match dice.below(10) {
        // Two receives change places, often neighbours.
        0..4 => {
            let receives: Vec<usize> = transfers.into_iter().filter(|one| cells[*one].action.is_receive()).collect();
            let one = dice.below(receives.len().max(1));
            let other = (one + 1 + dice.below(2)).min(receives.len().saturating_sub(1));
            if let (Some(one), Some(other)) = (receives.get(one), receives.get(other)) {
                cells.swap(*one, *other);
            }
        }
        // One moves a little.
        4..8 => {
            let cell = cells.remove(at);
            let to = (at + dice.below(5)).saturating_sub(2).min(cells.len());
            cells.insert(to, cell);
        }
        // One is lost.
        8 => drop(cells.remove(at)),
        // One is put on some rank once more.
        _ => {
            let copy = cells[at];
            let row = &mut table.rows[dice.below(others)].cells;
            let to = dice.below(row.len() + 1);
            row.insert(to, copy);
        }
    }
}

#[test]
fn the_verdict_on_damaged_tables_is_that_of_a_replay() {
    let mut dice = Dice(7);
    let (mut failures, mut counts) = (Vec::new(), [[0; 3]; 3]);
    for name in ["1f1b", "interleaved_1f1b", "zb_h1", "v_half", "dualpipe_v", "zb_v"] {
        let compilation = standard(name, 3, 6);
        let compilation = if compilation.report.ok { compilation } else { standard(name, 4, 8) };
        let analysis = compilation.analysis.as_ref().expect("an accepted schedule");
        let version: Version = "2.14".parse().expect("a version");
        let (sound, _) = export(analysis, Form::Transfers, version.into()).expect("PyTorch can run it");
        for _ in 0..drawn(300, 1_000) {
            let mut table = sound.clone();
            (0..=dice.below(4) / 3).for_each(|_| damage(&mut table, &mut dice));
            let text = table.to_string();
            let again = read(SPAN.file, &text).expect("every cell is an action");
            for (transport, counts) in Transport::ALL.into_iter().zip(&mut counts) {
                let runtime = Runtime { version: Some(version), transport: Some(transport) };
                let (_, verdict) = pipe_syntax::torch::check(&again, runtime);
                let replayed = replay(&table, transport);
                counts[replayed as usize] += 1;
                if verdict.is_ok() != (replayed == Replay::Sound) {
                    failures.push(format!("{name} {}: {replayed:?}, but {verdict:?}\n{text}", transport.word()));
                }
            }
        }
    }
    assert!(counts.iter().flatten().all(|count| *count > drawn(50, 200)), "{counts:?}");
    // More communicators let more tables through, never fewer.
    let sound = counts.map(|[sound, ..]| sound);
    assert!(sound[0] < sound[1] && sound[1] < sound[2], "{sound:?}");
    failures.truncate(3);
    report(&failures);
}
