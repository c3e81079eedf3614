//! A server on its standard streams with bad manners, for links to be tried with: `rascal [MANNER]...`
//!
//! It is written without everlink, so that it is a peer and no accomplice. `manners` is how it misbehaves as a process, `tools` what it can
//! be asked for, `voice` how it speaks. Both eras are spoken, unless `era=legacy` or `era=modern` is among its manners.

mod manners;
mod tools;
mod voice;

use std::io::{BufRead, stdin};
use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use manners::Manners;
use voice::Voice;

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
const UNKNOWN_METHOD: i64 = -32601;

fn main() {
    let manners = Manners::of_arguments();
    manners.show_at_start();
    let voice = Arc::new(Voice::new(&manners));
    let mut input = stdin().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        if let Ok(message) = serde_json::from_slice::<Value>(&line) {
            if hear(&manners, &voice, message) == Goes::Deaf {
                linger();
            }
        }
        line.clear();
    }
    if manners.has("ignore-eof") {
        linger();
    }
}

/// Whether it goes on reading.
#[derive(PartialEq, Eq)]
enum Goes {
    Deaf,
    On,
}

fn hear(manners: &Manners, voice: &Arc<Voice>, message: Value) -> Goes {
    let id = message["id"].clone();
    let Some(method) = message["method"].as_str() else {
        voice.heard_answer(&id, &message);
        return Goes::On;
    };
    if id.is_null() {
        return Goes::On;
    }
    let era = manners.value("era").unwrap_or("both");
    match method {
        "initialize" if era != "modern" => voice.reply(
            &id,
            json!({
                "protocolVersion": LEGACY,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "rascal", "version": "1.0"},
            }),
        ),
        "server/discover" if era != "legacy" => voice.reply(
            &id,
            json!({
                "supportedVersions": [MODERN],
                "capabilities": {"tools": {}},
                "ttlMs": 0,
                "cacheScope": "public",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "rascal", "version": "1.0"}},
            }),
        ),
        "ping" => voice.reply(&id, json!({})),
        "tools/list" => voice.reply(
            &id,
            json!({"tools": tools::listed(), "ttlMs": 0, "cacheScope": "public"}),
        ),
        "tools/call" => return begin(manners, voice, id, message),
        unknown => voice.refuse(&id, UNKNOWN_METHOD, &format!("what is {unknown}?")),
    }
    Goes::On
}

/// Each call has a thread of its own, so that one that takes long holds up no other.
fn begin(manners: &Manners, voice: &Arc<Voice>, id: Value, message: Value) -> Goes {
    let call = tools::Call::new(id, &message["params"]);
    manners.write_into_diary(&call.arguments["tag"]);
    match &*call.name {
        "deafen" | "hang_up" => {
            call.run(voice);
            Goes::Deaf
        }
        // A signal to the process comes to the thread that reads first of all: another one could go on for a moment.
        "stop" => {
            call.run(voice);
            Goes::On
        }
        _ => {
            let voice = Arc::clone(voice);
            thread::spawn(move || call.run(&voice));
            Goes::On
        }
    }
}

/// Is there and does nothing: as good as for ever, and no burden to a machine on which an ordeal was cut short.
fn linger() -> ! {
    thread::sleep(Duration::from_secs(600));
    exit(0);
}
