//! The functions for Unix.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::future::pending;
use std::io::{self, StderrLock, StdinLock};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown,
};
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, OFlags, fcntl_getfl, fcntl_setfl, flock};
use rustix::io::Errno;
use rustix::process::{Signal as ProcessSignal, getpid, kill_process};
use rustix::termios::{QueueSelector, tcflush};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// The key that ends the input at a terminal.
pub(crate) const END_OF_INPUT_KEY: &str = "Ctrl-D";

/// The signals that ask the program to end: `SIGINT`, `SIGTERM` and `SIGHUP`. A signal that arrives while no task waits for it is not lost.
pub(crate) struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the program was started with `nohup`: it must outlive its terminal.
    hangup: Option<Signal>,
}

impl ShutdownSignals {
    /// Handles these signals from now on. They no longer end the program by themselves.
    pub(crate) fn listen() -> io::Result<ShutdownSignals> {
        Ok(ShutdownSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: match ignores_hangup() {
                true => None,
                false => Some(signal(SignalKind::hangup())?),
            },
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether the parent process set `SIGHUP` to be ignored. Only Linux shows this.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The lowest bit stands for signal 1, `SIGHUP`.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

/// Waits until standard output is closed at the other end. A command that rarely writes would otherwise notice it too late.
pub(crate) async fn stdout_closed() {
    let (sender, receiver) = oneshot::channel();
    let wait = move || {
        let stdout = io::stdout();
        let mut end = [PollFd::new(&stdout, PollFlags::empty())];
        let mut polled = poll(&mut end, None);
        while polled == Err(Errno::INTR) {
            polled = poll(&mut end, None);
        }
        if polled.is_ok() {
            let _ = sender.send(());
        }
    };
    // The thread ends with the program at the latest.
    let _ = thread::Builder::new()
        .name("stdout-closed".into())
        .spawn(wait);
    if receiver.await.is_err() {
        // Polling failed, or the thread could not start. Without it, the close cannot be detected.
        pending::<()>().await;
    }
}

/// Blocks until standard error can be written, after a write to it would have blocked. The host may have made it non-blocking.
pub(crate) fn wait_for_stderr(stderr: &StderrLock<'_>) -> io::Result<()> {
    let mut end = [PollFd::new(stderr, PollFlags::OUT)];
    let mut polled = poll(&mut end, None);
    while polled == Err(Errno::INTR) {
        polled = poll(&mut end, None);
    }
    Ok(polled.map(drop)?)
}

/// Discards what was typed at the terminal and is not read yet. Does nothing if standard input is no terminal.
pub(crate) fn discard_typed_input(stdin: &StdinLock<'_>) {
    // Fails without a terminal. A terminal gives one line per read, so the buffer of `stdin` has no further line.
    let _ = tcflush(stdin, QueueSelector::IFlush);
}

/// Opens a file for writing without waiting. Returns `None` if it is a named pipe that nobody reads: to open that waits for a reader.
pub(crate) fn open_at_once(options: &OpenOptions, path: &Path) -> io::Result<Option<File>> {
    let mut at_once = options.clone();
    at_once.custom_flags(OFlags::NONBLOCK.bits() as i32);
    match at_once.open(path) {
        Ok(file) => {
            // Later writes wait again.
            let flags = fcntl_getfl(&file)?;
            fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
            Ok(Some(file))
        }
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) && is_fifo(path) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Makes this process the only one that writes the file which these options open. Windows needs this before the file is opened, see [`lock`].
pub(crate) fn for_sole_writer(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Locks a regular file until it is closed. Returns whether no other process has locked it. The lock does not stop processes that do not ask for it.
pub(crate) fn lock(file: &File) -> io::Result<bool> {
    if !file.metadata()?.is_file() {
        return Ok(true);
    }
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        // Some network file systems have no locks.
        Ok(()) | Err(Errno::NOLCK | Errno::NOTSUP | Errno::NOSYS) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Whether this path still leads to the file that was opened there.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (opened, named) = (file.metadata()?, fs::metadata(path));
    match named {
        Ok(named) => Ok((opened.dev(), opened.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the system refused to open a file because another process writes it. Only Windows does.
pub(crate) const fn is_locked(_: &io::Error) -> bool {
    false
}

fn is_fifo(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Makes files that these options create readable only by the user.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// Makes an existing file readable only by the user. Other kinds of files, such as pipes, keep their permissions.
pub(crate) fn make_private(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => file.set_permissions(Permissions::from_mode(0o600)),
        false => Ok(()),
    }
}

/// Whether only the user can read this file.
pub(crate) fn is_private(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.permissions().mode() & 0o077 == 0)
}

/// Gives a file the owner and the group of another one, if they differ: root may change the file of another user.
pub(crate) fn copy_owner(from: &Metadata, to: &File) -> io::Result<()> {
    let own = to.metadata()?;
    match (own.uid(), own.gid()) == (from.uid(), from.gid()) {
        true => Ok(()),
        false => fchown(to, Some(from.uid()), Some(from.gid())),
    }
}

/// Creates a directory and its parents. Only the user can read them.
pub(crate) fn create_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Returns the user's cache directory, according to the XDG Base Directory Specification.
pub(crate) fn cache_directory() -> Option<PathBuf> {
    let absolute = |path: Option<OsString>| {
        let path = path.map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let xdg_directory = absolute(env::var_os("XDG_CACHE_HOME"));
    xdg_directory.or_else(|| Some(absolute(env::var_os("HOME"))?.join(".cache")))
}

/// Splits `NAME=VALUE`. Neither part need be valid UTF-8.
pub(crate) fn split_assignment(variable: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = variable.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=');
    let at = at.filter(|at| *at > 0)?;
    let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    Some((part(&bytes[..at]), part(&bytes[at + 1..])))
}

/// Stops this process until another process continues it.
pub(crate) fn stop_this_process() -> io::Result<()> {
    Ok(kill_process(getpid(), ProcessSignal::STOP)?)
}

/// Ends this process at once, without an exit code of its own.
pub(crate) fn kill_this_process() -> io::Result<()> {
    Ok(kill_process(getpid(), ProcessSignal::KILL)?)
}

/// Returns another handle of this process's standard output.
pub(crate) fn duplicate_stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}
