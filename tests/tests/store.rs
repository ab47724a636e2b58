//! Ranks that a store connects: the bits of one process, and an end with a message whatever is lost.

use pipe_distributed::store::{self, Address, Keeper, Member};
use pipe_distributed::{How, Job, Lost, Rank, Settings, Unconnected};
use pipe_tests::pipelines::{gpt, verified};
use pipe_tests::ranks::{held, join, settings, together};
use pipe_tests::store::Store;
use pipe_tests::training::{losses, start, steps};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SIZES: &str = "vocab = 17, hidden = 16, heads = 2, blocks = 8, sequence = 6, rows = 2";

fn address(port: u16) -> Address {
    Address { host: "localhost".to_owned(), port, keeper: Keeper::Torchrun }
}

fn member(rank: u32, n_ranks: u32) -> Member {
    Member { rank, n_ranks, near: rank / 8 * 8..rank / 8 * 8 + 8, job: "none".to_owned() }
}

/// Has every rank do something, each on a thread of its own.
fn on_ranks<T: Send>(
    port: u16,
    n_ranks: u32,
    settings: impl Fn(Rank) -> Settings + Sync,
    work: impl Fn(Job) -> T + Sync,
) -> Vec<T> {
    let (settings, work) = (&settings, &work);
    thread::scope(|scope| {
        let rank = |rank: u32| {
            // The others must find the first one wherever it is late.
            thread::sleep(Duration::from_millis(u64::from(30 * (n_ranks - rank))));
            work(store::join(&address(port), &member(rank, n_ranks), settings(Rank(rank))).expect("it is there"))
        };
        let threads: Vec<_> = (0..n_ranks).map(|one| scope.spawn(move || rank(one))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}

/// Messages that nobody took.
fn left(store: &Store) -> Vec<String> {
    let is_slot = |key: &String| key.split("/inbox/").nth(1).is_some_and(|rest| rest.contains('/'));
    store.keys().into_iter().filter(is_slot).collect()
}

#[test]
fn ranks_over_a_store_learn_the_same_bits() {
    let store = Store::start();
    let large =
        SIZES.replace("hidden = 16", "hidden = 256").replace("sequence = 6, rows = 2", "sequence = 64, rows = 24");
    let parallel = gpt(SIZES, 4, 6, "data_parallel") + include_str!("../data/data_parallel.pipe");
    // One after the other with one store, as a job that is started again; activations of the last
    // one go in several pieces.
    for (text, n_ranks) in [
        (gpt(SIZES, 4, 8, "zb_v"), 4),
        (parallel, 3),
        (gpt(&large.replace("blocks = 8", "blocks = 2"), 2, 2, "1f1b"), 2),
    ] {
        let program = verified(&text);
        let mut alone = start(&program, None);
        let expected = steps(&mut alone, 0..2);
        let ranks = on_ranks(
            store.port(),
            n_ranks,
            |_| settings(),
            |job| {
                let mut run = join(&program, None, &job);
                let reports = steps(&mut run, 0..2);
                (reports, held(&run))
            },
        );
        let (mut reports, held_by_ranks): (Vec<_>, Vec<_>) = ranks.into_iter().unzip();
        assert_eq!(losses(&reports.swap_remove(0)), losses(&expected), "{text}");
        assert!(together(held_by_ranks) == held(&alone), "{text}");
        assert_eq!(store.mistakes(), [""; 0]);
        assert_eq!(left(&store), [""; 0]);
    }
}

#[test]
fn a_slot_that_nobody_fills_is_passed_over() {
    let store = Store::start();
    let found = on_ranks(
        store.port(),
        2,
        |_| settings(),
        |job| {
            if !job.is_first() {
                store.add("pipec/none/1/inbox/0");
            }
            (0..6_u64).map(|word| job.any(word % 3 == 0).expect("nobody has a fault")).filter(|any| *any).count()
        },
    );
    assert_eq!((found, store.mistakes()), (vec![2, 2], Vec::new()));
}

/// What ranks are told, and when they are to end.
#[derive(Default)]
struct Told {
    lost: Mutex<Vec<Vec<Lost>>>,
    cut: Mutex<Vec<String>>,
    ended: Mutex<u32>,
}

impl Told {
    fn settings(self: &Arc<Self>, stall: Duration) -> Settings {
        let [lost, cut, end] = [0; 3].map(|_| Arc::clone(self));
        Settings {
            stall,
            lost: Arc::new(move |all| lost.lost.lock().expect("no rank panics").push(all.to_vec())),
            cut: Arc::new(move |why| cut.cut.lock().expect("no rank panics").push(why.to_owned())),
            away: Arc::new(|stood| panic!("{stood:?}")),
            end: Arc::new(move || *end.ended.lock().expect("no rank panics") += 1),
        }
    }
}

#[test]
fn a_store_that_ends_or_falls_silent_ends_all_ranks() {
    let program = verified(&gpt(SIZES, 3, 4, "1f1b"));
    let why = ["which connects the ranks: it has ended", "which connects the ranks: it has not answered for 1."];
    for (why, silent) in why.into_iter().zip([false, true]) {
        let (store, told) = (Store::start(), Arc::<Told>::default());
        on_ranks(
            store.port(),
            3,
            |_| told.settings(Duration::from_secs(1)),
            |job| {
                let mut run = join(&program, None, &job);
                steps(&mut run, 0..1);
                if job.is_first() {
                    if silent { store.fall_silent() } else { store.end() }
                }
                (1..).find_map(|step| run.step(step).err()).expect("nothing connects it")
            },
        );
        let cut = told.cut.lock().expect("no rank panics");
        assert!(cut.len() == 3 && cut.iter().all(|told| told.contains(why)), "{cut:?}");
        assert_eq!(
            (*told.ended.lock().expect("no rank panics"), told.lost.lock().expect("no rank panics").len()),
            (3, 0)
        );
    }
}

#[test]
fn a_rank_that_falls_silent_is_told_once_with_what_it_was_doing() {
    let program = verified(&gpt(SIZES, 3, 4, "1f1b"));
    let (store, told) = (Store::start(), Arc::<Told>::default());
    let began = Instant::now();
    let stall = |rank: Rank| Duration::from_secs(if rank == Rank(1) { 60 } else { 2 });
    on_ranks(
        store.port(),
        3,
        |rank| told.settings(stall(rank)),
        |job| {
            let mut run = join(&program, None, &job);
            steps(&mut run, 0..1);
            if job.rank() == Rank(1) {
                // Its place is told some times a second. Then it ends without a word, as if it were killed.
                thread::sleep(Duration::from_millis(500));
                std::mem::forget(run);
                return job.vanish();
            }
            let error = (1..).find_map(|step| run.step(step).err()).expect("a rank is lost").to_string();
            assert!(error.contains("rank 1"), "{error}");
        },
    );
    let lost = told.lost.lock().expect("no rank panics");
    let is_told = matches!(&lost[..], [lost] if matches!(&lost[..],
        [Lost { rank: Rank(1), how: How::Silent(_), positions, .. }] if positions.len() == 1));
    assert!(is_told && began.elapsed() < Duration::from_secs(30), "{lost:?}");
}

#[test]
fn of_many_ranks_the_first_one_looks_after_all() {
    let (store, told) = (Store::start(), Arc::<Told>::default());
    let stall = |rank: Rank| Duration::from_secs(if rank == Rank(30) { 60 } else { 4 });
    on_ranks(
        store.port(),
        40,
        |rank| told.settings(stall(rank)),
        |job| {
            let words = job.gather(vec![7; 3]).expect("nobody has a fault");
            assert!(!job.is_first() || words.len() == 40);
            assert!(!job.any(false).expect("nobody has a fault"));
            if job.rank() == Rank(30) {
                return job.vanish();
            }
            while !job.has_failed() {
                thread::sleep(Duration::from_millis(50));
            }
        },
    );
    let lost = told.lost.lock().expect("no rank panics");
    let is_told =
        matches!(&lost[..], [lost] if matches!(&lost[..], [Lost { rank: Rank(30), how: How::Silent(_), .. }]));
    assert!(is_told, "{lost:?}");
    assert_eq!((*told.ended.lock().expect("no rank panics"), store.mistakes()), (39, Vec::new()));
}

/// Why a rank does not join what is at a port.
fn unjoined(address: &Address, member: &Member) -> Unconnected {
    let settings = Settings { stall: Duration::from_secs(1), ..settings() };
    store::join(address, member, settings).err().expect("nothing is there")
}

#[test]
fn what_is_no_store_is_said() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // As a server for pages.
            let _ = stream.read(&mut [0; 5]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let told = unjoined(&address(port), &member(0, 2)).to_string();
    let expected = format!("torchrun's store at localhost:{port} (MASTER_ADDR and MASTER_PORT) cannot be used: ");
    assert!(told.starts_with(&expected) && told.contains("what answers there is not a PyTorch store"), "{told}");
    let closed = TcpListener::bind(("127.0.0.1", 0)).expect("a port").local_addr().expect("it is bound").port();
    let told = unjoined(&Address { host: "127.0.0.1".to_owned(), ..address(closed) }, &member(0, 2)).to_string();
    assert!(told.contains("cannot be used: Connection refused"), "{told}");
    let nowhere = Address { host: "nowhere.invalid".to_owned(), ..address(1) };
    let told = unjoined(&nowhere, &member(0, 2)).to_string();
    assert!(told.contains("(MASTER_ADDR) cannot be used: the host nowhere.invalid is not found: "), "{told}");
    // Without the first rank nobody says which round it is.
    let store = Store::start();
    assert_eq!(unjoined(&address(store.port()), &member(1, 2)), Unconnected::Late(Duration::from_secs(1)));
}
