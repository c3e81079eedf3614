//! Processes and their streams on Windows: `tree` spawns and ends processes, `own` takes over the standard streams of this process. The transports
//! are those of `threads`.

pub mod own;
pub mod tree;

pub(crate) use crate::threads::{Children, Streams};

/// Converts a `BOOL` of the Windows API to a `Result`.
fn done(went_well: windows_sys::core::BOOL) -> std::io::Result<()> {
    match went_well {
        0 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}
