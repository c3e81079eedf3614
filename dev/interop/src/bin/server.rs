//! The program `interop-server`: see `interop::server`.

fn main() -> std::process::ExitCode {
    #[cfg(unix)]
    return interop::server::main();
    #[cfg(not(unix))]
    std::process::ExitCode::FAILURE
}
