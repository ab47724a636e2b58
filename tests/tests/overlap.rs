//! All-to-alls that hide behind the compute of other microbatches, in schedules that were published for that.

use pipe_compiler::Request;
use pipe_compiler::analyze::Analysis;
use pipe_ir::task::TaskKind;
use pipe_schedule::units::Ticks;
use pipe_tests::cases::{compiled, read, root};

fn analysis(text: &str, settings: &[(&str, i64)]) -> Analysis {
    let mut request = Request::default();
    request.choice.settings = settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let found = compiled("overlap.pipe", text, &request);
    found.analysis.unwrap_or_else(|| panic!("{:#?}\n{text}", found.diagnostics))
}

/// arXiv 2412.19437, section 3.2.1 and Table 2: bubble (p / 2 - 1) (F & B + B - 3 W) with B both halves. A forward is
/// attention, dispatch, experts and combine. A pair takes what the compute of both takes, if that hides all four
/// all-to-alls; alone, a forward or a backward waits for its two. With parts, `F & BW` is no cost that somebody
/// claims: it follows from the turns that the two take.
#[test]
fn dualpipe_with_exchanges_hides_all_but_its_published_bubble() {
    for p in [4, 6, 8] {
        for m in [2 * p, 2 * p + 4, 5 * p] {
            for (compute, exchange) in [(2, 1), (1, 1), (3, 2)] {
                let sizes = format!("devices {p} microbatches {m} schedule dualpipe");
                let parts = format!(
                    "pipeline p {{ {sizes} lane link parts s = attention, dispatch on link, experts, combine on link
                    cost F = {compute}, B = {compute}, W = {compute}, F.dispatch = {exchange}, F.combine = {exchange},
                    B.dispatch = {exchange}, B.combine = {exchange} }}"
                );
                let (alone, w, pair) = (2 * (compute + exchange), 2 * compute, 6 * compute);
                let whole = format!(
                    "pipeline p {{ {sizes} cost F = {alone}, B = {alone}, W = {w}, BW = {}, F & BW = {pair} }}",
                    alone + w
                );
                let (parts, whole) = (analysis(&parts, &[]), analysis(&whole, &[]));
                let busy = (0..whole.schedule.n_devices())
                    .map(|device| whole.timeline.busy(pipe_ir::ids::DeviceId(device as u32)));
                let busy = busy.max().unwrap_or_default();
                let published = Ticks((p / 2 - 1) * (pair + alone + w - 3 * w) * Ticks::UNIT.0);
                assert!(whole.timeline.makespan() <= busy + published, "{p} {m} {compute} {exchange}");
                assert!(parts.timeline.makespan() <= whole.timeline.makespan(), "{p} {m} {compute} {exchange}");
                assert_eq!(parts.schedule.units(parts.peaks[0].activations).to_string(), format!("{}", p + 1));
            }
        }
    }
}

/// Time in which a queue runs tasks between two moments.
fn busy(spans: &[(Ticks, Ticks)], from: Ticks, until: Ticks) -> Ticks {
    spans.iter().fold(Ticks::ZERO, |sum, (start, end)| sum + ((*end).min(until) - (*start).max(from).min(*end)))
}

/// Megatron-LM merges a forward and a backward of interleaved 1F1B so that each hides the all-to-alls of the other.
#[test]
fn interleaved_pairs_hide_their_exchanges() {
    let text = read(&root().join("examples/experts_interleaved.pipe"));
    let mut looked_at = 0;
    for (devices, chunks, rounds) in [(2, 2, 3), (4, 2, 2), (4, 2, 5), (4, 3, 3), (8, 2, 2)] {
        let text = text.replace("overlapped_interleaved()", &format!("overlapped_interleaved({chunks})"));
        let settings = [("devices", devices), ("microbatches", devices * rounds)];
        let (hidden, alone) = (analysis(&text, &settings), analysis(&text.replace(" on link", ""), &settings));
        assert!(hidden.timeline.makespan() < alone.timeline.makespan(), "{devices} {chunks} {rounds}");
        // Whoever hides an exchange takes the next activation before it gives the last one back.
        for (hidden, alone) in hidden.peaks.iter().zip(&alone.peaks) {
            assert!(hidden.activations <= alone.activations + 1, "{devices} {chunks} {rounds}");
        }
        let n_devices = hidden.schedule.n_devices();
        for device in 0..n_devices {
            let spans = |queue: usize| -> Vec<(Ticks, Ticks)> {
                let (starts, ends) = (&hidden.timeline.starts[queue], &hidden.timeline.ends[queue]);
                starts.iter().copied().zip(ends.iter().copied()).collect()
            };
            let order = &hidden.schedule.orders[device];
            let (compute, link) = (spans(device), spans(device + n_devices));
            let is_backward = |kind| kind == TaskKind::Backward || kind == TaskKind::BackwardInput;
            let first = order.iter().position(|one| is_backward(one.task.kind)).expect("it runs backward");
            let last = order.iter().rposition(|one| one.task.kind == TaskKind::Forward).expect("it runs forward");
            if last <= first {
                continue;
            }
            looked_at += 1;
            let (from, until) = (compute[first].0, compute[last].1);
            let exchanged = busy(&link, from, until);
            let hidden = compute.iter().fold(Ticks::ZERO, |sum, (start, end)| {
                sum + busy(&link, (*start).max(from).min(until), (*end).min(until).max(from))
            });
            assert_eq!(hidden, exchanged, "{devices} {chunks} {rounds} d{device}");
        }
    }
    assert!(looked_at >= 12, "{looked_at}");
}
