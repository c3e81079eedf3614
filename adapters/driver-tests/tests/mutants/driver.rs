//! A small driver on threads, with switches for faults. Without a fault it is correct.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Waker};
use std::thread;

use everlink::{Config, Epoch, ExitStatus, Fault as IoFault, Input, Instant, Output};
use everlink_driver_tests::{Connect, DriveGuard, Driver};
use everlink_handle::{
    Clock, Inbox, Link, ThreadClock, ThreadPark, Transport, drive, drive_relay, run,
};

use crate::mutants::Fault;
use crate::pipes::{ReadResult, ReaderThread, WriterThread, watch_exit};
use crate::process::{Process, Source, Spawned};

/// The driver, as the kit sees it.
pub(crate) struct ThreadDriver {
    name: &'static str,
    fault: Option<Fault>,
}

impl ThreadDriver {
    pub(crate) const fn new(name: &'static str, fault: Option<Fault>) -> ThreadDriver {
        ThreadDriver { name, fault }
    }
}

impl Driver for ThreadDriver {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, program: &mut dyn FnMut(&Connect<'_>)) {
        program(&|command, config| connect(command, config, self.fault));
    }

    fn drive_guard(&self) -> Option<Box<DriveGuard<'_>>> {
        let fault = self.fault;
        Some(Box::new(move |owner, host, command| {
            let transport = ChildTransport::new(command, fault);
            start(fault, move |clock| {
                drive_relay(owner, host, transport, clock)
            })
        }))
    }
}

fn connect(command: Command, config: Config, fault: Option<Fault>) -> io::Result<Link> {
    let (link, owner) = Link::new(config);
    let transport = ChildTransport::new(command, fault);
    start(fault, move |clock| drive(owner, transport, clock))?;
    Ok(link)
}

/// Starts a thread that runs a driver.
fn start<D: Future>(
    fault: Option<Fault>,
    driver: impl FnOnce(DriverClock) -> D + Send + 'static,
) -> io::Result<()> {
    let thread = thread::Builder::new().name("driver".into());
    let run = move || {
        drop(run(ThreadPark::new(), |clock| {
            driver(DriverClock { clock, fault })
        }));
    };
    thread.spawn(run).map(drop)
}

struct DriverClock {
    clock: ThreadClock,
    fault: Option<Fault>,
}

impl Clock for DriverClock {
    fn now(&mut self) -> Instant {
        self.clock.now()
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let deadline = deadline.filter(|_| self.fault != Some(Fault::TimerIgnored));
        self.clock.poll_deadline(cx, deadline)
    }
}

/// One child process after another.
struct ChildTransport {
    fault: Option<Fault>,
    source: Source,
    epoch: Option<Epoch>,
    /// Commands to a child that is being spawned. They are carried out when it runs.
    deferred: DeferredCommands,
    child: Option<Child>,
    /// With the fault `ReleasedLate`: the child of the epoch before.
    old_child: Option<Child>,
    /// Reads that wait until the machine wants them.
    held_output: VecDeque<ReadResult>,
    is_exited: bool,
    /// With the fault `UnreadBytesDroppedAtExit`: whether output is no longer reported.
    is_cut: bool,
    /// Inputs that are reported before those in `inbox`.
    inputs: VecDeque<Input<'static>>,
    inbox: Inbox<(Epoch, Message)>,
    /// With the fault `ExitDoesNotWake`: an inbox whose messages wake nobody.
    silent_inbox: Inbox<(Epoch, Message)>,
}

#[derive(Default)]
struct DeferredCommands {
    closes: bool,
    kills: bool,
}

struct Child {
    process: Process,
    stdin: Option<WriterThread>,
    stdout: ReaderThread,
    stderr: ReaderThread,
}

/// A message of one of the threads that spawn the child, wait for its exit, read from it and write to it.
enum Message {
    Exited,
    Spawned(Result<Spawned, IoFault>),
    Stderr(ReadResult),
    Stdout(ReadResult),
    Written(Result<usize, IoFault>),
}

