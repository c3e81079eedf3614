//! A server on the standard streams of its own process: the one thread that owns the machine, and does nothing but carry.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use everlink::server::{Config, Request, Server};
use everlink::{ErrorObject, Fault, Input, Output, Payload, StreamId};
use everlink_handle::{Context, Service, ServiceOwner};
use rustix::event::{PollFd, PollFlags};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdin, dup2_stdout};

use crate::drive::Clock;
use crate::poll::poll;
use crate::wake::{Alarm, alarm};
use crate::workers::Workers;

/// How much is read at once.
const CHUNK: usize = 64 << 10;
/// A pipe that can be written to takes this much without blocking (`PIPE_BUF`).
const GULP: usize = 4096;

/// Serves the client at the standard streams of this process, with a function for its requests.
///
/// The function is called on a thread for each request that runs at the same time; a panic in it is answered with an error. From here on the
/// standard streams are the server's own: what else reads standard input finds it empty, what else prints to standard output prints to
/// standard error, and processes that are started inherit neither.
///
/// The server ends with its input; [`Service::closed`] waits for that.
///
/// # Errors
///
/// When the system has no thread or descriptor left for it, or there are no standard streams.
pub fn serve<F>(config: Config, function: F) -> io::Result<Service>
where
    F: Fn(Request, Context) -> Result<Payload, ErrorObject> + Send + Sync + 'static,
{
    let (service, owner) = Service::new(Server::new(config));
    let (streams, waker) = Streams::take()?;
    // Whatever waits already is seen at the first turn.
    let _ = owner.belongs_to(&waker);
    let workers = Workers::new(function);
    let thread = thread::Builder::new().name("everlink".into());
    thread.spawn(move || drive(owner, streams, &workers))?;
    Ok(service)
}

fn drive(mut owner: ServiceOwner, mut streams: Streams, workers: &Workers) {
    let clock = Clock::start();
    let mut buf = Vec::new();
    loop {
        owner.serve(clock.now());
        while let Some(output) = owner.poll_output(&mut buf) {
            match output {
                Output::Event(task) => workers.run(task),
                Output::Write { .. } => streams.unwritten.append(&mut buf),
                Output::Release { .. } => {}
                other => unreachable!("a server has one stream: {other:?}"),
            }
        }
        if owner.is_closed() {
            break;
        }
        let due = owner.poll_timeout().map(|due| due.at.since(clock.now()));
        let reads = owner.wants_input(StreamId::DUPLEX);
        let told = streams.wait(due, reads, |input| owner.handle(clock.now(), input));
        told.expect("the system can say what its descriptors have to tell");
    }
    // Who waits for the end finds nothing left.
    drop(streams);
    drop(owner);
}

/// The standard streams of this process.
///
/// They are shared with whoever started it, so how they block is not ours to change: they are only touched when they will not.
struct Streams {
    /// Nothing after its end.
    input: Option<File>,
    /// Nothing when nobody reads it any more.
    output: Option<File>,
    unwritten: Vec<u8>,
    alarm: Alarm,
    chunk: Vec<u8>,
}

impl Streams {
    fn take() -> io::Result<(Streams, Waker)> {
        let (alarm, waker) = alarm()?;
        // Numbers above the three that everybody knows.
        let input = fcntl_dupfd_cloexec(io::stdin(), 3)?;
        let output = fcntl_dupfd_cloexec(io::stdout(), 3)?;
        dup2_stdin(File::open("/dev/null")?)?;
        dup2_stdout(io::stderr())?;
        let streams = Streams {
            input: Some(input.into()),
            output: Some(output.into()),
            unwritten: Vec::new(),
            alarm,
            chunk: vec![0; CHUNK],
        };
        Ok((streams, waker))
    }

    fn wait(
        &mut self,
        at_most: Option<Duration>,
        reads: bool,
        mut tell: impl FnMut(Input<'_>),
    ) -> io::Result<()> {
        let is_writing = !self.unwritten.is_empty();
        let input = self.input.as_ref().filter(|_| reads);
        let output = self.output.as_ref().filter(|_| is_writing);
        let [alarm, can_read, can_write] = poll(
            [
                Some(PollFd::new(&self.alarm.0, PollFlags::IN)),
                input.map(|input| PollFd::new(input, PollFlags::IN)),
                output.map(|output| PollFd::new(output, PollFlags::OUT)),
            ],
            at_most,
        )?;
        if alarm {
            self.alarm.stop();
        }
        if can_write {
            self.write(&mut tell);
        }
        if can_read {
            self.read(&mut tell);
        }
        Ok(())
    }

    fn read(&mut self, tell: &mut impl FnMut(Input<'_>)) {
        let Some(input) = &mut self.input else { return };
        let faults = match input.read(&mut self.chunk) {
            Ok(0) => Vec::new(),
            Ok(len) => return tell(Input::bytes(&self.chunk[..len])),
            Err(error) if is_passing(&error) => return,
            Err(error) => vec![Fault::from(error)],
        };
        self.input = None;
        tell(Input::end(faults));
    }

    fn write(&mut self, tell: &mut impl FnMut(Input<'_>)) {
        let Some(output) = &mut self.output else {
            return;
        };
        let gulp = self.unwritten.len().min(GULP);
        match output.write(&self.unwritten[..gulp]) {
            Ok(len) => {
                self.unwritten.drain(..len);
                tell(Input::sent(len));
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                self.output = None;
                tell(Input::write_failed(vec![Fault::from(error)]));
            }
        }
    }
}

/// Whether it is to be tried again: whoever started this process may have made the streams non-blocking.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

/// Random bytes for the configuration of a server.
#[must_use]
pub fn secret() -> [u8; 16] {
    let random = || u128::from(RandomState::new().build_hasher().finish());
    ((random() << 64) | random()).to_le_bytes()
}
