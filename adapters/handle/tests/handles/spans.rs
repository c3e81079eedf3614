//! What calls, requests and connections report to `tracing`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use everlink::server::InputRequired;
use everlink::{Config, ErrorObject, Payload};
use serde_json::json;
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use super::{Pair, value_of};

#[derive(Clone, Debug, Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// The fields of all spans, by their ids. Of spans with the same id, the last one is the newest.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(u64, Fields)>>>);

impl Collector {
    /// Collects the spans of this thread while the guard lives.
    fn install() -> (Collector, DefaultGuard) {
        let collector = Collector::default();
        let registry = tracing_subscriber::registry().with(collector.clone());
        (collector, tracing::subscriber::set_default(registry))
    }

    /// The fields of the only span in which each of these fields has this value.
    #[track_caller]
    fn span(&self, wanted: &[(&str, &str)]) -> BTreeMap<&'static str, String> {
        let spans = self.0.lock().expect("no panic");
        let mut found = spans.iter().map(|(_, fields)| &fields.0).filter(|fields| {
            let has = |(name, value): &(&str, &str)| fields.get(name).is_some_and(|it| it == value);
            wanted.iter().all(has)
        });
        let span = found.next().cloned();
        assert_eq!(found.count(), 0, "{wanted:?}");
        span.expect("a span")
    }

    /// The types of the errors of a call with this method or tool, at the client and at the server.
    #[track_caller]
    fn errors(&self, field: &str, value: &str) -> [Option<String>; 2] {
        ["client", "server"].map(|kind| {
            let span = self.span(&[("otel.kind", kind), (field, value)]);
            span.get("error.type").cloned()
        })
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        self.0
            .lock()
            .expect("no panic")
            .push((id.into_u64(), fields));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut spans = self.0.lock().expect("no panic");
        let mut spans = spans.iter_mut().rev();
        let span = spans.find(|(span, _)| *span == id.into_u64());
        values.record(&mut span.expect("a span of ours").1);
    }
}

#[test]
fn spans_of_a_call_and_its_request_say_how_it_ended() {
    let (collector, _guard) = Collector::install();
    let mut pair = Pair::new();
    let answers: [(&str, Result<_, ErrorObject>); 3] = [
        ("good", Ok(json!({"content": []}))),
        ("bad", Ok(json!({"content": [], "isError": true}))),
        ("ugly", Err(ErrorObject::new(-32_602, "no such tool"))),
    ];
    for (name, answer) in answers {
        let call = pair.link().call_tool(name, json!({})).start();
        pair.run();
        pair.answer(answer.map(|result| Payload::of(&result).expect("it is JSON")));
        drop(value_of(call));
    }
    let errors = |name: &str| collector.errors("gen_ai.tool.name", name);
    assert_eq!(errors("good"), [None, None]);
    assert_eq!(errors("bad"), [(); 2].map(|()| Some("tool_error".into())));
    assert_eq!(errors("ugly"), [(); 2].map(|()| Some("-32602".into())));
}

#[test]
fn span_of_a_list_or_of_a_request_that_needs_input_has_no_error() {
    let (collector, _guard) = Collector::install();
    let mut config = Config::child("handles", "1.0");
    config.capabilities = config.capabilities.with_roots(false);
    let mut pair = Pair::with(config);
    let listed = pair.link().list_tools().start();
    pair.run();
    pair.answer(Ok(r#"{"tools":[]}"#.parse().expect("it is JSON")));
    value_of(listed).expect("a list");
    assert_eq!(
        collector.errors("mcp.method.name", "tools/list"),
        [None, None]
    );
    let _call = pair.link().call_tool("ask", json!({})).start();
    pair.run();
    let input = InputRequired::new().and_ask("where", "roots/list", None);
    pair.tasks.remove(0).answer.require_input(input);
    pair.run();
    assert_eq!(collector.errors("gen_ai.tool.name", "ask"), [None, None]);
}

#[test]
fn span_of_a_call_that_was_not_made_or_lost_its_driver_says_so() {
    let (collector, _guard) = Collector::install();
    let mut pair = Pair::new();
    let error_of = |method: &str| {
        let span = collector.span(&[("mcp.method.name", method)]);
        span.get("error.type").cloned()
    };
    let refused = pair.link().call("initialize", None).start();
    pair.run();
    value_of(refused).expect_err("the link calls it");
    assert_eq!(error_of("initialize").as_deref(), Some("misuse"));

    let lost = pair.link().call_tool("slow", json!({})).start();
    pair.run();
    pair.owner = None;
    value_of(lost).expect_err("nobody drives it");
    let span = collector.span(&[("otel.kind", "client"), ("gen_ai.tool.name", "slow")]);
    assert_eq!(span["error.type"], "gone");
}

#[test]
fn span_of_a_connection_has_its_version_and_its_loss() {
    let (collector, _guard) = Collector::install();
    let mut pair = Pair::new();
    drop(pair.link().ready());
    pair.run();
    let first = |collector: &Collector| collector.span(&[("everlink.epoch", "1")]);
    let version = first(&collector).get("mcp.protocol.version").cloned();
    let session = pair.link().session().expect("it is ready");
    assert_eq!(version, Some(session.version.to_string()));
    assert_eq!(first(&collector).get("error.type"), None);
    pair.kill_server();
    pair.run();
    assert_eq!(first(&collector)["error.type"], "connection_lost");
}
