//! Starts processes, and reads and writes their pipes. A thread for each pipe reports what happens.

#![allow(dead_code, reason = "each example uses another part")]

use std::io::{ErrorKind, Read, Result, Write, stdin, stdout};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::spawn;

use everlink::{Epoch, ExitStatus, Fault, Input};

/// Starts the child, with a thread for each of its pipes, and one that waits for its exit.
pub(crate) fn open<N: From<(Epoch, Input<'static>)> + Send + 'static>(
    command: &[String],
    epoch: Epoch,
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
    spawn(move || {
        let fault = read(stdout, |bytes| reader(Input::bytes(bytes)));
        reader(Input::end(Vec::from_iter(fault)));
    });
    spawn(move || read(stderr, |bytes| listener(Input::stderr(bytes))));
    spawn(move || {
        let status = child.wait().map_or(ExitStatus::Unknown, ExitStatus::from);
        reaper(Input::exited(status));
    });
    Ok((to_stdin, pid))
}

/// Reads the standard input of this process.
pub(crate) fn listen(tell: impl Fn(Input<'static>) + Send + 'static) {
    spawn(move || {
        let fault = read(stdin(), |bytes| tell(Input::bytes(bytes)));
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

fn read(mut pipe: impl Read, tell: impl Fn(Vec<u8>)) -> Option<Fault> {
    let mut chunk = vec![0; 64 << 10];
    loop {
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
