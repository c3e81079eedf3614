//! Implements `everlink guard`: a relay between a host and a server.
//!
//! `listen` accepts hosts over HTTP, `offer_cache` stores what the server offered, and `status` serves the state of the guard. `store` keeps sessions in Redis. `log`
//! logs events, `attempts` explains why there are no more quick attempts, and `stderr` shows the server's standard error. `otlp` exports traces and metrics.

mod attempts;
mod listen;
pub(crate) mod log;
mod offer_cache;
mod otlp;
mod status;
pub(crate) mod stderr;
pub(crate) mod store;

use std::io::{IsTerminal, stdin};
use std::process::ExitCode;
use std::sync::{Arc, Once};

use everlink::relay::Event;
use everlink_tokio::Events;
use everlink_tokio::stdio;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::args::{Guard, LogFormat};
use crate::authorization::{Audience, SignIn};
#[cfg(unix)]
use crate::cleaner::Cleaner;
use crate::monitor::monitor_relay;
use crate::output::{warn, warn_in_time};
use crate::recording::Role;
use crate::stderr_copy::{Backlog, ServerStderr};
use crate::{Failure, ShutdownSignals, usage_error};

use listen::HostListener;
use log::{LogLine, Notice, WriterThread};
use offer_cache::OfferCache;
use otlp::Otlp;
use status::StatusServer;
use stderr::{StderrPrinter, Style, program_name};
use store::SessionStore;

/// The value of `--listen` for a host at the standard streams.
const STDIO: &str = "stdio";

/// A hint for a person who starts the guard at a terminal, where no host will send a message.
const HINT: &str = "waiting for an MCP host on standard input, which is a terminal: put this command into the configuration of a host, or use --listen http://127.0.0.1:8080/mcp; Ctrl-C ends the guard";

