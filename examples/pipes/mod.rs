//! Starts processes, and reads and writes their pipes. A thread for each pipe reports what happens. A [`Gate`] stops the threads that read a peer.

#![allow(dead_code, reason = "each example uses another part")]

use std::io::{ErrorKind, Read, Result, Write, stdin, stdout};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::spawn;
use std::time::Duration;

use everlink::{Arc, Epoch, ExitStatus, Fault, Input};

/// Stops a thread that reads while the machine wants no input. It is open at first.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    /// Opens or closes the gate: with `wants_input`, after all outputs are polled.
    pub(crate) fn set(&self, is_open: bool) {
        *self
            .is_closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = !is_open;
        self.changed.notify_all();
    }

    /// Waits while the gate is closed.
    fn pass(&self) {
        let closed = self
            .is_closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(closed, |is_closed| *is_closed));
    }
}

/// How long the exit is held back for output that is still in the pipes. A process that outlives the child may hold them open for any time.
const LAST_OUTPUT: Duration = Duration::from_millis(100);

/// Starts the child, with a thread for each of its pipes, and one that waits for its exit. Its standard output is read while the gate is open; its standard
/// error is always read.
pub(crate) fn open<N: From<(Epoch, Input<'static>)> + Send + 'static>(
    command: &[String],
    epoch: Epoch,
    gate: &Arc<Gate>,
    news: &Sender<N>,
) -> Result<(Sender<Vec<u8>>, u32)> {
    let mut start = Command::new(command.first().map_or("", String::as_str));
    start.args(command.iter().skip(1)).stdin(Stdio::piped());
    start.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = start.spawn()?;
    let pid = child.id();
    let stdin = child.stdin.take().expect("it is piped");
    let stdout = child.stdout.take().expect("it is piped");
    let stderr = child.stderr.take().expect("it is piped");
    let (to_stdin, lines) = channel();
    let tell = || {
        let news = news.clone();
        move |input| drop(news.send((epoch, input).into()))
    };
    let (writer, reader, listener, reaper) = (tell(), tell(), tell(), tell());
    spawn(move || write(stdin, lines, writer));
    let gate = Arc::clone(gate);
    // Both threads that read hold a sender. When both have ended, everything is read.
    let (stdout_done, all_read) = channel::<()>();
    let stderr_done = stdout_done.clone();
    spawn(move || {
        let fault = read(stdout, &gate, |bytes| reader(Input::bytes(bytes)));
        reader(Input::end(Vec::from_iter(fault)));
        drop(stdout_done);
    });
    spawn(move || {
        read(stderr, &Gate::default(), |bytes| {
            listener(Input::stderr(bytes))
        });
        drop(stderr_done);
    });
    spawn(move || {
        let status = child.wait().map_or(ExitStatus::Unknown, ExitStatus::from);
        let _ = all_read.recv_timeout(LAST_OUTPUT);
        reaper(Input::exited(status));
    });
    Ok((to_stdin, pid))
}

/// Reads the standard input of this process while the gate is open.
pub(crate) fn listen(gate: &Arc<Gate>, tell: impl Fn(Input<'static>) + Send + 'static) {
    let gate = Arc::clone(gate);
    spawn(move || {
        let fault = read(stdin(), &gate, |bytes| tell(Input::bytes(bytes)));
        tell(Input::end(Vec::from_iter(fault)));
    });
}

/// Writes to the standard output of this process, and returns the result as an input.
pub(crate) fn say(line: &[u8]) -> Input<'static> {
    match stdout().write_all(line).and_then(|()| stdout().flush()) {
        Ok(()) => Input::sent(line.len()),
        Err(error) => Input::write_failed(vec![Fault::from(error)]),
    }
}

fn write(mut pipe: impl Write, lines: Receiver<Vec<u8>>, tell: impl Fn(Input<'static>)) {
    for line in lines {
        match pipe.write_all(&line) {
            Ok(()) => tell(Input::sent(line.len())),
            Err(error) => return tell(Input::write_failed(vec![Fault::from(error)])),
        }
    }
}

fn read(mut pipe: impl Read, gate: &Gate, tell: impl Fn(Vec<u8>)) -> Option<Fault> {
    let mut chunk = vec![0; 64 << 10];
    loop {
        gate.pass();
        match pipe.read(&mut chunk) {
            Ok(0) => return None,
            Ok(len) => tell(chunk[..len].to_vec()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Some(error.into()),
        }
    }
}

/// Sends a signal to this process alone. A driver for real use signals the whole process group.
pub(crate) fn signal(name: &str, pid: u32) {
    let _ = Command::new("kill").args([name, &pid.to_string()]).status();
}

/// Random bytes of the system.
pub(crate) fn secret() -> [u8; 16] {
    let mut secret = [0; 16];
    getrandom::fill(&mut secret).expect("the system has a random source");
    secret
}