impl ChildTransport {
    fn new(command: Command, fault: Option<Fault>) -> ChildTransport {
        ChildTransport {
            fault,
            source: Source::new(command, fault),
            epoch: None,
            deferred: DeferredCommands::default(),
            child: None,
            old_child: None,
            held_output: VecDeque::new(),
            is_exited: false,
            is_cut: false,
            inputs: VecDeque::new(),
            inbox: Inbox::new(),
            silent_inbox: Inbox::new(),
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn open(&mut self, epoch: Epoch) {
        self.epoch = Some(epoch);
        self.deferred = DeferredCommands::default();
        let sender = self.inbox.sender();
        self.source
            .spawn(move |spawned| sender.send((epoch, Message::Spawned(spawned))));
    }

    fn release(&mut self) {
        self.epoch = None;
        self.held_output.clear();
        self.inputs.clear();
        (self.is_exited, self.is_cut) = (false, false);
        let child = self.child.take();
        if self.has(Fault::ReleasedLate) {
            self.old_child = child;
        }
    }

    /// Takes over a child that was spawned.
    fn attach(&mut self, epoch: Epoch, spawned: Spawned) -> io::Result<()> {
        let exit_fd = spawned.process.exit_fd()?;
        if self.has(Fault::DescriptorKept) {
            std::mem::forget(exit_fd.try_clone()?);
        }
        let (pipes_open, pipes_ended) = channel::<()>();
        let exit_inbox = match self.fault {
            Some(Fault::ExitDoesNotWake) => &self.silent_inbox,
            _ => &self.inbox,
        };
        let exits = exit_inbox.sender();
        watch_exit(exit_fd, pipes_ended, self.fault, move || {
            exits.send((epoch, Message::Exited));
        });
        let written = self.inbox.sender();
        let reader = |message: fn(ReadResult) -> Message, is_open: Sender<()>| {
            let reads = self.inbox.sender();
            move |read| {
                let _held_until_the_end = &is_open;
                reads.send((epoch, message(read)));
            }
        };
        let stderr_message = match self.fault {
            Some(Fault::StderrReadAsOutput) => Message::Stdout,
            _ => Message::Stderr,
        };
        let (stdout, stderr) = (
            reader(Message::Stdout, pipes_open.clone()),
            reader(stderr_message, pipes_open),
        );
        self.child = Some(Child {
            process: spawned.process,
            stdin: Some(WriterThread::new(
                spawned.stdin,
                self.fault,
                move |result| {
                    written.send((epoch, Message::Written(result)));
                },
            )),
            stdout: ReaderThread::new(spawned.stdout, self.fault, stdout),
            stderr: ReaderThread::new(spawned.stderr, self.fault, stderr),
        });
        Ok(())
    }

    fn on_spawned(
        &mut self,
        epoch: Epoch,
        spawned: Result<Spawned, IoFault>,
    ) -> Option<Input<'static>> {
        let attached = spawned.and_then(|spawned| Ok(self.attach(epoch, spawned)?));
        match attached {
            Ok(()) => {
                if let Some(child) = &mut self.child {
                    if self.deferred.kills {
                        child.process.kill();
                    }
                    if self.deferred.closes {
                        child.stdin = None;
                    }
                }
                Some(Input::Opened)
            }
            Err(_) if self.has(Fault::SpawnErrorSwallowed) => None,
            Err(fault) => Some(Input::open_failed(vec![fault])),
        }
    }

    fn on_message(&mut self, epoch: Epoch, message: Message) -> Option<Input<'static>> {
        match message {
            Message::Exited => {
                self.is_exited = true;
                None
            }
            Message::Spawned(spawned) => self.on_spawned(epoch, spawned),
            Message::Stderr(Ok(bytes)) if !bytes.is_empty() => {
                if !self.has(Fault::StderrNotDrained) {
                    self.child.iter().for_each(|child| child.stderr.read_next());
                }
                Some(Input::stderr(bytes))
            }
            // The end of standard error is not reported.
            Message::Stderr(_) => None,
            Message::Stdout(_) if self.is_cut => None,
            Message::Stdout(read) => {
                self.held_output.push_back(read);
                None
            }
            Message::Written(Ok(len)) => Some(Input::sent(len)),
            Message::Written(Err(_)) if self.has(Fault::WriteErrorSwallowed) => None,
            Message::Written(Err(fault)) => Some(Input::write_failed(vec![fault])),
        }
    }

