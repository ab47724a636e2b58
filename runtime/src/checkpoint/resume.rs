//! Resuming: a run begins with what an earlier one saved, if that is sound and was saved with the
//! same model, optimizer and data.
//!
//! Of several ranks each reads what its devices hold; all of them begin with one checkpoint, or none does.

use super::folder::checkpoints;
use super::{
    Aspect, CheckpointError, Difference, NamedTensor, Origin, SavedTensor, State, load, read, saved_tensors, seed,
    versioned,
};
use crate::run::Run;
use pipe_distributed::{Mailbox, Rank};
use pipe_ir::value::ValueKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What of a checkpoint is taken, and which differences are accepted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Resumption {
    /// Takes the weights alone: the run begins with its first step and with an optimizer that has
    /// no state yet, whatever saved them.
    pub weights_only: bool,
    /// What may differ between the run that saved and this one. The state of another optimizer is never taken.
    pub despite: BTreeSet<Aspect>,
    /// Takes the newest sound checkpoint where newer ones are damaged.
    pub skips_damaged: bool,
}

/// What a run has begun with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resumed {
    /// Steps done.
    pub step: u64,
    /// Steps that the run had done which saved it.
    pub saved_step: u64,
    /// The file or index.
    pub path: PathBuf,
    /// What a user should know of it, each thing once.
    pub notes: Vec<String>,
}

/// Loads the newest checkpoint of a folder, or the one at a path, into a run. Returns the number of
/// steps done. All ranks of a job do it at once, and take what the first one finds.
///
/// # Errors
/// If there is none, it cannot be read, is damaged, was saved with another model, optimizer or
/// other data, or does not fit the program; the run is then as it was. If a GPU does not answer.
pub fn resume(run: &mut Run, from: &Path) -> Result<u64, CheckpointError> {
    resume_as(run, from, &Resumption::default()).map(|resumed| resumed.step)
}

/// The same, with a choice of what is taken and accepted.
///
/// # Errors
/// The same, less what is accepted.
pub fn resume_as(run: &mut Run, from: &Path, how: &Resumption) -> Result<Resumed, CheckpointError> {
    let own = || candidates(from);
    let candidates = match run.mailbox() {
        None => own()?,
        Some(mailbox) => agreed(mailbox, own)?,
    };
    let (mut skipped, mut last) = (Vec::new(), None);
    for (index, path) in candidates.iter().enumerate() {
        match together(run.mailbox(), path, attempt(run, path, how)) {
            Ok(found) => {
                let mut notes: Vec<String> = skipped;
                notes.extend(found.notes(run, path, how));
                let step = if how.weights_only { 0 } else { found.state.step };
                found.apply(run)?;
                return Ok(Resumed { step, saved_step: found.state.step, path: path.clone(), notes });
            }
            Err(Refusal { error, is_damage: true }) if how.skips_damaged => {
                skipped.push(format!("{error}: it is skipped"));
                last = Some(error);
            }
            Err(Refusal { error, is_damage: true }) => {
                let sound = soundest(run.mailbox(), &candidates[index + 1..])?;
                return Err(CheckpointError::Damaged { error: Box::new(error), sound });
            }
            Err(Refusal { error, .. }) => return Err(error),
        }
    }
    match last {
        Some(error) => Err(CheckpointError::Damaged { error: Box::new(error), sound: None }),
        None => Err(CheckpointError::Absent { path: from.to_owned() }),
    }
}

/// The checkpoint that is meant, and those that were saved before it, from the newest on.
fn candidates(from: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    if from.is_dir() {
        return Ok(checkpoints(from)?.into_iter().rev().collect());
    }
    if !from.exists() {
        return Ok(Vec::new());
    }
    let folder = from.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let newest_first = checkpoints(folder)?.into_iter().rev();
    let before = newest_first.skip_while(|path| path.file_name() != from.file_name()).skip(1);
    Ok(std::iter::once(from.to_owned()).chain(before).collect())
}

/// What the first rank finds, on all of them.
fn agreed(
    mailbox: &Mailbox,
    own: impl Fn() -> Result<Vec<PathBuf>, CheckpointError>,
) -> Result<Vec<PathBuf>, CheckpointError> {
    let own = if mailbox.rank == Rank::FIRST { own()? } else { Vec::new() };
    let word = mailbox.spread(serde_json::to_vec(&own).unwrap_or_default())?;
    Ok(serde_json::from_slice(&word).unwrap_or_default())
}

/// The newest of these that is sound, as the first rank finds it.
fn soundest(mailbox: Option<&Mailbox>, candidates: &[PathBuf]) -> Result<Option<PathBuf>, CheckpointError> {
    let own = || candidates.iter().find(|path| load(path).is_ok()).cloned();
    let Some(mailbox) = mailbox else { return Ok(own()) };
    Ok(agreed(mailbox, || Ok(own().into_iter().collect()))?.pop())
}

/// Why a checkpoint is not taken.
struct Refusal {
    error: CheckpointError,
    is_damage: bool,
}

/// A checkpoint that fits a run.
struct Found {
    state: State,
    /// Where its tensors go, and which version each is there.
    places: Vec<(SavedTensor, u32)>,
    differences: Vec<Difference>,
}

