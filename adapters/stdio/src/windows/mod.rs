//! Processes and their streams as Windows has them: `tree` starts and ends processes, `own` keeps the streams of this one. The hands are
//! threads.

pub mod own;
pub mod tree;

pub(crate) use crate::threads::{Children, Streams};

/// What the system says of a call that returns whether it went well.
fn done(went_well: windows_sys::core::BOOL) -> std::io::Result<()> {
    match went_well {
        0 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}
