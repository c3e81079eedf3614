//! Implements `everlink guard`: a relay between a host and a server.
//!
//! `listen` accepts hosts over HTTP, `offer_cache` stores what the server offered, and `status` serves the state of the guard. `log` logs events, and
//! `stderr` shows the server's standard error.

mod listen;
pub(crate) mod log;
mod offer_cache;
mod status;
mod stderr;

use std::io::{IsTerminal, stdin};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use everlink::relay::Event;
use everlink_tokio::Events;
use everlink_tokio::stdio::StdioTransport;

use crate::args::{Guard, LogFormat, ServerStderr};
use crate::cleaner::Cleaner;
use crate::monitor::monitor_relay;
use crate::output::{single_line, warn};
use crate::recording::Role;
use crate::stderr_copy::Backlog;
use crate::{Failure, ShutdownSignals, usage_error};

use listen::HostListener;
use log::{Notice, WriterThread};
use offer_cache::OfferCache;
use status::StatusServer;
use stderr::{StderrPrinter, Style};

/// A hint for a person who starts the guard at a terminal, where no host will send a message.
const HINT: &str = "waiting for an MCP host on standard input, which is a terminal: put this command into the configuration of a host, or use --listen http://127.0.0.1:8080/mcp; Ctrl-C ends the guard";

pub(crate) async fn run(args: Guard) -> Result<ExitCode, Failure> {
    let mut signals = ShutdownSignals::listen()?;
    let cleaner = Cleaner::start();
    let status_server = match args.status {
        Some(address) => Some(StatusServer::bind(address, &args.allow_host).await?),
        None => None,
    };
    let offer_cache = OfferCache::of(args.remember.as_deref(), &args.target);
    let role = |endpoint| Role::Guard {
        endpoint,
        drain: args.drain,
        hides_host: args.hide_host,
        answers_discover: args.answer_discover,
        max_message: Some(args.max_message),
        remembered: offer_cache.as_ref().and_then(OfferCache::read),
    };
    let is_process = args.target.url.is_none();
    let backlog = Arc::new(Backlog::default());
    let copies_stderr = is_process && args.server_stderr != Some(ServerStderr::Off);
    let stderr_backlog = copies_stderr.then(|| Arc::clone(&backlog));
    let stderr_file = match &args.server_stderr {
        Some(ServerStderr::File(path)) => Some(WriterThread::new(stderr::append_to_file(
            path,
            Arc::clone(&backlog),
        )?)),
        _ => None,
    };
    let (guard, host_listener) = match args.listen.as_str() {
        "stdio" if !args.allow_host.is_empty() && args.status.is_none() => {
            return Err(usage_error(
                "--allow-host needs --listen http://… or --status: a host on the standard streams sends no Host header",
            ));
        }
        "stdio" if !args.cors.is_empty() => {
            return Err(usage_error(
                "--cors needs --listen http://…: a web page cannot connect to the standard streams",
            ));
        }
        "stdio" => {
            if stdin().is_terminal() && args.log == LogFormat::Text {
                warn(&HINT);
            }
            (
                args.target
                    .start_relay(role(None), StdioTransport::take()?, stderr_backlog)?,
                None,
            )
        }
        url => {
            let (host_listener, transport) =
                HostListener::bind(url, &args.allow_host, &args.cors).await?;
            let guard = args.target.start_relay(
                role(Some(Box::new(host_listener.endpoint()))),
                transport,
                stderr_backlog,
            )?;
            (guard, Some(host_listener))
        }
    };
    let notices = [
        status_server
            .as_ref()
            .map(|server| Notice::new("status", server.url())),
        host_listener.as_ref().map(|listener| {
            let notice = Notice::new("listening", listener.url());
            notice
                .with_sse(listener.sse())
                .with_caution(listener.caution())
        }),
    ];
    let notices = notices.into_iter().flatten().collect();
    let style = match (&args.server_stderr, args.log) {
        _ if !copies_stderr => None,
        (Some(ServerStderr::File(_) | ServerStderr::Off), _) => None,
        (Some(ServerStderr::Inherit), _) | (None, LogFormat::Off | LogFormat::Text) => {
            Some(Style::Raw)
        }
        (Some(ServerStderr::Prefix), _) => Some(Style::Prefixed(program_name(&args))),
        // Every line of the log must be a JSON object.
        (None, LogFormat::Json) => Some(Style::Json),
    };
    let stderr_printer = style.map(|style| (StderrPrinter::new(style), backlog));
    let log = log::start(
        args.log,
        notices,
        guard.events(),
        is_process,
        stderr_printer,
    )?;
    tokio::spawn(monitor_relay(guard.events(), guard.clone()));
    if let Some(offer_cache) = offer_cache {
        tokio::spawn(store_offers(offer_cache, guard.events()));
    }
    if let Some(status_server) = status_server {
        tokio::spawn(status_server.serve(guard.clone()));
    }
    let listening = host_listener.map(|listener| tokio::spawn(listener.serve(guard.clone())));
    tokio::select! {
        _ = guard.closed() => {}
        () = signals.next() => tokio::select! {
            ended = guard.shutdown() => ended?,
            // A second signal ends the program without waiting for calls in flight.
            () = signals.next() => return Ok(ExitCode::from(4)),
        },
    }
    if let Some(listening) = listening {
        listening.await?;
    }
    log.end().await;
    if let Some(stderr_file) = stderr_file {
        stderr_file.end().await;
    }
    if let Some(cleaner) = cleaner {
        cleaner.stop();
    }
    Ok(ExitCode::SUCCESS)
}

/// The name for the server until it reports its own: the file name of its program.
fn program_name(args: &Guard) -> String {
    let program = args.target.command_line.first().map(Path::new);
    let name = program.and_then(Path::file_name);
    single_line(&name.unwrap_or_default().to_string_lossy())
}

/// Stores every offer of the server. Uses another thread because the disk may be slow.
async fn store_offers(offer_cache: OfferCache, mut events: Events<Event>) {
    while let Some(event) = events.recv().await {
        if let Some(offer) = event.offer() {
            let offer_cache = offer_cache.clone();
            // Errors are ignored: an offer that cannot be stored is not remembered.
            tokio::task::spawn_blocking(move || drop(offer_cache.store(&offer)));
        }
    }
}
