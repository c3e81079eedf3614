//! Runs the driver kit with every adapter.

use std::process::ExitCode;

use driver_tests::ADAPTERS;

fn main() -> ExitCode {
    everlink_driver_tests::main(ADAPTERS)
}
