//! Measures what a proxy between a client and its server adds to an echo of 100 bytes, all on pipes.
//!
//! `everlink` is the program `everlink guard` between the client and the server of everlink on tokio, with both sides in the same era.
//! `raw` is a process that copies bytes, between the blocking client and server. In one sample, the client calls the same server directly
//! and through the proxy by turns. With two cores, the client has one, and the server and the proxy share the other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::{CORES, Effort, IN_FLIGHT, SHORT, in_eras, percentile};
use crate::echo;
use crate::machine::{Placement, this_program};
use crate::peers::{Client, everlink, raw};
use crate::report::{Era, Sample, Task, rounds};

/// The number of turns.
const TURNS: usize = 10;

pub(crate) fn run(effort: Effort) {
    if let Err(error) = build() {
        return eprintln!("proxy: {error}");
    }
    for case in CORES {
        let tasks = in_eras("proxy", case, &["raw", "everlink"], effort.of(4_000));
        rounds(effort.rounds, &tasks);
    }
}

pub(crate) fn sample(task: &Task) -> Sample {
    let placement = Placement::of(&task.case);
    let [mut direct, mut through] = if task.who == "raw" {
        let mut relay = this_program();
        relay.arg("relay");
        [placement.server("raw"), placement.on_server_core(relay)]
            .map(|command| Box::new(raw::Pipe::new(command)) as Box<dyn Client>)
    } else {
        let server = placement.server("everlink-tokio");
        let guarded = placement.on_server_core(guard(&server, task.era));
        [server, guarded].map(|command| {
            let config = everlink::child(task.era);
            Box::new(everlink::tokio_stdio(command, config)) as Box<dyn Client>
        })
    };
    let text = echo::text(SHORT);
    let (mut direct_times, mut through_times) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let times_of_turn =
            [&mut direct, &mut through].map(|it| it.sequential(task.size / TURNS, &text));
        // The first turn is warm-up.
        if turn > 0 {
            let [direct, through] = times_of_turn;
            direct_times.extend(direct);
            through_times.extend(through);
        }
    }
    let [direct, through_p50] = [direct_times, through_times].map(|times| percentile(&times, 50));

    let concurrent = 3 * task.size;
    through.concurrent(concurrent / 10, IN_FLIGHT, &text);
    let start = Instant::now();
    through.concurrent(concurrent, IN_FLIGHT, &text);
    let per_second = concurrent as f64 / start.elapsed().as_secs_f64();
    Sample::default()
        .with("p50 direct", direct)
        .with("p50 through", through_p50)
        .with("added", through_p50 - direct)
        .with("throughput at 64", per_second)
}

fn guard(server: &Command, era: Era) -> Command {
    let mut guard = Command::new(program());
    let era = if era == Era::Legacy {
        "legacy"
    } else {
        "modern"
    };
    guard.args(["guard", "--era", era, "--"]);
    guard.arg(server.get_program()).args(server.get_args());
    guard
}

/// Builds the program `everlink` with the settings of this program.
fn build() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--release", "--package", "everlink-cli"]);
    cargo.args(["--config", "profile.release.codegen-units=1"]);
    cargo.args(["--config", "profile.release.lto='thin'"]);
    cargo.arg("--target-dir").arg(target()).current_dir(root);
    eprintln!("proxy: building everlink");
    match cargo.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("everlink cannot be built: {status}")),
        Err(error) => Err(format!("there is no cargo: {error}")),
    }
}

fn program() -> PathBuf {
    target().join("release/everlink")
}

/// A target directory beside this program.
fn target() -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    this.with_file_name("everlink-cli")
}
