//! Clusters: files that cannot be used are told with their places, and times follow from links.
//!
//! `tests/data/clusters/<case>.toml` is wrong, and `<case>.stderr` shows what the user sees.

use pipe_compiler::Request;
use pipe_compiler::analyze::Analysis;
use pipe_compiler::cluster::collective::time;
use pipe_compiler::cluster::{Cluster, DeviceSlot, SlotLayout};
use pipe_compiler::report::Report;
use pipe_ir::ids::{DeviceId, StageId};
use pipe_ir::task::TaskKind;
use pipe_model::transformer::exchanges::Collective;
use pipe_schedule::units::Ticks;
use pipe_syntax::diagnostic::edited;
use pipe_syntax::source::Source;
use pipe_tests::cases::{compile_text, expect, files, read, report, root};
use pipec::output::diagnostics::{Look, draw};

fn parse(text: &str) -> Cluster {
    let source = Source { name: "x.toml".to_owned(), text: text.to_owned() };
    Cluster::read(source).unwrap_or_else(|wrong| panic!("{:#?}", wrong.0))
}

/// A cluster of three nodes with two devices each, whose links differ by node and direction.
fn uneven() -> Cluster {
    parse(
        r#"
        nodes = 3
        devices = 2
        device = { memory = "80GiB", flops = "1TFLOPS" }
        [links.node]
        bandwidth = ["100GB/s", "200GB/s", "50GB/s"]
        latency = "1us"
        [links.cluster]
        bandwidth = { unit = "GB/s", rows = [["-", 10, 20.5], [5, "-", 1], [20, 2, 400]] }
        latency = "10us"
        "#,
    )
}

#[test]
fn mistakes_are_told_with_their_places() {
    let (mut failures, mut n_edited) = (Vec::new(), 0);
    for path in files(&root().join("tests/data/clusters"), "toml") {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let (text, own) = (read(&path), name.clone());
        let Err(wrong) = Cluster::read(Source { name, text: text.clone() }) else {
            failures.push(format!("{} is read", path.display()));
            continue;
        };
        let drawn = draw(&wrong.0, &wrong.1, Look { width: 120, colours: false });
        failures.extend(expect(&path.with_extension("stderr"), &drawn));
        for one in wrong.0.iter().filter(|one| !one.edits().is_empty()) {
            n_edited += 1;
            let again = Cluster::read(Source { name: own.clone(), text: edited(&text, one.edits()) });
            let left = again.err().map(|wrong| wrong.0).unwrap_or_default();
            failures.extend(left.iter().filter(|left| left.message == one.message).map(|left| left.message.clone()));
        }
    }
    report(&failures);
    assert!(n_edited > 0, "no unit is corrected");
}

#[test]
fn damaged_texts_are_refused_with_a_place_in_them_or_read() {
    let whole = read(&root().join("examples/cluster.toml"));
    let read = |text: String| Cluster::read(Source { name: "x.toml".to_owned(), text });
    for place in 0..whole.len() {
        for mark in ["9", "\"", "é", "]", "", "\n"] {
            let text = [&whole[..place], mark, whole.get(place + 1..).unwrap_or_default()].concat();
            for text in [text, whole[..place].to_owned()] {
                let end = text.len();
                if let Err(wrong) = read(text) {
                    let spans = wrong.0.iter().flat_map(|one| &one.labels).map(|label| label.span);
                    assert!(
                        !wrong.0.is_empty()
                            && spans.into_iter().all(|span| span.start <= span.end && span.end as usize <= end)
                    );
                }
            }
        }
    }
}

#[test]
fn what_is_reserved_is_not_for_the_pipeline() {
    let reserved = |text: &str| {
        let links = "[links.node]\nbandwidth = \"1GB/s\"\nlatency = \"1us\"";
        parse(&format!("nodes = 1\ndevices = 2\n[device]\nmemory = \"80GiB\"\nflops = \"1TFLOPS\"\n{text}\n{links}"))
            .memory()
    };
    assert_eq!(
        [reserved(""), reserved("reserved = \"0B\""), reserved("reserved = \"1.5GiB\"")].map(|bytes| bytes.0 >> 20),
        [81_920, 81_920, 80_384]
    );
}

#[test]
fn links_are_those_of_their_nodes() {
    let cluster = uneven();
    let rate = |from, to| cluster.link(DeviceSlot(from), DeviceSlot(to)).bytes_per_second / 100_000_000;
    assert_eq!([rate(0, 1), rate(2, 3), rate(5, 4)], [1_000, 2_000, 4_000]);
    assert_eq!([rate(0, 2), rate(3, 1), rate(1, 4), rate(2, 4), rate(4, 3)], [100, 50, 205, 10, 20]);
    assert_eq!(cluster.link(DeviceSlot(3), DeviceSlot(3)).time(0), Ticks::ZERO);
    // 10 us and 1 MB at 10 GB/s.
    assert_eq!(cluster.link(DeviceSlot(0), DeviceSlot(2)).time(1_000_000), Ticks(110_000));
    assert_eq!(cluster.link(DeviceSlot(0), DeviceSlot(1)).time(0), Ticks(1_000));
}

