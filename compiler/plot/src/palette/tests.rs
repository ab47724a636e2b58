//! Kinds can be told apart in grey and by readers who see fewer colours, and what is written on them can be read.
//!
//! How colours look to these readers is computed by the matrices for complete deficiency of Machado, Oliveira and
//! Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", 2009, on linear light.
//! Differences are distances in OKLab: 0.02 can just be seen.

use super::colour::{Matrix, oklab, times};
use super::{Colour, Ground, shade};
use pipe_ir::task::TaskKind;

/// From dark to light.
const ORDER: [TaskKind; 6] = [
    TaskKind::Update,
    TaskKind::Forward,
    TaskKind::Recompute,
    TaskKind::BackwardInput,
    TaskKind::Backward,
    TaskKind::BackwardWeight,
];
const GROUNDS: [Ground; 2] = [Ground::Light, Ground::Dark];
/// Stages of the device whose colours are looked at.
const STAGES: usize = 2;

/// What each reader sees of linear light.
const READERS: [(&str, Matrix); 5] = [
    ("all colours", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    ("protanopia", [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    (
        "deuteranopia",
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ),
    ("tritanopia", [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
    ("grey print", [[0.2126, 0.7152, 0.0722], [0.2126, 0.7152, 0.0722], [0.2126, 0.7152, 0.0722]]),
];

/// A colour as a reader sees it, in OKLab: lightness, green to red, blue to yellow.
fn seen(colour: Colour, reader: &Matrix) -> [f64; 3] {
    let light = times(reader, colour.linear()).map(|part| part.clamp(0.0, 1.0));
    oklab(light)
}

fn distance(one: Colour, other: Colour, reader: &Matrix) -> f64 {
    let (one, other) = (seen(one, reader), seen(other, reader));
    one.iter().zip(other).map(|(one, other)| (one - other).powi(2)).sum::<f64>().sqrt()
}

/// All colours of a kind on the stages of a device.
fn shades(kind: TaskKind, ground: Ground) -> Vec<Colour> {
    (0..STAGES).map(|nth| shade(kind, ground, nth, STAGES)).collect()
}

#[test]
fn kinds_differ_for_every_reader() {
    for ground in GROUNDS {
        for (reader, matrix) in &READERS {
            for (place, kind) in ORDER.iter().enumerate() {
                for other in &ORDER[place + 1..] {
                    for (one, two) in shades(*kind, ground)
                        .iter()
                        .flat_map(|one| shades(*other, ground).into_iter().map(move |two| (*one, two)))
                    {
                        // Of grey, the lightness is all there is.
                        let least = if *reader == "grey print" { 0.02 } else { 0.05 };
                        let distance = distance(one, two, matrix);
                        assert!(
                            distance >= least,
                            "{ground:?}, {reader}: {kind:?} {one} and {other:?} {two}: {distance:.3}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn kinds_are_ordered_by_luminance_and_so_are_stages() {
    let grey = &READERS[4].1;
    for ground in GROUNDS {
        let all: Vec<Colour> = ORDER.iter().flat_map(|kind| shades(*kind, ground)).collect();
        for pair in all.windows(2) {
            assert!(pair[0].luminance() < pair[1].luminance(), "{ground:?}: {} and {}", pair[0], pair[1]);
        }
        for pair in ORDER.windows(2) {
            let [one, other] = [pair[0], pair[1]].map(|kind| shade(kind, ground, 0, 1));
            let distance = distance(one, other, grey);
            assert!(distance >= 0.065, "{ground:?}, first stages: {pair:?}: {distance:.3}");
        }
    }
}

#[test]
fn what_is_written_on_tasks_can_be_read() {
    for (ground, kind) in GROUNDS.into_iter().flat_map(|ground| ORDER.map(|kind| (ground, kind))) {
        for nth in 0..8 {
            let colour = shade(kind, ground, nth, 8);
            let contrast = colour.contrast(colour.ink());
            assert!(contrast >= 4.5, "{ground:?}: {kind:?} {colour}: {contrast:.2}");
            // What is written on two colours can be read on both.
            for half in super::halves(kind).into_iter().flatten() {
                let contrast = shade(half, ground, nth, 8).contrast(colour.ink());
                assert!(contrast >= 4.5, "{ground:?}: {kind:?} on {half:?}: {contrast:.2}");
            }
        }
    }
}

#[test]
fn colours_are_said_as_in_css() {
    assert_eq!(Colour::new(0x1d_44_99).to_string(), "#1d4499");
    let [black, white] = [Colour::new(0), Colour::new(0xff_ff_ff)];
    assert_eq!((black.contrast(white), black.mix(white, 0.5)), (21.0, Colour::new(0x7f_7f_7f)));
}
