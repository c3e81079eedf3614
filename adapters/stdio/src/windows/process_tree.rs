//! A process and all its descendants, owned from the start: spawned and ended together. Makes no decisions.
//!
//! The process is in a job object before it runs, and so are all its descendants. No process leaves a job. Closing its last handle, which only this
//! process has, kills the whole job. So no member outlives this process, however this process ends.
#![allow(
    unsafe_code,
    reason = "job objects are only available through the Windows API"
)]

use std::io::{self, ErrorKind};
use std::mem::size_of_val;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::os::windows::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::ptr::null;
use std::sync::Arc;
use std::thread;

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

use super::check;
use super::program_lookup::{Lookup, with_program};
pub use crate::pipes::Pipes;
use crate::starts::Starts;

/// A command that can be spawned repeatedly. Each spawn yields a [`ProcessTree`].
#[derive(Debug)]
pub struct Spawner(Arc<Starts<Command, (ProcessTree, Pipes)>>);

impl Spawner {
    /// Prepares this command. Sets its standard streams and its creation flags; it has no window.
    ///
    /// Each spawn looks the program up like a shell does. A name such as `npx` also means a script `npx.cmd` or `npx.bat` in a directory of `PATH`.
    #[must_use]
    pub fn new(mut command: Command) -> Spawner {
        prepare(&mut command);
        Spawner(Arc::new(Starts::new(command)))
    }

    /// Spawns the command on another thread, which calls `then` with the tree, or with a fault that names the program and the reason. A tree that
    /// nobody keeps is killed. `then` must not panic.
    ///
    /// A spawn waits for the earlier ones. While one does not return, as on a file system that does not respond, the later ones hold no thread.
    pub fn spawn(&self, then: impl FnOnce(Result<(ProcessTree, Pipes), Fault>) + Send + 'static) {
        self.spawn_if(|| true, then);
    }

    /// Spawns the command like [`spawn`](Spawner::spawn), if it is still wanted when its turn comes. If not, `then` gets a fault. `is_wanted` must not
    /// block, and once it returns false, it stays false.
    pub fn spawn_if(
        &self,
        is_wanted: impl Fn() -> bool + Send + 'static,
        then: impl FnOnce(Result<(ProcessTree, Pipes), Fault>) + Send + 'static,
    ) {
        if self.0.push(is_wanted, then) {
            let starts = Arc::clone(&self.0);
            let thread = thread::Builder::new().name("everlink-spawn".into());
            if let Err(error) = thread.spawn(move || starts.run(spawn_now)) {
                self.0.fail(&Fault::from(error));
            }
        }
    }
}

fn prepare(command: &mut Command) {
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command.creation_flags(CREATE_NO_WINDOW | CREATE_SUSPENDED);
}

fn spawn_now(command: &mut Command) -> Result<(ProcessTree, Pipes), Fault> {
    let lookup = Lookup::of(command);
    let spawned = match lookup.script() {
        Some(script) => {
            let mut script = with_program(command, &script);
            prepare(&mut script);
            spawn_in_job(&mut script)
        }
        None => spawn_in_job(command),
    };
    spawned.map_err(|error| {
        let program = command.get_program().to_string_lossy();
        let looked = match error.kind() {
            ErrorKind::NotFound => format!("; {}", lookup.describe()),
            _ => String::new(),
        };
        let detail = format!("`{program}` cannot be started: {error}{looked}");
        Fault::with_detail(Fault::from(&error).kind(), detail)
    })
}

fn spawn_in_job(command: &mut Command) -> io::Result<(ProcessTree, Pipes)> {
    job().and_then(|job| ProcessTree::of(job, command.spawn()?))
}

/// A process and all its descendants. Dropping it kills all of them.
#[derive(Debug)]
pub struct ProcessTree {
    job: OwnedHandle,
    pid: u32,
    /// `None` once a thread waits for it.
    child: Option<Child>,
}

impl ProcessTree {
    /// Puts a suspended process into the job and resumes it.
    fn of(job: OwnedHandle, mut child: Child) -> io::Result<(ProcessTree, Pipes)> {
        // SAFETY: both handles are owned, so they are open.
        let joined =
            check(unsafe { AssignProcessToJobObject(job.as_raw_handle(), child.as_raw_handle()) });
        if let Err(error) = joined.and_then(|()| resume(child.id())) {
            // Whether it is in the job or not.
            let _ = child.kill();
            return Err(error);
        }
        let pipes = Pipes::of(&mut child);
        let (pid, child) = (child.id(), Some(child));
        Ok((ProcessTree { job, pid, child }, pipes))
    }

    /// Returns the id of the process. Another process may get it after this one has ended.
    #[must_use]
    pub const fn pid(&self) -> Option<u32> {
        Some(self.pid)
    }

    /// Does nothing: on Windows, a request to end goes to all processes of a console or to windows, and this process has neither.
    pub fn terminate(&self) {}

    /// Returns `None`: activity is not measured on Windows.
    #[must_use]
    pub fn activity(&self) -> Option<everlink::Input<'static>> {
        None
    }

    /// Kills all of them.
    pub fn kill(&self) {
        // SAFETY: the handle is owned, so it is open. An error means that no process is left.
        let _ = unsafe { TerminateJobObject(self.job.as_raw_handle(), KILLED_EXIT_CODE) };
    }

    /// Returns a function that blocks until the process has ended, and returns its exit status. It needs its own thread and works only once.
    pub(crate) fn exit_waiter(&mut self) -> impl FnOnce() -> ExitStatus + Send + use<> {
        let child = self.child.take();
        move || {
            let status = child.and_then(|mut child| child.wait().ok());
            status.map_or(ExitStatus::Unknown, ExitStatus::from)
        }
    }
}

/// The exit status of killed processes; any value but zero would do.
const KILLED_EXIT_CODE: u32 = 1;

/// Creates a job whose processes are killed when its last handle is closed.
fn job() -> io::Result<OwnedHandle> {
    // SAFETY: attributes and name may be null.
    let job = owned(unsafe { CreateJobObjectW(null(), null()) })?;
    let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    // SAFETY: the handle is open, and the limits have the type and the size that are passed.
    check(unsafe {
        SetInformationJobObject(
            job.as_raw_handle(),
            JobObjectExtendedLimitInformation,
            (&raw const limits).cast(),
            size_of_u32(&limits),
        )
    })?;
    Ok(job)
}

/// Resumes a process that was spawned suspended. `std` does not return its thread, so this looks for it among all threads. A thread that other
/// software has injected already runs and is not affected.
fn resume(process: u32) -> io::Result<()> {
    // SAFETY: the call takes no pointer.
    let threads = owned(unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0) })?;
    let mut entry = THREADENTRY32::default();
    entry.dwSize = size_of_u32(&entry);
    let mut is_found = false;
    // SAFETY: here and below, the handle is open, and the entry holds its own size.
    let mut has_entry = unsafe { Thread32First(threads.as_raw_handle(), &mut entry) };
    while has_entry != 0 {
        if entry.th32OwnerProcessID == process {
            resume_thread(entry.th32ThreadID)?;
            is_found = true;
        }
        has_entry = unsafe { Thread32Next(threads.as_raw_handle(), &mut entry) };
    }
    is_found.then_some(()).ok_or(io::ErrorKind::Other.into())
}

fn resume_thread(thread: u32) -> io::Result<()> {
    // SAFETY: the call takes no pointer.
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
    // SAFETY: the system has just created the handle, for us alone.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn size_of_u32<T>(value: &T) -> u32 {
    u32::try_from(size_of_val(value)).expect("it is small")
}
