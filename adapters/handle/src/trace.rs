//! Reports to `tracing`, with the names of OpenTelemetry's conventions for MCP: a span for each connection, call and request, and events for what
//! happens to a link. Without the feature `tracing`, every function here is empty.

use std::fmt;
use std::future::Future;

use everlink::client::{Event, FailureKind};
use everlink::server::Request;
use everlink::{ErrorObject, Payload};

use crate::CallError;
use span::Span;

/// The span of a call, from its start to its outcome.
pub(crate) struct CallSpan(Span);

impl CallSpan {
    pub(crate) fn new(method: &str, params: Option<&Payload>) -> CallSpan {
        CallSpan(Span::of_message("client", method, params))
    }

    /// Records the outcome: a result, if it is not a list, or an error.
    pub(crate) fn record(&self, outcome: Result<Option<&Payload>, &CallError>) {
        match outcome {
            Ok(result) => self.0.record_result(result),
            Err(error) => self.0.record_error(|| error_type(error), error),
        }
    }
}

/// The span of a request at the server's end, from its arrival to its answer. Without the feature `tracing`, there is none.
#[derive(Clone)]
pub struct RequestSpan(Span);

impl RequestSpan {
    pub(crate) fn new(request: &Request) -> RequestSpan {
        let params = request.params.as_ref();
        RequestSpan(Span::of_message("server", &request.method, params))
    }

    pub(crate) fn record(&self, answer: Result<Option<&Payload>, &ErrorObject>) {
        match answer {
            Ok(result) => self.0.record_result(result),
            Err(error) => self.0.record_error(|| error.code.to_string(), error),
        }
    }

    /// Runs a function inside the span.
    pub fn in_scope<T>(&self, function: impl FnOnce() -> T) -> T {
        self.0.in_scope(function)
    }

    /// Lets a future run inside the span.
    pub fn instrument<F: Future + Send>(
        &self,
        future: F,
    ) -> impl Future<Output = F::Output> + Send + use<F> {
        self.0.instrument(future)
    }
}

impl fmt::Debug for RequestSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestSpan")
    }
}

/// The span of the present connection of a link.
pub(crate) struct ConnectionSpan(Span);

impl ConnectionSpan {
    pub(crate) const fn none() -> ConnectionSpan {
        ConnectionSpan(Span::none())
    }

    /// Reports an event. Begins a span with each connection and ends it with the connection.
    pub(crate) fn report(&mut self, event: &Event) {
        if let Event::Opening { epoch, .. } = event {
            self.0 = Span::of_connection(epoch.number());
        }
        match event {
            Event::Ready(session) => self.0.record_version(&session.version),
            Event::Ended(ended) if ended.counted => {
                self.0.record_error(|| "connection_lost".to_owned(), ended);
            }
            _ => {}
        }
        match event {
            Event::Ended(ended) if !ended.counted => self.0.info(event),
            Event::Ended(_)
            | Event::Noise(_)
            | Event::Parked { .. }
            | Event::Silent { .. }
            | Event::Slow { .. }
            | Event::Waiting { .. } => self.0.warn(event),
            Event::AuthRequired(_) | Event::Ready(_) | Event::Closed => self.0.info(event),
            _ => self.0.debug(event),
        }
        if let Event::Ended(_) = event {
            self.0 = Span::none();
        }
    }
}

/// The value of `error.type`.
fn error_type(error: &CallError) -> String {
    let name = match error {
        CallError::Arguments(_) => "arguments",
        CallError::Error(error) => return error.code.to_string(),
        CallError::Failed(failure) => match failure.kind {
            FailureKind::Cancelled { .. } => "cancelled",
            FailureKind::TimedOut { .. } => "timeout",
            FailureKind::Status { status, .. } => return status.to_string(),
            FailureKind::Unauthorized { .. } => "unauthorized",
            FailureKind::Cut | FailureKind::Down | FailureKind::Lost | FailureKind::NoContact => {
                "connection_lost"
            }
            _ => "_OTHER",
        },
        CallError::Gone => "gone",
        CallError::Misuse(_) => "misuse",
        CallError::NotReady(_) => "not_ready",
    };
    name.to_owned()
}

#[cfg(feature = "tracing")]
mod span {
    //! Spans of `tracing`.

    use std::fmt::Display;
    use std::future::Future;

    use everlink::Payload;
    use serde::Deserialize;
    use tracing::Instrument as _;
    use tracing::field::{Empty, display};

    /// Filters name this target.
    macro_rules! target {
        () => {
            "everlink"
        };
    }

    #[derive(Clone)]
    pub(super) struct Span(tracing::Span);

