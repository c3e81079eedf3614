//! A proxy between a client and its server, both on pipes: what it adds to an echo of 100 bytes.
//!
//! `everlink` is the program `everlink guard`, with the client and the server of everlink on tokio around it, and both sides of it in the
//! same era; `raw` is a process that copies bytes both ways, with the blocking client and server around it. The same client talks
//! to the same server directly and through the proxy by turns, in one sample. On two cores the client has one, the server and
//! the proxy have the other.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::{CORES, Effort, IN_FLIGHT, SHORT, in_eras, percentile};
use crate::echo;
use crate::machine::{Place, this_program};
use crate::peers::{Client, everlink, raw};
use crate::report::{Era, Sample, Task, rounds};

/// How often they take turns.
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
    let place = Place::of(&task.case);
    let [mut direct, mut through] = if task.who == "raw" {
        let mut relay = this_program();
        relay.arg("relay");
        [place.server("raw"), place.there(relay)]
            .map(|command| Box::new(raw::Pipe::new(command)) as Box<dyn Client>)
    } else {
        let server = place.server("everlink-tokio");
        let guarded = place.there(guard(&server, task.era));
        [server, guarded].map(|command| {
            let config = everlink::child(task.era);
            Box::new(everlink::tokio_stdio(command, config)) as Box<dyn Client>
        })
    };
    let text = echo::text(SHORT);
    let (mut direct_times, mut through_times) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let taken = [&mut direct, &mut through].map(|it| it.one_by_one(task.size / TURNS, &text));
        // The first turn warms up.
        if turn > 0 {
            let [direct, through] = taken;
            direct_times.extend(direct);
            through_times.extend(through);
        }
    }
    let [direct, alone] = [direct_times, through_times].map(|times| percentile(&times, 50));

    let together = 3 * task.size;
    through.together(together / 10, IN_FLIGHT, &text);
    let start = Instant::now();
    through.together(together, IN_FLIGHT, &text);
    let per_second = together as f64 / start.elapsed().as_secs_f64();
    Sample::default()
        .with("p50 direct", direct)
        .with("p50 through", alone)
        .with("added", alone - direct)
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

/// Builds the program `everlink` as this one was built.
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

/// Beside this program.
fn target() -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    this.with_file_name("everlink-cli")
}
