//! Ends servers whose owner was killed before it could end them. Decides nothing: it is told which servers there are.
//!
//! A process that is killed with `SIGKILL` cannot end what it started. On Linux each server process dies with it, but not what that server started. So
//! the owner of the servers tells a second process, the cleaner, of every server that it starts and ends. The two share a pipe; its end tells the
//! cleaner that the owner is gone, and the cleaner kills what is left. Who the cleaner is, the program decides: usually the same program again.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal};

use super::session;

/// How long the cleaner waits for killed processes to be gone before it gives up on them. A process in an uninterruptible wait may take for ever.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two looks at what is left.
const PAUSE: Duration = Duration::from_millis(10);

/// Where servers are reported to. Nowhere, unless a program has a cleaner.
static REPORTS: Mutex<Option<File>> = Mutex::new(None);

/// Reports every server process from now on. Returns the end of the pipe that the cleaner must read with [`clean_up`]; nobody else may hold it.
///
/// The other end belongs to this process alone: no process that this one starts inherits it.
///
/// # Errors
///
/// When the system has no descriptor left.
pub fn report() -> io::Result<OwnedFd> {
    let (reads, writes) = pipe_with(PipeFlags::CLOEXEC)?;
    // A cleaner that does not read must not block a driver.
    fcntl_setfl(&writes, OFlags::NONBLOCK)?;
    *lock() = Some(writes.into());
    Ok(reads)
}

/// Closes the pipe: the cleaner ends, and kills what was started and not ended.
pub fn stop_reporting() {
    *lock() = None;
}

/// Reads reports to their end, then kills every server that was started and not ended, with its whole session.
///
/// # Errors
///
/// When the reports cannot be read.
pub fn clean_up(mut reports: impl Read) -> io::Result<()> {
    let mut servers: Vec<Pid> = Vec::new();
    let mut record = [0; 4];
    while read_record(&mut reports, &mut record)? {
        let number = i32::from_ne_bytes(record);
        match Pid::from_raw(number.saturating_abs()) {
            Some(server) if number > 0 => servers.push(server),
            Some(server) => servers.retain(|it| *it != server),
            None => {}
        }
    }
    for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
        // The number of a session that is empty may be another's by now. Where sessions cannot be looked at, one signal must do.
        servers.retain(|server| !session::CAN_BE_LISTED || !session::members(*server).is_empty());
        if servers.is_empty() {
            break;
        }
        for server in &servers {
            session::signal(*server, Signal::KILL);
        }
        if !session::CAN_BE_LISTED {
            break;
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Whether there is another record.
fn read_record(reports: &mut impl Read, record: &mut [u8; 4]) -> io::Result<bool> {
    match reports.read_exact(record) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// This server runs.
pub(super) fn started(server: Pid) {
    say(server.as_raw_nonzero().get());
}

/// This server was killed, with all of its session, and is about to be reaped: from then on its number may be another's.
pub(super) fn ended(server: Pid) {
    say(-server.as_raw_nonzero().get());
}

/// A write of four bytes to a pipe is never split. Where nobody reads, nobody is told.
fn say(number: i32) {
    if let Some(pipe) = lock().as_mut() {
        let _ = pipe.write(&number.to_ne_bytes());
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<File>> {
    REPORTS.lock().unwrap_or_else(PoisonError::into_inner)
}