    fn on_output(&mut self, read: ReadResult) -> Option<Input<'static>> {
        match read {
            Ok(bytes) if !bytes.is_empty() => {
                if let Some(child) = &self.child {
                    child.stdout.read_next();
                    if self.has(Fault::StderrReadAsOutput) {
                        child.stderr.read_next();
                    }
                }
                Some(Input::bytes(bytes))
            }
            _ if self.has(Fault::EndNotReported) => None,
            end => Some(Input::end(end.err().into_iter().collect::<Vec<_>>())),
        }
    }

    fn on_exit(&mut self) -> Option<Input<'static>> {
        self.is_exited = false;
        if self.has(Fault::ExitNotReported) {
            return None;
        }
        if self.has(Fault::UnreadBytesDroppedAtExit) {
            // Closes the pipes at once.
            self.is_cut = true;
            self.inputs.push_back(Input::end(Vec::new()));
        }
        let status = self
            .child
            .as_ref()
            .and_then(|child| child.process.exit_status());
        Some(Input::exited(status.unwrap_or(ExitStatus::Unknown)))
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<(Epoch, Message)> {
        let mut nobody = Context::from_waker(Waker::noop());
        match self.silent_inbox.poll_recv(&mut nobody) {
            Poll::Pending => self.inbox.poll_recv(cx),
            ready => ready,
        }
    }
}

impl Transport for ChildTransport {
    fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(|child| child.process.pid())
    }

    fn perform(&mut self, output: Output<Infallible>, bytes: &[u8]) {
        let fault = self.fault;
        let has = |it: Fault| fault == Some(it);
        let Some(child) = &mut self.child else {
            match output {
                Output::Open { epoch } => self.open(epoch),
                Output::CloseWrite { .. } => self.deferred.closes = true,
                Output::Release { .. } => self.release(),
                Output::Terminate { .. } | Output::Kill { .. } => self.deferred.kills = true,
                _ => {}
            }
            return;
        };
        match output {
            Output::Write { .. } => {
                child.stdin.iter().for_each(|stdin| stdin.write(bytes));
                if has(Fault::SentWhenQueued) {
                    self.inputs.push_back(Input::sent(bytes.len()));
                }
            }
            Output::CloseWrite { .. } if has(Fault::CloseWriteIgnored) => {}
            Output::CloseWrite { .. } => {
                if has(Fault::GraceSkipped) {
                    child.process.kill();
                }
                child.stdin = None;
            }
            Output::Terminate { .. } if has(Fault::SigtermNotSent) => {}
            Output::Terminate { .. } => child.process.terminate(),
            Output::Kill { .. } if has(Fault::KillIgnored) => {}
            Output::Kill { .. } => child.process.kill(),
            Output::Inspect { .. } if has(Fault::ActivityNotReported) => {}
            Output::Inspect { .. } => {
                let activity = child.process.activity();
                self.inputs.extend(activity);
            }
            Output::Release { .. } => self.release(),
            _ => {}
        }
    }

    fn poll_input<'r>(
        &mut self,
        cx: &mut Context<'_>,
        reads: bool,
        _: &'r mut [u8],
    ) -> Poll<(Epoch, Input<'r>)> {
        let reads = reads || self.has(Fault::ReadsWhenNotWanted);
        loop {
            let Some(epoch) = self.epoch else {
                // What arrives without an epoch is dropped.
                match self.poll_message(cx) {
                    Poll::Ready(_) => continue,
                    Poll::Pending => return Poll::Pending,
                }
            };
            let input = if let Some(result) = self.inputs.pop_front() {
                Some(result)
            } else if (reads || self.is_exited) && !self.held_output.is_empty() {
                // Held output precedes the exit, so it is reported even if no input is wanted.
                let read = self.held_output.pop_front();
                read.and_then(|read| self.on_output(read))
            } else if self.is_exited {
                self.on_exit()
            } else {
                let Poll::Ready((of, message)) = self.poll_message(cx) else {
                    return Poll::Pending;
                };
                let mixes = self.has(Fault::EpochsMixed) && matches!(message, Message::Stdout(_));
                if of != epoch && !mixes {
                    continue;
                }
                self.on_message(epoch, message)
            };
            if let Some(input) = input {
                return Poll::Ready((epoch, input));
            }
        }
    }
}
