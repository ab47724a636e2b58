//! Leases: a folder of checkpoints has one owner at a time.
//!
//! An owner writes its file `.owner-<number>.json` again every few seconds. Whoever finds that the
//! newest one has ended, or writes no more for as long as it said (by the clock of the one who
//! watches), takes the folder by making the file with the next number, which only one can. So
//! numbers never go back, and an owner that was stopped meanwhile finds a higher one and writes
//! nothing more.

use super::owner::{Note, Owner, RankState, numbers, path};
use super::{CheckpointError, io_error};
use std::fs::{self, File};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How an owner of a folder lives.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    /// How long it may write nothing before others may take the folder. It writes ten times in it.
    pub patience: Duration,
    /// Is told that the folder has an owner of which it is not known yet whether it lives.
    pub tell: &'a dyn Fn(&str),
}

impl Default for Terms<'_> {
    fn default() -> Self {
        Self { patience: PATIENCE, tell: &|_| {} }
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
const BEATS: u32 = 10;

/// That this process has a folder, until it is dropped or another run takes it.
pub(super) struct Lease {
    folder: PathBuf,
    number: u64,
    owner: Owner,
    is_lost: Arc<AtomicBool>,
    /// Dropped to stop the thread that writes.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lease {
    /// Takes a folder, which exists. Fails if it has an owner that lives, or cannot be read or written.
    pub(super) fn take(folder: &Path, terms: &Terms<'_>) -> Result<Self, CheckpointError> {
        let owner = Owner::new();
        loop {
            let newest = numbers(folder).map_err(io_error(folder))?.pop();
            if let Some(number) = newest
                && let Some(owner) = living(&path(folder, number), terms).map_err(io_error(folder))?
            {
                return Err(CheckpointError::Owned { folder: folder.to_owned(), owner: Box::new(owner) });
            }
            let number = newest.unwrap_or(0) + 1;
            let note = Note::new(owner.clone(), terms.patience);
            let Some(file) = make(folder, number, &note).map_err(io_error(folder))? else { continue };
            for old in numbers(folder).map_err(io_error(folder))?.into_iter().filter(|old| *old < number) {
                // Nothing depends on it.
                drop(fs::remove_file(path(folder, old)));
            }
            return Ok(Self::held(folder, number, note, file));
        }
    }

    fn held(folder: &Path, number: u64, note: Note, file: File) -> Self {
        let (owner, is_lost) = (note.owner.clone(), Arc::new(AtomicBool::new(false)));
        let (stop, stopped) = mpsc::channel();
        let writer = Writer { folder: folder.to_owned(), number, note, file, is_lost: Arc::clone(&is_lost) };
        // Without a thread it ends after its patience, as if this process were stopped.
        let thread = thread::Builder::new().name("owner".to_owned()).spawn(move || writer.work(&stopped)).ok();
        Self { folder: folder.to_owned(), number, owner, is_lost, stop: Some(stop), thread }
    }

    /// What is in the names of files of this run.
    pub(super) fn run(&self) -> &str {
        &self.owner.run
    }

    /// Whether the folder is known to be another's.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Looks whether the folder is still that of this run. Fails if another one has taken it, or it cannot be read.
    pub(super) fn check(&self) -> Result<(), CheckpointError> {
        let numbers = match numbers(&self.folder) {
            // Somebody removed it, and has not taken it.
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            numbers => numbers.map_err(io_error(&self.folder))?,
        };
        let newest = numbers.last().copied().filter(|newest| *newest > self.number);
        let Some(newest) = newest.or_else(|| self.is_lost().then_some(self.number + 1)) else { return Ok(()) };
        self.is_lost.store(true, Ordering::Relaxed);
        let owner = read(&path(&self.folder, newest)).map(|note| Box::new(note.owner));
        Err(CheckpointError::Lost { folder: self.folder.clone(), owner })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It does not panic, and nothing is left to do if it did.
            drop(thread.join());
        }
    }
}

/// Writes the file of an owner again and again.
struct Writer {
    folder: PathBuf,
    number: u64,
    note: Note,
    file: File,
    is_lost: Arc<AtomicBool>,
}

