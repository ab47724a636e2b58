//! Bubbles of a step: how long devices idle within its makespan, and in which part of it.

use pipe_runtime::{DeviceStep, StepReport};
use serde::Serialize;

/// The part of a makespan in which devices idle.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bubble {
    /// The mean over all devices.
    pub(crate) mean: f64,
    /// Of the busiest device.
    pub(crate) busiest: f64,
}

/// Where a bubble lies: parts of the makespan, each the mean over all devices. They add up to the mean bubble.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(crate) struct BubbleParts {
    /// Before the first task of a device.
    pub(crate) warm_up: f64,
    /// Between its tasks.
    pub(crate) waits: f64,
    /// After its last task.
    pub(crate) cool_down: f64,
}

impl BubbleParts {
    /// The mean over steps.
    pub(crate) fn mean(steps: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> f64| steps.iter().map(of).sum::<f64>() / steps.len().max(1) as f64;
        Self {
            warm_up: mean(|parts| parts.warm_up),
            waits: mean(|parts| parts.waits),
            cool_down: mean(|parts| parts.cool_down),
        }
    }
}

/// The bubble of a step and its parts; all 0 where no time passed.
pub(super) fn measure(step: &StepReport) -> (Bubble, BubbleParts) {
    let (start, end) = step.extent();
    let makespan = step.makespan().seconds();
    let mut parts = BubbleParts::default();
    if makespan <= 0.0 {
        return (Bubble { mean: 0.0, busiest: 0.0 }, parts);
    }
    let mut busiest = f64::INFINITY;
    for device in &step.devices {
        let idle = makespan - device.busy.seconds();
        busiest = busiest.min(idle / makespan);
        let (before, after) = match device {
            // It waits for the others, from the start to the end.
            DeviceStep { busy, .. } if busy.0 == 0 => (makespan, 0.0),
            DeviceStep { first_start, last_end, .. } => {
                (first_start.seconds() - start.seconds(), end.seconds() - last_end.seconds())
            }
        };
        parts.warm_up += before;
        parts.cool_down += after;
        parts.waits += idle - before - after;
    }
    let whole = makespan * step.devices.len() as f64;
    for part in [&mut parts.warm_up, &mut parts.waits, &mut parts.cool_down] {
        *part /= whole;
    }
    (Bubble { mean: parts.warm_up + parts.waits + parts.cool_down, busiest }, parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipe_runtime::Nanos;

    fn device(busy: u64, first_start: u64, last_end: u64) -> DeviceStep {
        let [busy, first_start, last_end] = [busy, first_start, last_end].map(Nanos);
        DeviceStep { busy, first_start, last_end, ..DeviceStep::default() }
    }

    #[test]
    fn parts_add_up_to_the_mean_over_all_devices() {
        // 100 ns, from 1000 on: idle are 10 + 0 + 20, 0 + 40 + 0, and all of it.
        let devices = vec![device(70, 1010, 1080), device(60, 1000, 1100), DeviceStep::default()];
        let (bubble, parts) = measure(&StepReport { devices, ..StepReport::default() });
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        near(parts.warm_up, 110.0 / 300.0);
        near(parts.waits, 40.0 / 300.0);
        near(parts.cool_down, 20.0 / 300.0);
        near(bubble.mean, 170.0 / 300.0);
        near(bubble.busiest, 0.3);
    }

    #[test]
    fn a_step_without_tasks_has_none() {
        let (bubble, parts) = measure(&StepReport::default());
        assert_eq!((bubble.mean, bubble.busiest, parts), (0.0, 0.0, BubbleParts::default()));
    }
}
