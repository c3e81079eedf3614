//! Runs many seeds on all cores and prints the counts. `cargo xtask fleet-sim` runs this program.

use std::process::ExitCode;

fn main() -> ExitCode {
    everlink_simulation::main::<everlink_fleet_sim::FleetSimulation>()
}
