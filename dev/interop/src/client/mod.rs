//! The client that runs a list of steps with a server of another project:
//!
//! ```text
//! interop-client SERVER MODE STEP[,STEP]... [--url URL] -- COMMAND [ARGUMENT]...
//! ```
//!
//! SERVER names the set of tools: `ours` (a script of ours on an SDK), `everything`, `files=DIRECTORY` or `memory`. MODE is the era:
//! `legacy`, `automatic`, or `patient`, which is `automatic` with a probe timeout of 30 s, so that a busy machine does not decide. Without
//! a URL, the command speaks on its standard streams. With a URL, this program spawns the command and connects to the URL.
//!
//! It prints one line of JSON for each step. `peer` starts and kills the server, `tools` lists what to call, `events` waits for events,
//! `recording_proxy` records the server's output, and `steps` has the checks.

mod events;
mod peer;
mod recording_proxy;
mod steps;
mod tools;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use everlink::{Config, Dialect};
use serde_json::json;
use tokio::time::timeout;

use peer::Peer;
use steps::StepRunner;
use tools::Tools;

type Failure = Box<dyn Error + Send + Sync>;

/// The limit for one step. A step that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new();
    let outcome = runtime
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(run(env::args().skip(1))));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("interop-client: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs all steps. Returns whether all of them passed.
async fn run(mut arguments: impl Iterator<Item = String>) -> Result<bool, Failure> {
    let mut next = |name: &str| arguments.next().ok_or_else(|| format!("{name} is missing"));
    let (server, mode, steps) = (next("SERVER")?, next("MODE")?, next("STEPS")?);
    let tools = Tools::of(&server)?;
    let url = match next("COMMAND")?.as_str() {
        "--url" => {
            let url = next("URL")?;
            next("--")?;
            Some(url)
        }
        _ => None,
    };
    let peer = Peer::start(url, arguments.collect()).await?;
    let mut runner = StepRunner::begin(peer, tools, |config| apply_mode(config, &mode))?;
    let mut all_passed = true;
    for step in steps.split(',') {
        let outcome = timeout(DEADLINE, runner.step(step)).await;
        let outcome = outcome.unwrap_or_else(|_| Err("it hangs".into()));
        let (ok, note) = match outcome {
            Ok(note) => (true, note),
            Err(why) => (false, why.to_string()),
        };
        all_passed &= ok;
        let after = runner.ready_after().filter(|_| step == "handshake");
        let version = runner.version();
        let line = json!({"step": step, "ok": ok, "note": note, "ready_after_ms": after, "version": version});
        println!("{line}");
    }
    timeout(DEADLINE, runner.end()).await?;
    Ok(all_passed)
}

/// Applies the mode to the config.
fn apply_mode(config: &mut Config, mode: &str) {
    config.dialect = match mode {
        "legacy" => Dialect::Legacy,
        _ => Dialect::Automatic,
    };
    if mode == "patient" {
        config.policy.probe_timeout = DEADLINE;
        if let Some(http) = config.binding.http_mut() {
            http.probe_timeout = DEADLINE;
        }
    }
}
