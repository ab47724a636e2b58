//! Activations that are evicted and fetched, against a machine of its own: devices with two queues for copies, and the
//! places that activations wait in, moment by moment.

use pipe_compiler::Request;
use pipe_schedule::units::Ticks;
use pipe_tests::cases::{compiled, read, root, standard};
use pipe_tests::schedules::Dice;
use pipe_tests::slice::{drawn, slice};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What stands in a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Word {
    Forward,
    Input,
    Weight,
    Both,
    Evict,
    Fetch,
}

/// A statement: what, of which stage and microbatch.
type Entry = (Word, usize, usize);

/// Stages on devices, and the lists of these.
#[derive(Clone, Debug)]
struct Case {
    n_devices: usize,
    n_stages: usize,
    n_microbatches: usize,
    /// By stage: where its activations wait; none for the host.
    homes: Vec<Option<usize>>,
    /// By stage: how much it saves, and whether its backward is split, so that half of that waits for `W`.
    stages: Vec<(usize, bool)>,
    lists: Vec<Vec<Entry>>,
    /// `F`, `B`, `W`, `BW`, `evict`, `fetch`.
    takes: [u64; 6],
}

impl Case {
    fn device(&self, stage: usize) -> usize {
        stage % self.n_devices
    }

    fn backward(&self, stage: usize) -> Word {
        if self.stages[stage].1 { Word::Input } else { Word::Both }
    }

    fn inputs(&self, (word, stage, microbatch): Entry) -> Vec<Entry> {
        match word {
            Word::Forward if stage == 0 => Vec::new(),
            Word::Forward => vec![(Word::Forward, stage - 1, microbatch)],
            Word::Weight => vec![(Word::Input, stage, microbatch)],
            Word::Input | Word::Both => {
                let after = (stage + 1 < self.n_stages).then(|| (self.backward(stage + 1), stage + 1, microbatch));
                after.into_iter().chain([(Word::Forward, stage, microbatch)]).collect()
            }
            Word::Evict | Word::Fetch => Vec::new(),
        }
    }

    fn random(dice: &mut Dice) -> Self {
        let n_devices = 2 + dice.below(3);
        let n_stages = n_devices * (1 + dice.below(2));
        let home = |stage: usize, dice: &mut Dice| {
            let other = 1 + dice.below(n_devices - 1);
            (dice.below(4) > 0).then_some((stage % n_devices + other) % n_devices)
        };
        // All stages wait on devices, or all with hosts.
        let homes: Vec<_> = (0..n_stages).map(|stage| home(stage, dice)).collect();
        let to_host = homes[0].is_none();
        let homes = homes.iter().enumerate().map(|(stage, home)| match (to_host, home) {
            (true, _) => None,
            (false, home) => Some(home.unwrap_or((stage + 1) % n_devices)),
        });
        let stages = (0..n_stages).map(|_| (1 + dice.below(2), dice.below(3) == 0)).collect();
        let takes = [1, 1, 1, 1, 0, 0].map(|least| least + dice.below(4) as u64);
        let n_microbatches = 2 + dice.below(5);
        let homes = homes.collect();
        let mut case = Self { n_devices, n_stages, n_microbatches, homes, stages, lists: Vec::new(), takes };
        case.order(dice);
        case.move_some(dice);
        case
    }

    /// Lists in which all tasks can run.
    fn order(&mut self, dice: &mut Dice) {
        let mut left: Vec<Entry> = Vec::new();
        for stage in 0..self.n_stages {
            for microbatch in 0..self.n_microbatches {
                left.push((Word::Forward, stage, microbatch));
                left.push((self.backward(stage), stage, microbatch));
                if self.stages[stage].1 {
                    left.push((Word::Weight, stage, microbatch));
                }
            }
        }
        self.lists = vec![Vec::new(); self.n_devices];
        let mut done: BTreeSet<Entry> = BTreeSet::new();
        while !left.is_empty() {
            let is_ready = |entry: &Entry| self.inputs(*entry).iter().all(|input| done.contains(input));
            let ready: Vec<usize> = (0..left.len()).filter(|index| is_ready(&left[*index])).collect();
            // Rather forwards, so that much is alive.
            let forwards = ready.iter().copied().filter(|index| left[*index].0 == Word::Forward);
            let forwards: Vec<usize> = forwards.collect();
            let from = if forwards.is_empty() || dice.below(3) == 0 { &ready } else { &forwards };
            let entry = left.swap_remove(from[dice.below(from.len())]);
            done.insert(entry);
            let device = self.device(entry.1);
            self.lists[device].push(entry);
        }
    }