impl Writer {
    fn work(mut self, stopped: &mpsc::Receiver<()>) {
        let pause = self.note.patience() / BEATS;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            if self.has_successor() {
                self.is_lost.store(true, Ordering::Relaxed);
                return;
            }
            self.note.beat += 1;
            // A disk that is full for a moment is no reason to give the folder up.
            drop(write(&self.file, &self.note));
        }
        if !self.has_successor() {
            self.note.ended = true;
            drop(write(&self.file, &self.note));
        }
    }

    /// Whether another one has taken the folder. Where somebody removed the file, it is made again.
    fn has_successor(&mut self) -> bool {
        let Ok(numbers) = numbers(&self.folder) else { return false };
        if numbers.iter().any(|number| *number > self.number) {
            return true;
        }
        if !numbers.contains(&self.number) {
            match File::create_new(path(&self.folder, self.number)) {
                Ok(file) => self.file = file,
                Err(error) => return error.kind() == ErrorKind::AlreadyExists,
            }
        }
        false
    }
}

/// Makes the file of an owner, whole from its first moment where the file system has links; none
/// where there is one already.
fn make(folder: &Path, number: u64, note: &Note) -> std::io::Result<Option<File>> {
    let (temporary, path) = (folder.join(format!(".owner.{}.partial", note.owner.run)), path(folder, number));
    let file = File::create_new(&temporary)?;
    write(&file, note)?;
    let linked = fs::hard_link(&temporary, &path);
    // Whoever takes the folder removes it, too.
    drop(fs::remove_file(&temporary));
    let is_there = |error: &std::io::Error| error.kind() == ErrorKind::AlreadyExists;
    match linked {
        Ok(()) => Ok(Some(file)),
        Err(error) if is_there(&error) => Ok(None),
        Err(_) => match File::create_new(&path) {
            Err(error) if is_there(&error) => Ok(None),
            file => file.and_then(|file| write(&file, note).map(|()| Some(file))),
        },
    }
}

fn write(mut file: &File, note: &Note) -> std::io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&note.to_bytes())?;
    // Other hosts see it then.
    file.sync_data()
}

fn read(path: &Path) -> Option<Note> {
    Note::from_bytes(&fs::read(path).ok()?)
}

/// The owner that wrote a file, if it lives: it runs on this host, or writes while it is watched.
fn living(path: &Path, terms: &Terms<'_>) -> std::io::Result<Option<Owner>> {
    let Some(mut seen) = content(path)? else { return Ok(None) };
    let mut note = Note::from_bytes(&seen);
    let patience = note.as_ref().map_or(terms.patience, Note::patience);
    let (began, mut is_told) = (Instant::now(), false);
    loop {
        // What is only half there is being written, or was when its writer died.
        match note.as_ref().map(|note| (note, note.owner.sign())) {
            Some((Note { ended: true, .. }, _) | (_, RankState::Ended)) => return Ok(None),
            Some((note, RankState::Runs)) => return Ok(Some(note.owner.clone())),
            Some((_, RankState::Unknown)) | None => {}
        }
        if began.elapsed() >= patience {
            return Ok(None);
        }
        if !is_told {
            let whose = note.as_ref().map_or("another run".to_owned(), |note| note.owner.to_string());
            let (whose, seconds) =
                (format!("{} belongs to {whose}", path.parent().unwrap_or(path).display()), patience.as_secs_f64());
            (terms.tell)(&format!("{whose}: whether that still runs is known in {seconds:.0}s at most"));
            is_told = true;
        }
        thread::sleep(patience / BEATS / 4);
        let Some(now) = content(path)? else { return Ok(None) };
        if now != seen {
            note = Note::from_bytes(&now);
            if let Some(note) = note.as_ref().filter(|note| !note.ended) {
                return Ok(Some(note.owner.clone()));
            }
            seen = now;
        }
    }
}