    /// What the parameters of a message name.
    #[derive(Default, Deserialize)]
    struct Named {
        name: Option<String>,
        uri: Option<String>,
    }

    impl Span {
        pub(super) const fn none() -> Span {
            Span(tracing::Span::none())
        }

        pub(super) fn of_message(kind: &str, method: &str, params: Option<&Payload>) -> Span {
            let span = tracing::info_span!(
                target: target!(),
                "mcp.call",
                otel.name = method,
                otel.kind = kind,
                otel.status_code = Empty,
                otel.status_description = Empty,
                mcp.method.name = method,
                mcp.resource.uri = Empty,
                gen_ai.tool.name = Empty,
                gen_ai.prompt.name = Empty,
                error.type = Empty,
            );
            if !span.is_disabled() {
                let named = params.and_then(|params| params.parse::<Named>().ok());
                let Named { name, uri } = named.unwrap_or_default();
                if let Some(uri) = uri {
                    span.record("mcp.resource.uri", uri);
                }
                let field = match method {
                    "tools/call" => "gen_ai.tool.name",
                    "prompts/get" => "gen_ai.prompt.name",
                    _ => return Span(span),
                };
                if let Some(name) = name {
                    span.record("otel.name", display(format_args!("{method} {name}")));
                    span.record(field, name);
                }
            }
            Span(span)
        }

        pub(super) fn of_connection(epoch: u64) -> Span {
            Span(tracing::info_span!(
                target: target!(),
                parent: None,
                "mcp.connection",
                everlink.epoch = epoch,
                mcp.protocol.version = Empty,
                otel.status_code = Empty,
                otel.status_description = Empty,
                error.type = Empty,
            ))
        }

        pub(super) fn record_version(&self, version: &impl Display) {
            self.0.record("mcp.protocol.version", display(version));
        }

        /// Records that a tool says of itself that it failed.
        pub(super) fn record_result(&self, result: Option<&Payload>) {
            #[derive(Deserialize)]
            #[serde(rename_all = "camelCase")]
            struct Flags {
                #[serde(default)]
                is_error: bool,
            }
            if self.0.is_disabled() {
                return;
            }
            let flags = result.and_then(|result| result.parse::<Flags>().ok());
            if flags.is_some_and(|flags| flags.is_error) {
                self.0.record("error.type", "tool_error");
                self.0.record("otel.status_code", "ERROR");
            }
        }

        pub(super) fn record_error(&self, class: impl FnOnce() -> String, error: &impl Display) {
            if !self.0.is_disabled() {
                self.0.record("error.type", class());
                self.0.record("otel.status_code", "ERROR");
                self.0.record("otel.status_description", display(error));
            }
        }

        pub(super) fn warn(&self, event: &impl Display) {
            tracing::warn!(target: target!(), parent: &self.0, "{event}");
        }

        pub(super) fn info(&self, event: &impl Display) {
            tracing::info!(target: target!(), parent: &self.0, "{event}");
        }

        pub(super) fn debug(&self, event: &impl Display) {
            tracing::debug!(target: target!(), parent: &self.0, "{event}");
        }

        pub(super) fn in_scope<T>(&self, function: impl FnOnce() -> T) -> T {
            self.0.in_scope(function)
        }

        pub(super) fn instrument<F: Future + Send>(
            &self,
            future: F,
        ) -> impl Future<Output = F::Output> + Send + use<F> {
            future.instrument(self.0.clone())
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod span {
    //! Spans that are not reported.

    use std::fmt::Display;
    use std::future::Future;

    use everlink::Payload;

    #[derive(Clone)]
    pub(super) struct Span;

    impl Span {
        pub(super) const fn none() -> Span {
            Span
        }

        pub(super) const fn of_message(_: &str, _: &str, _: Option<&Payload>) -> Span {
            Span
        }

        pub(super) const fn of_connection(_: u64) -> Span {
            Span
        }

        pub(super) fn record_version(&self, _: &impl Display) {}

        pub(super) fn record_result(&self, _: Option<&Payload>) {}

        pub(super) fn record_error(&self, _: impl FnOnce() -> String, _: &impl Display) {}

        pub(super) fn warn(&self, _: &impl Display) {}

        pub(super) fn info(&self, _: &impl Display) {}

        pub(super) fn debug(&self, _: &impl Display) {}

        pub(super) fn in_scope<T>(&self, function: impl FnOnce() -> T) -> T {
            function()
        }

        pub(super) fn instrument<F: Future + Send>(
            &self,
            future: F,
        ) -> impl Future<Output = F::Output> + Send + use<F> {
            future
        }
    }
}