    /// Evicts and fetches activations between their forwards and their backwards, some of them twice.
    fn move_some(&mut self, dice: &mut Dice) {
        for (stage, microbatch) in (0..self.n_stages).flat_map(|s| (0..self.n_microbatches).map(move |m| (s, m))) {
            if dice.below(2) == 0 {
                continue;
            }
            let backward = self.backward(stage);
            let device = self.device(stage);
            let place = |list: &[Entry], word| list.iter().position(|one| *one == (word, stage, microbatch));
            let mut from = place(&self.lists[device], Word::Forward).expect("all run forward") + 1;
            for _ in 0..1 + dice.below(5) / 4 {
                for word in [Word::Evict, Word::Fetch] {
                    let to = place(&self.lists[device], backward).expect("all run backward");
                    let at = from + dice.below(to - from + 1);
                    self.lists[device].insert(at, (word, stage, microbatch));
                    from = at + 1;
                }
            }
        }
    }

    /// Lets statements change places, and leaves some of the moves out or writes them twice.
    fn damage(&mut self, dice: &mut Dice) {
        for _ in 0..1 + dice.below(2) {
            let device = dice.below(self.n_devices);
            let list = &mut self.lists[device];
            let (one, other) = (dice.below(list.len()), dice.below(list.len()));
            let is_move = |entry: Entry| matches!(entry.0, Word::Evict | Word::Fetch);
            match dice.below(3) {
                0 if is_move(list[one]) => {
                    list.remove(one);
                }
                1 if is_move(list[one]) => list.insert(other, list[one]),
                _ => list.swap(one, other),
            }
        }
    }

    fn text(&self) -> String {
        let letters = |word: Word| match word {
            Word::Forward => "F",
            Word::Input => "B",
            Word::Weight => "W",
            Word::Both => "BW",
            Word::Evict => "evict",
            Word::Fetch => "fetch",
        };
        let statement = |(word, stage, microbatch): &Entry| format!("{}[{stage}, {microbatch}]", letters(*word));
        let list = |(device, list): (usize, &Vec<Entry>)| {
            let statements: Vec<String> = list.iter().map(statement).collect();
            format!("if d == {device} {{ {} }} ", statements.join(" "))
        };
        let lists: String = self.lists.iter().enumerate().map(list).collect();
        let homes: Option<Vec<String>> = self.homes.iter().map(|home| Some((*home)?.to_string())).collect();
        let home = homes.map_or_else(|| "host".to_owned(), |homes| format!("[{}][s]", homes.join(", ")));
        let saved = self.stages.iter().enumerate().map(|(stage, (saved, _))| format!("F[{stage}] = {saved}"));
        let split = self.stages.iter().enumerate().filter(|(_, (_, is_split))| *is_split);
        let split = split.map(|(stage, _)| format!("W[{stage}] = 1 / 2"));
        let activation: Vec<String> = saved.chain(split).collect();
        let [forward, input, weight, both, evict, fetch] = self.takes;
        format!(
            "schedule random {{ stages {} place s on s % D swap s to {home} order d {{ {lists} }} }}
            pipeline p {{ devices {} microbatches {} schedule random activation {}
            cost F = {forward}, B = {input}, W = {weight}, BW = {both}, evict = {evict}, fetch = {fetch} }}",
            self.n_stages,
            self.n_devices,
            self.n_microbatches,
            activation.join(", "),
        )
    }
}

/// A copy that was queued.
#[derive(Clone, Copy)]
struct Copy {
    word: Word,
    stage: usize,
    /// Copies of the same device that must have ended.
    behind: [Option<usize>; 2],
    /// Whether all copies out that were queued before must have ended.
    behind_evicts: bool,
    place: usize,
    span: Option<(u64, u64)>,
    /// Of one out: whether its room was given back.
    is_given: bool,
}

