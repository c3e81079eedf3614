//! What the program needs of the operating system, with the same functions for Unix and for Windows. Knows no command.

#[cfg(unix)]
#[path = "unix.rs"]
mod current;
#[cfg(windows)]
#[path = "windows.rs"]
mod current;

pub(crate) use current::*;
