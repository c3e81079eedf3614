//! The program `interop-client`: see `interop::client`.

fn main() -> std::process::ExitCode {
    #[cfg(unix)]
    return interop::client::main();
    #[cfg(not(unix))]
    std::process::ExitCode::FAILURE
}
