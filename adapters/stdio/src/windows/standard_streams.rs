//! The standard streams of this process, kept from all other code in it. Does not know their content.
#![allow(
    unsafe_code,
    reason = "the standard streams can only be set through the Windows API"
)]

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, IntoRawHandle, OwnedHandle};

use windows_sys::Win32::Foundation::{HANDLE_FLAG_INHERIT, SetHandleInformation};
use windows_sys::Win32::System::Console::{
    STD_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, SetStdHandle,
};

use super::check;
use crate::claim::Claim;

/// A standard stream of this process.
#[derive(Debug)]
pub struct OwnedStream(File);

/// Takes over standard input and output. From here on, other code that reads standard input finds it empty. Other code that prints to standard output
/// prints to standard error. Child processes inherit neither.
///
/// That holds for Rust, and for all code that asks the system for its streams. The C library asks once, when the process starts: C code that prints
/// to standard output still writes to the client.
///
/// # Errors
///
/// When there are no standard streams, they are already taken, or the system has no handle left.
pub fn take() -> io::Result<(OwnedStream, OwnedStream)> {
    take_with(|input, output| Ok((input, output)))
}

/// Takes the streams over like [`take`], once this function has prepared them. If it fails, the process keeps its streams, and can try again.
pub(crate) fn take_with<T>(
    prepare: impl FnOnce(OwnedStream, OwnedStream) -> io::Result<T>,
) -> io::Result<T> {
    static STREAMS: Claim = Claim::new();
    STREAMS.take(|| {
        let input = take_over(io::stdin().as_handle())?;
        let output = take_over(io::stdout().as_handle())?;
        let null = File::open("NUL")?;
        let stderr = io::stderr().as_handle().try_clone_to_owned()?;
        let prepared = prepare(input, output)?;
        replace(STD_INPUT_HANDLE, null.into())?;
        replace(STD_OUTPUT_HANDLE, stderr)?;
        Ok(prepared)
    })
}

impl Read for OwnedStream {
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        self.0.read(chunk)
    }
}

impl Write for OwnedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn take_over(stream: BorrowedHandle<'_>) -> io::Result<OwnedStream> {
    if stream.as_raw_handle().is_null() {
        return Err(ErrorKind::NotFound.into());
    }
    let owned = stream.try_clone_to_owned()?;
    // SAFETY: the handle is borrowed, so it is open.
    check(unsafe { SetHandleInformation(stream.as_raw_handle(), HANDLE_FLAG_INHERIT, 0) })?;
    Ok(OwnedStream(owned.into()))
}

/// Makes the handle a standard stream of the process, which never closes it.
fn replace(stream: STD_HANDLE, handle: OwnedHandle) -> io::Result<()> {
    // SAFETY: nobody closes the handle from here on.
    check(unsafe { SetStdHandle(stream, handle.into_raw_handle()) })
}
