//! A process and all that it starts, owned from the first moment: started, ended as one. Decides nothing.
//!
//! The process is in a job before it runs, and so is all that it starts. Nobody leaves a job, and with the last handle to it, which is
//! this process's alone, all of it is killed: so nobody outlives this process either, however that ends.
#![allow(
    unsafe_code,
    reason = "the system has no safe way to have a job, or to start a process in it"
)]

use std::io;
use std::mem::size_of_val;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::os::windows::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::ptr::null;

use everlink::{ExitStatus, Fault};
use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectExtendedLimitInformation,
    SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NO_WINDOW, CREATE_SUSPENDED, OpenThread, ResumeThread, THREAD_SUSPEND_RESUME,
};

use super::done;
pub use crate::pipes::Pipes;

/// How to start a process of which a [`Tree`] grows, again and again.
#[derive(Debug)]
pub struct Seed(Command);

impl Seed {
    /// A tree of this command. Its standard streams and its creation flags are set here: it has no window.
    #[must_use]
    pub fn new(mut command: Command) -> Seed {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        command.creation_flags(CREATE_NO_WINDOW | CREATE_SUSPENDED);
        Seed(command)
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// When it cannot be started; the fault says which program, and why.
    pub(crate) fn grow_now(&mut self) -> Result<(Tree, Pipes), Fault> {
        let grown = job().and_then(|job| Tree::of(job, self.0.spawn()?));
        grown.map_err(|error| {
            let program = self.0.get_program().to_string_lossy();
            let detail = format!("`{program}` cannot be started: {error}");
            Fault::with_detail(Fault::from(&error).kind(), detail)
        })
    }
}

/// A process and all that it started. Dropped, all of it is killed.
#[derive(Debug)]
pub struct Tree {
    job: OwnedHandle,
    /// Nothing once somebody waits for it.
    child: Option<Child>,
}

impl Tree {
    /// Of a process that has not begun to run.
    fn of(job: OwnedHandle, mut child: Child) -> io::Result<(Tree, Pipes)> {
        // SAFETY: both handles are owned, so they are open.
        let joined =
            done(unsafe { AssignProcessToJobObject(job.as_raw_handle(), child.as_raw_handle()) });
        if let Err(error) = joined.and_then(|()| resume(child.id())) {
            // In the job or not.
            let _ = child.kill();
            return Err(error);
        }
        let pipes = Pipes::of(&mut child);
        let child = Some(child);
        Ok((Tree { job, child }, pipes))
    }

    /// Does nothing: what a process is asked to end with, here, comes to all that share its console, or to windows, and it has neither.
    pub fn terminate(&self) {}

    /// Nothing: what it does is not looked at here.
    #[must_use]
    pub fn activity(&self) -> Option<everlink::Input<'static>> {
        None
    }

    /// Ends all of it.
    pub fn kill(&self) {
        // SAFETY: the handle is owned, so it is open.
        // Where nobody is left to be ended, that is as well.
        let _ = unsafe { TerminateJobObject(self.job.as_raw_handle(), KILLED) };
    }

    /// What blocks until the process has ended, and says how: for a thread of its own, once.
    pub(crate) fn obituary(&mut self) -> impl FnOnce() -> ExitStatus + Send + use<> {
        let child = self.child.take();
        move || {
            let status = child.and_then(|mut child| child.wait().ok());
            status.map_or(ExitStatus::Unknown, ExitStatus::from)
        }
    }
}

/// The exit status of what was killed: as good as any that is not zero.
const KILLED: u32 = 1;

/// A job that all of is killed when its last handle is closed.
fn job() -> io::Result<OwnedHandle> {
    // SAFETY: neither attributes nor a name need to be there.
    let job = owned(unsafe { CreateJobObjectW(null(), null()) })?;
    let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    // SAFETY: the handle is open, and the limits are of the kind and the size that is said.
    done(unsafe {
        SetInformationJobObject(
            job.as_raw_handle(),
            JobObjectExtendedLimitInformation,
            (&raw const limits).cast(),
            size_of_u32(&limits),
        )
    })?;
    Ok(job)
}

/// Has a process run that was started without. Its thread is not told by `std`, and so it is looked for among all; where somebody else has
/// put one beside it, that one runs already, and is not harmed.
fn resume(process: u32) -> io::Result<()> {
    // SAFETY: it takes no pointer.
    let threads = owned(unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0) })?;
    let mut entry = THREADENTRY32::default();
    entry.dwSize = size_of_u32(&entry);
    let mut is_found = false;
    // SAFETY: here and below, the handle is open, and the entry says how large it is.
    let mut is_there = unsafe { Thread32First(threads.as_raw_handle(), &mut entry) };
    while is_there != 0 {
        if entry.th32OwnerProcessID == process {
            resume_thread(entry.th32ThreadID)?;
            is_found = true;
        }
        is_there = unsafe { Thread32Next(threads.as_raw_handle(), &mut entry) };
    }
    is_found.then_some(()).ok_or(io::ErrorKind::Other.into())
}

fn resume_thread(thread: u32) -> io::Result<()> {
    // SAFETY: it takes no pointer.
    let thread = owned(unsafe { OpenThread(THREAD_SUSPEND_RESUME, 0, thread) })?;
    // SAFETY: the handle is open.
    match unsafe { ResumeThread(thread.as_raw_handle()) } {
        u32::MAX => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn owned(handle: HANDLE) -> io::Result<OwnedHandle> {
    if handle.is_null() || handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just made it, for us alone.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn size_of_u32<T>(value: &T) -> u32 {
    u32::try_from(size_of_val(value)).expect("it is small")
}
