//! The executor pool: all executors of a run, on a thread each or in turns on one.

use crate::channels::Channels;
use crate::executor::{Executor, Pass, Patience, Progress};
use pipe_distributed::{DeviceStep, Nanos, Profile, RunError, StepReport};
use pipe_ir::ids::DeviceId;
use pipe_ir::verify::List;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// A list that all devices execute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) list: List,
    pub(crate) step: u64,
}

/// Who executes.
pub(crate) enum ExecutorPool {
    /// One thread per device.
    Threads(Vec<Worker>),
    /// One thread for all.
    Turns(Vec<Executor>),
}

/// A device's thread.
pub(crate) struct Worker {
    device: DeviceId,
    questions: Option<mpsc::Sender<Question>>,
    answers: mpsc::Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

enum Question {
    Execute(Pass),
    Profile,
}

enum Answer {
    Done(Result<DeviceStep, RunError>),
    Profile(Profile),
}

impl ExecutorPool {
    pub(crate) fn new(executors: Vec<Executor>, channels: Arc<Channels>, takes_turns: bool) -> Self {
        if takes_turns {
            return Self::Turns(executors);
        }
        Self::Threads(executors.into_iter().map(|executor| Worker::new(executor, Arc::clone(&channels))).collect())
    }

    /// Has all devices execute a list.
    pub(crate) fn execute(&mut self, order: Command) -> Result<StepReport, RunError> {
        let started = Instant::now();
        let pass = |patience| Pass { list: order.list, step: order.step, started, patience };
        let devices = match self {
            Self::Threads(members) => together(members, pass(Patience::Waits)),
            Self::Turns(executors) => in_turns(executors, &pass(Patience::Yields)),
        }?;
        let mut losses: Vec<_> = devices.iter().flat_map(|device| device.losses.iter().copied()).collect();
        losses.sort_by_key(|(microbatch, _)| *microbatch);
        Ok(StepReport { wall: Nanos(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)), devices, losses })
    }

    /// The profiles of all devices as one.
    pub(crate) fn profile(&mut self) -> Profile {
        let mut sum = Profile::default();
        match self {
            Self::Threads(members) => {
                for member in members {
                    if let Some(Answer::Profile(profile)) =
                        member.ask(Question::Profile).then(|| member.answer()).flatten()
                    {
                        sum.merge(&profile);
                    }
                }
            }
            Self::Turns(executors) => executors.iter().for_each(|executor| sum.merge(&executor.profile())),
        }
        sum
    }
}

/// All threads at once; of several errors, the one that the others follow from.
fn together(members: &mut [Worker], pass: Pass) -> Result<Vec<DeviceStep>, RunError> {
    for member in &*members {
        member.ask(Question::Execute(pass));
    }
    let mut steps = Vec::with_capacity(members.len());
    let mut errors = Vec::new();
    for member in members {
        match member.answer() {
            Some(Answer::Done(Ok(step))) => steps.push(step),
            Some(Answer::Done(Err(error))) => errors.push(error),
            Some(Answer::Profile(_)) | None => {
                errors.push(RunError::Panic { device: member.device, message: "its thread has ended".into() });
            }
        }
    }
    errors.sort_by_key(is_secondary);
    errors.into_iter().next().map_or(Ok(steps), Err)
}

fn is_secondary(error: &RunError) -> bool {
    matches!(error, RunError::Instruction { fault, .. } if fault.is_secondary())
}

/// Every device goes on until it waits for another; ends when all are done, or when none can go on.
fn in_turns(executors: &mut [Executor], pass: &Pass) -> Result<Vec<DeviceStep>, RunError> {
    let mut progress = vec![Progress::Blocked(0); executors.len()];
    loop {
        let mut moved = false;
        for (executor, progress) in executors.iter_mut().zip(&mut progress) {
            if let Progress::Blocked(index) = *progress {
                let next = executor.advance(pass, index)?;
                moved |= next != *progress;
                *progress = next;
            }
        }
        let blocked = || progress.iter().enumerate().filter(|(_, progress)| **progress != Progress::Done);
        if blocked().count() == 0 {
            return Ok(executors.iter_mut().map(Executor::take_report).collect());
        }
        if !moved {
            let who: Vec<String> = blocked().map(|(device, progress)| format!("d{device} {progress:?}")).collect();
            return Err(RunError::Stuck(who.join(", ")));
        }
    }
}

impl Worker {
    fn new(executor: Executor, channels: Arc<Channels>) -> Self {
        let (questions, asked) = mpsc::channel();
        let (reply, answers) = mpsc::channel();
        let device = executor.id;
        let thread = thread::spawn(move || serve(executor, &channels, &asked, &reply));
        Self { device, questions: Some(questions), answers, thread: Some(thread) }
    }

    fn ask(&self, question: Question) -> bool {
        self.questions.as_ref().is_some_and(|questions| questions.send(question).is_ok())
    }

    fn answer(&self) -> Option<Answer> {
        self.answers.recv().ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.questions = None;
        if let Some(thread) = self.thread.take() {
            // Whatever it panicked with was answered as an error.
            let _ = thread.join();
        }
    }
}

/// The life of a device's thread.
fn serve(mut executor: Executor, channels: &Channels, asked: &mpsc::Receiver<Question>, reply: &mpsc::Sender<Answer>) {
    channels.register(executor.id, None);
    for question in asked {
        let answer = match question {
            Question::Execute(pass) => {
                let result = catch_unwind(AssertUnwindSafe(|| executor.advance(&pass, 0)));
                let device = executor.id;
                let result = result.unwrap_or_else(|panic| Err(RunError::Panic { device, message: words(&*panic) }));
                if result.is_err() {
                    channels.poison();
                }
                Answer::Done(result.map(|_| executor.take_report()))
            }
            Question::Profile => Answer::Profile(executor.profile()),
        };
        if reply.send(answer).is_err() {
            return;
        }
    }
}

/// What a panic said.
pub(super) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
