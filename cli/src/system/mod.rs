//! What the program needs of the operating system, with the same functions for Unix and for Windows. Does not depend on commands.

#[cfg(unix)]
#[path = "unix.rs"]
mod current;
#[cfg(windows)]
#[path = "windows.rs"]
mod current;

pub(crate) use current::*;