/// Reads what the devices of this process hold; the run stays as it is.
fn attempt(run: &Run, path: &Path, how: &Resumption) -> Result<Found, CheckpointError> {
    let is_taken = |place: &SavedTensor| {
        let kind = run.program().value(place.value).kind;
        run.holds(place.value) && (!how.weights_only || kind == ValueKind::Parameters)
    };
    let places = saved_tensors(run.program()).into_iter().filter(is_taken);
    let places: Vec<(SavedTensor, u32)> =
        places.flat_map(|place| (0..run.versions(place.value)).map(move |age| (place.clone(), age))).collect();
    let names = places.iter().flat_map(|(place, age)| [versioned(&place.slot.name, *age), place.slot.name.clone()]);
    let names: BTreeSet<String> = names.collect();
    let state = read(path, &|name| names.contains(name))?;
    let unfit = |reason| CheckpointError::Unfit { path: path.to_owned(), reason };
    let fits = |(place, age): &(SavedTensor, u32)| fitting(&state, place, *age).map(drop).map_err(unfit);
    // Weights of other shapes say more than that the model is another one, and another optimizer
    // more than that its state is not there.
    let weights = |(place, _): &&(SavedTensor, u32)| run.program().value(place.value).kind == ValueKind::Parameters;
    places.iter().filter(weights).try_for_each(fits)?;
    let differences = state.origin.differences(&Origin::of(run));
    let refused = |difference: &&Difference| !how.weights_only && !how.despite.contains(&difference.aspect);
    let refused: Vec<Difference> = differences.iter().filter(refused).cloned().collect();
    if !refused.is_empty() {
        return Err(CheckpointError::Foreign { path: path.to_owned(), differences: refused });
    }
    places.iter().try_for_each(fits)?;
    Ok(Found { state, places, differences })
}

/// The tensor for a place. A file of a run that kept fewer versions has the newest one for all of them.
fn fitting<'a>(state: &'a State, place: &SavedTensor, age: u32) -> Result<&'a NamedTensor, String> {
    let (name, ty) = (&place.slot.name, place.slot.undivided());
    let named = |name: &str| state.tensors.iter().find(|tensor| tensor.name == name);
    match named(&versioned(name, age)).or_else(|| named(name)) {
        None => Err(format!("it has no tensor `{name}`")),
        Some(found) if found.ty != ty => Err(format!("it holds `{name}` as {}, but the program's is {ty}", found.ty)),
        Some(found) => Ok(found),
    }
}

impl Found {
    fn notes(&self, run: &Run, path: &Path, how: &Resumption) -> Vec<String> {
        let path = path.display();
        let mut notes = Vec::new();
        if !self.state.is_verified {
            notes.push(format!("{path} has no checksums, so it could not be verified that it is as it was saved"));
        }
        notes.extend(self.differences.iter().map(|difference| format!("{path} was saved with {difference}")));
        let (saved, own) = (self.state.seed, seed(run));
        if saved != own && !how.weights_only {
            notes.push(format!(
                "{path} was saved with the seed {saved}, and this run has {own}: data come in another order"
            ));
        }
        notes
    }

    fn apply(&self, run: &mut Run) -> Result<(), CheckpointError> {
        for (place, age) in &self.places {
            // It fits, as was found before.
            let Ok(found) = fitting(&self.state, place, *age) else { continue };
            run.write_parts(place.value, place.tensor, Some(*age), &found.data)?;
        }
        Ok(())
    }
}

/// What a rank says of the checkpoint that it has read.
#[derive(Serialize, Deserialize)]
enum Word {
    /// It fits, and has so many steps.
    Fits(u64),
    /// It is not taken, whether because of damage, and why.
    Refused(bool, String),
}

/// What was found, if all ranks found it well.
fn together(mailbox: Option<&Mailbox>, path: &Path, own: Result<Found, CheckpointError>) -> Result<Found, Refusal> {
    let refusal = |error: CheckpointError| Refusal { is_damage: error.is_damage(), error };
    let Some(mailbox) = mailbox else { return own.map_err(refusal) };
    let word = match &own {
        Ok(found) => Word::Fits(found.state.step),
        Err(error) => Word::Refused(error.is_damage(), error.to_string()),
    };
    let analyze = || {
        let words = mailbox.gather(serde_json::to_vec(&word).unwrap_or_default())?;
        let words: Vec<Word> = words.iter().filter_map(|word| serde_json::from_slice(word).ok()).collect();
        let refused = words.iter().enumerate().find_map(|(rank, other)| match (other, &word) {
            (Word::Refused(is_damage, reason), _) => Some((rank, *is_damage, reason.clone())),
            (Word::Fits(step), Word::Fits(first)) if step != first => {
                let path = path.display();
                let reason = format!("it reads another step in {path} than rank 0: all ranks need the same folder");
                Some((rank, false, reason))
            }
            _ => None,
        });
        mailbox.spread(serde_json::to_vec(&refused).unwrap_or_default())
    };
    let verdict = analyze().map_err(|error| Refusal { error: error.into(), is_damage: false })?;
    let verdict: Option<(usize, bool, String)> = serde_json::from_slice(&verdict).unwrap_or_default();
    match (verdict, own) {
        (None, own) => own.map_err(refusal),
        (Some((rank, is_damage, message)), own) => {
            let told = CheckpointError::Rank { rank: Rank::from_index(rank), message };
            let error = own.err().filter(|_| mailbox.rank.index() == rank).unwrap_or(told);
            Err(Refusal { error, is_damage })
        }
    }
}
