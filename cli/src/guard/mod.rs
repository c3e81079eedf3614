//! Implements `everlink guard`: a relay between a host and a server.
//!
//! `front` listens for hosts over HTTP, `memory` stores what the server offered, and `status` serves the state of the guard. `telling` logs events,
//! and `stderr` shows the server's standard error.

mod front;
mod memory;
mod status;
mod stderr;
pub(crate) mod telling;

use std::io::{IsTerminal, stdin};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use everlink::relay::Event;
use everlink_tokio::Events;
use everlink_tokio::stdio::Streams;

use crate::args::{Guard, Log, ServerStderr};
use crate::attend::attend_relay;
use crate::cleaner::Cleaner;
use crate::shown::{in_line, warn};
use crate::tap::Backlog;
use crate::tape::Role;
use crate::{Endings, Failure, usage};

use front::Door;
use memory::Memory;
use status::Window;
use stderr::{Screen, Style};
use telling::{Notice, Told};

/// A hint for a person who starts the guard at a terminal, where nothing happens.
const HINT: &str = "this waits for messages of an MCP host, and standard input is a terminal: put this command into the configuration of a host, or use --listen http://127.0.0.1:8080/mcp; ctrl-C ends it";

pub(crate) async fn run(args: Guard) -> Result<ExitCode, Failure> {
    let mut endings = Endings::listen()?;
    let cleaner = Cleaner::start();
    let window = match args.status {
        Some(address) => Some(Window::open(address, &args.allow_host).await?),
        None => None,
    };
    let memory = Memory::of(args.remember.as_deref(), &args.target);
    let role = |front| Role::Guard {
        front,
        drain: args.drain,
        hides_host: args.hide_host,
        answers_discover: args.answer_discover,
        max_message: Some(args.max_message),
        remembered: memory.as_ref().and_then(Memory::read),
    };
    let is_process = args.target.url.is_none();
    let backlog = Arc::new(Backlog::default());
    let is_tapped = is_process && args.server_stderr != Some(ServerStderr::Off);
    let tap = is_tapped.then(|| Arc::clone(&backlog));
    let written = match &args.server_stderr {
        Some(ServerStderr::File(path)) => {
            Some(Told::new(stderr::append(path, Arc::clone(&backlog))?))
        }
        _ => None,
    };
    let (guard, door) = match args.listen.as_str() {
        "stdio" if !args.allow_host.is_empty() && args.status.is_none() => {
            return Err(usage(
                "--allow-host is for --listen http://… and --status: a host at the standard streams has no name",
            ));
        }
        "stdio" if !args.cors.is_empty() => {
            return Err(usage(
                "--cors is for --listen http://…: no web page is at the standard streams",
            ));
        }
        "stdio" => {
            if stdin().is_terminal() && args.log == Log::Text {
                warn(&HINT);
            }
            (args.target.relay(role(None), Streams::take()?, tap)?, None)
        }
        url => {
            let (door, hands) = Door::open(url, &args.allow_host, &args.cors).await?;
            let guard = args
                .target
                .relay(role(Some(Box::new(door.front()))), hands, tap)?;
            (guard, Some(door))
        }
    };
    let notices = [
        window
            .as_ref()
            .map(|window| Notice::new("status", window.url())),
        door.as_ref().map(|door| {
            let notice = Notice::new("listening", door.url());
            notice.with_sse(door.sse()).with_caution(door.caution())
        }),
    ];
    let notices = notices.into_iter().flatten().collect();
    let style = match (&args.server_stderr, args.log) {
        _ if !is_tapped => None,
        (Some(ServerStderr::File(_) | ServerStderr::Off), _) => None,
        (Some(ServerStderr::Inherit), _) | (None, Log::Off | Log::Text) => Some(Style::Raw),
        (Some(ServerStderr::Prefix), _) => Some(Style::Prefixed(program(&args))),
        // Every line of the log must be a JSON object.
        (None, Log::Json) => Some(Style::Json),
    };
    let screen = style.map(|style| (Screen::new(style), backlog));
    let told = telling::start(args.log, notices, guard.events(), is_process, screen)?;
    tokio::spawn(attend_relay(guard.events(), guard.clone()));
    if let Some(memory) = memory {
        tokio::spawn(keep(memory, guard.events()));
    }
    if let Some(window) = window {
        tokio::spawn(window.show(guard.clone()));
    }
    let listening = door.map(|door| tokio::spawn(door.listen(guard.clone())));
    tokio::select! {
        _ = guard.closed() => {}
        () = endings.next() => tokio::select! {
            ended = guard.shutdown() => ended?,
            // A second signal ends the program without waiting for calls in flight.
            () = endings.next() => return Ok(ExitCode::from(4)),
        },
    }
    if let Some(listening) = listening {
        listening.await?;
    }
    told.end().await;
    if let Some(written) = written {
        written.end().await;
    }
    if let Some(cleaner) = cleaner {
        cleaner.stop();
    }
    Ok(ExitCode::SUCCESS)
}

/// The name for the server until it reports its own: the file name of its program.
fn program(args: &Guard) -> String {
    let program = args.target.command_line.first().map(Path::new);
    let name = program.and_then(Path::file_name);
    in_line(&name.unwrap_or_default().to_string_lossy())
}

/// Stores every offer of the server. Uses another thread because the disk may be slow.
async fn keep(memory: Memory, mut events: Events<Event>) {
    while let Some(event) = events.recv().await {
        if let Some(offer) = event.offer() {
            let memory = memory.clone();
            // Errors are ignored: an offer that cannot be stored is not remembered.
            tokio::task::spawn_blocking(move || drop(memory.keep(&offer)));
        }
    }
}
