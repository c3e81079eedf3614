//! A client that meets a server of somebody else, step by step:
//!
//! ```text
//! interop-client SERVER MANNER STEP[,STEP]... [--url URL] -- COMMAND [ARGUMENT]...
//! ```
//!
//! SERVER says whose tools are there: `ours` (a script of ours on an SDK), `everything`, `files=DIRECTORY` or `memory`. MANNER is which era to
//! speak: `legacy`, or `automatic`, or `patient`, which is the same with so much time for the probe that no load of the machine decides. Without a
//! URL the command speaks on its standard streams; with one it is started here, too, and found there.
//!
//! Each step is told by a line of JSON. It owns the order; `peer` is how the server is reached and killed, `repertoire` what is called there,
//! `ear` what is heard of the link, `tap` what the server says, `steps` what must come of it.

mod ear;
mod peer;
mod repertoire;
mod steps;
mod tap;

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use everlink::{Config, Dialect};
use serde_json::json;
use tokio::time::timeout;

use peer::Peer;
use repertoire::Repertoire;
use steps::Meeting;

type Failure = Box<dyn Error + Send + Sync>;

/// Nothing here should take as long as that. Where it does, something hangs.
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

/// Whether all steps went well.
async fn run(mut words: impl Iterator<Item = String>) -> Result<bool, Failure> {
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    let (server, manner, steps) = (next("SERVER")?, next("MANNER")?, next("STEPS")?);
    let repertoire = Repertoire::of(&server)?;
    let url = match next("COMMAND")?.as_str() {
        "--url" => {
            let url = next("URL")?;
            next("--")?;
            Some(url)
        }
        _ => None,
    };
    let peer = Peer::start(url, words.collect()).await?;
    let mut meeting = Meeting::begin(peer, repertoire, |config| shape(config, &manner))?;
    let mut is_well = true;
    for step in steps.split(',') {
        let outcome = timeout(DEADLINE, meeting.step(step)).await;
        let outcome = outcome.unwrap_or_else(|_| Err("it hangs".into()));
        let (ok, note) = match outcome {
            Ok(note) => (true, note),
            Err(why) => (false, why.to_string()),
        };
        is_well &= ok;
        let after = meeting.ready_after().filter(|_| step == "handshake");
        let version = meeting.version();
        let line = json!({"step": step, "ok": ok, "note": note, "ready_after_ms": after, "version": version});
        println!("{line}");
    }
    timeout(DEADLINE, meeting.end()).await?;
    Ok(is_well)
}

/// Makes a link behave in this manner.
fn shape(config: &mut Config, manner: &str) {
    config.dialect = match manner {
        "legacy" => Dialect::Legacy,
        _ => Dialect::Automatic,
    };
    if manner == "patient" {
        config.policy.probe_timeout = DEADLINE;
        if let Some(http) = &mut config.http {
            http.probe_timeout = DEADLINE;
        }
    }
}
