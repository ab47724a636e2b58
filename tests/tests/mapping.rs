//! The order of nodes reaches the optimum of the figures in `tests/data/pipette.json`, and the steady period of blocks is that of their slowest
//! links.

use pipe_compiler::cluster::collective::{Collective, time};
use pipe_compiler::cluster::{Cluster, Seat};
use pipe_compiler::mapping::{Objective, Options, best, steps};
use pipe_compiler::pipeline::StageCosts;
use pipe_compiler::report::certificate::CertificateReport;
use pipe_compiler::source::Source;
use pipe_compiler::units::Ticks;
use pipe_compiler::{Request, elaborate};
use pipe_tests::cases::{compile_text, root};
use serde_json::Value;
use std::cell::Cell;

fn figures() -> Value {
    serde_json::from_str(include_str!("../data/pipette.json")).expect("the figures are JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 2e-6
}

fn cluster(text: &str) -> Cluster {
    let source = Source { name: "x.toml".to_owned(), text: text.to_owned() };
    Cluster::read(source).unwrap_or_else(|wrong| panic!("{:#?}", wrong.0))
}

/// Nodes with one device each.
fn machines(rows: &Value) -> Cluster {
    let n = rows.as_array().expect("rows").len();
    cluster(&format!(
        "nodes = {n}
        devices = 1
        device = {{ memory = \"80GiB\", flops = \"100TFLOPS\" }}
        [links.cluster]
        bandwidth = {{ unit = \"GB/s\", rows = {rows} }}
        latency = \"0us\""
    ))
}

/// Pipette's objective.
struct Published {
    cluster: Cluster,
    pipelines: usize,
    stages: usize,
    stage_bytes: u128,
    gradient_bytes: u128,
}

impl Objective for Published {
    fn n_nodes(&self) -> usize {
        self.cluster.n_nodes() as usize
    }

    fn n_filled(&self) -> usize {
        self.pipelines * self.stages
    }

    fn time(&self, nodes: &[u32]) -> Ticks {
        let seats: Vec<Seat> = nodes.iter().map(|node| Seat(*node)).collect();
        let pipelines = || seats.chunks(self.stages).take(self.pipelines);
        let both = |pair: &[Seat]| 2 * self.cluster.link(pair[0], pair[1]).time(self.stage_bytes).0;
        let slowest = pipelines().map(|seats| seats.windows(2).map(both).sum::<u64>()).max().expect("a pipeline");
        let firsts: Vec<Seat> = pipelines().map(|seats| seats[0]).collect();
        Ticks(slowest) + time(&self.cluster, &firsts, Collective::AllReduce, self.gradient_bytes)
    }
}

#[test]
fn the_published_objective_reaches_its_optimum() {
    let figures = &figures()["mapping"];
    let count = |name: &str| figures[name].as_u64().expect("a count");
    let objective = Published {
        cluster: machines(&figures["gigabytes_per_second"]),
        pipelines: count("pipelines") as usize,
        stages: count("stages") as usize,
        stage_bytes: count("stage_bytes").into(),
        gradient_bytes: count("gradient_bytes").into(),
    };
    let is = |time: Ticks, name: &str| near(time.0 as f64 / 1e6, number(&figures[name]));
    let found = best(&objective, Options::default(), &mut || true);
    assert!(is(found.before, "identity_ms") && is(found.time, "best_ms") && found.is_best, "{found:?}");
    assert_eq!(objective.time(&found.nodes), found.time);
    // Annealing alone reaches it from nearly every seed, and says that it proves nothing.
    let annealed = (0..20).map(|seed| best(&objective, Options { seed, moves: 2_000, most_orders: 0 }, &mut || true));
    let reached = annealed.filter(|found| !found.is_best && is(found.time, "best_ms")).count();
    assert!(reached >= 16, "{reached} of 20");
    let worst = orders(6).into_iter().map(|nodes| objective.time(&nodes)).max().expect("an order");
    assert!(is(worst, "worst_ms"), "{worst}");
}

/// All orders of so many nodes.
fn orders(n: u32) -> Vec<Vec<u32>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(n - 1);
    let with = |order: &Vec<u32>| {
        (0..n as usize).map(|place| [&order[..place], &[n - 1], &order[place..]].concat()).collect::<Vec<_>>()
    };
    shorter.iter().flat_map(with).collect()
}

#[test]
fn a_ring_takes_its_published_time() {
    let figures = &figures()["ring"];
    let rate = &figures["gigabytes_per_second"];
    let rows = serde_json::json!([["-", rate], [rate, "-"]]);
    let bytes = figures["bytes"].as_u64().expect("bytes").into();
    let time = time(&machines(&rows), &[Seat(0), Seat(1)], Collective::AllReduce, bytes);
    assert!(near(time.0 as f64 / 1e6, number(&figures["milliseconds"])), "{time}");
}

const GPT2: &str = "pipeline x {
    model \"gpt2.json\"(sequence = 1024, data = 2)
    devices 3
    microbatches 6
    schedule 1f1b
}";

/// The step of a pipeline on the published links, in some order of the nodes.
fn step(text: &str, nodes: &str, cluster: &Cluster) -> f64 {
    let text = text.replace("data = 2", &format!("data = 2, nodes = {nodes}"));
    let request = Request { cluster: Some(cluster.clone()), ..Request::default() };
    let (compilation, _) = compile_text("x.pipe", &text, &root().join("tests/data/configs"), &request);
    assert!(compilation.report.ok, "{:#?}", compilation.diagnostics);
    compilation.report.figures.makespan.expect("timed")
}

/// What the search finds for a pipeline is what `check` says, and no order is shorter.
#[test]
fn the_timeline_reaches_the_optimum_over_all_orders() {
    let cluster = machines(&figures()["mapping"]["gigabytes_per_second"]);
    let request = Request { cluster: Some(cluster.clone()), ..Request::default() };
    let folder = root().join("tests/data/configs");
    let load = |path: &str| std::fs::read_to_string(folder.join(path)).map_err(|error| error.to_string());
    let root = Source { name: "x.pipe".to_owned(), text: GPT2.to_owned() };
    let found = steps::map(root, &load, &request, Options::default(), &mut || true).expect("accepted");
    assert!(found.is_best && found.time < found.before, "{found:?}");
    let ms = |time: Ticks| time.0 as f64 / 1e6;
    assert!(near(step(GPT2, "0", &cluster), ms(found.before)));
    assert!(near(step(GPT2, &format!("{:?}", found.nodes), &cluster), ms(found.time)));
    // Of 720 orders those that begin with node 0 or 1; the others are looked at by the search.
    let all = orders(6).into_iter().filter(|nodes| nodes[0] < 2);
    let least = all.step_by(7).map(|nodes| step(GPT2, &format!("{nodes:?}"), &cluster)).fold(f64::MAX, f64::min);
    assert!(least + 2e-6 >= ms(found.time), "{least} {found:?}");
}

#[test]
fn links_that_are_alike_need_no_search() {
    let cluster = cluster(
        "nodes = 64
        devices = 8
        device = { memory = \"80GiB\", flops = \"100TFLOPS\" }
        links.node = { bandwidth = \"300GB/s\", latency = \"3us\" }
        links.cluster = { bandwidth = \"30GB/s\", latency = \"9us\" }",
    );
    let request = Request { cluster: Some(cluster), ..Request::default() };
    let folder = root().join("tests/data/configs");
    let load = |path: &str| std::fs::read_to_string(folder.join(path)).map_err(|error| error.to_string());
    let root = Source { name: "x.pipe".to_owned(), text: GPT2.replace("data = 2", "data = 128") };
    let asked = Cell::new(0);
    let mut go_on = || {
        asked.set(asked.get() + 1);
        true
    };
    let found = steps::map(root, &load, &request, Options::default(), &mut go_on).expect("accepted");
    assert!(found.is_best && found.timed <= 2 && found.time == found.before, "{found:?}");
}

/// `check` of 1F1B with these latencies from device to device.
fn checked(latency: &[f64], microbatches: i64) -> (f64, CertificateReport) {
    let links = (0..).zip(latency).map(|(device, time)| format!("comm[{device}-{}]={time}", device + 1));
    let costs = ["F=1,BW=2".to_owned()].into_iter().chain(links).collect::<Vec<_>>().join(",");
    let devices = latency.len() as i64 + 1;
    let settings = vec![("devices".to_owned(), devices), ("microbatches".to_owned(), microbatches)];
    let choice = elaborate::Request { settings, ..elaborate::Request::default() };
    let request =
        Request { choice, costs: Some(StageCosts::parse(&costs).expect("well-formed")), ..Request::default() };
    let text = pipe_compiler::stdlib::schedule("1f1b").expect("it is there");
    let (compilation, _) = compile_text("x.pipe", text, &root(), &request);
    assert!(compilation.report.ok, "{:#?}", compilation.diagnostics);
    (compilation.report.figures.makespan.expect("timed"), compilation.report.certificate.expect("a block"))
}

#[test]
fn unequal_links_take_what_was_published() {
    for case in figures()["steady"].as_array().expect("cases") {
        let latency: Vec<f64> = case["latency"].as_array().expect("a list").iter().map(number).collect();
        let (makespan, certificate) = checked(&latency, 16);
        assert!(near(makespan, number(&case["makespan_of_16"])), "{latency:?}: {makespan}");
        let period = certificate.steady_period.expect("a pace");
        assert!(near(period, number(&case["period"])), "{latency:?}: {period}");
        assert!(near(certificate.steady_links_add.expect("links are slow"), number(&case["period"]) - 3.0));
        assert_eq!(serde_json::json!(certificate.steady_links), case["links"], "{latency:?}");
    }
}

/// The law of the segments, and that long steps keep to it.
#[test]
fn the_steady_period_is_that_of_the_slowest_segment() {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % 11
    };
    for round in 0..60 {
        let latency: Vec<u64> = (0..1 + round % 6).map(|_| next()).collect();
        let segment =
            |start: usize, end: usize| (latency[start..end].iter().sum::<u64>() * 2, (end - start + 1) as u64);
        let all = (0..latency.len()).flat_map(|start| (start + 1..=latency.len()).map(move |end| (start, end)));
        let slowest =
            all.map(|(start, end)| segment(start, end)).max_by(|one, other| (one.0 * other.1).cmp(&(other.0 * one.1)));
        let (sum, devices) = slowest.expect("a link");
        let tenths: Vec<f64> = latency.iter().map(|tenths| *tenths as f64 / 10.0).collect();
        let period = 3.0 + sum as f64 / 10.0 / devices as f64;
        let (_, certificate) = checked(&tenths, 16);
        assert!(near(certificate.steady_period.expect("a pace"), period), "{latency:?}");
        assert_eq!(certificate.steady_links.is_empty(), sum == 0);
        // 840 is a multiple of the devices of every segment.
        let long = |microbatches| checked(&tenths, microbatches).0;
        assert!(near((long(840 + 64) - long(64)) / 840.0, period), "{latency:?}");
    }
}

/// Certificates are about all numbers of microbatches.
#[test]
fn links_of_a_block_that_hides_them_are_not_blamed() {
    let (_, certificate) = checked(&[0.0, 0.0], 8);
    assert!(certificate.steady_links.is_empty() && certificate.steady_links_add.is_none());
}