pub(crate) async fn run(args: Guard) -> Result<ExitCode, Failure> {
    let mut signals = ShutdownSignals::listen()?;
    check_options(&args)?;
    #[cfg(unix)]
    let cleaner = Cleaner::start();
    let status_server = match args.status {
        Some(address) => {
            let token = args.status_token.as_deref();
            Some(StatusServer::bind(address, &args.allow_host, token).await?)
        }
        None => None,
    };
    let offer_cache = OfferCache::of(args.remember.as_deref(), &args.target);
    let server_stderr = ServerStderrCopy::start(&args)?;
    let sign_in = args.target.sign_in(Audience::Host(args.log))?;
    let otlp = match &args.otlp {
        Some(url) => {
            let is_stdio = args.listen == STDIO;
            let server = args.target.url.as_deref();
            Some(Otlp::new(url.as_deref(), is_stdio, server)?)
        }
        None => None,
    };
    let (remark, remarks) = unbounded_channel();
    let (guard, host_listener) = start_relay(
        &args,
        otlp.as_ref(),
        offer_cache.as_ref(),
        server_stderr.backlog(),
        &sign_in,
        &remark,
    )
    .await?;
    let notices = notices(status_server.as_ref(), host_listener.as_ref());
    let is_process = args.target.url.is_none();
    let printer = server_stderr.printer(&args);
    let retries = args.target.link_options.retries;
    let sources = (guard.events(), remarks);
    let log = log::start(args.log, notices, sources, is_process, printer, retries)?;
    if let Some(host_listener) = &host_listener {
        host_listener.log_outages(&remark);
    }
    tokio::spawn(monitor_relay(guard.events(), guard.clone(), sign_in));
    if let Some(offer_cache) = offer_cache {
        tokio::spawn(store_offers(offer_cache, guard.events(), remark.clone()));
    }
    // The log ends when all senders of remarks are gone.
    let exporter = otlp.map(|otlp| otlp.start(guard.clone(), remark));
    if let Some(status_server) = status_server {
        tokio::spawn(status_server.serve(guard.clone(), is_process));
    }
    let health = host_listener.as_ref().map(HostListener::health);
    let listening = host_listener.map(|listener| tokio::spawn(listener.serve(guard.clone())));
    tokio::select! {
        _ = guard.closed() => {}
        () = signals.next() => {
            if let Some(health) = health {
                health.drain();
            }
            tokio::select! {
                ended = guard.shutdown() => ended?,
                // A second signal ends the program without waiting for calls in flight.
                () = signals.next() => return Ok(ExitCode::from(4)),
            }
        }
    }
    if let Some(listening) = listening {
        listening.await?;
    }
    if let Some(exporter) = exporter {
        exporter.end().await;
    }
    log.end().await;
    server_stderr.end().await;
    #[cfg(unix)]
    if let Some(cleaner) = cleaner {
        cleaner.stop();
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses options that do not fit a host on the standard streams.
pub(crate) fn check_options(args: &Guard) -> Result<(), Failure> {
    let refusal = if args.listen != STDIO {
        return Ok(());
    } else if args.store.is_some() {
        "--store needs --listen http://…: a host on the standard streams has only one guard"
    } else if !args.allow_host.is_empty() && args.status.is_none() {
        "--allow-host needs --listen http://… or --status: a host on the standard streams sends no Host header"
    } else if args.target.auth.paste {
        "--paste needs --listen http://…: on the standard streams, the host writes to standard input, and nobody can paste there; run everlink login with --paste first"
    } else if !args.cors.is_empty() {
        "--cors needs --listen http://…: a web page cannot connect to the standard streams"
    } else {
        return Ok(());
    };
    Err(usage_error(refusal))
}

/// Starts the relay. Also returns the listener for hosts, unless the host is at the standard streams.
async fn start_relay(
    args: &Guard,
    otlp: Option<&Otlp>,
    offer_cache: Option<&OfferCache>,
    stderr_backlog: Option<Arc<Backlog>>,
    sign_in: &SignIn,
    remarks: &UnboundedSender<LogLine>,
) -> Result<(everlink_tokio::Guard, Option<HostListener>), Failure> {
    let role = |endpoint| Role::Guard {
        endpoint,
        drain: args.drain,
        hides_host: args.hide_host,
        answers_discover: args.answer_discover,
        max_message: Some(args.max_message),
        traces: otlp.is_some(),
        remembered: offer_cache.and_then(OfferCache::read),
    };
    let (target, observer) = (&args.target, otlp.map(Otlp::observer));
    let store = SessionStore::of(args)?;
    // The name of the recording must be known, even without a log.
    let log_notice = |notice| match args.log {
        LogFormat::Off => warn_in_time(notice),
        LogFormat::Json | LogFormat::Text => drop(remarks.send(LogLine::Info(notice))),
    };
    if args.listen != STDIO {
        let shared = store.as_ref().map(SessionStore::settings);
        let (host_listener, transport) =
            HostListener::bind(&args.listen, &args.allow_host, &args.cors, store).await?;
        let role = role(Some(Box::new(host_listener.endpoint())));
        let shared = shared.as_ref();
        let (guard, notice) =
            target.start_relay(role, transport, stderr_backlog, sign_in, shared, observer)?;
        notice.into_iter().for_each(log_notice);
        return Ok((guard, Some(host_listener)));
    }
    if stdin().is_terminal() && args.log == LogFormat::Text {
        warn(&HINT);
    }
    let (role, host) = (role(None), stdio::transport()?);
    let (guard, notice) =
        target.start_relay(role, host, stderr_backlog, sign_in, None, observer)?;
    notice.into_iter().for_each(log_notice);
    Ok((guard, None))
}

/// Returns the first lines of the log, which say where the guard serves what.
fn notices(
    status_server: Option<&StatusServer>,
    host_listener: Option<&HostListener>,
) -> Vec<Notice> {
    let status = status_server.map(|server| Notice::new("status", server.url()));
    let listening = host_listener.map(|listener| {
        Notice::new("listening", listener.url())
            .with_sse(listener.sse())
            .with_caution(listener.caution())
    });
    status.into_iter().chain(listening).collect()
}

/// The copy of the server's standard error.
struct ServerStderrCopy {
    /// `None` if nothing is copied.
    backlog: Option<Arc<Backlog>>,
    /// The thread that appends to a file, if `--server-stderr` names one.
    file: Option<WriterThread>,
}

impl ServerStderrCopy {
    fn start(args: &Guard) -> Result<ServerStderrCopy, Failure> {
        let is_copied =
            args.target.url.is_none() && args.target.server_stderr != Some(ServerStderr::Off);
        let backlog = Arc::new(Backlog::default());
        let file = match &args.target.server_stderr {
            Some(ServerStderr::File(path)) => Some(WriterThread::new(stderr::append_to_file(
                path,
                Arc::clone(&backlog),
            )?)),
            _ => None,
        };
        Ok(ServerStderrCopy {
            backlog: is_copied.then_some(backlog),
            file,
        })
    }

    /// Returns the backlog for the transport, which copies standard error to it.
    fn backlog(&self) -> Option<Arc<Backlog>> {
        self.backlog.clone()
    }

    /// Returns the printer for the log, which shows standard error between its own lines. `None` if standard error goes elsewhere.
    fn printer(&self, args: &Guard) -> Option<(StderrPrinter, Arc<Backlog>)> {
        let backlog = self.backlog.clone()?;
        let style = match (&args.target.server_stderr, args.log) {
            (Some(ServerStderr::File(_) | ServerStderr::Off), _) => return None,
            (Some(ServerStderr::Inherit), _) | (None, LogFormat::Off | LogFormat::Text) => {
                Style::Raw
            }
            (Some(ServerStderr::Prefix), _) => Style::Prefixed(program_name(&args.target)),
            // Every line of the log must be a JSON object.
            (None, LogFormat::Json) => Style::Json,
        };
        Some((StderrPrinter::new(style), backlog))
    }

    /// Waits until the file is written.
    async fn end(self) {
        if let Some(file) = self.file {
            file.end().await;
        }
    }
}

/// Stores every offer of the server. Uses another thread because the disk may be slow. Logs the first failure: the next ones have the same cause.
async fn store_offers(
    offer_cache: OfferCache,
    mut events: Events<Event>,
    remarks: UnboundedSender<LogLine>,
) {
    let complaint = Arc::new(Once::new());
    while let Some(event) = events.recv().await {
        if let Some(offer) = event.offer() {
            let (offer_cache, remarks) = (offer_cache.clone(), remarks.clone());
            let complaint = Arc::clone(&complaint);
            tokio::task::spawn_blocking(move || {
                if let Err(error) = offer_cache.store(&offer) {
                    let path = offer_cache.path().display();
                    let remark = format!(
                        "--remember: what the server offers cannot be stored in {path}: {error}; the guard goes on without it, and the next host waits while the server starts; --remember names another directory, or is off"
                    );
                    complaint.call_once(|| drop(remarks.send(LogLine::Warning(remark))));
                }
            });
        }
    }
}