/// Where an activation is for the list of its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Where {
    Here,
    Out,
    Gone,
}

/// A device of the machine.
#[derive(Default)]
struct Machine {
    next: usize,
    busy: Option<(Entry, u64)>,
    copies: Vec<Copy>,
    /// By way, out and back: what was queued and has not started.
    queues: [VecDeque<usize>; 2],
    places: BTreeMap<(Option<usize>, usize), Places>,
    activations: BTreeMap<(usize, usize), (Where, Option<usize>)>,
    /// Halves of activations, now and at most.
    held: (i64, i64),
}

/// Places of one size at one home: those that are free for the list, each with the copy that empties it.
#[derive(Default)]
struct Places {
    count: usize,
    free: VecDeque<(usize, Option<usize>)>,
    /// By place: when activations were in it.
    spans: Vec<Vec<(u64, u64)>>,
}

/// What the machine finds.
struct Ran {
    makespan: u64,
    /// By device, in halves of activations: the most that its own took, and what it keeps for others.
    own: Vec<i64>,
    kept: Vec<i64>,
}

/// Why it finds nothing.
#[derive(PartialEq, Eq, Debug)]
enum Fault {
    Stuck,
    Wrong,
}

impl Machine {
    fn ended(&self, copy: usize, now: u64) -> bool {
        self.copies[copy].span.is_some_and(|(_, end)| end <= now)
    }

    fn hold(&mut self, halves: i64) {
        self.held.0 += halves;
        self.held.1 = self.held.1.max(self.held.0);
    }

    /// How many places a list needs at each home, by size.
    fn reserve(&mut self, case: &Case, list: &[Entry]) {
        let mut out: BTreeMap<(Option<usize>, usize), i64> = BTreeMap::new();
        for (word, stage, _) in list {
            let key = (case.homes[*stage], case.stages[*stage].0);
            let change = match word {
                Word::Evict => 1,
                Word::Fetch => -1,
                _ => continue,
            };
            let now = out.entry(key).or_default();
            *now += change;
            let places = self.places.entry(key).or_default();
            places.count = places.count.max(usize::try_from(*now).unwrap_or(0));
        }
        for places in self.places.values_mut() {
            places.free = (0..places.count).map(|place| (place, None)).collect();
            places.spans = vec![Vec::new(); places.count];
        }
    }

    /// Queues what a statement moves; false if that makes no sense.
    fn queue(&mut self, case: &Case, (word, stage, microbatch): Entry) -> bool {
        let key = (case.homes[stage], case.stages[stage].0);
        let Some((place, last)) = self.activations.get_mut(&(stage, microbatch)) else { return false };
        let index = self.copies.len();
        let places = self.places.entry(key).or_default();
        let (behind, of_place, behind_evicts) = match (word, *place) {
            (Word::Evict, Where::Here) => {
                let Some((free, emptied)) = places.free.pop_front() else { return false };
                *place = Where::Out;
                ([emptied, *last], free, false)
            }
            (Word::Fetch, Where::Out) => {
                *place = Where::Here;
                let of_place = self.copies[last.expect("it left")].place;
                places.free.push_back((of_place, Some(index)));
                ([*last, None], of_place, true)
            }
            _ => return false,
        };
        *last = Some(index);
        self.copies.push(Copy { word, stage, behind, behind_evicts, place: of_place, span: None, is_given: false });
        self.queues[usize::from(word == Word::Fetch)].push_back(index);
        true
    }

    /// Whether a task need not wait for copies. False as its second half if it reads what is out.
    fn may_start(&self, (word, stage, microbatch): Entry, now: u64) -> (bool, bool) {
        match word {
            Word::Forward => {
                let mut evicts = (0..self.copies.len()).filter(|copy| self.copies[*copy].word == Word::Evict);
                (evicts.all(|copy| self.ended(copy, now)), true)
            }
            Word::Input | Word::Both => match self.activations.get(&(stage, microbatch)) {
                Some((Where::Here, None)) => (true, true),
                Some((Where::Here, Some(copy))) => (self.ended(*copy, now), true),
                _ => (true, false),
            },
            _ => (true, true),
        }
    }

