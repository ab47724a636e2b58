//! `device d`: devices with memory and speeds of their own.

use pipe_compiler::Request;
use pipe_compiler::profile::Profile;
use pipe_syntax::diagnostic::Code;
use pipe_syntax::source::Source;
use pipe_tests::cases::{compiled, read, root};

/// 1F1B on two devices, of which the first is twice as fast.
const TWO: &str = "pipeline two_stages {
    devices 2
    device d speed 2 - d
    microbatches 3
    schedule 1f1b
    cost F = 1, BW = 2
}";

/// By hand: d0 begins with two forwards of 0.5, d1 takes 3 for each microbatch, and the last backward of d0 takes 1.
#[test]
fn a_fast_device_ends_its_tasks_sooner() {
    let report = compiled("two.pipe", TWO, &Request::default()).report;
    assert!(report.ok);
    assert_eq!(report.figures.makespan, Some(0.5 + 3.0 * 3.0 + 1.0));
    let busy: Vec<_> = report.per_device.iter().map(|device| device.busy).collect();
    assert_eq!(busy, [Some(4.5), Some(9.0)]);
}

/// What was measured was measured on these devices.
#[test]
fn speeds_are_not_used_beside_a_profile() {
    let text = read(&root().join("tests/ui/unusable-profile/two_stages.json"));
    let profile = Profile::read(Source { name: "two_stages.json".to_owned(), text }).expect("a profile");
    let request = Request { profile: Some(profile), ..Request::default() };
    let with = compiled("two.pipe", TWO, &request);
    let without = compiled("two.pipe", &TWO.replace("device d speed 2 - d", ""), &request);
    assert_eq!(with.report.figures.makespan, without.report.figures.makespan);
    let warnings: Vec<_> = with.diagnostics.iter().map(|found| (found.code, found.message.as_str())).collect();
    assert_eq!(warnings, [(Code::UnusedCost, "`speed` is not used: the profile was measured on the devices")]);
}
