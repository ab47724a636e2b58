//! Families: the standard schedules that are tried for so many devices, with their parameters.

/// The most stages of a device in schedules that take any number of them.
const MOST_CHUNKS: u64 = 8;
/// The most waves of Hanayo, each with two stages of a device.
const MOST_WAVES: u64 = 4;

/// Schedules with a stage on each device.
const SINGLE: [&str; 7] = ["1f1b", "gpipe", "eager_1f1b", "zb_h1", "zb_h2", "chimera", "dualpipe"];
/// Schedules with two stages on each device.
const DOUBLE: [&str; 6] = ["1f1b_v", "v_min", "v_half", "v_zb", "zb_v", "dualpipe_v"];
/// Schedules with any number of chunks on each device.
const CHUNKED: [&str; 4] = ["interleaved_1f1b", "looped_bfs", "grouped_interleaved", "interleaved_zb"];
/// The schedule with any number of waves over the devices.
const WAVED: &str = "hanayo";

/// Standard schedules that are not tried, and why.
pub const LEFT_OUT: [(&str, &str); 4] = [
    ("seq_1f1b", "sizes alone do not say what a slice of a sequence takes"),
    ("cyclic_dp", "its steps do not flush, so that it trains otherwise"),
    ("dp_1f1b", "`data` divides devices in the same way"),
    ("v_flex", "it is made for tasks that all take as long; where they do not, `v_half` is shorter in as much memory"),
];

/// A standard schedule with values for its parameters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Variant {
    /// Its name.
    pub name: &'static str,
    /// What is said behind it.
    pub parameters: Vec<(&'static str, u64)>,
}

impl Variant {
    fn plain(name: &'static str) -> Self {
        Self { name, parameters: Vec::new() }
    }

    fn with(name: &'static str, parameters: &[(&'static str, u64)]) -> Self {
        Self { name, parameters: parameters.to_vec() }
    }

    /// As a pipeline calls it: `interleaved_1f1b(chunks = 2)`.
    pub fn call(&self) -> String {
        let parameters: Vec<String> = self.parameters.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        if parameters.is_empty() { self.name.to_owned() } else { format!("{}({})", self.name, parameters.join(", ")) }
    }
}

/// What is tried on so many devices for a model of so many layers: no stage may be empty. On one
/// device all orders take equally long, so only the one that holds least is tried.
pub fn variants(devices: u64, layers: u64) -> Vec<Variant> {
    let fits = |stages_of_device: u64| stages_of_device * devices <= layers;
    if devices == 1 {
        return vec![Variant::plain(SINGLE[0])];
    }
    let mut all = Vec::new();
    if fits(1) {
        all.extend(SINGLE.map(Variant::plain));
    }
    if fits(2) {
        all.extend(DOUBLE.map(Variant::plain));
    }
    for name in CHUNKED {
        for chunks in (2..=MOST_CHUNKS).filter(|chunks| fits(*chunks)) {
            all.push(Variant::with(name, &[("chunks", chunks)]));
            // The smallest groups hold least.
            let half = devices.div_ceil(2);
            if name == "grouped_interleaved" && half < devices {
                all.push(Variant::with(name, &[("chunks", chunks), ("group", half)]));
            }
        }
    }
    let waves = (1..=MOST_WAVES).filter(|waves| fits(2 * waves));
    all.extend(waves.map(|waves| Variant::with(WAVED, &[("waves", waves)])));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipe_syntax::stdlib::SCHEDULES;

    #[test]
    fn every_standard_schedule_is_tried_or_left_out_with_a_reason() {
        let tried = variants(4, 1_000);
        for (name, _) in SCHEDULES {
            let is_tried = tried.iter().any(|variant| variant.name == *name);
            let is_left_out = LEFT_OUT.iter().any(|(other, _)| other == name);
            assert!(is_tried != is_left_out, "{name}");
        }
    }

    #[test]
    fn no_variant_has_more_stages_than_layers() {
        assert_eq!(variants(1, 80).len(), 1);
        assert!(variants(8, 7).is_empty());
        assert!(variants(8, 15).iter().all(|variant| SINGLE.contains(&variant.name)));
        assert_eq!(variants(4, 12).iter().filter(|variant| variant.name == "looped_bfs").count(), 2);
        assert_eq!(
            Variant::with("grouped_interleaved", &[("chunks", 2), ("group", 3)]).call(),
            "grouped_interleaved(chunks = 2, group = 3)"
        );
    }
}
