//! Channels: in-process transfers by rendezvous. A send and a receive complete together, once both are posted.
//!
//! There is a channel per (from, to, class). Both of its queues are in order: the k-th send meets the k-th receive, which
//! the verifier has proved to be of the same value and microbatch. Whoever posts second copies from arena to arena. Nothing is
//! buffered, so a run exercises the weakest transport that a program is proved for.

use crate::arena::Arena;
use crate::fault::Fault;
use crate::random::Counter;
use pipe_ir::ids::TokenId;
use pipe_ir::program::Buffer;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

/// The tokens of one device, and the thread that waits for them.
pub struct Tokens {
    done: Vec<AtomicBool>,
    waiter: OnceLock<Thread>,
}

/// Looks at a token before the thread yields, and yields before it sleeps. Transfers are mostly done when they are waited
/// for; where devices outnumber cores, yielding hands the core to the peer.
const SPINS: u32 = 50;
const YIELDS: u32 = 20;

impl Tokens {
    /// The tokens `!0..!n`, none of them done.
    #[must_use]
    pub fn new(n: u32) -> Self {
        Self { done: (0..n).map(|_| AtomicBool::new(false)).collect(), waiter: OnceLock::new() }
    }

    /// The calling thread is the one that waits from now on.
    pub fn claim(&self) {
        self.waiter.get_or_init(thread::current);
    }

    fn complete(&self, token: TokenId) {
        self.done[token.index()].store(true, Ordering::Release);
        self.wake();
    }

    /// Makes the waiting thread look again.
    pub fn wake(&self) {
        if let Some(waiter) = self.waiter.get() {
            waiter.unpark();
        }
    }

    /// Returns once the transfer has ended, and makes the token ready for the next step.
    ///
    /// # Errors
    /// If any device has failed.
    pub fn wait(&self, token: TokenId, fault: &Fault) -> Result<(), Stopped> {
        let done = &self.done[token.index()];
        let mut looks = 0;
        while !done.swap(false, Ordering::Acquire) {
            if fault.is_raised() {
                return Err(Stopped);
            }
            looks += 1;
            if looks < SPINS {
                std::hint::spin_loop();
            } else if looks < SPINS + YIELDS {
                thread::yield_now();
            } else {
                thread::park_timeout(Duration::from_millis(100));
            }
        }
        Ok(())
    }
}

/// Another device has failed.
#[derive(Debug)]
pub struct Stopped;

/// One end of a transfer.
#[derive(Clone, Copy)]
struct Post {
    buffer: Buffer,
    token: TokenId,
}

/// A device as its channels see it.
#[derive(Clone)]
pub struct Endpoint {
    /// Its memory.
    pub arena: Arc<Arena>,
    /// Its tokens.
    pub tokens: Arc<Tokens>,
}

#[derive(Default)]
struct Queues {
    sends: VecDeque<Post>,
    receives: VecDeque<Post>,
}

/// The queue pair of one direction and class between two devices.
pub struct Channel {
    from: Endpoint,
    to: Endpoint,
    queues: Mutex<Queues>,
    /// In stress mode: completes pairs in order, each after a random delay.
    courier: Option<mpsc::Sender<(Post, Post)>>,
}

impl Channel {
    /// A channel between two devices. With a seed, every transfer is delayed at random.
    #[must_use]
    pub fn new(from: Endpoint, to: Endpoint, delays: Option<Counter>) -> Self {
        let courier = delays.map(|delays| spawn_courier(from.clone(), to.clone(), delays));
        Self { from, to, queues: Mutex::default(), courier }
    }

    /// Queues a buffer to be sent.
    pub fn send(&self, buffer: Buffer, token: TokenId) {
        self.post(|queues| queues.sends.push_back(Post { buffer, token }));
    }

    /// Queues a buffer to be received into.
    pub fn receive(&self, buffer: Buffer, token: TokenId) {
        self.post(|queues| queues.receives.push_back(Post { buffer, token }));
    }

    /// Adds a post, then completes the pair if it made one. The lock is held over the copy, so that transfers end in order.
    fn post(&self, add: impl FnOnce(&mut Queues)) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut queues);
        if queues.sends.is_empty() || queues.receives.is_empty() {
            return;
        }
        let (Some(send), Some(receive)) = (queues.sends.pop_front(), queues.receives.pop_front()) else { return };
        match &self.courier {
            // A courier that is gone belongs to a run that has ended.
            Some(courier) => drop(courier.send((send, receive))),
            None => complete(&self.from, &self.to, send, receive),
        }
    }
}

fn complete(from: &Endpoint, to: &Endpoint, send: Post, receive: Post) {
    let source = from.arena.bytes(send.buffer);
    to.arena.bytes_mut(receive.buffer).copy_from_slice(source);
    from.tokens.complete(send.token);
    to.tokens.complete(receive.token);
}

/// Ends with the channel that holds the other end of the queue.
fn spawn_courier(from: Endpoint, to: Endpoint, mut delays: Counter) -> mpsc::Sender<(Post, Post)> {
    let (sender, pairs) = mpsc::channel();
    thread::spawn(move || {
        for (send, receive) in pairs {
            thread::sleep(random_delay(&mut delays));
            complete(&from, &to, send, receive);
        }
    });
    sender
}

/// Up to 200 microseconds, mostly short.
pub fn random_delay(delays: &mut Counter) -> Duration {
    let bits = delays.next_u64();
    let longest = if bits.is_multiple_of(8) { 200 } else { 20 };
    Duration::from_micros((bits >> 8) % longest)
}