/// What is in a file; none where there is no such file.
fn content(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        bytes => bytes.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(400);

    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pipec-lease-{}-{test}", std::process::id()));
        // It exists if a process with this number failed before.
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).expect("a temporary folder");
        folder
    }

    fn terms() -> Terms<'static> {
        Terms { patience: SHORT, ..Terms::default() }
    }

    /// What an owner on another host has written.
    fn from_elsewhere(patience: Duration) -> Note {
        let mut note = Note::new(Owner::new(), patience);
        note.owner.process.host = "elsewhere".to_owned();
        let text = String::from_utf8(note.to_bytes()).expect("text");
        let machine = serde_json::to_value(&note).expect("JSON")["machine"].to_string();
        Note::from_bytes(text.replace(&machine, "\"another\"").as_bytes()).expect("a note")
    }

    #[test]
    fn one_owner_at_a_time_has_a_folder() {
        let folder = folder("one");
        let first = Lease::take(&folder, &terms()).expect("nobody has it");
        let began = Instant::now();
        match Lease::take(&folder, &terms()).err() {
            Some(CheckpointError::Owned { owner, .. }) => {
                assert_eq!((owner.run.as_str(), owner.process.id), (first.run(), std::process::id()));
            }
            other => panic!("{other:?}"),
        }
        assert!(began.elapsed() < SHORT, "it is refused at once");
        first.check().expect("it still has it");
        let run = first.run().to_owned();
        drop(first);
        let second = Lease::take(&folder, &terms()).expect("it was let go");
        assert_ne!(second.run(), run);
        assert_eq!(numbers(&folder).expect("readable"), [2]);
        fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn an_owner_on_another_host_has_the_folder_as_long_as_it_writes() {
        let folder = folder("elsewhere");
        let mut note = from_elsewhere(SHORT);
        let file = path(&folder, 7);
        let write = |note: &Note| fs::write(&file, note.to_bytes()).expect("written");
        write(&note);
        let refused = thread::scope(|scope| {
            let watcher = scope.spawn(|| Lease::take(&folder, &terms()).err());
            while !watcher.is_finished() {
                thread::sleep(SHORT / BEATS);
                note.beat += 1;
                write(&note);
            }
            watcher.join().expect("it does not panic")
        });
        assert!(matches!(refused, Some(CheckpointError::Owned { owner, .. }) if owner.process.host == "elsewhere"));
        // Now it writes no more: the folder is taken after its patience, and not before.
        let began = Instant::now();
        let lease = Lease::take(&folder, &terms()).expect("its owner is dead");
        assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
        assert_eq!((lease.number, numbers(&folder).expect("readable")), (8, vec![8]));
        // One that has let it go has not to be waited for.
        drop(lease);
        note.ended = true;
        fs::write(path(&folder, 9), note.to_bytes()).expect("written");
        let began = Instant::now();
        drop(Lease::take(&folder, &Terms::default()).expect("nobody has it"));
        assert!(began.elapsed() < SHORT);
        fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn of_many_that_find_a_dead_owner_one_takes_the_folder() {
        let folder = folder("many");
        for round in 0..10 {
            let number = numbers(&folder).expect("readable").last().map_or(1, |number| number + 1);
            let dead = if round % 2 == 0 { Note::to_bytes(&from_elsewhere(SHORT / 8)) } else { b"{\"half".to_vec() };
            fs::write(path(&folder, number), dead).expect("written");
            let all: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..8).map(|_| scope.spawn(|| Lease::take(&folder, &terms_of(SHORT / 8)))).collect();
                threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
            });
            let taken: Vec<&Lease> = all.iter().flatten().collect();
            assert_eq!(taken.len(), 1, "round {round}");
            taken[0].check().expect("it has it");
            let others = all.iter().filter_map(|one| one.as_ref().err());
            assert!(others.clone().all(|error| matches!(error, CheckpointError::Owned { .. })), "round {round}");
        }
        fs::remove_dir_all(folder).expect("it is ours");
    }

    fn terms_of(patience: Duration) -> Terms<'static> {
        Terms { patience, ..Terms::default() }
    }

    #[test]
    fn an_owner_whose_folder_was_taken_finds_out() {
        let folder = folder("lost");
        let lease = Lease::take(&folder, &terms()).expect("nobody has it");
        let next = from_elsewhere(SHORT);
        fs::write(path(&folder, 2), next.to_bytes()).expect("written");
        match lease.check() {
            Err(CheckpointError::Lost { owner: Some(owner), .. }) => assert_eq!(owner.run, next.owner.run),
            other => panic!("{other:?}"),
        }
        drop(lease);
        assert!(!read(&path(&folder, 1)).is_some_and(|note| note.ended), "it writes nothing more");
        // A folder that somebody removed is nobody's: its owner goes on.
        fs::remove_dir_all(&folder).expect("it is ours");
        fs::create_dir_all(&folder).expect("a folder");
        let lease = Lease::take(&folder, &terms()).expect("nobody has it");
        fs::remove_dir_all(&folder).expect("it is ours");
        lease.check().expect("nobody has taken it");
        fs::create_dir_all(&folder).expect("a folder");
        let began = Instant::now();
        while numbers(&folder).expect("readable").is_empty() {
            assert!(began.elapsed() < 20 * SHORT, "its file is made again");
            thread::sleep(SHORT / BEATS);
        }
        lease.check().expect("nobody has taken it");
        fs::remove_dir_all(folder).expect("it is ours");
    }
}
