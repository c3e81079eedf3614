//! Runs the driver kit with the driver on smol. An author of another driver can start from this file.

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    everlink_driver_tests::main(&[&on_linux::Smol])
}

/// The kit works on Linux only.
#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
mod on_linux {
    use std::time::Duration;

    use everlink_driver_tests::{Connect, Driver};

    pub(crate) struct Smol;

    impl Driver for Smol {
        fn name(&self) -> &str {
            "smol"
        }

        fn run(&self, program: &mut dyn FnMut(&Connect<'_>)) {
            // The executor and the reactor of smol live as long as the process. The first timer and the first task start them.
            smol::block_on(async {
                smol::Timer::after(Duration::ZERO).await;
                smol::spawn(async {}).await;
            });
            program(&|command, config| Ok(smol_driver::connect(command, config)));
        }
    }
}
