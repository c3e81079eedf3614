//! Processes and their streams on Windows: `process_tree` spawns and ends processes, `program_lookup` finds their files, and `standard_streams` takes
//! over the standard streams of this process. The transports are those of `threads`.

pub mod process_tree;
mod program_lookup;
pub mod standard_streams;

/// Converts a `BOOL` of the Windows API to a `Result`.
fn check(result: windows_sys::core::BOOL) -> std::io::Result<()> {
    match result {
        0 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}
