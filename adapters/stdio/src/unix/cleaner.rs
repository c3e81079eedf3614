//! Kills servers whose owner was killed before it could end them. Makes no decisions: the owner reports its servers.
//!
//! A process that is killed with `SIGKILL` cannot end its children. On Linux each server process dies with its owner, but the processes that the
//! server started do not. So the owner reports every server that it starts and ends to a second process, the cleaner, through a pipe. The end of the
//! pipe shows the cleaner that the owner is gone, and the cleaner kills what is left. The application chooses the cleaner: usually the same program
//! again.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal};

use super::session;

/// How long the cleaner waits for killed processes to end before it gives up. A process in an uninterruptible wait may never end.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which the cleaner checks what is left.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The pipe to the cleaner. `None` if the application has no cleaner.
static REPORTS: Mutex<Option<File>> = Mutex::new(None);

/// Reports every server process from now on. Returns the read end of the pipe, for [`clean_up`] in the cleaner; no other process may hold it.
///
/// The write end belongs to this process alone: child processes do not inherit it.
///
/// # Errors
///
/// When the system has no descriptor left.
pub fn report() -> io::Result<OwnedFd> {
    let (reader, writer) = pipe()?;
    // A cleaner that does not read must not block a driver.
    fcntl_setfl(&writer, OFlags::NONBLOCK)?;
    *lock() = Some(writer.into());
    Ok(reader)
}

/// Creates a pipe that child processes do not inherit.
#[cfg(not(target_vendor = "apple"))]
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pipe::{PipeFlags, pipe_with};

    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

/// Creates a socket pair that child processes do not inherit. Apple's systems have no call that creates such a pipe.
#[cfg(target_vendor = "apple")]
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = std::os::unix::net::UnixStream::pair()?;
    Ok((reader.into(), writer.into()))
}

/// Closes the pipe: the cleaner kills the servers that were started and not ended, and ends.
pub fn stop_reporting() {
    *lock() = None;
}

/// Reads reports until the end of the pipe. Then kills every server that was started and not ended, with its whole session.
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
    for _ in 0..KILL_TIMEOUT.as_millis() / CHECK_INTERVAL.as_millis() {
        // The id of an empty session may be reused, so only sessions with members are signalled. Where members cannot be listed, one signal must do.
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
        thread::sleep(CHECK_INTERVAL);
    }
    Ok(())
}

/// Reads the next record. Returns false at the end.
fn read_record(reports: &mut impl Read, record: &mut [u8; 4]) -> io::Result<bool> {
    match reports.read_exact(record) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reports that this server runs.
pub(super) fn started(server: Pid) {
    write_record(server.as_raw_nonzero().get());
}

/// Reports that this server and its session were killed. It is reaped next, and then its pid may be reused.
pub(super) fn ended(server: Pid) {
    write_record(-server.as_raw_nonzero().get());
}

/// Writes one record; four bytes to a pipe are never split. An error is ignored: nobody reads then.
fn write_record(number: i32) {
    if let Some(pipe) = lock().as_mut() {
        let _ = pipe.write(&number.to_ne_bytes());
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<File>> {
    REPORTS.lock().unwrap_or_else(PoisonError::into_inner)
}