    /// What has left gives its room back, before anything starts.
    fn give_back(&mut self, case: &Case, now: u64) {
        for index in 0..self.copies.len() {
            let Copy { word, stage, is_given, .. } = self.copies[index];
            if word == Word::Evict && !is_given && self.ended(index, now) {
                self.copies[index].is_given = true;
                self.hold(-2 * case.stages[stage].0 as i64);
            }
        }
    }

    /// Starts the copies that may start; whether any did.
    fn start_copies(&mut self, case: &Case, now: u64) -> bool {
        let mut any = false;
        for way in 0..2 {
            self.give_back(case, now);
            let Some(index) = self.queues[way].front().copied() else { continue };
            let copy = self.copies[index];
            // One copy at a time goes each way.
            let is_free =
                (0..index).filter(|other| self.copies[*other].word == copy.word).all(|other| self.ended(other, now));
            let is_there = copy.behind.iter().flatten().all(|other| self.ended(*other, now));
            let mut evicts = (0..index).filter(|other| self.copies[*other].word == Word::Evict);
            if !is_free || !is_there || copy.behind_evicts && !evicts.all(|other| self.ended(other, now)) {
                continue;
            }
            let end = now + case.takes[4 + way];
            self.copies[index].span = Some((now, end));
            self.queues[way].pop_front();
            any = true;
            if copy.word == Word::Fetch {
                self.hold(2 * case.stages[copy.stage].0 as i64);
            }
            let key = (case.homes[copy.stage], case.stages[copy.stage].0);
            let spans = &mut self.places.get_mut(&key).expect("it was reserved").spans[copy.place];
            match copy.word {
                Word::Evict => spans.push((now, u64::MAX)),
                _ => spans.last_mut().expect("it is there").1 = end,
            }
        }
        any
    }
}

/// Runs the lists moment by moment.
fn machine(case: &Case) -> Result<Ran, Fault> {
    let mut devices: Vec<Machine> = (0..case.n_devices).map(|_| Machine::default()).collect();
    devices.iter_mut().zip(&case.lists).for_each(|(device, list)| device.reserve(case, list));
    let mut done: BTreeSet<Entry> = BTreeSet::new();
    let (mut is_wrong, mut last) = (false, 0);
    for moment in 0.. {
        loop {
            let mut any = false;
            for (device, list) in devices.iter_mut().zip(&case.lists) {
                device.give_back(case, moment);
                if let Some((entry, end)) = device.busy.filter(|(_, end)| *end <= moment) {
                    device.busy = None;
                    done.insert(entry);
                    let (size, half) = (case.stages[entry.1].0 as i64, case.stages[entry.1].1);
                    match entry.0 {
                        Word::Both => device.hold(-2 * size),
                        Word::Input | Word::Weight => device.hold(-size),
                        _ => {}
                    }
                    assert!(half || entry.0 != Word::Input);
                    last = last.max(end);
                    any = true;
                }
                while let Some(entry) = list.get(device.next).copied().filter(|_| device.busy.is_none()) {
                    if matches!(entry.0, Word::Evict | Word::Fetch) {
                        is_wrong |= !device.queue(case, entry);
                        device.next += 1;
                        // What takes no time is done before the next statement.
                        device.start_copies(case, moment);
                        any = true;
                        continue;
                    }
                    let is_there = case.inputs(entry).iter().all(|input| done.contains(input));
                    let (may_start, is_sound) = device.may_start(entry, moment);
                    if !is_there || !may_start {
                        break;
                    }
                    is_wrong |= !is_sound;
                    if entry.0 == Word::Forward {
                        device.hold(2 * case.stages[entry.1].0 as i64);
                        device.activations.insert((entry.1, entry.2), (Where::Here, None));
                    } else if entry.0 != Word::Weight {
                        device.activations.insert((entry.1, entry.2), (Where::Gone, None));
                    }
                    device.busy = Some((entry, moment + case.takes[entry.0 as usize]));
                    device.next += 1;
                    any = true;
                }
                any |= device.start_copies(case, moment);
            }
            if !any {
                break;
            }
        }
        let is_moving = |device: &Machine| {
            device.busy.is_some() || device.copies.iter().any(|copy| copy.span.is_some_and(|(_, end)| end > moment))
        };
        if !devices.iter().any(is_moving) {
            break;
        }
    }
    if devices.iter().zip(&case.lists).any(|(device, list)| device.next < list.len()) {
        return Err(Fault::Stuck);
    }
    if is_wrong {
        return Err(Fault::Wrong);
    }
    let mut kept = vec![0; case.n_devices];
    for ((home, size), places) in devices.iter().flat_map(|device| &device.places) {
        for spans in &places.spans {
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two in one place: {spans:?}");
        }
        home.iter().for_each(|home| kept[*home] += 2 * (places.count * size) as i64);
    }
    Ok(Ran { makespan: last, own: devices.iter().map(|device| device.held.1).collect(), kept })
}

