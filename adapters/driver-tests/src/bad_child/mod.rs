//! A server on its standard streams that misbehaves as its options say. It is this program, started as a helper.
//!
//! It does not use everlink, so it cannot share a mistake with it. `options` has its behaviour as a process, `tools` its tools, and
//! `writer` its output. It speaks both eras, unless `era=legacy` or `era=modern` is among its options.

mod options;
mod tools;
mod writer;

use std::io::{BufRead, stdin};
use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use options::Options;
use writer::MessageWriter;

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
const UNKNOWN_METHOD: i64 = -32601;

/// Runs the server with these options until the end of its input.
pub(crate) fn run(options: &[String]) {
    let options = Options::new(options);
    options.apply_at_start();
    let writer = Arc::new(MessageWriter::new(&options));
    let mut input = stdin().lock();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        if let Ok(message) = serde_json::from_slice::<Value>(&line) {
            if handle_message(&options, &writer, message) == Next::StopReading {
                sleep_then_exit();
            }
        }
        line.clear();
    }
    if options.has("ignore-eof") {
        sleep_then_exit();
    }
}

/// Whether the server reads on after a message.
#[derive(PartialEq, Eq)]
enum Next {
    StopReading,
    KeepReading,
}

fn handle_message(options: &Options, writer: &Arc<MessageWriter>, message: Value) -> Next {
    let id = message["id"].clone();
    let Some(method) = message["method"].as_str() else {
        writer.deliver_answer(&id, &message);
        return Next::KeepReading;
    };
    if id.is_null() {
        return Next::KeepReading;
    }
    let era = options.value("era").unwrap_or("both");
    match method {
        "initialize" if era != "modern" => writer.reply(
            &id,
            json!({
                "protocolVersion": LEGACY,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bad-child", "version": "1.0"},
            }),
        ),
        "server/discover" if era != "legacy" => writer.reply(
            &id,
            json!({
                "supportedVersions": [MODERN],
                "capabilities": {"tools": {}},
                "ttlMs": 0,
                "cacheScope": "public",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "bad-child", "version": "1.0"}},
            }),
        ),
        "ping" => writer.reply(&id, json!({})),
        "tools/list" => writer.reply(
            &id,
            json!({"tools": tools::listed(), "ttlMs": 0, "cacheScope": "public"}),
        ),
        "tools/call" => return start_call(options, writer, id, message),
        unknown => writer.refuse(&id, UNKNOWN_METHOD, &format!("unknown method: {unknown}")),
    }
    Next::KeepReading
}

/// Runs a call on its own thread, so that a slow call does not delay others. The tools that stop the process or its reading run on this thread.
fn start_call(options: &Options, writer: &Arc<MessageWriter>, id: Value, message: Value) -> Next {
    let call = tools::Call::new(id, &message["params"]);
    options.write_log(&call.arguments["tag"]);
    match &*call.name {
        "stop_reading" | "close_stdin" => {
            call.run(writer);
            Next::StopReading
        }
        // The kernel delivers the signal to the reading thread first. Another thread could run on for a moment.
        "stop" => {
            call.run(writer);
            Next::KeepReading
        }
        _ => {
            let writer = Arc::clone(writer);
            thread::spawn(move || call.run(&writer));
            Next::KeepReading
        }
    }
}

/// Sleeps for 10 minutes, then exits, so that an aborted test leaves no process behind for long.
fn sleep_then_exit() -> ! {
    thread::sleep(Duration::from_secs(600));
    exit(0);
}