#[test]
fn rings_are_as_fast_as_their_slowest_link() {
    let cluster = uneven();
    let of = |device_slots: &[u32], what| {
        let device_slots: Vec<DeviceSlot> = device_slots.iter().map(|device_slot| DeviceSlot(*device_slot)).collect();
        time(&cluster, &device_slots, what, 12_000_000).0
    };
    assert_eq!(of(&[3], Collective::AllReduce), 0);
    // 2 of 2 parts at 100 GB/s, and two latencies; half of that one way.
    assert_eq!(of(&[0, 1], Collective::AllReduce), 2_000 + 120_000);
    assert_eq!(of(&[0, 1], Collective::AllGather), 1_000 + 60_000);
    // 0 -> 2 -> 4 -> 0 goes over 10, 1 and 20 GB/s; the other way round over 20.5, 2 and 5.
    assert_eq!(of(&[0, 2, 4], Collective::AllReduce), 40_000 + 16_000_000);
    assert_eq!(of(&[0, 4, 2], Collective::AllReduce), 40_000 + 8_000_000);
    assert_eq!(of(&[0, 4, 2], Collective::ReduceScatter), 20_000 + 4_000_000);
    // All pairs take part, so 1 GB/s counts in whatever order.
    assert_eq!(of(&[0, 4, 2], Collective::AllToAll), 20_000 + 8_000_000);
}

#[test]
fn positions_fill_nodes_one_after_the_other() {
    let cluster = uneven();
    let layout = SlotLayout::new(&cluster, 3, 2, 1).expect("six device slots");
    let device_slots = |layout: &SlotLayout| [0, 1, 2].map(|position| layout.device_slot(DeviceId(position), 1, 0).0);
    assert_eq!(device_slots(&layout), [1, 3, 5]);
    let turned = layout.on_nodes(&cluster, &[2]);
    assert_eq!(device_slots(&turned), [5, 1, 3]);
    assert_eq!(turned.alike(&[DeviceId(0), DeviceId(1)], 0), [4, 5, 0, 1].map(DeviceSlot));
    assert_eq!(
        SlotLayout::new(&cluster, 1, 3, 2).expect("six device slots").parts(DeviceId(0), 2),
        [4, 5].map(DeviceSlot)
    );
    assert_eq!(SlotLayout::new(&cluster, 7, 1, 1), None);
    assert_eq!(SlotLayout::new(&cluster, 2, u64::MAX, 2), None);
}

/// A target on a cluster, accepted.
fn analysis(pipeline: &str, cluster: &str) -> (Analysis, Report) {
    let request = Request { cluster: Some(parse(cluster)), ..Request::default() };
    let (compilation, _) = compile_text("x.pipe", pipeline, &root().join("tests/data/configs"), &request);
    assert!(compilation.report.ok, "{:#?}", compilation.diagnostics);
    (compilation.analysis.expect("accepted"), compilation.report)
}

const TWO_NODES: &str = include_str!("../ui/unusable-cluster/two_nodes.toml");

#[test]
fn a_models_tasks_take_their_operations_and_transfers_their_bytes() {
    let pipeline = |cost: &str| {
        format!(
            "import std.models.gpt
            pipeline x {{
                model gpt(vocab = 32, hidden = 16, heads = 2, blocks = 2, sequence = 8, rows = 2)
                devices 4
                microbatches 3
                schedule 1f1b
                {cost}
            }}"
        )
    };
    let (analysis, report) = analysis(&pipeline("cost F = 7"), TWO_NODES);
    let latency = |one, other| analysis.costs.latency.between(DeviceId(one), DeviceId(other)).0;
    // 2 * 8 * 16 numbers of 4 bytes: 102.4 ns inside a node, 1024 ns between two.
    assert_eq!([latency(0, 1), latency(1, 2), latency(2, 3)], [1_103, 11_024, 1_103]);
    // 10^9 operations a second: as many nanoseconds as operations, and so many ticks without a cluster.
    let forward = |stage| analysis.costs.of(TaskKind::Forward, StageId(stage)).0;
    let (counted, _) = compile_text("x.pipe", &pipeline(""), &root().join("examples"), &Request::default());
    let counted = counted.analysis.expect("accepted");
    for (kind, stage) in
        [TaskKind::Forward, TaskKind::Backward].into_iter().flat_map(|kind| (0..4).map(move |stage| (kind, stage)))
    {
        assert_eq!(analysis.costs.of(kind, StageId(stage)), counted.costs.of(kind, StageId(stage)));
    }
    assert!(forward(3) > 10_000);
    let own = report.cluster.expect("there is one");
    assert_eq!((own.devices_used, own.mfu, own.tokens_per_second, own.exchange), (4, None, None, 0.0));
    assert_eq!(report.per_device[0].limit_bytes, Some(1 << 30));
    let work: u64 = (0..4).map(|stage| forward(stage) + analysis.costs.of(TaskKind::Backward, StageId(stage)).0).sum();
    assert_eq!(own.model_flops, 3.0 * work as f64);
}

