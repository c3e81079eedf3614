//! Tests what links and servers report to `tracing`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everlink_tokio::http;
use everlink_tokio::prelude::*;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context as LayerContext, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// The fields of a span or of an event, and what it was reported in.
#[derive(Clone, Debug, Default)]
struct Entry {
    name: &'static str,
    parent: Option<&'static str>,
    level: Option<Level>,
    fields: BTreeMap<&'static str, String>,
    is_closed: bool,
}

impl Visit for Entry {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<(u64, Entry)>>>,
    events: Arc<Mutex<Vec<Entry>>>,
}

impl Collector {
    /// The closed spans in which `field` is `value`.
    fn spans(&self, field: &str, value: &str) -> Vec<Entry> {
        let spans = self.spans.lock().expect("no panic");
        let entries = spans.iter().map(|(_, entry)| entry);
        let found = entries.filter(|entry| {
            entry.is_closed && entry.fields.get(field).is_some_and(|found| found == value)
        });
        found.cloned().collect()
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut Entry)) {
        let mut spans = self.spans.lock().expect("no panic");
        let span = spans
            .iter_mut()
            .rev()
            .find(|(span, _)| *span == id.into_u64());
        change(&mut span.expect("a span of ours").1);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: LayerContext<'_, S>) {
        let parent = context.span(id).and_then(|span| span.parent());
        let mut entry = Entry {
            name: attributes.metadata().name(),
            parent: parent.map(|parent| parent.name()),
            ..Entry::default()
        };
        attributes.record(&mut entry);
        let mut spans = self.spans.lock().expect("no panic");
        spans.push((id.into_u64(), entry));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: LayerContext<'_, S>) {
        self.change(id, |entry| values.record(entry));
    }

    fn on_event(&self, event: &Event<'_>, context: LayerContext<'_, S>) {
        let parent = context.event_span(event);
        let mut entry = Entry {
            name: event.metadata().target(),
            parent: parent.map(|parent| parent.name()),
            level: Some(*event.metadata().level()),
            ..Entry::default()
        };
        event.record(&mut entry);
        self.events.lock().expect("no panic").push(entry);
    }

    fn on_close(&self, id: Id, _: LayerContext<'_, S>) {
        self.change(&id, |entry| entry.is_closed = true);
    }
}

async fn answer(request: Request, _: Context) -> Result<Payload, ErrorObject> {
    tracing::info!(target: "application", "in the handler");
    let params: Value = request.params.expect("a name").parse().expect("JSON");
    let answer = match params["name"].as_str() {
        Some("good") => json!({"content": []}),
        Some("bad") => json!({"content": [], "isError": true}),
        _ => return Err(ErrorObject::new(-32_602, "no such tool")),
    };
    Ok(Payload::of(&answer).expect("JSON"))
}

#[tokio::test]
async fn calls_requests_and_connections_are_spans_and_failures_are_told() {
    let collector = Collector::default();
    let registry = tracing_subscriber::registry().with(collector.clone());
    let _subscribed = tracing::subscriber::set_default(registry);

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let tools = ServerCapabilities::default().with_tools(false);
    let offer = Offer::new("server", "1.0").with_capabilities(tools);
    let config = ServerConfig::new(offer, secret()).with_http(everlink::server::Http::default());
    let service = http::serve(listener, config, answer);
    let config = Config::http("client", "1.0", &url).expect("a URL");
    let link = http::connect(config).expect("a runtime");

    link.call_tool("good", json!({})).await.expect("a result");
    link.call_tool("bad", json!({})).await.expect("a result");
    link.call_tool("ugly", json!({}))
        .await
        .expect_err("no tool");
    service.shutdown().await.expect("it ends");
    let late = link
        .call_tool("late", json!({}))
        .timeout(Duration::from_secs(1));
    late.await.expect_err("no server");
    link.shutdown().await.expect("it ends");

    for kind in ["client", "server"] {
        let outcome = |name: &str| {
            let spans = collector.spans("gen_ai.tool.name", name);
            let span = spans
                .into_iter()
                .find(|span| span.fields["otel.kind"] == kind);
            let span = span.expect("a span that is closed");
            assert_eq!(span.fields["otel.name"], format!("tools/call {name}"));
            assert_eq!(span.fields["mcp.method.name"], "tools/call");
            span.fields.get("error.type").cloned()
        };
        assert_eq!(outcome("good"), None);
        assert_eq!(outcome("bad").as_deref(), Some("tool_error"));
        assert_eq!(outcome("ugly").as_deref(), Some("-32602"));
    }
    let late = collector.spans("gen_ai.tool.name", "late");
    assert!(late[0].fields.contains_key("error.type"), "{late:?}");

    let connections = collector.spans("everlink.epoch", "1");
    assert_eq!(connections[0].name, "mcp.connection");
    assert!(connections[0].fields.contains_key("mcp.protocol.version"));
    let events = collector.events.lock().expect("no panic");
    let handled = events.iter().find(|event| event.name == "application");
    assert_eq!(
        handled.expect("the handler's event").parent,
        Some("mcp.call")
    );
    let mut warnings = events
        .iter()
        .filter(|event| event.level == Some(Level::WARN));
    assert!(warnings.any(|event| event.fields["message"].contains("could not be reached")));
}

/// The span of the caller is the parent of the call's span.
#[tokio::test]
async fn call_is_part_of_the_span_in_which_it_is_made() {
    let collector = Collector::default();
    let registry = tracing_subscriber::registry().with(collector.clone());
    let _subscribed = tracing::subscriber::set_default(registry);
    let command = std::process::Command::new("there-is-no-such-program");
    let config = Config::child("client", "1.0").with_policy(Policy::one_shot());
    let link = everlink_tokio::child::connect(command, config).expect("a runtime");
    let span = tracing::info_span!("the agent's turn");
    let call = span.in_scope(|| link.call_tool("echo", json!({})).start());
    call.await.expect_err("no server");
    let calls = collector.spans("gen_ai.tool.name", "echo");
    assert_eq!(calls[0].parent, Some("the agent's turn"));
    assert_eq!(calls[0].fields["error.type"], "connection_lost");
    link.shutdown().await.expect("it ends");
}