/// What the compiler says: the makespan, the lower bound, and what each device holds, in halves of activations.
fn judged(case: &Case) -> Result<(u64, u64, Vec<i64>), Fault> {
    let found = compiled("random.pipe", &case.text(), &Request::default());
    let errors = found.diagnostics.iter().filter(|one| one.severity.is_error());
    let codes: BTreeSet<&str> = errors.map(|one| one.code.name()).collect();
    assert_eq!(found.report.ok, codes.is_empty(), "{:#?}", found.diagnostics);
    match codes.into_iter().collect::<Vec<_>>()[..] {
        [] => {}
        ["deadlock"] => return Err(Fault::Stuck),
        ["wrong-swap"] => return Err(Fault::Wrong),
        _ => panic!("{:#?}\n{}", found.diagnostics, case.text()),
    }
    let analysis = found.analysis.expect("it is accepted");
    let units = |ticks: Ticks| ticks.0 / Ticks::UNIT.0;
    let halves = |parts: u64| (2 * parts / analysis.schedule.activations.whole) as i64;
    let peaks = analysis.peaks.iter().map(|peak| halves(peak.activations)).collect();
    Ok((units(analysis.timeline.makespan()), units(analysis.bound.makespan), peaks))
}

#[test]
fn random_lists_that_evict_and_fetch_run_as_the_machine_says_and_hold_no_more() {
    let (mut accepted, mut stuck, mut wrong) = (0, 0, 0);
    for seed in 0..drawn(160, 4_000) as u64 {
        let mut dice = Dice(seed);
        let mut case = Case::random(&mut dice);
        if seed % 2 == 1 {
            case.damage(&mut dice);
        }
        let text = || format!("seed {seed}: {}", case.text());
        match (machine(&case), judged(&case)) {
            (Ok(ran), Ok((makespan, bound, held))) => {
                accepted += 1;
                assert_eq!(ran.makespan, makespan, "{}", text());
                assert!(bound <= makespan, "{bound} of {makespan}, {}", text());
                // Where copies take no time, what the proof counts is what there is.
                let [forward, input, weight, both, ..] = case.takes;
                let at_once = Case { takes: [forward, input, weight, both, 0, 0], ..case.clone() };
                let most =
                    machine(&at_once).map(|ran| ran.own.iter().zip(&ran.kept).map(|(own, kept)| own + kept).collect());
                assert_eq!(most, Ok(held.clone()), "{}", text());
                // Whatever anything takes, there is never more.
                for _ in 0..4 {
                    let takes = case.takes.map(|_| 1 + dice.below(9) as u64);
                    let ran = machine(&Case { takes, ..case.clone() }).expect("it runs");
                    let fits = ran.own.iter().zip(&ran.kept).zip(&held).all(|((own, kept), held)| own + kept <= *held);
                    assert!(fits, "{:?} and {:?} of {held:?} with {takes:?}, {}", ran.own, ran.kept, text());
                }
            }
            (Err(own), Err(told)) => {
                assert_eq!(own, told, "{}", text());
                if own == Fault::Stuck { stuck += 1 } else { wrong += 1 }
            }
            (ran, told) => panic!("the machine {:?}, the compiler {told:?}, {}", ran.map(|ran| ran.makespan), text()),
        }
    }
    assert!(accepted > 80 && stuck > 5 && wrong > 20, "{accepted} accepted, {stuck} stuck, {wrong} wrong");
}