#[test]
fn what_divides_a_model_takes_time_on_its_links() {
    // GPT-2 on one node of two and two of them side by side: 12 layers of width 768 on two stages, 1024 tokens.
    let pipeline = |settings: &str| {
        format!(
            "pipeline x {{
                model \"gpt2.json\"(sequence = 1024, tensor = 2, {settings})
                devices 2
                microbatches 4
                schedule 1f1b
            }}"
        )
    };
    let cluster = r#"
        nodes = 2
        devices = 4
        device = { memory = "80GiB", flops = "100TFLOPS", peak_flops = "200TFLOPS" }
        links.node = { bandwidth = "100GB/s", latency = "1us" }
        links.cluster = { bandwidth = "10GB/s", latency = "5us" }
    "#;
    let flowing = 2 * 1024 * 768_u64;
    let (plain, one) = analysis(&pipeline("data = 1"), cluster);
    let (both, two) = analysis(&pipeline("data = 2"), cluster);
    let account = &one.account.per_stage[0];
    // Two for each layer, and one for the embedding.
    let sums = 2 * (account.layers[1] - account.layers[0]) + 1;
    let exchanged = sums * (2_000 + flowing.div_ceil(100));
    let computes = account.flops[0].div_ceil(100_000);
    assert_eq!(plain.costs.of(TaskKind::Forward, StageId(0)).0, computes + exchanged);
    // With one pipeline both stages are on the first node; of two, each has a node.
    let latency = |analysis: &Analysis| analysis.costs.latency.between(DeviceId(0), DeviceId(1)).0;
    assert_eq!((latency(&plain), latency(&both)), (1_000 + flowing.div_ceil(100), 5_000 + flowing.div_ceil(10)));
    // The first stage ends last, and has the embedding: 4 bytes for each weight, both ways over half of them.
    let gradients = 2_000 + account.gradient_bytes.div_ceil(100);
    let exchange = two.cluster.expect("there is one").exchange;
    assert_eq!((exchange * 1e6).round() as u64, gradients);
    let own = one.cluster.expect("there is one");
    let seconds = one.figures.makespan.expect("timed") / 1e3;
    let flops = one.account.per_stage.iter().flat_map(|stage| stage.flops).sum::<u64>() as f64 * 4.0 * 2.0;
    assert!((own.mfu.expect("a peak is said") - flops / seconds / (4.0 * 200e12)).abs() < 1e-9);
    assert!((own.tokens_per_second.expect("tokens") - 4096.0 / seconds).abs() < 1e-6);
}

#[test]
fn zero_exchanges_as_much_as_it_says() {
    let with = |zero: u32| {
        let pipeline = format!(
            "pipeline x {{
                model \"gpt2.json\"(sequence = 1024, data = 4, zero = {zero})
                devices 2
                microbatches 4
                schedule zb_h1
            }}"
        );
        let cluster = r#"
            nodes = 8
            devices = 1
            device = { memory = "80GiB", flops = "100TFLOPS" }
            links.cluster = { bandwidth = "1GB/s", latency = "0us" }
        "#;
        let (analysis, report) = analysis(&pipeline, cluster);
        let weights = report.account.per_stage[0].device_parameters;
        let of = |kind| analysis.costs.of(kind, StageId(0)).0;
        let kinds = [TaskKind::Forward, TaskKind::BackwardInput, TaskKind::BackwardWeight];
        (kinds.map(of), weights, (report.cluster.expect("there is one").exchange * 1e6).round() as u64)
    };
    let ((plain, weights, all), (_, _, one), (two, _, gathered), (three, _, none)) =
        (with(0), with(1), with(2), with(3));
    // Of four devices, three parts of four travel one way: 4 bytes for a gradient, 2 for a weight.
    assert_eq!((all, one, gathered, none), (6 * weights, 3 * weights + weights * 3 / 2, weights * 3 / 2, 0));
    assert_eq!(two, [plain[0], plain[1], 3 * weights]);
    assert_eq!(three, [weights * 3 / 2, weights * 3 / 2, 3 * weights]);
}
