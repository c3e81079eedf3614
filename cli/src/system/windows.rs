//! The functions for Windows.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, StderrLock, StdinLock};
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsHandle;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, process, thread};

use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
};

use crate::output::STDOUT_FAILED;

/// The keys that end the input at a console.
pub(crate) const END_OF_INPUT_KEY: &str = "Ctrl-Z and Enter";

/// The exit code of a process that another process has ended, for example with the Task Manager.
const KILLED_EXIT_CODE: i32 = 1;

/// The events that ask the program to end: Ctrl-C, Ctrl-Break, the end of its console, and the shutdown of the system. An event that arrives while no
/// task waits for it is not lost.
pub(crate) struct ShutdownSignals {
    interrupt: CtrlC,
    terminate: CtrlBreak,
    console_end: CtrlClose,
    system_end: CtrlShutdown,
}

impl ShutdownSignals {
    /// Handles these events from now on. The first two no longer end the program by themselves. After the others, Windows kills it within seconds.
    pub(crate) fn listen() -> io::Result<ShutdownSignals> {
        Ok(ShutdownSignals {
            interrupt: ctrl_c()?,
            terminate: ctrl_break()?,
            console_end: ctrl_close()?,
            system_end: ctrl_shutdown()?,
        })
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.console_end.recv() => {}
            _ = self.system_end.recv() => {}
        }
    }
}

/// Waits until a write to standard output has failed. Windows does not report the end of a pipe to a process that only writes to it.
pub(crate) async fn stdout_closed() {
    STDOUT_FAILED.notified().await;
}

/// Fails: a write to a stream never "would block" on Windows.
pub(crate) fn wait_for_stderr(_: &StderrLock<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing: the function of Windows for this needs unsafe code. What was typed earlier is read as an answer.
pub(crate) fn discard_typed_input(_: &StdinLock<'_>) {}

/// Opens a file for writing. Opening never waits on Windows.
pub(crate) fn open_at_once(options: &OpenOptions, path: &Path) -> io::Result<Option<File>> {
    options.open(path).map(Some)
}

/// Makes this process the only one that writes the file which these options open. Others can read, rename and delete it.
pub(crate) fn for_sole_writer(options: &mut OpenOptions) -> &mut OpenOptions {
    const FILE_SHARE_READ: u32 = 1;
    const FILE_SHARE_DELETE: u32 = 4;
    options.share_mode(FILE_SHARE_READ | FILE_SHARE_DELETE)
}

/// Does nothing; [`for_sole_writer`] has locked the file.
pub(crate) fn lock(_: &File) -> io::Result<bool> {
    Ok(true)
}

/// Assumes that the path still leads to the file: nobody else could open it since it was locked.
pub(crate) fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

/// Whether the system refused to open a file because another process writes it.
pub(crate) fn is_locked(error: &io::Error) -> bool {
    const ERROR_SHARING_VIOLATION: i32 = 32;
    error.raw_os_error() == Some(ERROR_SHARING_VIOLATION)
}

/// Changes nothing: a new file inherits the permissions of its directory, and only the user can read the files in the own profile.
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Changes nothing; see [`private`].
pub(crate) fn make_private(_: &File) -> io::Result<()> {
    Ok(())
}

/// Checks nothing; see [`private`].
pub(crate) fn is_private(_: &File) -> io::Result<bool> {
    Ok(true)
}

/// Changes nothing; see [`private`].
pub(crate) fn copy_owner(_: &Metadata, _: &File) -> io::Result<()> {
    Ok(())
}

/// Creates a directory and its parents; see [`private`].
pub(crate) fn create_private_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Returns the user's directory for data of programs on this machine.
pub(crate) fn cache_directory() -> Option<PathBuf> {
    let path = env::var_os("LOCALAPPDATA").map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}

/// Splits `NAME=VALUE`. Neither part need be valid UTF-16.
pub(crate) fn split_assignment(variable: &OsStr) -> Option<(OsString, OsString)> {
    let units: Vec<u16> = variable.encode_wide().collect();
    let at = units.iter().position(|unit| *unit == u16::from(b'='));
    let at = at.filter(|at| *at > 0)?;
    Some((
        OsString::from_wide(&units[..at]),
        OsString::from_wide(&units[at + 1..]),
    ))
}

/// Blocks this thread for an hour. A process cannot stop itself on Windows.
pub(crate) fn stop_this_process() -> io::Result<()> {
    thread::sleep(Duration::from_secs(3600));
    Ok(())
}

/// Ends this process at once. A killed process has an ordinary exit code on Windows.
pub(crate) fn kill_this_process() -> io::Result<()> {
    process::exit(KILLED_EXIT_CODE)
}

/// Returns another handle of this process's standard output.
pub(crate) fn duplicate_stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_handle().try_clone_to_owned()?))
}