fn bpipe(devices: i64, microbatches: i64, costs: &str) -> pipe_compiler::Compilation {
    let text = read(&root().join("examples/bpipe.pipe")).replace("require peak <= 5", "");
    let text = text.replace("evict = 0.5, fetch = 0.5", costs);
    let mut request = Request::default();
    request.choice.settings = vec![("devices".to_owned(), devices), ("microbatches".to_owned(), microbatches)];
    let found = compiled("bpipe.pipe", &text, &request);
    assert!(found.report.ok, "{:#?}", found.diagnostics);
    found
}

#[test]
fn bpipe_holds_what_was_published() {
    for devices in slice(3, 2..=16) {
        for microbatches in [1, devices - 1, devices, devices + 1, 2 * devices, 3 * devices + 1] {
            let found = bpipe(devices, microbatches, "evict = 1 / 4, fetch = 1 / 4");
            let plain = standard("1f1b", [devices, microbatches], "");
            let (own, other) = (found.report.figures.peak_activation, plain.report.figures.peak_activation);
            // BPipe, ICML 2023: ceil((p + 2) / 2) activations instead of p.
            let published = ((devices + 3) / 2) as f64;
            assert_eq!(other, Some(microbatches.min(devices) as f64));
            if microbatches >= devices {
                assert_eq!(own, Some(published.min(devices as f64)), "{devices} devices, {microbatches} microbatches");
            } else {
                assert!(
                    own <= Some(published) && own <= other,
                    "{own:?}: {devices} devices, {microbatches} microbatches"
                );
            }
            let at_once = bpipe(devices, microbatches, "evict = 0, fetch = 0");
            assert_eq!(at_once.report.figures.makespan, plain.report.figures.makespan, "{devices}, {microbatches}");
        }
    }
}

#[test]
fn frozen_stages_that_keep_nothing_evict_nothing() {
    let text = read(&root().join("examples/bpipe.pipe")).replace("require peak <= 5", "frozen all");
    let found = compiled("bpipe.pipe", &text, &Request::default());
    assert!(found.report.ok && found.report.swaps.is_empty(), "{:#?}", found.diagnostics);
}

#[test]
fn what_is_recomputed_right_before_its_backward_has_nothing_to_evict() {
    let text = read(&root().join("examples/bpipe.pipe")).replace("require peak <= 5", "recompute 0");
    let found = compiled("bpipe.pipe", &text, &Request::default());
    let messages: Vec<&str> = found.diagnostics.iter().map(|one| one.message.as_str()).collect();
    assert_eq!(messages, ["`evict s0 m4` stands before `R s0 m4`, which makes that activation"]);
    // Other stages may.
    let text = text.replace("recompute 0", "recompute 5..8");
    assert!(compiled("bpipe.pipe", &text, &Request::default()).report.ok);
}

#[test]
fn without_a_microbatch_what_left_first_comes_back_first() {
    let text = |moves: [&str; 2]| {
        let [evict, fetch] = moves;
        format!(
            "schedule x {{ stages 1 place s on s swap s to host order d {{ repeat M {{ F[0] }} {evict} {fetch} repeat M {{ BW[0] }} }} }}
            pipeline p {{ devices 1 microbatches 4 schedule x }}"
        )
    };
    let swaps = |moves| {
        let found = compiled("p.pipe", &text(moves), &Request::default());
        let schedule = found.analysis.expect("accepted").schedule;
        let names = schedule.swaps.of(pipe_ir::ids::DeviceId(0)).iter().map(|swap| schedule.swap_name(swap));
        names.collect::<Vec<_>>().join(", ")
    };
    let expected = "evict s0 m2, evict s0 m0, evict s0 m1, fetch s0 m2, fetch s0 m1, fetch s0 m0";
    assert_eq!(swaps(["evict[0, 2] evict[0, 0] evict[0]", "fetch[0] fetch[0, 1] fetch[0]"]), expected);
}

#[test]
fn words_of_swaps_stay_names() {
    let text = "let fetch(n) { repeat n { F[0] } }
        schedule swap(to = 0) { stages 1 place evict on evict let swap = to order d {
            fetch(M) for host in 0..M { BW[swap, host] } } }
        pipeline to { devices 1 microbatches 3 schedule swap(to = 0) }";
    let found = compiled("names.pipe", text, &Request::default());
    assert!(found.report.ok && found.report.swaps.is_empty(), "{:#?}", found.diagnostics);
}
